import { axes, clamp, frame, h, label, line, listed, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse.optim by the tests

const BEND = 0.5; // the floor of the valley is y = BEND x^2
const GONE = 1e6; // a path that is this far out has run away, and ends
const RING = 0.1; // around the lowest point: inside is the finish

const turn = (set) => (set.surface === "rotated bowl" ? (set.angle * Math.PI) / 180 : 0);

// The lowest point; the height there is 0.
export const lowest = (set) => (set.surface === "valley" ? [1, BEND] : [0, 0]);

// Along the axes of the bowl (u flat, v steep): (u^2 + stretch v^2) / 2.
export function height(set, x, y) {
  if (set.surface === "valley") return ((1 - x) ** 2 + set.stretch * (y - BEND * x * x) ** 2) / 2;
  const [c, d] = [Math.cos(turn(set)), Math.sin(turn(set))];
  return ((c * x + d * y) ** 2 + set.stretch * (c * y - d * x) ** 2) / 2;
}

export function slope(set, x, y) {
  if (set.surface === "valley") {
    const above = set.stretch * (y - BEND * x * x);
    return [x - 1 - 2 * BEND * x * above, above];
  }
  const [c, d] = [Math.cos(turn(set)), Math.sin(turn(set))];
  const [u, v] = [c * x + d * y, set.stretch * (c * y - d * x)];
  return [c * u - d * v, d * u + c * v];
}

// The start turns with the bowl: turned or not, the race is the same but for the axes of x and y.
export function startOf(set) {
  const [c, d] = [Math.cos(turn(set)), Math.sin(turn(set))];
  return [c * set.start_x - d * set.start_y, d * set.start_x + c * set.start_y];
}

// The points that an optimizer visits: at most steps + 1 pairs, fewer if it runs away.
export function walk(kind, rate, set, steps) {
  const { beta1, beta2 } = set;
  const decay = kind === "adam" ? set.decay : 0;
  const coupled = set.decay_kind === "in the gradient (Adam)";
  const place = startOf(set);
  const mean = [0, 0];
  const square = [0, 0];
  const points = [[...place]];
  for (let t = 1; t <= steps && Math.max(...place.map(Math.abs)) < GONE; t++) {
    const slopes = slope(set, ...place);
    for (let i = 0; i < 2; i++) {
      let g = slopes[i];
      if (coupled) g += decay * place[i];
      else place[i] *= 1 - rate * decay;
      let move = g;
      if (kind === "momentum") {
        move = mean[i] = beta1 * mean[i] + g;
      } else if (kind === "rmsprop") {
        square[i] = beta2 * square[i] + (1 - beta2) * g * g;
        move = g / (Math.sqrt(square[i]) + 1e-8);
      } else if (kind === "adam") {
        mean[i] = beta1 * mean[i] + (1 - beta1) * g;
        square[i] = beta2 * square[i] + (1 - beta2) * g * g;
        move = mean[i] / (1 - beta1 ** t) / (Math.sqrt(square[i] / (1 - beta2 ** t)) + 1e-8);
      }
      place[i] -= rate * move;
    }
    points.push([...place]);
  }
  return points;
}

export const distance = (set, [x, y]) => Math.hypot(x - lowest(set)[0], y - lowest(set)[1]);

// The first step after which a path stays in the ring; null if it is outside at its end.
export function arrival(set, points) {
  let first = points.length;
  while (first > 0 && distance(set, points[first - 1]) <= RING) first--;
  return first === points.length ? null : first;
}

// Rates of two digits, ten to each power of ten, from 0.0001 to 3.
export const RATES = [1e-4, 1e-3, 1e-2, 0.1, 1].flatMap((power) => [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8].map((k) =>
  Number((k * power).toPrecision(2)))).filter((rate) => rate <= 3);

// The rate that arrives first; if none arrives, the one that ends lowest.
export function bestRate(kind, set, steps) {
  const score = (rate) => {
    const points = walk(kind, rate, set, steps);
    const there = arrival(set, points);
    return there === null ? steps + 1 + Math.min(height(set, ...points.at(-1)), GONE) : there;
  };
  const scores = RATES.map(score);
  return RATES[scores.indexOf(Math.min(...scores))];
}

const FAR_X = 3.5; // just outside the picture

// Points at one height: a closed line, but that the valley's are cut off outside the picture.
export function contour(set, level) {
  const count = 80;
  const r = Math.sqrt(2 * level);
  const [low, high] = [Math.max(-FAR_X, 1 - r), Math.min(FAR_X, 1 + r)]; // of the valley
  return Array.from({ length: count + 1 }, (_, i) => {
    const [c, d] = [Math.cos((2 * Math.PI * i) / count), Math.sin((2 * Math.PI * i) / count)];
    const across = (r * d) / Math.sqrt(set.stretch);
    if (set.surface === "valley") {
      const x = (low + high) / 2 + ((high - low) / 2) * c;
      const away = Math.sqrt(Math.max(0, r * r - (x - 1) ** 2) / set.stretch);
      return [x, BEND * x * x + (i <= count / 2 ? away : -away)];
    }
    const [cos, sin] = [Math.cos(turn(set)), Math.sin(turn(set))];
    return [cos * r * c - sin * across, sin * r * c + cos * across];
  });
}

// --- the page

const LONGEST = 300;
const EDGE = 3; // x and y go from -EDGE to EDGE
const LEVELS = [0.05, 0.3, 1, 2.5, 6, 14, 30, 70, 150, 300];
const FLOOR = 1e-4; // the lowest height that is drawn
const RACERS = [
  { kind: "sgd", name: "SGD", mark: "lc-sgd", dash: null },
  { kind: "momentum", name: "momentum", mark: "lc-momentum", dash: "7 3" },
  { kind: "rmsprop", name: "RMSProp", mark: "lc-rmsprop", dash: "2 3" },
  { kind: "adam", name: "Adam", mark: "lc-adam", dash: "9 3 2 3" },
];
const SHARED = ["surface", "angle", "stretch", "start_x", "start_y", "beta1", "beta2", "decay", "decay_kind"];

// Each racer has a shape of its own: colour is not the only sign.
function marker(kind, x, y, r) {
  const at = (points) => points.map(([a, b]) => `${x + a * r},${y + b * r}`).join(" ");
  const look = { fill: "currentColor", stroke: "var(--lc-on)", "stroke-width": 1 };
  if (kind === "sgd") return s("circle", { cx: x, cy: y, r, ...look });
  if (kind === "momentum") return s("rect", { x: x - 0.9 * r, y: y - 0.9 * r, width: 1.8 * r, height: 1.8 * r,
    ...look });
  if (kind === "rmsprop") return s("polygon", { points: at([[0, -1.2], [1.15, 0.9], [-1.15, 0.9]]), ...look });
  return s("polygon", { points: at([[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]]), ...look });
}


function render({ model, el }) {
  const w = frame({ model, el, title: "A race downhill", primary: ["surface", "stretch", "steps"] });
  w.root.prepend(h("style", {}, `
    .lc .or-row { display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; margin: 0.5rem 0; align-items: center; }
    .lc .or-row svg { display: inline-block; vertical-align: middle; margin-left: 0.4rem; }
    .lc .or-two { display: flex; flex-wrap: wrap; gap: 0 1rem; }
    .lc .or-two > * { flex: 1 1 18rem; min-width: 0; }`));
  const rewind = () => w.put("steps", 0);

  w.choice("surface", "surface", { onset: rewind });
  const { range } = w.number("angle", "turned by, degrees");
  const angleControl = range.parentElement;
  w.number("stretch", "steep direction, times as curved", { log: true });

  const racers = h("div", { class: "or-row", role: "group", "aria-label": "who races" });
  for (const { kind, name, mark, dash } of RACERS) {
    w.toggle(kind, name, { into: racers });
    racers.lastChild.lastChild.append(s("svg", { width: 44, height: 16, "aria-hidden": "true", class: mark },
      line([[1, 8], [43, 8]], { stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dash }),
      marker(kind, 22, 8, 5)));
  }
  w.dock.prepend(racers);

  // Everything that pictures, tables and sentence say.
  const settings = () => Object.fromEntries(SHARED.map((name) => [name, model.get(name)]));
  const racing = () => RACERS.filter(({ kind }) => model.get(kind));
  const nameOf = ({ kind, name }) => (kind === "adam" && model.get("decay") > 0
    && model.get("decay_kind") === "decoupled (AdamW)" ? "AdamW" : name);

  function standings() {
    const set = settings();
    const steps = model.get("steps");
    return racing().map((racer) => {
      const rate = model.get(`${racer.kind}_rate`);
      const whole = walk(racer.kind, rate, set, LONGEST);
      const path = whole.slice(0, steps + 1);
      const arrives = arrival(set, whole);
      const upright = arrival({ ...set, surface: "bowl" }, walk(racer.kind, rate, { ...set, surface: "bowl" },
        LONGEST));
      return { ...racer, name: nameOf(racer), rate, path, at: path.at(-1), arrives, upright,
        there: arrives !== null && arrives <= steps, gone: path.length <= steps || distance(set, path.at(-1)) >= GONE };
    });
  }
  let now = standings();

  const inStep = () => {
    w.put("steps", Math.min(LONGEST, model.get("steps") + 1));
    return model.get("steps") < LONGEST && !now.every(({ there, gone }) => there || gone);
  };
  w.player({ step: inStep, reset: rewind, longest: LONGEST });
  w.button("Give each its best rate", () => {
    model.set("note", "");
    racing().forEach(({ kind }) => w.put(`${kind}_rate`, bestRate(kind, settings(), LONGEST)));
  });
  w.number("steps", "steps taken");

  // Below the pictures: the rates, and what is changed less often.
  const rates = h("div", { class: "lc-controls" });
  RACERS.forEach(({ kind, name }) => w.number(`${kind}_rate`, `rate of ${name}`, { log: true, into: rates }));
  const more = h("div", { class: "lc-controls" });
  w.number("start_x", "start, along the flat direction", { into: more, onset: rewind });
  w.number("start_y", "start, along the steep one", { into: more, onset: rewind });
  w.number("beta1", "memory of the slope, β1", { into: more });
  w.number("beta2", "memory of its square, β2", { into: more });
  w.number("decay", "weight decay of Adam", { into: more });
  w.choice("decay_kind", "the decay is", { into: more });
  const status = w.root.querySelector(".lc-status");
  status.after(rates, h("details", {}, h("summary", {}, "Start, memory, weight decay"), more));

  const two = h("div", { class: "or-two" });
  const [left, right] = [h("div", {}), h("div", {})];
  two.append(left, right);
  w.stages.append(two, w.dock);

  let toModel = null;
  const drawSurface = w.stage((svg, width, tall) => {
    const set = settings();
    const size = Math.min(width - 44, tall - 40);
    const box = [34, 8, 34 + size, 8 + size];
    const x = scale([-EDGE, EDGE], [box[0], box[2]]);
    const y = scale([-EDGE, EDGE], [box[3], box[1]]);
    toModel = (px, py) => [((px - box[0]) / size) * 2 * EDGE - EDGE, EDGE - ((py - box[1]) / size) * 2 * EDGE];
    const onPage = ([px, py]) => [x(clamp(px, -99, 99)), y(clamp(py, -99, 99))];
    const clip = s("svg", { x: box[0], y: box[1], width: size, height: size,
      viewBox: `${box[0]} ${box[1]} ${size} ${size}` },
      LEVELS.map((level) => line(contour(set, level).map(onPage), { stroke: "var(--lc-line)" })));
    const [goalX, goalY] = onPage(lowest(set));
    clip.append(s("circle", { cx: goalX, cy: goalY, r: x(RING) - x(0), fill: "none", stroke: "var(--lc-text)",
      "stroke-width": 1.5 }));
    for (const { mark, dash, path } of now) {
      const points = path.map(onPage);
      clip.append(line(points, { stroke: "currentColor", class: mark, "stroke-width": 1.8, "stroke-dasharray": dash }),
        s("path", { d: points.map(([px, py]) => `M${px.toFixed(1)},${py.toFixed(1)}h0`).join(""), class: mark,
          stroke: "currentColor", "stroke-width": 3.6, "stroke-linecap": "round" })); // a dot for each step
    }
    const [startX, startY] = onPage(startOf(set));
    clip.append(s("path", { d: `M${startX - 6},${startY - 6}l12,12m0,-12l-12,12`, stroke: "var(--lc-text)",
      "stroke-width": 2 }));
    clip.append(label(startX, startY - 11, "start", { "text-anchor": "middle" }),
      label(goalX + 13, goalY + 4, "finish"));
    for (const { kind, mark, at } of now) clip.append(s("g", { class: mark }, marker(kind, ...onPage(at), 6)));
    svg.append(axes({ x, y, box, xTicks: ticks(-EDGE, EDGE, 6), yTicks: ticks(-EDGE, EDGE, 6), xTitle: "x" }), clip);
    svg.style.touchAction = "pan-y";
    return now.map(({ name, at, gone }) => (gone ? `${name} has run away`
      : `${name} at ${show(at[0], 3)}, ${show(at[1], 3)}`)).join("; ") || "nobody races";
  }, { height: (width) => Math.min(width, 420) + 4, into: left, label: "seen from above, with contours and paths" });

  const drawHeights = w.stage((svg, width, tall) => {
    const set = settings();
    const end = Math.max(40, model.get("steps"));
    const high = 10 ** Math.ceil(Math.log10(Math.max(1, height(set, ...startOf(set)))));
    const box = [48, 22, width - 16, tall - 38];
    const x = scale([0, end], [box[0], box[2]]);
    const y = scale([FLOOR, high], [box[3], box[1]], { log: true });
    const powers = Array.from({ length: Math.round(Math.log10(high / FLOOR)) + 1 }, (_, i) => 10 ** i * FLOOR);
    const clip = s("svg", { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1],
      viewBox: `${box[0]} ${box[1]} ${box[2] - box[0]} ${box[3] - box[1]}` });
    svg.append(axes({ x, y, box, xTicks: ticks(0, end, 4), yTicks: [], xTitle: "step",
      yTitle: "height above the lowest point" }),
      ...powers.map((power) => label(box[0] - 5, y(power) + 4, Number(power.toPrecision(1)), { "text-anchor": "end",
        style: "fill: var(--lc-muted)" })), clip);
    for (const { kind, mark, dash, path, arrives, there } of now) {
      const points = path.map((at, step) => [x(step), y(clamp(height(set, ...at), FLOOR / 10, high * 1e6))]);
      clip.append(line(points, { stroke: "currentColor", class: mark, "stroke-width": 1.8, "stroke-dasharray": dash }));
      const [px, py] = there ? points[arrives] : points.at(-1);
      svg.append(s("g", { class: mark }, marker(kind, px, clamp(py, box[1], box[3]), 5)));
    }
    return now.map(({ name, at, gone }) => `${name} ${gone ? "runs away" : show(height(set, ...at), 3)}`).join("; ");
  }, { height: (width) => Math.min(width, 420) + 4, into: right,
    label: "height against the step; a mark where one arrives" });

  const board = w.table("Who has arrived", { open: true });
  const numbers = w.table("Where each one is, step by step");
  const pathBox = w.root.querySelector(".lc-tables").lastElementChild;
  pathBox.firstElementChild.addEventListener("click", () => fillNumbers());

  // What is to be learnt from this surface and these rates.
  function insight(set) {
    const has = (...kinds) => now.filter(({ kind }) => kinds.includes(kind));
    const facts = [];
    if (set.surface === "valley") {
      facts.push("The steep walls limit the rate, the flat floor needs a large one, and the floor bends.");
    } else if (set.surface === "rotated bowl" && set.angle % 90 !== 0) {
      const same = has("sgd", "momentum").map(({ name }) => name);
      const see = same.length > 1 ? "see" : "sees";
      if (same.length) facts.push(`${listed(same)} ${see} only the slope: turning changes nothing.`);
      const told = has("rmsprop", "adam").map(({ name, arrives, upright }) =>
        `${name} ${arrives === null ? "does not arrive in 300 steps" : `arrives at step ${arrives}`} `
        + `(upright: ${upright === null ? "neither" : `at ${upright}`})`);
      if (told.length) facts.push(`A step size for each coordinate is made for an upright bowl: ${listed(told)}.`);
    } else if (set.stretch === 1) {
      facts.push("The bowl is round: the slope points straight at the lowest point.");
    } else {
      const limit = `2 / ${show(set.stretch)} = ${show(2 / set.stretch, 3)}`;
      if (has("sgd").length) {
        facts.push(`SGD's rate must stay below ${limit}, for the steep direction: in the flat one it crawls.`);
      } else if (has("momentum").length) {
        facts.push("Momentum adds slopes up: it gains speed in the flat direction, and swings in both.");
      }
      const scaled = has("rmsprop", "adam").map(({ name }) => name);
      if (scaled.length) facts.push(`${listed(scaled)}: each coordinate is divided by the size of its own slopes.`);
    }
    if (set.decay > 0 && has("adam").length) {
      facts.push(set.surface === "valley"
        ? `Weight decay pulls to 0, 0: ${has("adam")[0].name} does not come to rest at the lowest point.`
        : "Weight decay pulls to 0, 0, which is the lowest point here.");
    }
    return facts.join(" ");
  }

  function sentence() {
    const set = settings();
    const steps = model.get("steps");
    if (!now.length) return "Nobody races: tick an optimizer.";
    if (steps === 0) return "All start at the cross. The first to stay in the small ring wins. Press Play.";
    const there = now.filter((one) => one.there).sort((a, b) => a.arrives - b.arrives);
    const parts = [
      ...there.map(({ name, arrives }) => `${name} arrived at step ${arrives}`),
      ...now.filter((one) => !one.there && !one.gone)
        .map(({ name, at }) => `${name} is ${show(distance(set, at), 2)} away`),
      ...now.filter((one) => one.gone).map(({ name }) => `${name} has run away`),
    ];
    return `After ${steps} step${steps === 1 ? "" : "s"}: ${parts.join(", ")}. ${insight(set)}`;
  }

  function redraw() {
    now = standings();
    const set = settings();
    angleControl.style.display = set.surface === "rotated bowl" ? "" : "none";
    drawSurface();
    drawHeights();
    const place = now.filter((one) => one.there).map(({ arrives }) => arrives).sort((a, b) => a - b);
    board({
      columns: ["optimizer", "rate", "arrived at step", "place", "distance now", "height now"],
      rows: now.map(({ name, rate, arrives, there, gone, at }) => [name, rate, there ? String(arrives) : gone
        ? "ran away" : "not yet",
        there ? String(place.indexOf(arrives) + 1) : "", distance(set, at), height(set, ...at)]),
    });
    if (pathBox.open) fillNumbers();
    w.say(sentence());
  }

  // Many cells: they are made when somebody looks.
  function fillNumbers() {
    const set = settings();
    const steps = model.get("steps");
    const first = Math.max(0, steps - 39);
    numbers({
      columns: ["step", ...now.flatMap(({ name }) => [`${name} x`, "y", "height"])],
      rows: Array.from({ length: steps + 1 - first }, (_, i) => [String(first + i), ...now.flatMap(({ path }) =>
        (path[first + i] ? [...path[first + i], height(set, ...path[first + i])] : ["away", "", ""]))]),
    });
  }

  // A click puts the start there; the two fields do the same.
  const picture = left.querySelector("svg");
  picture.addEventListener("pointerdown", (event) => {
    const set = settings();
    const [px, py] = toModel(...within(picture, event));
    const [c, d] = [Math.cos(turn(set)), Math.sin(turn(set))];
    const limits = model.get("limits");
    const tidy = (value, name) => clamp(Math.round(value * 10) / 10, limits[name].low, limits[name].high);
    rewind();
    w.put("start_x", tidy(c * px + d * py, "start_x"));
    w.put("start_y", tidy(c * py - d * px, "start_y"));
  });

  w.on([...SHARED, "steps", ...RACERS.flatMap(({ kind }) => [kind, `${kind}_rate`])], redraw);
  redraw();
  return w.destroy;
}

export default { render };
