import { frame, label, line, s, scale, show, ticks, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse.parallel.zero by the tests

const STAGES = [0, 1, 2, 3];
// Bytes of a parameter, and the stage from which on the ranks divide them.
const KINDS = [["weights", 2, 3], ["gradient", 2, 2], ["optimizer state", 12, 1]];

// Bytes of weights, gradient and optimizer state on the fullest rank.
export const kept = (parameters, ranks, stage) => KINDS.map(([, bytes, from]) =>
  bytes * (stage >= from ? Math.ceil(parameters / ranks) : parameters));

export const memory = (parameters, ranks, stage) => kept(parameters, ranks, stage).reduce((a, b) => a + b);

// What a rank sends in a step, as [what, bytes]: each is (n-1)/n of 2 bytes a parameter.
export function sends(parameters, ranks, stage) {
  const once = (2 * parameters * (ranks - 1)) / ranks;
  if (stage === 0) return [["reduce gradients", once], ["gather gradients", once]];
  const gathers = stage === 3 ? [["gather weights", once], ["gather weights again", once]] : [["gather weights", once]];
  return [["reduce gradients", once], ...gathers];
}

export const traffic = (parameters, ranks, stage) =>
  sends(parameters, ranks, stage).reduce((sum, [, bytes]) => sum + bytes, 0);

// The smallest number of ranks that fits, or null where no number is enough.
export function fewest(parameters, room, stage) {
  const divided = KINDS.reduce((sum, [, bytes, from]) => sum + (stage >= from ? bytes : 0), 0);
  const left = room - (16 - divided) * parameters;
  if (stage === 0) return left >= 0 ? 1 : null;
  const entries = Math.floor(left / divided);
  return entries > 0 ? Math.ceil(parameters / entries) : null;
}

// What happens in a step with these layers, as [what, layer]; without a layer it happens to all.
export function moments(stage, layers) {
  const each = Array.from({ length: layers }, (_, layer) => layer);
  const gather = (layer) => (stage === 3 ? [["gather", layer]] : []);
  return [["rest"], ...each.flatMap((layer) => [...gather(layer), ["forward", layer]]),
    ...each.reverse().flatMap((layer) => [...gather(layer), ["backward", layer], ...(stage >= 2 ? [["reduce", layer]] : [])]),
    ...(stage < 2 ? [["reduce"]] : []), ["update"], ...(stage === 1 || stage === 2 ? [["gather"]] : [])];
}

// Whether ranks have the weights and the gradient of each layer after a moment: "all", "own" or "none".
export function held(stage, layers, moment) {
  const resting = stage === 3 ? "own" : "all";
  const found = [[], []].map((_, kind) => Array(layers).fill(kind ? "none" : resting));
  for (const [what, layer] of moments(stage, layers).slice(0, moment + 1)) {
    const put = (kind, whose) => found[kind].fill(whose, layer ?? 0, (layer ?? layers - 1) + 1);
    if (what === "gather") put(0, "all");
    if (what === "forward") put(0, resting);
    if (what === "backward") [put(0, resting), put(1, "all")];
    if (what === "reduce" && stage > 0) put(1, "own");
    if (what === "update") [stage && put(0, "own"), put(1, "none")];
  }
  return found;
}

// --- the page

const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];
const size = (value) => {
  const [unit, name] = UNITS.find(([least]) => value >= least) || UNITS.at(-1);
  return `${show(value / unit, 3)} ${name}`;
};
const IN_FULL = new Intl.NumberFormat("en-US"); // made once: that takes long
const whole = (value) => IN_FULL.format(value);
const seconds = (value) => (value >= 1 || value === 0 ? `${show(value, 3)} s` : `${show(1000 * value, 3)} ms`);
const ROW = 46;
const [LAYERS, RANKS, STRIP] = [3, 4, 14]; // of the picture of a step
const NAMES = ["plain data parallelism", "optimizer state divided", "gradient too", "weights too"];

