// The optimizer and its learning rate, as in llmcourse.optim.

import { shapesOf } from "./model.js";

// Shorten all gradients together to length `most`, if they are longer; return their length before.
export function clip(gradients, most) {
  let squares = 0;
  for (let i = 0; i < gradients.length; i++) squares += gradients[i] * gradients[i];
  const norm = Math.sqrt(squares);
  if (norm > most) {
    for (let i = 0; i < gradients.length; i++) gradients[i] *= most / norm;
  }
  return norm;
}

// m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  w = w - rate (mhat / (sqrt(vhat) + eps) + decay w).
// The matrices of the layers decay; gains and the embedding do not.
export function adamw(model, rate, { beta1, beta2, eps, decay }) {
  const { weights: w, gradients: g, means: m, squares: v } = model.flat;
  const t = ++model.stepsDone - model.momentsFrom;
  const [correction1, correction2] = [1 - beta1 ** t, 1 - beta2 ** t]; // both began at 0
  let i = 0;
  for (const [name, rows, columns] of shapesOf(model.config)) {
    const shrink = rows > 1 && name !== "embedding" ? 1 - rate * decay : 1;
    for (const end = i + rows * columns; i < end; i++) {
      m[i] += (1 - beta1) * (g[i] - m[i]);
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      w[i] = w[i] * shrink - rate * (m[i] / correction1) / (Math.sqrt(v[i] / correction2) + eps);
    }
  }
}

// The learning rate of a step, counted from 0: up in a straight line, then down half a cosine.
export function warmupCosine(step, { peak, num_steps, warmup_steps, final }) {
  if (step < warmup_steps) return peak * (step + 1) / warmup_steps;
  const progress = Math.min(1, (step - warmup_steps) / Math.max(1, num_steps - warmup_steps));
  return final + (peak - final) * (1 + Math.cos(Math.PI * progress)) / 2;
}
