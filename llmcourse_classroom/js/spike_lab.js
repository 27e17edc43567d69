import { axes, clamp, frame, h, label, line, listed, plural, s, scale, show, ticks, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse.optim.stability.SpikeDetector by the tests

// The middle of some numbers; between two middle ones, their mean.
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// What the detector says of every value, and the limit that it had before: pairs of both.  A value that is not
// finite is null.  Spikes do not enter the window.
export function judged(values, window, factor, leastRise) {
  const held = [];
  return values.map((value) => {
    let limit = Infinity;
    if (held.length === window) {
      const middle = median(held);
      const spread = 1.4826 * median(held.map((v) => Math.abs(v - middle)));
      limit = middle + Math.max(factor * spread, leastRise);
    }
    if (value === null) return ["not finite", limit];
    if (value > limit) return ["spike", limit];
    held.push(value);
    if (held.length > window) held.shift();
    return ["fine", limit];
  });
}

// Neighbouring steps that were judged alike, as [verdict, first, last]; those that are fine are left out.
export function stretches(verdicts) {
  const found = [];
  verdicts.forEach((verdict, step) => {
    const last = found.at(-1);
    if (verdict === "fine") return;
    if (last && last[0] === verdict && last[2] === step - 1) last[2] = step;
    else found.push([verdict, step, step]);
  });
  return found;
}

// Where a curve ends: the median of its last tenth, 5 values at least; null if the last one is not finite.
export function ending(values) {
  if (values.at(-1) === null) return null;
  return median(values.slice(-Math.max(5, Math.floor(values.length / 10))).filter((value) => value !== null));
}

// --- the page

const STYLE = `
.lc fieldset { border: 1px solid var(--lc-line); border-radius: 0.3rem; padding: 0.1rem 0.6rem 0.4rem; margin: 0;
  flex: 1 1 100%; min-width: 0; }
.lc .sl-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc .sl-row { cursor: pointer; }`;
const ROW = 30;

const span = ([, first, last]) => (first === last ? String(first) : `${first} to ${last}`);
const worth = (value) => (value == null ? "not finite" : show(value, 3));
const called = (names) => (names.length ? `with ${listed(names)}` : "with all off");
const upper = (words) => words[0].toUpperCase() + words.slice(1);
const lost = (run) => run.losses.at(-1) === null;
const endsAt = (run) => (lost(run) ? "the run is lost" : `the loss ends at ${worth(ending(run.losses))}`);

// A number beside an axis: short, however large or small.
const brief = (value) => (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)
  ? Number(value.toPrecision(2)).toExponential().replace("e+", "e") : show(value));
const beside = (y, left, values) => values.map((t) => label(left - 5, y(t) + 4, brief(t),
  { "text-anchor": "end", style: "fill: var(--lc-muted)" }));

// Round numbers for a logarithmic axis: 1, 2, 5 times powers of ten, or powers alone where those are many.
function logTicks(low, high) {
  const powers = Array.from({ length: 2 + Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) },
    (_, i) => 10 ** (Math.floor(Math.log10(low)) + i));
  const within = (all) => all.map((t) => Number(t.toPrecision(6))).filter((t) => t >= low && t <= high);
  const fine = within(powers.flatMap((p) => [p, 2 * p, 5 * p]));
  const coarse = within(powers);
  const chosen = fine.length <= 7 ? fine : coarse;
  return chosen.filter((_, i) => i % Math.ceil(chosen.length / 7) === 0);
}

