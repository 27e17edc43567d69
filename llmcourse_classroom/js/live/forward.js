// From tokens to the loss, in the order of llmcourse.nutshell: embed; in every layer attend, then
// feedForward; loss.

import { causalSoftmax, crossEntropy, linear, rmsnorm, rope, siluGate } from "./layers.js";
import { transposed } from "./matrix.js";
import { of } from "./model.js";

// Predict every next token: the logits are in model.last.
export function forward(model, ids) {
  const { layers, last, w, space, config } = model;
  embed(layers[0].x, ids, w.embedding);
  layers.forEach((layer, l) => {
    attend(model, layer, l);
    feedForward(model, layer, l, l + 1 < layers.length ? layers[l + 1].x : last.x);
  });
  rmsnorm(last.normed, last.scales, last.x, w["norm.gain"], config.norm_eps);
  linear(space, last.logits, last.normed, w.embedding); // the embedding is the head, too
}

// How wrong the predictions are, in nats per token.
export const loss = ({ last, space }, targets) => crossEntropy(space, last.logits, targets);

// x = one row of the embedding for every token
export function embed(x, ids, { numbers, columns }) {
  ids.forEach((id, i) => x.numbers.set(numbers.subarray(id * columns, (id + 1) * columns), i * columns));
}

// y = x + W_o softmax(q k^T / sqrt(K)) v,  with q, k and v of the normalised x
function attend({ w, space, config, rotations }, layer, l) {
  const { x, normed, scales, q, k, v, p, mixed, y, heads } = layer;
  rmsnorm(normed, scales, x, of(w, l, "attention_norm.gain"), config.norm_eps);
  linear(space, q, normed, of(w, l, "attention.w_q"));
  linear(space, k, normed, of(w, l, "attention.w_k"));
  linear(space, v, normed, of(w, l, "attention.w_v"));
  rope(q, rotations);
  rope(k, rotations);
  eachHead(config, (b, h, g, i) => {
    space.multiply(p[i], heads.q[b][h], transposed(heads.k[b][g]));
    causalSoftmax(space, p[i], 1 / Math.sqrt(config.head_size));
    space.multiply(heads.mixed[b][h], p[i], heads.v[b][g]);
  });
  y.numbers.set(x.numbers);
  space.multiply(y, mixed, transposed(of(w, l, "attention.w_o")), { add: true });
}

// next = y + W_down (silu(W_gate n) W_up n),  n the normalised y
function feedForward({ w, space, config }, layer, l, next) {
  const { y, normed2, scales2, gate, up, share, hidden } = layer;
  rmsnorm(normed2, scales2, y, of(w, l, "feed_forward_norm.gain"), config.norm_eps);
  linear(space, gate, normed2, of(w, l, "feed_forward.w_gate"));
  linear(space, up, normed2, of(w, l, "feed_forward.w_up"));
  siluGate(space, hidden, share, gate, up);
  next.numbers.set(y.numbers);
  space.multiply(next, hidden, transposed(of(w, l, "feed_forward.w_down")), { add: true });
}

// Call f for every sequence b and query head h, with the key/value head g that it shares, and a count.
export function eachHead({ batch_size: B, num_heads: H, num_kv_heads: G }, f) {
  for (let b = 0; b < B; b++) {
    for (let h = 0; h < H; h++) f(b, h, Math.floor(h * G / H), b * H + h);
  }
}