function render({ model, el }) {
  const w = frame({ model, el, title: "What each GPU keeps, and what it sends" });
  const presets = model.get("presets");
  const names = Object.keys(presets);
  w.choice("preset", "model", { options: names, labels: names.map((name) => presets[name].label) });
  w.number("ranks", "ranks", { log: true });
  w.number("stage", "stage");
  w.number("model_parallel", "GPUs for one replica", { log: true });
  w.number("memory_gb", "memory of a GPU, GB", { log: true });
  w.number("link_gb_per_s", "link, GB/s", { log: true });
  w.toggle("zoom", "zoom to the memory of a GPU");
  w.button("Fewest ranks that fit", () => {
    const { parameters, room, stage } = now();
    const found = fewest(parameters, room, stage);
    if (found === null) {
      w.put("note", `No number of ranks is enough at stage ${stage}: what it does not divide is ` +
        `${size(memory(parameters, 1e15, stage))}, more than a GPU has.`);
    } else w.putNumber("ranks", "ranks", found);
  });

  // Everything that pictures, table and sentence say.
  function now() {
    const split = model.get("model_parallel");
    const parameters = Math.ceil(presets[model.get("preset")].parameters / split);
    return { parameters, split, ranks: model.get("ranks"), stage: model.get("stage"),
      room: 1e9 * model.get("memory_gb"), link: 1e9 * model.get("link_gb_per_s") };
  }

  const sendSeconds = ({ parameters, ranks, link }, stage) => seconds(traffic(parameters, ranks, stage) / link);
  const fits = ({ parameters, ranks, room }, stage) => memory(parameters, ranks, stage) <= room;

  // Four fills that differ in more than colour.
  const fourIds = () => [1, 2, 3, 4].map(() => uniqueId());
  const ids = { kept: fourIds(), step: fourIds(), sent: fourIds() };
  function fills(svg, made) {
    const pattern = (i, ...drawn) => s("pattern", { id: made[i], width: 7, height: 7, patternUnits: "userSpaceOnUse",
      class: `lc-${i + 1}` }, ...drawn);
    const ground = () => s("rect", { width: 7, height: 7, fill: "currentColor" });
    const on = { stroke: "var(--lc-on)", "stroke-width": 1.6 };
    svg.append(s("defs", {}, pattern(0, ground()),
      pattern(1, ground(), s("path", { d: "M-1 8 L8 -1", ...on })),
      pattern(2, ground(), s("circle", { cx: 3.5, cy: 3.5, r: 1.4, fill: "var(--lc-on)" })),
      pattern(3, ground(), s("path", { d: "M0 3.5 H7 M3.5 0 V7", ...on }))));
    return made.map((id) => `url(#${id})`);
  }

  const key = (svg, filled, texts, top, wide) => {
    let [x, y] = [4, top];
    texts.forEach((text, i) => {
      const room = 26 + 7.2 * text.length;
      if (x + room > wide) [x, y] = [4, y + 20];
      svg.append(s("rect", { x, y: y - 11, width: 14, height: 14, fill: filled[i] }), label(x + 19, y + 1, text));
      x += room + 8;
    });
  };

  const outline = (svg, top, wide) => svg.append(s("rect", { x: 1, y: top, width: wide - 2, height: ROW - 2,
    fill: "none", stroke: "var(--lc-text)", "stroke-width": 2, rx: 4 }));

  const drawKept = w.stage((svg, wide) => {
    const state = now();
    const { parameters, ranks, stage, room } = state;
    const filled = fills(svg, ids.kept);
    const most = model.get("zoom") ? 1.3 * room : 1.04 * Math.max(room, memory(parameters, ranks, 0));
    const x = scale([0, most], [8, wide - 10]);
    const bottom = 26 + 4 * ROW;
    STAGES.forEach((each) => {
      const top = 26 + ROW * each;
      const all = memory(parameters, ranks, each);
      svg.append(label(8, top + 15, `stage ${each}: ${size(all)}, ${fits(state, each) ? "fits" : "does not fit"}`,
        each === stage ? { style: "font-weight: 700" } : {}));
      let from = 0;
      kept(parameters, ranks, each).forEach((bytes, i) => {
        const [a, b] = [x(Math.min(from, most)), x(Math.min(from + bytes, most))];
        svg.append(s("rect", { x: a, y: top + 21, width: Math.max(0, b - a), height: 18, fill: filled[i] }));
        from += bytes;
      });
      if (from > most) {  // the bar goes on
        svg.append(s("path", { d: `M${wide - 18} ${top + 21} l8 9 l-8 9`, fill: "none", stroke: "var(--lc-on)",
          "stroke-width": 2.5 }));
      }
      // Dark on a light ground: seen on the bar and beside it, in both themes; the texts stay clear of it.
      for (const [stroke, thick] of [["var(--lc-on)", 6], ["var(--lc-text)", 2.5]]) {
        svg.append(line([[x(room), top + 18], [x(room), top + 42]], { stroke, "stroke-width": thick }));
      }
      if (each === stage) outline(svg, top, wide);
    });
    const right = x(room) > wide / 2;
    svg.append(line([[x(room), 4], [x(room), 20]], { stroke: "var(--lc-text)", "stroke-width": 2.5 }),
      label(x(room) + (right ? -6 : 6), 15, `a GPU has ${size(room)}`,
      { "text-anchor": right ? "end" : "start" }));
    for (const t of ticks(0, most / 1e9, wide < 420 ? 4 : 6)) {
      svg.append(label(x(t * 1e9), bottom + 15, t ? show(t) : "0 GB", { "text-anchor": t ? "middle" : "start" }));
    }
    key(svg, filled, KINDS.map(([kind]) => kind), bottom + 38, wide);
    return STAGES.map((each) => `stage ${each} ${size(memory(parameters, ranks, each))}`).join(", ") +
      `; a GPU has ${size(room)}`;
  }, { height: (wide) => (wide < 330 ? 276 : 256), label: "bars of what each GPU keeps" });

  // --- one step on four ranks, each with its part of all that is divided

  const player = w.player({
    step: () => {
      const last = moments(model.get("stage"), LAYERS).length - 1;
      const next = model.get("moment") < last ? model.get("moment") + 1 : 0; // from the end, the beginning
      w.put("moment", next);
      return next > 0 && next < last;
    },
    reset: () => w.put("moment", 0),
    perSecond: 0.8,
  });
  const moment = () => Math.min(model.get("moment"), moments(model.get("stage"), LAYERS).length - 1);
  function told(stage) {
    const [what, layer] = moments(stage, LAYERS)[moment()];
    const of = layer == null ? "all layers" : `layer ${layer + 1}`;
    const freed = stage === 3 ? ", and frees the weights that it gathered" : "";
    return { rest: "", gather: `Each rank sends its part of the weights of ${of} to the three others.`,
      forward: `Each rank computes ${of} on its own rows${freed}.`,
      backward: `Each rank has the gradient of ${of} for its own rows${freed}.`,
      reduce: stage ? `Each part of the gradient of ${of} goes to the rank that owns it, which sums the four.`
        : "The gradients of the four ranks are summed, and each gets the whole sum.",
      update: stage ? "Each rank updates its part of the weights, with its part of the optimizer state."
        : "Each rank updates all weights." }[what];
  }
  let before = null; // the step that was drawn last: what travels does so once
  const drawStep = w.stage((svg, wide) => {
    const { stage } = now();
    const at = moment();
    const all = moments(stage, LAYERS);
    const [what, chosen] = all[at];
    const goesOn = before && before[0] === stage && before[1] + 1 === at;
    const [has, had] = [held(stage, LAYERS, at), held(stage, LAYERS, Math.max(0, at - 1))];
    before = [stage, at];
    const filled = fills(svg, ids.step);
    const left = 52;
    const layer = (wide - left) / LAYERS;
    const piece = (layer - 10) / RANKS;
    const placeOf = (kind, l, q, r) => [left + l * layer + q * piece, 26 + r * 56 + kind * (STRIP + 2)];
    const above = s("g", { "data-key": "what travels" });
    const draw = (kind, l, q, r, attributes) => ("data-way" in attributes ? above : svg).append(s("g", {
      transform: `translate(${placeOf(kind, l, q, r).map((n) => n.toFixed(2)).join(" ")})`, ...attributes },
    s("rect", { width: piece - 1.5, height: STRIP, fill: filled[kind] })));
    const way = (...places) => places.map((place) => place.map((n) => n.toFixed(2)).join()).join(" ");
    for (let l = 0; l < LAYERS; l++) svg.append(label(left + l * layer, 15, `layer ${l + 1}`));
    for (let r = 0; r < RANKS; r++) {
      svg.append(label(2, 52 + r * 56, `rank ${r}`));
      for (let l = 0; l < LAYERS; l++) {
        for (let kind = 0; kind < 3; kind++) {
          const [x, y] = placeOf(kind, l, 0, r);
          svg.append(s("rect", { x, y, width: layer - 11.5, height: STRIP, fill: "none", stroke: "var(--lc-line)" }));
        }
      }
    }
    let pieces = 0;
    for (let kind = 0; kind < 3; kind++) {
      for (let n = 0; n < LAYERS * RANKS * RANKS; n++) {
        const [l, q, r] = [Math.floor(n / RANKS / RANKS), Math.floor(n / RANKS) % RANKS, n % RANKS];
        const mine = (whose) => whose === "all" || (whose === "own" && q === r);
        const [is, was] = kind === 2 ? [mine(stage ? "own" : "all")] : [has, had].map((found) => mine(found[kind][l]));
        const [here, owner] = [placeOf(kind, l, q, r), placeOf(kind, l, q, q)];
        const sent = goesOn && kind < 2 && (chosen == null || chosen === l) && q !== r;
        pieces += is && r === 0;
        if (is && kind === 0 && sent && what === "gather") draw(kind, l, q, r, { "data-way": way(owner, here) });
        else if (is && kind === 1 && sent && what === "reduce") draw(kind, l, q, r, { "data-way": way(here, owner, here) });
        else if (is && !was && goesOn && kind === 1) draw(kind, l, q, r, { "data-while": "0 0.6" });
        else if (is) draw(kind, l, q, r, { "data-key": `${kind} ${n}` });
        else if (was && sent && what === "reduce") draw(kind, l, q, r, { "data-way": way(here, owner), "data-gone": true, "data-while": "0 1" });
        else if (was && goesOn) draw(kind, l, q, r, { "data-while": "0.2 0.9", "data-gone": true });
      }
    }
    svg.append(above);
    key(svg, filled, KINDS.map(([kind]) => kind), 26 + RANKS * 56 + 8, wide);
    return `stage ${stage} on four ranks, moment ${at} of ${all.length - 1}: ${told(stage) || "between two steps."} Rank 0 holds ` +
      `${pieces} of ${3 * LAYERS * RANKS} pieces`;
  }, { height: (wide) => 26 + RANKS * 56 + (wide < 330 ? 36 : 16), label: "a step", lasts: 5 });

  const drawSent = w.stage((svg, wide) => {
    const state = now();
    const { parameters, ranks, stage } = state;
    const filled = fills(svg, ids.sent);
    const fill = { "reduce gradients": filled[1], "gather gradients": filled[3], "gather weights": filled[0],
      "gather weights again": filled[0] };
    const x = scale([0, traffic(parameters, ranks, 3) || 1], [8, wide - 10]);
    STAGES.forEach((each) => {
      const top = 4 + ROW * each;
      const all = traffic(parameters, ranks, each);
      svg.append(label(8, top + 15, `stage ${each} sends ${size(all)}: ${sendSeconds(state, each)}`,
        each === stage ? { style: "font-weight: 700" } : {}));
      let from = 0;
      for (const [what, bytes] of sends(parameters, ranks, each)) {
        svg.append(s("rect", { x: x(from), y: top + 21, width: Math.max(0, x(from + bytes) - x(from) - 2),
          height: 18, fill: fill[what] }));
        from += bytes;
      }
      if (each === stage) outline(svg, top, wide);
    });
    key(svg, [filled[1], filled[3], filled[0]], ["reduce gradients", "gather gradients", "gather weights"],
      4 * ROW + 24, wide);
    return STAGES.map((each) => `stage ${each} ${size(traffic(parameters, ranks, each))}`).join(", ");
  }, { height: (wide) => (wide < 480 ? 244 : 222), label: "bars of what each GPU sends in a step" });

  const numbers = w.table("Bytes on each GPU, exact, and bytes sent in a step");

  function sentence(state) {
    const { parameters, split, ranks, stage, room } = state;
    const all = memory(parameters, ranks, stage);
    const spare = room - all;
    const found = fewest(parameters, room, stage);
    const fit = spare >= 0 ? `fits, ${size(spare)} to spare` : `${size(-spare)} too much`;
    let hope = "";
    if (found === null) {
      const rest = size(memory(parameters, 1e15, stage));
      hope = stage === 0 ? " More ranks change nothing: each has a copy of everything."
        : ` No number of ranks is enough: ${rest} are not divided.`;
    } else if (stage > 0) hope = ` It fits from ${whole(found)} ${found === 1 ? "rank" : "ranks"} on.`;
    const gpus = split > 1 ? `, ${whole(split)} GPUs each, ${whole(ranks * split)} in all` : "";
    const as = ["", ", as much as plain data parallelism", ", as much as plain data parallelism",
      ", half as much again as plain data parallelism"][stage];
    return `${told(stage)}${told(stage) && " "}Stage ${stage}, ${NAMES[stage]}, on ${whole(ranks)} ${ranks === 1 ? "rank" : "ranks"}${gpus}: ` +
      `${size(all)} on each GPU: ${fit}.${hope} ` +
      `It sends ${size(traffic(parameters, ranks, stage))} in a step${as}: ` +
      `${sendSeconds(state, stage)}.`;
  }

  function redrawMoment() {
    drawStep();
    w.say(sentence(now()));
  }
  function redraw() {
    const state = now();
    drawKept();
    drawSent();
    numbers(() => ({ columns: ["stage", ...KINDS.map(([kind]) => kind), "in all", "fits", "sent"],
      rows: STAGES.map((each) => [`stage ${each}`, ...kept(state.parameters, state.ranks, each).map(whole),
        whole(memory(state.parameters, state.ranks, each)), fits(state, each) ? "yes" : "no",
        whole(Math.round(traffic(state.parameters, state.ranks, each)))]) }));
    redrawMoment();
  }
  w.on(["stage"], () => { player.stop(); w.put("moment", 0); });
  w.on(["moment"], redrawMoment);
  w.on(["preset", "ranks", "stage", "model_parallel", "memory_gb", "link_gb_per_s", "zoom"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
