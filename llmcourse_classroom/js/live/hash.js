// A fingerprint of numbers: 16 hexadecimal digits, which are others if a single bit is.

// Two hashes of 32 bits, word by word.  Every line can be undone, so one changed word changes both.
export function fingerprint(numbers) {
  const words = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length);
  let a = 0x811c9dc5, b = 0x9e3779b9;
  for (let i = 0; i < words.length; i++) {
    a = Math.imul(a ^ words[i], 0x01000193);
    b = Math.imul(b ^ words[i], 0x85ebca6b);
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  return [a, b].map((hash) => (hash >>> 0).toString(16).padStart(8, "0")).join("");
}
