import { axes, clamp, frame, h, label, line, onDrag, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with the package by the tests
// A law is five numbers, [E, A, B, alpha, beta]:  loss = E + A / N^alpha + B / D^beta,  C = 6 N D.

export const loss = ([E, A, B, alpha, beta], N, D) => E + A / N ** alpha + B / D ** beta;

// The best size for C FLOPs, its tokens, and its loss.
export function optimum(law, C) {
  const [, A, B, alpha, beta] = law;
  const G = ((alpha * A) / (beta * B)) ** (1 / (alpha + beta));
  const N = G * (C / 6) ** (beta / (alpha + beta));
  const D = C / 6 / N;
  return [N, D, loss(law, N, D)];
}

// The loss of every size, each with all of the compute.
export const valleyOf = (law, C, sizes) => sizes.map((N) => loss(law, N, C / 6 / N));

// What share of C the best size needs to end where a size ends that is `off` times the best one.
export function shareNeeded(law, C, off) {
  const [E, , , alpha, beta] = law;
  const [N, D, best] = optimum(law, C);
  const there = loss(law, N * off, D / off);
  return ((there - E) / (best - E)) ** (-(alpha + beta) / (alpha * beta));
}

// Runs [N, D, loss, held out] whose compute is C, give or take a fifth.
export const nearby = (runs, C) => runs.filter(([N, D]) => Math.abs(Math.log((6 * N * D) / C)) < Math.log(1.2));

// --- the page

const LOW = 9;
const HIGH = 27;
const FAR = 5; // powers of ten beyond a law's runs from which a change of the law moves the budget
const SPAN = 1.5; // powers of ten to each side of the best size
const REACH = 0.5; // powers of ten to each side of which the valley is never cut off
const STYLES = [[-1, "2 4", "C / 10"], [0, null, "C"], [1, "8 4", "10 C"]];
const nats = (x) => x.toFixed(3);
const exponent = (x) => Number(x.toFixed(1));
const WORDS = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"], [1e3, "thousand"]];

// 3.2e10 as "32 billion".
export function inWords(x) {
  const [size, word] = WORDS.find(([least]) => x >= 0.9995 * least) || [1, ""];
  const number = x / size;
  return number >= 999.5 || x < 1 ? show(x, 3) : `${show(Number(number.toPrecision(3)))} ${word}`.trim();
}

function render({ model, el }) {
  const w = frame({ model, el, title: "Valleys of equal compute" });
  const laws = model.get("laws");
  const names = laws.map(([name]) => name);
  const chosen = () => laws[names.indexOf(model.get("law"))];
  const numbersOf = () => chosen()[1];
  const reach = () => chosen()[2];
  const runsOf = () => chosen()[3];
  const budget = () => model.get("budget");
  const C = () => 10 ** budget();
  w.choice("law", "law", { options: names });
  const compute = w.number("budget", "compute C, power of ten");
  w.number("off", "size, times the best", { log: true });

  const drawValleys = w.stage((svg, wide, tall) => {
    const law = numbersOf();
    const [N, D, best] = optimum(law, C());
    const middle = Math.log10(N);
    const box = [54, 24, wide - 20, tall - 66];
    const x = scale([middle - SPAN, middle + SPAN], [box[0], box[2]]);
    const sizes = Array.from({ length: 121 }, (_, i) => 10 ** (middle - SPAN + (2 * SPAN * i) / 120));
    const curves = STYLES.map(([shift]) => valleyOf(law, C() * 10 ** shift, sizes));
    const dots = nearby(runsOf(), C()).filter(([size]) => Math.abs(Math.log10(size) - middle) <= SPAN);
    const floor = Math.min(...curves[2], ...dots.map((run) => run[2]));
    const here = [N * model.get("off"), D / model.get("off")];
    // High enough for what is marked; curves leave at the top, or else a steep valley would look flat.
    const marked = [here, ...[-REACH, REACH].map((p) => [N * 10 ** p, D / 10 ** p])];
    const high = Math.max(optimum(law, C() / 10)[2], ...marked.map((size) => loss(law, ...size)), ...dots.map((run) => run[2]));
    const roof = high + (high - floor) / 8;
    const room = (roof - floor) * 0.06 || 0.01;
    const y = scale([floor - room, roof + room], [box[3], box[1]]);
    const powers = [];
    for (let p = Math.ceil(middle - SPAN); p <= middle + SPAN; p++) powers.push(p);
    svg.append(axes({ x, y, box, xTicks: [], yTicks: ticks(floor, roof, 4), xTitle: "parameters N", yTitle: "loss, nats per token" }));
    for (const p of powers) svg.append(label(x(p), box[3] + 15, show(10 ** p, 1), { "text-anchor": "middle" }));
    STYLES.forEach(([shift, dashes], i) => {
      const points = sizes.map((size, j) => [x(Math.log10(size)), y(curves[i][j])]).filter(([, py]) => py >= box[1] - 1);
      svg.append(line(points, { stroke: "currentColor", class: shift ? "lc-3" : "lc-1", "stroke-width": shift ? 1.5 : 2.5,
        "stroke-dasharray": dashes }));
    });
    const bottoms = STYLES.map(([shift]) => optimum(law, C() * 10 ** shift)).map(([n, , l]) => [x(Math.log10(n)), y(l)]);
    svg.append(line(bottoms, { stroke: "var(--lc-text)", "stroke-width": 1 }));
    for (const [size, , measured, held] of dots) {
      svg.append(s("circle", { cx: x(Math.log10(size)), cy: y(measured), r: 4.5, fill: held ? "var(--lc-on)" : "currentColor",
        stroke: "currentColor", "stroke-width": 2, class: "lc-2" }));
    }
    const at = [x(Math.log10(here[0])), y(loss(law, ...here))];
    svg.append(s("circle", { cx: bottoms[1][0], cy: bottoms[1][1], r: 7, fill: "none", stroke: "currentColor", "stroke-width": 2.5, class: "lc-1" }));
    if (model.get("off") !== 1 && at[1] >= box[1] - 6) {
      svg.append(s("path", { d: `M${at[0] - 6} ${at[1] - 6}l12 12m0 -12l-12 12`, stroke: "currentColor", "stroke-width": 3, class: "lc-5" }));
    }
    let left = box[0];
    STYLES.forEach(([shift, dashes, text]) => {
      svg.append(line([[left, tall - 11], [left + 22, tall - 11]], { stroke: "currentColor", class: shift ? "lc-3" : "lc-1",
        "stroke-width": shift ? 1.5 : 2.5, "stroke-dasharray": dashes }), label(left + 26, tall - 7, text));
      left += 48 + 7 * text.length;
    });
    return `a valley with its bottom at ${inWords(N)} parameters and ${nats(best)} nats; ` +
      `with a tenth of the compute it is at ${inWords(optimum(law, C() / 10)[0])}, with ten times at ${inWords(optimum(law, 10 * C())[0])}; ` +
      `${dots.length} measured runs as dots`;
  }, { height: 290, label: "loss against size" });
  w.stages.append(h("p", {}, "Three amounts of compute: a tenth of C, C itself, ten times C. Ring: the bottom. Cross: the chosen size. Dots: measured runs within a fifth of this compute, open where the fit did not see them."));

  let [budgetPlace, toBudget] = [null, null];
  const drawBudgets = w.stage((svg, wide, tall) => {
    const law = numbersOf();
    const box = [54, 24, wide - 20, tall - 40];
    const x = scale([LOW, HIGH], [box[0], box[2]]);
    const ratio = (p) => Math.log10(optimum(law, 10 ** p)[1] / optimum(law, 10 ** p)[0]);
    const y = scale([-1, 4], [box[3], box[1]]);
    const [from, to] = reach();
    svg.append(s("rect", { x: x(from), y: box[1], width: Math.max(2, x(to) - x(from)), height: box[3] - box[1], fill: "currentColor", class: "lc-3", opacity: 0.18 }),
      axes({ x, y, box, xTicks: [], yTicks: [], xTitle: "compute C, FLOPs", yTitle: "best tokens for each parameter" }));
    for (let p = LOW; p <= HIGH; p += 3) svg.append(label(x(p), box[3] + 15, `1e${p}`, { "text-anchor": "middle" }));
    for (let p = -1; p <= 4; p++) svg.append(label(box[0] - 5, y(p) + 4, show(10 ** p), { "text-anchor": "end" }));
    const points = Array.from({ length: 91 }, (_, i) => LOW + ((HIGH - LOW) * i) / 90).filter((p) => Math.abs(ratio(p) - 1.5) <= 2.5);
    svg.append(line(points.map((p) => [x(p), y(ratio(p))]), { stroke: "currentColor", class: "lc-1", "stroke-width": 2 }));
    const [cx, cy] = [x(budget()), y(clamp(ratio(budget()), -1, 4))];
    svg.append(line([[cx, box[1]], [cx, box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "4 4" }),
      s("circle", { cx, cy, r: 7, fill: "var(--lc-on)", stroke: "currentColor", "stroke-width": 3, class: "lc-1" }),
      // A finger that starts on the line drags it; elsewhere it scrolls the page.
      s("rect", { x: cx - 22, y: box[1], width: 44, height: box[3] - box[1], fill: "transparent", style: "touch-action: none; cursor: ew-resize" }));
    budgetPlace = [cx, cy];
    toBudget = (px) => LOW + (px - box[0]) / (box[2] - box[0]) * (HIGH - LOW);
    return `at 1e${show(exponent(budget()))} FLOPs ${show(10 ** ratio(budget()), 3)} tokens for each parameter; ` +
      `the law's runs have 1e${show(from)} to 1e${show(to)} FLOPs`;
  }, { height: 190, label: "best split against compute" });
  drawBudgets.handle({ x: compute, at: () => budgetPlace, label: "compute in the picture",
    to: ([x]) => toBudget(x) });
  const picture = drawBudgets.picture;
  w.stages.append(h("p", {}, "Band: the compute of the runs that the law was fitted to. Drag the line to change C."));

  const rows = w.table("The best split, power of ten by power of ten");

  function sentence() {
    const law = numbersOf();
    const [from, to] = reach();
    const off = model.get("off");
    const [N, D, best] = optimum(law, C());
    const beyond = Math.max(from - budget(), budget() - to);
    const [n, d] = [N * off, D / off];
    return `${model.get("law")}: ${show(C(), 3)} FLOPs are best spent on ${inWords(N)} parameters and ${inWords(D)} tokens, ` +
      `${show(D / N, 3)} for each parameter; the loss is ${nats(best)}. ` +
      (off === 1 ? "" : `A model of ${inWords(n)} parameters reads ${inWords(d)} tokens and ends ${nats(loss(law, n, d) - best)} higher; ` +
        `with the best size, ${show(100 * shareNeeded(law, C(), off), 3)} % of the compute would do. `) +
      (beyond > 0.05 ? `This is ${show(exponent(beyond))} powers of ten ${budget() > to ? "above" : "below"} the law's runs.`
        : "The law was fitted to runs of this compute.");
  }

  function redraw() {
    for (const draw of [drawValleys, drawBudgets]) draw();
    const law = numbersOf();
    const around = [-3, -2, -1, 0, 1, 2, 3].map((shift) => budget() + shift);
    rows({
      columns: ["compute C", "parameters N", "tokens D", "D / N", "loss"],
      rows: around.map((p) => {
        const [N, D, l] = optimum(law, 10 ** p);
        return [show(10 ** p, 3), inWords(N), inWords(D), show(D / N, 3), nats(l)];
      }),
    });
    w.say(sentence());
  }

  function arrive() {
    const [from, to] = reach();
    if (budget() > to + FAR || budget() < from - FAR) w.put("budget", exponent((from + to) / 2));
    redraw();
  }
  onDrag(picture, ([x]) => {
    const [left, right] = [54, picture.viewBox.baseVal.width - 20];
    w.put("budget", exponent(clamp(LOW + ((HIGH - LOW) * (x - left)) / (right - left), LOW, HIGH)));
  });
  w.on(["law"], arrive);
  w.on(["budget", "off"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
