// The byte-pair encoding of llmcourse.data.tokenizer.  Tokens are strings with a sign for each byte.

const WORD = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu; // GPT-2's

// `merges` are pairs of ids, the first learnt first; `end` is the token that ends every document.  Ids:
// 256 bytes, what the merges make, the end.
export class Tokenizer {
  constructor({ merges, end }) {
    this.tokens = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
    for (const [a, b] of merges) this.tokens.push(this.tokens[a] + this.tokens[b]);
    this.tokens.push(end);
    this.end = end;
    this.idOf = new Map(this.tokens.map((token, id) => [token, id]));
    this.rank = new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank]));
    this.known = new Map(); // words met before, with their ids
  }

  // Apply to a word the merges that it holds, first learnt first.
  encodeWord(word) {
    let parts = [...new TextEncoder().encode(word)]; // the ids of bytes are the bytes
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) best = Math.min(best, this.rankAt(parts, i));
      if (best === Infinity) return parts;
      parts = this.join(parts, best);
    }
  }

  rankAt(parts, i) {
    return this.rank.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
  }

  // Make one token of a pair wherever the two stand side by side.
  join(parts, rank) {
    const joined = [];
    for (let i = 0; i < parts.length; i++) {
      if (i + 1 < parts.length && this.rankAt(parts, i) === rank) {
        joined.push(this.idOf.get(this.tokens[parts[i]] + this.tokens[parts[i + 1]]));
        i++;
      } else joined.push(parts[i]);
    }
    return joined;
  }

  encode(text) {
    const ids = [];
    text.split(this.end).forEach((document, i) => {
      if (i) ids.push(this.idOf.get(this.end));
      for (const word of document.match(WORD) ?? []) {
        if (!this.known.has(word)) this.known.set(word, this.encodeWord(word));
        ids.push(...this.known.get(word));
      }
    });
    return ids;
  }

  decode(ids) {
    return ids.map((id) => this.tokens[id]).join("");
  }
}
