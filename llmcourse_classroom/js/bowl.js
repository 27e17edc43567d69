import { axes, clamp, frame, label, line, onDrag, s, scale, show, ticks, uniform } from "./kit.js";

// --- arithmetic, compared with llmcourse.optim by the tests

export const bowl = (x, y, { lambda_x, lambda_y }) => (lambda_x * x * x + lambda_y * y * y) / 2;

export const criticalRate = ({ lambda_x, lambda_y }) => 2 / Math.max(lambda_x, lambda_y);

// The points that an optimizer visits: steps + 1 pairs.  `draws` are the noise of every step.
export function walk(kind, settings, draws) {
  const { lambda_x, lambda_y, learning_rate, noise, steps } = settings;
  const place = [settings.start_x, settings.start_y];
  const mean = [0, 0];
  const square = [0, 0];
  const points = [[...place]];
  for (let t = 1; t <= steps; t++) {
    for (let i = 0; i < 2; i++) {
      const g = [lambda_x, lambda_y][i] * place[i] + noise * draws[2 * (t - 1) + i];
      let move = g;
      if (kind === "momentum") {
        mean[i] = 0.9 * mean[i] + g;
        move = mean[i];
      } else if (kind === "adam") {
        mean[i] = 0.9 * mean[i] + 0.1 * g;
        square[i] = 0.95 * square[i] + 0.05 * g * g;
        move = mean[i] / (1 - 0.9 ** t) / (Math.sqrt(square[i] / (1 - 0.95 ** t)) + 1e-8);
      }
      place[i] -= learning_rate * move;
    }
    points.push([...place]);
  }
  return points;
}

// `count` draws from the normal distribution, the same for the same seed.
export function normals(seed, count) {
  return Array.from({ length: count }, (_, i) =>
    Math.sqrt(-2 * Math.log(1 - uniform(seed, 2 * i))) * Math.cos(2 * Math.PI * uniform(seed, 2 * i + 1)));
}

// --- the page

const RACERS = [["sgd", "SGD", "lc-sgd", ""], ["momentum", "momentum 0.9", "lc-momentum", "6 3"], ["adam", "Adam", "lc-adam", "2 3"]];
const LONGEST = 300;
const LEVELS = [0.5, 2, 6, 14, 28, 50, 90, 160];

