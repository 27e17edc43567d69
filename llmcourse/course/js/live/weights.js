// The weights of a Llama by their names in llmcourse.model, one after the other in one array.

import { Random } from "./random.js";

// Letters as in llmcourse.nutshell: D width, H heads, G key/value heads, K head size, F hidden,
// V vocabulary.  Returns [name, rows, columns] in the order of the package.
export function shapesOf(config) {
  const { num_layers: L, width: D, num_heads: H, num_kv_heads: G, head_size: K, hidden: F } = config;
  const block = [
    ["attention_norm.gain", 1, D],
    ["attention.w_q", H * K, D],
    ["attention.w_k", G * K, D],
    ["attention.w_v", G * K, D],
    ["attention.w_o", D, H * K],
    ["feed_forward_norm.gain", 1, D],
    ["feed_forward.w_gate", F, D],
    ["feed_forward.w_up", F, D],
    ["feed_forward.w_down", D, F],
  ];
  const blocks = Array.from({ length: L }, (_, l) =>
    block.map(([name, rows, columns]) => [`blocks.${l}.${name}`, rows, columns]));
  return [["embedding", config.vocab_size, D], ...blocks.flat(), ["norm.gain", 1, D]];
}

export const numWeights = (config) =>
  shapesOf(config).reduce((sum, [, rows, columns]) => sum + rows * columns, 0);

// A matrix for every weight, cut out of one array: of the weights themselves, or of their gradients.
export function cut(flat, config) {
  const found = {};
  let at = 0;
  for (const [name, rows, columns] of shapesOf(config)) {
    found[name] = { numbers: flat.subarray(at, at + rows * columns), rows, columns, down: columns, along: 1 };
    at += rows * columns;
  }
  return found;
}

// Matrices from a normal distribution around 0, the two that write into the residual stream less wide;
// gains 1.  The distributions are those of the package, the draws are not.
export function initialise(weights, config, seed) {
  const chance = new Random(seed);
  const normal = () => { // Box and Muller
    const length = Math.sqrt(-2 * Math.log(1 - chance.random()));
    return length * Math.cos(2 * Math.PI * chance.random());
  };
  for (const [name, { numbers }] of Object.entries(weights)) {
    const writes = /w_o$|w_down$/.test(name);
    const std = writes ? 0.02 / Math.sqrt(2 * config.num_layers) : 0.02;
    if (name.endsWith("gain")) numbers.fill(1);
    else for (let i = 0; i < numbers.length; i++) numbers[i] = std * normal();
  }
}
