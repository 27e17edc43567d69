import { frame, h, label, line, percent, s, scale, show } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.scale.simulator by the tests
// A case c has  model: {L, D, H, G, K, F, V, T, tied, beside},  hardware: {peak, memory, bandwidth, link, domain,
// network},  reached: shares and latencies,  dp, pp, cp, tp, batch, sequences, chunks, cut (sequence parallelism),
// again, scores, overlap, zero, and bytes of a number: number, gradient, parameter.

const AGAIN = { nothing: [], attention: ["attention", "scores"], block: ["attention", "scores", "feed-forward"] };
const sum = (found) => Object.values(found).reduce((a, b) => a + b, 0);
const memoryRate = (c) => c.hardware.bandwidth * c.reached.memory;
const productRate = (c) => c.hardware.peak * c.reached.products * c.reached.fitted;

// What a layout breaks, or "".
export function broken(c) {
  const { L, H, G, F, V, T } = c.model;
  const [share, m] = [c.batch / c.dp, c.batch / c.dp / c.sequences];
  for (const [name, size] of [["heads", H], ["hidden units", F], ["tokens of the vocabulary", V]]) {
    if (size % c.tp) return `tp must divide the ${show(size)} ${name}`;
  }
  if (G % c.tp && c.tp % G) return `tp must divide the ${G} key/value heads, or they must divide it`;
  if (c.cp > 1 && T % (2 * c.cp)) return `2 cp must divide the ${show(T)} tokens of a sequence`;
  if (c.cut && (T / c.cp) % c.tp) return `tp must divide the ${show(T / c.cp)} tokens of a part of a sequence`;
  if (c.pp * c.chunks > L) return `pp times chunks is ${show(c.pp * c.chunks)}, more than the ${L} layers`;
  if (c.chunks > 1 && c.pp === 1) return "chunks have no effect without a pipeline: take 1";
  if (share % 1) return `dp must divide the ${show(c.batch)} sequences of a batch`;
  if (m % 1) return `a micro-batch must divide the ${show(share)} sequences of a replica`;
  if (m < c.pp) return `a replica has ${show(m)} micro-batches, too few for ${show(c.pp)} stages`;
  if (c.chunks > 1 && m % c.pp) return `with chunks, pp must divide the ${show(m)} micro-batches`;
  return "";
}

// Inside a domain a ring has its links; beyond, the network cards of the ranks that it has in each.
const ring = (c, inside, span) => {
  const beyond = inside * c.hardware.network * c.reached.network;
  return Math.min(c.hardware.link * c.reached.link, span <= c.hardware.domain ? Infinity : beyond);
};
const near = (c, size, inner) => Math.max(1, Math.min(size, Math.floor(c.hardware.domain / inner)));
export const bandwidth = (c, size, inner) => ring(c, near(c, size, inner), size * inner);

export function product(c, rows, out, into) {
  const moved = (2 * (rows * into + into * out + rows * out)) / memoryRate(c);
  return Math.max((2 * rows * out * into) / productRate(c), moved) + c.reached.launch_s;
}

const both = (c, rows, out, into) => [product(c, rows, out, into), product(c, rows, into, out) + product(c, out, into, rows)];

// Of a layer and a micro-batch: [half, part, forward, backward].
export function operations(c) {
  const { D, H, G, K, F, T, beside } = c.model;
  const [rows, heads, groups, hidden] = [(c.sequences * T) / c.cp, H / c.tp, Math.max(1, G / c.tp), F / c.tp];
  const stream = D / (c.cut ? c.tp : 1) / (beside ? 2 : 1);
  const moved = (half, ...numbers) => [half, "memory", ...numbers.map((n) => (n * rows * c.number) / memoryRate(c))];
  const turned = 4 * (heads + groups) * K;
  const flop = 4 * rows * T * heads * K;
  const core = c.scores === "fused" ? flop / 2 / (c.hardware.peak * c.reached.attention) : flop / productRate(c);
  const found = [
    ["attention", "products", ...both(c, rows, (heads + 2 * groups) * K, D)],
    ["attention", "products", ...both(c, rows, D, heads * K)],
    moved("attention", 5 * stream + turned, 8 * stream + turned),
    ["scores", "attention", core, (c.scores === "fused" ? 2.5 : 2) * core],
    ["feed-forward", "products", ...both(c, rows, 2 * hidden, D)],
    ["feed-forward", "products", ...both(c, rows, D, hidden)],
    moved("feed-forward", 5 * stream + 3 * hidden, 8 * stream + 5 * hidden),
  ];
  if (c.scores !== "fused") found.push(moved("scores", 6 * T * heads, 9 * T * heads));
  const [wait, hops] = [c.reached.message_s, c.cp - 1];
  if (c.tp > 1) {
    const sent = ((4 * (c.tp - 1)) / c.tp) * rows * D * c.number / (beside ? 2 : 1);
    const once = sent / 2 / bandwidth(c, c.tp, 1) + 2 * (c.tp - 1) * wait;
    for (const half of ["attention", "feed-forward"]) found.push([half, "tp", once, (c.cut ? 1.5 : 1) * once]);
  }
  if (c.cp > 1) {
    const hop = (2 * rows * groups * K) / bandwidth(c, c.cp, c.tp);
    found.push(["attention", "cp", hops * (hop * c.number + wait), hops * (hop * (c.number + Math.max(4, c.number)) + 2 * wait)]);
  }
  return found;
}

