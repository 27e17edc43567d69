import { axes, clamp, frame, label, line, onDrag, percent, s, scale, show, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.scale.cluster by the tests; times are in seconds

// A cluster of n GPUs fails n times as often as one.
export const clusterMtbf = (gpus, hours) => (hours * 3600) / gpus;

// The share of time that is kept as training, in logarithms: e^(days / minutes) is too large.
export function expectedShare(interval, save, restart, mtbf) {
  const exponent = (interval + save) / mtbf;
  const segment = Math.log(mtbf) + restart / mtbf + exponent + Math.log(-Math.expm1(-exponent));
  return Math.exp(Math.log(interval) - segment);
}

export const youngInterval = (save, mtbf) => Math.sqrt(2 * save * mtbf);

export function dalyInterval(save, mtbf) {
  if (save >= 2 * mtbf) return mtbf;
  const ratio = save / (2 * mtbf);
  return Math.sqrt(2 * save * mtbf) * (1 + Math.sqrt(ratio) / 3 + ratio / 9) - save;
}

// Where the share stops rising, by halving.
export function bestInterval(save, mtbf) {
  let [low, high] = [0, mtbf];
  while (high - low > 1e-9 * high) {
    const middle = (low + high) / 2;
    const rises = -Math.expm1(-(middle + save) / mtbf) > middle / mtbf;
    [low, high] = rises ? [middle, high] : [low, middle];
  }
  return (low + high) / 2;
}

// The probability of a failure within some time.
const failsWithin = (seconds, mtbf) => 0 - Math.expm1(-seconds / mtbf);

// What becomes of the time: [trained, saving, lost, restarting], which add up to 1.
export function timeShares(interval, save, restart, mtbf) {
  const trained = expectedShare(interval, save, restart, mtbf);
  const restarting = failsWithin(restart, mtbf);
  const reaches = Math.exp(-interval / mtbf); // the probability that a segment comes to its save
  const saving = ((1 - restarting) * reaches * failsWithin(save, mtbf)) / failsWithin(interval + save, mtbf);
  return [trained, saving, Math.max(0, 1 - restarting - saving - trained), restarting];
}

// The intervals whose share is less than `gap` below the best, from and to; null where all are.
export function nearBest(save, restart, mtbf, gap) {
  const best = bestInterval(save, mtbf);
  const least = expectedShare(best, save, restart, mtbf) - gap;
  if (least <= 0) return null;
  const edge = (outside) => {
    let [far, near] = [outside, best];
    for (let i = 0; i < 60; i++) {
      const middle = Math.sqrt(far * near);
      if (expectedShare(middle, save, restart, mtbf) < least) far = middle;
      else near = middle;
    }
    return near;
  };
  return [edge(best * 1e-7), edge(best * 1e7)];
}

// --- the page

const HOURS = "MTBF of one GPU, hours";
const EVERY = "seconds between saves";
const PARTS = ["training", "saving", "work done again", "restarting"];
const CURVE = ["gpus", "gpu_mtbf_h", "save_s", "restart_s"];
const AXIS = [[10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"],
  [604800, "7 d"]];
const ROW = 46;

// 817 becomes 13 min 37 s.
function clock(seconds) {
  if (seconds < 59.5) return `${show(seconds, seconds < 10 ? 2 : 3)} s`;
  const [unit, name, part, partName] = seconds < 3599.5 ? [60, "min", 1, "s"]
    : seconds < 86370 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const parts = Math.round(seconds / part);
  const rest = parts % (unit / part);
  return `${show(Math.floor(parts / (unit / part)))} ${name}${rest ? ` ${rest} ${partName}` : ""}`;
}
// The same in one unit.
const about = (seconds) => {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [unit, name] = units.find(([least]) => seconds >= least) ?? [1, "s"];
  return `${Number((seconds / unit).toPrecision(2))} ${name}`;
};

function render({ model, el }) {
  const w = frame({ model, el, title: "How much of the time is training",
    primary: ["gpus", "save_s", "interval_s"] });
  const limits = model.get("limits");
  w.number("gpus", "GPUs", { log: true });
  w.number("gpu_mtbf_h", HOURS, { log: true });
  w.number("save_s", "seconds for a save", { log: true });
  w.number("restart_s", "seconds to restart");
  const every = w.number("interval_s", EVERY, { log: true });

  const button = (text, onclick) => w.button(text, onclick);
  const go = (interval) => w.putNumber("interval_s", EVERY, Number(interval.toPrecision(4)));
  button("Best interval", () => go(now().best));
  button("Young's interval", () => go(now().young));
  const keep = button("Keep this curve", () => w.put("kept", kept() ? {}
    : Object.fromEntries(CURVE.map((name) => [name, model.get(name)]))));
  button("The cluster of Llama 3", () => {
    const { gpus, gpu_mtbf_h } = model.get("published");
    w.putNumber("gpus", "GPUs", gpus);
    w.putNumber("gpu_mtbf_h", HOURS, gpu_mtbf_h);
  });

  const kept = () => (model.get("kept").gpus ? curveOf((name) => model.get("kept")[name]) : null);

  // A curve and what is marked on it.
  function curveOf(get) {
    const [gpus, hours, save, restart] = CURVE.map(get);
    const mtbf = clusterMtbf(gpus, hours);
    const share = (interval) => expectedShare(interval, save, restart, mtbf);
    const best = bestInterval(save, mtbf);
    return { gpus, hours, save, restart, mtbf, share, best, young: youngInterval(save, mtbf),
      parts: (interval) => timeShares(interval, save, restart, mtbf) };
  }
  const now = () => ({ ...curveOf((name) => model.get(name)), interval: model.get("interval_s") });

  // --- the curve

  const { low, high } = limits.interval_s;
  const isShown = (interval) => interval >= low && interval <= high;
  let toInterval = () => low;

  const diamond = (x, y) => s("path", { d: `M${x} ${y - 8} l7 8 l-7 8 l-7 -8 z`, fill: "currentColor", class: "lc-3" });
  const triangle = (x, y) => s("path", { d: `M${x} ${y - 12} l7 12 h-14 z`, fill: "none", stroke: "currentColor",
    "stroke-width": 2.5, class: "lc-4" });
  const dot = (x, y) => s("circle", { cx: x, cy: y, r: 6.5, fill: "currentColor", class: "lc-2" });
  const swatch = (x, y) =>
    s("rect", { x: x - 7, y: y - 7, width: 14, height: 14, fill: "currentColor", opacity: 0.25, class: "lc-3" });
  const dashes = (x, y) => line([[x - 9, y], [x + 9, y]], { stroke: "currentColor", "stroke-width": 2,
    "stroke-dasharray": "5 3", class: "lc-6" });

  const place = (interval) => (isShown(interval) ? "" : ", not shown");
  const at = (interval, share) => `every ${clock(interval)}, ${percent(share)}${place(interval)}`;

  // The rows of the key: [what draws the sign, text].
  function key({ share, interval, best, young }, band, other) {
    const rows = [
      [dot, `now: ${at(interval, share(interval))}`],
      [diamond, `best: ${at(best, share(best))}`],
      [(x, y) => triangle(x, y + 6), `Young: ${at(young, share(young))}`],
      [swatch, band ? `under 1 point worse: ${about(band[0])} to ${about(band[1])}` : "under 1 point worse: all"],
    ];
    if (other) rows.push([dashes, `kept, best: ${at(other.best, other.share(other.best))}`]);
    return rows;
  }

  const PLOT = 250;
  let nowPlace = null;
  const drawCurve = w.stage((svg, wide) => {
    const state = now();
    const other = kept();
    const { interval, best, young, save, restart, mtbf } = state;
    const box = [36, 22, wide - 14, PLOT - 38];
    const x = scale([low, high], [box[0], box[2]], { log: true });
    const y = scale([0, 100], [box[3], box[1]]);
    const tip = (curve, one) => y(100 * curve.share(one));
    const band = nearBest(save, restart, mtbf, 0.01);
    const [from, to] = (band ?? [low, high]).map((one) => x(clamp(one, low, high)));
    svg.append(s("rect", { x: from, y: box[1], width: to - from, height: box[3] - box[1], fill: "currentColor",
      opacity: 0.16, class: "lc-3" }));
    svg.append(axes({ x, y, box, xTicks: [], yTicks: [0, 25, 50, 75, 100], xTitle: "time between two saves",
      yTitle: "% of the time kept as training" }));
    svg.append(s("g", { class: "lc-axes" }, AXIS.flatMap(([seconds, text], i) => [
      s("line", { x1: x(seconds), x2: x(seconds), y1: box[3], y2: box[3] + 4 }),
      label(x(seconds) + (i === AXIS.length - 1 ? 12 : 0), box[3] + 16, text,
        { "text-anchor": i === AXIS.length - 1 ? "end" : "middle" }),
    ])));
    const places = Array.from({ length: 181 }, (_, i) => low * (high / low) ** (i / 180));
    const trace = (curve, attributes) =>
      svg.append(line(places.map((one) => [x(one), tip(curve, one)]), { stroke: "currentColor", ...attributes }));
    if (other) trace(other, { class: "lc-6", "stroke-width": 2, "stroke-dasharray": "7 4" });
    trace(state, { class: "lc-1", "stroke-width": 2.5 });
    const upright = (one, attributes) => svg.append(line([[x(one), tip(state, one)], [x(one), box[3]]],
      { stroke: "currentColor", "stroke-width": 1.5, ...attributes }));
    if (isShown(young)) {
      upright(young, { "stroke-dasharray": "1 3", class: "lc-4" });
      svg.append(triangle(x(young), box[3]));
    }
    if (isShown(best)) {
      upright(best, { "stroke-dasharray": "6 3", class: "lc-3" });
      svg.append(diamond(x(best), tip(state, best)));
    }
    upright(interval, { class: "lc-2" });
    svg.append(dot(x(interval), tip(state, interval)));
    const rows = key(state, band, other);
    rows.forEach(([sign, text], i) =>
      svg.append(sign(14, PLOT + 12 + 21 * i), label(30, PLOT + 16 + 21 * i, text)));
    nowPlace = [x(interval), tip(state, interval)];
    toInterval = (px) => low * (high / low) ** clamp((px - box[0]) / (box[2] - box[0]), 0, 1);
    return rows.map(([, text]) => text).join("; ");
  }, { height: () => PLOT + 21 * (kept() ? 5 : 4) + 6,
    label: "share of the time kept as training, against the time between two saves" });

  drawCurve.handle({ x: every, at: () => nowPlace, label: "time between two saves, in the picture", mark: "lc-2",
    to: ([x]) => Number(toInterval(x).toPrecision(3)) });
  const picture = w.stages.querySelector("svg");
  picture.style.touchAction = "pan-y";
  onDrag(picture, ([x]) => {
    w.putNumber("interval_s", EVERY, clamp(Number(toInterval(x).toPrecision(3)), low, high));
  });

  // --- where the time goes

  // Four fills that differ in more than colour.
  function fills(svg) {
    const ground = () => s("rect", { width: 7, height: 7, fill: "currentColor" });
    const on = { stroke: "var(--lc-on)", "stroke-width": 1.6 };
    const signs = [[], [s("circle", { cx: 3.5, cy: 3.5, r: 1.4, fill: "var(--lc-on)" })],
      [s("path", { d: "M-1 8 L8 -1", ...on })], [s("path", { d: "M0 3.5 H7 M3.5 0 V7", ...on })]];
    return signs.map((sign, i) => {
      const id = uniqueId();
      svg.append(s("defs", {}, s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse",
        class: `lc-${[1, 3, 2, 5][i]}` }, ground(), sign)));
      return `url(#${id})`;
    });
  }

  const drawBars = w.stage((svg, wide) => {
    const state = now();
    const filled = fills(svg);
    const x = scale([0, 1], [4, wide - 4]);
    const bars = [["now", state.interval], ["best", state.best]];
    bars.forEach(([name, interval], i) => {
      const parts = state.parts(interval);
      svg.append(label(4, ROW * i + 15, `${name}, ${at(interval, parts[0]).replace(place(interval), "")} training`));
      let from = 0;
      parts.forEach((part, k) => {
        svg.append(s("rect", { x: x(from), y: ROW * i + 21, width: Math.max(0, x(from + part) - x(from)), height: 18,
          fill: filled[k] }));
        from += part;
      });
    });
    const parts = state.parts(state.interval);
    let [left, top] = [4, 2 * ROW + 18];
    PARTS.forEach((part, k) => {
      const text = `${part} ${percent(parts[k])}`;
      const room = 26 + 6.8 * text.length;
      if (left + room > wide) [left, top] = [4, top + 20];
      svg.append(s("rect", { x: left, y: top - 11, width: 14, height: 14, fill: filled[k] }),
        label(left + 19, top + 1, text));
      left += room + 8;
    });
    return bars.map(([name, interval]) => `${name}: ${PARTS.map((part, k) =>
      `${part} ${percent(state.parts(interval)[k])}`).join(", ")}`).join("; ");
  }, { height: (wide) => 2 * ROW + (wide < 400 ? 84 : wide < 620 ? 44 : 24), label: "bars of where the time goes" });

  const numbers = w.table("Where the time goes, in percent, by the time between two saves");

  function sentence(state) {
    const { gpus, interval, share, best, young, mtbf, parts } = state;
    const [trained, saving, lost] = parts(interval);
    const [most, ofYoung] = [share(best), share(young)];
    const idle = Math.round(gpus * (1 - trained));
    const asIf = idle > 0 && gpus > 1 ? `, as if ${show(idle)} of ${show(gpus)} GPUs stood still` : "";
    const more = `saving every ${clock(best)} would keep ${percent(most)}`;
    let verdict = "As often as is best: from here only cheaper saves, quicker restarts or fewer failures help.";
    if (most < 0.01) verdict = "Hardly anything is left even at best: failures come faster than a save and a restart.";
    else if (most - trained > 0.001) {
      verdict = interval > best ? `Too rarely: ${percent(lost)} is work done again after failures; ${more}.`
        : `Too often: ${percent(saving)} is spent on saves; ${more}.`;
    }
    const other = kept();
    return `A failure comes every ${clock(mtbf)}. Saving every ${clock(interval)} keeps ${percent(trained)} of the ` +
      `time as training${asIf}. ${verdict} Young's rule, √(2 · save · MTBF), says ${clock(young)}: ` +
      `${percent(ofYoung)}.${other ? ` The kept curve, ${show(other.gpus)} GPUs, ${clock(other.save)} a save, ` +
      `${clock(other.restart)} a restart, reaches ${percent(other.share(other.best))}.` : ""}`;
  }

  function redraw() {
    const state = now();
    keep.textContent = kept() ? "Drop the kept curve" : "Keep this curve";
    drawCurve();
    drawBars();
    const rows = [["now", state.interval], ["best", state.best], ["Young", state.young],
      ["Daly", dalyInterval(state.save, state.mtbf)], ...AXIS.map(([seconds]) => ["", seconds])];
    numbers({ columns: ["time between saves", "seconds", ...PARTS], rows: rows.map(([name, interval]) =>
      [name ? `${name}, ${clock(interval)}` : clock(interval), show(interval, 5),
        ...state.parts(interval).map((part) => (100 * part).toFixed(2))]) });
    w.say(sentence(state));
  }
  w.on([...CURVE, "interval_s", "kept"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
