import { frame, h, show } from "./kit.js";
import { Training } from "./live_thread.js";
import { lossPart, nats, phasesPart } from "./live_curve.js";
import { rowsPart } from "./live_rows.js";

// Of increasing [step, what] pairs, the last that is not above a step.
export const lastUpTo = (pairs, step) => pairs.filter(([at]) => at <= step).at(-1) ?? null;

const PACES = { "full speed": 0, "5 steps a second": 200, "1 step a second": 1000 };
const STYLE = `
.lc .lr-words { white-space: pre-wrap; border-left: 4px solid var(--lc-2); padding: 0.1rem 0 0.1rem 0.7rem;
  margin: 0.3rem 0; min-height: 6rem; overflow-wrap: anywhere; }
.lc .lr-rows { display: block; width: 100%; }
.lc .lr-key { color: var(--lc-muted); }`;

// A byte that is no sign by itself is shown as the sign for what cannot be read.
const readable = (text) => text.replace(/[^\n -~]/g, "\uFFFD");

function render({ model, el }) {
  const config = model.get("config");
  const groups = model.get("rows");
  const recorded = model.get("losses");
  const samples = model.get("samples");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  const w = frame({ model, el, title: "A Llama that learns in your browser" });
  w.root.prepend(h("style", {}, STYLE));

  const run = new Training({
    model,
    steps: config.steps,
    start: () => ({
      start: {
        config: { ...config, learning_rate: model.get("learning_rate") },
        text: model.get("text"),
        seed: 0,
        watched: groups.flatMap(([, tokens]) => tokens.map(([, id]) => id)),
      },
      pace: PACES[model.get("pace")],
    }),
    changed(atOnce) {
      if (!atOnce) return soon();
      clearTimeout(timer);
      return draw();
    },
    failed(why) {
      for (const button of buttons) button.disabled = true;
      model.set("note", `This browser cannot train it here (${why}). The picture shows a recorded run; move the ` +
        "step to go through it.");
      model.set("step", recorded.length);
      soon();
    },
  });

  // --- controls

  const buttons = [
    w.button("Train", () => run.press()),
    w.button("Step", () => run.once()),
    w.button("Start anew", () => run.anew()),
  ];
  w.choice("pace", "speed", { onset: () => run.tell({ pace: PACES[model.get("pace")] }) });
  w.number("learning_rate", "learning rate", { log: true, onset: () => run.tell({ rate: model.get("learning_rate") }) });
  // Before the run begins, the step goes through the recorded run; then it is where to go.
  const goTo = () => (run.worker ? run.goTo(model.get("step")) : soon());
  w.number("step", "step", { onset: goTo });

  // --- pictures, and what it writes

  const drawPhases = phasesPart(w, run);
  const drawLoss = lossPart(w, run, { recorded, floor: model.get("floor"), goTo });
  const caption = h("p");
  const words = h("div", { class: "lr-words" });
  w.stages.append(caption, words);
  function fillWords() {
    const [at, text] = run.written ?? lastUpTo(samples, model.get("step")) ?? [null, ""];
    if (at === null) caption.textContent = "What it writes: press Train.";
    else if (!run.written) caption.textContent = `What the recorded run wrote after step ${at}:`;
    else caption.textContent = `What it writes after step ${at}, with the same draws of chance each time:`;
    words.textContent = readable(text);
  }
  const rows = rowsPart(w, run, { groups, columns: config.width });

  // --- numbers

  const fillTable = w.table("The run so far");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  details.addEventListener("toggle", fillNumbers);
  function fillNumbers() {
    if (!details.open) return;
    const every = Math.max(1, Math.round(config.steps / 20));
    const steps = Array.from({ length: config.steps }, (_, i) => i + 1)
      .filter((n) => n === 1 || n % every === 0 || n === run.losses.length);
    const at = (values, n) => (values && n <= values.length ? show(values[n - 1], 3) : "–");
    fillTable({ columns: ["step", "your run", "before you went back", "recorded run"],
      rows: steps.map((n) => [String(n), at(run.losses, n), at(run.left, n), at(recorded, n)]) });
  }

  function sentence() {
    const now = model.get("step");
    const { facts, losses, reports } = run;
    if (!run.worker || !facts) {
      if (run.worker) return "It begins: the random numbers are drawn.";
      if (!recorded.length) return "Press Train. Everything is computed here, and nothing is sent anywhere.";
      const value = recorded[Math.min(recorded.length, Math.max(1, now)) - 1];
      return `A recorded run, step ${now}: loss ${nats(value)} nats per token. Press Train for one of your own.`;
    }
    const head = `Step ${losses.length} of ${config.steps}, ${show(facts.weights)} weights, ${facts.arithmetic}.`;
    if (!losses.length) return `${head} All weights are random.`;
    const ms = reports.flat().reduce((a, b) => a + b, 0) / (reports.length || 1);
    const perSecond = Number((config.batch_size * config.context_length / ms * 1000).toPrecision(2));
    const pace = ms ? ` ${show(ms, 2)} ms a step, ${show(perSecond)} tokens a second.` : "";
    const hidden = run.wanted && !run.seen ? " Paused: out of sight." : "";
    const loss = losses.at(-1);
    return `${head} Loss ${nats(loss)} nats per token, as if it guessed among ${show(Math.exp(loss), 2)} tokens; ` +
      `length of the gradient ${show(run.norm, 2)}.${pace}${hidden}`;
  }

  // --- drawing: a few times a second, or every two seconds where the reader prefers reduced motion

  let timer = null;
  function soon() {
    timer ??= setTimeout(draw, run.runs && calm ? 2000 : 60);
  }
  function draw() {
    timer = null;
    buttons[0].textContent = run.wanted ? "Pause" : "Train";
    buttons[0].setAttribute("aria-pressed", String(run.wanted));
    w.root.classList.toggle("lc-playing", run.runs);
    drawPhases();
    drawLoss();
    fillWords();
    rows.draw();
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = run.watch(w.root);
  w.on(["step"], () => { if (!run.worker) soon(); });
  draw();
  return () => {
    run.end();
    clearTimeout(timer);
    unwatch();
    rows.stop();
    w.destroy();
  };
}

export default { render };
