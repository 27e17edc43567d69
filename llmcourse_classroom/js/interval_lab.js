import { axes, frame, label, line, percent, s, scale, show, uniform } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.evaluate by the tests

const Z = 1.959963984540054; // 95 % of a normal distribution lie within it
const Z_POWER = 0.8416212335729143; // and 80 % below this

// The interval of a share: its two ends.
export function wilson(right, total) {
  const share = right / total;
  const middle = share + Z * Z / (2 * total);
  const spread = Z * Math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total));
  const whole = 1 + Z * Z / total;
  return [Math.max(0, (middle - spread) / whole), Math.min(1, (middle + spread) / whole)];
}

// The share of items that one model has right and the other has not; `alike` is the share of items
// on which they have the same luck.
export const disagree = (p, q, alike) => (1 - alike) * (p * (1 - q) + q * (1 - p)) + alike * Math.abs(p - q);

// How many items tell two models apart, in four tests of five; infinite if they are equal.
export function itemsToTell(difference, d) {
  if (difference === 0) return Infinity;
  const root = Z * Math.sqrt(d) + Z_POWER * Math.sqrt(d - difference * difference);
  return Math.ceil((root / difference) ** 2 - 1e-9);
}

// A test of n items, drawn: [right answers of A, of B, items that only A has right, that only B].
export function test(n, p, q, alike, seed) {
  let [a, b, onlyA, onlyB] = [0, 0, 0, 0];
  for (let i = 0; i < n; i++) {
    const luck = uniform(seed, 3 * i);
    const other = uniform(seed, 3 * i + 1) < alike ? luck : uniform(seed, 3 * i + 2);
    const [rightA, rightB] = [luck < p, other < q];
    a += rightA;
    b += rightB;
    onlyA += rightA && !rightB;
    onlyB += rightB && !rightA;
  }
  return [a, b, onlyA, onlyB];
}

// The chance that equal models split the items on which they differ at least as unevenly.
export function mcnemar(b, c) {
  const number = b + c;
  let [term, tail] = [-number * Math.LN2, 0]; // logarithm of (number choose k) / 2^number
  for (let k = 0; k <= Math.min(b, c); k++) {
    tail += Math.exp(term);
    term += Math.log((number - k) / (k + 1));
  }
  return Math.min(1, 2 * tail);
}

// --- the page

const TESTS = 40;
const ends = ([low, high]) => `${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)} %`;

function render({ model, el }) {
  const w = frame({ model, el, title: "Who wins a test?" });
  w.number("items", "items of the test", { log: true });
  w.number("first", "model A, true share in %");
  w.number("second", "model B, true share in %");
  w.number("alike", "items of equal luck, in %");
  w.button("Other items", () => w.put("seed", (model.get("seed") + 1) % 1000));

  const state = () => ({ n: model.get("items"), p: model.get("first") / 100, q: model.get("second") / 100,
    alike: model.get("alike") / 100, seed: model.get("seed") });
  let drawn = [];
  function drawTests() {
    const { n, p, q, alike, seed } = state();
    drawn = Array.from({ length: TESTS }, (_, k) => test(n, p, q, alike, seed * TESTS + k));
  }

  const intervals = w.stage((svg, wide) => {
    const { n, p, q } = state();
    const box = [34, 20, wide - 24, 104];
    const x = scale([0, 100], [box[0], box[2]]);
    svg.append(axes({ x, y: (v) => v, box, xTicks: [0, 20, 40, 60, 80, 100], yTicks: [], xTitle: "share of right answers, in %" }));
    const [a, b] = drawn[0];
    for (const [name, right, truth, y, color] of [["A", a, p, 46, "lc-1"], ["B", b, q, 80, "lc-3"]]) {
      const [low, high] = wilson(right, n);
      svg.append(label(box[0] - 18, y + 4, name),
        line([[x(100 * low), y], [x(100 * high), y]], { stroke: "currentColor", class: color, "stroke-width": 6 }),
        s("circle", { cx: x(100 * right / n), cy: y, r: 5, class: color, fill: "currentColor" }),
        line([[x(100 * truth), y - 12], [x(100 * truth), y + 12]], { stroke: "var(--lc-text)", "stroke-width": 2 }));
    }
    return `one test: A has ${a} of ${show(n)} right, interval ${ends(wilson(a, n))}; ` +
      `B has ${b}, interval ${ends(wilson(b, n))}; the true shares are ${percent(p)} and ${percent(q)}`;
  }, { height: 140, label: "two intervals" });

  const many = w.stage((svg, wide) => {
    const { n } = state();
    const box = [34, 20, wide - 34, 84];
    const gaps = drawn.map(([a, b]) => 100 * (a - b) / n);
    const most = Math.max(1, ...gaps.map(Math.abs)) * 1.08;
    const x = scale([-most, most], [box[0], box[2]]);
    svg.append(axes({ x, y: (v) => v, box, xTicks: [-most, 0, most].map((t) => Number(t.toPrecision(2))), yTicks: [],
      xTitle: "A minus B in each of 40 tests, in %" }), line([[x(0), box[1]], [x(0), box[3]]], { stroke: "var(--lc-muted)" }));
    gaps.forEach((gap, k) => {
      const sure = mcnemar(drawn[k][2], drawn[k][3]) <= 0.05;
      svg.append(s("circle", { cx: x(gap), cy: box[1] + 8 + (k % 5) * 12, r: 4, class: "lc-1", stroke: "currentColor",
        "stroke-width": 1.5, fill: sure ? "currentColor" : "none" }));
    });
    return summary();
  }, { height: 120, label: "forty tests" });

  function summary() {
    const ahead = [drawn.filter(([a, b]) => a > b).length, drawn.filter(([a, b]) => b > a).length];
    const sure = (first) => drawn.filter(([a, b, c, d]) => (first ? a > b : b > a) && mcnemar(c, d) <= 0.05).length;
    return `Of ${TESTS} tests A wins ${ahead[0]} and B ${ahead[1]}; a paired test is sure of A in ${sure(true)} ` +
      `and of B in ${sure(false)} of them`;
  }

  const numbers = w.table("Ten tests in numbers");
  function redraw() {
    drawTests();
    intervals();
    many();
    const { n, p, q, alike } = state();
    const needed = itemsToTell(Math.abs(p - q), disagree(p, q, alike));
    const [a, b] = drawn[0];
    w.say(`On these ${show(n)} items A has ${percent(a / n)} right (${ends(wilson(a, n))}) and B ${percent(b / n)} ` +
      `(${ends(wilson(b, n))}). ${summary()}. ` + (Number.isFinite(needed)
      ? `To be sure in four tests of five takes ${show(needed)} items.` : "The models are equal: no number of items tells them apart."));
    numbers({ columns: ["test", "A right", "B right", "only A", "only B", "p"],
      rows: drawn.slice(0, 10).map(([x, y, c, d], k) => [String(k + 1), show(x), show(y), show(c), show(d), mcnemar(c, d).toFixed(3)]) });
  }
  w.stages.append(Object.assign(document.createElement("p"), {
    textContent: "Above: one test. Dot: share seen. Bar: interval of 95 %. Upright line: true share. " +
      "Below: a dot for each test, right of the line if A is ahead. Filled: the paired test has p of at most 0.05." }));
  w.on(["items", "first", "second", "alike", "seed"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
