import { frame, label, s, show } from "./kit.js";

// --- arithmetic, compared with llmcourse.backward.autodiff by the tests

// An operation: its value from the values of its inputs, and its local slopes.
const BINARY = {
  "+": { value: (a, b) => a + b, slopes: () => [1, 1] },
  "−": { value: (a, b) => a - b, slopes: () => [1, -1] },
  "×": { value: (a, b) => a * b, slopes: (a, b) => [b, a] },
  "÷": { value: (a, b) => a / b, slopes: (a, b) => [1 / b, -a / (b * b)] },
  "^": { value: (a, b) => a ** b, slopes: (a, b) => [b ? b * a ** (b - 1) : 0] },
};
const FUNCTIONS = {
  exp: { value: Math.exp, slopes: (a) => [Math.exp(a)] },
  log: { value: Math.log, slopes: (a) => [1 / a] },
  tanh: { value: Math.tanh, slopes: (a) => [1 - Math.tanh(a) ** 2] },
  relu: { value: (a) => Math.max(0, a), slopes: (a) => [a > 0 ? 1 : 0] },
};
const SIGN = { "*": "×", "/": "÷", "-": "−" };
const MOST_NODES = 24;
const MOST_PASSES = 300;

function tokens(text) {
  const found = text.match(/\s+|\*\*|[-+*/()=;]|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[A-Za-z_]\w*|./g) || [];
  return found.flatMap((t) => (/\n/.test(t) && /^\s+$/.test(t) ? [";"] : /^\s+$/.test(t) ? [] : [t]));
}

// The graph of "a = 3; b = a + a": a list of nodes, each after its inputs, the result last.  What
// the result does not depend on is left out.  A number in a formula is part of its operation.
// Throws an Error that says in words what is wrong.
export function graphOf(text) {
  const list = tokens(text);
  const names = new Map();
  const nodes = [];
  let at = 0;
  const fail = (why) => { throw new Error(why); };
  const next = (wanted) => list[at] === wanted && Boolean(++at);
  const here = () => (at < list.length ? `before “${list[at]}”` : "at the end");
  const need = (wanted) => next(wanted) || fail(`“${wanted}” is missing ${here()}`);

  // A node for an operation; numbers alone are computed at once and stay numbers.
  function made(op, rule, operands) {
    const numbers = operands.map((x) => (typeof x === "number" ? x : x.value));
    const value = rule.value(...numbers);
    if (!Number.isFinite(value)) fail(`${op} of ${numbers.map((x) => show(x)).join(" and ")} is not a number`);
    const slopes = rule.slopes(...numbers);
    const inputs = operands.filter((x) => typeof x !== "number");
    if (!inputs.length) return value;
    const node = {
      name: "", op, value, inputs, slopes: slopes.filter((_, i) => typeof operands[i] !== "number"),
      text: operands.length > 1 ? operands.map(shown).join(` ${op} `) : `${op}(${inputs[0].name || inputs[0].text})`,
    };
    nodes.push(node);
    if (nodes.length > MOST_NODES) fail(`at most ${MOST_NODES} values, please`);
    return node;
  }
  const shown = (x) => (typeof x === "number" ? show(x) : x.name || `(${x.text})`);

  function atom() {
    const token = list[at++];
    if (token === undefined) fail("something is missing at the end");
    if (token === "(") {
      const inner = sum();
      need(")");
      return inner;
    }
    if (/^[\d.]/.test(token)) return Number(token);
    if (token in FUNCTIONS && list[at] === "(") {
      need("(");
      const inner = sum();
      need(")");
      return made(token, FUNCTIONS[token], [inner]);
    }
    if (!/^[A-Za-z_]/.test(token)) return fail(`“${token}” is not expected here`);
    return names.has(token) ? names.get(token) : fail(`“${token}” has no value yet`);
  }
  function power() {
    const base = atom();
    if (!next("**")) return base;
    const exponent = signed();
    if (typeof exponent !== "number") fail("an exponent must be a number");
    return made("^", BINARY["^"], [base, exponent]);
  }
  function signed() {
    if (next("-")) {
      const inner = signed();
      return typeof inner === "number" ? -inner : made("×", BINARY["×"], [-1, inner]);
    }
    return power();
  }
  function chain(signs, part) {
    let left = part();
    while (signs.includes(list[at])) {
      const op = SIGN[list[at]] || list[at];
      at += 1;
      left = made(op, BINARY[op], [left, part()]);
    }
    return left;
  }
  const products = () => chain(["*", "/"], signed);
  const sum = () => chain(["+", "-"], products);

  let result = null;
  while (at < list.length) {
    if (next(";")) continue;
    const name = list[at++];
    if (!/^[A-Za-z_]/.test(name) || name in FUNCTIONS) fail(`“${name}” cannot be a name`);
    if (names.has(name)) fail(`“${name}” is given twice`);
    need("=");
    let node = sum();
    if (at < list.length && list[at] !== ";") fail(`“${list[at]}” is not expected here`);
    if (typeof node === "number") {
      node = { name, op: "", value: node, inputs: [], slopes: [], text: show(node) };
      nodes.push(node);
      if (nodes.length > MOST_NODES) fail(`at most ${MOST_NODES} values, please`);
    } else if (!node.name) node.name = name;
    names.set(name, node);
    result = node;
  }
  if (!result) fail("write a formula, such as a = 3; b = a + a");
  return reached(nodes, result);
}

