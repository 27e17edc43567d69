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

// How far a loss is above another after a step, on average; null where one is not finite.
export function above(values, others, from) {
  const rest = values.slice(from).map((value, i) => (value === null || others[from + i] == null ? NaN : value - others[from + i]));
  const mean = rest.reduce((sum, value) => sum + value, 0) / rest.length;
  return Number.isNaN(mean) ? null : mean;
}

// --- the page

const STYLE = `
.lc fieldset { border: 1px solid var(--lc-line); border-radius: 0.3rem; padding: 0.1rem 0.6rem 0.4rem; margin: 0;
  flex: 1 1 100%; min-width: 0; }
.lc .sl-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc .sl-panel { cursor: pointer; }`;
const PANEL = 150;
const AROUND = [8, 6, 30]; // steps before a spike, of one that does not end, and after it

const span = ([, first, last]) => (first === last ? String(first) : `${first} to ${last}`);
const worth = (value) => (value == null ? "not finite" : show(value, 3));
const called = (names) => (names.length ? `with ${listed(names)}` : "with all off");
const upper = (words) => words[0].toUpperCase() + words.slice(1);
const lost = (run) => run.losses.at(-1) === null;
const endsAt = (run) => (lost(run) ? "the run is lost" : `the loss ends at ${worth(ending(run.losses))}`);

// A number beside an axis: short, however large or small.
const brief = (value) => (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)
  ? Number(value.toPrecision(2)).toExponential().replace("e+", "e") : show(value));
