import { clamp, frame, h, label, line, s, scale, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.parallel.collectives by the tests

const upTo = (count) => Array.from({ length: count }, (_, i) => i);
const mod = (a, n) => ((a % n) + n) % n;
export const rounds = (n) => 32 - Math.clz32(n - 1); // log2, rounded up

// Who sends which chunk to whom, step by step.  `adds` says whether the receiver adds what it gets to its own,
// or takes it in place of its own.  Tree and naive send the whole tensor: it is their chunk 0.
const SCHEDULES = {
  // The sum of chunk c sets out from rank c + 1, and ends at rank c; then it goes round once more.
  ring: (n) => [true, false].flatMap((adds) => upTo(n - 1).map((step) => ({
    adds, messages: upTo(n).map((r) => ({ from: r, to: (r + 1) % n, chunk: mod(r - step - (adds ? 1 : 0), n) })),
  }))),

  // In round k every rank whose lowest set bit is bit k sends to the rank without it; then all backwards.
  tree: (n) => {
    const up = upTo(rounds(n)).map((k) => upTo(n).filter((r) => r % (2 << k) === 1 << k)
      .map((r) => ({ from: r, to: r - (1 << k), chunk: 0 })));
    return [...up.map((messages) => ({ adds: true, messages })), ...[...up].reverse().map((messages) => ({
      adds: false, messages: messages.map(({ from, to, chunk }) => ({ from: to, to: from, chunk })),
    }))];
  },

  // All to rank 0, one after the other, and back.
  naive: (n) => [true, false].flatMap((adds) => upTo(n - 1).map((i) => ({
    adds, messages: [adds ? { from: i + 1, to: 0, chunk: 0 } : { from: 0, to: i + 1, chunk: 0 }],
  }))),
};

export const schedule = (algorithm, n) => SCHEDULES[algorithm](n);
export const numChunks = (algorithm, n) => (algorithm === "ring" ? n : 1);

// What every rank has of every chunk after some steps.  A sum is a pair [sum so far, what was added to it], and a
// rank's own numbers are the number of the rank: [[1, 2], 0] is the sum of rank 1 and 2, and then of rank 0.
export function holdings(algorithm, n, steps) {
  const held = upTo(n).map((r) => upTo(numChunks(algorithm, n)).map(() => r));
  for (const { adds, messages } of schedule(algorithm, n).slice(0, steps)) {
    // One after the other is as good as all at once: no rank sends the chunk that it receives in the same step.
    for (const { from, to, chunk } of messages) {
      const [sent, own] = [held[from][chunk], held[to][chunk]];
      if (!adds) held[to][chunk] = sent;
      else held[to][chunk] = algorithm === "ring" ? [sent, own] : [own, sent];
    }
  }
  return held;
}

// The ranks in a sum, in the order in which they stand in it.
export const members = (sum) => (Array.isArray(sum) ? sum.flatMap(members) : [sum]);

// A sum as people write it: 1 + 2 + (3 + 0).
export function written(sum) {
  if (!Array.isArray(sum)) return String(sum);
  const last = written(sum[1]);
  return `${written(sum[0])} + ${Array.isArray(sum[1]) ? `(${last})` : last}`;
}

// How much every rank has sent after some steps, in whole tensors.
export function sent(algorithm, n, steps) {
  const all = schedule(algorithm, n).slice(0, steps).flatMap(({ messages }) => messages);
  return upTo(n).map((r) => all.filter(({ from }) => from === r).length / numChunks(algorithm, n));
}

// Every step takes the latency, and its largest message at the bandwidth of a link.
export function seconds(algorithm, bytes, n, latency, rate) {
  const steps = { ring: 2 * (n - 1), tree: 2 * rounds(n), naive: 2 * (n - 1) }[algorithm];
  return steps * (latency + bytes / numChunks(algorithm, n) / rate);
}

// The bytes below which the tree takes less time than the ring; 0 where it never does.
export function crossover(n, latency, rate) {
  return rate * latency * (n - 1 - rounds(n)) / (rounds(n) - (n - 1) / n);
}

// --- the page

const NAMES = { ring: "ring", tree: "tree", naive: "naive: all to rank 0" };
const DASHES = { ring: null, tree: "8 4", naive: "2 3" };
const MARKS = { ring: "lc-ring", tree: "lc-tree", naive: "lc-naive" };
const ROW = 42; // from one rank's row to the next
const CELL = 22;
const HEAD = 40;
const TOKEN = 17; // what travels
const FLIES = "0 0.6"; // first it comes to its rank,
const JOINS = "0.6 0.8";
const ADDED = "0.8 1"; // then the rank's own numbers are in it
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];
const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

