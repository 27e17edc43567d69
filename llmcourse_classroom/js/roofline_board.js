import { frame, h, label, line, percent, s, scale, show } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.scale.roofline by the tests

const BYTES = 2; // of a number in bf16

// The FLOPs and the least bytes of an (m, k) by (k, n) product.
export const product = (m, k, n) => [2 * m * k * n, BYTES * (m * k + k * n + m * n)];

export const attainable = (intensity, { peak, bandwidth }) => Math.min(peak, intensity * bandwidth);

export const seconds = ([flop, bytes], { peak, bandwidth }) => Math.max(flop / peak, bytes / bandwidth);

// What all matrices of a model do with so many rows: [name, FLOPs, bytes].
function products(c, rows) {
  const heads = c.num_heads * c.head_size;
  const cached = c.num_kv_heads * c.head_size;
  const L = c.num_layers;
  return [
    ["queries", c.width, heads, L], ["keys, values", c.width, cached, 2 * L],
    ["attention's output", heads, c.width, L], ["gate, up", c.width, c.hidden, 2 * L],
    ["down", c.hidden, c.width, L], ["head", c.width, c.vocab_size, 1],
  ].map(([name, k, n, count]) => [name, ...product(rows, k, n).map((x) => count * x)]);
}

// What takes numbers one by one; `each` has FLOPs and moved numbers of every operation.
function oneByOne(c, tokens, each, backward) {
  const L = c.num_layers;
  const turned = (c.num_heads + c.num_kv_heads) * c.head_size;
  const passing = {
    embedding: tokens * c.width, norms: tokens * c.width * (2 * L + 1), rotations: tokens * turned * L,
    gated: tokens * c.hidden * L, "residual sums": tokens * c.width * (backward ? L : 2 * L),
    loss: tokens * c.vocab_size,
  };
  return Object.entries(passing).map(([name, numbers]) =>
    [name, numbers * each[name][0], numbers * each[name][1] * BYTES]);
}

// All operations of one decoding step, or of a training step: [phase, name, FLOPs, bytes].
export function operations(c, { decoding, batch, length }, perNumber) {
  const heads = c.num_heads * c.head_size;
  const cached = c.num_kv_heads * c.head_size;
  const L = c.num_layers;
  const of = (phase, rows) => rows.map((row) => [phase, ...row]);
  if (decoding) {
    return of("decode", [
      ...products(c, batch), ...oneByOne(c, batch, perNumber.forward, false).filter(([name]) => name !== "loss"),
      ["attention", L * batch * 4 * heads * length, L * batch * BYTES * 2 * (cached * length + heads)],
    ]);
  }
  const tokens = batch * length;
  const pairs = L * tokens * 4 * heads * (length + 1) / 2;
  const passed = L * tokens * BYTES * 2 * (heads + cached);
  return [
    ...of("forward", [...products(c, tokens), ...oneByOne(c, tokens, perNumber.forward, false), ["attention", pairs, passed]]),
    ...of("backward", [
      ...products(c, tokens).map(([name, flop, bytes]) => [name, 2 * flop, 2 * bytes]),
      ...oneByOne(c, tokens, perNumber.backward, true), ["attention", 2 * pairs, 2 * passed],
    ]),
    ["optimizer", "AdamW", 16 * c.parameters, 28 * c.parameters],
  ];
}

// What data parallelism adds to a training step: the FLOPs of the backward pass, behind which it can hide,
// and the bytes that each GPU sends to sum the gradients over many, nearly twice 2 for each parameter.
export function allReduce(rows, c) {
  const backward = rows.filter(([phase]) => phase === "backward");
  return [backward.reduce((sum, [, , flop]) => sum + flop, 0), 2 * BYTES * c.parameters];
}

// What has to be in memory: the weights and all caches, or 16 bytes for each parameter.
export const heldBytes = (c, { decoding, batch, length }) => (decoding
  ? BYTES * c.parameters + batch * length * 2 * BYTES * c.num_layers * c.num_kv_heads * c.head_size : 16 * c.parameters);

// The same operation of all phases together, largest share of the time first: [name, FLOPs, bytes, seconds].
export function byName(rows, gpu) {
  const found = new Map();
  for (const [, name, flop, bytes] of rows) {
    const [f, b, t] = found.get(name) ?? [0, 0, 0];
    found.set(name, [f + flop, b + bytes, t + seconds([flop, bytes], gpu)]);
  }
  return [...found].map(([name, sums]) => [name, ...sums]).sort((a, b) => b[3] - a[3]);
}

// --- the page