// The parameters of a rank of the first stage.
export function held(c) {
  const { L, D, H, G, K, F, V, tied } = c.model;
  const block = (D * (2 * H + 2 * Math.max(G, c.tp)) * K) / c.tp + (3 * D * F) / c.tp + 2 * D;
  const tables = 1 + (c.pp === 1 && !tied);
  return Math.round(Math.ceil(L / c.pp) * block + (tables * V * D) / c.tp + D * (c.pp === 1));
}

// What a layer keeps of a token, in bytes.
function kept(c, again) {
  const { D, H, G, K, F, T } = c.model;
  let whole = c.number * D;
  if (again !== "block") whole = c.number * (4 * D + 3 * F) + 8;
  if (again === "nothing") {
    whole += c.number * 2 * (H + G) * K + 4 * H;
    if (c.scores === "kept") whole += (2 * c.number + 1) * H * T;
  }
  if (c.cut) return whole / c.tp;
  const stream = c.number * D * (again === "block" ? 1 : 4); // whole on every rank
  return stream + (whole - stream) / c.tp;
}

// A step: seconds by part, bytes of memory by part, and the share of the peak that the model needs.
export function simulate(c) {
  const { L, D, H, G, K, F, V, T } = c.model;
  const [m, rows] = [c.batch / c.dp / c.sequences, (c.sequences * T) / c.cp];
  const repeated = [...AGAIN[c.again], ...(c.scores === "again" ? ["scores"] : [])];
  const layer = { recomputation: 0 };
  for (const [half, part, forward, backward] of operations(c)) {
    layer[part] = (layer[part] ?? 0) + forward + backward;
    if (repeated.includes(half)) layer.recomputation += forward;
  }
  const head = sum(both(c, rows, V / c.tp, D)) + (6 * rows * V * c.number) / c.tp / memoryRate(c);
  const [most, last, body] = [Math.ceil(L / c.pp), Math.floor(L / c.pp), sum(layer)];
  const isLast = last * body + head > most * body;
  const times = (found, n) => Object.fromEntries(Object.entries(found).map(([part, each]) => [part, n * each]));
  const stage = { ...times(layer, isLast ? last : most), ...(isLast && { head }) };
  const hidden = c.overlap ? sum(stage) : 0;
  if (c.pp > 1 && !c.overlap) {
    const message = Math.floor(rows / (c.cut ? c.tp : 1)) * D * c.number;
    const sent = (message * (2 * c.chunks - (c.pp === 2))) / (c.cut ? 1 : c.tp);
    const kind = c.pp * c.tp * c.cp > c.hardware.domain ? "network" : "link";
    const rate = c.hardware[kind] * c.reached[kind];
    stage.pp = sent / rate + 2 * c.chunks * c.reached.message_s;
  }
  const seconds = times(stage, m);
  seconds.bubble = c.pp > 1 ? (sum(seconds) * (c.pp - 1)) / (c.chunks * m) : 0;
  const [size, mine] = [c.dp * c.cp, held(c)];
  if (size > 1) {
    const each = c.zero ? c.gradient + (c.zero === 3 ? 2 : 1) * c.parameter : 2 * c.gradient;
    // At stage 3 every micro-batch gathers and sums anew, layer by layer.
    const [anew, rings] = c.zero === 3 ? [m, 3 * L * m] : [1, 2];
    const sent = (anew * each * mine * (size - 1)) / size;
    const inside = near(c, c.cp, c.tp) * near(c, c.dp, c.tp * c.cp * c.pp);
    const rate = ring(c, inside, c.tp * c.cp * (c.dp > 1 ? c.dp * c.pp : 1));
    seconds.dp = Math.max(0, sent / rate + rings * (size - 1) * c.reached.message_s - anew * hidden);
  }
  const sharded = c.zero ? size : 1;
  seconds.optimizer = (28 * mine) / sharded / memoryRate(c);
  const live = c.chunks > 1 ? Math.min(m * c.chunks, 2 * (c.pp - 1) + (c.chunks - 1) * c.pp + 1) : Math.min(m, c.pp);
  const bytes = {
    weights: c.parameter * (c.zero === 3 ? mine / sharded + (2 * mine) / most : mine),
    gradients: (c.gradient * mine) / (c.zero >= 2 ? sharded : 1),
    optimizer: (12 * mine) / sharded,
    activations: rows * (((most * live) / c.chunks) * kept(c, c.again) + (c.again === "nothing" ? 0 : kept(c, "nothing"))),
  };
  const flop = 6 * (L * D * (2 * H + 2 * G) * K + L * H * K * (T + 1) + 3 * L * D * F + V * D) * c.batch * T;
  return { seconds, bytes, mfu: flop / sum(seconds) / (c.dp * c.pp * c.cp * c.tp) / c.hardware.peak };
}

