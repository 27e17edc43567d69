import { clamp, frame, h, label, line, percent, s, show, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_classroom.widgets.splitter by the tests

export function collectiveDue(have, need) {
  if (have === need) return "";
  if (have === "partial") return need === "whole" ? "all-reduce" : "reduce-scatter";
  if (have === "whole") return "slice";
  return need === "whole" ? "all-gather" : "all-to-all";
}

const move = (tensor, have, need) => [tensor, have, need, collectiveDue(have, need)];

// How a product has to find its input, and how its result lies.
function read(tensor, have, cut, ends, mayStay = false) {
  if (cut !== "whole") return move(tensor, have, cut === "columns" ? "whole" : "columns");
  const stays = have === "whole" || have === "rows" || (have === "partial" && mayStay);
  return move(tensor, have, stays ? have : ends);
}
const made = (need, cut) => ({ columns: "columns", rows: "partial", whole: need })[cut];
const ofGradient = (layout) => (layout === "partial" ? "whole" : layout);

function backward([output, matrix, given], out, cut, input) {
  const moves = output ? [move(`d${output}`, out[2], ofGradient(out[1]))] : [];
  const isSum = cut === "whole" && input[2] !== "whole";
  moves.push(move(`d${matrix}`, isSum ? "partial" : cut, cut));
  const has = { columns: "partial", rows: "columns", whole: ofGradient(input[2]) }[cut];
  return [...moves, move(`d${given}`, has, ofGradient(input[1]))];
}

// All moves as [tensor, have, need, due]: forward x, h, y, then backward.
export function splitMoves(network, cutA, cutB, ends) {
  const x = read("x", ends, cutA, ends);
  const first = made(x[2], cutA);
  if (network === "single") {
    const y = move("y", first, ends);
    return [x, y, ...backward(["y", "A", "x"], y, cutA, x)];
  }
  const hidden = read("h", first, cutB, ends, network === "linear");
  const y = move("y", made(hidden[2], cutB), ends);
  return [x, hidden, y, ...backward(["y", "B", "h"], y, cutB, hidden), ...backward(["", "A", "x"], hidden, cutA, x)];
}

// Numbers of a tensor that a rank sends, as a share of all its numbers.
export function sentShare(due, ranks) {
  const once = (ranks - 1) / ranks;
  return { "all-gather": once, "reduce-scatter": once, "all-reduce": 2 * once, "all-to-all": once / ranks }[due] || 0;
}

export const moveBytes = (one, shape, ranks) => 2 * shape[0] * shape[1] * sentShare(one[3], ranks);

export function weightsShare(network, cutA, cutB, ranks) {
  const cuts = network === "single" ? [cutA] : [cutA, cutB];
  return cuts.reduce((sum, cut) => sum + (cut === "whole" ? 1 : 1 / ranks), 0) / cuts.length;
}

export function workShare(network, cutA, cutB, ends, ranks) {
  const moves = splitMoves(network, cutA, cutB, ends);
  const products = network === "single" ? [[moves[0], cutA]] : [[moves[0], cutA], [moves[1], cutB]];
  const shares = products.map(([input, cut]) => (cut !== "whole" || input[2] === "rows" ? 1 / ranks : 1));
  return shares.reduce((a, b) => a + b) / shares.length;
}

// --- the page

const CUTS = ["whole", "columns", "rows"];
const FORMULA = { single: "y = x A", linear: "y = (x A) B", mlp: "y = σ(x A) B" };
const SAYS = { whole: "whole on every rank", rows: "a share of the rows", columns: "a share of the columns",
  partial: "a summand of full size" };
const TIMES = { "all-gather": "(n−1)/n", "reduce-scatter": "(n−1)/n", "all-reduce": "2 (n−1)/n", "all-to-all": "(n−1)/n²" };
const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];
const size = (value) => {
  const [unit, name] = UNITS.find(([least]) => value >= least) || UNITS.at(-1);
  return `${show(Number((value / unit).toPrecision(3)), 3)} ${name}`;
};
const real = (one) => one[3] !== "" && one[3] !== "slice";
const [TOP, ROW, LEFT, FOOT] = [52, 44, 36, 20];

