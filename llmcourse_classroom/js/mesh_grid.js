import { clamp, frame, h, hatch, label, percent, s, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.parallel.world by the tests

export const AXES = ["dp", "pp", "cp", "tp"]; // the last changes fastest

export const numRanks = (sizes) => AXES.reduce((product, axis) => product * sizes[axis], 1);

// How far apart in number two neighbours on an axis are: the sizes behind it, multiplied.
export const distance = (sizes, axis) =>
  AXES.slice(AXES.indexOf(axis) + 1).reduce((product, other) => product * sizes[other], 1);

export const placeOf = (rank, sizes) => Object.fromEntries(AXES.map((axis) =>
  [axis, Math.floor(rank / distance(sizes, axis)) % sizes[axis]]));

// The ranks that differ from one on an axis alone, and that rank.
export function groupOf(rank, sizes, axis) {
  const far = distance(sizes, axis);
  const first = rank - placeOf(rank, sizes)[axis] * far;
  return Array.from({ length: sizes[axis] }, (_, k) => first + k * far);
}

// Layers of a stage, from 0: nearly equal, the first stages one longer.
export function layersOf(stage, numLayers, stages) {
  const [size, longer] = [Math.floor(numLayers / stages), numLayers % stages];
  const first = stage * size + Math.min(stage, longer);
  return [first, first + size + (stage < longer ? 1 : 0)];
}

// How a batch is shared out.  Without a whole number of micro-batches for every replica there is no bubble.
export function sharedOut({ dp, pp }, { batch_tokens: tokens, sequence_length: length, micro_batch: micro }) {
  const sequences = tokens / length;
  const microBatches = sequences / dp / micro;
  const even = tokens % (length * dp * micro) === 0;
  return { sequences, perReplica: sequences / dp, microBatches, bubble: even ? (pp - 1) / microBatches : null };
}

// The demands that a layout does not meet.
export function unmet(sizes, model, job) {
  const { pp, cp, tp } = sizes;
  const { bubble } = sharedOut(sizes, job);
  const met = {
    ranks: numRanks(sizes) === job.gpus,
    server: job.gpus_per_server % tp === 0,
    heads: model.kv_heads % tp === 0,
    layers: pp <= model.layers,
    sequence: job.sequence_length % (2 * cp) === 0,
    batch: bubble !== null,
    bubble: bubble === null || bubble <= 1,
  };
  return Object.keys(met).filter((word) => !met[word]);
}

// --- the page

const STYLE = `
.lc .mg-side { display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; align-items: flex-start; }
.lc .mg-grid { flex: 1 1 19rem; min-width: 0; }
.lc .mg-about { flex: 1 1 15rem; min-width: 0; margin-top: 0.6rem; }
.lc .mg-about .lc-control { flex-basis: 100%; }
.lc .mg-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc .mg-groups, .lc .mg-demands { margin: 0.3rem 0; padding: 0; list-style: none; }
.lc .mg-groups li { display: grid; grid-template-columns: 1.5rem 1fr; gap: 0.4rem; margin: 0.3rem 0; }
.lc .mg-groups b { background: currentColor; border-radius: 0.2rem; text-align: center; height: 1.4rem; }
.lc .mg-groups b span { color: var(--lc-on); }
.lc .mg-demands li { border-left: 4px solid var(--lc-2); padding-left: 0.5rem; margin: 0.2rem 0; }`;
const NAMES = { dp: "replicas", pp: "stages", cp: "parts of a sequence", tp: "slices of a layer" };
const ONE = { dp: "replica", pp: "stage", cp: "part", tp: "slice" };
const DOES = {
  tp: "each has a slice of every layer of the stage", cp: "each has a part of every sequence",
  pp: "the pipeline: each has some of the layers", dp: "same weights, other sequences: they sum gradients",
};
const MARK = { tp: "lc-1", cp: "lc-3", pp: "lc-2", dp: "lc-4" };
const COLOURS = { pp: "stage (PP)", dp: "replica (DP)", tp: "slice (TP)", cp: "part of a sequence (CP)",
  groups: "groups of the chosen rank" };
const JOB = ["gpus", "gpus_per_server", "batch_tokens", "sequence_length", "micro_batch"];
const ROOM = 80e9; // bytes of an H100
const NARROW = 8; // cells below this have no gap between them
const count = (number) => (Number.isInteger(number) ? number.toLocaleString("en-US") : show(number));

function render({ model, el }) {
  const w = frame({ model, el, title: "Who works on what: replicas, stages, parts and slices" });
  w.root.prepend(h("style", {}, STYLE));
  const presets = model.get("presets");
  const models = model.get("models");
  const sizes = () => Object.fromEntries(AXES.map((axis) => [axis, model.get(axis)]));
  const job = () => Object.fromEntries(JOB.map((name) => [name, model.get(name)]));
  const shape = () => models[model.get("model")];
  const placed = () => Math.min(numRanks(sizes()), model.get("gpus")); // ranks that have a GPU
  const rank = () => clamp(model.get("rank"), 0, placed() - 1);
  let busy = false;

  // A slider of powers of two; the field takes any whole number.
  const powers = (name, title, into) => {
    const made = w.number(name, title, { log: true, into });
    made.range.step = Math.log(2);
    made.range.max = Math.log(model.get("limits")[name].high) + 1e-6; // or the last step is one too far
    made.range.value = Math.log(model.get(name));
    return made;
  };
  const select = w.choice("preset", "start from", { options: Object.keys(presets),
    labels: Object.values(presets).map((preset) => preset.label) });
  select.parentElement.classList.add("lc-wide");
  powers("dp", "DP: replicas");
  powers("pp", "PP: stages");
  powers("cp", "CP: parts of a sequence");
  powers("tp", "TP: slices of a layer");
  powers("gpus", "GPUs");
  w.button("Fill the GPUs with replicas", () => {
    const { pp, cp, tp } = sizes();
    w.putNumber("dp", "DP: replicas", Math.max(1, Math.floor(model.get("gpus") / (pp * cp * tp))));
  });
  const demands = h("ul", { class: "mg-demands", "aria-live": "polite" });
  w.root.insertBefore(w.root.querySelector(".lc-status"), w.stages); // beside what it is about
  w.root.insertBefore(demands, w.stages);

  // --- all GPUs, and beside them the groups of the chosen rank

  const gridBox = h("div", { class: "mg-grid" });
  const aboutBox = h("div", { class: "mg-about" });
  w.stages.append(h("div", { class: "mg-side" }, gridBox, aboutBox));
  const look = h("div", { class: "lc-controls" });
  aboutBox.append(look);
  const rankField = w.number("rank", "rank", { into: look });
  w.choice("colour", "colours show", { options: Object.keys(COLOURS), labels: Object.values(COLOURS), into: look });
  const about = h("p");
  const groupList = h("ul", { class: "mg-groups" });
  aboutBox.append(about, groupList);

  let place = null; // how the cells lie, as they were drawn last

  // Columns near the square root, and whole tensor-parallel groups in a row.
  function columns() {
    const gpus = model.get("gpus");
    const aim = 2 ** Math.ceil(Math.log2(gpus) / 2);
    const tp = model.get("tp");
    return tp > gpus ? aim : tp * Math.max(1, Math.round(aim / tp));
  }
  function layout(width) {
    const across = columns();
    const down = Math.ceil(model.get("gpus") / across);
    return { across, down, cell: Math.min(44, (width - 4) / across, 420 / down) };
  }

  // The kind of every rank, by which it is coloured.
  function kinds() {
    const [all, by] = [sizes(), model.get("colour")];
    if (by !== "groups") {
      const far = distance(all, by);
      return (r) => `lc-${Math.floor(r / far) % all[by] % 6 + 1}`;
    }
    const marks = new Map(AXES.flatMap((axis) => groupOf(rank(), all, axis).map((r) => [r, MARK[axis]])));
    marks.set(rank(), "mg-chosen");
    const far = distance(all, "dp");
    return (r) => marks.get(r) || (Math.floor(r / far) === Math.floor(rank() / far) ? "mg-replica" : "mg-other");
  }

  // Cells of one kind as one path; where cells are small, neighbours in a row become one piece.
  function paths({ across, cell }, kindOf) {
    const gap = cell < NARROW ? 0 : 1.5;
    const pieces = {};
    const [gpus, all] = [model.get("gpus"), placed()];
    for (let r = 0; r < gpus;) {
      const kind = r < all ? kindOf(r) : "mg-idle";
      let end = r + 1;
      while (!gap && end < gpus && end % across && (end < all ? kindOf(end) : "mg-idle") === kind) end += 1;
      const [x, y, wide] = [2 + cell * (r % across), 2 + cell * Math.floor(r / across), (end - r) * cell - gap];
      (pieces[kind] ||= []).push(
        `M${x.toFixed(2)} ${y.toFixed(2)}h${wide.toFixed(2)}v${(cell - gap).toFixed(2)}h-${wide.toFixed(2)}z`);
      r = end;
    }
    return pieces;
  }

  const FILLS = {
    "mg-chosen": { fill: "var(--lc-text)" },
    "mg-replica": { fill: "var(--lc-muted)", "fill-opacity": 0.3 },
    "mg-other": { fill: "var(--lc-line)", "fill-opacity": 0.2 },
  };

  const drawGrid = w.stage((svg, width) => {
    const id = uniqueId();
    const plan = (place = layout(width));
    const { across, cell } = plan;
    const all = sizes();
    const kindOf = kinds();
    svg.append(hatch(id));
    for (const [kind, pieces] of Object.entries(paths(plan, kindOf))) {
      const look = kind === "mg-idle" ? { fill: `url(#${id})`, stroke: "var(--lc-line)", "stroke-width": 0.5 }
        : FILLS[kind] || { fill: "currentColor", class: kind };
      svg.append(s("path", { d: pieces.join(""), "shape-rendering": cell < NARROW ? "crispEdges" : null, ...look }));
    }
    for (let r = 0; r < placed() && cell > 30; r++) {
      const pale = ["mg-replica", "mg-other"].includes(kindOf(r));
      svg.append(label(2 + cell * (r % across + 0.5) - 1, 2 + cell * (Math.floor(r / across) + 0.5) + 3, r, {
        "text-anchor": "middle", style: `fill: var(--lc-${pale ? "text" : "on"})` }));
    }
    if (cell < NARROW && cell > 2) { // so that cells can be told apart
      const [right, bottom] = [2 + cell * across, 2 + cell * model.get("gpus") / across];
      const lines = [];
      for (let k = 1; k < across; k++) lines.push(`M${(2 + k * cell).toFixed(2)} 2V${bottom.toFixed(2)}`);
      for (let k = 1; k < plan.down; k++) lines.push(`M2 ${(2 + k * cell).toFixed(2)}H${right.toFixed(2)}`);
      svg.append(s("path", { d: lines.join(""), stroke: "var(--lc-on)", "stroke-width": 0.6, "stroke-opacity": 0.5,
        fill: "none" }));
    }
    // The replica of the chosen rank, row by row, and the rank itself.
    const size = distance(all, "dp");
    const from = Math.floor(rank() / size) * size;
    const to = Math.min(from + size, placed());
    const box = (r, end, attributes) => s("rect", { x: 2 + cell * (r % across) - 1,
      y: 2 + cell * Math.floor(r / across) - 1, width: cell * (end - r) + 1, fill: "none",
      stroke: "var(--lc-text)", ...attributes });
    const [first, last] = [Math.ceil(from / across), Math.floor(to / across)];
    if (first > last) svg.append(box(from, to, { height: cell + 1, "stroke-width": 2 }));
    else {
      if (from % across) svg.append(box(from, first * across, { height: cell + 1, "stroke-width": 2 }));
      if (last > first) {
        svg.append(box(first * across, first * across + across,
          { height: cell * (last - first) + 1, "stroke-width": 2 }));
      }
      if (to % across) svg.append(box(last * across, to, { height: cell + 1, "stroke-width": 2 }));
    }
    const centre = [2 + cell * (rank() % across + 0.5), 2 + cell * (Math.floor(rank() / across) + 0.5)];
    svg.append(...[["var(--lc-on)", 5], ["var(--lc-text)", 2]].map(([stroke, wide]) => s("circle", { cx: centre[0],
      cy: centre[1], r: Math.max(5, cell * 0.4), fill: "none", stroke, "stroke-width": wide })));
    svg.style.cursor = "pointer";
    return `${count(model.get("gpus"))} cells in rows of ${across}, colours show ${COLOURS[model.get("colour")]}; ` +
      `framed: replica ${placeOf(rank(), all).dp}; ringed: rank ${count(rank())}`;
  }, {
    height: (width) => {
      const { down, cell } = layout(width);
      return Math.ceil(down * cell) + 6;
    },
    into: gridBox, label: "all GPUs",
  });
  const picture = gridBox.querySelector("svg");
  gridBox.append(h("p", { class: "mg-small" }, "A cell is a GPU, numbered row by row. Framed: the replica of the " +
    "chosen rank. Ringed: the rank. Colours come again after six. Hatched: without work."));

  // --- the replica of the chosen rank

  const replicaCaption = h("p", { class: "mg-small" });
  w.stages.append(replicaCaption);
  function replicaPlan(width) {
    const { pp, cp, tp } = sizes();
    const left = 66;
    const gap = cp > 1 && (width - left) / (cp * tp) > 3 ? Math.min(6, (width - left) / (6 * cp)) : 0;
    return { left, gap, top: cp > 1 || tp > 1 ? 20 : 2, high: clamp(260 / pp, 3, 20),
      wide: Math.min(60, (width - left - 4 - gap * (cp - 1)) / (cp * tp)) };
  }
  const drawReplica = w.stage((svg, width) => {
    const { pp, cp, tp } = sizes();
    const all = sizes();
    const { left, top, gap, wide, high } = replicaPlan(width);
    const first = Math.floor(rank() / distance(all, "dp")) * distance(all, "dp");
    const here = placeOf(rank(), all);
    const X = (c, t) => left + (c * tp + t) * wide + c * gap;
    const every = Math.ceil(15 / high);
    const free = Math.min(1.5, wide * 0.15);
    const rest = []; // in no group of the chosen rank: one path for all of them
    for (let p = 0; p < pp; p++) {
      const y = top + p * high;
      if (p % every === 0) {
        svg.append(label(left - 6, Math.max(12, y + high / 2 + 4), `stage ${p}`, { "text-anchor": "end",
          style: p === here.pp ? "font-weight: 700" : null }));
      }
      for (let c = 0; c < cp; c++) {
        for (let t = 0; t < tp; t++) {
          const same = { pp: p === here.pp, cp: c === here.cp, tp: t === here.tp };
          const axis = same.pp && same.cp && !same.tp ? "tp" : same.pp && same.tp && !same.cp ? "cp"
            : same.cp && same.tp && !same.pp ? "pp" : null;
          const chosen = same.pp && same.cp && same.tp;
          const [x, over, up] = [X(c, t), wide - free, Math.max(high - 1.5, high * 0.7)];
          if (!axis && !chosen) {
            rest.push(`M${x.toFixed(2)} ${y.toFixed(2)}h${over.toFixed(2)}v${up.toFixed(2)}h-${over.toFixed(2)}z`);
            continue;
          }
          svg.append(s("rect", { x, y, width: over, height: up, fill: chosen ? "var(--lc-text)" : "currentColor",
            class: chosen ? null : MARK[axis] }));
          if (wide > 13 && high > 13) {
            svg.append(label(x + over / 2, y + high / 2 + 4, chosen ? "●" : axis[0].toUpperCase(),
              { "text-anchor": "middle", style: "fill: var(--lc-on); font-weight: 700" }));
          }
        }
      }
    }
    svg.append(s("path", { d: rest.join(""), fill: "var(--lc-line)", "fill-opacity": 0.4 }));
    if (cp === 1 && tp > 1 && wide > 16) {
      svg.append(label(left - 6, 13, "slice", { "text-anchor": "end" }));
      for (let t = 0; t < tp; t++) {
        svg.append(label(X(0, t) + wide / 2, 13, t, { "text-anchor": "middle",
          style: t === here.tp ? "font-weight: 700" : null }));
      }
    }
    const block = tp * wide + gap;
    for (let c = 0; c < cp && cp > 1; c++) {
      if (block > 44 || (c === here.cp && block > 8)) {
        svg.append(label(clamp(X(c, 0) + block / 2, left + 18, width - 20), 13, `part ${c}`, { "text-anchor": "middle",
          style: c === here.cp ? "font-weight: 700" : null }));
      }
    }
    return `ranks ${count(first)} to ${count(first + distance(all, "dp") - 1)}, a row for each stage; ` +
      `chosen: stage ${here.pp}, part ${here.cp}, slice ${here.tp}`;
  }, {
    height: (width) => {
      const { top, high } = replicaPlan(width);
      return top + 4 + Math.ceil(high * model.get("pp"));
    },
    label: "the replica of the chosen rank",
  });

  // --- the batch, and how full the pipeline is

  const batchBox = h("div", { class: "lc-controls", style: "margin-top: 0.8rem" });
  w.stages.append(batchBox);
  powers("batch_tokens", "tokens in a global batch", batchBox);
  powers("sequence_length", "tokens in a sequence", batchBox);
  powers("micro_batch", "sequences in a micro-batch", batchBox);
  powers("gpus_per_server", "GPUs in a server", batchBox);
  w.choice("model", "model", { options: Object.keys(models), labels: Object.values(models).map((one) => one.label),
    into: batchBox });
  const batchText = h("p", { "aria-live": "polite" });
  w.stages.append(batchText);
  const rowHigh = () => clamp(200 / model.get("pp"), 2, 20);
  const drawPipeline = w.stage((svg, width) => {
    const { pp } = sizes();
    const { microBatches: m, bubble } = sharedOut(sizes(), job());
    if (bubble === null) {
      svg.append(label(4, 16, "No schedule: the batch cannot be shared out."));
      return "none, since the batch cannot be shared out";
    }
    const id = uniqueId();
    const left = 66;
    const slot = (width - left - 4) / (m + pp - 1);
    const high = rowHigh();
    const every = Math.ceil(15 / high);
    svg.append(hatch(id), s("rect", { x: left, y: 2, width: slot * (m + pp - 1), height: high * pp,
      fill: `url(#${id})`, stroke: "var(--lc-line)" }));
    for (let p = 0; p < pp; p++) {
      const y = 2 + p * high;
      if (p % every === 0) {
        svg.append(label(left - 6, Math.max(12, y + high / 2 + 4), `stage ${p}`, { "text-anchor": "end" }));
      }
      svg.append(s("rect", { x: left + p * slot, y, width: m * slot, height: high, fill: "var(--lc-1)" }));
      for (let k = 0; k < m && slot > 4; k++) {
        const x = left + (p + k) * slot;
        svg.append(s("rect", { x, y, width: slot, height: high, fill: "none", stroke: "var(--lc-on)",
          "stroke-width": 0.8 }));
        if (slot > 17 && high > 13) {
          svg.append(label(x + slot / 2, y + high / 2 + 4, k,
            { "text-anchor": "middle", style: "fill: var(--lc-on)" }));
        }
      }
    }
    return `${pp} stages, ${count(m)} micro-batches; each stage works for ${count(m)} of ${count(m + pp - 1)} slots`;
  }, {
    height: () => 8 + Math.max(16, Math.ceil(rowHigh() * model.get("pp"))),
    label: "pipeline of one replica over time",
  });
  w.stages.append(h("p", { class: "mg-small" }, "Time runs to the right. Filled: a stage works on a micro-batch, " +
    "forward and backward drawn as one. Hatched: it waits, before the first comes or after the last has gone."));

  const tables = {
    demands: w.table("What a layout must meet"),
    groups: w.table("The chosen rank: its place and its groups"),
  };

  // --- in words

  const listed = (ranks) => (ranks.length < 6 ? ranks.map(count).join(", ")
    : `${ranks.slice(0, 3).map(count).join(", ")}, … ${count(ranks.at(-1))}`);

  function groupText(axis) {
    const ranks = groupOf(rank(), sizes(), axis);
    return ranks.length === 1 ? `${axis.toUpperCase()}: alone`
      : `${axis.toUpperCase()}, ${count(ranks.length)} ranks, ${DOES[axis]}: ${listed(ranks)}`;
  }

  function rankSentence() {
    const { dp, pp, cp, tp } = placeOf(rank(), sizes());
    const all = sizes();
    const { layers, parameters } = shape();
    const [first, end] = layersOf(pp, layers, all.pp);
    const which = end === first ? "no layer" : end - first === 1 ? `layer ${first}` : `layers ${first} to ${end - 1}`;
    const piece = all.tp > 1 ? `slice ${tp} of ` : "";
    const part = all.cp > 1 ? ` for part ${cp} of every sequence` : "";
    const bytes = 2 * parameters / all.tp / all.pp;
    const room = bytes > ROOM ? `, more than the ${ROOM / 1e9} of an H100: it would have to be shared out over the ` +
      "replicas, too (ZeRO)" : "";
    return `Rank ${count(rank())} is in replica ${dp}, stage ${pp}: it has ${piece}${which} of ${layers}${part}. ` +
      `The weights of its share, in bf16: about ${show(Number((bytes / 1e9).toPrecision(2)))} GB${room}.`;
  }

  const product = () => AXES.map((axis) => count(model.get(axis))).join(" × ");

  // Each demand: what it is, and how it stands.
  function demandTexts() {
    const all = sizes();
    const { gpus, gpus_per_server: server, batch_tokens: tokens, sequence_length: length, micro_batch: micro } = job();
    const { layers, kv_heads: heads } = shape();
    const total = numRanks(all);
    const { sequences, microBatches, bubble } = sharedOut(all, job());
    return {
      ranks: ["as many ranks as GPUs", `${product()} = ${count(total)} ranks for ${count(gpus)} GPUs` +
        (total > gpus ? ": too many, impossible" : total < gpus ? `: ${count(gpus - total)} GPUs have no work` : "")],
      server: ["TP groups fill whole servers", `groups of ${all.tp} in servers of ${server}` +
        (server % all.tp ? ": some group lies across two servers, whose link is slower" : "")],
      heads: ["TP shares the key/value heads out evenly", `${heads} key/value heads for TP ${all.tp}` +
        (heads % all.tp ? ": not a whole number each, impossible without copies" : "")],
      layers: ["every stage has a layer", `${layers} layers for ${all.pp} stages` +
        (all.pp > layers ? ": too few, impossible" : "")],
      sequence: ["CP cuts a sequence into 2 × CP equal chunks", `${count(length)} tokens into ${2 * all.cp} chunks` +
        (length % (2 * all.cp) ? ": not equal ones, impossible" : "")],
      batch: ["every replica has equally many whole micro-batches", `${count(tokens)} tokens are ${count(sequences)} ` +
        `sequences for ${count(all.dp)} replicas` + (micro > 1 ? ` in micro-batches of ${micro}` : "") +
        (bubble !== null ? "" : microBatches < 1 ? ": too few, impossible" : ": not shared out evenly, impossible")],
      bubble: ["stages wait no longer than they work", bubble === null ? "no schedule to look at"
        : `bubble (${all.pp} − 1)/${count(microBatches)} = ${percent(bubble)}` +
          (bubble > 1 ? ": stages wait longer than they work" : "")],
    };
  }

  function batchSentence() {
    const all = sizes();
    const { sequences, perReplica, microBatches: m, bubble } = sharedOut(all, job());
    const start = `${count(model.get("batch_tokens"))} tokens are ${count(sequences)} sequences of ` +
      `${count(model.get("sequence_length"))}`;
    if (bubble === null) return `${start}, ${count(perReplica)} for each of ${count(all.dp)} replicas: that cannot be.`;
    const share = `${start}: ${count(perReplica)} for each of ${count(all.dp)} replicas, ` +
      `${count(m)} micro-batch${m === 1 ? "" : "es"}.`;
    if (all.pp === 1) return `${share} With one stage there is no bubble.`;
    return `${share} Bubble (p − 1)/m = (${all.pp} − 1)/${count(m)} = ${percent(bubble)} of the time of work: ` +
      `a stage waits for ${percent((all.pp - 1) / (m + all.pp - 1))} of the step.` +
      (bubble > 1 ? " Fewer replicas with more sequences each, or fewer stages, would fill it." : "");
  }

  function sentence() {
    const missing = unmet(sizes(), shape(), job());
    const parts = AXES.filter((axis) => model.get(axis) > 1)
      .map((axis) => `${count(model.get(axis))} ${NAMES[axis]}`);
    const share = sharedOut(sizes(), job()).perReplica;
    const head = `${parts.join(" × ") || "One rank"}${parts.length ? ` = ${count(numRanks(sizes()))} ranks` : ""}. ` +
      `A batch has ${count(share)} sequence${share === 1 ? "" : "s"} for each replica.`;
    if (!missing.length) return `${head} All demands are met.`;
    return `${head} Not met: ${missing.join(", ")}.`;
  }

  function redraw() {
    const missing = unmet(sizes(), shape(), job());
    const texts = demandTexts();
    demands.replaceChildren();
    for (const word of missing) demands.append(h("li", {}, `${word}: ${texts[word][1]}`));
    drawGrid();
    drawReplica();
    drawPipeline();
    about.textContent = rankSentence();
    groupList.replaceChildren(...[...AXES].reverse().map((axis) => h("li", {},
      h("b", { class: MARK[axis], "aria-hidden": "true" }, h("span", {}, axis[0].toUpperCase())),
      h("span", {}, groupText(axis)))));
    replicaCaption.textContent = `The replica of rank ${count(rank())}, a row for each stage. ● the rank, ` +
      "T, C and P its groups; the others of its D group have the same place in the other replicas.";
    batchText.textContent = batchSentence();
    tables.demands({
      columns: ["demand", "what", "here", "met"],
      rows: Object.entries(texts).map(([word, [what, now]]) =>
        [word, what, now, missing.includes(word) ? "no" : "yes"]),
    });
    tables.groups({
      columns: ["axis", "size", `place of rank ${count(rank())}`, "ranks apart", "group"],
      rows: AXES.map((axis) => [`${axis.toUpperCase()} (${ONE[axis]})`, model.get(axis), placeOf(rank(), sizes())[axis],
        distance(sizes(), axis), listed(groupOf(rank(), sizes(), axis))]),
    });
    w.say(sentence());
  }

  // There are as many ranks to choose as the layout has: the slider ends there.
  function follow() {
    const high = placed() - 1;
    model.get("limits").rank.high = rankField.range.max = rankField.field.max = high;
    busy = true;
    if (model.get("rank") > high) w.put("rank", high);
    busy = false;
    rankField.range.value = model.get("rank");
  }
  function renew() {
    if (busy) return;
    follow();
    redraw();
  }
  function start() {
    busy = true;
    model.set("note", "");
    for (const [name, value] of Object.entries(presets[model.get("preset")].state)) w.put(name, value);
    busy = false;
    renew();
  }

  // A press on a cell chooses its rank, as the field does.
  picture.addEventListener("click", (event) => {
    const [across, down] = within(picture, event).map((far) => Math.floor((far - 2) / place.cell));
    const r = down * place.across + across;
    if (across >= 0 && across < place.across && r >= 0 && r < placed()) w.put("rank", r);
  });
  w.on(["preset"], start);
  w.on([...AXES, ...JOB, "model"], renew);
  w.on(["colour"], redraw);
  w.on(["rank"], () => {
    if (busy) return;
    if (model.get("rank") > placed() - 1) w.putNumber("rank", "rank", model.get("rank"));
    else redraw();
  });
  renew();
  return w.destroy;
}

export default { render };