const AXES = ["tp", "pp", "cp", "dp"];
export const fits = (c, step) => sum(step.bytes) <= 0.95 * c.hardware.memory;

// All legal meshes of as many GPUs, all else as it is: tp in a domain, and powers of two but for dp.
// A rank has at most as many chunks as a stage has layers.
export function meshes(c) {
  const powers = (most) => Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, n) => 2 ** n);
  const gpus = c.dp * c.pp * c.cp * c.tp;
  return powers(c.hardware.domain).reverse().flatMap((tp) => powers(64).flatMap((pp) => powers(16).map((cp) => ({
    ...c, tp, pp, cp, dp: gpus / tp / pp / cp, cut: c.cut && tp > 1,
    chunks: pp === 1 ? 1 : Math.max(1, Math.min(c.chunks, Math.floor(c.model.L / pp))),
  })))).filter((one) => one.dp % 1 === 0 && !broken(one))
    .map((one) => ({ c: one, step: simulate(one) }));
}

// --- the page

const OWN = "your own";
const PARTS = [["products", ["products", "head"]], ["attention", ["attention"]], ["memory", ["memory", "optimizer"]],
  ["again", ["recomputation"]], ["tp", ["tp"]], ["cp", ["cp"]], ["pp", ["pp"]], ["dp", ["dp"]], ["bubble", ["bubble"]]];
const NUMBERS = [["length", "tokens of a sequence"], ["batch", "sequences of a step"], ["dp", "dp: replicas"],
  ["pp", "pp: stages"], ["cp", "cp: parts of a sequence"], ["tp", "tp: parts of a layer"],
  ["sequences", "sequences of a micro-batch"], ["chunks", "chunks of a rank"]];
const CHOICES = [["again", "computed again in backward"], ["scores", "scores of attention"], ["zero", "ZeRO stage"],
  ["gradient", "bytes of a gradient"]];
const TOGGLES = [["cut", "tp cuts the tokens between its matrices, too"],
  ["overlap", "messages of dp and pp travel behind computation"]];
