// A Llama: its weights, and room for everything that a step computes.  What it does with them stands
// in forward.js and backward.js.
//
// Letters:  B sequences of a batch, T tokens of a sequence, N = B T, D width, H query heads, G key/value
// heads, K head size, F hidden, V vocabulary, L layers.

import { rotations } from "./layers.js";
import { part, Space } from "./matrix.js";
import { Random } from "./random.js";

// --- weights, by their names in llmcourse.model and in its order, one after the other in one array

// Returns [name, rows, columns] of every weight.
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

// --- room for a step

const SIZES = ["num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden", "vocab_size",
  "context_length", "batch_size"];

export function makeModel(config, arithmetic) {
  check(config);
  const [L, D, H, G, K, F, V, T, B] = SIZES.map((name) => config[name]);
  const N = B * T;
  const space = new Space(arithmetic);
  const all = numWeights(config);
  const flat = { weights: space.matrix(1, all), gradients: space.matrix(1, all), means: space.matrix(1, all),
    squares: space.matrix(1, all) };

  // What every layer keeps for its backward pass.
  const tokens = (columns) => space.matrix(N, columns);
  const layers = Array.from({ length: L }, () => ({
    x: tokens(D), normed: tokens(D), scales: space.matrix(N, 1),
    q: tokens(H * K), k: tokens(G * K), v: tokens(G * K),
    p: Array.from({ length: B * H }, () => space.matrix(T, T)), mixed: tokens(H * K),
    y: tokens(D), normed2: tokens(D), scales2: space.matrix(N, 1),
    gate: tokens(F), up: tokens(F), share: tokens(F), hidden: tokens(F),
  }));
  const last = { x: tokens(D), normed: tokens(D), scales: space.matrix(N, 1), logits: tokens(V) };
  // What the backward pass of a layer needs and the next layer overwrites.
  const back = { dx: tokens(D), dnormed: tokens(D), dmixed: tokens(H * K), dq: tokens(H * K), dk: tokens(G * K),
    dv: tokens(G * K), dp: space.matrix(T, T), dhidden: tokens(F), dgate: tokens(F), dup: tokens(F) };
  space.open();

  // A matrix for every sequence b and head h of what has the heads of all tokens side by side.
  const heads = (x) => Array.from({ length: B }, (_, b) => Array.from({ length: x.columns / K }, (_, h) =>
    part(x, { row: b * T, rows: T, column: h * K, columns: K })));
  for (const owner of [...layers, back]) {
    owner.heads = Object.fromEntries(Object.entries(owner)
      .filter(([name]) => /^d?(q|k|v|mixed)$/.test(name)).map(([name, x]) => [name, heads(x)]));
  }
  for (const [name, { numbers }] of Object.entries(flat)) flat[name] = numbers;
  return { config, space, flat, layers, last, back, rotations: rotations(config),
    w: cut(flat.weights, config), dw: cut(flat.gradients, config), stepsDone: 0, momentsFrom: 0 };
}

// The kernel works on tiles of four rows and columns.
function check(config) {
  for (const name of SIZES) {
    if (!(Number.isInteger(config[name]) && config[name] > 0)) {
      throw new Error(`${name} must be a whole number above 0, got ${config[name]}`);
    }
  }
  for (const name of ["width", "head_size", "hidden", "vocab_size", "context_length"]) {
    if (config[name] % 4) throw new Error(`${name} must be a multiple of 4, got ${config[name]}`);
  }
}

// What the layer l calls its weights or their gradients: of(model.w, l, "attention.w_q").
export const of = (named, l, name) => named[`blocks.${l}.${name}`];
