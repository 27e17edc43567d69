import { axes, clamp, frame, h, label, line, onDrag, percent, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse.optim.schedules by the tests

// Settings are { shape, peak, final, warmup_steps, num_steps, decay_steps, anneal_steps }.
export function rateAt(step, settings) {
  const { shape, peak, final, warmup_steps, num_steps, decay_steps, anneal_steps } = settings;
  if (step < warmup_steps) return peak * (step + 1) / warmup_steps;
  if (shape === "wsd") {
    const left = num_steps - step;
    if (left >= decay_steps) return left > 0 ? peak : final;
    return final + (peak - final) * Math.max(0, left) / Math.max(1, decay_steps);
  }
  if (shape === "cosine_anneal" && step >= num_steps) {
    return anneal_steps ? final * Math.max(0, 1 - (step - num_steps) / anneal_steps) : 0;
  }
  const progress = Math.min(1, (step - warmup_steps) / Math.max(1, num_steps - warmup_steps));
  return final + (peak - final) * (1 + Math.cos(Math.PI * progress)) / 2;
}

// The step from which on nothing changes.
export const lastStep = ({ shape, num_steps, anneal_steps }) =>
  num_steps + (shape === "cosine_anneal" ? anneal_steps : 0);

// The parts of a schedule that take time: [name, first step, step after the last].
export function parts(settings) {
  const { shape, warmup_steps, num_steps, decay_steps } = settings;
  const turn = shape === "wsd" ? num_steps - decay_steps : num_steps;
  const end = shape === "wsd" ? num_steps : lastStep(settings);
  return [
    ["warm-up", 0, warmup_steps],
    [shape === "wsd" ? "flat" : "cosine", warmup_steps, turn],
    [shape === "wsd" ? "decay" : "anneal", turn, end],
  ].filter(([, from, to]) => to > from);
}

export const partAt = (step, settings) =>
  parts(settings).find(([, from, to]) => step >= from && step < to)?.[0] ?? "over";

// The mean rate of all steps, as a share of the peak; long schedules are sampled part by part.
export function meanShare(settings) {
  const total = parts(settings).reduce((sum, [, from, to]) => {
    const count = Math.min(to - from, 2000);
    let mean = 0;
    // The middle of each piece: between two steps where pieces are longer than a step.
    for (let i = 0; i < count; i++) mean += rateAt(from + (i + 0.5) * (to - from) / count - 0.5, settings) / count;
    return sum + mean * (to - from);
  }, 0);
  return total / lastStep(settings) / settings.peak;
}

// Stages are [tokens from which on it holds, tokens per step, sequence length], in order.
// Each one's first step, and the tokens that were seen before it: a step that begins in a stage is whole.
export function stageStarts(stages) {
  let steps = 0;
  let seen = 0;
  return stages.map(([from], k) => {
    if (k > 0) {
      const batch = stages[k - 1][1];
      const more = Math.ceil(Math.max(0, from - seen) / batch);
      steps += more;
      seen += more * batch;
    }
    return [steps, seen];
  });
}

const stageIndex = (step, starts) => starts.reduce((found, [first], k) => (first <= step ? k : found), 0);

// Tokens that were trained on before a step, and tokens that the step trains on.
export function tokensBefore(step, stages) {
  const starts = stageStarts(stages);
  const k = stageIndex(step, starts);
  return starts[k][1] + (step - starts[k][0]) * stages[k][1];
}
export const batchOf = (step, stages) => stages[stageIndex(step, stageStarts(stages))][1];

// How many steps train on so many tokens.
export function stepsFor(tokens, stages) {
  const starts = stageStarts(stages);
  const k = starts.reduce((found, [, seen], i) => (i === 0 || seen < tokens ? i : found), 0);
  return starts[k][0] + Math.ceil(Math.max(0, tokens - starts[k][1]) / stages[k][1]);
}

// --- the page

const SHAPES = {
  cosine: "cosine", wsd: "flat, then decay (WSD)", cosine_anneal: "cosine, then anneal to 0",
  llama3_405b: "Llama 3.1 405B, as published",
};
const NUMBERS = ["peak", "final", "warmup_steps", "num_steps", "decay_steps", "anneal_steps"];
const RATE = (value, digits = 3) => (value === 0 ? "0" : value >= 1e-3 ? show(value, digits)
  : value.toExponential(digits - 1).replace(/\.?0+e/, "e"));
const UNITS = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e4, " k", 1e3]];