// The nodes that the result depends on, with numbers for their inputs.
function reached(nodes, result) {
  const needed = new Set();
  const walk = (node) => { needed.add(node); node.inputs.forEach((given) => needed.has(given) || walk(given)); };
  walk(result);
  const kept = nodes.filter((node) => needed.has(node));
  return kept.map((node) => ({ ...node, inputs: node.inputs.map((given) => kept.indexOf(given)) }));
}

// Every step, in order: a value is computed, the result's gradient is set to 1, a gradient passes
// along an arrow.  In order: a node passes on when its turn comes, from the result back.  Without:
// whatever has something passes it on at once, each time something arrives.
export function stepsOf(nodes, withoutOrder) {
  const steps = nodes.map((_, node) => ({ kind: "value", node }));
  const last = nodes.length - 1;
  steps.push({ kind: "seed", node: last });
  const gradients = nodes.map((_, i) => (i === last ? 1 : 0));
  let passes = 0;
  function pass(from, arrow) {
    const to = nodes[from].inputs[arrow];
    const slope = nodes[from].slopes[arrow];
    const amount = slope * gradients[from];
    gradients[to] += amount;
    steps.push({ kind: "pass", from, arrow, to, slope, sent: gradients[from], amount, now: gradients[to] });
    return to;
  }
  function atOnce(node) {
    nodes[node].inputs.forEach((_, arrow) => {
      if (passes++ < MOST_PASSES) atOnce(pass(node, arrow));
    });
  }
  if (withoutOrder) atOnce(last);
  else for (let node = last; node >= 0; node--) nodes[node].inputs.forEach((_, arrow) => pass(node, arrow));
  return { steps, cut: passes > MOST_PASSES };
}

// What is known after the first `count` steps.
export function after(nodes, steps, count) {
  const state = {
    known: nodes.map(() => false), gradients: nodes.map(() => 0), arrived: nodes.map(() => 0), passed: [],
  };
  for (const step of steps.slice(0, count)) {
    if (step.kind === "value") state.known[step.node] = true;
    if (step.kind === "seed") state.gradients[step.node] = 1;
    if (step.kind === "pass") {
      state.gradients[step.to] = step.now;
      state.arrived[step.to] += 1;
      state.passed.push(`${step.from}:${step.arrow}`);
    }
  }
  return state;
}

// Values and gradients at the end, by name.
export function outcome(text, withoutOrder) {
  const nodes = graphOf(text);
  const { steps } = stepsOf(nodes, withoutOrder);
  const { gradients } = after(nodes, steps, steps.length);
  return nodes.map((node, i) => [node.name, node.value, gradients[i]]).filter(([name]) => name);
}

// How many arrows leave each node, towards what uses it.
export const usesOf = (nodes) => nodes.map((_, i) => nodes.flatMap((n) => n.inputs).filter((g) => g === i).length);

