import { axes, clamp, frame, h, label, line, onDrag, pixelsPerUnit, s, scale, show, ticks } from "./kit.js";
import ENGINE from "./live/worker.js" with { type: "text" };

// --- arithmetic, compared with its definition by the tests

// The mean share of every phase in the time of the last steps.
export function shares(reports) {
  const sums = reports[0].map((_, i) => reports.reduce((sum, ms) => sum + ms[i], 0));
  const all = sums.reduce((a, b) => a + b, 0) || 1;
  return sums.map((sum) => sum / all);
}

// How alike the rows of a group are: the mean cosine of the angle between two of them.
export function alikeness(rows) {
  const units = rows.map((row) => {
    const size = Math.hypot(...row) || 1;
    return Array.from(row, (x) => x / size);
  });
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const pairs = units.flatMap((a, i) => units.slice(i + 1).map((b) => dot(a, b)));
  return pairs.reduce((a, b) => a + b, 0) / (pairs.length || 1);
}

// Of increasing [step, what] pairs, the last that is not above a step.
export const lastUpTo = (pairs, step) => pairs.filter(([at]) => at <= step).at(-1) ?? null;

// --- the page

const PHASES = ["load", "forward", "loss", "backward", "sync", "optimizer", "checkpoint"];
const PACES = { "full speed": 0, "5 steps a second": 200, "1 step a second": 1000 };
const REMEMBERED = 20; // steps over whose time is averaged
const STYLE = `
.lc .lr-words { white-space: pre-wrap; border-left: 4px solid var(--lc-2); padding: 0.1rem 0 0.1rem 0.7rem;
  margin: 0.3rem 0; min-height: 6rem; overflow-wrap: anywhere; }
.lc .lr-recorded { stroke-width: 4; stroke-linejoin: round; opacity: 0.4; } /* a ghost: seen behind a run on it */
.lc .lr-rows { display: block; width: 100%; }
.lc .lr-key { color: var(--lc-muted); }`;

const nats = (loss) => loss.toFixed(2);
const percent = (share) => (share > 0 && share < 0.005 ? "below 1 %" : `${Math.round(100 * share)} %`);
// A byte that is no sign by itself is shown as the sign for what cannot be read.
const readable = (text) => text.replace(/[^\n -~]/g, "\uFFFD");

