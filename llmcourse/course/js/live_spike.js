import { frame, h, label, line, s, show } from "./kit.js";
import { chart, fillKey, LAB_STYLE, thread, told, whenSeen } from "./live_lab.js";
import ENGINE from "./live/worker.js" with { type: "text" };

// --- arithmetic, compared with its definition by the tests

// The mean value of [step, value] points over some steps, or null.
export function meanOver(points, first, last) {
  const found = points.filter(([step]) => step >= first && step <= last).map(([, value]) => value);
  return found.length ? found.reduce((a, b) => a + b, 0) / found.length : null;
}

// --- the page

const PACES = { "full speed": 0, "5 steps a second": 200, "1 step a second": 1000 };
const WAYS = {
  calm: { name: "no bad batch", look: { stroke: "var(--lc-muted)", "stroke-width": 4, "stroke-opacity": 0.5 } },
  clipped: { name: "bad batches, clipping", look: { stroke: "var(--lc-1)", "stroke-width": 2 } },
  free: { name: "bad batches, no clipping", look: { stroke: "var(--lc-2)", "stroke-width": 2,
    "stroke-dasharray": "6 2" } },
};
const nats = (value) => (value === null ? "–" : value.toFixed(2));

function render({ model, el }) {
  const config = model.get("config");
  const saved = model.get("saved");
  const recorded = model.get("recorded");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const w = frame({ model, el, title: "Throw in a bad batch" });
  w.root.prepend(h("style", {}, LAB_STYLE));

  // --- the run

  let worker = null;
  let wanted = false;
  let seen = true;
  let step = 0;
  let goingBack = false; // until the thread says that it is there: what it reports before is left out
  let trunk = []; // reports of steps 1 to `saved`
  let branches = {}; // way to what came of it: reports, and the bad steps
  let way = "calm";

  function begin() {
    worker = thread(ENGINE, heard, fail);
    if (!worker) return false;
    const { grammar, merges, end } = model.get("text");
    worker.postMessage({ start: { config, text: { grammar, merges, end }, seed: 0, arithmetic: "SIMD" },
      pace: PACES[model.get("pace")] });
    return true;
  }

  const heard = {
    report(news) {
      if (goingBack) return;
      step = news.step;
      (step <= saved ? trunk : branches[way].reports).push(news);
      if (step === saved || step >= config.steps) want(false);
      soon();
    },
    rewound() { goingBack = false; },
    failed: (why) => fail(why),
  };

  function fail(why) {
    worker?.terminate();
    worker = null;
    wanted = false;
    for (const button of [train, bad, back, anew]) button.disabled = true;
    model.set("note", `This browser cannot train it here (${why}). The curves are those of a recorded run.`);
    draw();
  }

  const until = () => (step < saved ? saved : config.steps);
  function want(on) {
    wanted = on;
    worker?.postMessage({ run: wanted && seen ? until() : 0 });
    clearTimeout(timer);
    draw();
  }

  function press() {
    if (!worker && !begin()) return;
    if (step >= config.steps) return;
    if (step === saved) branch("calm");
    tellClip();
    want(!wanted);
  }

  // Until the saved step all gradients are clipped, so that all ways begin at the same weights.
  const tellClip = () => worker?.postMessage({
    clip: model.get("clipping") || step < saved ? config.clip_norm : Infinity });

  // What comes after the saved step is kept for every way: the last one of its kind.
  function branch(name) {
    way = name;
    branches = { ...branches, [way]: { reports: [], bad: [] } };
  }

  function throwIn() {
    if (step >= config.steps) rewind();
    const kind = model.get("clipping") ? "clipped" : "free";
    const before = step > saved ? branches[way] : { reports: [], bad: [] };
    way = kind; // a run that was calm so far becomes one of this kind
    const count = model.get("bad");
    branches = { ...branches, [way]: { reports: [...before.reports],
      bad: [...before.bad, ...Array.from({ length: count }, (_, i) => step + 1 + i)] } };
    tellClip();
    worker.postMessage({ poison: count });
    want(true);
  }

  function rewind() {
    worker.postMessage({ run: 0, rewind: saved });
    goingBack = true;
    step = saved;
    wanted = false;
    draw();
  }

  function startAnew() {
    worker?.terminate();
    [worker, wanted, goingBack, step, trunk, branches, way] = [null, false, false, 0, [], {}, "calm"];
    model.set("note", "");
    draw();
  }

  const train = w.button("Train", press);
  const bad = w.button("Bad batch", throwIn);
  const back = w.button("Rewind", rewind);
  const anew = w.button("Start anew", startAnew);
  w.toggle("clipping", `clip the gradient at norm ${config.clip_norm}`, { onset: () => { tellClip(); draw(); } });
  w.number("bad", "bad batches in a row");
  w.choice("pace", "speed", { onset: () => worker?.postMessage({ pace: PACES[model.get("pace")] }) });

  // --- pictures

  const of = (reports, what) => reports.map((report) => [report.step, report[what]]);
  function curves(what) {
    if (!trunk.length) {
      return Object.entries(recorded).map(([name, { [what]: values }]) => ({ name: `recorded: ${WAYS[name].name}`,
        look: WAYS[name].look, points: values.map((value, i) => [i + 1, value]) }));
    }
    const common = of(trunk, what);
    const found = Object.entries(WAYS).filter(([name]) => branches[name]?.reports.length).map(([name, { look, ...each }]) =>
      ({ ...each, look, points: [...common.slice(-1), ...of(branches[name].reports, what)] }));
    return [{ name: "before", points: common, look: { stroke: "var(--lc-text)", "stroke-width": 1.4 } }, ...found];
  }
  const from = () => (trunk.length && step < saved ? 0 : saved - 20);

  function picture(svg, width, height, what, settings) {
    const shown = curves(what);
    const { x, y, box } = chart(svg, width, height, { from: from(), steps: config.steps, curves: shown, ...settings });
    const marked = branches[way]?.bad ?? [];
    for (const at of step >= saved ? marked : []) {
      svg.prepend(s("rect", { x: x(at - 0.5), y: box[1], width: Math.max(1, x(at + 0.5) - x(at - 0.5)),
        height: box[3] - box[1], fill: "var(--lc-5)", "fill-opacity": 0.22, class: "ls-bad" }));
    }
    return { x, y, box, text: told(shown) };
  }
  const drawLoss = w.stage((svg, width, height) => {
    const top = 2 * Math.log(config.vocab_size);
    return picture(svg, width, height, "loss", { range: [0, top], yTitle: "loss, nats per token" }).text;
  }, { height: 210, label: "loss against step" });
  const drawNorm = w.stage((svg, width, height) => {
    const { y, box, text } = picture(svg, width, height, "norm",
      { range: [0.2, 50], log: true, yTitle: "length of the gradient, before clipping" });
    const at = y(config.clip_norm);
    svg.append(line([[box[0], at], [box[2], at]], { stroke: "var(--lc-3)", "stroke-dasharray": "2 3" }),
      label(box[2], at - 4, `clipped to ${config.clip_norm}`, { "text-anchor": "end" }));
    return text;
  }, { height: 180, label: "gradient norm against step" });
  const key = h("p", { class: "ll-key" });
  w.stages.append(key);

  // --- numbers

  const fillTable = w.table("What came of it");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  details.addEventListener("toggle", fillNumbers);
  function results() {
    return Object.entries(WAYS).filter(([name]) => branches[name]?.reports.length).map(([name, each]) => {
      const { reports, bad: steps } = branches[name];
      const [losses, after] = [of(reports, "loss"), (steps.at(-1) ?? saved) + 1];
      return { name: each.name, count: steps.length, after: meanOver(losses, after, after + 9), reports,
        end: reports.at(-1).step >= config.steps ? meanOver(losses, config.steps - 9, config.steps) : null };
    });
  }
  function fillNumbers() {
    if (!details.open) return;
    fillTable({
      columns: ["run after the saved step", "bad batches", "highest loss", "highest norm",
        "mean loss, 10 steps after", "mean loss, last 10 steps"],
      rows: results().map(({ name, count, reports, after, end }) => [name, String(count),
        nats(Math.max(...reports.map(({ loss }) => loss))), show(Math.max(...reports.map(({ norm }) => norm)), 3),
        nats(after), nats(end)]),
    });
  }

  function sentence() {
    if (!trunk.length) {
      return worker ? "It begins: the random numbers are drawn."
        : `Press Train: it learns until step ${saved}, where its state is saved.`;
    }
    const now = (step <= saved ? trunk : branches[way].reports).at(-1) ?? trunk.at(-1);
    const head = `Step ${step} of ${config.steps}: loss ${nats(now.loss)}, gradient norm ${show(now.norm, 2)}.`;
    if (step < saved) return `${head} At step ${saved} its state will be saved.`;
    if (step === saved) {
      return `${head} Saved. Press Bad batch, or Train for a run without one; clipping is ` +
        `${model.get("clipping") ? "on" : "off"}.`;
    }
    const hidden = wanted && !seen ? " Paused: out of sight." : "";
    const all = results().filter(({ after }) => after !== null).map(({ name, after }) => `${name} ${nats(after)}`);
    const compared = step < config.steps ? "" : ` Mean loss of the ten steps after: ${all.join("; ")}. ` +
      "Press Rewind and try the other.";
    return `${head} Now: ${WAYS[way].name}.${compared}${hidden}`;
  }

  let timer = null;
  function soon() {
    timer ??= setTimeout(draw, wanted && calm ? 2000 : 100);
  }
  function draw() {
    clearTimeout(timer);
    timer = null;
    train.textContent = wanted ? "Pause" : "Train";
    train.setAttribute("aria-pressed", String(wanted));
    w.root.classList.toggle("lc-playing", wanted && seen);
    bad.disabled = !worker || step < saved;
    back.disabled = !worker || step <= saved;
    drawLoss();
    drawNorm();
    fillKey(key, curves("loss"));
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = whenSeen(w.root, (now) => { seen = now; want(wanted); });
  draw();
  return () => {
    worker?.terminate();
    clearTimeout(timer);
    unwatch();
    w.destroy();
  };
}

export default { render };