const PRODUCTS = ["queries", "keys, values", "attention's output", "gate, up", "down", "head", "attention"];
const RIDGE_WORDS = { compute: "arithmetic", memory: "memory" };
const X = [0.05, 3e5];

const time = (s_) => (s_ >= 1 ? `${show(s_, 3)} s` : s_ >= 1e-3 ? `${show(1e3 * s_, 3)} ms` : `${show(1e6 * s_, 3)} µs`);
const bytesInWords = (b) => (b >= 1e12 ? `${show(b / 1e12, 3)} TB` : b >= 1e9 ? `${show(b / 1e9, 3)} GB` : `${show(b / 1e6, 3)} MB`);

function render({ model, el }) {
  const w = frame({ model, el, title: "What an operation is bound by", primary: ["gpu", "work", "batch"] });
  w.choice("gpu", "accelerator");
  w.choice("shape", "model");
  w.choice("work", "work");
  w.number("batch", "sequences at once", { log: true });
  w.number("length", "tokens of each", { log: true });

  const gpu = () => model.get("hardware")[model.get("gpu")];
  const sizes = () => model.get("shapes")[model.get("shape")];
  const decoding = () => model.get("work").startsWith("decoding");
  const asked = () => ({ decoding: decoding(), batch: model.get("batch"), length: model.get("length") });
  const rows = () => operations(sizes(), asked(), model.get("per_number"));
  const ridge = () => gpu().peak / gpu().bandwidth;
  const bound = (flop, bytes) => (flop / bytes >= ridge() ? "compute" : "memory");
  const wire = () => ({ ...gpu(), bandwidth: gpu().network });

  const draw = w.stage((svg, wide, tall) => {
    const part = gpu();
    const box = [50, 24, wide - 12, tall - 40];
    const x = scale(X, [box[0], box[2]], { log: true });
    const top = part.peak * 3;
    const halo = { style: "paint-order: stroke; stroke: var(--pst-color-background, var(--jp-layout-color1, Canvas)); stroke-width: 4px" };
    const y = scale([attainable(X[0], part) / 1.5, top], [box[3], box[1]], { log: true });
    svg.append(s("g", { class: "lc-axes" },
      s("line", { x1: box[0], x2: box[2], y1: box[3], y2: box[3] }), s("line", { x1: box[0], x2: box[0], y1: box[1], y2: box[3] }),
      [0.1, 1, 10, 100, 1000, 1e4, 1e5].filter((_, i) => wide > 420 || i % 2).map((t) => label(x(t), box[3] + 15, show(t), { "text-anchor": "middle" })),
      [1e11, 1e12, 1e13, 1e14, 1e15, 1e16].filter((t) => y(t) >= box[1] && y(t) <= box[3])
        .map((t) => label(box[0] - 5, y(t) + 4, show(t / 1e12), { "text-anchor": "end" })),
      label((box[0] + box[2]) / 2, box[3] + 31, "FLOPs per byte", { "text-anchor": "middle" }),
      label(box[0], box[1] - 8, "attainable TFLOP/s")));
    svg.append(line([[x(X[0]), y(attainable(X[0], part))], [x(ridge()), y(part.peak)], [x(X[1]), y(part.peak)]],
      { stroke: "var(--lc-text)", "stroke-width": 2 }),
    line([[x(ridge()), y(part.peak)], [x(ridge()), box[3]]], { stroke: "var(--lc-line)", "stroke-dasharray": "4 4" }),
    label(x(ridge()) + 4, box[3] - 6, `ridge ${show(ridge(), 3)}`));
    const sent = decoding() ? null : allReduce(rows(), sizes());
    if (sent) drawNetwork(svg, { x, y, box, halo, sent });
    const all = byName(rows(), part);
    const total = all.reduce((sum, row) => sum + row[3], 0);
    // The largest are drawn first, so that none is hidden; the three largest are named, from right to left.
    const top3 = all.slice(0, 3).sort((a, b) => b[1] / b[2] - a[1] / a[2]);
    const named = top3.map(([name, , , t]) => `${name} ${percent(t / total, 2)}`);
    all.forEach(([name, flop, bytes, t]) => {
      const intensity = Math.max(X[0], flop / bytes);
      const [px, py] = [x(Math.min(intensity, X[1])), y(attainable(intensity, part))];
      const r = 3 + 17 * Math.sqrt(t / total);
      svg.append(PRODUCTS.includes(name)
        ? s("circle", { cx: px, cy: py, r, fill: "currentColor", "fill-opacity": 0.3, stroke: "currentColor", class: "lc-1" })
        : s("rect", { x: px - r, y: py - r, width: 2 * r, height: 2 * r, fill: "currentColor", "fill-opacity": 0.3,
          stroke: "currentColor", class: "lc-2" }));
      const place = top3.findIndex(([other]) => other === name);
      if (place >= 0) {
        // Below the roof and right of the slope there is always space.
        const [lx, ly] = [box[2] - 8 * Math.max(...named.map((words) => words.length)), box[3] - 84 + 20 * place];
        svg.append(line([[px, py], [lx - 4, ly - 4]], { stroke: "var(--lc-text)", "stroke-width": 0.8 }),
          label(lx, ly, named[place], { "font-weight": 600, ...halo }));
      }
    });
    return `ridge at ${show(ridge(), 3)} FLOPs per byte; ${all.map(([name, flop, bytes]) =>
      `${name} ${show(flop / bytes, 3)}, ${bound(flop, bytes)}-bound`).join("; ")}`;
  }, { height: 330, label: "operations under the roof" });
  w.stages.append(h("p", {}, "Circles: products and attention. Squares: all that takes numbers one by one. The area is the share of the time. " +
    "Dashed, in training: the network's own slope, and the sum of the gradients on it."));

  // The roof of the network, and on it what the backward pass does for each byte that it sends.
  function drawNetwork(svg, { x, y, box, halo, sent: [flop, bytes] }) {
    const start = X[0] * gpu().bandwidth / gpu().network; // where its slope leaves the bottom of the memory's
    const corner = Math.min(X[1], gpu().peak / gpu().network);
    const dashed = { stroke: "var(--phase-5)", "stroke-width": 2, "stroke-dasharray": "6 4" };
    const [px, py] = [x(Math.min(flop / bytes, X[1])), y(attainable(Math.min(flop / bytes, X[1]), wire()))];
    svg.append(line([[x(start), y(attainable(start, wire()))], [x(corner), y(attainable(corner, wire()))]], dashed),
      s("path", { "data-key": "sum", d: `M${px} ${py - 8}L${px + 8} ${py}L${px} ${py + 8}L${px - 8} ${py}Z`,
        fill: "var(--phase-5)", stroke: "var(--lc-back)" }),
      label(Math.min(px + 13, box[2] - 66), flop / bytes < corner ? py + 20 : py - 14, "gradients", { "font-weight": 600, ...halo }));
  }

  const numbers = w.table("Operations, one by one");

  function redraw() {
    draw();
    const part = gpu();
    const given = asked();
    const all = rows();
    const total = all.reduce((sum, [, , ...o]) => sum + seconds(o, part), 0);
    const flop = all.reduce((sum, [, , f]) => sum + f, 0);
    const waiting = all.filter(([, , f, b]) => bound(f, b) === "memory").reduce((sum, [, , ...o]) => sum + seconds(o, part), 0);
    numbers({
      columns: ["operation", "phase", "FLOPs", "bytes", "FLOPs per byte", "bound by", "time", "share"],
      rows: all.map(([phase, name, f, b]) => [name, phase, show(f), show(b), show(f / b, 3), RIDGE_WORDS[bound(f, b)],
        time(seconds([f, b], part)), percent(seconds([f, b], part) / total, 2)]),
    });
    // Over many GPUs the gradients are summed, too, while the backward pass does its FLOPs.
    let among = "";
    if (!decoding()) {
      const sum = allReduce(all, sizes());
      const late = sum[1] / part.network > sum[0] / part.peak;
      among = ` Among many, each sends ${bytesInWords(sum[1])} of gradients through the network, in ${time(sum[1] / part.network)}: ` +
        `${late ? "longer than" : "hidden behind"} the ${time(sum[0] / part.peak)} of arithmetic in the backward pass, ` +
        `so the step is ${late ? "" : "not "}network-bound.`;
    }
    const tokens = decoding() ? given.batch : given.batch * given.length;
    const held = heldBytes(sizes(), given);
    const fits = held <= part.memory ? "which fits" : "which does not fit into one";
    w.say(`${part.name}: ${time(total)}, ${show(Math.round(tokens / total))} tokens a second, ` +
      `${percent(flop / part.peak / total, 2)} of the peak; memory is the limit for ${percent(waiting / total, 2)} of the time. ` +
      `${decoding() ? "Weights and caches" : "Weights, gradients and AdamW's state"} take ${bytesInWords(held)}, ${fits} (${bytesInWords(part.memory)}).${among}`);
  }
  w.on(["gpu", "shape", "work", "batch", "length"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
