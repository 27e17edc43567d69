import { clamp, frame, h, label, onDrag, percent, s, scale, show } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests
// A law has a row [c, k, [t, t, t]] for each source; shares and weights are three numbers that add to 1.

const dot = (a, b) => a.reduce((all, x, i) => all + x * b[i], 0);

export const losses = (law, shares) => law.map(([c, k, t]) => c + k * Math.exp(dot(t, shares)));

export const goal = (law, weights, shares) => dot(weights, losses(law, shares));

// The mixture of whole percents with the least predicted loss.
export function best(law, weights) {
  let found = null;
  let least = Infinity;
  for (let a = 0; a <= 100; a++) {
    for (let b = 0; a + b <= 100; b++) {
      const shares = [a, b, 100 - a - b].map((x) => x / 100);
      const loss = goal(law, weights, shares);
      if (loss < least) [least, found] = [loss, shares];
    }
  }
  return found;
}

// The place of a mixture: the mean of the corners, weighted by its shares.
export const place = (shares, corners) => [0, 1].map((axis) => dot(shares, corners.map((corner) => corner[axis])));

// The mixture of whole percents at a place; outside of the triangle, one on its edge.
export function mixtureAt([x, y], [[x0, y0], [x1, y1], [x2, y2]]) {
  const area = (y1 - y2) * (x0 - x2) + (x2 - x1) * (y0 - y2);
  const first = ((y1 - y2) * (x - x2) + (x2 - x1) * (y - y2)) / area;
  const second = ((y2 - y0) * (x - x2) + (x0 - x2) * (y - y2)) / area;
  const inside = [first, second, 1 - first - second].map((share) => Math.max(0, share));
  const [a, b] = inside.map((share) => Math.round(100 * share / dot(inside, [1, 1, 1])));
  return [a / 100, Math.min(b, 100 - a) / 100, Math.max(0, 100 - a - b) / 100];
}

// The measured run nearest to a mixture, if no share differs by more than two percent; else null.
export function nearest(measured, shares) {
  const far = ([there]) => Math.max(...there.map((share, i) => Math.abs(share - shares[i])));
  const found = measured.reduce((one, other) => (one === null || far(other) < far(one) ? other : one), null);
  return found !== null && far(found) <= 0.0201 ? found : null;
}

// What of a triangle, [x, y, value] at each corner, is at most `level`: its outline, and where it was cut.
export function below(triangle, level) {
  const outline = [];
  const cut = [];
  triangle.forEach(([x, y, value], i) => {
    const [nextX, nextY, next] = triangle[(i + 1) % 3];
    if (value <= level) outline.push([x, y]);
    if ((value <= level) !== (next <= level)) {
      const part = (level - value) / (next - value);
      cut.push([x + part * (nextX - x), y + part * (nextY - y)]);
      outline.push(cut.at(-1));
    }
  });
  return { outline, cut };
}

// Round levels for contours: a few for all values, more among the lower four fifths of them.
export function levelsOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const most = sorted[Math.floor(0.8 * sorted.length)];
  const levels = [...ticks(sorted[0], most, 7), ...ticks(sorted[0], sorted.at(-1), 4)];
  return [...new Set(levels)].sort((a, b) => a - b);
}

// --- the page

const CELLS = 36; // small triangles along an edge
const BAR = 22;
const MEAN = "mean of all";
const nats = (loss) => loss.toFixed(2);
const path = (points) => points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

