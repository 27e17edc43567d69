import { frame, h, label, line, s, show } from "./kit.js";
import { cannot, chart, difference, fillKey, LAB_STYLE, nats, openTable, PACES, thread, told, trainButton, whenPrinted, whenSeen } from "./live_lab.js";
import ENGINE from "./live/worker.js" with { type: "text" };

// --- arithmetic, compared with its definition by the tests

// The mean value of [step, value] points over some steps, or null.
export function meanOver(points, first, last) {
  const found = points.filter(([step]) => step >= first && step <= last).map(([, value]) => value);
  return found.length ? found.reduce((a, b) => a + b, 0) / found.length : null;
}

// --- the page

const WAYS = {
  calm: { name: "no bad batch", look: { stroke: "var(--lc-muted)", "stroke-width": 4, "stroke-opacity": 0.5 } },
  clipped: { name: "bad batches, clipping", look: { stroke: "var(--lc-1)", "stroke-width": 2 } },
  free: { name: "bad batches, no clipping", look: { stroke: "var(--lc-2)", "stroke-width": 2,
    "stroke-dasharray": "6 2" } },
};

function render({ model, el }) {
  const config = model.get("config");
  const saved = model.get("saved");
  const recorded = model.get("recorded");
  const w = frame({ model, el, title: "Throw in a bad batch" });
  w.root.prepend(h("style", {}, LAB_STYLE));

  // --- the run

  let worker = null;
  let wanted = false;
  let seen = true;
  let step = 0;
  let broken = false; // whether this browser cannot do it
  let printed = false;
  let goingBack = false; // until the thread says that it is there: what it reports before is left out
  let trunk = []; // reports of steps 1 to `saved`
  let branches = {}; // way to the reports of what came of it
  let way = "calm";

  function begin() {
    worker = thread(ENGINE, (kind, news) => heard[kind]?.(news), fail);
    if (!worker) return false;
    worker.postMessage({ start: { config, text: model.get("text"), seed: 0, arithmetic: "SIMD" },
      pace: PACES[model.get("pace")] });
    return true;
  }

  const heard = {
    report(news) {
      if (goingBack) return;
      step = news.step;
      (step <= saved ? trunk : branches[way]).push(news);
      if (step === saved) branch("calm", []);
      if (step >= config.steps) want(false);
      soon();
    },
    rewound() { goingBack = false; },
  };

  function fail(why) {
    worker?.terminate();
    worker = null;
    wanted = false;
    broken = train.disabled = anew.disabled = true;
    model.set("note", `${cannot(why)} The curves are those of a recorded run.`);
    draw();
  }

  function want(on) {
    wanted = on;
    worker?.postMessage({ run: wanted && seen ? config.steps : 0 });
    draw();
  }

  function press() {
    if (!worker && !begin()) return;
    if (step === saved) branch("calm", []);
    want(!wanted);
  }

  // What comes after the saved step is kept for every way: the last one of its kind.  Clipping is left out from
  // the first bad batch on, so all ways begin at the same weights.
  function branch(name, reports) {
    way = name;
    branches = { ...branches, [way]: reports };
    worker.postMessage({ clip: way === "free" ? Infinity : config.clip_norm });
  }

  function throwIn() {
    if (step >= config.steps) rewind();
    branch(model.get("clipping") ? "clipped" : "free", step > saved ? [...branches[way]] : []);
    worker.postMessage({ poison: model.get("bad") });
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

  const { button: train, draw, soon, stop } = trainButton(w,
    { press, wanted: () => wanted, runs: () => wanted && seen, show: showAll });
  const bad = w.button("Bad batch", throwIn);
  const back = w.button("Rewind", rewind);
  const anew = w.button("Start anew", startAnew);
  w.toggle("clipping", `clip the gradient at norm ${config.clip_norm}`, { onset: draw });
  w.number("bad", "bad batches in a row");
  w.choice("pace", "speed", { onset: () => worker?.postMessage({ pace: PACES[model.get("pace")] }) });

  // --- pictures

  const ways = () => Object.entries(WAYS).filter(([kind]) => branches[kind]?.length);
  const of = (reports, what) => reports.map((report) => [report.step, report[what]]);
  function curves(what) {
    if (broken || (printed && !trunk.length)) { // else it is for the reader to find out
      return Object.entries(recorded).map(([kind, { [what]: values }]) => ({ ...WAYS[kind], kind,
        name: `recorded: ${WAYS[kind].name}`, points: values.map((value, i) => [i + 1, value]) }));
    }
    const common = of(trunk, what);
    const found = ways().map(([kind, each]) =>
      ({ ...each, kind, points: [...common.slice(-1), ...of(branches[kind], what)] }));
    return !trunk.length ? [] : [{ name: "before", points: common, look: { stroke: "var(--lc-text)", "stroke-width": 1.4 } }, ...found];
  }
  const from = () => (broken || printed || step >= saved ? saved - 20 : 0);

  function picture(svg, width, height, what, settings) {
    const shown = settings.curves ?? curves(what);
    const { x, y, box } = chart(svg, width, height, { from: from(), steps: config.steps, curves: shown, ...settings });
    const marked = (branches[way] ?? []).filter((report) => report.bad).map((report) => report.step);
    for (const at of step > saved ? marked : []) {
      svg.prepend(s("rect", { x: x(at - 0.5), y: box[1], width: Math.max(1, x(at + 0.5) - x(at - 0.5)),
        height: box[3] - box[1], fill: "var(--lc-5)", "fill-opacity": 0.22, class: "ls-bad" }));
    }
    return { x, y, box, text: told(shown) };
  }
  const drawLoss = w.stage((svg, width, height) => {
    const nothing = Math.log(config.vocab_size);
    const { y, box, text } = picture(svg, width, height, "loss",
      { range: [0, 2 * nothing], yTitle: "loss, nats per token" });
    svg.append(line([[box[0], y(nothing)], [box[2], y(nothing)]], { stroke: "var(--lc-muted)", "stroke-dasharray": "6 4" }),
      label(box[0] + 6, y(nothing) - 5, `ln ${show(config.vocab_size)} = ${nats(nothing)}: knows nothing`));
    return text;
  }, { height: 210, label: "loss against step" });
  const drawNorm = w.stage((svg, width, height) => {
    const { y, box, text } = picture(svg, width, height, "norm",
      { range: [0.2, 50], log: true, yTitle: `gradient norm; dotted: clipped to ${config.clip_norm}` });
    const at = y(config.clip_norm);
    svg.append(line([[box[0], at], [box[2], at]], { stroke: "var(--lc-3)", "stroke-dasharray": "2 3" }));
    return text;
  }, { height: 180, label: "gradient norm against step" });
  const drawAbove = w.stage((svg, width, height) => {
    const found = curves("loss");
    const calmRun = found.find(({ kind }) => kind === "calm")?.points ?? [];
    const all = found.filter(({ kind }) => kind && kind !== "calm")
      .map((curve) => ({ ...curve, points: difference(curve.points, calmRun) }));
    picture(svg, width, height, "loss", { range: [-0.2, 1], yTitle: "loss above that without a bad batch",
      curves: [{ points: [[from(), 0], [config.steps, 0]], look: WAYS.calm.look }, ...all] });
    return told(all, 2);
  }, { height: 150, label: "loss above that of the run without a bad batch" });
  const key = h("p", { class: "ll-key" });
  w.stages.append(key);

  // --- numbers

  function results() {
    return ways().map(([kind, { name }]) => {
      const reports = branches[kind];
      const steps = reports.filter((report) => report.bad).map((report) => report.step);
      const above = difference(of(reports, "loss"), of(branches.calm ?? [], "loss"));
      const after = steps.at(-1) + 1;
      return { name, reports, count: steps.length, after: steps.length ? meanOver(above, after, after + 9) : null,
        end: steps.length ? meanOver(above, config.steps - 9, config.steps) : null };
    });
  }
  const fillNumbers = openTable(w, "What came of it", () => ({
    columns: ["run after the saved step", "bad batches", "highest loss", "highest norm",
      "loss above the first row, 10 steps after", "and in the last 10 steps"],
    rows: results().map(({ name, count, reports, after, end }) => [name, String(count),
      nats(Math.max(...reports.map(({ loss }) => loss))), show(Math.max(...reports.map(({ norm }) => norm)), 3),
      nats(after), nats(end)]),
  }));

  function sentence() {
    if (!trunk.length) {
      return worker ? "It begins: the random numbers are drawn."
        : `Press Train: it learns for ${config.steps} steps. Its state of step ${saved} is saved on the way.`;
    }
    const now = (step <= saved ? trunk : branches[way]).at(-1) ?? trunk.at(-1);
    const head = `Step ${step} of ${config.steps}: loss ${nats(now.loss)}, gradient norm ${show(now.norm, 2)}.`;
    if (step < saved) return head;
    if (step === saved) {
      return `${head} This is the saved state. Press Bad batch; clipping is ${model.get("clipping") ? "on" : "off"}.`;
    }
    const hidden = wanted && !seen ? " Paused: out of sight." : "";
    const all = results().filter(({ after }) => after !== null).map(({ name, after }) => `${name} ${nats(after)}`);
    const compared = step < config.steps ? ""
      : way === "calm" ? " Now press Bad batch: the run goes back to the saved state and meets it there."
        : ` Loss above that without a bad batch, mean of the ten steps after: ${all.join("; ")}.`;
    return `${head} This run: ${WAYS[way].name}.${compared}${hidden}`;
  }

  function showAll() {
    train.disabled = broken || step >= config.steps;
    bad.disabled = !worker || step < saved;
    back.disabled = !worker || step <= saved;
    drawLoss();
    drawNorm();
    drawAbove();
    fillKey(key, curves("loss"));
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = whenSeen(w.root, (now) => { seen = now; want(wanted); });
  const unprint = whenPrinted((now) => { printed = now; draw(); });
  draw();
  return () => {
    worker?.terminate();
    stop();
    unwatch();
    unprint();
    w.destroy();
  };
}

export default { render };