function render({ model, el }) {
  const w = frame({ model, el, title: "Cut two matrices, and see what has to be sent",
    primary: ["cut_a", "cut_b", "ranks"] });
  const networks = Object.keys(FORMULA);
  w.choice("network", "network", { options: networks, labels: Object.values(FORMULA) });
  w.choice("cut_a", "matrix A", { options: CUTS, labels: ["whole", "by columns", "by rows"] });
  const selectB = w.choice("cut_b", "matrix B", { options: CUTS, labels: ["whole", "by columns", "by rows"] });
  w.choice("ends", "x and y", { options: ["whole", "rows"], labels: ["whole on every rank", "cut by tokens (rows)"] });
  w.number("ranks", "ranks");
  w.number("tokens", "tokens", { log: true });
  w.number("width", "width of x and y", { log: true });
  w.number("hidden", "hidden units", { log: true });

  function now() {
    const [network, cutA, cutB, ends, ranks] = ["network", "cut_a", "cut_b", "ends", "ranks"].map((k) => model.get(k));
    const moves = splitMoves(network, cutA, cutB, ends);
    const [T, D, F] = ["tokens", "width", "hidden"].map((k) => model.get(k));
    const shapes = { x: [T, D], A: [D, network === "single" ? D : F], h: [T, F], B: [F, D], y: [T, D] };
    const letters = { x: "T × D", A: network === "single" ? "D × D" : "D × F", h: "T × F", B: "F × D", y: "T × D" };
    const count = network === "single" ? 2 : 3;
    const bytes = (one) => moveBytes(one, shapes[one[0].replace("d", "")], ranks);
    return { network, cutA, cutB, ends, ranks, moves, bytes, letters, forward: moves.slice(0, count),
      backward: moves.slice(count) };
  }

  // The columns of a picture: { name, layout, weight, before }, `before` the move that leads to it.
  function forwardColumns({ network, cutA, cutB, forward }) {
    const of = (one, name) => [{ name: one[1] === "partial" ? name : one[0], layout: one[1] },
      ...(one[3] ? [{ name: one[0], layout: one[2], before: one }] : [])];
    const [x, hidden] = forward;
    const start = [...of(x, "x"), { name: "A", layout: cutA, weight: true, sign: "·" }];
    const mark = (columns) => { columns[0].sign = "="; return columns; };
    if (network === "single") return [...start, ...mark(of(forward[1], "xA"))];
    return [...start, ...mark(of(hidden, "xA")), { name: "B", layout: cutB, weight: true, sign: "·" },
      ...mark(of(forward[2], "hB"))];
  }

  const backwardColumns = ({ backward: moves }) => moves.flatMap((one) => {
    const weight = "AB".includes(one[0][1]);
    return [{ name: one[0], layout: one[1], weight },
      ...(one[3] ? [{ name: one[0], layout: one[2], weight, before: one }] : [])];
  });

  function hatch(svg) {
    const id = uniqueId();
    svg.append(s("defs", {}, s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", class: "lc-5" },
      s("path", { d: "M-1 8 L8 -1 M-1 1 L1 -1 M6 8 L8 6", stroke: "currentColor", "stroke-width": 2.2 }))));
    return `url(#${id})`;
  }

  // The part of a box that rank r holds.
  function part(layout, r, n, x, y, wide, tall) {
    if (layout === "rows") return { x, y: y + (tall * r) / n, width: wide, height: tall / n };
    if (layout === "columns") return { x: x + (wide * r) / n, y, width: wide / n, height: tall };
    return { x, y, width: wide, height: tall };
  }

  const sends = (state, list) => list.filter(real).map((one) => `${one[3]} of ${one[0]}: ${size(state.bytes(one))}`);

  function draw(svg, wide, state, title, columns, list) {
    const { ranks } = state;
    const striped = hatch(svg);
    const step = (wide - LEFT - 4) / columns.length;
    const box = Math.min(64, 0.6 * step);
    const tall = ROW - 12;
    const bottom = TOP + ROW * ranks;
    const middle = (k) => LEFT + step * (k + 0.5);
    svg.append(label(0, 14, title, { style: "font-weight: 600" }), label(0, TOP - 12, "rank"));
    for (let r = 0; r < ranks; r++) svg.append(label(8, TOP + ROW * r + tall / 2 + 4, String(r)));
    columns.forEach((column, k) => {
      const x = middle(k) - box / 2;
      svg.append(label(middle(k), TOP - 12, column.name, { "text-anchor": "middle" }));
      for (let r = 0; r < ranks; r++) {
        const y = TOP + ROW * r;
        const fill = column.layout === "partial" ? striped : "currentColor";
        svg.append(s("rect", { ...part(column.layout, r, ranks, x, y, box, tall), fill,
          class: column.weight ? "lc-2" : "lc-1" }),
        s("rect", { x, y, width: box, height: tall, fill: "none", stroke: "var(--lc-text)", "stroke-width": 1 }));
        if (column.sign) {
          svg.append(label(middle(k) - step / 2, y + tall / 2 + 4, column.sign, { "text-anchor": "middle" }));
        }
      }
      if (!column.before) return;
      const at = middle(k) - step / 2;
      const sent = real(column.before);
      svg.append(line([[at, TOP - 2], [at, bottom - 8]], { stroke: "var(--lc-text)", "stroke-width": sent ? 3 : 1.5,
        "stroke-dasharray": sent ? "none" : "3 4" }));
      if (!sent) return;
      svg.append(s("circle", { cx: at, cy: TOP - 16, r: 9, fill: "var(--lc-text)" }),
        label(at, TOP - 12, String(list.filter(real).indexOf(column.before) + 1),
          { "text-anchor": "middle", style: "fill: var(--lc-back); font-weight: 700" }));
    });
    const said = sends(state, list);
    (said.length ? said.map((text, k) => `${k + 1}  ${text}`) : ["nothing is sent"]).forEach((text, k) =>
      svg.append(label(0, bottom + 12 + FOOT * k, text)));
    const held = columns.map(({ name, layout }) => `${name} ${SAYS[layout]}`).join(", ");
    return `${held}; ${said.join(", ") || "nothing is sent"}`;
  }

  // The product with whole tensors, every part in the colour of the rank that has it.  The cuts of A
  // and B are dragged: along the upper edge between columns, down the left edge between rows.
  const GAP = 30;
  const PARTS = { x: ["T", "D"], A: ["D", "F"], h: ["T", "F"], B: ["F", "D"], y: ["T", "D"] };
  let boxes = {}; // where the matrices lie
  const drawn = () => (model.get("network") === "single" ? ["x", "A", "y"] : ["x", "A", "h", "B", "y"]);
  function sizes(wide) {
    const length = { T: 100, D: 64, F: model.get("network") === "single" ? 64 : 116 };
    const all = drawn().reduce((sum, name) => sum + length[PARTS[name][1]], GAP * (drawn().length - 1));
    return { length, all, unit: Math.min(1.45, (wide - 16) / all) };
  }
  const drawCuts = w.stage((svg, wide) => {
    const state = now();
    const { ranks, forward } = state;
    const names = drawn();
    const { length, all, unit } = sizes(wide);
    const lies = { A: state.cutA, B: state.cutB };
    for (const one of forward) lies[one[0]] = one[1];
    lies.x = forward[0][2]; // as A finds it
    const marks = ["lc-1", "lc-2", "lc-3", "lc-4"];
    const striped = hatch(svg);
    let left = (wide - all * unit) / 2;
    const middle = 34 + 58 * unit;
    boxes = {};
    const due = (name) => forward.find((one) => one[0] === name && real(one));
    names.forEach((name, k) => {
      const [rows, columns] = PARTS[name];
      const [across, down] = [length[columns] * unit, length[rows] * unit];
      const [x, y] = [left, middle - down / 2];
      const lie = lies[name];
      boxes[name] = { x, y, across, down };
      const group = s("g", { "data-key": name });
      svg.append(group);
      group.append(label(x + across / 2, y - 18, name, { "text-anchor": "middle", style: "font-weight: 700" }));
      for (let r = 0; r < 4; r++) {
        const cut = lie === "rows" || lie === "columns";
        const strip = part(cut ? lie : "rows", Math.min(r, ranks), ranks, x, y, across, down);
        if (r >= ranks) strip[lie === "columns" ? "width" : "height"] = 0;
        group.append(s("rect", { ...strip, "data-key": `part ${r}`, fill: "currentColor", class: marks[r],
          opacity: cut ? 1 : lie === "whole" ? 0.28 : 0 }));
      }
      if (lie === "partial") group.append(s("rect", { x, y, width: across, height: down, fill: striped }));
      group.append(s("rect", { x, y, width: across, height: down, fill: "none", stroke: "var(--lc-text)",
        "stroke-width": 1.2, "data-key": "frame" }));
      const said = { whole: "all", partial: "Σ" }[lie];
      if (said) {
        group.append(s("circle", { cx: x + across / 2, cy: y + down / 2, r: 13, fill: "var(--lc-back)" }),
          label(x + across / 2, y + down / 2 + 4, said, { "text-anchor": "middle", style: "font-weight: 700" }));
      }
      const move = name === "x" ? null : due(name);
      if (move) {
        const text = wide < 420 ? move[3].replace("reduce-scatter", "red.-scatter") : move[3];
        svg.append(label(clamp(x + across / 2, 3.6 * text.length, wide - 3.6 * text.length), y + down + 18, text,
          { "text-anchor": "middle", style: "fill: var(--lc-5); font-weight: 700" }));
      }
      const sign = ["·", "=", "·", "="][k];
      left += across + GAP * unit;
      if (k + 1 < names.length) svg.append(label(left - GAP * unit / 2, middle + 4, sign, { "text-anchor": "middle" }));
    });
    return `${names.map((name) => `${name} ${SAYS[lies[name]]}`).join(", ")}; ` +
      `${forward.filter(real).map((one) => `${one[0]} is due an ${one[3]}`).join(", ") || "nothing is due"}`;
  }, { height: (wide) => 62 + 116 * sizes(wide).unit, label: "the product, every part in the colour of its rank" });
  const ORDER = ["rows", "whole", "columns"];
  for (const [name, matrix] of [["cut_a", "A"], ["cut_b", "B"]]) {
    const put = (option) => w.put(name, option);
    const cut = {
      label: `cut of ${matrix}`,
      step: (times) => put(ORDER[clamp(ORDER.indexOf(model.get(name)) + times, 0, 2)]),
      set: put,
      now: () => ({ low: 0, high: 2, value: ORDER.indexOf(model.get(name)),
        text: { rows: "by rows", whole: "whole", columns: "by columns" }[model.get(name)] }),
    };
    drawCuts.handle({ x: cut, at: () => {
      const box = boxes[matrix];
      if (!box) return null;
      const share = 1 / model.get("ranks");
      return [box.x + (model.get(name) === "columns" ? share * box.across : 0),
        box.y + (model.get(name) === "rows" ? share * box.down : 0)];
    },
    to: ([x, y]) => {
      const box = boxes[matrix];
      const [right, down] = [(x - box.x) / box.across, (y - box.y) / box.down];
      return Math.max(right, down) < 0.16 ? "whole" : right > down ? "columns" : "rows";
    } });
  }
  w.stages.append(h("p", {}, "Drag the round handle of A or B along its edge: a colour is a rank. Pale: every rank has all. " +
    "Σ: every rank has a summand."));

  const height = (which) => () => TOP + ROW * model.get("ranks") + FOOT * Math.max(1, now()[which].filter(real).length) + 2;
  const drawForward = w.stage((svg, wide) => {
    const state = now();
    return draw(svg, wide, state, `forward, ${FORMULA[state.network]}`, forwardColumns(state), state.forward);
  }, { height: height("forward"), label: "forward pass" });
  const drawBackward = w.stage((svg, wide) => {
    const state = now();
    return draw(svg, wide, state, "backward, gradients from y to x", backwardColumns(state), state.backward);
  }, { height: height("backward"), label: "backward pass" });
  const drawKey = w.stage((svg, wide) => {
    const striped = hatch(svg);
    const items = [["lc-1", "currentColor", "what a rank holds"], ["lc-2", "currentColor", "of the weights"],
      ["lc-5", striped, "a summand: the ranks' add up"]];
    let [x, y] = [0, 12];
    for (const [mark, fill, text] of items) {
      const room = 30 + 6.6 * text.length;
      if (x + room > wide) [x, y] = [0, y + 20];
      svg.append(s("rect", { x, y: y - 10, width: 14, height: 13, fill, class: mark }), label(x + 19, y + 1, text));
      x += room;
    }
    return items.map(([, , text]) => text).join(", ");
  }, { height: (wide) => (wide < 330 ? 58 : wide < 480 ? 38 : 18), label: "key" });

  const each = w.table("Every tensor: how it lies, how it is needed, what is sent");
  const all = w.table("All cuts of this network");

  const counted = (list) => {
    const names = list.filter(real).map((one) => `${one[3]} of ${one[0]}`);
    return names.length ? names.join(", ") : "nothing";
  };
  const total = (state, list = state.moves) => list.reduce((sum, one) => sum + state.bytes(one), 0);

  function why({ network, cutA, cutB, ends, forward, moves }) {
    const hidden = network === "single" ? null : forward[1];
    const pair = hidden && cutA === "columns" && cutB === "rows";
    if (pair && ends === "whole") return " The columns of h that a rank makes are those that its rows of B need: nothing is sent between.";
    if (pair) return " That is sequence parallelism: in each pass an all-gather and a reduce-scatter, together the bytes of an all-reduce.";
    if (hidden && hidden[1] === "partial") {
      if (network === "mlp") return " σ(a + b) is not σ(a) + σ(b): the summands of h are added before σ.";
      return cutB === "whole" ? " Without σ the sum can wait until the end. Every rank then has a summand of the gradient of B, too."
        : " The cut of B asks for sums, so the summands of h are added first.";
    }
    if (moves.some((one) => "AB".includes(one[0][1]) && one[3])) {
      return " A whole matrix meets other tokens on every rank, so its gradient is summed: that is data parallelism.";
    }
    if (moves.every((one) => !real(one))) return " Every rank has all weights and does all the work.";
    return "";
  }

  function sentence(state) {
    const { network, cutA, cutB, ends, ranks } = state;
    const by = { whole: "whole", columns: "by columns", rows: "by rows" };
    const cuts = network === "single" ? `A ${by[cutA]}` : `A ${by[cutA]}, B ${by[cutB]}`;
    return `${cuts}, ${ranks} ranks. Forward: ${counted(state.forward)}. Backward: ${counted(state.backward)}. ` +
      `A rank sends ${size(total(state))}, holds ${percent(weightsShare(network, cutA, cutB, ranks))} of the weights and ` +
      `makes ${percent(workShare(network, cutA, cutB, ends, ranks))} of the multiplications.${why(state)}`;
  }

  function redraw() {
    const state = now();
    selectB.disabled = state.network === "single";
    drawCuts();
    drawForward();
    drawBackward();
    each({ columns: ["tensor", "pass", "lies", "needed", "due", "formula", "bytes a rank sends"],
      rows: state.moves.map((one) => [one[0], state.forward.includes(one) ? "forward" : "backward", SAYS[one[1]],
        SAYS[one[2]], one[3] === "slice" ? "slice, nothing sent" : one[3] || "nothing",
        real(one) ? `${TIMES[one[3]]} × ${state.letters[one[0].replace("d", "")]} × 2` : "0",
        Math.round(state.bytes(one)).toLocaleString("en-US")]) });
    const pairs = CUTS.flatMap((a) => (state.network === "single" ? [[a, "whole"]] : CUTS.map((b) => [a, b])));
    all({ columns: ["A", ...(state.network === "single" ? [] : ["B"]), "forward", "backward", "a rank sends",
      "of the weights", "of the work"],
    rows: pairs.map(([a, b]) => {
      const moves = splitMoves(state.network, a, b, state.ends);
      const count = state.forward.length;
      return [a, ...(state.network === "single" ? [] : [b]), counted(moves.slice(0, count)), counted(moves.slice(count)),
        size(total(state, moves)), percent(weightsShare(state.network, a, b, state.ranks)),
        percent(workShare(state.network, a, b, state.ends, state.ranks))];
    }) });
    w.say(sentence(state));
  }
  drawKey();
  w.on(["network", "cut_a", "cut_b", "ends", "ranks", "tokens", "width", "hidden"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
