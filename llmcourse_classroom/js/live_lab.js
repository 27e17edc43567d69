import { axes, h, line, s, scale, show, ticks } from "./kit.js";

// What widgets with a live run have in common: threads, sight, their drawing, hashes and curves.

export const PHASES = ["data", "forward", "loss", "backward", "sync", "optimizer", "checkpoint"];
export const PACES = { "full speed": 0, "5 steps a second": 200, "1 step a second": 1000 };

export const nats = (loss) => (loss === null ? "–" : loss.toFixed(2));
export const cannot = (why) => `This browser cannot train it here (${why}).`;

// Begin a thread that runs a text of the engine.  hear(kind, news) is called with all that it says, but
// failed(why) where it fails, or no thread can be had.
export function thread(text, hear, failed) {
  const script = text.replace(/^export /gm, ""); // a thread begun from a page on disk is no module
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  let worker = null;
  try {
    worker = new Worker(address);
  } catch (error) {
    failed(error);
    return null;
  }
  worker.onmessage = ({ data }) => {
    URL.revokeObjectURL(address);
    for (const [kind, news] of Object.entries(data)) {
      if (kind === "failed") failed(news);
      else hear(kind, news);
    }
  };
  worker.onerror = (event) => { event.preventDefault(); failed(event.message); };
  return worker;
}

// Call `change` with whether an element can be seen, whenever that changes; returns how to end it.
export function whenSeen(element, change) {
  let seen = true;
  const tell = (now) => { if (now !== seen) change(seen = now); };
  const watch = new IntersectionObserver(([entry]) => tell(entry.isIntersecting && !document.hidden));
  watch.observe(element);
  const look = () => {
    const box = element.getBoundingClientRect();
    tell(!document.hidden && box.bottom > 0 && box.top < window.innerHeight);
  };
  document.addEventListener("visibilitychange", look);
  return () => {
    watch.disconnect();
    document.removeEventListener("visibilitychange", look);
  };
}

// Call `change` with whether the page is being printed; returns how to end it.
export function whenPrinted(change) {
  const [before, after] = [() => change(true), () => change(false)];
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  return () => {
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
  };
}

// The button Train, and the drawing that follows it: draw() at once, soon() a few times a second, or
// every two seconds where the reader prefers reduced motion.  wanted(): whether the reader wants it to run;
// runs(): whether it does; over(): whether it has done its last step, so that the button trains again, after
// anew(); show() draws all the rest.
export function trainButton(w, { press, wanted, runs, over = () => false, anew, show: showAll }) {
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const button = w.button("Train", () => {
    if (over()) anew();
    press();
  });
  let timer = null;
  const stop = () => { clearTimeout(timer); timer = null; };
  function draw() {
    stop();
    const again = over() ? "Train again" : "Train";
    button.textContent = wanted() ? "Pause" : again;
    button.setAttribute("aria-pressed", String(wanted()));
    w.root.classList.toggle("lc-playing", runs());
    showAll();
  }
  const soon = () => { timer ??= setTimeout(draw, runs() && calm ? 2000 : 100); };
  return { button, draw, soon, stop };
}

// A table that is filled while it is open: make() gives its columns and rows.
export function openTable(w, caption, make) {
  const fill = w.table(caption);
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  const update = () => { if (details.open) fill(make()); };
  details.addEventListener("toggle", update);
  return update;
}

export const LAB_STYLE = `
.lc .ll-key { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; margin: 0.3rem 0 0; font-size: 0.85rem; }
.lc .ll-key svg { display: inline-block; vertical-align: middle; margin-right: 0.3rem; }`;

// A line of names, each beside a piece of its curve.
export const fillKey = (holder, curves) => holder.replaceChildren(...curves.map(({ name, look }) =>
  h("span", {}, s("svg", { width: 24, height: 8, "aria-hidden": "true" },
    s("line", { x1: 0, x2: 24, y1: 4, y2: 4, ...look })), name)));

// A fingerprint for people: its first eight digits.
export const brief = (hash) => (hash ? `${hash.slice(0, 4)} ${hash.slice(4, 8)}` : "–");

const powers = (low, high) => [-4, -3, -2, -1, 0, 1, 2, 3, 4].flatMap((n) => [1, 2, 5].map((k) => k * 10 ** n))
  .filter((t) => t >= low && t <= high);

// Curves of [step, value] points over steps; what is outside of [low, high] lies on its edge.
export function chart(svg, width, height, { from = 0, steps, range: [low, high], log = false, yTitle, curves }) {
  const box = [42, 20, width - 12, height - 36];
  const x = scale([from, steps], [box[0], box[2]]);
  const there = scale([low, high], [box[3], box[1]], { log });
  const y = (value) => there(Math.min(high, Math.max(low, Number.isFinite(value) ? value : high)));
  const marks = log ? powers(low, high) : ticks(low, high, 4);
  svg.append(axes({ x, y, box, xTicks: ticks(from, steps, width < 420 ? 4 : 6), yTicks: marks, xTitle: "step", yTitle }));
  for (const { points, look } of curves) {
    svg.append(line(points.filter(([step]) => step >= from).map(([step, value]) => [x(step), y(value)]), look));
  }
  return { x, y, box };
}

// Loss of a run minus that of another at the same steps, as points.
export function difference(run, other) {
  const there = new Map(other);
  return run.filter(([step]) => there.has(step)).map(([step, value]) => [step, value - there.get(step)]);
}

// What a screen reader is told of curves.
export const told = (curves, digits = 3) => curves.filter(({ points }) => points.length)
  .map(({ name, points }) => `${name} ${show(points.at(-1)[1], digits)} at step ${points.at(-1)[0]}`).join("; ") ||
  "no step yet";