const marked = (y, left, values) => values.map((t) => label(left - 5, y(t) + 4, brief(t),
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
  const beside = (name, names) => names.filter((other) => other !== name &&
    runs.some((run) => run.on.includes(name) && run.on.includes(other)));
  function switchOn(name) {
    const left = beside(name, on());
    const gone = on().filter((other) => !left.includes(other));
    turn([...left, name], gone.length ? `Not recorded with ${name}, and off now: ${listed(gone)}.` : "");
  }
  const toggle = (name, wanted) => (wanted ? switchOn(name) : turn(on().filter((other) => other !== name)));
  const ticked = precautions.map((name) => {
    const id = uniqueId();
    const input = h("input", { type: "checkbox", id });
    input.addEventListener("change", () => toggle(name, input.checked));
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
  let found = new Map();
  const bad = (run) => {
    if (!found.has(run)) found.set(run, stretches(look(run).map(([verdict]) => verdict)));
    return found.get(run);
  };

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
    ...marked(y, area[0], log ? logTicks(low, high) : ticks(low, high, 4)));
    for (const [run, kind] of lines) {
      if (kind === "off" && run === picked) continue;
      drawRun(svg, run[which], { x, y, area, kind });
    }
    const at = model.get("step");
    svg.append(line([[x(at), area[1]], [x(at), area[3]]], { "data-key": "at", stroke: "var(--lc-text)" }));
    const run = picked || off;
    if (isWatched) drawVerdicts(svg, run, run[which], { x, y, area, low, high });
    const here = run[which][at];
    if (here != null) svg.append(s("circle", { "data-key": "here", cx: x(at), cy: y(here), r: 5, fill: "var(--lc-text)" }));
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
    let [piece, pieces] = [[], 0];
    const close = () => { if (piece.length) svg.append(line(piece, { ...style, "data-key": `${kind} ${pieces++}` })); piece = []; };
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
    { height: 230, label: "loss against step", lasts: 4 });

  // --- what each precaution does to a spike, the other boxes as they are

  // The spike of the run with all off that is nearest to the step, as [first, last] of its steps; null if there is none.
  function nearest() {
    const far = ([, first]) => Math.abs(first - model.get("step"));
    const all = bad(off).filter(([verdict]) => verdict === "spike").sort((a, b) => far(a) - far(b));
    return all.length ? [all[0][1], Math.min(all[0][2], all[0][1] + AROUND[1])] : null;
  }
  // For each precaution, the runs without it and with it, null where there was none.
  const pairs = () => precautions.map((name) => {
    const left = beside(name, chosen()?.on ?? []);
    return { name, runs: [runOf(left), runOf([...left, name])] };
  });
  const drawEach = w.stage((svg, width) => {
    const spike = nearest();
    const longest = model.get("longest");
    const start = spike ? Math.max(0, spike[0] - AROUND[0]) : 0;
    const end = spike ? Math.min(longest - 1, spike[1] + AROUND[2]) : longest - 1;
    const all = pairs();
    const part = (run) => run.losses.slice(start, end + 1);
    const values = all.flatMap((one) => one.runs).flatMap((run) => (run ? part(run).filter((v) => v !== null) : []))
      .sort((a, b) => a - b);
    const [low, high] = [values[0] ?? 0, values[Math.floor(0.9 * (values.length - 1))] ?? 1];
    const across = width > 560 ? precautions.length : Math.min(2, precautions.length);
    const wide = width / across;
    const said = all.map(({ name, runs: [without, given] }, i) => {
      const [left, top] = [(i % across) * wide + 1, Math.floor(i / across) * PANEL + 2];
      const x = scale([start, Math.max(end, start + 1)], [left + 5, left + wide - 8]);
      const y = scale([low, low + 1.3 * (high - low || 1)], [top + PANEL - 34, top + 26]);
      const points = (run) => (run ? part(run) : []).map((v, k) => [x(start + k), v === null ? null : Math.max(top + 24, y(v))])
        .filter(([, place]) => place !== null);
      const [before, after] = [points(without), points(given)];
      const change = without && given && spike ? above(given.losses.slice(0, end + 1), without.losses, spike[1] + 1) : null;
      const words = change !== null ? (Math.abs(change) < 0.005 ? "no difference" : `${Math.abs(change).toFixed(2)} ${change > 0 ? "higher" : "lower"} after`)
        : !without || !given ? "not recorded" : lost(given) ? "lost with it" : lost(without) ? "lost without" : "no spike";
      const isOn = on().includes(name);
      svg.append(s("g", { class: "sl-panel", "data-key": name, onclick: () => toggle(name, !on().includes(name)) },
        s("rect", { x: left + 1, y: top, width: wide - 6, height: PANEL - 8, rx: 4, fill: "transparent",
          stroke: isOn ? "var(--lc-1)" : "var(--lc-line)", "stroke-width": isOn ? 2.5 : 1 }),
        s("polygon", { points: [...before, ...[...after].reverse()].map((point) => point.map((v) => v.toFixed(2)).join()).join(" "),
          fill: change > 0 ? "var(--lc-5)" : "var(--lc-1)", "fill-opacity": 0.25 }),
        line(before, { stroke: "var(--lc-muted)", "stroke-dasharray": "4 2", "stroke-width": 1.3 }),
        line(after, { stroke: "var(--lc-1)", "stroke-width": 2 }),
        label(left + 8, top + 16, name.length > wide / 8 ? `${name.slice(0, wide / 8)}…` : name, { style: isOn ? "font-weight: 700" : null }),
        label(left + 8, top + PANEL - 16, words)));
      return `${name}${isOn ? ", on" : ""}: ${words}`;
    });
    return `${spike ? `steps ${start} to ${end}; ` : ""}${said.join("; ")}`;
  }, { height: (width) => PANEL * Math.ceil(precautions.length / (width > 560 ? precautions.length : Math.min(2, precautions.length))) + 2,
    label: "what each precaution does to the spike", lasts: 4 });
  w.stages.append(h("p", { class: "sl-small" }, "What each precaution does to the spike, the other boxes as they are: the " +
    "loss around it without (dashed) and with (solid), cut off at the top, and how far apart they stay. Press a panel to switch."));
  const drawNorm = w.stage((svg, width, tall) => curves(svg, width, tall, "norms", "gradient norm"),
    { height: 170, label: "gradient norm against step", lasts: 4 });
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

  const order = [...runs].sort((a, b) => a.on.length - b.on.length);
  const insight = h("p", {});
  w.stages.append(insight);

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
    drawEach();
    drawNorm();
    every(() => ({ columns: ["precautions on", "spikes", "steps", "largest norm", "loss at the end"],
      rows: order.map((run) => [run.on.length ? run.on.join(" + ") : "all off",
        String(bad(run).filter(([verdict]) => verdict === "spike").length),
        bad(run).map((stretch) => `${span(stretch)}${stretch[0] === "spike" ? "" : " not finite"}`).join(", ") ||
          "none",
        Math.max(...run.norms.filter((v) => v !== null)), worth(ending(run.losses))]) }));
    fillValues();
    insight.textContent = insightSentence();
    w.say(sentence());
  }
  w.on(["watch", "window", "factor", "least_rise"], () => { [kept, found] = [new Map(), new Map()]; redraw(); });
  w.on(["on", "step", "compare"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