function render({ model, el }) {
  const config = model.get("config");
  const groups = model.get("rows");
  const recorded = model.get("losses");
  const samples = model.get("samples");
  const floor = model.get("floor");
  const nothing = Math.log(config.vocab_size);
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  const w = frame({ model, el, title: "A Llama that learns in your browser" });
  w.root.prepend(h("style", {}, STYLE));

  // --- the run, in a thread of its own

  let worker = null; // null before the reader begins, and after the end of what cannot run
  let facts = null; // what the worker said when it was ready
  let wanted = false; // whether the reader wants it to run
  let seen = true; // whether the reader can see it
  let until = config.steps;
  let losses = []; // of step 1, 2, ...
  let left = null; // losses of what the reader went back from
  let reports = []; // the last steps' times
  let written = null; // the step of a sample, and the sample
  let rows = null;
  let norm = null;

  const runs = () => worker !== null && wanted && seen;

  function begin() {
    const script = ENGINE.replace(/^export /gm, ""); // a thread begun from a page on disk is no module
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    try {
      worker = new Worker(address);
    } catch (error) {
      return fail(error);
    }
    worker.onmessage = ({ data }) => {
      URL.revokeObjectURL(address);
      for (const [kind, news] of Object.entries(data)) heard[kind](news);
    };
    worker.onerror = (event) => { event.preventDefault(); fail(event.message); };
    const { grammar, merges, end } = model.get("text");
    worker.postMessage({
      start: {
        config: { ...config, learning_rate: model.get("learning_rate") },
        text: { grammar, merges, end },
        seed: 0,
        watched: groups.flatMap(([, tokens]) => tokens.map(([, id]) => id)),
      },
      pace: PACES[model.get("pace")],
    });
    model.set("step", 0);
    return worker;
  }

  const heard = {
    ready(news) { facts = news; look(news); },
    report(news) {
      losses.push(news.loss);
      norm = news.norm;
      reports = [...reports, news.ms].slice(-REMEMBERED);
      model.set("step", news.step);
      if (!Number.isFinite(news.loss)) {
        model.set("note", `The loss is ${news.loss}: the weights are lost. Go back to an earlier step, and lower ` +
          "the learning rate.");
      }
      look(news); // before the end is said: then what it wrote is that of the last step
      if (news.step >= until || !Number.isFinite(news.loss)) want(false);
    },
    rewound(news) {
      if (losses.length > news.step) left = losses;
      losses = losses.slice(0, news.step);
      model.set("step", news.step);
      look(news);
    },
    saved() {},
    failed: fail,
  };

  function look(news) {
    if (news.written !== undefined) [written, rows] = [[news.step, news.written], news.rows];
    soon();
  }

  function fail(why) {
    worker?.terminate();
    worker = null;
    wanted = false;
    for (const button of [train, once, anew]) button.disabled = true;
    model.set("note", `This browser cannot train it here (${why}). The picture shows a recorded run; move the step ` +
      "to go through it.");
    model.set("step", recorded.length);
    soon();
    return null;
  }

  function want(on) {
    wanted = on;
    worker?.postMessage({ run: runs() ? until : 0 });
    clearTimeout(timer); // what the reader presses is answered at once
    draw();
  }

  function press() {
    if (!worker && !begin()) return;
    if (!wanted && model.get("step") >= until) until = config.steps;
    want(!wanted && model.get("step") < until);
  }

  function stepOnce() {
    if (!worker && !begin()) return;
    want(false);
    worker.postMessage({ step: true });
  }

  function startAnew() {
    worker?.terminate();
    if (losses.length) left = losses;
    worker = facts = written = rows = null;
    wanted = false;
    until = config.steps;
    [losses, reports] = [[], []];
    model.set("note", "");
    model.set("step", 0);
    soon();
  }

  // Before the run begins, the step goes through the recorded run; then it is where to go.
  function goTo() {
    const asked = model.get("step");
    if (!worker) return soon();
    if (asked >= losses.length) {
      until = Math.max(asked, losses.length + 1);
      return want(until <= config.steps);
    }
    wanted = false;
    until = config.steps;
    worker.postMessage({ run: 0, rewind: asked });
    return soon();
  }

  // --- controls

  const train = w.button("Train", press);
  const once = w.button("Step", stepOnce);
  const anew = w.button("Start anew", startAnew);
  const tell = (message) => worker?.postMessage(message);
  w.choice("pace", "speed", { onset: () => tell({ pace: PACES[model.get("pace")] }) });
  w.number("learning_rate", "learning rate", { log: true, onset: () => tell({ rate: model.get("learning_rate") }) });
  w.number("step", "step", { onset: goTo });

  // --- pictures

  const drawPhases = w.stage((svg, width) => {
    const each = reports.length ? shares(reports) : null;
    const columns = width < 560 ? 4 : 7;
    const wide = width / columns;
    let at = 0;
    PHASES.forEach((phase, i) => {
      const share = each ? each[i] : 0;
      const colour = { fill: "currentColor", class: `lc-${(i % 6) + 1}` };
      svg.append(s("rect", { x: at * width, y: 2, width: Math.max(0, share * width - 1), height: 14, ...colour }));
      at += share;
      const [x, y] = [(i % columns) * wide, 36 + 36 * Math.floor(i / columns)];
      svg.append(s("rect", { x: x + 1, y: y - 10, width: 4, height: 28, ...colour }),
        label(x + 9, y, `${i + 1} ${phase}`), label(x + 9, y + 16, each ? percent(share) : "–"));
    });
    if (each) return PHASES.map((phase, i) => `${phase} ${percent(each[i])}`).join(", ");
    svg.append(s("rect", { x: 1, y: 2, width: width - 2, height: 14, fill: "none", stroke: "var(--lc-line)" }));
    return "not measured yet";
  }, { height: (width) => (width < 560 ? 96 : 60), label: "share of every phase in the time of a step" });

  let toStep = null;
  const drawLoss = w.stage((svg, width, height) => {
    const box = [38, 20, width - 12, height - 36];
    const most = nothing * 1.08;
    const x = scale([0, config.steps], [box[0], box[2]]);
    const y = scale([0, most], [box[3], box[1]]);
    toStep = (px) => Math.round(clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * config.steps);
    const high = (loss) => y(Number.isFinite(loss) ? Math.min(loss, most) : most);
    const curve = (values, attributes) => line(values.map((loss, i) => [x(i + 1), high(loss)]), attributes);
    svg.append(axes({ x, y, box, xTicks: ticks(0, config.steps, width < 420 ? 4 : 6), yTicks: ticks(0, most, 4),
      xTitle: "step", yTitle: "loss, nats per token" }));
    // The words stand where no curve is: above at the end, below at the beginning.
    for (const [value, text, at, anchor] of [
      [nothing, `ln ${show(config.vocab_size)} = ${nats(nothing)}: knows nothing`, box[2], "end"],
      [floor, `${nats(floor)}: entropy of the stories`, box[0] + 6, "start"]]) {
      const dashes = { stroke: "var(--lc-muted)", "stroke-dasharray": "6 4" };
      svg.append(line([[box[0], y(value)], [box[2], y(value)]], dashes),
        label(at, y(value) - 5, text, { "text-anchor": anchor }));
    }
    const dotted = left && (width < 480 ? "dotted: before" : "dotted: before you went back");
    const others = [recorded.length && "grey: recorded", dotted].filter(Boolean).join(", ");
    svg.append(label(box[2], 13, others, { "text-anchor": "end" }));
    svg.append(curve(recorded, { stroke: "var(--lc-muted)", "stroke-width": 1, class: "lr-recorded" }));
    if (left) svg.append(curve(left, { stroke: "var(--lc-3)", "stroke-width": 1, "stroke-dasharray": "2 2" }));
    svg.append(curve(losses, { stroke: "var(--lc-1)", "stroke-width": 1.6, class: "lr-live" }));
    const now = model.get("step");
    const of = worker || losses.length ? losses : recorded;
    if (of.length) { // the loss of step 1 is that of the weights of step 0
      const loss = of[clamp(now, 1, of.length) - 1];
      svg.append(s("circle", { cx: x(Math.min(now, of.length)), cy: high(loss), r: 6, fill: "var(--lc-2)" }));
    }
    svg.style.touchAction = "pan-y";
    const curves = Object.entries({ "your run": losses, "before, dotted": left, "recorded run, grey": recorded });
    const said = curves.filter(([, values]) => values?.length).map(([name, values]) =>
      `${name} ${nats(values[0])} at step 1, ${nats(values.at(-1))} at step ${values.length}`);
    return said.join("; ") || "no step yet";
  }, { height: 230, label: "loss against step" });
  const picture = w.stages.lastElementChild.firstElementChild;
  let dragged = null;
  onDrag(picture, ([x]) => {
    const asked = toStep(x);
    if (asked === dragged || (worker && asked >= losses.length)) return; // the picture only leads back
    dragged = asked;
    model.set("step", asked);
    goTo();
  });

  const caption = h("p");
  const words = h("div", { class: "lr-words" });
  w.stages.append(caption, words);
  function fillWords() {
    const [at, text] = written ?? lastUpTo(samples, model.get("step")) ?? [null, ""];
    if (at === null) caption.textContent = "What it writes: press Train.";
    else if (!written) caption.textContent = `What the recorded run wrote after step ${at}:`;
    else caption.textContent = `What it writes after step ${at}, with the same draws of chance each time:`;
    words.textContent = readable(text);
  }

  // --- rows of the embedding

  const canvas = h("canvas", { class: "lr-rows", role: "img" });
  const holder = h("div", { class: "lc-stage" }, canvas);
  const key = h("p", { class: "lr-key" });
  w.stages.append(key, holder);
  const count = groups.reduce((sum, [, tokens]) => sum + tokens.length, 0);
  const D = config.width;
  const ofGroups = () => {
    let first = 0;
    return groups.map(([group, tokens]) => {
      const found = tokens.map((_, i) => rows.slice((first + i) * D, (first + i + 1) * D));
      first += tokens.length;
      return [group, found];
    });
  };
  let lastWidth = 0;
  function drawRows() {
    lastWidth = holder.clientWidth;
    const there = lastWidth || 640;
    const unit = pixelsPerUnit(holder, there);
    const width = Math.max(220, Math.round(there / unit));
    const [edge, tall, gap] = [Math.min(92, width * 0.28), 8, 6];
    const height = count * tall + gap * groups.length;
    const sharp = (window.devicePixelRatio || 1) * unit;
    [canvas.width, canvas.height] = [width * sharp, height * sharp];
    canvas.style.height = `${height * unit}px`;
    const ink = getComputedStyle(w.root);
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const top = rows ? Math.max(0.1, ...rows.map(Math.abs)) : 1;
    const cell = (width - edge) / D;
    let [y, i] = [0, 0];
    for (const [group, tokens] of groups) {
      pen.globalAlpha = 1;
      pen.fillStyle = ink.color;
      pen.fillText(group, 0, y + tokens.length * tall / 2, edge - 6);
      for (const _ of tokens) {
        for (let d = 0; rows && d < D; d++) {
          const value = rows[i * D + d];
          pen.globalAlpha = Math.sqrt(Math.min(1, Math.abs(value) / top));
          pen.fillStyle = ink.getPropertyValue(value < 0 ? "--lc-1" : "--lc-2").trim();
          pen.fillRect(edge + d * cell, y, cell - 0.5, tall - 0.5);
          if (value < 0) pen.clearRect(edge + (d + 0.36) * cell, y + 0.36 * tall, 0.28 * cell, 0.28 * tall);
        }
        y += tall;
        i++;
      }
      y += gap;
    }
    const alike = rows ? ofGroups().filter(([, all]) => all.length > 1)
      .map(([group, all]) => `${group} ${alikeness(all).toFixed(2)}`).join(", ") : "";
    canvas.setAttribute("aria-label", rows ? `${count} rows of the embedding, ${D} columns` : "no rows yet");
    const more = alike ? `Mean cosine between two rows of a group: ${alike}.` : "They appear with your run.";
    key.textContent = "Rows of the embedding: a row for a token, full cells positive, cells with a hole negative. " + more;
  }

  // --- numbers

  const fillTable = w.table("The run so far");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  details.addEventListener("toggle", fillNumbers);
  function fillNumbers() {
    if (!details.open) return;
    const every = Math.max(1, Math.round(config.steps / 20));
    const steps = Array.from({ length: config.steps }, (_, i) => i + 1)
      .filter((n) => n === 1 || n % every === 0 || n === losses.length);
    const at = (values, n) => (values && n <= values.length ? show(values[n - 1], 3) : "–");
    fillTable({ columns: ["step", "your run", "before you went back", "recorded run"],
      rows: steps.map((n) => [String(n), at(losses, n), at(left, n), at(recorded, n)]) });
  }

  function sentence() {
    const now = model.get("step");
    if (!worker || !facts) {
      if (worker) return "It begins: the random numbers are drawn.";
      if (!recorded.length) return "Press Train. Everything is computed here, and nothing is sent anywhere.";
      const value = recorded[Math.min(recorded.length, Math.max(1, now)) - 1];
      return `A recorded run, step ${now}: loss ${nats(value)} nats per token. Press Train for one of your own.`;
    }
    const head = `Step ${losses.length} of ${config.steps}, ${show(facts.weights)} weights, ${facts.arithmetic}.`;
    if (!losses.length) return `${head} All weights are random.`;
    const ms = reports.flat().reduce((a, b) => a + b, 0) / (reports.length || 1);
    const perSecond = Number((config.batch_size * config.context_length / ms * 1000).toPrecision(2));
    const pace = ms ? ` ${show(ms, 2)} ms a step, ${show(perSecond)} tokens a second.` : "";
    const hidden = wanted && !seen ? " Paused: out of sight." : "";
    const loss = losses.at(-1);
    return `${head} Loss ${nats(loss)} nats per token, as if it guessed among ${show(Math.exp(loss), 2)} tokens; ` +
      `length of the gradient ${show(norm, 2)}.${pace}${hidden}`;
  }

  // --- drawing: a few times a second, or every two seconds where the reader prefers reduced motion

  let timer = null;
  function soon() {
    timer ??= setTimeout(draw, runs() && calm ? 2000 : 60);
  }
  function draw() {
    timer = null;
    train.textContent = wanted ? "Pause" : "Train";
    train.setAttribute("aria-pressed", String(wanted));
    w.root.classList.toggle("lc-playing", runs());
    drawPhases();
    drawLoss();
    fillWords();
    drawRows();
    fillNumbers();
    w.say(sentence());
  }

  const inSight = new IntersectionObserver(([entry]) => { visible(entry.isIntersecting && !document.hidden); });
  inSight.observe(w.root);
  const onHide = () => {
    const box = w.root.getBoundingClientRect();
    visible(!document.hidden && box.bottom > 0 && box.top < window.innerHeight);
  };
  document.addEventListener("visibilitychange", onHide);
  function visible(now) {
    if (now === seen) return;
    seen = now;
    want(wanted);
  }
  const resized = new ResizeObserver(() => { if (holder.clientWidth !== lastWidth) drawRows(); });
  resized.observe(holder);
  const themed = new MutationObserver(drawRows); // a canvas keeps its colours when the theme changes
  for (const element of [document.documentElement, document.body]) {
    themed.observe(element, { attributeFilter: ["data-theme", "theme", "data-jp-theme-light"] });
  }
  w.on(["step"], () => { if (!worker) soon(); });
  draw();
  return () => {
    worker?.terminate();
    clearTimeout(timer);
    for (const watch of [inSight, resized, themed]) watch.disconnect();
    document.removeEventListener("visibilitychange", onHide);
    w.destroy();
  };
}

export default { render };
