import { frame, h, label, s, show } from "./kit.js";
import { brief, cannot, chart, difference, fillKey, LAB_STYLE, openTable, PACES, thread, told, trainButton, whenPrinted, whenSeen } from "./live_lab.js";
import ENGINE from "./live/worker.js" with { type: "text" };

// --- arithmetic, compared with its definition by the tests

// The last step up to which two runs, of [step, loss, hash] points, had the same bits; null if they have no
// step in common or differ at the first of them.
export function sameUntil(run, other) {
  const there = new Map(other.map(([step, , hash]) => [step, hash]));
  let last = null;
  for (const [step, , hash] of run.filter(([at]) => there.has(at))) {
    if (hash !== there.get(step)) return last;
    last = step;
  }
  return last;
}

// What a new process has in its memory: what was saved, but for what was left out, which is as at the start.
export function restored(saved, start, without) {
  const zeros = () => new Float32Array(saved.weights.length);
  if (without === "moments") return { ...saved, means: zeros(), squares: zeros(), momentsFrom: saved.stepsDone };
  return without === "position" ? { ...saved, stories: start.stories } : saved;
}

// --- the page

const EVERY = 10; // steps between checkpoints
const WAYS = {
  everything: { without: "", look: { stroke: "var(--lc-1)", "stroke-width": 2 } },
  "all but Adam's moments": { without: "moments", look: { stroke: "var(--lc-2)", "stroke-width": 2,
    "stroke-dasharray": "6 2" } },
  "all but the place in the data": { without: "position", look: { stroke: "var(--lc-4)", "stroke-width": 2,
    "stroke-dasharray": "2 2" } },
};
const pairs = (run) => run.map(([step, loss]) => [step, loss]);

