import { frame, h, label, line, s, show } from "./kit.js";
import { cannot, chart, fillKey, LAB_STYLE, nats, openTable, PACES, told, trainButton } from "./live_lab.js";
import { Training } from "./live_thread.js";

// --- arithmetic, compared with numpy and with llmcourse.train's early stopping by the tests

// The place of the lowest loss, the first of equals.
export const lowest = (losses) => losses.indexOf(Math.min(...losses));

// Where a run ends that waits for so many validations without a better one, or null if it goes on to its end.
export function endOf(losses, patience) {
  let best = Infinity;
  let waited = 0;
  for (let i = 0; i < losses.length; i++) {
    if (losses[i] < best) [best, waited] = [losses[i], 0];
    else waited += 1;
    if (waited === patience) return i;
  }
  return null;
}

// --- the page

const LOOKS = {
  training: { stroke: "var(--lc-1)", "stroke-width": 2 },
  validation: { stroke: "var(--lc-2)", "stroke-width": 2.5, "stroke-dasharray": "7 5" },
  before: { stroke: "var(--lc-2)", "stroke-width": 1.2, "stroke-dasharray": "2 3" },
  recorded: { stroke: "var(--lc-muted)", "stroke-width": 4, "stroke-opacity": 0.4 },
};

function render({ model, el }) {
  const [config, floor, recorded] = ["config", "floor", "recorded"].map((name) => model.get(name));
  const sizes = model.get("sizes"); // name, and batches of the text; 0 for a text that does not end
  const w = frame({ model, el, title: "Read the same text again" });
  w.root.prepend(h("style", {}, LAB_STYLE));
  const batches = () => sizes.find(([name]) => name === model.get("size"))[1];
  let points = []; // of the run: step, training loss and validation loss
  let trained = model.get("size"); // the text that it reads
  const before = new Map(); // text to the validation losses of the last run on it

  const run = new Training({
    model, steps: config.steps,
    start: () => ({ start: { config: { ...config, batches: batches() }, text: model.get("text"), seed: 0 },
      pace: PACES[model.get("pace")] }),
    changed: (atOnce) => (atOnce ? draw() : soon()),
    heard(kind, { step, loss, heldOut }) {
      if (kind === "report" && heldOut !== null) points.push([step, loss, heldOut]);
    },
    failed(why) {
      train.disabled = true;
      model.set("note", `${cannot(why)} The picture shows recorded runs.`);
    },
  });
  function anew() {
    run.anew();
    if (points.length) before.set(trained, curve(2));
    [points, trained] = [[], model.get("size")];
  }
  const curve = (column, of = points) => of.map((point) => [point[0], point[column]]);
  const { button: train, draw, soon, stop } = trainButton(w, { press: () => run.press(), wanted: () => run.wanted,
    runs: () => run.runs, over: () => run.over, anew, show: showAll });
  w.button("Start anew", () => { anew(); draw(); });
  w.choice("size", "text", { options: sizes.map(([name]) => name), onset: () => { anew(); draw(); } });
  w.number("patience", "patience, in validations", { onset: () => soon() });
  w.choice("pace", "speed", { onset: () => run.tell({ pace: PACES[model.get("pace")] }) });

  const turned = (held) => held.length > 1 && lowest(held) < held.length - 1;

  function curves() {
    const ghost = recorded[model.get("size")] ?? [];
    const others = [...before].filter(([name]) => name !== trained || !points.length);
    return [
      { name: "recorded: validation", points: curve(2, ghost), look: { ...LOOKS.recorded, "stroke-dasharray": "7 5" } },
      { name: "recorded: training", points: curve(1, ghost), look: LOOKS.recorded },
      ...others.map(([name, held]) => ({ name: `validation before, ${name}`, points: held, look: LOOKS.before })),
      { name: "your run: training", points: curve(1), look: LOOKS.training },
      { name: "your run: validation", points: curve(2), look: LOOKS.validation },
    ].filter((one) => one.points.length);
  }

  const drawLosses = w.stage((svg, width, height) => {
    const nothing = Math.log(config.vocab_size);
    const shown = curves();
    const { x, y, box } = chart(svg, width, height, { steps: config.steps, range: [0, 1.2 * nothing],
      yTitle: "loss, nats per token", curves: shown });
    svg.append(line([[box[0], y(floor)], [box[2], y(floor)]], { stroke: "var(--lc-text)", "stroke-dasharray": "1 4" }),
      label(box[0] + 6, y(floor) - 5, `entropy ${nats(floor)}`));
    const held = points.map((point) => point[2]);
    if (turned(held)) {
      const best = lowest(held);
      const there = [x(points[best][0]), y(held[best])];
      svg.append(s("circle", { cx: there[0], cy: there[1], r: 8, fill: "none", stroke: "var(--lc-2)", "stroke-width": 2 }),
        label(there[0], there[1] + 24, "turn", { "text-anchor": "middle" }));
    }
    const end = endOf(held, model.get("patience"));
    if (end !== null) {
      const there = x(points[end][0]);
      svg.append(line([[there, box[1]], [there, box[1] + 14]], { stroke: "var(--lc-3)", "stroke-width": 3 }),
        label(Math.max(box[0] + 44, Math.min(box[2] - 44, there)), box[1] + 27, "patience ends", { "text-anchor": "middle" }));
    }
    return `${told(shown, 2)}; entropy ${nats(floor)}`;
  }, { height: 280, label: "loss against step" });
  const key = h("p", { class: "ll-key" });
  w.stages.append(key);

  const times = (step) => (batches() ? step / batches() : null);
  const fillNumbers = openTable(w, "The run so far", () => ({
    columns: ["step", "times read", "training", "validation"],
    rows: points.map(([step, ...losses]) => [String(step), times(step) === null ? "once" : show(times(step), 3), ...losses.map(nats)]),
  }));

  function sentence() {
    if (!run.worker) {
      return `Press Train: a model of your own learns here from ${model.get("size")}, for ${config.steps} steps. Grey is a recorded run.`;
    }
    if (!points.length) return "It begins: the random numbers are drawn.";
    const [step, low, high] = points.at(-1);
    const held = points.map((point) => point[2]);
    const best = lowest(held);
    const parts = [`Step ${step} of ${config.steps}: ${times(step) === null ? "no story is read twice" : `the text has been read ${show(times(step), 3)} times`}. ` +
      `Training ${nats(low)}, validation ${nats(high)}, gap ${nats(Math.max(0, high - low))}.`];
    if (low < floor) parts.push(`The training loss is below the entropy of ${nats(floor)}: that can only be memory.`);
    parts.push(turned(held) ? `The validation loss was lowest at step ${points[best][0]}, ${nats(held[best])}, and is ${nats(high - held[best])} above that now.`
      : "The validation loss has not turned.");
    const end = endOf(held, model.get("patience"));
    if (end !== null) parts.push(`A patience of ${model.get("patience")} would have ended this run at step ${points[end][0]}.`);
    if (run.over) parts.push("Choose another text and train again, to compare.");
    return parts.join(" ");
  }

  function showAll() {
    drawLosses();
    fillKey(key, curves());
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = run.watch(w.root);
  draw();
  return () => {
    run.end();
    stop();
    unwatch();
    w.destroy();
  };
}

export default { render };
