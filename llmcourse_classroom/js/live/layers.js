// The parts of a layer, each with its backward pass.  f(y, x, ...) writes into y; fBackward takes dy,
// the gradient of the loss for y, and gives those for x and for the weights.

import { transposed } from "./matrix.js";

// --- linear: y = x W^T

export const linear = (space, y, x, w) => space.multiply(y, x, transposed(w));

// dx = dy W,  dW = dW + dy^T x.  With `add`, dx is added to: x has gone into several places.
export function linearBackward(space, dx, dw, dy, x, w, { add = false } = {}) {
  space.multiply(dx, dy, w, { add });
  space.multiply(dw, transposed(dy), x, { add: true });
}

// --- RMSNorm: y = gain x / r,  r = sqrt(mean(x^2) + eps);  `scales` keeps 1 / r of every row

export function rmsnorm(y, scales, x, gain, eps) {
  const [Y, X, g, D] = [y.numbers, x.numbers, gain.numbers, x.columns];
  for (let row = 0, at = 0; row < x.rows; row++, at += D) {
    let squares = 0;
    for (let d = 0; d < D; d++) squares += X[at + d] * X[at + d];
    const scale = 1 / Math.sqrt(squares / D + eps);
    scales.numbers[row] = scale;
    for (let d = 0; d < D; d++) Y[at + d] = X[at + d] * scale * g[d];
  }
}

// dx = dx + (dy gain - n mean(dy gain n)) / r,  dgain = dgain + sum dy n,  n = x / r
export function rmsnormBackward(dx, dgain, dy, scales, x, gain) {
  const [dX, dG, dY, X, g, D] = [dx.numbers, dgain.numbers, dy.numbers, x.numbers, gain.numbers, x.columns];
  for (let row = 0, at = 0; row < x.rows; row++, at += D) {
    const scale = scales.numbers[row];
    let mean = 0;
    for (let d = 0; d < D; d++) {
      const along = dY[at + d] * X[at + d] * scale;
      dG[d] += along;
      mean += along * g[d];
    }
    mean /= D;
    for (let d = 0; d < D; d++) dX[at + d] += scale * (dY[at + d] * g[d] - X[at + d] * scale * mean);
  }
}

// --- RoPE: every two neighbouring channels (a, b) of a head turn by the angle of their place

// Cosines and sines of t theta^(-2j / K), for every position t and pair of channels j.
export function rotations({ context_length: T, head_size: K, rope_theta: theta }) {
  const [cos, sin] = [new Float32Array(T * K / 2), new Float32Array(T * K / 2)];
  for (let t = 0; t < T; t++) {
    for (let j = 0; j < K / 2; j++) {
      const angle = t * theta ** (-2 * j / K);
      cos[t * K / 2 + j] = Math.cos(angle);
      sin[t * K / 2 + j] = Math.sin(angle);
    }
  }
  return { cos, sin, positions: T, pairs: K / 2 };
}

// In place.  The backward pass turns the other way: direction -1.  `first` is the position of row 0.
export function rope(x, { cos, sin, positions, pairs }, { direction = 1, first = 0 } = {}) {
  const X = x.numbers;
  const heads = x.columns / (2 * pairs);
  let at = 0;
  for (let row = 0; row < x.rows; row++) {
    const place = ((row + first) % positions) * pairs;
    for (let head = 0; head < heads; head++) {
      for (let j = 0; j < pairs; j++, at += 2) {
        const c = cos[place + j], s = direction * sin[place + j];
        const a = X[at], b = X[at + 1];
        X[at] = a * c - b * s;
        X[at + 1] = a * s + b * c;
      }
    }
  }
}

// --- softmax of scores, in place: row t may see the columns up to t

export function causalSoftmax(space, p, scale) {
  const [P, T] = [p.numbers, p.columns];
  for (let t = 0, at = 0; t < T; t++, at += T) {
    let top = P[at];
    for (let s = 1; s <= t; s++) if (P[at + s] > top) top = P[at + s];
    space.exp(p, p, { at, count: t + 1, from: top, times: scale }); // the largest becomes e^0
    let sum = 0;
    for (let s = 0; s <= t; s++) sum += P[at + s];
    const share = 1 / sum;
    for (let s = 0; s <= t; s++) P[at + s] *= share;
    P.fill(0, at + t + 1, at + T);
  }
}

// From dp to the gradient of the scores, in place:  p (dp - sum p dp) scale
export function causalSoftmaxBackward(dp, p, scale) {
  const [dP, P] = [dp.numbers, p.numbers];
  for (let t = 0, at = 0; t < p.rows; t++, at += p.columns) {
    let mean = 0;
    for (let s = 0; s <= t; s++) mean += P[at + s] * dP[at + s];
    for (let s = 0; s <= t; s++) dP[at + s] = P[at + s] * (dP[at + s] - mean) * scale;
    dP.fill(0, at + t + 1, at + p.columns);
  }
}

// --- the gate of SwiGLU: y = gate share up,  share = sigmoid(gate)

export function siluGate(space, y, share, gate, up) {
  const [Y, S, G, U] = [y.numbers, share.numbers, gate.numbers, up.numbers];
  for (let at = 0; at < S.length; at += share.columns) { // row by row: it stays in the fastest memory
    const end = at + share.columns;
    space.exp(share, gate, { at, count: share.columns, times: -1 });
    for (let i = at; i < end; i++) {
      S[i] = 1 / (1 + S[i]);
      Y[i] = G[i] * S[i] * U[i];
    }
  }
}

// dup = dy gate share,  dgate = dy up share (1 + gate (1 - share))
export function siluGateBackward(dgate, dup, dy, share, gate, up) {
  const [dG, dU, dY] = [dgate.numbers, dup.numbers, dy.numbers];
  const [S, G, U] = [share.numbers, gate.numbers, up.numbers];
  for (let i = 0; i < dY.length; i++) {
    const s = S[i], g = G[i], d = dY[i] * s;
    dU[i] = d * g;
    dG[i] = d * U[i] * (1 + g * (1 - s));
  }
}

// --- cross-entropy: mean of -log softmax(logits)[target], in nats

// Leaves in `logits` what the backward pass begins with: (softmax(logits) - 1 at the target) / rows.
export function crossEntropy(space, logits, targets) {
  const [Z, V, N] = [logits.numbers, logits.columns, logits.rows];
  let loss = 0;
  for (let row = 0, at = 0; row < N; row++, at += V) {
    let top = Z[at];
    for (let v = 1; v < V; v++) if (Z[at + v] > top) top = Z[at + v];
    loss -= Z[at + targets[row]] - top;
    space.exp(logits, logits, { at, count: V, from: top });
    let sum = 0;
    for (let v = 0; v < V; v++) sum += Z[at + v];
    loss += Math.log(sum);
    const share = 1 / (sum * N);
    for (let v = 0; v < V; v++) Z[at + v] *= share;
    Z[at + targets[row]] -= 1 / N;
  }
  return loss / N;
}