// The place of each node: how many arrows it is from the leaves at most, and its lane there.
export function places(nodes) {
  const depth = [];
  nodes.forEach(({ inputs }, i) => { depth[i] = inputs.length ? 1 + Math.max(...inputs.map((g) => depth[g])) : 0; });
  // A leaf stands next to the first node that uses it.
  nodes.forEach((node, i) => {
    if (!node.inputs.length) {
      const users = depth.filter((_, user) => nodes[user].inputs.includes(i));
      if (users.length) depth[i] = Math.min(...users) - 1;
    }
  });
  const lanes = [];
  nodes.forEach((_, i) => { (lanes[depth[i]] ||= []).push(i); });
  const widest = Math.max(...lanes.map((lane) => lane.length));
  const centred = nodes.map((_, i) => lanes[depth[i]].indexOf(i) + (widest - lanes[depth[i]].length) / 2);
  return { depth, lane: centred, levels: lanes.length, widest };
}

// --- the page

const TALL = 68;
const GUTTER = 40; // room beside an upright picture for arrows that skip
const PAPER = "var(--pst-color-background, var(--jp-layout-color1, #fff))";
const LETTER = 7.2; // of a bold text
const HALO = `paint-order: stroke; stroke: ${PAPER}; stroke-width: 3px`;

// Where boxes and arrows are.  Wide pictures run from left to right, narrow ones from top to bottom.
function layout(nodes, width) {
  const at = places(nodes);
  const down = width < 110 * at.levels;
  const skips = nodes.some((node, user) => node.inputs.some((given) => at.depth[user] - at.depth[given] > 1));
  const left = down && skips ? GUTTER : 0;
  const pitch = [(width - left) / (down ? at.widest : at.levels), TALL + (down ? 46 : 44)];
  const wide = Math.min(104, pitch[0] - 10);
  const middle = nodes.map((_, i) => [
    left + pitch[0] * ((down ? at.lane[i] : at.depth[i]) + 0.5), pitch[1] * ((down ? at.depth[i] : at.lane[i]) + 0.5)]);
  const arrows = nodes.flatMap((node, user) => node.inputs.map((given, arrow) => {
    const twins = node.inputs.filter((g) => g === given).length > 1;
    let turn = twins ? (node.inputs.slice(0, arrow).includes(given) ? 1 : -1) : 0;
    const [start, end] = [middle[given], middle[user]];
    const from = down ? [start[0] + turn * 10, start[1] + TALL / 2] : [start[0] + wide / 2, start[1] + turn * 10];
    const to = down ? [end[0] + turn * 10, end[1] - TALL / 2] : [end[0] - wide / 2, end[1] + turn * 10];
    const knee = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
    const across = down ? 0 : 1; // the coordinate in which an arrow bends
    const between = middle.filter((_, i) => at.depth[given] < at.depth[i] && at.depth[i] < at.depth[user]);
    if (between.length) { // around everything that lies between
      const clear = Math.min(...between.map((m) => m[across])) - (down ? wide / 2 + 12 : TALL / 2 + 26);
      knee[across] = 2 * clear - knee[across];
      turn = -1;
    } else knee[across] += turn * 32;
    return { user, arrow, from, knee, to, turn };
  }));
  // The highest point of a bend is halfway to its knee.
  const bends = arrows.map(({ from, knee, to }) => from[1] / 4 + knee[1] / 2 + to[1] / 4);
  const tops = [...middle.map(([, y]) => y - TALL / 2), ...bends];
  const lift = 18 - Math.min(...tops);
  for (const point of [...middle, ...arrows.flatMap((a) => [a.from, a.knee, a.to])]) point[1] += lift;
  return { down, wide, middle, arrows, height: Math.max(...middle.map(([, y]) => y)) + TALL / 2 + 18 };
}

// The height nearest to the wanted one at which a text crosses none of the frames, [left, top, right, bottom].
function freeHeight(text, { x, y, anchor, frames, lowest, first }) {
  const long = text.length * LETTER;
  const left = x - { start: 0, middle: long / 2, end: long }[anchor];
  const free = (at) => at >= 12 && at <= lowest && frames.every((frame) =>
    left + long < frame[0] - 2 || left > frame[2] + 2 || at + 4 < frame[1] - 2 || at - 10 > frame[3] + 2);
  for (let by = 0; by < TALL; by++) for (const side of [first, -first]) if (free(y + side * by)) return y + side * by;
  return y;
}