function render({ model, el }) {
  const w = frame({ model, el, title: "A ball on a stretched bowl", primary: ["learning_rate", "momentum", "adam"] });
  const rewind = () => w.put("steps", 0);
  const rate = w.number("learning_rate", "learning rate", { log: true });
  w.number("lambda_x", "curvature along x");
  w.number("lambda_y", "curvature along y");
  w.number("noise", "noise of the gradient");
  w.number("steps", "steps taken");
  for (const [kind, name] of RACERS) w.toggle(kind, name);

  const draws = normals(1, 2 * LONGEST);
  const settings = () => Object.fromEntries(
    ["lambda_x", "lambda_y", "learning_rate", "noise", "steps", "start_x", "start_y"].map((k) => [k, model.get(k)]));
  const racing = () => RACERS.filter(([kind]) => model.get(kind));

  let [ratePlace, startPlace, toRate] = [null, null, null];
  const drawRates = w.stage((svg, width) => {
    const critical = criticalRate(settings());
    const eta = model.get("learning_rate");
    const most = Math.max(1.5 * critical, 1.1 * eta);
    const x = scale([0, most], [8, width - 8]);
    const part = (from, to, mark, name) => [
      s("rect", { x: x(from), y: 30, width: x(to) - x(from), height: 10, fill: "currentColor", class: mark, opacity: 0.75 }),
      x(to) - x(from) > 7 * name.length && label((x(from) + x(to)) / 2, 60, name, { "text-anchor": "middle" }),
    ].filter(Boolean);
    svg.append(...part(0, critical / 2, "lc-3", "straight in"), ...part(critical / 2, critical, "lc-1", "zig-zag"),
      ...part(critical, most, "lc-5", "away"));
    const middle = clamp(x(critical), 90, width - 90);
    svg.append(label(middle, 12, `critical rate 2/λmax = ${show(critical, 3)}`, { "text-anchor": "middle" }),
      s("line", { x1: x(critical), x2: x(critical), y1: 20, y2: 46, stroke: "currentColor", "stroke-width": 2 }));
    ratePlace = [x(eta), 35];
    toRate = (px) => clamp((px - 8) / (width - 16) * most, 0, Math.max(1.5 * critical, eta));
    return `rate ${show(eta)}, critical rate ${show(critical)}`;
  }, { height: 66, label: "learning rate" });

  let toModel = null;
  const drawBowl = w.stage((svg, width, height) => {
    const box = [34, 12, width - 12, height - 36];
    const x = scale([-10, 10], [box[0], box[2]]);
    const y = scale([-4, 4], [box[3], box[1]]);
    toModel = (px, py) => [(px - box[0]) / (box[2] - box[0]) * 20 - 10, 4 - (py - box[1]) / (box[3] - box[1]) * 8];
    const set = settings();
    const rings = LEVELS.map((level) => s("ellipse", {
      cx: x(0), cy: y(0), rx: x(Math.sqrt(2 * level / set.lambda_x)) - x(0),
      ry: y(0) - y(Math.sqrt(2 * level / set.lambda_y)), fill: "none", stroke: "var(--lc-line)",
    }));
    const clip = s("svg", { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1],
      viewBox: `${box[0]} ${box[1]} ${box[2] - box[0]} ${box[3] - box[1]}` }, rings);
    for (const [kind, , mark, dash] of racing()) {
      const at = walk(kind, set, draws).filter((point) => !point.some(Number.isNaN)).map(([px, py]) => [x(clamp(px, -99, 99)), y(clamp(py, -99, 99))]);
      clip.append(line(at, { stroke: "currentColor", class: mark, "stroke-width": 1.8, "stroke-dasharray": dash || null }),
        ...at.slice(0, -1).map(([cx, cy]) => s("circle", { cx, cy, r: 2.2, fill: "currentColor", class: mark })),
        s("circle", { cx: at.at(-1)[0], cy: at.at(-1)[1], r: 7, fill: "currentColor", class: mark }));
    }
    svg.append(axes({ x, y, box, xTicks: ticks(-10, 10, 4), yTicks: ticks(-4, 4, 4), xTitle: "x" }), clip);
    startPlace = [x(set.start_x), y(set.start_y)];
    svg.style.touchAction = "pan-y";
    return sentence();
  }, { height: (width) => (width < 420 ? 240 : 300), label: "contours of the bowl with the path of each ball", docked: true });

  const numbers = w.table("Where each ball is, step by step");

  function sentence() {
    const set = settings();
    const critical = criticalRate(set);
    const eta = set.learning_rate;
    const fate = Math.abs(eta - critical) < 1e-9 * critical ? "at the critical rate SGD bounces for ever"
      : eta > critical ? "above the critical rate SGD runs away"
        : eta > critical / 2 ? "below the critical rate, but so large that SGD crosses the valley at each step"
          : "SGD goes straight in";
    const balls = racing().map(([kind, name]) => {
      const [px, py] = walk(kind, set, draws).at(-1);
      return `${name} f = ${show(bowl(px, py, set), 3)}`;
    });
    return `After ${set.steps} steps: ${balls.join(", ") || "no ball"}. Rate ${show(eta)} against 2/λmax = ${show(critical)}: ${fate}.`;
  }

  function redraw() {
    drawRates();
    drawBowl();
    const set = settings();
    const paths = racing().map(([kind]) => walk(kind, set, draws));
    const first = Math.max(0, set.steps - 49);
    numbers({
      columns: ["step", ...racing().flatMap(([, name]) => [`${name} x`, "y", "f"])],
      rows: Array.from({ length: set.steps + 1 - first }, (_, i) => [first + i,
        ...paths.flatMap((path) => [...path[first + i], bowl(...path[first + i], set)])]),
    });
    w.say(sentence());
  }

  w.player({ step: () => { w.put("steps", Math.min(LONGEST, model.get("steps") + 1)); return model.get("steps") < LONGEST; },
    reset: rewind, longest: 60 });
  const [startX, startY] = [w.number("start_x", "start at x"), w.number("start_y", "start at y")];
  drawRates.handle({ x: rate, at: () => ratePlace, to: ([x]) => toRate(x), label: "learning rate in the picture" });
  drawBowl.handle({ x: startX, y: startY, at: () => startPlace, label: "start of the balls",
    to: (place) => { rewind(); return toModel(...place); } });
  const bowlStage = drawBowl.picture;
  onDrag(bowlStage, (place) => {
    const [x, y] = toModel(...place);
    w.put("steps", 0);
    w.put("start_x", Math.round(clamp(x, -10, 10) * 10) / 10);
    w.put("start_y", Math.round(clamp(y, -4, 4) * 10) / 10);
  });

  w.on(["lambda_x", "lambda_y", "learning_rate", "noise", "steps", "start_x", "start_y", "sgd", "momentum", "adam"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
