import { clamp, frame, h, label, listed, percent, s, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.backward.backprop, llmcourse.model and llmcourse_labs.scale.cost by the tests

// Statistics of a row stay in float32 whatever the other numbers are.
const FLOAT32 = 4;

// The boxes of a block in the order of the forward pass.  `keeps` lists what each leaves on the
// tape; a tensor that an earlier box has left there already is `shared`.
export function boxes({ width, num_heads, num_kv_heads, head_size, hidden, batch, tokens, keeps }) {
  const [B, T, D, F, H, G, K] = [batch, tokens, width, hidden, num_heads, num_kv_heads, head_size];
  const sizes = { B, T, D, F, H, G, K, S: T, 1: 1, HK: H * K, GK: G * K };
  const of = (name, letters, more) => ({ name, letters, dims: letters.split(" ").map((each) => sizes[each]), ...more });
  const shared = { shared: true };
  const exact = { float32: true };
  const pairs = (T * (T + 1)) / 2;
  const product = 2 * B * H * K * pairs;
  const linear = (rows, columns) => ({ forward: 2 * B * T * rows * columns, backward: 4 * B * T * rows * columns });
  const all = keeps === "all weights";
  const nothing = { forward: 0, backward: 0 };
  const norm = (id, from) => ({
    id, comes: [of(from, "B T D")], goes: [of("n", "B T D")], weights: [of(`${id}.gain`, "D")],
    keeps: [of(from, "B T D"), of("1/r", "B T 1", exact)], flop: nothing,
  });
  const projection = (id, to, heads, more) => ({
    id, comes: [of("n", "B T D")], goes: [of(to, `B T ${heads} K`)], weights: [of(`attention.w_${to}`, `${heads}K D`)],
    keeps: [of("n", "B T D", more)], flop: linear(sizes[heads] * K, D),
  });
  const add = (id, from, to) => ({
    id, comes: [of(from, "B T D"), of("y", "B T D")], goes: [of(to, "B T D")], weights: [], keeps: [], flop: nothing,
  });
  const rise = (id, to, weight, more) => ({
    id, comes: [of("n", "B T D")], goes: [of(to, "B T F")], weights: [of(`feed_forward.${weight}`, "F D")],
    keeps: [of("n", "B T D", more)], flop: linear(F, D),
  });
  return [
    norm("attention_norm", "x"),
    projection("query", "q", "H", {}),
    projection("key", "k", "G", shared),
    projection("value", "v", "G", shared),
    { id: "rope", comes: [of("q", "B T H K"), of("k", "B T G K")], goes: [of("q", "B T H K"), of("k", "B T G K")],
      weights: [], keeps: [], flop: nothing },
    { id: "attention", comes: [of("q", "B T H K"), of("k", "B T G K"), of("v", "B T G K")],
      goes: [of("out", "B T H K")], weights: [],
      keeps: [of("q", "B T H K"), of("k", "B T G K"), of("v", "B T G K"),
        ...(all ? [of("P", "B H T S")] : [of("out", "B T H K"), of("L", "B H T", exact)])],
      flop: { forward: 2 * product, backward: (all ? 4 : 5) * product } },
    { id: "output", comes: [of("out", "B T H K")], goes: [of("y", "B T D")], weights: [of("attention.w_o", "D HK")],
      keeps: [of("out", "B T H K", { shared: !all })], flop: linear(D, H * K) },
    add("first_sum", "x", "x′"),
    norm("feed_forward_norm", "x′"),
    rise("gate", "g", "w_gate", {}),
    rise("up", "u", "w_up", shared),
    { id: "silu", comes: [of("g", "B T F"), of("u", "B T F")], goes: [of("h", "B T F")], weights: [],
      keeps: [of("g", "B T F"), of("u", "B T F")], flop: nothing },
    { id: "down", comes: [of("h", "B T F")], goes: [of("y", "B T D")], weights: [of("feed_forward.w_down", "D F")],
      keeps: [of("h", "B T F")], flop: linear(D, F) },
    add("second_sum", "x′", "x″"),
  ];
}

export const numbers = ({ dims }) => dims.reduce((all, size) => all * size, 1);

// Bytes of one kept tensor; 0 where another box holds it already.
export const bytesOf = (kept, size) => (kept.shared ? 0 : numbers(kept) * (kept.float32 ? FLOAT32 : size));

// Bytes that each box adds to the tape.
export const bytesByBox = (config, size) => boxes(config).map((box) =>
  box.keeps.reduce((sum, kept) => sum + bytesOf(kept, size), 0));

// Bytes on the tape once box `at` has done its work: forward fills it, backward empties it.
export function onTape(added, at, going) {
  const held = going === "forward" ? added.slice(0, at + 1) : added.slice(0, at);
  return held.reduce((sum, bytes) => sum + bytes, 0);
}

// The box after `at` in the order of the pass; -1 at its end.
export function following(at, going, count) {
  const next = going === "forward" ? at + 1 : at - 1;
  return next >= 0 && next < count ? next : -1;
}

// What goes from box to box in the forward pass; its gradient goes back.  "in" and "out" are the ends of the residual
// stream, along which x and x′ go past a half of the block.
export const EDGES = [
  ["in", "attention_norm", "x"], ["in", "first_sum", "x"], ["attention_norm", "query", "n"],
  ["attention_norm", "key", "n"], ["attention_norm", "value", "n"], ["query", "rope", "q"], ["key", "rope", "k"],
  ["rope", "attention", "q"], ["rope", "attention", "k"], ["value", "attention", "v"], ["attention", "output", "out"],
  ["output", "first_sum", "y"], ["first_sum", "feed_forward_norm", "x′"], ["first_sum", "second_sum", "x′"],
  ["feed_forward_norm", "gate", "n"], ["feed_forward_norm", "up", "n"], ["gate", "silu", "g"], ["up", "silu", "u"],
  ["silu", "down", "h"], ["down", "second_sum", "y"], ["second_sum", "out", "x″"],
];

// What arrives at a box in a pass, as [from, to, name] in the order of that pass.
export const arrivals = (id, going) => (going === "forward" ? EDGES.filter(([, to]) => to === id)
  : EDGES.filter(([from]) => from === id).map(([from, to, name]) => [to, from, `d${name}`]));

// --- what is said of each box

const TEXTS = {
  attention_norm: {
    title: "RMSNorm before attention", short: "RMSNorm",
    forward: ["r = √(mean(x²) + ε)", "n = gain · x / r"],
    backward: ["dm = gain · dn,  with m = x / r", "dx = (dm − m · mean(dm · m)) / r", "dgain = Σ dn · m, over all tokens"],
    why: "x / r is not kept: one multiplication makes it again from x and 1/r.",
  },
  query: {
    title: "query projection", short: "query",
    forward: ["q = n W_qᵀ"], backward: ["dn = dq W_q", "dW_q = dqᵀ n"],
    why: "Two products backward for one forward. Query, key and value read the same n: it is kept once, and their three dn are added.",
  },
  key: {
    title: "key projection", short: "key",
    forward: ["k = n W_kᵀ"], backward: ["dn = dk W_k", "dW_k = dkᵀ n"],
    why: "n is on the tape already: the query projection reads it too.",
  },
  value: {
    title: "value projection", short: "value",
    forward: ["v = n W_vᵀ"], backward: ["dn = dv W_v", "dW_v = dvᵀ n"],
    why: "n is on the tape already: the query projection reads it too.",
  },
  rope: {
    title: "RoPE", short: "RoPE",
    forward: ["turn the pairs of q and k by t · ω"], backward: ["turn dq and dk back by t · ω"],
    why: "A rotation needs only its angle, and the position gives that. Nothing is kept.",
  },
  attention: {
    title: "attention", short: "attention",
    forward: ["P = softmax(q kᵀ / √K), masked", "out = P v"],
    backward: ["dv = Pᵀ dout,  dP = dout vᵀ", "dS = P · (dP − Σ dP · P)", "dq = dS k / √K,  dk = dSᵀ q / √K",
      "dk and dv: sums over the query heads of a group"],
    why: "",
  },
  output: {
    title: "output projection", short: "output",
    forward: ["y = out W_oᵀ"], backward: ["dout = dy W_o", "dW_o = dyᵀ out"], why: "",
  },
  first_sum: {
    title: "first residual sum", short: "+",
    forward: ["x′ = x + y"], backward: ["dy = dx′", "dx = dx′, plus what comes back through the norm"],
    why: "A sum keeps nothing, and passes its gradient on unchanged. x was used twice, so its two gradients are added.",
  },
  feed_forward_norm: {
    title: "RMSNorm before the feed-forward network", short: "RMSNorm",
    forward: ["r = √(mean(x′²) + ε)", "n = gain · x′ / r"],
    backward: ["dm = gain · dn,  with m = x′ / r", "dx′ = (dm − m · mean(dm · m)) / r", "dgain = Σ dn · m, over all tokens"],
    why: "x′ is another tensor than x, so it is kept as well.",
  },
  gate: {
    title: "gate projection", short: "gate",
    forward: ["g = n W_gateᵀ"], backward: ["dn = dg W_gate", "dW_gate = dgᵀ n"],
    why: "Gate and up read the same n: it is kept once, and their two dn are added.",
  },
  up: {
    title: "up projection", short: "up",
    forward: ["u = n W_upᵀ"], backward: ["dn = du W_up", "dW_up = duᵀ n"],
    why: "n is on the tape already: the gate projection reads it too.",
  },
  silu: {
    title: "the gate: silu(g) · u", short: "silu(g) · u",
    forward: ["h = g · σ(g) · u"], backward: ["du = dh · g σ(g)", "dg = dh · u · σ(g) (1 + g (1 − σ(g)))"],
    why: "A product hands each factor the other one, so both are kept.",
  },
  down: {
    title: "down projection", short: "down",
    forward: ["y = h W_downᵀ"], backward: ["dh = dy W_down", "dW_down = dyᵀ h"],
    why: "h could be made again from g and u, which are kept anyway.",
  },
  second_sum: {
    title: "second residual sum", short: "+",
    forward: ["x″ = x′ + y"], backward: ["dy = dx″", "dx′ = dx″, plus what comes back through the norm"],
    why: "The backward pass of the block begins here, with the gradient that the block after it sends.",
  },
};

// Rows of the picture: which boxes stand side by side.
const ROWS = [
  ["attention_norm"], ["query", "key", "value"], ["rope"], ["attention"], ["output"], ["first_sum"],
  ["feed_forward_norm"], ["gate", "up"], ["silu"], ["down"], ["second_sum"],
];
const ROW = 46;
const TOP = 30;
const STREAM = 18; // where the residual stream runs down
const STYLE = `
.lc .bt-both { display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; align-items: flex-start; }
.lc .bt-both > * { flex: 1 1 19rem; min-width: 0; }
.lc .bt-panel h3 { margin: 0.6rem 0 0.2rem; }
.lc .bt-panel pre { margin: 0.1rem 0 0.5rem; padding: 0.3rem 0.5rem; white-space: pre-wrap; color: inherit;
  background: var(--lc-back); border-left: 4px solid var(--lc-1); font-size: 0.85rem; }
.lc .bt-panel pre.bt-back { border-left: 4px dashed var(--lc-2); }
.lc .bt-panel table { width: 100%; }
.lc .bt-panel :is(th, td) { white-space: nowrap; padding: 0.2rem; font-size: 0.75rem; }
.lc .bt-panel .bt-scroll { overflow-x: auto; }`;

const UNITS = [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const FLOPS = [[1e18, "EFLOP"], [1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1, "FLOP"]];
const inUnits = (value, units) => {
  const [size, unit] = units.find(([limit]) => value >= limit) || units.at(-1);
  return `${show(value / size, 3)} ${unit}`;
};
const bytes = (value) => inUnits(value, UNITS);
const flops = (value) => (value ? inUnits(value, FLOPS) : "–");
const weightName = ({ name }) => name.split(".").at(-1).replace("w_", "W_");
const capital = (text) => text[0].toUpperCase() + text.slice(1);

function render({ model, el }) {
  const w = frame({ model, el, title: "One block of a Llama, forward and backward" });
  w.root.prepend(h("style", {}, STYLE));
  const shape = model.get("shape");
  const order = boxes({ ...shape, batch: 1, tokens: 1, keeps: "log-sum-exp" }).map((box) => box.id);
  const config = () => ({ ...shape, batch: model.get("batch"), tokens: model.get("tokens"), keeps: model.get("keeps") });
  const size = () => (model.get("number") === "bf16" ? 2 : 4);
  const at = () => order.indexOf(model.get("box"));
  const going = () => model.get("going");

  w.choice("box", "box", { options: order, labels: order.map((id) => TEXTS[id].title) });
  w.choice("going", "pass", { onset: () => w.put("box", order[going() === "forward" ? 0 : order.length - 1]) });
  w.player({
    perSecond: 1,
    longest: order.length,
    step: () => {
      const next = following(at(), going(), order.length);
      if (next < 0) return false;
      w.put("box", order[next]);
      return following(next, going(), order.length) >= 0;
    },
    reset: () => w.put("box", order[going() === "forward" ? 0 : order.length - 1]),
  });
  w.number("tokens", "tokens T of a sequence", { log: true });
  w.number("batch", "sequences B", { log: true });
  w.choice("keeps", "what attention keeps",
    { labels: ["log-sum-exp: one number a row", "all weights: a number for every pair"] });
  w.choice("number", "numbers", { labels: ["bf16, 2 bytes", "float32, 4 bytes"] });

  let all = [];
  let added = [];
  let places = []; // where the boxes lie, for a press
  let drawn = ""; // the box and the pass that were drawn last
  let went = false; // from the box before to this one
  const both = h("div", { class: "bt-both" });
  const left = h("div");
  const panel = h("div", { class: "bt-panel" });
  both.append(left, panel);
  w.stages.append(both);

  const COLOURS = { q: "query", k: "key", v: "value" };
  // What travels along a way of points, and is gone when it has come.
  const traveller = (name, way, part) => {
    const colour = COLOURS[name.replace("d", "")];
    const long = Math.max(24, 8 * name.length + 10);
    return s("g", { class: "bt-travels", "data-way": way.map((point) => point.join(",")).join(" "), "data-while": part, "data-gone": true },
      s("rect", { x: -long / 2, y: -11, width: long, height: 22, rx: 11, stroke: "var(--lc-back)",
        fill: colour ? `var(--lc-${colour})` : "currentColor", class: going() === "forward" ? "lc-1" : "lc-2" }),
      label(0, 4, name, { "text-anchor": "middle", style: "font-weight: 700; fill: var(--lc-on)" }));
  };

  const draw = w.stage((svg, width) => {
    const step = { forward: at() - 1, backward: at() + 1 }[going()];
    went = drawn === `${order[step]} ${going()}`;
    drawn = `${order[at()]} ${going()}`;
    const bars = Math.min(118, width * 0.32);
    const [from, to] = [36, width - bars - 8];
    const most = Math.max(...added, 1);
    const now = at();
    const arrow = uniqueId();
    const back = going() === "backward";
    const Y = (row) => TOP + row * ROW;
    places = [];
    svg.append(
      s("defs", {}, s("marker", { id: arrow, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7,
        orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", fill: "var(--lc-text)" }))),
      label(4, 14, back ? "dx leaves" : "x enters"), label(to + 8, 14, "kept"));
    const end = Y(ROWS.length) - ROW + 34;
    const path = (x1, y1, x2, y2, head) => s("line", {
      ...(back ? { x1: x2, y1: y2, x2: x1, y2: y1 } : { x1, y1, x2, y2 }),
      stroke: "var(--lc-text)", "stroke-width": 1.5, "marker-end": head ? `url(#${arrow})` : null,
    });
    // The residual stream runs down the side; each half of the block turns off it and comes back.
    svg.append(path(STREAM, TOP - 8, STREAM, end + 16, true));
    const middle = (from + to) / 2;
    for (const [first, last] of [[0, 5], [6, 10]]) {
      svg.append(path(STREAM, Y(first) + 17, from - 3, Y(first) + 17, true));
      svg.append(path(from - 3, Y(last) + 17, STREAM + 2, Y(last) + 17, true));
      for (let row = first; row < last; row++) svg.append(path(middle, Y(row) + 35, middle, Y(row + 1) - 2, true));
    }
    ROWS.forEach((row, r) => {
      const third = (to - from - 10) / 3;
      const wide = row[0] === "rope" ? 2 * third + 5 : (to - from - 5 * (row.length - 1)) / row.length;
      if (row[0] === "rope") { // values are not turned
        svg.append(path(to - third / 2, Y(r) - 10, to - third / 2, Y(r + 1) - 2, true));
      }
      let sum = 0;
      row.forEach((id, i) => {
        const n = order.indexOf(id);
        const into = n === now && back ? arrivals(id, "backward").map(([, , name]) => name) : [];
        const adds = into.length > 1 && new Set(into).size === 1;
        const x = from + i * (wide + 5);
        const done = back ? n > now : n < now;
        places.push({ id, x, y: Y(r), wide });
        sum += added[n];
        svg.append(s("rect", {
          x, y: Y(r), width: wide, height: 34, rx: 5, fill: "var(--lc-back)",
          stroke: n === now ? "var(--lc-2)" : "var(--lc-line)", "stroke-width": n === now ? 3.5 : done ? 2 : 1,
          "stroke-dasharray": n === now || !done ? null : "4 3",
        }), label(x + wide / 2, Y(r) + (adds ? 15 : 21), TEXTS[id].short,
          { "text-anchor": "middle", style: n === now ? "font-weight: 700" : null }));
        // An output that was used more than once: its gradients are added.
        if (adds) {
          svg.append(label(x + wide / 2, Y(r) + 29, into.join(" + "), { "text-anchor": "middle",
            ...(went ? { "data-while": "0.8 1" } : { "data-key": "sum" }) }));
        }
      });
      // What the boxes of this row leave on the tape: filled while it is there, an outline otherwise.
      if (!sum) return;
      const isThere = (n) => (back ? n < now : n <= now);
      const there = row.map((id) => order.indexOf(id)).filter(isThere).reduce((held, n) => held + added[n], 0);
      const long = (value) => Math.max(1.5, (value / most) * (bars - 6));
      svg.append(
        s("rect", { x: to + 8, y: Y(r) + 19, width: long(sum), height: 11, fill: "none", stroke: "var(--lc-1)" }),
        there ? s("rect", { "data-key": `tape ${r}`, x: to + 8, y: Y(r) + 19, width: long(there), height: 11, fill: "var(--lc-1)" }) : "",
        label(to + 8, Y(r) + 14, bytes(sum)));
    });
    svg.append(label(4, end + 30, back ? "dx″ arrives" : "x″ leaves"));
    if (went) {
      const onStream = ["in", "first_sum", "second_sum", "out"];
      const level = (id) => ({ in: TOP - 8, out: end + 16 })[id] ?? places.find((place) => place.id === id).y + 17;
      const centre = (id) => { const { x, wide } = places.find((place) => place.id === id); return x + wide / 2; };
      const [q, k] = [centre("query"), centre("key")];
      const way = ([a, b, name]) => {
        const points = [a, b].map((id) => (id === "in" || id === "out" ? [] : [[centre(id), level(id)]]));
        const past = [[STREAM, level(a)], [STREAM, level(b)]];
        const first = [a, b].sort((one, other) => level(one) - level(other))[0];
        if (onStream.includes(first) || a === "out" || b === "out") return [...points[0], ...past, ...points[1]];
        const named = { q, k }[name.replace("d", "")];
        const narrow = [a, b].map((id) => places.find((place) => place.id === id)).sort((one, other) => one.wide - other.wide)[0];
        const x = named ?? narrow.x + narrow.wide / 2;
        return [[x, level(a)], [x, level(b)]];
      };
      const ends = { forward: "second_sum", backward: "attention_norm" }[going()] === order[now];
      for (const each of arrivals(order[now], going())) svg.append(traveller(each[2], way(each), ends ? "0 0.5" : "0 0.8"));
      const leave = !ends ? [] : back ? EDGES.filter(([a]) => a === "in").map(([a, b, name]) => [b, a, `d${name}`])
        : EDGES.filter(([, b]) => b === "out");
      for (const each of leave) svg.append(traveller(each[2], way(each), "0.5 1"));
    }
    svg.style.cursor = "pointer";
    return `${going()} pass at ${TEXTS[order[now]].title}; ${tapeSentence()}`;
  }, { height: TOP + ROWS.length * ROW + 26, into: left, docked: true,
    label: "a block as boxes, with what each keeps", lasts: () => (went ? 5 : 1) });
  const picture = left.firstElementChild.firstElementChild;
  // A press on a box chooses it, as the list does.
  picture.addEventListener("click", (event) => {
    const [x, y] = within(picture, event);
    const hit = places.find((p) => x >= p.x && x <= p.x + p.wide && y >= p.y - 4 && y <= p.y + 38);
    if (hit) w.put("box", hit.id);
  });

  left.append(h("p", {}, "Bars: what a row of boxes keeps for the backward pass. Filled: on the tape at this moment. " +
    "Dashed boxes have done their work."));
  const table = w.table("All boxes: what they keep, and their FLOPs");

  function tapeSentence() {
    const total = onTape(added, added.length - 1, "forward");
    const held = onTape(added, at(), going());
    return going() === "forward" ? `${bytes(held)} of ${bytes(total)} are on the tape by now.`
      : `${bytes(held)} of ${bytes(total)} are still on the tape after it.`;
  }

  const why = (box) => {
    const lse = model.get("keeps") === "log-sum-exp";
    if (box.id === "attention") {
      return lse ? "P is made again, tile by tile: P = exp(q kᵀ/√K − L), and Σ dP · P = Σ dout · out."
        : "P has T numbers for every query and head: it alone grows with the square of T.";
    }
    if (box.id === "output") {
      return lse ? "out is on the tape already: attention's backward pass reads it too." : "Attention itself does not need out here; its projection does.";
    }
    return TEXTS[box.id].why;
  };

  // Every tensor of the box once: what it is to the box, its size, and what the backward pass makes of it.
  function rowsOf(box) {
    const kept = (name) => box.keeps.find((each) => each.name === name);
    const cell = (each) => (!each ? "" : each.shared ? "there already" : bytes(bytesOf(each, size())));
    const known = [...box.comes, ...box.goes];
    return [
      ...box.comes.map((each) => [each.name, each, cell(kept(each.name)), `d${each.name} leaves`]),
      ...box.goes.map((each) => [each.name, each,
        box.comes.some((other) => other.name === each.name) ? "" : cell(kept(each.name)), `d${each.name} arrives`]),
      ...box.keeps.filter((each) => !known.some((other) => other.name === each.name))
        .map((each) => [each.name, each, cell(each), "–"]),
      ...box.weights.map((each) => [weightName(each), each, "a weight", `d${weightName(each)} is ready`]),
    ];
  }

  function fillPanel(box) {
    panel.replaceChildren(
      h("h3", {}, capital(TEXTS[box.id].title)),
      h("p", {}, "forward"), h("pre", {}, TEXTS[box.id].forward.join("\n")),
      h("p", {}, "backward"), h("pre", { class: "bt-back" }, TEXTS[box.id].backward.join("\n")),
      h("p", {}, why(box)),
      h("div", { class: "bt-scroll", tabindex: 0, role: "region", "aria-label": "tensors of the box" }, h("table", {},
        h("thead", {}, h("tr", {}, ["tensor", "shape", "kept", "backward"].map((c) => h("th", { scope: "col" }, c)))),
        h("tbody", {}, rowsOf(box).map(([name, tensor, kept, gradient]) => h("tr", {},
          h("th", { scope: "row" }, name),
          h("td", {}, tensor.letters.replaceAll(" ", "×"), h("br"), tensor.dims.map((d) => show(d, 8)).join("×")),
          h("td", {}, kept), h("td", {}, gradient)))))));
  }

  function sentence(box) {
    const total = onTape(added, added.length - 1, "forward");
    const own = added[at()];
    const new_ = box.keeps.filter((each) => !each.shared).map((each) => each.name);
    const old = box.keeps.filter((each) => each.shared).map((each) => each.name);
    const said = own ? `keeps ${listed(new_)}, ${bytes(own)}, ${percent(total ? own / total : 0, 2)} of the block's tape`
      : old.length ? `reads ${listed(old)} again, which is on the tape already: 0 more bytes` : "keeps nothing";
    const gradients = listed([...box.comes.map((each) => `d${each.name}`), ...box.weights.map((each) => `d${weightName(each)}`)]);
    const title = capital(TEXTS[box.id].title);
    if (going() === "forward") return `${title}: ${said}. ${tapeSentence()}`;
    const arrives = listed(box.goes.map((each) => `d${each.name}`));
    return `${title}, backward: ${arrives} ${box.goes.length > 1 ? "arrive" : "arrives"}, ${gradients} come out. ` +
      `It ${said}. ${tapeSentence()}`;
  }

  function redraw() {
    all = boxes(config());
    added = bytesByBox(config(), size());
    draw();
    const box = all[clamp(at(), 0, all.length - 1)];
    fillPanel(box);
    const total = onTape(added, added.length - 1, "forward");
    table({
      columns: ["box", "keeps", "bytes", "of all", "forward", "backward"],
      rows: [
        ...all.map((each, n) => [TEXTS[each.id].title, listed(each.keeps.map((t) => (t.shared ? `(${t.name})` : t.name))) || "–",
          bytes(added[n]), percent(total ? added[n] / total : 0, 2), flops(each.flop.forward), flops(each.flop.backward)]),
        ["whole block", "", bytes(total), "100 %", flops(all.reduce((sum, b) => sum + b.flop.forward, 0)),
          flops(all.reduce((sum, b) => sum + b.flop.backward, 0))],
      ],
    });
    w.say(sentence(box));
  }
  w.on(["box", "going", "tokens", "batch", "keeps", "number"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
