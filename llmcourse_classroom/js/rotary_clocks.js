import { axes, frame, h, label, line, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse.model.attention by the tests

// The radians by which each channel pair turns from one position to the next: theta^(-2j / K).
export const speeds = (headSize, theta) =>
  Array.from({ length: headSize / 2 }, (_, j) => theta ** (-2 * j / headSize));

// Where the hand of a pair points at a position: the rotation exp(i t w), as cosine and sine.
export const hand = (position, speed) => [Math.cos(position * speed), Math.sin(position * speed)];

export const hands = (position, all) => all.map((speed) => hand(position, speed));

// The product of two equal vectors, one turned by the query's position and one by the key's.
// Every pair of the vector has length 1, so that it adds at most 1.
export function score(query, key, all) {
  const k = hands(key, all);
  return hands(query, all).reduce((sum, [x, y], j) => sum + x * k[j][0] + y * k[j][1], 0);
}

// What the derivation says that it is: the positions enter by their distance alone.
export const scoreAt = (distance, all) => all.reduce((sum, speed) => sum + Math.cos(distance * speed), 0);

// The smaller angle between two hands, in degrees.
export function between(query, key, speed) {
  const turned = Math.abs(query - key) * speed % (2 * Math.PI);
  return Math.min(turned, 2 * Math.PI - turned) * 180 / Math.PI;
}

// Tokens for a full turn.
export const wavelength = (speed) => 2 * Math.PI / speed;

// How many pairs turn full circle within so many positions.
export const fullTurns = (all, length) => all.filter((speed) => wavelength(speed) <= length).length;

// The score over the distances 0 to length - 1, as the least and the largest of each of at most
// `columns` neighbouring groups: more points than pixels would only hide how far the curve swings.
export function curve(all, length, columns) {
  const size = Math.ceil(length / columns);
  return Array.from({ length: Math.ceil(length / size) }, (_, at) => {
    const group = { from: at * size, to: Math.min(length, (at + 1) * size) - 1, low: Infinity, high: -Infinity };
    for (let distance = group.from; distance <= group.to; distance++) {
      const value = scoreAt(distance, all);
      group.low = Math.min(group.low, value);
      group.high = Math.max(group.high, value);
    }
    return group;
  });
}

// By how much one step moves both: the whole length in 64 steps, whatever it is.
export const stride = (length) => Math.max(1, Math.round(length / 64));

// --- the page

const MOST = 16; // clocks at a time
const BASES = [[10_000, "10,000 (the paper)"], [500_000, "500,000 (Llama 3)"]];
const NAMES = { query: "query position i", key: "key position j" };
const HEAD = 58; // pixels of the legend above the clocks
const CELL = 96; // least width of a clock's cell
const STYLE = ".lc svg .lc-hand { fill: var(--lc-on); font-size: 11px; font-weight: 700; }";

function render({ model, el }) {
  const w = frame({ model, el, title: "Rotary positions: one clock for each channel pair",
    primary: ["query", "key", "theta"] });
  w.root.append(h("style", {}, STYLE));
  const inputs = {};
  for (const name of ["query", "key"]) inputs[name] = w.number(name, NAMES[name]);
  w.player({ step, reset: () => shift(-Math.min(model.get("query"), model.get("key"))), perSecond: 4, longest: 70 });
  const strideSaid = h("p", {});
  w.dock.append(strideSaid);
  w.number("theta", "base θ", { log: true });
  const group = h("div", { class: "lc-player", role: "group", "aria-label": "known bases" });
  const bases = BASES.map(([theta, name]) =>
    [theta, w.button(name, () => w.putNumber("theta", "base θ", theta), { into: group })]);
  w.fold(group);
  w.number("length", "length, tokens", { log: true });
  w.number("head_size", "head size K");
  inputs.first_pair = w.number("first_pair", "first pair shown");

  const length = () => model.get("length");
  const all = () => speeds(model.get("head_size"), model.get("theta"));
  const distance = () => model.get("query") - model.get("key");
  const first = () => Math.min(model.get("first_pair"), Math.max(0, all().length - MOST));
  const shown = () => all().map((speed, j) => ({ speed, j })).slice(first(), first() + MOST);
  let busy = false;

  // Move query and key by the same number of positions.
  function shift(by) {
    busy = true;
    for (const name of ["query", "key"]) w.put(name, model.get(name) + by);
    busy = false;
    redraw();
  }

  // Both go on until one reaches the end; then both begin anew.
  function step() {
    const room = length() - 1 - Math.max(model.get("query"), model.get("key"));
    const back = Math.min(model.get("query"), model.get("key"));
    if (room === 0) {
      shift(-back);
      return back > 0;
    }
    shift(Math.min(room, stride(length())));
    return room > stride(length());
  }

  // Rows of equally many clocks, as large as the width allows.
  function grid(width) {
    const many = shown().length;
    const rows = Math.ceil(many / Math.max(1, Math.floor(width / CELL)));
    const columns = Math.ceil(many / rows);
    const radius = Math.min(46, width / columns / 2 - 8);
    return { rows, columns, radius, wide: width / columns, tall: 2 * radius + 60 };
  }

  // A point on a clock: hands start at the top and turn clockwise.
  const on = (cx, cy, radius, angle) => [cx + radius * Math.sin(angle), cy - radius * Math.cos(angle)];

  // The part of a ring or (from the middle) of a disc between two angles.
  function arc(cx, cy, radius, from, to, { disc = false, ...attributes }) {
    const steps = Math.max(2, Math.ceil(Math.abs(to - from) / 0.1));
    const points = Array.from({ length: steps + 1 }, (_, i) => on(cx, cy, radius, from + (to - from) * i / steps));
    return line(disc ? [[cx, cy], ...points] : points, attributes);
  }

  function pointer(cx, cy, radius, angle, letter) {
    const [x, y] = on(cx, cy, radius - 8, angle);
    const query = letter === "q";
    const mark = query ? "lc-1" : "lc-2";
    return [
      s("line", { x1: cx, y1: cy, x2: x, y2: y, stroke: "currentColor", class: mark, "stroke-width": query ? 3 : 2,
        "stroke-dasharray": query ? null : "4 3" }),
      query ? s("circle", { cx: x, cy: y, r: 7.5, fill: "currentColor", class: mark })
        : s("rect", { x: x - 7, y: y - 7, width: 14, height: 14, fill: "currentColor", class: mark }),
      label(x, y + 3.5, letter, { "text-anchor": "middle", class: "lc-hand" }),
    ];
  }

  function clock({ speed, j }, at, { columns, radius, wide, tall }) {
    const left = at % columns * wide;
    const top = HEAD + Math.floor(at / columns) * tall;
    const cx = left + wide / 2;
    const cy = top + 20 + radius;
    const [query, key] = [model.get("query") * speed, model.get("key") * speed];
    const apart = between(model.get("query"), model.get("key"), speed) * Math.PI / 180;
    // The shorter way round from the key's hand to the query's.
    const ahead = Math.sin(query - key) >= 0 ? apart : -apart;
    const reached = Math.min(1, length() / wavelength(speed)) * 2 * Math.PI;
    const middle = { "text-anchor": "middle" };
    return s("g", {},
      label(cx, top + 12, `pair ${j}`, { ...middle, "font-weight": 700 }),
      s("circle", { cx, cy, r: radius, fill: "none", stroke: "var(--lc-line)" }),
      arc(cx, cy, radius, 0, reached, { stroke: "var(--lc-text)", "stroke-width": 3.5 }),
      arc(cx, cy, radius - 10, key, key + ahead,
        { disc: true, fill: "currentColor", class: "lc-3", "fill-opacity": 0.4 }),
      pointer(cx, cy, radius - 2, query, "q"), pointer(cx, cy, radius * 0.55, key, "k"),
      label(cx, top + 34 + 2 * radius, `${degrees(apart * 180 / Math.PI)} apart`, middle),
      label(cx, top + 49 + 2 * radius, `turn: ${tokens(wavelength(speed))}`, { ...middle, fill: "var(--lc-muted)" }));
  }

  const degrees = (angle) => (angle > 0 && angle < 0.5 ? "< 0.5°" : `${show(Math.round(angle))}°`);
  const tokens = (number) => show(number < 100 ? number : Math.round(number), 3);

  const drawClocks = w.stage((svg, width) => {
    const places = grid(width);
    svg.append(...pointer(10, 22, 17, 0, "q").slice(1), ...pointer(78, 22, 17, 0, "k").slice(1),
      label(22, 17, "query"), label(90, 17, "key"),
      label(132, 17, "shaded: the angle between"),
      label(2, 35, "thick ring: how far a hand gets in all positions;"),
      label(2, 51, "turn: tokens for once round"),
      ...shown().map((each, at) => clock(each, at, places)));
    return shown().map(({ speed, j }) =>
      `pair ${j} ${degrees(between(model.get("query"), model.get("key"), speed))} apart`).join(", ");
  }, {
    height: (width) => HEAD + grid(width).rows * grid(width).tall,
    label: "clocks with two hands, query and key",
  });

  let known = { key: "", groups: [] }; // a long curve is worked out once, not at every move
  function curveOf(columnsWide) {
    const key = [model.get("head_size"), model.get("theta"), length(), columnsWide].join();
    if (known.key !== key) known = { key, groups: curve(all(), length(), columnsWide) };
    return known.groups;
  }

  const drawScore = w.stage((svg, width, height) => {
    const box = [40, 22, width - 14, height - 36];
    const groups = curveOf(box[2] - box[0]);
    const most = all().length;
    const least = Math.min(0, ...groups.map(({ low }) => low));
    const x = scale([0, length() - 1], [box[0], box[2]]);
    const y = scale([least, most], [box[3], box[1]]);
    const middle = ({ from, to }) => x((from + to) / 2);
    const lows = groups.map((group) => [middle(group), y(group.low)]);
    const highs = groups.map((group) => [middle(group), y(group.high)]);
    const here = [x(Math.abs(distance())), y(score(model.get("query"), model.get("key"), all()))];
    svg.append(
      axes({ x, y, box, xTicks: ticks(0, length() - 1, width < 420 ? 3 : 6), yTicks: ticks(least, most, 4),
        xTitle: "distance between query and key", yTitle: "score of two equal vectors" }),
      s("line", { x1: box[0], x2: box[2], y1: y(0), y2: y(0), stroke: "var(--lc-line)" }),
      line([...highs, ...lows.reverse()], { fill: "currentColor", class: "lc-3", stroke: "currentColor",
        "stroke-width": 1.6, "fill-opacity": 0.35 }),
      s("line", { x1: here[0], x2: here[0], y1: box[1], y2: box[3], stroke: "var(--lc-text)",
        "stroke-dasharray": "4 3" }),
      s("circle", { cx: here[0], cy: here[1], r: 6, fill: "var(--lc-text)" }));
    return `at distance ${show(Math.abs(distance()))} the score is ${scoreSaid()} of at most ${most}`;
  }, { height: 210, label: "score over the distance" });
  const numbers = w.table("The clocks in numbers");

  const scoreSaid = () => show(Number(score(model.get("query"), model.get("key"), all()).toFixed(2)));

  function sentence() {
    const [query, key, many] = [model.get("query"), model.get("key"), all().length];
    const later = distance() < 0 ? " The key comes after the query: a causal model would not look there." : "";
    const slowest = wavelength(all().at(-1));
    return `Query at ${show(query)}, key at ${show(key)}: distance ${show(distance())}.${later} ` +
      `Two equal vectors score ${scoreSaid()} of at most ${many}. Move both by the same amount: every hand turns, ` +
      `but no angle between two hands changes, nor does the score. ` +
      `${fullTurns(all(), length())} of ${many} pairs turn full circle within ${show(length())} tokens; ` +
      `the slowest takes ${tokens(slowest)}.`;
  }

  function redraw() {
    if (busy) return;
    drawClocks();
    drawScore();
    strideSaid.textContent = `A step moves both by ${show(stride(length()))}.`;
    for (const [theta, made] of bases) made.setAttribute("aria-pressed", String(theta === model.get("theta")));
    const [query, key] = [model.get("query"), model.get("key")];
    const angle = (position, speed) => degrees(position * speed * 180 / Math.PI % 360);
    numbers({
      columns: ["pair", "radians a token", "tokens for a turn", "full circle", "query's angle", "key's angle", "apart",
        "cosine"],
      rows: all().map((speed, j) => [j, speed, wavelength(speed), wavelength(speed) <= length() ? "yes" : "no",
        angle(query, speed), angle(key, speed), degrees(between(query, key, speed)),
        Math.cos((query - key) * speed).toFixed(3)]),
    });
    w.say(sentence());
  }

  // Where the sliders end, by the length and the head size.
  function follow() {
    const ends = { query: length() - 1, key: length() - 1, first_pair: Math.max(0, all().length - MOST) };
    for (const [name, high] of Object.entries(ends)) {
      model.get("limits")[name].high = inputs[name].range.max = inputs[name].field.max = high;
      inputs[name].range.value = model.get(name);
    }
    inputs.first_pair.range.parentElement.style.display = ends.first_pair ? "" : "none";
    return ends;
  }

  // What is not possible is moved to the nearest that is, and said.
  function settle() {
    if (busy) return;
    busy = true;
    const said = [];
    const headSize = model.get("head_size");
    if (headSize % 2) {
      said.push(`The head size must be even, for pairs of channels: ${headSize + 1} is used in place of ${headSize}.`);
      w.put("head_size", headSize + 1);
    }
    for (const [name, high] of Object.entries(follow())) {
      const value = model.get(name);
      if (value <= high) continue;
      if (name in NAMES) {
        said.push(`The last position is ${show(high)}: ${NAMES[name]} is ${show(high)} in place of ${show(value)}.`);
      }
      w.put(name, high);
    }
    if (said.length) w.put("note", said.join(" "));
    busy = false;
    redraw();
  }

  w.on(["query", "key", "theta", "length", "head_size", "first_pair"], settle);
  settle();
  return w.destroy;
}

export default { render };
