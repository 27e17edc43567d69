import { axes, clamp, frame, h, label, line, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with torch by the tests

const EPS = 1e-5;
const mean = (x) => x.reduce((sum, value) => sum + value, 0) / x.length;

// Each norm before its gains.
export function normed(norm, x) {
  const middle = norm === "LayerNorm" ? mean(x) : 0;
  const centred = x.map((value) => value - middle);
  const size = Math.sqrt(mean(centred.map((value) => value * value)) + EPS);
  return centred.map((value) => value / size);
}

// What a curve gives for a gate, and its slope there; where ReLU has none, 0, as torch has it.
export function bent(curve, gate) {
  if (curve === "ReLU") return [Math.max(0, gate), Number(gate > 0)];
  const sigmoid = 1 / (1 + Math.exp(-gate));
  return [gate * sigmoid, sigmoid * (1 + gate * (1 - sigmoid))];
}

// --- the page

const MOST = 4; // of a channel
const FAR = 6; // of a gate
const WIDE = 600; // from here on the two pictures stand side by side
const GATES = Array.from({ length: 121 }, (_, i) => (i - 60) / 10);
const inBrackets = (x) => `(${x.map((value) => show(Math.round(1000 * value) / 1000, 3)).join(", ")})`;
const round1 = (value, most) => Math.round(10 * clamp(value, -most, most)) / 10;

function render({ model, el }) {
  const w = frame({ model, el, title: "A norm and a gate", primary: ["norm", "curve", "gate"] });
  const point = () => [model.get("first"), model.get("second")];
  const movePoint = (change) => ["first", "second"].forEach((name, i) =>
    w.putNumber(name, `channel ${i}`, Number(change(point()[i]).toPrecision(10))));
  w.choice("norm", "norm");
  w.choice("curve", "curve of the gate");
  const gate = w.number("gate", "gate g");
  const [first, second] = ["first", "second"].map((name, i) => w.number(name, `channel ${i}`));
  w.button("Double both channels", () => movePoint((value) => 2 * value));
  w.button("Add 0.5 to both", () => movePoint((value) => value + 0.5));

  let plane = null; // the two scales of each picture
  let bend = null;

  function drawPlane(svg, left, top, side) {
    const box = [left + 34, top + 24, left + 34 + side, top + 24 + side];
    const x = scale([-MOST, MOST], [box[0], box[2]]);
    const y = scale([-MOST, MOST], [box[3], box[1]]);
    plane = { x, y, back: ([px, py]) => [(px - box[0]) / side * 2 * MOST - MOST, MOST - (py - box[1]) / side * 2 * MOST] };
    const there = point();
    const goal = normed(model.get("norm"), there);
    svg.append(axes({ x, y, box, xTicks: ticks(-MOST, MOST, 4), yTicks: ticks(-MOST, MOST, 4),
      xTitle: "channel 0", yTitle: "channel 1" }));
    if (model.get("norm") === "RMSNorm") {
      svg.append(s("circle", { cx: x(0), cy: y(0), r: x(Math.SQRT2) - x(0), fill: "none", stroke: "var(--lc-text)", opacity: 0.6 }));
    } else {
      // With two channels, what is left of a list without its mean lies on one line.
      svg.append(line([[x(-MOST), y(MOST)], [x(MOST), y(-MOST)]], { stroke: "var(--lc-text)", "stroke-dasharray": "5 4", opacity: 0.6 }));
    }
    svg.append(
      line([[x(0), y(0)], [x(there[0]), y(there[1])]], { stroke: "var(--lc-line)" }),
      line([there, goal].map(([a, b]) => [x(a), y(b)]), { stroke: "currentColor", class: "lc-2", "stroke-width": 2.5 }),
      s("circle", { "data-key": "normed", cx: x(goal[0]), cy: y(goal[1]), r: 6, fill: "currentColor", class: "lc-2" }),
      label(x(goal[0]) + (goal[0] > 2 ? -10 : 10), y(goal[1]) + (goal[1] < there[1] ? 17 : -9), "normed",
        { "text-anchor": goal[0] > 2 ? "end" : null }));
  }

  function drawBend(svg, left, top, wide, high) {
    const box = [left + 34, top + 24, left + wide, top + 24 + high];
    const x = scale([-FAR, FAR], [box[0], box[2]]);
    const y = scale([-2, FAR], [box[3], box[1]]);
    const g = model.get("gate");
    const [value, slope] = bent(model.get("curve"), g);
    bend = { x, y, back: ([px]) => (px - box[0]) / (box[2] - box[0]) * 2 * FAR - FAR };
    svg.append(axes({ x, y, box, xTicks: ticks(-FAR, FAR, 6), yTicks: [-2, 0, 2, 4, 6], xTitle: "gate g",
      yTitle: "what the curve makes of it" }));
    for (const name of ["SiLU", "ReLU"]) {
      const now = name === model.get("curve");
      svg.append(line(GATES.map((at) => [x(at), y(bent(name, at)[0])]), { stroke: now ? "currentColor" : "var(--lc-line)",
        class: now ? "lc-1" : null, "stroke-width": now ? 2.5 : 1.5 }));
    }
    const reach = 2 / Math.hypot(1, slope); // the tangent, equally long everywhere
    svg.append(line([-reach, reach].map((step) => [x(g + step), y(value + slope * step)]),
      { stroke: "currentColor", class: "lc-2", "stroke-width": 2.5 }),
    label(x(-FAR) + 6, y(FAR) + 14, `slope ${show(slope, 3)}`));
  }

  const size = (width) => (width > WIDE ? Math.min(300, width / 2 - 60) : Math.min(300, width - 44));
  const drawBoth = w.stage((svg, width) => {
    const side = size(width);
    const beside = width > WIDE;
    drawPlane(svg, 0, 0, side);
    drawBend(svg, beside ? side + 64 : 0, beside ? 0 : side + 76, beside ? width - side - 72 : side + 34, side);
    const [value, slope] = bent(model.get("curve"), model.get("gate"));
    return `left, the point ${inBrackets(point())}, and where ${model.get("norm")} puts it, ` +
      `${inBrackets(normed(model.get("norm"), point()))}; right, ${model.get("curve")} with its tangent at ` +
      `${show(model.get("gate"))}, where it is ${show(value, 3)} and its slope ${show(slope, 3)}`;
  }, { height: (width) => (width > WIDE ? size(width) + 62 : 2 * size(width) + 140), label: "a plane and a curve" });
  drawBoth.handle({ x: first, y: second, label: "list of two channels in the picture", mark: "lc-1",
    at: () => [plane.x(point()[0]), plane.y(point()[1])], to: (place) => plane.back(place).map((value) => round1(value, MOST)) });
  drawBoth.handle({ x: gate, label: "gate in the picture", mark: "lc-1",
    at: () => [bend.x(model.get("gate")), bend.y(bent(model.get("curve"), model.get("gate"))[0])],
    to: (place) => round1(bend.back(place), FAR) });
  w.stages.append(h("p", {}, "Drag the two handles, or move them by arrow keys."));

  const lists = w.table("A list of two channels and its changes, normed");
  const gates = w.table("Both curves and their slopes");
  gates({ columns: ["gate g", "SiLU", "slope", "ReLU", "slope"],
    rows: [-6, -4, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 6].map((g) => [g, ...bent("SiLU", g), ...bent("ReLU", g)]) });

  function redraw() {
    drawBoth();
    const norm = model.get("norm");
    const there = point();
    const changes = [["as it is", (v) => v], ["times 10", (v) => 10 * v], ["plus 10", (v) => v + 10]];
    lists({ columns: ["the list", "is", norm],
      rows: changes.map(([name, change]) => [name, inBrackets(there.map(change)), inBrackets(normed(norm, there.map(change)))]) });
    const [value, slope] = bent(model.get("curve"), model.get("gate"));
    const centre = mean(there);
    const rms = Math.sqrt(mean(there.map((v) => (v - (norm === "LayerNorm" ? centre : 0)) ** 2)));
    const first = norm === "LayerNorm" ? `, without its mean of ${show(centre, 3)},` : "";
    const learns = slope === 0 ? "nothing reaches the gate’s weights from this token."
      : "the gradient of the gate’s weights is multiplied by that.";
    w.say(`${inBrackets(there)}${first} has the root mean square ${show(rms, 3)}; ${norm} makes it ` +
      `${inBrackets(normed(norm, there))}. ${model.get("curve")} makes ${show(value, 3)} of the gate ` +
      `${show(model.get("gate"))}, with slope ${show(slope, 3)}: ${learns}`);
  }

  w.on(["first", "second", "norm", "gate", "curve"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
