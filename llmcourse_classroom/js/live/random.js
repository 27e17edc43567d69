// Python's random numbers: the same seed gives the same numbers as random.Random(seed).random().

const [SIZE, MIDDLE] = [624, 397];

// The Mersenne twister of Matsumoto and Nishimura, 1998: 624 words of 32 bits, stirred all at once.
export class Random {
  constructor(seed) {
    this.words = new Uint32Array(SIZE);
    this.next = SIZE; // of the words that are left
    this.seed(seed);
  }

  seed(seed) {
    const w = this.words;
    w[0] = 19650218;
    for (let i = 1; i < SIZE; i++) w[i] = Math.imul(1812433253, w[i - 1] ^ (w[i - 1] >>> 30)) + i;
    let i = 1; // Python mixes the words of the seed into these; a seed below 2^32 is one word
    const stir = (factor, what) => {
      w[i] = (w[i] ^ Math.imul(w[i - 1] ^ (w[i - 1] >>> 30), factor)) + what(i);
      if (++i === SIZE) { w[0] = w[SIZE - 1]; i = 1; }
    };
    for (let n = 0; n < SIZE; n++) stir(1664525, () => seed);
    for (let n = 1; n < SIZE; n++) stir(1566083941, (at) => -at);
    w[0] = 0x80000000;
    this.next = SIZE;
  }

  word() {
    const w = this.words;
    if (this.next === SIZE) {
      for (let i = 0; i < SIZE; i++) {
        const y = (w[i] & 0x80000000) | (w[(i + 1) % SIZE] & 0x7fffffff);
        w[i] = w[(i + MIDDLE) % SIZE] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      this.next = 0;
    }
    let y = w[this.next++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  // A number from 0 to 1 with 53 random bits.
  random() {
    const [high, low] = [this.word() >>> 5, this.word() >>> 6];
    return (high * 67108864 + low) / 9007199254740992;
  }

  // A whole number from 0 to count - 1.
  below(count) {
    return Math.floor(this.random() * count);
  }

  state() {
    return { words: this.words.slice(), next: this.next };
  }

  restore({ words, next }) {
    this.words = words.slice();
    this.next = next;
  }
}