const [ROW, PLACES] = [22, 8]; // places of the ranking that are shown
function render({ model, el }) {
  const w = frame({ model, el, title: "A training step on many GPUs", primary: ["preset", "pp", "tp"] });
  const [presets, shapes, parts] = ["presets", "shapes", "hardware"].map((name) => model.get(name));
  const names = ["shape", "gpu", ...[...NUMBERS, ...TOGGLES, ...CHOICES].map(([name]) => name)];
  let busy = false;
  w.choice("preset", "start from");
  w.choice("shape", "model");
  w.choice("gpu", "GPU");
  NUMBERS.forEach(([name, text]) => w.number(name, text, { log: true }));
  CHOICES.forEach((each) => w.choice(...each));
  TOGGLES.forEach((each) => w.toggle(...each));

  function now() {
    const c = Object.fromEntries(names.map((name) => [name, model.get(name)]));
    const { hardware, reached } = parts[c.gpu];
    return { ...c, model: { ...shapes[c.shape], T: c.length }, hardware, reached, cut: c.cut && c.tp > 1,
      zero: Number(c.zero), gradient: Number(c.gradient), number: 2, parameter: 2 };
  }
  const gb = (x) => `${show(x / 1e9, 3)} GB`;
  let [c, step] = [null, null];
  const draw = w.stage((svg, wide) => {
    if (!step) return "none, since the layout breaks a rule";
    const found = PARTS.map(([name, of]) => [name, sum(of.map((part) => step.seconds[part] ?? 0))]);
    const total = sum(step.seconds);
    const [left, right] = [84, wide - 128];
    const x = scale([0, Math.max(...found.map(([, seconds]) => seconds))], [left, right]);
    found.forEach(([name, seconds], i) => {
      const y = ROW * i;
      svg.append(label(left - 8, y + 15, name, { "text-anchor": "end" }),
        s("rect", { x: left, y: y + 4, width: Math.max(0, x(seconds) - left), height: 14, fill: "currentColor", class: i < 3 ? "lc-1" : "lc-2" }),
        label(wide - 2, y + 15, `${show(seconds, 3)} s, ${percent(seconds / total)}`, { "text-anchor": "end" }));
    });
    return found.map(([name, seconds]) => `${name} ${show(seconds, 3)} s`).join(", ");
  }, { height: ROW * PARTS.length + 6, label: "time of a step" });

  const drawMemory = w.stage((svg, wide) => {
    if (!step) return "none";
    let [at, limit] = [0, c.hardware.memory];
    const x = scale([0, Math.max(1.1 * limit, sum(step.bytes))], [2, wide - 2]);
    Object.values(step.bytes).forEach((bytes, i) => {
      svg.append(s("rect", { x: x(at), y: 22, width: Math.max(0, x(at + bytes) - x(at)), height: 20, fill: "currentColor", class: `lc-${i + 1}`, stroke: "var(--lc-line)" }));
      at += bytes;
    });
    svg.append(line([[x(limit), 16], [x(limit), 48]], { stroke: "var(--lc-text)", "stroke-width": 2 }),
      label(Math.max(x(limit), 60), 12, gb(limit), { "text-anchor": "end" }));
    return Object.entries(step.bytes).map(([name, bytes]) => `${name} ${gb(bytes)}`).join(", ") + ` of ${gb(limit)}`;
  }, { height: 54, label: "memory of a GPU" });
  w.stages.append(h("p", {}, "Above: seconds by part. Below: memory of a GPU, from the left weights, gradients, optimizer and activations, and a line at what it has, of which 5 % stay free."));
  // --- a search: one mesh after the other finds its place in a ranking

  let [all, searched, words] = [[], "", ""];
  function search() {
    const key = JSON.stringify(c);
    if (searched !== key) [all, searched] = [meshes(c), key];
  }
  const named = (one) => AXES.map((axis) => `${axis} ${show(one.c[axis])}`).join(" · ");
  const seconds = (one) => (one.seconds ??= sum(one.step.seconds));
  const tried = () => Math.min(model.get("tried"), all.length);
  const ranked = () => all.slice(0, tried()).filter((one) => fits(one.c, one.step)).sort((a, b) => seconds(a) - seconds(b));
  w.player({
    step: () => {
      w.put("tried", tried() < all.length ? tried() + 1 : 0); // from the end, the beginning
      return tried() > 0 && tried() < all.length;
    },
    reset: () => w.put("tried", 0),
    perSecond: 2.5,
  });
  const drawSearch = w.stage((svg, wide) => {
    const order = ranked();
    const [last, next, then] = [all[tried() - 1], all[tried()], all[tried() + 1]];
    const wideText = wide < 480 ? 190 : 216;
    const least = Math.min(...all.filter((one) => fits(one.c, one.step)).map(seconds));
    const x = scale([0, 2 * (Number.isFinite(least) ? least : 1)], [0, wide - wideText - 70]);
    const bar = (one, y, opacity = 1) => s("g", { "data-key": named(one), transform: `translate(0 ${y})`, opacity },
      s("rect", { x: 16, width: wide - 16, height: ROW - 2, fill: "var(--pst-color-background, var(--jp-layout-color1, #fff))" }),
      label(20, 14, named(one)),
      s("rect", { x: wideText, y: 3, width: Math.min(x(seconds(one)), wide - wideText - 70), height: 14, fill: "currentColor",
        class: fits(one.c, one.step) ? "lc-1" : "lc-5", stroke: "var(--lc-text)", "stroke-width": one === last ? 2 : 0 }),
      label(wide - 2, 14, fits(one.c, one.step) ? `${show(seconds(one), 3)} s` : "no room", { "text-anchor": "end" }));
    const top = 44;
    const far = top + PLACES * ROW;
    svg.append(label(2, 13, !all.length ? "No mesh of powers of two is legal." : next ? "next:" : `All ${all.length} are tried.`));
    for (let i = 0; i < PLACES; i++) svg.append(label(2, top + i * ROW + 14, i + 1, { style: "fill: var(--lc-muted)" }));
    order.forEach((one, i) => {
      if (one !== last && i <= PLACES) svg.append(bar(one, top + Math.min(i, PLACES) * ROW, i < PLACES ? 1 : 0));
    });
    if (then) svg.append(bar(then, 18, 0));
    if (next) svg.append(bar(next, 18));
    if (last) {
      const place = order.indexOf(last);
      svg.append(place >= 0 && place < PLACES ? bar(last, top + place * ROW) : bar(last, place < 0 ? 18 : far, 0));
    }
    return `${tried()} of ${all.length} meshes tried; ${order.slice(0, PLACES).map((one, i) =>
      `${i + 1}: ${named(one)}, ${show(seconds(one), 3)} s`).join("; ") || "none ranked yet"}`;
  }, { height: 50 + (PLACES + 1) * ROW, label: "the fastest meshes that fit", lasts: 1.9 });
  function found() {
    if (!tried()) return "";
    const [best] = ranked();
    const last = all[tried() - 1];
    const place = ranked().indexOf(last) + 1;
    return ` Tried ${tried()} of ${all.length} meshes of these GPUs, last ${named(last)}: ` +
      `${place ? `${show(seconds(last), 3)} s, place ${place}` : "it does not fit"}. ` +
      (best ? `The fastest that fits: ${named(best)}, ${show(seconds(best), 3)} s.` : "None fits yet.");
  }
  const rows = w.table("All parts, and where the run was published");

  function redraw() {
    if (busy) return;
    c = now();
    const wrong = broken(c);
    step = wrong ? null : simulate(c);
    search();
    [draw, drawMemory, drawSearch].forEach((picture) => picture());
    const preset = presets[model.get("preset")];
    const told = preset ? [["published", preset.printed, preset.source]] : [];
    if (!step) rows({ columns: ["part", "amount", "share"], rows: [["rule", wrong, ""], ...told] });
    words = `This layout breaks a rule: ${wrong}.`;
    if (!step) return w.say(words);
    const [total, memory, limit] = [sum(step.seconds), sum(step.bytes), c.hardware.memory];
    rows({ columns: ["part", "amount", "share"], rows: [
      ...Object.entries(step.seconds).map(([name, x]) => [`time: ${name}`, `${show(x, 4)} s`, percent(x / total)]),
      ...Object.entries(step.bytes).map(([name, x]) => [`memory: ${name}`, gb(x), percent(x / memory)]), ...told] });
    words = `${show(c.dp * c.pp * c.cp * c.tp)} GPUs take ${show(total, 4)} s for a step, an MFU of ${percent(step.mfu)}. ` +
      (preset ? `Published: ${show(preset.seconds, 4)} s. ` : "") +
      `A GPU needs ${gb(memory)} of ${gb(limit)}: it ${fits(c, step) ? "fits" : "does not fit"}.`;
    w.say(words + found());
  }

  w.on(["preset"], () => {
    const chosen = presets[model.get("preset")];
    if (!chosen || busy) return;
    busy = true;
    model.set("note", "");
    for (const name of names) w.put(name, chosen.state[name]);
    busy = false;
    redraw();
  });

  function settle() {
    if (busy) return;
    const chosen = presets[model.get("preset")];
    if (chosen && names.some((name) => chosen.state[name] !== model.get(name))) w.put("preset", OWN);
    redraw();
  }
  w.on(names, settle);
  w.on(["tried"], () => { drawSearch(); w.say(words + (step ? found() : "")); });
  settle();
  return w.destroy;
}

export default { render };
