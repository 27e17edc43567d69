// Writing: one token after the other.  Keys and values of the tokens so far are kept in a cache, so
// that a new token costs one row of every matrix.

import { rmsnorm, rope } from "./layers.js";
import { of } from "./model.js";

const row = (columns) => ({ numbers: new Float32Array(columns), rows: 1, columns, down: columns, along: 1 });

// y = W x, or y + W x where `add` is true, for one token.
function project(y, w, x, { add = false } = {}) {
  for (let i = 0, at = 0; i < w.rows; i++) {
    let sum = add ? y.numbers[i] : 0;
    for (let j = 0; j < w.columns; j++, at++) sum += w.numbers[at] * x.numbers[j];
    y.numbers[i] = sum;
  }
}

export class Sampler {
  constructor(model) {
    const { width: D, num_heads: H, num_kv_heads: G, head_size: K, hidden: F, vocab_size: V,
      context_length: T } = model.config;
    this.model = model;
    this.cache = model.layers.map(() =>
      ({ keys: Array.from({ length: T }, () => row(G * K)), values: Array.from({ length: T }, () => row(G * K)) }));
    this.rows = { x: row(D), normed: row(D), q: row(H * K), mixed: row(H * K), gate: row(F), up: row(F), logits: row(V),
      scale: row(1) };
  }

  // The logits of the token after the one given, which stands at a position.
  next(id, position) {
    const { model: { w, config, rotations }, rows: { x, normed, gate, up, logits, scale } } = this;
    const D = config.width;
    const norm = (gain) => rmsnorm(normed, scale, x, gain, config.norm_eps);
    x.numbers.set(w.embedding.numbers.subarray(id * D, (id + 1) * D));
    this.cache.forEach(({ keys, values }, l) => {
      norm(of(w, l, "attention_norm.gain"));
      project(this.rows.q, of(w, l, "attention.w_q"), normed);
      project(keys[position], of(w, l, "attention.w_k"), normed);
      project(values[position], of(w, l, "attention.w_v"), normed);
      rope(this.rows.q, rotations, { first: position });
      rope(keys[position], rotations, { first: position });
      this.attend(keys, values, position);
      project(x, of(w, l, "attention.w_o"), this.rows.mixed, { add: true });

      norm(of(w, l, "feed_forward_norm.gain"));
      project(gate, of(w, l, "feed_forward.w_gate"), normed);
      project(up, of(w, l, "feed_forward.w_up"), normed);
      gate.numbers.forEach((z, f) => { gate.numbers[f] = z / (1 + Math.exp(-z)) * up.numbers[f]; });
      project(x, of(w, l, "feed_forward.w_down"), gate, { add: true });
    });
    norm(w["norm.gain"]);
    project(logits, w.embedding, normed);
    return logits.numbers;
  }

  // What every head reads from the positions up to this one.
  attend(keys, values, position) {
    const { num_heads: H, num_kv_heads: G, head_size: K } = this.model.config;
    const [q, mixed] = [this.rows.q.numbers, this.rows.mixed.numbers];
    for (let h = 0; h < H; h++) {
      const shared = Math.floor(h * G / H) * K;
      const scores = [];
      for (let s = 0; s <= position; s++) {
        let sum = 0;
        for (let c = 0; c < K; c++) sum += q[h * K + c] * keys[s].numbers[shared + c];
        scores.push(sum / Math.sqrt(K));
      }
      const p = softmax(scores);
      mixed.fill(0, h * K, h * K + K);
      p.forEach((share, s) => {
        for (let c = 0; c < K; c++) mixed[h * K + c] += share * values[s].numbers[shared + c];
      });
    }
  }

  // The logits of the token after some others.
  after(ids) {
    let logits = null;
    ids.forEach((id, position) => { logits = this.next(id, position); });
    return logits;
  }

  // Write on after some tokens, to the end of a story, or as far as the model sees at once.
  // `chance` draws numbers from 0 to 1.
  write(beginning, { end, temperature, chance }) {
    const ids = [...beginning];
    this.after(ids.slice(0, -1));
    while (ids.length <= this.model.config.context_length) {
      const logits = this.next(ids.at(-1), ids.length - 1);
      ids.push(draw(softmax([...logits].map((z) => z / temperature)), chance.random()));
      if (ids.at(-1) === end) break;
    }
    return ids.slice(beginning.length);
  }
}

export function softmax(z) {
  const top = z.reduce((most, each) => Math.max(most, each), -Infinity);
  const exps = z.map((each) => Math.exp(each - top));
  const sum = exps.reduce((a, b) => a + b, 0);
  return exps.map((each) => each / sum);
}

// The place in a list of probabilities where their running sum passes `u`.
export function draw(probabilities, u) {
  let left = u;
  const found = probabilities.findIndex((p) => (left -= p) < 0);
  return found < 0 ? probabilities.length - 1 : found;
}