function render({ model, el }) {
  const w = frame({ model, el, title: "Mixtures of three sources" });
  const sources = model.get("sources");
  const law = model.get("law");
  const measured = model.get("measured");
  const tidy = (share) => Number(share.toFixed(4));
  const shares = () => {
    const [first, second] = [model.get("first"), model.get("second")];
    return [first, second, Math.max(0, tidy(1 - first - second))];
  };
  const weights = () => {
    const chosen = sources.indexOf(model.get("target"));
    return sources.map((_, i) => (chosen < 0 ? 1 / 3 : Number(i === chosen)));
  };
  const move = ([first, second]) => {
    w.put("first", first);
    w.put("second", second);
  };
  w.choice("target", "loss to make small", { options: [...sources, MEAN] });
  const first = w.number("first", `share of ${sources[0]}`);
  const second = w.number("second", `share of ${sources[1]}`);
  w.button("Best", () => move(best(law, weights())));

  // The small triangles: shares of their corners, in steps of 1 / CELLS.
  const cells = [];
  for (let a = 0; a < CELLS; a++) {
    for (let b = 0; a + b < CELLS; b++) {
      cells.push([[a, b], [a + 1, b], [a, b + 1]]);
      if (a + b < CELLS - 1) cells.push([[a + 1, b], [a + 1, b + 1], [a, b + 1]]);
    }
  }
  const side = (wide) => Math.min(wide - 24, 420);
  let corners = null;

  // What does not hang on the chosen mixture, kept until the target or the width changes.
  let surface = { key: null };
  function surfaceOf(wide) {
    const key = `${wide} ${model.get("target")}`;
    if (key === surface.key) return surface;
    const made = s("g");
    const small = cells.map((cell) => cell.map(([a, b]) => {
      const there = [a, b, CELLS - a - b].map((x) => x / CELLS);
      return [...place(there, corners), goal(law, weights(), there)];
    }));
    const values = small.flat().map(([, , value]) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const levels = high - low > 1e-6 ? levelsOf(values) : [];
    const dots = measured.map(([there]) => place(there, corners));
    const named = [];
    const lines = [];
    for (const level of levels) {
      const found = small.map((triangle) => below(triangle, level));
      const cuts = found.map(({ cut }) => cut).filter(({ length }) => length);
      made.append(s("path", { d: found.filter(({ outline }) => outline.length).map(({ outline }) => `M${path(outline)}Z`).join(""),
        fill: "currentColor", class: "lc-1", opacity: 0.13 }));
      lines.push(s("path", { d: cuts.map((cut) => `M${path(cut)}`).join(""), stroke: "var(--lc-text)", opacity: 0.55 }));
      // Its number stands where there is most room.
      const room = ([[x, y]]) => Math.min(...[...named, ...corners].map(([x1, y1]) => Math.hypot(x - x1, 2 * (y - y1))),
        ...dots.map(([x1, y1]) => 3 * Math.hypot(x - x1, y - y1)));
      const [first] = cuts.sort((one, other) => room(other) - room(one));
      if (first && room(first) > 40) named.push([...first[0], level]);
    }
    made.append(...lines, s("path", { d: `M${path(corners)}Z`, fill: "none", stroke: "var(--lc-text)" }));
    for (const [cx, cy] of dots) {
      made.append(s("circle", { cx, cy, r: 3.5, fill: "var(--lc-on)", stroke: "var(--lc-text)", "stroke-width": 1.5 }));
    }
    for (const [x, y, level] of named) {
      made.append(label(clamp(x, 16, wide - 16), y + 4, show(level), { "text-anchor": "middle",
        style: "stroke: var(--lc-on); stroke-width: 4; paint-order: stroke; stroke-linejoin: round" }));
    }
    surface = { key, made, low, high };
    return surface;
  }

  const drawTriangle = w.stage((svg, wide, tall) => {
    const half = side(wide) / 2;
    const bottom = tall - 24;
    corners = [[wide / 2, 24], [wide / 2 - half, bottom], [wide / 2 + half, bottom]];
    const { made, low, high } = surfaceOf(wide);
    svg.append(made);
    svg.append(label(wide / 2, 14, `all ${sources[0]}`, { "text-anchor": "middle" }),
      label(corners[1][0] - 8, tall - 6, `all ${sources[1]}`),
      label(corners[2][0] + 8, tall - 6, `all ${sources[2]}`, { "text-anchor": "end" }));
    return `contours of the loss for ${model.get("target")} from ${nats(low)} to ${nats(high)} nats, ` +
      `${measured.length} measured mixtures as dots, and the chosen one at ${inWords(shares())}`;
  }, { height: (wide) => Math.round(side(wide) * 0.866) + 48, label: "triangle of mixtures" });

  w.stages.append(h("p", {}, "The fuller the colour, the lower the predicted loss. Dots: measured mixtures. The handle is the chosen one."));

  const inWords = (three) => three.map((share, i) => `${percent(share)} ${sources[i]}`).join(", ");
  const mean = (three) => dot(three, [1 / 3, 1 / 3, 1 / 3]);
  const found = () => nearest(measured, shares());
  const bars = () => {
    const predicted = losses(law, shares());
    const near = found();
    return [...sources, MEAN].map((name, i) => ({ name, predicted: i < 3 ? predicted[i] : mean(predicted),
      run: near && (i < 3 ? near[1][i] : mean(near[1])) }));
  };
  const most = Math.max(...[0, 1, 2].map((i) => Math.max(...[0, 1, 2].map((j) => losses(law, sources.map((_, n) => Number(n === j)))[i]),
    ...measured.map(([, three]) => three[i]))), 1e-9);

  const drawBars = w.stage((svg, wide) => {
    const x = scale([0, most], [8, wide - 8]);
    return bars().map(({ name, predicted, run }, i) => {
      const y = 2 * BAR * i;
      const text = `${name}: ${nats(predicted)} predicted${run === null ? "" : `, ${nats(run)} measured`}`;
      svg.append(label(8, y + 14, text, { style: name === model.get("target") ? "font-weight: 700" : null }),
        s("rect", { x: 8, y: y + 20, width: Math.max(0, x(predicted) - 8), height: 14, fill: "currentColor", class: "lc-1" }));
      if (run !== null) {
        svg.append(s("rect", { x: 8, y: y + 36, width: Math.max(0, x(run) - 8), height: 5, fill: "none", stroke: "currentColor",
          "stroke-width": 1.5, class: "lc-2" }));
      }
      return text;
    }).join("; ");
  }, { height: 8 * BAR, label: "losses in nats per token" });

  const numbers = w.table("The measured mixtures, and what the law predicts for them");
  numbers({
    columns: ["mixture", ...sources.flatMap((name) => [name, "predicted"])],
    rows: measured.map(([there, three]) => [inWords(there),
      ...losses(law, there).flatMap((loss, i) => [nats(three[i]), nats(loss)])]),
  });

  function sentence() {
    const target = weights();
    const here = shares();
    const predicted = losses(law, here);
    const near = found();
    const least = goal(law, target, best(law, target));
    return `${inWords(here)}: predicted losses ${sources.map((name, i) => `${nats(predicted[i])} on ${name}`).join(", ")}. ` +
      `The loss to make small, ${model.get("target")}, is ${nats(dot(target, predicted))} nats per token` +
      `${dot(target, predicted) <= least + 1e-9 ? "; no mixture of whole percents has less." : "."}` +
      `${near ? ` A run with ${inWords(near[0])} measured ${nats(dot(target, near[1]))}.` : ""}`;
  }

  function redraw() {
    drawTriangle();
    drawBars();
    w.say(sentence());
  }

  // What one share has too much, the other gives.
  const yields = (one, other) => () => {
    const rest = tidy(1 - model.get(one));
    if (model.get(other) > rest) w.put(other, rest);
    redraw();
  };
  // The second source is at the left: its share grows to the left.
  drawTriangle.handle({ x: { ...second, step: (times) => second.step(-times) }, y: first, mark: "lc-2",
    label: "mixture in the picture", at: () => place(shares(), corners),
    to: (where) => mixtureAt(where, corners).slice(0, 2).reverse() });
  onDrag(drawTriangle.picture, (where) => move(mixtureAt(where, corners)));
  w.on(["first"], yields("first", "second"));
  w.on(["second"], yields("second", "first"));
  w.on(["target"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
