// From the loss back to the gradient of every weight: forward.js read from its end to its beginning.
// back.dx is the gradient for the residual stream, and every part adds to it.

import { eachHead } from "./forward.js";
import { causalSoftmaxBackward, linearBackward, rmsnormBackward, rope, siluGateBackward } from "./layers.js";
import { transposed } from "./matrix.js";
import { of } from "./model.js";

// Leave the gradients in model.dw.  The loss was taken before: its own backward pass is in the logits.
export function backward(model, ids) {
  const { layers, last, back, w, dw, space, flat } = model;
  flat.gradients.fill(0);
  linearBackward(space, back.dnormed, dw.embedding, last.logits, last.normed, w.embedding);
  back.dx.numbers.fill(0);
  rmsnormBackward(back.dx, dw["norm.gain"], back.dnormed, last.scales, last.x, w["norm.gain"]);
  for (let l = layers.length - 1; l >= 0; l--) {
    feedForwardBackward(model, layers[l], l);
    attendBackward(model, layers[l], l);
  }
  embedBackward(dw.embedding, ids, back.dx);
}

function feedForwardBackward({ w, dw, space, back }, layer, l) {
  const { y, normed2, scales2, gate, up, share, hidden } = layer;
  const { dx, dnormed, dhidden, dgate, dup } = back;
  const backOf = (name, dinput, doutput, input, how) =>
    linearBackward(space, dinput, of(dw, l, name), doutput, input, of(w, l, name), how);
  backOf("feed_forward.w_down", dhidden, dx, hidden);
  siluGateBackward(dgate, dup, dhidden, share, gate, up);
  backOf("feed_forward.w_gate", dnormed, dgate, normed2);
  backOf("feed_forward.w_up", dnormed, dup, normed2, { add: true });
  const gain = "feed_forward_norm.gain";
  rmsnormBackward(dx, of(dw, l, gain), dnormed, scales2, y, of(w, l, gain));
}

function attendBackward({ w, dw, space, back, config, rotations }, layer, l) {
  const { x, normed, scales, p, mixed, heads } = layer;
  const { dx, dnormed, dmixed, dq, dk, dv, dp } = back;
  const backOf = (name, dinput, doutput, input, how) =>
    linearBackward(space, dinput, of(dw, l, name), doutput, input, of(w, l, name), how);
  backOf("attention.w_o", dmixed, dx, mixed);
  dk.numbers.fill(0); // several query heads add to the gradient of the key and value heads they share
  dv.numbers.fill(0);
  eachHead(config, (b, h, g, i) => {
    const dout = back.heads.dmixed[b][h];
    space.multiply(back.heads.dv[b][g], transposed(p[i]), dout, { add: true });
    space.multiply(dp, dout, transposed(heads.v[b][g]));
    causalSoftmaxBackward(dp, p[i], 1 / Math.sqrt(config.head_size));
    space.multiply(back.heads.dq[b][h], dp, heads.k[b][g]);
    space.multiply(back.heads.dk[b][g], transposed(dp), heads.q[b][h], { add: true });
  });
  rope(dq, rotations, { direction: -1 });
  rope(dk, rotations, { direction: -1 });
  backOf("attention.w_q", dnormed, dq, normed);
  backOf("attention.w_k", dnormed, dk, normed, { add: true });
  backOf("attention.w_v", dnormed, dv, normed, { add: true });
  const gain = "attention_norm.gain";
  rmsnormBackward(dx, of(dw, l, gain), dnormed, scales, x, of(w, l, gain));
}

// Every row of the embedding gets the gradients of all places where its token stood.
function embedBackward(dembedding, ids, dx) {
  const [dE, dX, D] = [dembedding.numbers, dx.numbers, dx.columns];
  ids.forEach((id, i) => {
    for (let d = 0; d < D; d++) dE[id * D + d] += dX[i * D + d];
  });
}
