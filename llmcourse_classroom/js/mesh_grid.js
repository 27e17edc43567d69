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
const SENDS = { tp: "sums of its slice of each layer", cp: "the keys and values of its part",
  pp: "activations to the next stage, and gradients to the one before it", dp: "gradients" };
const JOB = ["gpus", "gpus_per_server", "batch_tokens", "sequence_length", "micro_batch"];
const ROOM = 80e9; // bytes of an H100
const MOVING = 256; // things that travel at most
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

  // --- one replica drawn large, beside all of them, and what the chosen rank sends along an axis

  // The ranks that one exchanges something with: in a pipeline its neighbours, else its whole group.
  function talks(axis) {
    const [mine, end, all] = [rank(), placed(), sizes()];
    return groupOf(mine, all, axis).filter((r) => r !== mine && r < end &&
      (axis !== "pp" || Math.abs(r - mine) === distance(all, axis)));
  }
  const serversOf = (ranks) => [...new Set(ranks.map((r) => Math.floor(r / model.get("gpus_per_server"))))];
  const inUse = () => [...AXES].reverse().filter((axis) => model.get(axis) > 1);

  // Where everything lies: the cells of the replica, and the tiles of all replicas, beside it or below.
  function plan(width) {
    const { pp, cp, tp } = sizes();
    const tiles = Math.ceil(model.get("gpus") / distance(sizes(), "dp"));
    const beside = width > 560 && cp * tp <= 16;
    const [left, top] = [76, 38];
    const room = (beside ? 0.52 * width : width - 4) - left;
    const gap = cp > 1 && room / (cp * tp) > 3 ? Math.min(6, room / (6 * cp)) : 0;
    const wide = Math.min(60, (room - gap * (cp - 1)) / (cp * tp));
    const high = clamp(300 / pp, 3, 24);
    const [x, y] = beside ? [left + room + 28, top] : [4, top + pp * high + 30];
    const free = width - 4 - x;
    const square = Math.round(Math.sqrt(tiles * free / Math.max(150, beside ? pp * high : 0)));
    const across = Math.max(square, Math.min(tiles, Math.floor(free / 56)));
    const side = Math.min(56, free / across);
    return { all: sizes(), left, top, gap, wide, high, x, y, across, side, tiles, tall: Math.max(top + pp * high,
      y + Math.ceil(tiles / across) * side) + 6 };
  }
  const box = (x, y, width, height) => ({ x, y, width: Math.max(0.5, width), height: Math.max(0.5, height) });
  const outlines = (boxes) => boxes.map(({ x, y, width, height }) =>
    `M${x.toFixed(2)} ${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}h-${width.toFixed(2)}z`).join("");
  // The cell of a rank in the replica that is drawn large.
  function cellOf(r, { all, left, top, gap, wide, high }) {
    const { pp, cp, tp } = placeOf(r, all);
    const free = Math.min(1.5, wide * 0.15);
    return box(left + (cp * all.tp + tp) * wide + cp * gap, top + pp * high, wide - free,
      Math.max(high - 1.5, high * 0.7));
  }
  function tileOf(k, { x, y, across, side }) {
    const free = Math.min(3, side * 0.15);
    return box(x + (k % across) * side, y + Math.floor(k / across) * side, side - free, side - free);
  }
  // The same place in a tile.
  function spotOf(r, lies) {
    const { all } = lies;
    const { dp, pp, cp, tp } = placeOf(r, all);
    const tile = tileOf(dp, lies);
    const size = clamp(tile.width / 4, 1, 9);
    return box(tile.x + (tile.width - size) * (cp * all.tp + tp) / (all.cp * all.tp - 1 || 1),
      tile.y + (tile.height - size) * pp / (all.pp - 1 || 1), size, size);
  }

  const drawMesh = w.stage((svg, width) => {
    const [lies, all, id] = [plan(width), sizes(), uniqueId()];
    const { left, top, wide, high, x, y, tiles } = lies;
    const here = placeOf(rank(), all);
    const [size, end] = [distance(all, "dp"), placed()];
    const first = here.dp * size;
    const working = Math.min(all.dp, tiles);
    const path = (boxes, attributes) => s("path", { d: outlines(boxes), ...attributes });
    const grey = { fill: "var(--lc-line)" };
    const upTo = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, k) => from + k);
    svg.append(hatch(id), label(left, 14, `replica ${count(here.dp)}, drawn large`),
      label(x, y - 10, all.dp === 1 ? "the only replica" : `all ${count(all.dp)} replicas`));

    // Its cells, by turns darker and lighter from server to server, and the groups of the rank.
    for (const odd of [0, 1]) {
      svg.append(path(upTo(first, first + size).filter((r) => serversOf([r])[0] % 2 === odd).map((r) => cellOf(r, lies)),
        { ...grey, "fill-opacity": odd ? 0.28 : 0.5 }));
    }
    for (let p = 0; p < all.pp; p += Math.ceil(15 / high)) {
      svg.append(label(left - 6, top + p * high + Math.max(high / 2 + 3, 8), `stage ${p}`, { "text-anchor": "end",
        style: p === here.pp ? "font-weight: 700" : null }));
    }
    if (all.cp === 1 && wide > 16) svg.append(label(left - 6, top - 6, "slice", { "text-anchor": "end" }));
    for (let k = 0; k < (all.cp > 1 ? all.cp : wide > 16 ? all.tp : 0); k++) {
      const [mine, far] = all.cp > 1 ? [here.cp, all.tp * wide] : [here.tp, wide];
      const cell = cellOf(all.cp > 1 ? k * all.tp : k, lies);
      if (all.cp === 1 || far > 46 || k === mine) {
        svg.append(label(clamp(cell.x + far / 2, left + (all.cp > 1 ? 18 : 0), width - 20), top - 6,
          all.cp > 1 ? `part ${k}` : k, { "text-anchor": "middle", style: k === mine ? "font-weight: 700" : null }));
      }
    }

    // The tiles of all replicas, those without work hatched.
    svg.append(path(upTo(0, working).map((k) => tileOf(k, lies)), { ...grey, "fill-opacity": 0.4 }));
    if (tiles > working || numRanks(all) < model.get("gpus")) {
      svg.append(path(upTo(working, tiles).map((k) => tileOf(k, lies)), { fill: `url(#${id})`,
        stroke: "var(--lc-line)", "stroke-width": 0.5 }));
    }
    for (const axis of ["tp", "cp", "pp", "dp"]) {
      const group = groupOf(rank(), all, axis).filter((r) => r < end);
      svg.append(path(group.map((r) => (axis === "dp" ? spotOf : cellOf)(r, lies)),
        { fill: "currentColor", "fill-opacity": 0.4, class: `${MARK[axis]} mg-group` }));
    }

    // What it sends stays hidden in its cell until its axis is chosen.
    const inside = ({ x, y, width, height }) => box(x + 0.2 * width, y + 0.2 * height, 0.6 * width, 0.6 * height);
    for (const axis of AXES) {
      const chosen = model.get("axis") === axis;
      const to = (r) => (!chosen ? inside(cellOf(rank(), lies)) : axis === "dp" ? spotOf(r, lies) : inside(cellOf(r, lies)));
      const others = talks(axis);
      const every = Math.ceil(others.length / MOVING);
      const solid = { fill: "currentColor", class: `${MARK[axis]} mg-sent` };
      others.filter((_, k) => k % every === 0).forEach((r, k) =>
        svg.append(s("rect", { "data-key": `${axis} ${k}`, ...to(r), ...solid })));
      if (chosen && every > 1) svg.append(path(others.map(to), { ...solid, "data-while": "0.7 1" })); // the rest
    }
    const mine = tileOf(here.dp, lies);
    svg.append(s("rect", { "data-key": "tile", ...box(mine.x - 1, mine.y - 1, mine.width + 2, mine.height + 2),
      fill: "none", stroke: "var(--lc-text)", "stroke-width": 2 }),
    s("rect", { "data-key": "rank", ...cellOf(rank(), lies), fill: "var(--lc-text)", stroke: "var(--lc-text)",
      "stroke-width": wide < 8 || high < 8 ? 3 : 0 }));
    svg.style.cursor = "pointer";
    return `replica ${here.dp} of ${count(all.dp)}, ranks ${count(first)} to ${count(first + size - 1)}, a row for ` +
      `each stage; chosen: rank ${count(rank())}, stage ${here.pp}, part ${here.cp}, slice ${here.tp}; ` +
      `${heard() || "it sends nothing yet"}; ${count(tiles - working)} tiles without work`;
  }, { height: (width) => Math.ceil(plan(width).tall), label: "the mesh", lasts: 5 });
  const picture = drawMesh.picture;
  w.dock.after(w.root.querySelector(".lc-status"), demands); // where its growth moves neither picture nor buttons
  w.stages.append(h("p", { class: "mg-small" }, "A cell is a GPU; its shade changes from server to server. A tile is " +
    "a replica. Filled: the chosen rank; press a cell or a tile to choose another. Tinted: its groups. " +
    "Hatched: without work."));
  w.player({
    step: () => {
      const axes = inUse();
      const next = axes[axes.indexOf(model.get("axis")) + 1];
      w.put("axis", next || "none");
      return Boolean(next) && next !== axes.at(-1);
    },
    reset: () => w.put("axis", "none"),
    perSecond: 0.8,
  });

  const aboutBox = h("div", { class: "mg-about" });
  w.stages.append(aboutBox);
  const look = h("div", { class: "lc-controls" });
  aboutBox.append(look);
  const rankField = w.number("rank", "rank", { into: look });
  w.choice("axis", "it talks along", { labels: ["no axis yet", "TP", "CP", "PP", "DP"], into: look });
  const about = h("p");
  const groupList = h("ul", { class: "mg-groups" });
  aboutBox.append(about, groupList);

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

  // What the chosen rank sends along the axis, and to whom.
  function heard() {
    const axis = model.get("axis");
    if (axis === "none") return "";
    const to = talks(axis);
    if (!to.length) return `along ${axis.toUpperCase()} rank ${count(rank())} is alone`;
    const servers = serversOf(to);
    const mine = serversOf([rank()])[0];
    const where = servers.every((one) => one === mine) ? "in its own server"
      : `on ${count(servers.length)} ${servers.includes(mine) ? "" : "other "}server${servers.length > 1 ? "s" : ""}`;
    return `along ${axis.toUpperCase()} rank ${count(rank())} sends ${SENDS[axis]}: to ${count(to.length)} ` +
      `rank${to.length > 1 ? "s" : ""} ${where}, ${listed(to)}`;
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
    const spoken = heard() && ` ${heard()[0].toUpperCase()}${heard().slice(1)}.`;
    return `${head} ${missing.length ? `Not met: ${missing.join(", ")}.` : "All demands are met."}${spoken}`;
  }

  function redraw() {
    const missing = unmet(sizes(), shape(), job());
    const texts = demandTexts();
    demands.replaceChildren();
    for (const word of missing) demands.append(h("li", {}, `${word}: ${texts[word][1]}`));
    drawMesh();
    drawPipeline();
    about.textContent = rankSentence();
    groupList.replaceChildren(...[...AXES].reverse().map((axis) => h("li", {},
      h("b", { class: MARK[axis], "aria-hidden": "true" }, h("span", {}, axis[0].toUpperCase())),
      h("span", {}, groupText(axis)))));
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

  // A press on a cell chooses its rank, as the field does; one on a tile the same place in that replica.
  picture.addEventListener("click", (event) => {
    const [x, y] = within(picture, event);
    const lies = plan(picture.viewBox.baseVal.width);
    const size = distance(sizes(), "dp");
    const hit = (one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + one.height;
    const find = (many, put) => Array.from({ length: many }, (_, k) => k).find((k) => hit(put(k, lies)));
    const tile = find(lies.tiles, tileOf);
    const cell = find(size, cellOf);
    const chosen = tile != null ? tile * size + rank() % size
      : cell != null ? placeOf(rank(), sizes()).dp * size + cell : null;
    if (chosen !== null && chosen < placed()) w.put("rank", chosen);
  });
  w.on(["preset"], start);
  w.on([...AXES, ...JOB, "model"], renew);
  w.on(["axis"], () => { drawMesh(); w.say(sentence()); });
  w.on(["rank"], () => {
    if (busy) return;
    if (model.get("rank") > placed() - 1) w.putNumber("rank", "rank", model.get("rank"));
    else redraw();
  });
  renew();
  return w.destroy;
}

export default { render };