function render({ model, el }) {
  const config = model.get("config");
  const recorded = model.get("recorded");
  const w = frame({ model, el, title: "Kill it, and bring it back" });
  w.root.prepend(h("style", {}, LAB_STYLE));

  // --- two runs from the same seed: nobody interrupts the twin

  let twin = null;
  let worker = null;
  let wanted = false;
  let seen = true;
  let whole = []; // of the twin: [step, loss, hash]
  let life = []; // of the first process
  let lives = {}; // of those that went on, by what they were given
  let way = null; // null in the first life
  let begun = null; // the state at step 0
  let saved = null; // the last checkpoint
  let kept = []; // steps of all checkpoints
  let died = null; // after which step
  let broken = false; // whether this browser cannot do it
  let printed = false;
  const run = () => (way ? lives[way] : life);
  const step = () => run()?.at(-1)?.[0] ?? (way ? saved.stepsDone : 0);

  const start = { config, text: model.get("text"), seed: 0, arithmetic: "SIMD", hashed: true };

  const failed = (why) => {
    for (const each of [twin, worker]) each?.terminate();
    [twin, worker, wanted] = [null, null, false];
    broken = anew.disabled = true;
    model.set("note", `${cannot(why)} The curves are those of a recorded run.`);
    draw();
  };

  const point = ({ step: at, loss, hash }) => [at, loss, hash];

  const processOf = (heard) => thread(ENGINE, (kind, news) => heard[kind]?.(news), failed);

  function begin() {
    twin = processOf({ report(news) {
      whole.push(point(news));
      if (news.step === config.steps) { twin.terminate(); twin = null; }
      soon();
    } });
    if (!twin) return false;
    twin.postMessage({ start, run: config.steps });
    worker = life1();
    return worker !== null;
  }

  // The first process: it saves before it goes on from every tenth step.
  function life1() {
    const made = processOf({ report: reported, saved(state) {
      begun ??= state;
      saved = state;
      kept.push(state.stepsDone);
    } });
    made?.postMessage({ start, pace: PACES[model.get("pace")], save: true });
    return made;
  }

  function reported(news) {
    run().push(point(news));
    if (step() === config.steps) wanted = false;
    else if (step() === goal()) goOn();
    soon();
  }

  let aim = EVERY;
  const goal = () => (way ? config.steps : aim);
  function goOn() {
    if (!way && step() === aim) {
      aim = Math.min(config.steps, aim + EVERY);
      worker.postMessage({ save: true });
    }
    worker?.postMessage({ run: wanted && seen ? goal() : 0 });
  }

  function press() {
    if (!worker && !died && !begin()) return;
    wanted = !wanted;
    goOn();
    draw();
  }

  function terminate() {
    worker.terminate();
    worker = null;
    wanted = false;
    died ??= step();
    draw();
  }

  // A new process, which knows nothing but what the checkpoint says.
  function restore() {
    worker?.terminate();
    way = model.get("restore");
    lives = { ...lives, [way]: [] };
    worker = processOf({ report: reported });
    worker?.postMessage({ start: { ...start, saved: restored(saved, begun, WAYS[way].without) },
      pace: PACES[model.get("pace")] });
    wanted = true;
    goOn();
    draw();
  }

  function startAnew() {
    for (const each of [twin, worker]) each?.terminate();
    [twin, worker, wanted, way, begun, saved, died, aim] = [null, null, false, null, null, null, null, EVERY];
    [whole, life, lives, kept] = [[], [], {}, []];
    model.set("note", "");
    draw();
  }

  const { button: train, draw, soon, stop } = trainButton(w,
    { press, wanted: () => wanted, runs: () => wanted && seen, show: showAll });
  const kill = w.button("Terminate", terminate);
  const back = w.button("Restore", restore);
  const anew = w.button("Start anew", startAnew);
  w.choice("restore", "restore with", { onset: draw });
  w.choice("pace", "speed", { onset: () => worker?.postMessage({ pace: PACES[model.get("pace")] }) });

  // --- pictures

  const twinLook = { stroke: "var(--lc-muted)", "stroke-width": 6, "stroke-opacity": 0.45 };
  function curves() {
    if (broken || (printed && !whole.length)) { // else it is for the reader to find out
      return Object.entries(recorded).map(([name, points]) => ({ name: `recorded: ${name}`, points,
        look: WAYS[name]?.look ?? twinLook }));
    }
    return [{ name: "nobody interrupts it", points: pairs(whole), look: twinLook },
      { name: "until it was terminated", points: pairs(life), look: { stroke: "var(--lc-text)", "stroke-width": 1.6 } },
      ...Object.entries(lives).map(([name, points]) => ({ name: `restored: ${name}`, points: pairs(points),
        look: WAYS[name].look }))].filter(({ points }) => points.length);
  }
  const drawLoss = w.stage((svg, width, height) => {
    const top = Math.log(config.vocab_size);
    const low = Math.floor(Math.min(top - 1, ...curves().flatMap(({ points }) => points.map(([, loss]) => loss))));
    const { x, y } = chart(svg, width, height, { steps: config.steps, range: [low, top * 1.08],
      yTitle: "loss, nats per token", curves: curves() });
    for (const at of kept.slice(1)) {
      svg.append(s("circle", { cx: x(at), cy: y(life[at - 1][1]), r: 3.5, fill: "var(--lc-text)", class: "lx-saved" }));
    }
    if (died) {
      svg.append(label(x(died), y(life[died - 1][1]) + 5, "✕", { "text-anchor": "middle",
        style: "fill: var(--lc-5); font-size: 17px; font-weight: 700" }));
    }
    return `${told(curves())}${died ? `; terminated after step ${died}` : ""}`;
  }, { height: 200, label: "loss against step" });
  const key = h("p", { class: "ll-key" });
  w.stages.append(key);

  function apart() {
    const first = saved ?? { stepsDone: recorded.from ?? 0 };
    const all = curves().filter(({ name }) => /restored|all but|everything/.test(name));
    const other = curves()[0]?.points ?? [];
    return { from: died ? first.stepsDone : 0,
      all: all.map((curve) => ({ ...curve, points: difference(curve.points, other) })) };
  }
  const drawApart = w.stage((svg, width, height) => {
    const { from, all } = apart();
    const most = Math.max(0.02, ...all.flatMap(({ points }) => points.map(([, d]) => Math.abs(d)))) * 1.1;
    chart(svg, width, height, { from, steps: config.steps, range: [-most, most],
      yTitle: "loss minus the uninterrupted run's", curves: [
        { points: [[from, 0], [config.steps, 0]], look: { stroke: "var(--lc-muted)" } }, ...all] });
    return told(all, 2);
  }, { height: 170, label: "difference of the losses" });

  // --- fingerprints

  const prints = h("div");
  w.stages.append(prints);
  function verdicts() {
    return Object.entries(lives).filter(([, points]) => points.length).map(([name, points]) => {
      const [at, , hash] = points.at(-1);
      const there = whole.find(([other]) => other === at)?.[2];
      if (!there) return "";
      const same = sameUntil(points, whole) === at;
      return `Restored with ${name}: ${brief(hash)} at step ${at}, ${same ? "the same bits" : "other bits"}; ` +
        `nobody interrupts it: ${brief(there)}.`;
    });
  }

  const fillNumbers = openTable(w, "Fingerprints of the weights by step", () => {
    const all = [["nobody interrupts it", whole], ["first process", life], ...Object.entries(lives)];
    const at = all.map(([, points]) => new Map(points.map(([n, , hash]) => [n, hash])));
    const steps = whole.map(([n]) => n).filter((n) => n % 5 === 0 || n === died || n === saved?.stepsDone + 1);
    return { columns: ["step", ...all.map(([name]) => name)],
      rows: steps.map((n) => [String(n), ...at.map((hashes) => brief(hashes.get(n)))]) };
  });

  function sentence() {
    if (!whole.length && !life.length) {
      return twin ? "They begin: the random numbers are drawn."
        : "Press Train: two runs from the same seed. Then terminate one of them.";
    }
    const hidden = wanted && !seen ? " Paused: out of sight." : "";
    if (!died) {
      return `Step ${step()} of ${config.steps}: loss ${show(life.at(-1)?.[1] ?? NaN, 3)}. Last checkpoint: step ` +
        `${kept.at(-1)}.${step() < config.steps ? " Press Terminate when you like." : " It has ended."}${hidden}`;
    }
    if (!way) {
      const again = died - saved.stepsDone;
      return `Terminated after step ${died}. Its memory is gone. The last checkpoint is that of step ` +
        `${saved.stepsDone}: ${again === 1 ? "one step" : `${again} steps`} must be done again. Press Restore.`;
    }
    const same = sameUntil(lives[way], whole);
    const bits = !lives[way].length ? "" : same === step() ? " The same bits as the run that nobody interrupts."
      : ` Other bits since step ${(same ?? saved.stepsDone) + 1}.`;
    return `Restored with ${way} from step ${saved.stepsDone}: step ${step()} of ${config.steps}.${bits}${hidden}`;
  }

  function showAll() {
    train.disabled = broken || (died !== null && !worker) || step() === config.steps;
    kill.disabled = !worker || !step() || step() === config.steps;
    back.disabled = broken || died === null;
    drawLoss();
    fillKey(key, curves());
    drawApart();
    const found = verdicts();
    prints.replaceChildren(...(found.length ? found : ["Fingerprints of the weights are shown once a run is restored."])
      .map((words) => h("p", {}, words)));
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = whenSeen(w.root, (now) => { seen = now; if (worker) goOn(); draw(); });
  const unprint = whenPrinted((now) => { printed = now; draw(); });
  draw();
  return () => {
    for (const each of [twin, worker]) each?.terminate();
    stop();
    unwatch();
    unprint();
    w.destroy();
  };
}

export default { render };
