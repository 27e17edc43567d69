import { axes, frame, h, label, line, s, scale, show, ticks, uniform, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_classroom.widgets.crash by the tests

const STEPS = 24;
const PARTS = ["weights", "moments", "generators", "position"];
const INSIDE = "inside the write";

// All that the next step depends on, at the beginning of a run.  Moments: Adam's first and second, and beta1 and
// beta2 to the number of updates.  Generators: random numbers drawn.  Position: batches taken.
const BEGINNING = { weights: 0, moments: [0, 0, 1, 1], generators: 0, position: 0 };

// One step of a run with a single weight, which learns the mean of some numbers.
export function advance({ weights, moments: [m, v, power1, power2], generators, position }) {
  const target = 0.4 + 1.2 * uniform(1, position);
  const gradient = (weights - target) * (2 * uniform(2, generators));
  const first = 0.9 * m + (1 - 0.9) * gradient;
  const second = 0.95 * v + (1 - 0.95) * (gradient * gradient);
  const [p1, p2] = [power1 * 0.9, power2 * 0.95];
  return {
    weights: weights - 0.1 * (first / (1 - p1)) / (Math.sqrt(second / (1 - p2)) + 1e-8),
    moments: [first, second, p1, p2], generators: generators + 1, position: position + 1,
  };
}

// The states of the run that nothing ends, at its beginning and after every step.
export function uninterrupted(steps) {
  const states = [BEGINNING];
  for (let i = 0; i < steps; i++) states.push(advance(states.at(-1)));
  return states;
}

export const fileName = (step, over) => (over ? "last.ckpt" : `step_${String(step).padStart(8, "0")}.ckpt`);

// Files as [name, step, whole] when a process has done `step` and is then ended.
export function disk(every, step, when, atomic, over) {
  const saves = step > 0 && step % every === 0;
  const done = saves && when !== "after the write" ? step - 1 : step; // its saves are whole
  const steps = Array.from({ length: Math.floor(done / every) }, (_, i) => every * (i + 1));
  const whole = (over ? steps.slice(-1) : steps).map((at) => [fileName(at, over), at, true]);
  if (!saves || when !== INSIDE) return whole;
  const name = fileName(step, over);
  if (atomic) return [...whole, [`.${name}.tmp`, step, false]];
  return [...whole.filter(([other]) => other !== name), [name, step, false]]; // written over
}

// The newest whole file's step; 0 where there is none.
export const restartStep = (files) => files.reduce((best, [, step, whole]) => (whole ? Math.max(best, step) : best), 0);

// The states of the second process, which has what was saved, and the rest as at the beginning of a run.
export function resumed(saved, restart, steps) {
  const left = uninterrupted(steps)[restart];
  const states = [{ ...BEGINNING, ...Object.fromEntries(saved.map((part) => [part, left[part]])) }];
  for (let i = restart; i < steps; i++) states.push(advance(states.at(-1)));
  return states;
}

// What was not saved and is needed: nothing at the beginning of a run, only the weights at its end.
export const lacking = (saved, restart, steps) => PARTS.filter((part) =>
  restart > 0 && !saved.includes(part) && (restart < steps || part === "weights"));

// What a crash leaves, and how the run goes on and ends.
export function outcome(saved, every, step, when, atomic, over, steps) {
  const files = disk(every, step, when, atomic, over);
  const restart = restartStep(files);
  const states = resumed(saved, restart, steps);
  return {
    files, restart, weights: states.map((state) => state.weights),
    batches: states.slice(0, -1).map((state) => state.position),
    draws: states.slice(0, -1).map((state) => state.generators),
    lacking: lacking(saved, restart, steps),
    equal: states.at(-1).weights === uninterrupted(steps).at(-1).weights,
  };
}

// The first and the last batch that no process learns from when the order begins again; null where all are seen.
export function unseen(restart, steps) {
  const first = Math.max(restart, steps - restart) + 1;
  return restart > 0 && first <= steps ? [first, steps] : null;
}

// --- the page

const ALL = 2 * STEPS; // more than two processes ever do
const SAVED = ["weights", "Adam's moments", "random generators", "position in the data"];
const ONE = "one, written over";
const joined = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
const steps = (count) => `${count} ${count === 1 ? "step" : "steps"}`;

// Why a run without a part is another one, said of the step after the restart.
function because(part, restart) {
  const next = restart + 1;
  if (part === "weights") {
    return restart === STEPS ? "The weights were not saved: they are new ones, and no step is left."
      : `The weights were not saved: step ${next} begins with new ones.`;
  }
  if (part === "moments") return `The moments were not saved: Adam begins from zero in step ${next}.`;
  if (part === "generators") {
    return `The generators were not saved: step ${next} uses random number 1 again, not number ${next}.`;
  }
  const [first, last] = unseen(restart, STEPS);
  const never = first === last ? `batch ${first}` : `batches ${first} to ${last}`;
  return `The position was not saved: step ${next} takes batch 1 again, not batch ${next}, and no step that is kept ` +
    `takes ${never}.`;
}

function render({ model, el }) {
  const w = frame({ model, el, title: "End a run, and go on" });
  const whole = uninterrupted(STEPS).map((state) => state.weights);
  const toEnd = () => { player.stop(); w.put("shown", ALL); };

  const parts = h("fieldset", { class: "lc-controls",
    style: "border: 0; padding: 0; margin: 0; flex-basis: 100%; min-width: 0" }, h("legend", {}, "A save holds"));
  w.controls.append(parts);
  PARTS.forEach((part, i) => w.toggle(part, SAVED[i], { into: parts, onset: () => toEnd() }));
  w.number("every", "steps between saves", { onset: () => toEnd() });
  w.number("crash_step", "crash at step", { onset: () => toEnd() });
  const when = w.choice("crash_when", "at that step", { onset: () => toEnd() });
  w.choice("files", "files", { onset: () => toEnd() });
  w.toggle("atomic", "atomic: a temporary file, renamed when whole", { onset: () => toEnd() });
  w.button("Crash inside the next save", () => {
    const every = model.get("every");
    const next = every * (Math.floor(model.get("crash_step") / every) + 1);
    w.put("crash_when", INSIDE);
    w.putNumber("crash_step", "crash at step", next > STEPS ? every : next); // after the last one, the first
    toEnd();
  });
  const player = w.player({
    step: () => {
      const { shown, total } = now();
      const next = shown < total ? shown + 1 : 0; // from the end, the beginning
      w.put("shown", next === total ? ALL : next);
      return next < total;
    },
    reset: () => w.put("shown", 0),
    perSecond: 2,
  });

  // Everything that pictures, tables and sentence say.
  function now() {
    const saved = PARTS.filter((part) => model.get(part));
    const [every, crash, at, atomic] = ["every", "crash_step", "crash_when", "atomic"].map((name) => model.get(name));
    const over = model.get("files") === ONE;
    const found = outcome(saved, every, crash, at, atomic, over, STEPS);
    const total = crash + STEPS - found.restart;
    const shown = Math.min(model.get("shown"), total);
    const first = Math.min(shown, crash); // steps of the first process that are drawn
    const files = first < crash ? disk(every, first, "after the write", atomic, over) : found.files;
    return { saved, every, crash, at, atomic, over, ...found, total, shown, first, files,
      second: found.restart + shown - first, ended: shown >= crash, saves: crash % every === 0 };
  }

  const crashWords = ({ saves, at, crash }) => (saves ? `ended ${at} of step ${crash}` : `ended after step ${crash}`);

  // Two fills that differ in more than colour from the plain one.
  function fills(svg) {
    const [again, other] = [uniqueId(), uniqueId()];
    const pattern = (id, kind, ...drawn) => s("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse",
      class: kind }, s("rect", { width: 6, height: 6, fill: "currentColor" }), ...drawn);
    svg.append(s("defs", {},
      pattern(again, "lc-2", s("path", { d: "M-1 7 L7 -1", stroke: "var(--lc-on)", "stroke-width": 1.8 })),
      pattern(other, "lc-5", s("circle", { cx: 3, cy: 3, r: 1.4, fill: "var(--lc-on)" }))));
    return { again: `url(#${again})`, other: `url(#${other})` };
  }

  const cell = (x, step, y, fill, attributes = {}) => s("rect", { x: x(step - 1) + 0.5, y, width: x(step) - x(step - 1) - 1,
    height: 20, fill: fill || "currentColor", class: "lc-1", ...attributes });

  // A file: a full square if it is whole, half of one if it is torn, a dashed one if it is no longer there.
  function square(x, y, kind, size = 12, attributes = {}) {
    const [a, b] = [-size / 2, size / 2];
    const edge = { x: a, y: a, width: size, height: size, "stroke-width": 1.5, stroke: "var(--lc-text)" };
    return s("g", { transform: `translate(${x} ${y})`, ...attributes },
      s("rect", { ...edge, fill: kind === "whole" ? "var(--lc-text)" : "none",
        "stroke-dasharray": kind === "gone" ? "2 2" : null }),
      kind === "half" ? s("path", { d: `M${a} ${a} V${b} H${b} Z`, fill: "var(--lc-text)" }) : null);
  }

  // The state of a process where it stands: what a file is a copy of.
  const state = (x, y, size, attributes) => s("g", { transform: `translate(${x} ${y})`, ...attributes },
    s("rect", { x: -size / 2, y: -size / 2, width: size, height: size, fill: "var(--lc-text)", stroke: "var(--lc-on)",
      "stroke-width": 2, "paint-order": "stroke" }));

  // Seen on the bar and beside it, in both themes.
  const cross = (x, y) => [["var(--lc-on)", 6], ["var(--lc-text)", 3]].map(([stroke, thick]) => s("path", {
    d: `M${x - 8} ${y - 8} l16 16 m0 -16 l-16 16`, stroke, "stroke-width": thick, fill: "none" }));

  function key(svg, filled, top, wide) {
    const sample = (fill) => (x, y) => s("rect", { x: x - 7, y: y - 7, width: 14, height: 14,
      fill: fill || "currentColor", class: "lc-1" });
    const kept = (kind) => (x, y) => square(x, y, kind);
    const items = [["step", sample(null)], ["done again later", sample(filled.again)],
      ["another run's step", sample(filled.other)], ["crash", cross], ["whole file", kept("whole")],
      ["half a file", kept("half")], ["written over", kept("gone")]];
    let [x, y] = [4, top];
    for (const [text, draw] of items) {
      const room = 25 + 6.4 * text.length;
      if (x + room > wide) [x, y] = [4, y + 22];
      svg.append(...[draw(x + 9, y - 4)].flat(), label(x + 22, y, text));
      x += room + 6;
    }
  }

  const drawTime = w.stage((svg, wide) => {
    const all = now();
    const { every, crash, restart, first, second, ended, files, weights } = all;
    const filled = fills(svg);
    const x = scale([0, STEPS], [14, wide - 14]);
    const size = Math.min(12, x(1) - x(0) - 2);
    svg.append(label(14, 14, ended ? `first process: ${crashWords(all)}` : `first process: ${steps(first)} done`));
    for (let step = 1; step <= first; step++) {
      svg.append(cell(x, step, 22, ended && step > restart ? filled.again : null, { "data-key": `step ${step}` }));
    }
    // What comes later waits unseen where it comes from: a file in the process that writes it, a step that is done
    // again where it was done first, and the second process in its file.
    for (let step = every; step <= Math.min(crash, first + every); step += every) {
      const file = files.find(([, at]) => at === step);
      const kind = file ? (file[2] ? "whole" : "half") : step < crash && step <= first ? "gone" : null;
      if (kind || step > first) {
        svg.append(square(x(step), kind ? 54 : 32, kind || "whole", size, { "data-key": `file ${step}`, opacity: kind ? 1 : 0 }));
      }
    }
    if (ended) {
      const from = restart ? 63 : 46;
      svg.append(line([[x(restart), from], [x(restart), 84]], { stroke: "var(--lc-text)", "stroke-width": 2 }),
        s("path", { d: `M${x(restart) - 5} 80 l5 8 l5 -8 z`, fill: "var(--lc-text)" }));
      for (let step = restart + 1; step <= Math.max(crash, second); step++) {
        const done = step <= second;
        svg.append(cell(x, step, done ? 90 : 22, weights[step - restart] === whole[step] ? null : filled.other,
          { "data-key": `again ${step}`, opacity: done ? 1 : 0 }));
      }
      svg.append(...cross(x(crash), 32));
    } else svg.append(state(x(first), 32, size, { "data-key": "first" }));
    svg.append(state(x(ended ? second : restart), ended ? 100 : 54, size, { "data-key": "second", opacity: ended ? 1 : 0 }));
    for (const t of ticks(0, STEPS, wide < 420 ? 6 : 12)) {
      svg.append(label(x(t), 125, t, { "text-anchor": "middle" }));
    }
    const goes = restart === 0 ? "begins again at step 0" : restart === STEPS ? "finds all steps done"
      : `goes on from step ${restart}`;
    svg.append(label(14, 144, ended ? `second process: ${goes}` : "second process: not begun"));
    key(svg, filled, 172, wide);
    const onDisk = `${files.length} ${files.length === 1 ? "file" : "files"} on disk`;
    if (!ended) return `${steps(first)} of the first process, ${onDisk}`;
    return `first process ${crashWords(all)}; second process ${goes}, step ${second} done`;
  }, { height: (wide) => (wide < 420 ? 246 : 202), label: "timeline", lasts: 2.3 });

  const drawCurve = w.stage((svg, wide, tall) => {
    const { restart, first, second, ended, shown, crash, weights } = now();
    const box = [40, 28, wide - 14, tall - 40];
    const all = [...whole, ...weights];
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const x = scale([0, STEPS], [box[0], box[2]]);
    const y = scale([low, high], [box[3], box[1]]);
    const drawn = weights.slice(0, second - restart + 1).map((value, i) => [x(restart + i), y(value)]);
    const places = { first: [x(first), y(whole[first])], second: drawn.at(-1) };
    svg.append(axes({ x, y, box, xTicks: ticks(0, STEPS, wide < 420 ? 6 : 12), yTicks: ticks(low, high, 4),
      xTitle: "step" }), label(4, 14, "weight"),
    line(whole.map((value, i) => [x(i), y(value)]), { stroke: "currentColor", class: "lc-1", "stroke-width": 2 }));
    if (ended) {
      svg.append(line(drawn, { stroke: "currentColor", class: "lc-5", "stroke-width": 3, "stroke-dasharray": "6 4" }),
        s("rect", { x: drawn[0][0] - 4, y: drawn[0][1] - 4, width: 8, height: 8, fill: "var(--lc-text)" }));
    }
    const [cx, cy] = shown > crash ? places.second : places.first;
    svg.append(s("circle", { "data-key": "now", cx, cy, r: 5, fill: "currentColor", class: shown > crash ? "lc-5" : "lc-1" }));
    const keyAt = (at, kind, dash, text) => svg.append(
      line([[at, 10], [at + 20, 10]], { stroke: "currentColor", class: kind, "stroke-width": dash ? 3 : 2,
        "stroke-dasharray": dash }), label(at + 26, 14, text));
    keyAt(62, "lc-1", null, "uninterrupted");
    keyAt(178, "lc-5", "6 4", "second process");
    return ended ? `uninterrupted ends at ${show(whole.at(-1))}, the second process ` +
      `${second === STEPS ? "ends" : "stands"} at ${show(weights[second - restart])}`
      : `the first process stands at ${show(whole[first])}`;
  }, { height: 210, label: "weight over the steps", lasts: 2.3 });

  const fileTable = w.table("Files on disk");
  const numbers = w.table("Every step of the second process, beside the uninterrupted run");

  // Where the half file is, if the crash left one.
  function torn({ files, atomic, over, crash, every }) {
    const half = files.find(([, , complete]) => !complete);
    if (!half) return "";
    if (atomic) return " The half file is a temporary one: nobody takes it for a checkpoint.";
    if (!over) return ` ${half[0]} is half: its hash does not fit, so it is passed over.`;
    return ` ${half[0]} is half, and what ${crash > every ? "it held before is gone" : "was to be in it is lost"}.`;
  }

  function verdict(state) {
    const { saved, crash, restart, equal, weights } = state;
    const left = state.lacking;
    if (restart === 0) {
      return `It ends as the uninterrupted run does, to the last bit: the seed gives every step again. But all ` +
        `${steps(crash)} were for nothing.`;
    }
    if (!equal) {
      return `${left.map((part) => because(part, restart)).join(" ")} It is another run, and no error says so: the ` +
        `weight ends at ${show(weights.at(-1))}, not at ${show(whole.at(-1))}.`;
    }
    const spare = PARTS.filter((part) => !saved.includes(part));
    if (spare.length) return `Nothing is left to do, so the missing ${joined(spare)} change no weight.`;
    return "It ends as the uninterrupted run does, to the last bit: all that the next step depends on was saved.";
  }

  function sentence(state) {
    const { crash, every, restart, first, second, shown, total, ended, saves, batches, draws } = state;
    if (shown === 0) return "Nothing has happened yet: press Play or Step.";
    if (!ended) {
      const kept = first % every === 0 ? ", and saved" : "";
      return `Step ${first} is done${kept}: batch ${first}, random number ${first}.`;
    }
    const head = `The first process is ${crashWords(state)}${saves ? "" : ", which does not save"}.${torn(state)}`;
    const lost = crash - restart;
    const from = restart === 0 ? "No file is whole: the second process begins again at step 0."
      : `The second process goes on from step ${restart}; ${lost ? `${steps(lost)} ${lost === 1 ? "is" : "are"} done ` +
        "again" : "nothing is done twice"}.`;
    if (shown === total) return `${head} ${from} ${verdict(state)}`;
    if (shown === crash) return `${head} ${from}`;
    const i = second - restart - 1;
    const differs = batches[i] !== second - 1 || draws[i] !== second - 1;
    return `Second process, step ${second}: batch ${batches[i] + 1}, random number ${draws[i] + 1}` +
      `${differs ? `; the uninterrupted run had batch ${second}, random number ${second}` : ""}.`;
  }

  function redraw() {
    const state = now();
    const { restart, weights, batches, draws, files } = state;
    when.disabled = !state.saves; // without a write there is no moment of it
    drawTime();
    drawCurve();
    fileTable({ columns: ["file", "step", "whole"],
      rows: files.length ? files.map(([name, step, complete]) => [name, step, complete ? "yes" : "no"])
        : [["none", "", ""]] });
    numbers({
      columns: ["step", "batch", "random number", "weight", "uninterrupted", "same"],
      rows: weights.map((value, i) => [`${restart + i}`, i ? batches[i - 1] + 1 : "", i ? draws[i - 1] + 1 : "",
        value.toFixed(9), whole[restart + i].toFixed(9), value === whole[restart + i] ? "yes" : "no"]),
    });
    w.say(sentence(state));
  }
  w.on([...PARTS, "every", "crash_step", "crash_when", "files", "atomic", "shown"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