function render({ model, el }) {
  const w = frame({ model, el, title: "Forward with values, backward with gradients" });
  let nodes = [];
  let steps = [];
  let cut = false;
  let right = [];
  let problem = "";

  const examples = model.get("examples");
  w.choice("example", "example", {
    options: examples.map(([name]) => name),
    onset: () => w.put("expression", examples.find(([name]) => name === model.get("example"))[1]),
  });
  w.text("expression", "program: names, numbers, + − * / **, exp, log, tanh, relu; the last line is the result");
  w.toggle("without_order", "without order: at each arrival, pass on all that has gathered");
  const slider = w.number("step", "step");
  const go = (by) => {
    const to = Math.min(steps.length, Math.max(0, model.get("step") + by));
    w.put("step", to);
    return to < steps.length;
  };
  w.button("Back", () => go(-1));
  w.player({
    step: () => go(1),
    reset: () => w.put("step", 0),
    perSecond: 0.9,
    longest: 400,
  });

  const name = (i) => nodes[i].name || nodes[i].text;
  const count = () => Math.min(model.get("step"), steps.length);
  const now = () => after(nodes, steps, count());
  const inWords = (n, all) => (all === 1 ? "its only arrow" : `${n} of ${all} arrows`);

  function sentence() {
    if (problem) return problem;
    const done = count();
    if (!done) return `${steps.length} steps: ${nodes.length} values forward, then gradients backward.`;
    const step = steps[done - 1];
    const where = `Step ${done} of ${steps.length}. `;
    if (step.kind === "value") {
      const node = nodes[step.node];
      const slopes = node.inputs.map((g, i) => `${show(node.slopes[i])} by ${name(g)}`).join(", ");
      const formula = node.name ? `${node.name} = ${node.text}` : node.text;
      return `${where}Forward: ${formula}${slopes ? ` = ${show(node.value)}. Local slopes: ${slopes}.` : "."}`;
    }
    if (step.kind === "seed") return `${where}Backward begins: the result ${name(step.node)} has gradient 1 by itself.`;
    const uses = usesOf(nodes)[step.to];
    const state = now();
    const came = state.arrived[step.to];
    const passing = `${where}${name(step.from)} passes slope ${show(step.slope)} × gradient ${show(step.sent)} = ` +
      `${show(step.amount)} to ${name(step.to)}, which now has ${show(step.now)}`;
    const end = done === steps.length ? ` ${verdict(state)}` : "";
    if (!model.get("without_order")) {
      const full = came === uses ? ": its sum is complete." : `: ${inWords(came, uses)}, so it waits.`;
      return `${passing}${full}${end}`;
    }
    const early = came < uses && nodes[step.to].inputs.length ? " and passes it on at once, too early" : "";
    const often = came > uses ? `; ${came} arrivals along ${uses} arrow${uses > 1 ? "s" : ""}` : "";
    return `${passing}${early}${often}.${end}`;
  }

  function verdict(state) {
    const leaves = nodes.map((_, i) => i).filter((i) => !nodes[i].inputs.length);
    const close = (i) => Math.abs(state.gradients[i] - right[i]) <= 1e-9 * Math.max(1, Math.abs(right[i]));
    const wrong = leaves.filter((i) => !close(i));
    const all = leaves.map((i) => `${name(i)} ${show(state.gradients[i])}`).join(", ");
    if (cut) return `Stopped after ${MOST_PASSES} passes: without order there is one for every path, and then some.`;
    if (!wrong.length) {
      return `Done: ${all}.${model.get("without_order") ? " Right this time: no value between was used twice." : ""}`;
    }
    const each = wrong.map((i) => `${name(i)} has ${show(state.gradients[i])}, right is ${show(right[i])}`);
    return `Done, and wrong: ${each.join("; ")}.`;
  }

  // A number on its way: along an arrow (values), or against it (gradients).
  const traveller = (number, { from, knee, to }, { back = false, mark, part }) => {
    const text = show(number, 3);
    const long = Math.max(22, 7 * text.length + 10);
    const turns = Array.from({ length: 17 }, (_, i) => (back ? 16 - i : i) / 16);
    const at = (u) => [0, 1].map((k) => (1 - u) ** 2 * from[k] + 2 * u * (1 - u) * knee[k] + u * u * to[k]);
    const [first, last] = part;
    const way = turns.slice(Math.round(16 * first), Math.round(16 * last) + 1).map((u) => at(u).map((x) => x.toFixed(1)).join(","));
    const [begin, end] = [first, last].map((share) => 0.85 * share);
    return s("g", { class: "gs-travels", "data-way": way.join(" "), "data-while": `${begin} ${end}`, "data-gone": true },
      s("rect", { x: -long / 2, y: -11, width: long, height: 22, rx: 11, fill: "currentColor", class: mark, stroke: PAPER }),
      label(0, 4, text, { "text-anchor": "middle", style: "font-weight: 700; fill: var(--lc-on)" }));
  };

  let drawn = 0; // the step that was drawn last
  let went = null; // what has just been done, one step on
  const draw = w.stage((svg, width) => {
    went = count() === drawn + 1 && !problem ? steps[count() - 1] : null;
    drawn = count();
    if (problem) {
      svg.append(label(4, 20, "no graph"));
      return problem;
    }
    const state = now();
    const uses = usesOf(nodes);
    const { down, wide, middle, arrows, height } = layout(nodes, width);
    const frames = middle.map(([x, y]) => [x - wide / 2, y - TALL / 2, x + wide / 2, y + TALL / 2]);
    const active = count() ? steps[count() - 1] : null;
    const size = wide < 66 ? "font-size: 9px; " : "";

    const words = s("g", { class: "gs-words" });
    arrows.forEach(({ user, arrow, from, knee, to, turn }) => {
      const known = state.known[user];
      const lit = active?.kind === "pass" && active.from === user && active.arrow === arrow;
      const went = state.passed.includes(`${user}:${arrow}`);
      // Values run along the arrow.  A gradient that passes runs against it.
      const [tip, behind] = lit ? [from, knee] : [to, knee];
      const aim = Math.atan2(tip[1] - behind[1], tip[0] - behind[0]);
      const wing = (side) => [tip[0] - 9 * Math.cos(aim + side * 0.45), tip[1] - 9 * Math.sin(aim + side * 0.45)];
      svg.append(s("path", {
        "data-key": `${user} ${arrow} ${lit}`, d: `M${from} Q${knee} ${to} M${wing(1)} L${tip} L${wing(-1)}`, fill: "none",
        stroke: lit ? "currentColor" : "var(--lc-line)", "stroke-width": lit ? 4 : went ? 2.4 : 1.3,
        class: lit ? "lc-2" : null, "stroke-dasharray": known ? null : "3 3",
      }));
      if (!known) return;
      const slope = show(nodes[user].slopes[arrow], 3);
      const half = [0, 1].map((i) => from[i] / 4 + knee[i] / 2 + to[i] / 4);
      const shift = down ? [turn < 0 ? -5 : 5, 4] : [0, turn > 0 ? 15 : -5];
      const text = lit ? `${slope} × ${show(active.sent, 3)}` : slope;
      const anchor = down ? (turn < 0 ? "end" : "start") : "middle";
      const x = half[0] + shift[0];
      const y = freeHeight(text, { x, y: half[1] + shift[1], anchor, frames, lowest: height - 4, first: turn > 0 ? 1 : -1 });
      words.append(label(x, y, text, { "text-anchor": anchor, "font-weight": lit ? 700 : 400, style: HALO }));
    });

    // A node after so many steps.
    function box(i, done, { state, active }, time) {
      const node = nodes[i];
      const [x, y] = middle[i];
      const complete = state.gradients[i] !== 0 && state.arrived[i] >= uses[i];
      const started = state.arrived[i] > 0 || (i === nodes.length - 1 && done > nodes.length);
      const over = state.arrived[i] > uses[i];
      const touched = active && (active.node === i || active.to === i);
      const title = node.name || (node.inputs.length === 1 ? node.text : node.op);
      const room = Math.floor(wide / (size ? 5.2 : 6.7));
      const brief = title.length > room ? `${title.slice(0, room - 1)}…` : title;
      // What comes later is added to what was there.
      const sum = active?.to === i && state.arrived[i] > 1
        ? `${show(active.now - active.amount, 3)} + ${show(active.amount, 3)} = ${show(active.now, 3)}` : "";
      const gradient = sum && sum.length <= room ? sum : `grad ${show(state.gradients[i], 3)}`;
      const came = `${state.arrived[i]} of ${uses[i]}${over ? "!" : ""}${size ? "" : " came"}`;
      const middling = { "text-anchor": "middle", style: size };
      return s("g", { class: "gs-node", ...time },
        s("rect", {
          x: x - wide / 2, y: y - TALL / 2, width: wide, height: TALL, rx: 7,
          fill: PAPER,
          stroke: started ? "currentColor" : state.known[i] ? "var(--lc-text)" : "var(--lc-line)",
          class: over ? "lc-5" : complete ? "lc-3" : started ? "lc-2" : null,
          "stroke-width": touched ? 4 : 1.6,
          "stroke-dasharray": !state.known[i] ? "3 3" : started && !complete ? "6 3" : null,
        }),
        label(x, y - 19, brief, { ...middling, "font-weight": 700 }),
        label(x, y - 4, state.known[i] ? show(node.value, 3) : "?", middling),
        label(x, y + 12, started ? gradient : "grad –", middling),
        uses[i] && done > nodes.length
          ? label(x, y + 27, came, { "text-anchor": "middle", style: `${size}fill: var(--lc-muted)` }) : null);
    }
    const changes = went && (went.to ?? went.node);
    const before = { state: after(nodes, steps, count() - 1), active: null };
    nodes.forEach((_, i) => {
      if (i !== changes) return svg.append(box(i, count(), { state, active }, { "data-key": `node ${i}` }));
      // It changes when what travels has come.
      svg.append(box(i, count() - 1, before, { "data-while": "0.8 0.9", "data-gone": true }),
        box(i, count(), { state, active }, { "data-while": "0.8 0.9" }));
    });
    svg.append(words);
    // A gradient sets out as it was, and is multiplied by the slope half-way.
    const ways = arrows.filter(({ user, arrow }) => (went?.kind === "value" && user === went.node) ||
      (went?.kind === "pass" && user === went.from && arrow === went.arrow));
    for (const each of ways) {
      if (went.kind === "value") {
        svg.append(traveller(nodes[nodes[each.user].inputs[each.arrow]].value, each, { mark: "lc-1", part: [0, 1] }));
      } else {
        svg.append(traveller(went.sent, each, { back: true, mark: "lc-2", part: [0, 0.5] }),
          traveller(went.amount, each, { back: true, mark: "lc-2", part: [0.5, 1] }));
      }
    }
    return `${sentence()} Values and gradients: ${nodes.map((_, i) =>
      `${name(i)} ${state.known[i] ? show(nodes[i].value) : "unknown"}, ${show(state.gradients[i])}`).join("; ")}.`;
  }, {
    height: (width) => (problem ? 40 : layout(nodes, width).height),
    label: "graph of the program",
    lasts: () => (went?.kind === "pass" ? 5 : went && nodes[went.node].inputs.length ? 4 : 1),
  });
  const numbers = w.table("The numbers of the graph");

  function redraw() {
    draw();
    const state = problem ? null : now();
    const uses = usesOf(nodes);
    numbers({
      columns: ["value", "program", "is", "gradient so far", "arrivals", "right gradient"],
      rows: problem ? [] : nodes.map((node, i) => [name(i), node.text, state.known[i] ? node.value : "?",
        state.gradients[i], `${state.arrived[i]} of ${uses[i]}`, right[i]]),
    });
    w.say(sentence());
  }

  // The program or the order changed: new steps.  The slider ends where they do.
  function renew() {
    try {
      nodes = graphOf(model.get("expression"));
      problem = "";
    } catch (error) {
      nodes = [];
      problem = `The program cannot be read: ${error.message}.`;
    }
    const made = nodes.length ? stepsOf(nodes, model.get("without_order")) : { steps: [], cut: false };
    ({ steps, cut } = made);
    const ordered = nodes.length ? stepsOf(nodes, false).steps : [];
    right = after(nodes, ordered, ordered.length).gradients;
    model.get("limits").step.high = slider.range.max = slider.field.max = steps.length;
    if (model.get("step") > steps.length) w.put("step", steps.length);
    slider.range.value = model.get("step");
    redraw();
  }
  // A new program begins with its leaves; a new order keeps the values and starts the way back anew.
  w.on(["expression"], () => { model.set("note", ""); w.put("step", 0); renew(); });
  w.on(["without_order"], () => { if (model.get("step") > nodes.length) w.put("step", nodes.length); renew(); });
  w.on(["step"], () => {
    if (model.get("step") > steps.length) w.putNumber("step", "step", model.get("step"));
    else redraw();
  });
  renew();
  return w.destroy;
}

export default { render };