// 4,194,304 becomes 4.19 M.
function compact(value, digits = 3) {
  const unit = UNITS.find(([least]) => value >= least * 0.9995);
  if (!unit) return show(value);
  return `${Number((value / (unit[2] ?? unit[0])).toPrecision(digits))}${unit[1]}`;
}

function render({ model, el }) {
  const w = frame({ model, el, title: "The learning rate over a run", primary: ["shape", "peak", "warmup_steps"] });
  w.root.prepend(h("style", {}, ".lc .sd-small { font-size: 0.85rem; color: var(--lc-muted); }"));
  const limits = model.get("limits");
  const published = model.get("published");
  const stagesOfLlama = model.get("stages");

  // --- what is drawn

  const shape = () => model.get("shape");
  const isPublished = () => shape() === "llama3_405b";
  const own = () => Object.fromEntries(["shape", ...NUMBERS].map((name) => [name, model.get(name)]));
  const settings = () => (isPublished() ? published : own());
  const stages = () => (isPublished() || model.get("ramp") ? stagesOfLlama : [[0, model.get("batch_tokens"), 0]]);
  const last = () => lastStep(settings());
  const kept = () => (model.get("kept").shape ? model.get("kept") : null);
  const step = () => clamp(model.get("step"), 0, last());

  // The steps that the pictures show.
  function shownSteps() {
    const { warmup_steps, num_steps } = settings();
    const end = last();
    if (model.get("view") === "start") return [0, Math.min(end, Math.ceil(1.5 * (warmup_steps || num_steps / 30)) + 2)];
    if (model.get("view") === "end") {
      const all = parts(settings());
      const tail = all.at(-1)[0] === "cosine" ? 0.05 * num_steps : all.at(-1)[2] - all.at(-1)[1];
      return [Math.max(0, end - Math.ceil(1.5 * tail) - 4), end];
    }
    return [0, Math.max(end, kept() ? lastStep(kept()) : 0)];
  }

  // --- controls

  const controls = {};
  // What one number takes away from another is said.
  function fit() {
    const said = [];
    const cap = (name, text, high) => {
      if (model.get(name) <= high) return;
      w.put(name, high);
      said.push(`${text}: at most ${RATE(high)} now; ${RATE(high)} is used.`);
    };
    if (!isPublished()) {
      cap("final", "final rate", model.get("peak"));
      cap("warmup_steps", "warm-up, steps", model.get("num_steps"));
      if (shape() === "wsd") cap("decay_steps", "decay, steps", model.get("num_steps") - model.get("warmup_steps"));
    }
    cap("step", "at step", last());
    if (said.length) model.set("note", [model.get("note"), ...said].filter(Boolean).join(" "));
  }
  // A new shape, or new lengths: the cursor goes where something is to be seen.
  const centre = () => {
    const [low, high] = shownSteps();
    if (step() < low || step() > high) w.put("step", Math.round((low + high) / 2));
  };
  w.choice("shape", "schedule", {
    options: Object.keys(SHAPES), labels: Object.values(SHAPES),
    onset: () => { model.set("note", ""); w.put("step", Math.round(last() / 2)); fit(); redraw(); },
  });
  const number = (name, text, options = {}) => { controls[name] = w.number(name, text, { onset: fit, ...options }); };
  number("peak", "peak rate", { log: true });
  number("final", "final rate");
  number("num_steps", "steps", { log: true });
  number("warmup_steps", "warm-up, steps");
  number("decay_steps", "decay, steps");
  number("anneal_steps", "anneal, steps");
  number("batch_tokens", "tokens per step", { log: true });
  w.choice("view", "show", {
    options: ["whole", "start", "end"], labels: ["the whole run", "its first steps", "its last steps"], onset: centre,
  });
  const ramp = w.toggle("ramp", "batch ramp of the 405B");
  w.toggle("log_rate", "rates in powers of ten");
  const keep = w.button("Keep this curve", () => w.put("kept", kept() ? {} : settings()));
  const take = w.button("Take its numbers as my own", () => {
    NUMBERS.forEach((name) => w.put(name, published[name]));
    w.put("ramp", true);
    w.put("shape", "cosine_anneal");
  });
  number("step", "at step", { onset: null });

  // Sliders end where the other numbers let them.
  function fitControls() {
    const { peak, num_steps, warmup_steps } = own();
    const [from, to] = shownSteps();
    const highs = {
      final: peak, warmup_steps: num_steps, decay_steps: num_steps - warmup_steps, step: last(),
    };
    for (const [name, high] of Object.entries(highs)) {
      limits[name].high = high; // what putNumber clamps to
      controls[name].range.max = high;
      controls[name].field.max = high;
    }
    Object.assign(controls.step.range, { min: from, max: to });
    controls.anneal_steps.range.max = Math.max(10, num_steps / 2, model.get("anneal_steps"));
    controls.final.range.step = peak / 200;
    const digit = 10 ** Math.floor(Math.log10(peak)) / 10; // what an arrow of the field adds
    for (const name of ["peak", "final"]) Object.assign(controls[name].field, { min: 0, step: digit });
    for (const [name, { range }] of Object.entries(controls)) {
      if (!["peak", "num_steps", "batch_tokens"].includes(name)) range.value = model.get(name);
    }
    const uses = {
      peak: !isPublished(), final: !isPublished(), num_steps: !isPublished(), warmup_steps: !isPublished(),
      decay_steps: shape() === "wsd", anneal_steps: shape() === "cosine_anneal",
      batch_tokens: !isPublished() && !model.get("ramp"), step: true,
    };
    for (const [name, used] of Object.entries(uses)) {
      controls[name].field.closest(".lc-control").style.display = used ? "" : "none";
    }
    ramp.closest(".lc-control").style.display = isPublished() ? "none" : "";
    take.hidden = !isPublished();
    keep.textContent = kept() ? "Let the kept curve go" : "Keep this curve";
    keep.setAttribute("aria-pressed", String(Boolean(kept())));
  }

  // --- pictures

  const inset = (width) => [56, width - 16];
  let toStep = () => 0;
  const stepTicks = (from, to, width) => ticks(from, to, width < 440 ? 3 : 5).filter(Number.isInteger);
  const stepText = (t, from, to) => (to - from < 0.02 * to ? show(t) : compact(t));

  // Steps to draw: every one where there are few, else evenly, and always where a part begins.
  function stepsOf(given, from, to) {
    const most = 400;
    const even = to - from <= most ? Array.from({ length: to - from + 1 }, (_, i) => from + i)
      : Array.from({ length: most + 1 }, (_, i) => Math.round(from + i * (to - from) / most));
    const edges = parts(given).flatMap(([, a, b]) => [a - 1, a, b - 1, b]).filter((n) => n >= from && n <= to);
    return [...new Set([...even, ...edges])].sort((a, b) => a - b);
  }

  let [highest, corner, toRate, toCorner] = [0, () => null, null, null];
  const drawRate = w.stage((svg, width, tall) => {
    const given = settings();
    const [from, to] = shownSteps();
    const [left, right] = inset(width);
    const box = [left, 22, right, tall - 38];
    const other = kept();
    const curve = (each) => stepsOf(each, from, to).map((n) => [n, rateAt(n, each)]);
    const points = curve(given);
    const others = other ? curve(other) : [];
    const held = w.root.classList.contains("lc-held"); // while a corner is dragged, the axis stays
    if (!held) highest = Math.max(...points.map(([, r]) => r), ...others.map(([, r]) => r)) || given.peak;
    const most = highest;
    const isLog = model.get("log_rate");
    const low = isLog ? 10 ** Math.floor(Math.log10(most) - 4 + 1e-9) : 0;
    const x = scale([from, to], [left, right]);
    const raw = scale([low, isLog ? most * 4 : most * 1.2], [box[3], box[1]], { log: isLog });
    const y = (rate) => Math.max(4, raw(Math.max(rate, low)));
    const yTicks = isLog ? Array.from({ length: 6 }, (_, i) => low * 10 ** i).filter((t) => t <= most * 1.001)
      : ticks(0, most, 4);
    svg.append(axes({ x, y, box, xTicks: [], yTicks: [], xTitle: "step", yTitle: "learning rate" }),
      s("g", { class: "lc-axes" },
        stepTicks(from, to, width).map((t) => label(clamp(x(t), left, right - 10), box[3] + 15,
          stepText(t, from, to), { "text-anchor": "middle" })),
        yTicks.map((t) => label(left - 5, y(t) + 4, `${isLog && t === low ? "≤ " : ""}${RATE(t)}`,
          { "text-anchor": "end" }))));
    for (const [name, a, b] of parts(given)) {
      const [start, end] = [clamp(x(a), left, right), clamp(x(b), left, right)];
      if (b > from && b < to) {
        svg.append(line([[end, box[1]], [end, box[3]]], { stroke: "var(--lc-line)", "stroke-dasharray": "2 3" }));
      }
      if (end - start > 7 * name.length + 6) {
        svg.append(label(start + 6, box[1] + 10, name));
      }
    }
    if (other) {
      svg.append(line(others.map(([n, r]) => [x(n), y(r)]), { stroke: "currentColor", class: "lc-4",
        "stroke-width": 2, "stroke-dasharray": "6 4" }));
    }
    svg.append(line(points.map(([n, r]) => [x(n), y(r)]),
      { stroke: "currentColor", class: "lc-1", "stroke-width": 2.5 }));
    if (to - from <= 40) { // few steps: each is a point
      points.forEach(([n, r]) => svg.append(
        s("circle", { cx: x(n), cy: y(r), r: 3, fill: "currentColor", class: "lc-1" })));
    }
    if (step() >= from && step() <= to) {
      svg.append(line([[x(step()), box[1]], [x(step()), box[3]]],
        { stroke: "var(--lc-text)", "stroke-dasharray": "5 3" }),
        s("circle", { cx: x(step()), cy: y(rateAt(step(), given)), r: 6, fill: "currentColor", class: "lc-2" }));
    }
    const spent = isPublished() ? stepsFor(model.get("total_tokens"), stages()) : -1;
    if (spent >= from && spent <= to) {
      const [px, py] = [x(spent), y(rateAt(spent, given))];
      svg.append(s("path", { d: `M ${px} ${py - 4} l -5 -9 l 10 0 z`, fill: "currentColor", class: "lc-3" }),
        label(Math.min(px + 56, right), py - 18, `${compact(model.get("total_tokens"))} tokens seen`,
          { "text-anchor": "end" }));
    }
    corner = (n, rate) => (!isPublished() && n >= from && n <= to ? [x(n), y(rate)] : null);
    toRate = (py) => {
      const share = (box[3] - py) / (box[3] - box[1]);
      return isLog ? low * (most * 4 / low) ** share : most * 1.2 * Math.max(0, share);
    };
    toCorner = (px) => Math.round(from + (px - left) / (right - left) * (to - from));
    toStep = (px) => Math.round(clamp(from + (px - left) / (right - left) * (to - from), 0, last()));
    svg.style.touchAction = "pan-y";
    const end = rateAt(last(), given);
    return `${SHAPES[shape()]}; steps ${show(from)} to ${show(to)}; ` +
      `${parts(given).map(([name, a, b]) => `${name} from step ${show(a)} to ${show(b)}`).join(", ")}; highest rate ` +
      `${RATE(given.peak)}, at the end ${RATE(end)}; the mark is at step ${show(step())}, ` +
      `rate ${RATE(rateAt(step(), given), 6)}${other ? "; a kept curve is dashed" : ""}`;
  }, { height: 230, label: "learning rate against step" });

  // The corners of the schedule are handles.
  const mine = (name) => model.get(name);
  drawRate.handle({ x: controls.warmup_steps, y: controls.peak, label: "end of the warm-up", mark: "lc-1",
    at: () => corner(mine("warmup_steps"), mine("peak")), to: ([x, y]) => [toCorner(x), Number(toRate(y).toPrecision(2))] });
  drawRate.handle({ x: controls.final, label: "final rate in the picture", mark: "lc-1",
    at: () => (shape() === "cosine_anneal" ? null : corner(mine("num_steps"), mine("final"))),
    to: ([, y]) => Number(toRate(y).toPrecision(2)) });
  drawRate.handle({ x: { ...controls.decay_steps, step: (times) => controls.decay_steps.step(-times) }, mark: "lc-1",
    label: "start of the decay",
    at: () => (shape() === "wsd" ? corner(mine("num_steps") - mine("decay_steps"), mine("peak")) : null),
    to: ([x]) => mine("num_steps") - toCorner(x) });

  const drawBatch = w.stage((svg, width, tall) => {
    const [from, to] = shownSteps();
    const [left, right] = inset(width);
    const box = [left, 22, right, tall - 38];
    const all = stages();
    const starts = stageStarts(all);
    const x = scale([from, to], [left, right]);
    const most = Math.max(...all.map(([, batch]) => batch));
    const y = scale([0, most * 1.1], [box[3], box[1]]);
    const marks = stepTicks(from, to, width);
    // As many digits as it takes to tell them apart.
    const seen = [3, 4, 5, 6, 7, 8].map((digits) => marks.map((t) => compact(tokensBefore(t, all), digits)))
      .find((texts, i) => i === 5 || new Set(texts).size === texts.length);
    starts.forEach(([first], k) => {
      const [a, b] = [clamp(first, from, to), clamp(starts[k + 1]?.[0] ?? Infinity, from, to)];
      if (b <= a && b !== to) return;
      const [, batch, length] = all[k];
      const wide = x(b) - x(a);
      svg.append(s("rect", { x: x(a), y: y(batch), width: Math.max(0, wide), height: box[3] - y(batch),
        fill: "currentColor", "fill-opacity": 0.25, stroke: "currentColor", class: "lc-3" }));
      const full = `${compact(batch)} tokens${length
        ? `, ${compact(batch / length)} sequences of ${show(length)}` : ""}`;
      const text = [full, `${compact(batch)} tokens`, compact(batch)].find((t) => 6.6 * t.length + 6 < wide);
      if (text) svg.append(label(x(a) + 6, box[3] - 8, text));
    });
    svg.append(axes({ x, y, box, xTicks: [], yTicks: [], xTitle: "tokens seen", yTitle: "batch, tokens per step" }),
      s("g", { class: "lc-axes" },
        marks.map((t, i) => label(clamp(x(t), left, right - 14), box[3] + 15, seen[i],
          { "text-anchor": "middle" })),
        [0, ...new Set(all.map(([, batch]) => batch))].map((t) =>
          label(left - 5, y(t) + 4, compact(t), { "text-anchor": "end" }))));
    if (step() >= from && step() <= to) {
      svg.append(line([[x(step()), box[1]], [x(step()), box[3]]],
        { stroke: "var(--lc-text)", "stroke-dasharray": "5 3" }),
        s("circle", { cx: x(step()), cy: y(batchOf(step(), all)), r: 6, fill: "currentColor", class: "lc-2" }));
    }
    return `${starts.map(([first], k) => `${compact(all[k][1])} tokens from step ${show(first)} on`).join(", ")}; ` +
      `before step ${show(step())}, ${compact(tokensBefore(step(), all))} tokens were seen`;
  }, { height: 150, label: "tokens per step" });

  for (const picture of w.stages.querySelectorAll("svg")) onDrag(picture, ([x]) => w.put("step", toStep(x)));
  const caption = h("p", { class: "sd-small" });
  const status = w.root.querySelector(".lc-status");
  w.stages.append(status, caption); // beside what they are about

  // --- words

  function insight() {
    const given = settings();
    const part = partAt(step(), given);
    const share = rateAt(step(), given) / given.peak;
    const [, from, to] = parts(given).find(([name]) => name === part) ?? [];
    const length = percent((to - from) / last(), 2);
    if (part === "warm-up") return `Warm-up takes ${length} of the steps.`;
    if (part === "cosine") {
      return step() === from ? "The cosine begins." : "A cosine is made for its own end: who stops here has " +
        `skipped the small rates${share > 0.5 ? ", and most of the way down" : ""}.`;
    }
    if (part === "flat") return "The flat part knows no end: go on as long as you like, or let the decay begin here.";
    if (part === "decay") return `The decay takes ${length} of the steps, and it is the only part that knows the end.`;
    if (part === "anneal") return `The anneal takes ${show(to - from)} of ${show(last())} steps, ${length}.`;
    return "The schedule is over.";
  }

  function sentence() {
    const given = settings();
    const now = rateAt(step(), given);
    const name = partAt(step(), given);
    const other = kept();
    return `Step ${show(step())} of ${show(last())}${name === "over" ? "" : `, ${name}`}: rate ${RATE(now, 6)}, ` +
      `${percent(now / given.peak, 2)} of the peak. ${compact(tokensBefore(step(), stages()), 4)} tokens seen; the next ` +
      `step takes ${compact(batchOf(step(), stages()))}. ${insight()}` +
      `${other ? ` The kept curve has ${RATE(rateAt(step(), other), 6)} here.` : ""}`;
  }

  function remarks() {
    const given = settings();
    const mean = `Mean rate over the run: ${percent(meanShare(given), 2)} of the peak.`;
    if (!isPublished()) return mean;
    const total = model.get("total_tokens");
    const there = stepsFor(total, stages());
    return `${mean} With this ramp ${compact(total)} tokens are used up at step ${show(there)}, ` +
      `where the rate is still ${RATE(rateAt(there, given))}; the cosine is printed as 1,200,000 steps long. ` +
      `As printed, too: the first batch holds for 252 M tokens, which are ${show(stageStarts(stages())[1][0])} ` +
      "steps, and the anneal for 40 M, which are 3; both look like B misprinted as M (our guess).";
  }

  const numbers = w.table("The schedule at chosen steps");
  function rows() {
    const given = settings();
    const all = stages();
    const end = last();
    const names = new Map();
    const name = (n, text) => { if (n >= 0) names.set(n, [...(names.get(n) ?? []), text]); };
    parts(given).forEach(([part, from]) => name(from, `${part} begins`));
    if (given.warmup_steps) name(given.warmup_steps - 1, "last of warm-up");
    stageStarts(all).forEach(([n], k) => { if (k && n <= end) name(n, `batch ${compact(all[k][1])} begins`); });
    [0.25, 0.5, 0.75].forEach((part) => name(Math.round(part * end), percent(part, 2)));
    name(end, "the end");
    name(step(), "the mark");
    return [...names.entries()].sort((a, b) => a[0] - b[0]).map(([n, texts]) => [show(n), texts.join(", "),
      String(rateAt(n, given)), percent(rateAt(n, given) / given.peak, 2), tokensBefore(n, all).toLocaleString("en-US"),
      batchOf(n, all).toLocaleString("en-US")]);
  }

  function redraw() {
    fitControls();
    drawRate();
    drawBatch();
    caption.textContent = remarks();
    numbers({ columns: ["step", "what", "rate", "of the peak", "tokens seen", "tokens of this step"], rows: rows() });
    w.say(sentence());
  }
  w.on(["shape", ...NUMBERS, "batch_tokens", "ramp", "step", "view", "log_rate", "kept"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