function render({ model, el }) {
  const w = frame({ model, el, title: "Spike lab: which precaution keeps the run calm?",
    primary: ["step", "compare"] });
  w.root.prepend(h("style", {}, STYLE));
  const precautions = model.get("precautions");
  const runs = model.get("runs");
  const on = () => model.get("on");
  const alike = (a, b) => a.length === b.length && a.every((name) => b.includes(name));
  const runOf = (names) => runs.find((run) => alike(run.on, names)) || null;
  const off = runOf([]);
  const chosen = () => runOf(on());
  const watched = () => (model.get("watch") === "loss" ? "losses" : "norms");

  // --- controls

  const box = h("fieldset", {}, h("legend", {}, "precautions that are on"));
  const boxes = h("div", { class: "lc-controls" });
  box.append(boxes);
  w.controls.append(box);
  const turn = (names, note = "") => {
    model.set("note", note);
    w.put("on", precautions.filter((name) => names.includes(name)));
  };
  // What was never recorded together with the one that is switched on gives way.
  function switchOn(name) {
    const fits = (other) => runs.some((run) => run.on.includes(name) && run.on.includes(other));
    const gone = on().filter((other) => !fits(other));
    turn([...on().filter(fits), name], gone.length ? `Not recorded with ${name}, and off now: ${listed(gone)}.` : "");
  }
  const ticked = precautions.map((name) => {
    const id = uniqueId();
    const input = h("input", { type: "checkbox", id });
    input.addEventListener("change", () =>
      (input.checked ? switchOn(name) : turn(on().filter((other) => other !== name))));
    boxes.append(h("div", { class: "lc-control lc-check" }, input, h("label", { for: id }, name)));
    return input;
  });
  w.button("All off", () => turn([]), { into: boxes });
  if (runOf(precautions)) w.button("All on", () => turn(precautions), { into: boxes });
  w.number("step", "step");
  w.button("Next spike", () => {
    const all = bad(chosen() || off).map(([, start]) => start);
    model.set("note", all.length ? "" : "This run has no spike to go to.");
    if (all.length) w.put("step", all.find((at) => at > model.get("step")) ?? all[0]);
  });
  w.toggle("compare", "compare with all off");

  // --- what the detector says; kept until its settings change

  let kept = new Map();
  const look = (run) => {
    if (!kept.has(run)) {
      kept.set(run, judged(run[watched()], model.get("window"), model.get("factor"), model.get("least_rise")));
    }
    return kept.get(run);
  };
  const bad = (run) => stretches(look(run).map(([verdict]) => verdict));

  function tally(run) {
    const all = bad(run);
    const spikes = all.filter(([verdict]) => verdict === "spike");
    const where = spikes.slice(0, 5).map(span).join(", ") + (spikes.length > 5 ? ", …" : "");
    const one = spikes.length === 1 && spikes[0][1] === spikes[0][2];
    const gone = all.filter(([verdict]) => verdict !== "spike").map((stretch) =>
      `, not finite ${stretch[2] === run.losses.length - 1 ? `from ${stretch[1]} on` : `at ${span(stretch)}`}`);
    return (spikes.length ? `${plural(spikes.length, "spike")} (${one ? "step" : "steps"} ${where})` : "no spike") +
      gone.join("");
  }
  function briefly(run) {
    const count = bad(run).filter(([verdict]) => verdict === "spike").length;
    return `${count ? plural(count, "spike") : "no spike"}${bad(run).length > count ? ", then not finite" : ""}`;
  }

  // --- the two curves

  function curves(svg, width, tall, which, title) {
    const [picked, isWatched] = [chosen(), watched() === which];
    const lines = [...(model.get("compare") || !picked ? [[off, "off"]] : []), ...(picked ? [[picked, "on"]] : [])];
    const finite = lines.flatMap(([run]) => run[which].filter((value) => value !== null));
    const least = Math.min(...finite.filter((value) => value > 0));
    const most = Math.max(...finite);
    const log = most > 0 && (which === "norms" || most > 20 * least); // zeros alone have no logarithm
    const area = [46, 24, width - 12, tall - 36];
    const [low, high] = log ? [least / 1.1, most * 1.15] : [Math.min(0, ...finite), most * 1.05 || 1];
    const x = scale([0, model.get("longest") - 1], [area[0], area[2]]);
    const raw = scale([low, high], [area[3], area[1]], { log });
    const y = (value) => raw(clamp(value, low, high));
    svg.append(axes({ x, y, box: area, xTicks: ticks(0, model.get("longest") - 1, width < 420 ? 4 : 8)
      .filter(Number.isInteger), yTicks: [], xTitle: "step", yTitle: title }),
    ...beside(y, area[0], log ? logTicks(low, high) : ticks(low, high, 4)));
    for (const [run, kind] of lines) {
      if (kind === "off" && run === picked) continue;
      drawRun(svg, run[which], { x, y, area, kind });
    }
    const at = model.get("step");
    svg.append(line([[x(at), area[1]], [x(at), area[3]]], { stroke: "var(--lc-text)", "stroke-width": 1 }));
    const run = picked || off;
    if (isWatched) drawVerdicts(svg, run, run[which], { x, y, area, low, high });
    const here = run[which][at];
    if (here != null) svg.append(s("circle", { cx: x(at), cy: y(here), r: 5, fill: "var(--lc-text)" }));
    const said = finite.length ? `${worth(ending(run[which]))} at the end, ${show(Math.max(
      ...run[which].filter((v) => v !== null)), 3)} at most` : "nothing finite";
    const both = picked && picked !== off && model.get("compare");
    return `${called(run.on)}, ${said}${isWatched ? `; ${tally(run)}` : ""}` +
      `${both ? `; with all off ${worth(ending(off[which]))} at the end` : ""}`;
  }

  // A curve, in pieces where it is not finite; a cross at the top there.
  function drawRun(svg, values, { x, y, area, kind }) {
    const style = kind === "off" ? { stroke: "var(--lc-muted)", "stroke-dasharray": "5 3", "stroke-width": 1.3 }
      : { stroke: "var(--lc-1)", "stroke-width": 2 };
    let piece = [];
    const close = () => { if (piece.length) svg.append(line(piece, style)); piece = []; };
    values.forEach((value, at) => { if (value === null) close(); else piece.push([x(at), y(value)]); });
    close();
    values.forEach((value, at) => {
      if (value === null && values[at - 1] !== null) {
        svg.append(label(x(at), area[1] + 4, "✕", { "text-anchor": "middle", style: `fill: ${style.stroke}` }));
      }
    });
  }

  function drawVerdicts(svg, run, values, { x, y, area, low, high }) {
    let piece = [];
    const close = () => {
      if (piece.length > 1) {
        svg.append(line(piece, { stroke: "var(--lc-2)", "stroke-width": 1.6, "stroke-dasharray": "2 3" }));
      }
      piece = [];
    };
    look(run).forEach(([, limit], at) => {
      if (limit >= low && limit <= high) piece.push([x(at), y(limit)]);
      else close();
    });
    close();
    let free = -Infinity;
    for (const stretch of bad(run)) {
      const [verdict, first, last] = stretch;
      if (verdict !== "spike") continue;
      for (let at = first; at <= last; at++) {
        const [px, py] = [x(at), Math.max(area[1] + 2, y(values[at]) - 4)];
        svg.append(s("path", { d: `M${px - 5},${py - 8} h10 l-5,8 z`, fill: "var(--lc-5)" }));
      }
      const middle = clamp((x(first) + x(last)) / 2, area[0] + 16, area[2] - 22);
      const wide = 7 * span(stretch).length;
      if (middle - wide / 2 > free && middle > area[0] + 130) { // beside the title
        svg.append(label(middle, 12, span(stretch), { "text-anchor": "middle" }));
        free = middle + wide / 2 + 4;
      }
    }
  }

  const drawLoss = w.stage((svg, width, tall) => curves(svg, width, tall, "losses", "loss, nats per token"),
    { height: 230, label: "loss against step" });
  const drawNorm = w.stage((svg, width, tall) => curves(svg, width, tall, "norms", "gradient norm"),
    { height: 170, label: "gradient norm against step" });
  const sign = (style, shape, words) =>
    h("span", {}, h("span", { style, "aria-hidden": "true" }, shape), ` ${words}  `);
  w.stages.append(h("p", { class: "sl-small" }, sign("color: var(--lc-1)", "━━", "this run"),
    sign("color: var(--lc-muted)", "╍╍", "all off"), sign("color: var(--lc-2)", "┈┈", "limit of the detector"),
    sign("color: var(--lc-5)", "▼", "spike"), h("span", {}, "✕ not finite from here")));
  w.stages.append(w.root.querySelector(".lc-status")); // beside what it is about
  const settings = h("fieldset", {}, h("legend", {}, "the detector"));
  const fields = h("div", { class: "lc-controls" });
  settings.append(fields);
  w.fold(settings);
  w.choice("watch", "it watches", { into: fields });
  w.number("window", "window, values", { into: fields });
  w.number("factor", "factor, spreads", { into: fields });
  w.number("least_rise", "least rise", { into: fields });

  // --- every run at a glance: what is learned worst is above, best below

  const fixed = (value) => (Math.abs(value) < 1000 ? value.toFixed(2) : show(value, 3));
  const order = [...runs].sort((a, b) => a.on.length - b.on.length);
  const rank = (run) => (lost(run) ? Infinity : Number(ending(run.losses).toFixed(2)));
  const ranked = [...order].sort((a, b) => (rank(a) === rank(b) ? 0 : rank(b) > rank(a) ? 1 : -1));
  const losses = runs.flatMap((run) => run.losses.filter((value) => value !== null)).sort((a, b) => a - b);
  const [least, most] = [losses[0], losses[Math.floor(0.97 * (losses.length - 1))]];
  const insight = h("p", {});
  w.stages.append(insight, h("p", { class: "sl-small" }, "The loss of every recorded run on one scale, the best end " +
    `below. A filled dot is a precaution that is on (from the left: ${precautions.join(", ")}), ▼ a spike; at the right ` +
    "stands the loss at the end. Choose a row by a click, or by the boxes above."));
  const drawAll = w.stage((svg, width) => {
    const left = 14 + 16 * precautions.length;
    const right = width - 62;
    const x = scale([0, model.get("longest") - 1], [left + 8, right]);
    const up = scale([least, Math.max(most, least + 1e-9)], [1, ROW - 7]);
    ranked.forEach((run, i) => {
      const base = 6 + ROW * (i + 1);
      const points = run.losses.map((value, at) => [x(at), base - clamp(up(value ?? least), 0, ROW - 4)])
        .filter((_, at) => run.losses[at] !== null);
      const mark = run === chosen() ? "var(--lc-1)" : "var(--lc-muted)";
      svg.append(s("g", { class: "sl-row", "data-key": run.on.join(), onclick: () => turn(run.on) },
        s("rect", { x: 1, y: base - ROW + 3, width: width - 2, height: ROW - 1, rx: 4, fill: "transparent",
          stroke: run === chosen() ? "var(--lc-1)" : "none", "stroke-width": 2 }),
        precautions.map((name, m) => s("circle", { cx: 14 + 16 * m, cy: base - ROW / 2 + 2, r: 5,
          stroke: "var(--lc-text)", fill: run.on.includes(name) ? "var(--lc-text)" : "none" })),
        line([[points[0][0], base], ...points, [points.at(-1)[0], base]], { style: `fill: ${mark}`,
          "fill-opacity": 0.25 }),
        line(points, { stroke: mark, "stroke-width": 1.6 }),
        bad(run).flatMap(([verdict, first, last]) => (verdict === "not finite"
          ? [label(x(first), base - 4, "✕", { "text-anchor": "middle" })]
          : Array.from({ length: last - first + 1 }, (_, k) => s("path", {
            d: `M${x(first + k) - 4},${base - ROW + 5} h8 l-4,9 z`, fill: "var(--lc-5)" })))),
        label(width - 6, base - ROW / 2 + 6, lost(run) ? "lost" : fixed(ending(run.losses)),
          { "text-anchor": "end" })));
    });
    return ranked.map((run) => `${called(run.on)} ${briefly(run)}, ${endsAt(run)}`).join("; ");
  }, { height: () => 14 + ROW * order.length, label: "every run, the best end last" });

  // --- tables and words

  const every = w.table("Every run: spikes, and where it ends");
  const values = w.table("This run, step by step");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  details.addEventListener("toggle", () => fillValues());
  function fillValues() {
    if (!details.open) return;
    const run = chosen() || off;
    values({ columns: ["step", "loss", "gradient norm", `limit (${model.get("watch")})`, "verdict"],
      rows: look(run).map(([verdict, limit], at) => [String(at), worth(run.losses[at]), worth(run.norms[at]),
        Number.isFinite(limit) ? show(limit) : "none yet", verdict]) });
  }

  function stepSentence(run) {
    const at = model.get("step");
    if (at >= run.losses.length) return `The run ended before step ${at}.`;
    const [verdict, limit] = look(run)[at];
    const known = Number.isFinite(limit) ? `limit ${show(limit, 3)}` : "no limit yet: the window is not full";
    return `Step ${at}: loss ${worth(run.losses[at])}, gradient norm ${worth(run.norms[at])}; ${model.get("watch")} ` +
      `has ${known}: ${verdict}.`;
  }

  function sentence() {
    const run = chosen();
    if (!run) {
      return `${upper(called(on()))} no run was recorded; shown is all off. Recorded: ${
        order.map(({ on: names }) => (names.length ? names.join(" + ") : "all off")).join("; ")}.`;
    }
    const last = bad(run).at(-1);
    const stays = last && last[0] === "spike" && last[2] === run.losses.length - 1 && last[2] - last[1] >= 4
      ? ` Since step ${last[1]} it has not come back.` : "";
    const versus = run === off ? "" : ` With all off: ${briefly(off)}, and ${endsAt(off)}.`;
    return `${upper(called(run.on))}: ${tally(run)}; ${endsAt(run)}.${stays}${versus} ${stepSentence(run)}`;
  }

  // Which runs are calm, and which of those have the fewest precautions.
  function insightSentence() {
    const calm = order.filter((run) => !bad(run).length);
    const recorded = plural(runs.length, "recorded run");
    const ends = runs.filter((run) => !lost(run)).map((run) => ending(run.losses));
    const differ = ends.length < 2 ? "" : ` They end between ${worth(Math.min(...ends))} and ${worth(Math.max(...ends))}.`;
    if (!calm.length) return `A spike in each of ${recorded}. Is that the runs, or is the detector too strict?${differ}`;
    const all = `No spike in ${calm.length} of ${recorded}.`;
    const fewest = calm.filter((run) => run.on.length === calm[0].on.length);
    if (!fewest[0].on.length) return `${all} Even all off is calm for this detector: is it too lenient?`;
    const names = fewest.map((run) => run.on.join(" + ")).join("; or ");
    return `${all} Calm with the fewest precautions: ${names}.`;
  }

  function redraw() {
    ticked.forEach((input, i) => { input.checked = on().includes(precautions[i]); });
    drawLoss();
    drawNorm();
    drawAll();
    every({ columns: ["precautions on", "spikes", "steps", "largest norm", "loss at the end"],
      rows: order.map((run) => [run.on.length ? run.on.join(" + ") : "all off",
        String(bad(run).filter(([verdict]) => verdict === "spike").length),
        bad(run).map((stretch) => `${span(stretch)}${stretch[0] === "spike" ? "" : " not finite"}`).join(", ") ||
          "none",
        Math.max(...run.norms.filter((v) => v !== null)), worth(ending(run.losses))]) });
    fillValues();
    insight.textContent = insightSentence();
    w.say(sentence());
  }
  w.on(["watch", "window", "factor", "least_rise"], () => { kept = new Map(); redraw(); });
  w.on(["on", "step", "compare"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