function inUnits(value, units) {
  const [unit, name] = units.find(([least]) => value >= least * 0.9995) || units.at(-1);
  return `${show(Number((value / unit).toPrecision(3)))} ${name}`;
}
const size = (bytes) => inUnits(bytes, SIZES);
const time = (value) => inUnits(value, TIMES);
const times = (share) => `${show(share, 4)} ×`;
const mark = (rank) => `lc-rank-${rank % 6}`;

function render({ model, el }) {
  const w = frame({ model, el, title: "All-reduce, step by step", primary: ["algorithm", "num_ranks", "step"] });
  w.root.prepend(h("style", {}, ".lc .rs-small { font-size: 0.85rem; color: var(--lc-muted); }"));
  const n = () => model.get("num_ranks");
  const algorithm = () => model.get("algorithm");
  let plan = { of: "", steps: [] };
  const steps = () => {
    const of = `${algorithm()} ${n()}`;
    if (plan.of !== of) plan = { of, steps: schedule(algorithm(), n()) };
    return plan.steps;
  };
  const step = () => clamp(model.get("step"), 0, steps().length);
  const rank = () => clamp(model.get("rank"), 0, n() - 1);
  const bytes = () => 1e6 * model.get("megabytes");
  const latency = () => 1e-6 * model.get("latency_us");
  const rate = () => 1e9 * model.get("gigabytes_per_s");
  const takes = (name) => seconds(name, bytes(), n(), latency(), rate());
  const mean = () => 2 * (n() - 1) / n();
  // What is held after some steps: worked out once for a redraw.
  const known = new Map();
  const heldAfter = (count) => {
    if (!known.has(count)) known.set(count, holdings(algorithm(), n(), count));
    return known.get(count);
  };
  let drawn = 0; // the step that was drawn last
  let went = false; // from the step before to this one
  let atEnd = false;
  let busy = false;

  w.choice("algorithm", "algorithm", { labels: Object.values(NAMES) });
  w.number("num_ranks", "ranks n");
  const controls = { step: w.number("step", "steps done"), rank: w.number("rank", "rank in words") };
  const player = w.player({
    perSecond: 1,
    step: () => {
      w.put("step", step() < steps().length ? step() + 1 : 0); // the end, then anew
      return step() < steps().length;
    },
    reset: () => w.put("step", 0),
  });
  w.button("Back", () => {
    player.stop();
    w.put("step", Math.max(0, step() - 1));
  });

  // How many steps and ranks there are depends on the choices: the sliders end there.
  function follow() {
    for (const [name, high] of [["step", steps().length], ["rank", n() - 1]]) {
      model.get("limits")[name].high = controls[name].range.max = controls[name].field.max = high;
      controls[name].range.value = model.get(name);
    }
  }

  const last = () => (step() ? steps()[step() - 1] : { adds: true, messages: [] });
  const whole = () => algorithm() !== "ring";
  const what = (chunk) => (whole() ? "the whole tensor" : `chunk ${chunk}`);

  const head = uniqueId(); // of an arrow
  const arrowhead = () => s("defs", {}, s("marker", { id: head, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8,
    markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z",
    fill: "var(--lc-text)" })));
  const arrow = (points) => line(points, { stroke: "var(--lc-text)", "stroke-width": 2,
    "marker-end": `url(#${head})` });

  // What a token has in it: a slice for every rank, shown where that rank's numbers are in the sum.
  const wedge = (k, far) => {
    const [a, b] = [k, k + 1].map((turn) => 2 * Math.PI * turn / n() - Math.PI / 2);
    return `M0 0L${far * Math.cos(a)} ${far * Math.sin(a)}A${far} ${far} 0 0 1 ${far * Math.cos(b)} ` +
      `${far * Math.sin(b)}Z`;
  };
  // Copies of one that is made once for a drawing: that takes a small part of the time.
  function tokens() {
    const empty = s("g", { "data-key": "disc", "data-while": ADDED },
      s("circle", { r: TOKEN, fill: "var(--lc-back)", stroke: "var(--lc-text)", "stroke-width": 1.2 }),
      upTo(n()).map((k) => s("path", { "data-key": `slice ${k}`, d: wedge(k, TOKEN - 1.5), fill: "currentColor", class: mark(k),
        opacity: 0 })),
      s("circle", { r: 7.5, fill: "var(--lc-back)" }),
      label(0, 4, "", { "text-anchor": "middle", style: "font-weight: 700" }));
    return (sum, name) => {
      const made = empty.cloneNode(true);
      for (const k of members(sum)) made.children[k + 1].setAttribute("opacity", 1);
      made.lastChild.textContent = name;
      return made;
    };
  }

  // The ring, or the ranks of a tree, with what travels: it flies from where it was to where it is.
  function drawCircle(svg, [left, top, across]) {
    const [cx, cy, r] = [left + across / 2, top + across / 2, across / 2 - 2 * TOKEN - 28];
    const at = (k, far = r) => {
      const angle = 2 * Math.PI * k / n() - Math.PI / 2;
      return [cx + far * Math.cos(angle), cy + far * Math.sin(angle)];
    };
    const held = heldAfter(step());
    const out = r + TOKEN + 24;
    const token = tokens();
    const here = s("g", { "data-key": "arrows" });
    svg.append(here);
    if (!whole()) here.append(s("circle", { cx, cy, r, fill: "none", stroke: "var(--lc-line)" }));
    for (const { from, to } of last().messages) {
      const [a, b] = [at(from), at(to)];
      const far = Math.hypot(b[0] - a[0], b[1] - a[1]);
      const [dx, dy] = [(b[0] - a[0]) / far, (b[1] - a[1]) / far];
      // To the left of its way, outside of the ring: two ranks that send to each other have two arrows.
      const aside = whole() ? 0 : n() === 2 ? 9 : 0;
      const put = ([x, y], along) => [x + dx * along + dy * aside, y + dy * along - dx * aside];
      const made = arrow([put(a, 22), put(b, -22)]);
      made.dataset.key = `${from} ${to}`;
      here.append(made);
    }
    const parts = upTo(held[0].length).map((c) => s("path", { "data-key": `done ${c}`, fill: "none",
      stroke: "var(--lc-text)", "stroke-width": 3.5, d: part(c, held[0].length, 18) }));
    for (const k of upTo(n())) {
      const [x, y] = at(k);
      svg.append(s("g", { "data-key": `rank ${k}`, transform: `translate(${x} ${y})` },
        s("circle", { r: 14, fill: "currentColor", class: mark(k) }),
        k === rank() ? s("circle", { r: 22, fill: "none", stroke: "var(--lc-text)", "stroke-width": 1.5,
          "stroke-dasharray": "2 3" }) : null,
        // A part of the frame for every chunk of which the rank has the sum of all.
        held[k].map((sum, c) => {
          const made = parts[c].cloneNode();
          made.setAttribute("opacity", members(sum).length === n() ? 1 : 0);
          return made;
        }),
        label(0, 4, k, { "text-anchor": "middle", style: "fill: var(--lc-on); font-weight: 700" })));
    }
    if (!whole()) {
      for (const c of upTo(n())) {
        const turns = c + 1 + step();
        const angle = 360 * turns / n();
        svg.append(s("g", { "data-key": `token ${c}`, "data-while": FLIES, transform: `rotate(${angle} ${cx} ${cy})` },
          s("g", { transform: `translate(${cx} ${cy - out}) rotate(${-angle})` }, token(held[turns % n()][c], c))));
      }
      // A rank's own numbers join what has come.
      for (const { to } of went && last().adds ? last().messages : []) {
        svg.append(s("g", { class: `rs-own ${mark(to)}`, "data-way": [at(to), at(to, out)].join(" "), "data-while": JOINS,
          "data-gone": true }, s("circle", { r: 9, fill: "currentColor", stroke: "var(--lc-back)" })));
      }
      return;
    }
    // Where each rank's copy of the tensor is: with the rank that it was sent to, or at home.
    const host = upTo(n());
    steps().slice(0, step()).forEach(({ adds, messages }) => messages.forEach(({ from, to }) => {
      if (adds) host[from] = to;
      else host[to] = to;
    }));
    const home = (k) => (host[k] === k ? k : home(host[k]));
    for (const k of upTo(n()).sort((a, b) => (host[a] === a) - (host[b] === b))) {
      const [x, y] = at(host[k], out);
      svg.append(s("g", { "data-key": `token ${k}`, "data-while": FLIES, transform: `translate(${x} ${y})` },
        token(held[home(k)][0], k)));
    }
  }

  // A part of a circle, one of so many, with a little room between.
  function part(c, count, far) {
    const [a, b] = [c + 0.06, c + 0.94].map((turn) => 2 * Math.PI * turn / count - Math.PI / 2);
    const middle = (a + b) / 2; // two arcs: one alone cannot be as good as a circle
    const on = (turn) => `${far * Math.cos(turn)} ${far * Math.sin(turn)}`;
    return `M${on(a)}A${far} ${far} 0 0 1 ${on(middle)}A${far} ${far} 0 0 1 ${on(b)}`;
  }

  // One place for every rank in every cell: filled where its numbers are in the sum.  Copies, as the tokens are.
  function cells(wide) {
    const slot = wide / n();
    const empty = s("g", {}, upTo(n()).map((k) => s("rect", { "data-key": k, x: k * slot, y: 0, width: slot, height: CELL,
      fill: "none", class: mark(k), stroke: "var(--lc-line)", "stroke-width": 0.75 })));
    const border = s("rect", { "data-key": "frame", x: -2, y: -2, width: wide + 4, height: CELL + 4, rx: 2, fill: "none",
      stroke: "var(--lc-text)", "stroke-width": 1.5, "stroke-dasharray": "3 2" });
    return (sum, x, y, fresh) => {
      const within = members(sum);
      const made = empty.cloneNode(true);
      made.setAttribute("transform", `translate(${x} ${y})`);
      for (const k of within) {
        made.children[k].setAttribute("fill", "currentColor");
        if (slot > 9) {
          made.append(label((k + 0.5) * slot, 15, k, { "data-key": `of ${k}`, "text-anchor": "middle", style: "fill: var(--lc-on)" }));
        }
      }
      const all = within.length === n();
      if (all || fresh) {
        const around = border.cloneNode();
        if (all) around.setAttribute("stroke-width", 2.5);
        if (all) around.removeAttribute("stroke-dasharray");
        made.append(around);
      }
      return made;
    };
  }

  // Rows are ranks, columns chunks; a message goes down a column, from the last row back to the first.
  function drawMatrix(svg, { left, top, wide }) {
    const held = heldAfter(step());
    const before = went ? heldAfter(step() - 1) : held;
    const columns = numChunks(algorithm(), n());
    const room = whole() ? wide - 54 : wide;
    const pitch = room / columns;
    const cell = pitch - (whole() ? 0 : Math.min(14, pitch * 0.2));
    const X = (c) => left + c * pitch;
    const Y = (r) => top + HEAD + r * ROW;
    const narrow = pitch < 56;
    const made = cells(cell);
    const arrived = new Set(last().messages.map(({ to, chunk }) => `${to} ${chunk}`));
    for (const c of upTo(columns)) {
      const name = whole() ? "the whole tensor" : narrow ? `c${c}` : `chunk ${c}`;
      svg.append(label(X(c) + cell / 2, top + 12, name, { "text-anchor": "middle" }));
    }
    for (const r of upTo(n())) {
      const chosen = r === rank();
      svg.append(label(left - 8, Y(r) + 15, `rank ${r}`, { "text-anchor": "end",
        style: chosen ? "font-weight: 700; text-decoration: underline" : null }));
      held[r].forEach((sum, c) => {
        const fresh = arrived.has(`${r} ${c}`);
        const comes = fresh && went; // what was there stays until then
        const box = made(sum, X(c), Y(r), fresh);
        if (comes) {
          const old = made(before[r][c], X(c), Y(r), false);
          Object.assign(old.dataset, { while: ADDED, gone: "" });
          svg.append(old);
          box.dataset.while = ADDED;
        } else box.dataset.key = `cell ${r} ${c}`;
        svg.append(box);
      });
    }
    const messages = s("g", went ? { "data-while": ADDED } : { "data-key": "messages" });
    svg.append(messages);
    for (const { from, to, chunk } of last().messages) {
      const x = X(chunk) + cell / 2;
      if (whole()) {
        const [a, b, edge] = [Y(from) + CELL / 2, Y(to) + CELL / 2, X(0) + cell + 4];
        const out = edge + 8 + 36 * Math.abs(to - from) / n();
        messages.append(arrow([[edge, a], [out, a], [out, b], [edge + 1, b]]));
      } else if (to > from) {
        messages.append(arrow([[x, Y(from) + CELL + 2], [x, Y(to) - 3]]));
      } else { // leaves below, and comes in above
        messages.append(arrow([[x, Y(from) + CELL + 2], [x, Y(from) + CELL + 16]]),
          arrow([[x, Y(0) - 18], [x, Y(0) - 3]]));
      }
    }
  }

  const beside = (width) => width > 560;
  const across = (width) => (beside(width) ? clamp(width * 0.4, 240, 340) : Math.min(width, 320));
  const tall = () => HEAD + n() * ROW;
  let top = 0; // of the rows of ranks, as they were drawn last
  const drawSteps = w.stage((svg, width, high) => {
    went = step() === drawn + 1;
    drawn = step();
    svg.append(arrowhead());
    const next = beside(width);
    const circle = across(width);
    drawCircle(svg, [next ? 0 : (width - circle) / 2, next ? (high - circle) / 2 : 0, circle]);
    const left = next ? circle + 62 : 58;
    top = next ? Math.max(0, (high - tall()) / 2) : circle;
    drawMatrix(svg, { left, top, wide: width - left - (whole() ? 0 : 2) });
    svg.style.cursor = "pointer";
    return pictured();
  }, {
    height: (width) => (beside(width) ? Math.max(tall(), across(width)) : tall() + across(width)),
    label: "ranks, and what each has of every chunk", lasts: () => (went ? 5 : 3),
  });
  const picture = drawSteps.picture;

  w.stages.append(
    h("p", { class: "rs-small" }, "A disc is what travels; it has a slice, and a cell a place, for every rank, " +
      "filled where that rank’s numbers are in the sum. Dashed frame: just arrived. Bold frame: the sum of all ranks."),
    w.root.querySelector(".lc-status")); // beside what it is about
  const caption = h("p", { class: "rs-small" });
  w.stages.append(caption);

  const drawSent = w.stage((svg, width) => {
    const now = sent(algorithm(), n(), step());
    const end = sent(algorithm(), n(), steps().length);
    const x = scale([0, Math.max(...end)], [58, width - 62]);
    caption.textContent =
      `Sent so far, in whole tensors. Dashed line: the mean at the end, 2(n−1)/n = ${show(mean())}.`;
    now.forEach((share, r) => {
      const y = 6 + 20 * r;
      svg.append(label(50, y + 11, `rank ${r}`, { "text-anchor": "end",
        style: r === rank() ? "font-weight: 700; text-decoration: underline" : null }),
      s("rect", { x: x(0), y, width: x(end[r]) - x(0), height: 14, fill: "none", stroke: "var(--lc-line)" }),
      s("rect", { x: x(0), y, width: x(share) - x(0), height: 14, fill: "currentColor", class: mark(r) }),
      label(x(Math.max(end[r], mean())) + 6, y + 11, times(share)));
    });
    svg.append(line([[x(mean()), 1], [x(mean()), 5 + 20 * n()]],
      { stroke: "var(--lc-text)", "stroke-width": 2, "stroke-dasharray": "5 3" }));
    return now.map((share, r) => `rank ${r} ${times(share)}`).join(", ");
  }, { height: () => 10 + 20 * n(), label: "bars of what every rank has sent, in whole tensors" });

  // What it costs.
  const costs = h("div", { class: "lc-controls" });
  w.number("megabytes", "tensor, MB", { log: true, into: costs });
  w.number("latency_us", "latency of a message, µs", { log: true, into: costs });
  w.number("gigabytes_per_s", "bandwidth of a link, GB/s", { log: true, into: costs });

  const drawCost = w.stage((svg, width, high) => {
    const { low, high: most } = model.get("limits").megabytes;
    const span = [1e6 * low, 1e6 * most];
    const of = (name, size) => seconds(name, size, n(), latency(), rate());
    const names = Object.keys(NAMES);
    const ends = names.flatMap((name) => span.map((size) => of(name, size)));
    const box = [64, 24, width - 12, high - 88];
    const x = scale(span, [box[0], box[2]], { log: true });
    const y = scale([Math.min(...ends), Math.max(...ends)], [box[3], box[1]], { log: true });
    const powers = (from, to) => upTo(40).map((i) => 10 ** (i - 12)).filter((p) => p >= from * 0.99 && p <= to * 1.01);
    const every = width < 480 ? 1e3 : 10;
    const frameOf = s("g", { class: "lc-axes" },
      s("line", { x1: box[0], x2: box[2], y1: box[3], y2: box[3] }),
      s("line", { x1: box[0], x2: box[0], y1: box[1], y2: box[3] }));
    for (const p of powers(...span)) {
      if (Math.round(Math.log10(p)) % Math.round(Math.log10(every)) === 0) {
        frameOf.append(label(clamp(x(p), 0, width - 26), box[3] + 15, size(p), { "text-anchor": "middle" }));
      }
    }
    const rows = powers(Math.min(...ends), Math.max(...ends));
    rows.filter((_, i) => rows.length < 7 || i % 2 === 0).forEach((p) =>
      frameOf.append(label(box[0] - 5, y(p) + 4, time(p), { "text-anchor": "end" })));
    frameOf.append(label(2, 13, "time, against the size of the tensor"));
    svg.append(frameOf, line([[x(bytes()), box[1]], [x(bytes()), box[3]]], { stroke: "var(--lc-line)" }));
    names.forEach((name, i) => {
      const points = upTo(61).map((k) => span[0] * (span[1] / span[0]) ** (k / 60));
      const row = box[3] + 36 + 18 * i;
      const style = { stroke: "currentColor", class: MARKS[name], "stroke-width": name === algorithm() ? 3.5 : 2,
        "stroke-dasharray": DASHES[name] };
      svg.append(line(points.map((size) => [x(size), y(of(name, size))]), style),
        s("circle", { cx: x(bytes()), cy: y(takes(name)), r: 4, fill: "currentColor", class: MARKS[name] }),
        line([[box[0], row], [box[0] + 34, row]], style),
        label(box[0] + 42, row + 4, `${NAMES[name]}: ${time(takes(name))}`,
          { style: name === algorithm() ? "font-weight: 700" : null }));
    });
    return `at ${size(bytes())} ${names.map((name) => `${name} ${time(takes(name))}`).join(", ")}`;
  }, { height: 300, label: "time against size for three algorithms, both axes logarithmic" });

  const price = h("p", { "aria-live": "polite" });
  w.stages.append(costs, price);
  const tables = {
    held: w.table("What every rank has of every chunk: whose numbers, in the order of addition"),
    messages: w.table("Every message of every step"),
    cost: w.table("Steps, bytes and seconds of the three algorithms"),
  };

  // --- in words

  const pictured = () => (step() === 0 ? "nothing was sent yet"
    : last().messages.map(({ from, to, chunk }) => `rank ${from} sends ${what(chunk)} to rank ${to}`).join("; "));

  function rankSentence() {
    const held = heldAfter(step())[rank()];
    const done = held.filter((sum) => members(sum).length === n()).length;
    const out = last().messages.find(({ from }) => from === rank());
    const into = last().messages.find(({ to }) => to === rank());
    const said = [];
    if (out) said.push(`sent ${what(out.chunk)} to rank ${out.to}`);
    if (into) {
      const sum = written(held[into.chunk]);
      said.push(`received ${what(into.chunk)} from rank ${into.from}` +
        (last().adds ? ` and added it: ${sum}` : `: ${sum}`));
    }
    const did = !step() ? "has its own numbers alone" : said.join(", and ") || "waits: nothing to send or to receive";
    const has = whole() ? (done ? "It has the sum of all ranks." : "It has not got the sum of all ranks.")
      : `It has the finished sum of ${done} of ${n()} chunks.`;
    return `Rank ${rank()} ${did}. ${has}`;
  }

  // The ranks that send most: "Rank 0", "Ranks 0 and 4 each".
  function busiest(shares) {
    const most = upTo(n()).filter((r) => shares[r] === Math.max(...shares));
    return most.length === 1 ? `Rank ${most[0]}` : `Ranks ${most.join(" and ")} each`;
  }

  function stepSentence() {
    const [at, all] = [step(), steps().length];
    if (!at) return "Every rank has numbers of its own. Wanted: their sum, on every rank. Step or play.";
    const where = `Step ${at} of ${all}`;
    const ends = sent(algorithm(), n(), all);
    const most = Math.max(...ends);
    if (at === all) {
      const total = `${times(most)} the tensor, ${size(most * bytes())}`;
      return algorithm() === "ring"
        ? `${where}: done. Every rank sent 2(n−1)/n = ${total}: less than twice the tensor, however many ranks.`
        : `${where}: done. ${busiest(ends)} sent ${total}; the mean of all is ${times(mean())}, as round the ring, ` +
          "where no rank sends more than another.";
    }
    if (algorithm() !== "ring") {
      const goal = last().adds ? "sums go towards rank 0" : "the finished sum goes out from rank 0";
      const count = last().messages.length;
      return `${where}: ${goal}. ${count === 1 ? "One message" : `${count} messages at once, each`} of the whole ` +
        `tensor; ranks that wait: ${n() - 2 * count}.`;
    }
    if (last().adds) {
      return at === n() - 1
        ? `${where}: reduce-scatter is done. Every rank has one finished sum: that of the chunk with its own number.`
        : `${where}, reduce-scatter: every rank passes a partial sum to the next, which adds its own numbers; ` +
          `the sums on their way have ${at + 1} of ${n()} parts.`;
    }
    return `${where}, all-gather: finished sums go round; every rank has ${at - n() + 2} of ${n()}.`;
  }

  function costSentence() {
    const best = Object.keys(NAMES).reduce((a, b) => (takes(b) < takes(a) * (1 - 1e-12) ? b : a));
    const limit = crossover(n(), latency(), rate());
    const why = limit ? `Below ${size(limit)} the tree is faster than the ring: fewer messages, so less latency.`
      : `With ${n()} ranks the ring is never slower than the tree: it takes as few steps.`;
    return `${size(bytes())} over ${n()} ranks takes ${time(takes(algorithm()))}; fastest is the ${best}. ${why}`;
  }

  function redraw() {
    known.clear();
    drawSent();
    drawSteps(); // the largest last: a picture that is measured waits for all that was drawn before
    fillMessages();
    w.say(`${stepSentence()} ${rankSentence()}`);
    atEnd = step() >= steps().length;
  }

  function redrawAll() {
    redraw();
    drawCost();
    price.textContent = costSentence();
    tables.cost({
      columns: ["algorithm", "steps", "largest sent by a rank", "mean sent", "time"],
      rows: Object.keys(NAMES).map((name) => {
        const most = Math.max(...sent(name, n(), Infinity));
        return [NAMES[name], schedule(name, n()).length, `${times(most)}, ${size(most * bytes())}`,
          `${times(mean())}, ${size(mean() * bytes())}`, time(takes(name))];
      }),
    });
  }

  function fillMessages() {
    tables.held(() => ({
      columns: ["rank", ...upTo(numChunks(algorithm(), n())).map(what)],
      rows: holdings(algorithm(), n(), step()).map((row, r) => [`rank ${r}`, ...row.map(written)]),
    }));
    tables.messages(() => ({
      columns: ["step", "from rank", "to rank", "what", "the receiver", "bytes"],
      rows: steps().flatMap(({ adds, messages }, i) => messages.map(({ from, to, chunk }) => [
        `${i + 1}${i + 1 === step() ? " (now)" : ""}`, String(from), String(to), what(chunk),
        adds ? "adds" : "takes over", size(bytes() / numChunks(algorithm(), n()))])),
    }));
  }

  // What was done stays done when the algorithm or the ranks change.
  function renew() {
    const ended = atEnd;
    follow();
    busy = true;
    if (ended || model.get("step") > steps().length) w.put("step", steps().length);
    if (model.get("rank") > n() - 1) w.put("rank", n() - 1);
    busy = false;
    redrawAll();
  }
  const checked = (name, title) => () => {
    if (busy) return;
    if (model.get(name) > model.get("limits")[name].high) w.putNumber(name, title, model.get(name));
    else redraw();
  };

  // A press on a row chooses its rank, as the field does.
  picture.addEventListener("click", (event) => {
    const r = Math.floor((within(picture, event)[1] - top - HEAD + 10) / ROW);
    if (r >= 0 && r < n()) w.put("rank", r);
  });
  w.on(["algorithm", "num_ranks"], renew);
  w.on(["step"], checked("step", "steps done"));
  w.on(["rank"], checked("rank", "rank in words"));
  w.on(["megabytes", "latency_us", "gigabytes_per_s"], redrawAll);
  renew();
  return w.destroy;
}

export default { render };
