// What every widget with a run has: its frame, buttons, learning rate and step, a sentence, the numbers.

import { frame, h, show } from "./kit.js";
import { cannot, nats, openTable, PACES, trainButton } from "./live_lab.js";
import { Training } from "./live_thread.js";

const STYLE = `
.lc .lr-words { white-space: pre-wrap; border-left: 4px solid var(--lc-2); padding: 0.1rem 0 0.1rem 0.7rem;
  margin: 0.3rem 0; min-height: 6rem; overflow-wrap: anywhere; }
.lc .lr-recorded { stroke-width: 4; stroke-linejoin: round; opacity: 0.4; } /* a ghost: seen behind a run on it */
.lc .lr-name { fill: var(--lc-1); font-weight: 600; }
.lc .lr-cells { display: block; width: 100%; }
.lc .lr-key { color: var(--lc-muted); }`;

// A byte that is no sign by itself is shown as the sign for what cannot be read.
export const readable = (text) => text.replace(/[^\n -~]/g, "\uFFFD");

// buttons: pairs of a label and what it asks of the run, between Train and Start anew.  steered: whether
// speed and learning rate can be set.  told(): what the thread is told besides.  parts: functions of the
// frame, the run and the page that add pictures; they return { draw }, and perhaps stop, hear(kind, news)
// for messages of the thread, and say() for the sentence.
export function livePage({ model, el }, { title, buttons: others = [], steered = false, told = () => ({}), parts }) {
  const config = model.get("config");
  const recorded = model.get("losses");
  const w = frame({ model, el, title });
  w.root.prepend(h("style", {}, STYLE));

  const run = new Training({
    model,
    steps: config.steps,
    start: () => ({
      start: {
        config: { ...config, learning_rate: model.get("learning_rate") },
        text: model.get("text"),
        seed: 0,
        watched: model.get("rows").flatMap(([, tokens]) => tokens.map(([, id]) => id)),
      },
      pace: PACES[model.get("pace")],
      ...told(),
    }),
    changed: (atOnce) => (atOnce ? draw() : soon()),
    heard(kind, news) { for (const part of made) part.hear?.(kind, news); },
    failed(why) {
      for (const button of buttons) button.disabled = true;
      model.set("note", cannot(why) +
        (recorded.length ? " The picture shows a recorded run; move the step to go through it." : ""));
      model.set("step", recorded.length);
      soon();
    },
  });

  // --- controls

  const { button: train, draw, soon, stop } = trainButton(w,
    { press: () => run.press(), wanted: () => run.wanted, runs: () => run.runs, over: () => run.over,
      anew: () => run.anew(), show: showAll });
  const buttons = [
    train,
    ...others.map(([label, ask]) => w.button(label, () => ask(run))),
    w.button("Start anew", () => run.anew()),
  ];
  if (steered) {
    w.choice("pace", "speed", { onset: () => run.tell({ pace: PACES[model.get("pace")] }) });
    w.number("learning_rate", "learning rate",
      { log: true, onset: () => run.tell({ rate: model.get("learning_rate") }) });
  }
  // Before the run begins, the step goes through the recorded run; then it is where to go.
  const goTo = () => (run.worker ? run.goTo(model.get("step")) : soon());
  w.number("step", "step", { onset: goTo });

  const made = [];
  for (const part of parts) made.push(part(w, run, { goTo, soon, buttons }));

  // --- numbers

  const fillNumbers = openTable(w, "The run so far", () => {
    const every = Math.max(1, Math.round(config.steps / 20));
    const steps = Array.from({ length: config.steps }, (_, i) => i + 1)
      .filter((n) => n === 1 || n % every === 0 || n === run.losses.length);
    const at = (values, n) => (values && n <= values.length ? show(values[n - 1], 3) : "–");
    return { columns: ["step", "your run", "before you went back", "recorded run"],
      rows: steps.map((n) => [String(n), at(run.losses, n), at(run.left, n), at(recorded, n)]) };
  });

  function sentence() {
    const now = model.get("step");
    const { facts, losses, reports } = run;
    if (!run.worker || !facts) {
      if (run.worker) return "It begins: the random numbers are drawn.";
      if (!recorded.length) {
        return `Press ${buttons[0].textContent}. Everything is computed here, and nothing is sent anywhere.`;
      }
      const value = recorded[Math.min(recorded.length, Math.max(1, now)) - 1];
      return `A recorded run, step ${now}: loss ${nats(value)} nats per token. Press Train for one of your own.`;
    }
    const slow = facts.arithmetic === "JavaScript" ? ", slowly, since it has no WebAssembly" : "";
    const head = `Step ${losses.length} of ${config.steps}`;
    const what = `A model of ${show(facts.weights)} weights trains in your browser${slow}`;
    if (!losses.length) return `${head}. ${what}. All weights are random.`;
    const ms = reports.flat().reduce((a, b) => a + b, 0) / (reports.length || 1);
    const perSecond = Number((config.batch_size * config.context_length / ms * 1000).toPrecision(2));
    const pace = ms ? `: ${show(ms, 2)} ms a step, ${show(perSecond)} tokens a second` : "";
    const hidden = run.wanted && !run.seen ? " Paused: out of sight." : "";
    const loss = losses.at(-1);
    const other = steered ? ", with another learning rate if you like" : "";
    const then = run.over ? ` The run is complete: train again${other}.` : "";
    return `${head}: loss ${nats(loss)} nats per token, as if it guessed among ${show(Math.exp(loss), 2)} tokens. ` +
      `${what}${pace}.${hidden}${then}`;
  }

  function showAll() {
    for (const part of made) part.draw();
    fillNumbers();
    w.say([sentence(), ...made.map((part) => part.say?.())].filter(Boolean).join(" "));
  }

  const unwatch = run.watch(w.root);
  w.on(["step"], () => { if (!run.worker) soon(); });
  draw();
  return () => {
    run.end();
    stop();
    unwatch();
    for (const part of made) part.stop?.();
    w.destroy();
  };
}
