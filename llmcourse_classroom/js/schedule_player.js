import { clamp, frame, h, label, line, listed, percent, plural, s, scale, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.parallel.pipeline by the tests

const upTo = (count) => Array.from({ length: count }, (_, i) => i);

// Why a schedule cannot be made, in words; "" where it can.
export function refused(name, p, m) {
  if (name !== "interleaved" || m % p === 0) return "";
  const below = Math.floor(m / p) * p;
  return `Not a schedule. Interleaved: micro-batches go round in groups of p, so m must be a multiple of p = ${p}. ` +
    `Given: ${m}; nearest: ${below ? `${below} or ${below + p}` : p}.`;
}

// Why a schedule that can be made is not worth a run; "" where it is.
export const starved = (p, m) => (m >= p ? "" : `A training run asks for m of p or more: ${m} micro-batch` +
  `${m === 1 ? " is" : "es are"} too few to keep ${p} ranks at work.`);

// Forward passes ahead of time, then a forward and a backward by turns, then what is left of backward.
function inTurn(forward, backward, ahead) {
  const first = Math.min(ahead, forward.length);
  return [
    ...forward.slice(0, first),
    ...forward.slice(first).flatMap((action, i) => [action, backward[i]]),
    ...backward.slice(forward.length - first),
  ];
}

// The actions of every rank in order: [kind, micro-batch, chunk].  F forward, B backward; I and W are the parts of a
// backward pass that give the gradients of the input and of the weights.
const SCHEDULES = {
  gpipe: (p, m) => upTo(p).map(() => ["F", "B"].flatMap((kind) => upTo(m).map((i) => [kind, i, 0]))),

  "1f1b": (p, m) => upTo(p).map((r) =>
    inTurn(upTo(m).map((i) => ["F", i, 0]), upTo(m).map((i) => ["B", i, 0]), p - 1 - r)),

  // p micro-batches pass the first chunk, then the second, and so on; then the next p.
  interleaved: (p, m, v) => upTo(p).map((r) => {
    const order = (kind, chunkOf) => upTo(m * v).map((k) =>
      [kind, Math.floor(k / (p * v)) * p + k % p, chunkOf(Math.floor(k % (p * v) / p))]);
    return inTurn(order("F", (c) => c), order("B", (c) => v - 1 - c), 2 * (p - 1 - r) + (v - 1) * p);
  }),

  // As 1F1B, with the weights' part put off by as many micro-batches as the rank's number.
  zero_bubble: (p, m) => upTo(p).map((r) => {
    const row = inTurn(upTo(m).map((i) => ["F", i, 0]), upTo(m).map((i) => ["I", i, 0]), p - 1 - r);
    return [
      ...row.flatMap(([kind, i]) => (kind === "I" && i >= r ? [[kind, i, 0], ["W", i - r, 0]] : [[kind, i, 0]])),
      ...upTo(Math.min(r, m)).map((i) => ["W", m - Math.min(r, m) + i, 0]),
    ];
  }),
};

export const schedule = (name, p, m, v) => SCHEDULES[name](p, m, v);

const TICKS = { F: 1, B: 2, I: 1, W: 1 }; // a tick is the forward pass of one chunk

// When every action begins and ends, in ticks: as soon as the rank is free and its input is there.  A message takes no
// time.  One row for each rank, of { kind, i, chunk, start, end }.
export function simulate(name, p, m, v) {
  const orders = schedule(name, p, m, v);
  const chunks = name === "interleaved" ? v : 1;
  const ends = new Map();
  const output = (what, i, stage) => `${what === "F" || what === "W" ? what : "B"} ${i} ${stage}`;
  const inputs = (what, i, stage) => {
    if (what === "W") return [output("B", i, stage)];
    if (what === "F") return stage ? [output("F", i, stage - 1)] : [];
    return [output("F", i, stage), ...(stage < p * chunks - 1 ? [output("B", i, stage + 1)] : [])];
  };
  const rows = orders.map(() => []);
  for (let moved = true; moved;) {
    moved = false;
    for (const r of upTo(p)) {
      while (rows[r].length < orders[r].length) {
        const [what, i, chunk] = orders[r][rows[r].length];
        const needed = inputs(what, i, chunk * p + r);
        if (!needed.every((input) => ends.has(input))) break;
        const start = Math.max(rows[r].length ? rows[r].at(-1).end : 0, ...needed.map((input) => ends.get(input)));
        const end = start + TICKS[what];
        ends.set(output(what, i, chunk * p + r), end);
        rows[r].push({ kind: what, i, chunk, start, end });
        moved = true;
      }
    }
  }
  return rows;
}

export const span = (rows) => Math.max(0, ...rows.flat().map(({ end }) => end));

// Idle over working time, of all ranks together.
export function bubble(rows) {
  const work = rows.flat().reduce((sum, { start, end }) => sum + end - start, 0);
  return (rows.length * span(rows) - work) / work;
}

// What the bubble should be.  In zero-bubble every rank fills as many units as it has micro-batches to put off.
export function formula(name, p, m, v) {
  if (name === "zero_bubble") return (2 * (p - 1) - (Math.min(m, p) - 1)) / (3 * m);
  return (p - 1) / (name === "interleaved" ? v * m : m);
}

// What a rank keeps at a moment: [micro-batch, chunk] from the start of its forward pass to the end of the last part of
// its backward pass.
export function live(row, moment) {
  const last = row.some(({ kind }) => kind === "W") ? "W" : "B";
  const done = new Set(row.filter(({ kind, end }) => kind === last && end <= moment)
    .map(({ i, chunk }) => `${i} ${chunk}`));
  return row.filter(({ kind, i, chunk, start }) => kind === "F" && start <= moment && !done.has(`${i} ${chunk}`))
    .map(({ i, chunk }) => [i, chunk]);
}

// The most that a rank keeps at one time.
export const peak = (row) => Math.max(0, ...row.filter(({ kind }) => kind === "F")
  .map(({ start }) => live(row, start).length));

// Where a micro-batch is at a moment: at a rank that works on it or where it waits for its next action, and of which
// kind that is; at rank -1 before its first action and after its last.
export function whereIs(rows, i, moment) {
  const way = rows.flatMap((row, rank) => row.filter((action) => action.i === i && action.kind !== "W")
    .map((action) => ({ ...action, rank }))).sort((a, b) => a.start - b.start);
  const now = way.find(({ start, end }) => start <= moment && moment < end);
  const next = way.find(({ start }) => start > moment);
  if (now) return { rank: now.rank, kind: now.kind, waits: false };
  if (!next) return { rank: -1, kind: way.at(-1).kind, waits: false };
  return { rank: next === way[0] ? -1 : next.rank, kind: next.kind, waits: true };
}

// Messages that a rank sends in a step: forward and backward, to other ranks.
export function messages(p, m, chunks) {
  return upTo(p).map((r) => (p === 1 ? 0 : m * (chunks * 2 - (r === p - 1) - (r === 0))));
}

// --- the page

const NAMES = { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "interleaved 1F1B", zero_bubble: "zero-bubble (ZB-H1)" };
const WORDS = { F: "forward", B: "backward", I: "backward, input part", W: "backward, weight part" };
const MARKS = { F: "lc-1", B: "lc-2", I: "lc-2", W: "lc-3" };
const STYLE = `
.lc.sp .lc-control { flex-basis: 20rem; }
.lc.sp .sp-small { font-size: 0.85rem; color: var(--lc-muted); }
@container (max-width: 420px) { .lc.sp .lc-control { flex-basis: 100%; } }`;
const LEFT = 52; // of the rows, for their names
const TRACK = 118; // above all, for the ranks and what is with them
const HEAD = TRACK + 32; // above the rows, for the moment
const CELL = 20; // of a live micro-batch
const THIN = (p) => (p > 4 ? 8 : 12); // a row among all schedules

function render({ model, el }) {
  const w = frame({ model, el, title: "A pipeline, action by action" });
  w.root.classList.add("sp");
  w.root.prepend(h("style", {}, STYLE));
  const which = () => model.get("schedule");
  const [p, m] = [() => model.get("num_ranks"), () => model.get("micro_batches")];
  const v = () => (which() === "interleaved" ? model.get("chunks") : 1);
  let rows = []; // of the schedule that is shown; none where it is refused
  let peaks = []; // of its ranks
  let total = 0;
  let busy = false;
  let atEnd = false;
  const moment = () => clamp(model.get("moment"), 0, total);
  const units = (ticks) => show(ticks / v());

  w.choice("schedule", "schedule", { options: Object.keys(NAMES), labels: Object.values(NAMES) });
  w.number("num_ranks", "ranks p");
  w.number("micro_batches", "micro-batches m");
  const chunkControl = w.number("chunks", "chunks v");
  const slider = w.number("moment", "moment");
  const player = w.player({
    perSecond: 2,
    step: () => {
      if (!total) return false;
      w.put("moment", moment() < total ? moment() + 1 : 0); // the end, then anew
      return moment() < total;
    },
    reset: () => w.put("moment", 0),
  });
  w.button("Back", () => {
    player.stop();
    w.put("moment", Math.max(0, moment() - 1));
  });
  const mend = w.button("Take the nearest m that is allowed", () => {
    const { high } = model.get("limits").micro_batches;
    w.putNumber("micro_batches", "micro-batches m", Math.min(Math.ceil(m() / p()), Math.floor(high / p())) * p());
  });

  const running = (row, at = moment()) => row.find(({ start, end }) => start <= at && at < end);
  const name = ({ kind: what, i, chunk }) => `${what}${i}${v() > 1 ? `.${chunk}` : ""}`;

  // --- the schedule, a row for each rank and in it a lane for each chunk

  const lane = () => (v() > 2 ? 14 : v() > 1 ? 17 : 24);
  const pitch = () => v() * lane() + 10;

  const patterns = { B: uniqueId(), W: uniqueId() };
  function fills(svg) {
    const made = {};
    for (const [what, shape] of [["B", s("path", { d: "M-1 6 L6 -1", "stroke-width": 1.6 })],
      ["W", s("circle", { cx: 2.5, cy: 2.5, r: 1.1, fill: "var(--lc-on)" })]]) {
      const id = patterns[what];
      shape.setAttribute("stroke", what === "B" ? "var(--lc-on)" : "none");
      svg.append(s("defs", {}, s("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse" }, shape)));
      made[what] = `url(#${id})`;
    }
    return { ...made, I: made.B };
  }

  // An action in the picture.  From one moment to the next nearly all look as before: those are copies.
  let [known, older] = [new Map(), new Map()];
  function block(filled, x, y, wide, action, ahead) {
    const look = [x, y, wide, lane(), action.kind, action.i, ahead].join();
    known.set(look, older.get(look) || makeBlock(filled, x, y, wide, action, ahead));
    return known.get(look).cloneNode(true);
  }
  function makeBlock(filled, x, y, wide, action, ahead) {
    const tall = lane() - 1;
    const gap = wide > 4 ? 1 : 0.3;
    const look = ahead ? { fill: "none", stroke: "currentColor", "stroke-width": wide > 4 ? 1 : 0.6 }
      : { fill: "currentColor" };
    const inset = ahead ? 0.5 : 0;
    const made = s("g", {}, s("rect", { x: x + inset, y: y + inset, width: Math.max(0.8, wide - gap - 2 * inset),
      height: tall - 2 * inset, ...look, class: MARKS[action.kind] }));
    if (filled[action.kind] && !ahead) { // told apart without colour, too
      made.append(s("rect", { x, y: y + tall - 5, width: wide - gap, height: 5, fill: filled[action.kind] }));
    }
    const text = wide >= 24 && action.i < 100 ? `${action.kind}${action.i}` : String(action.i);
    if (wide > 6.5 * text.length + 3 && lane() > 12) {
      made.append(label(x + (wide - gap) / 2, y + tall / 2 + (filled[action.kind] && !ahead ? 1.5 : 4), text,
        { "text-anchor": "middle",
          style: `font-size: ${lane() > 20 ? 12 : 10}px; ${ahead ? "" : "fill: var(--lc-on)"}` }));
    }
    return made;
  }

  // The ranks side by side, and every micro-batch where it is: it goes from rank to rank, and back.
  function drawTrack(svg, width) {
    const from = 62;
    const wide = (width - from - 4) / p();
    const r = clamp(wide * 0.2, 6.5, 12);
    const lanes = { F: 34, works: 59, B: 84, I: 84 };
    const disc = (key, [x, y], kind, i) => s("g", { "data-key": key, "data-while": "0 1", transform: `translate(${x} ${y})` },
      s("circle", { r, fill: "currentColor", class: MARKS[kind], stroke: "var(--lc-back)" }),
      kind === "F" ? null : s("circle", { r: r - 2, fill: "none", stroke: "var(--lc-on)", "stroke-dasharray": "2 2" }),
      r > 7 ? label(0, 4, i, { "text-anchor": "middle", style: `fill: var(--lc-on); font-size: ${r > 10 ? 12 : 10}px` }) : null);
    for (const rank of upTo(p())) {
      const x = from + rank * wide;
      svg.append(s("g", { "data-key": `box ${rank}` },
        s("rect", { x, y: 19, width: wide - 6, height: 80, rx: 5, fill: "var(--lc-back)", stroke: "var(--lc-line)" }),
        label(x + (wide - 6) / 2, 12, wide > 50 ? `rank ${rank}` : rank, { "text-anchor": "middle" })));
    }
    const now = upTo(m()).map((i) => whereIs(rows, i, moment()));
    const alike = (a, b) => a.rank === b.rank && a.waits === b.waits && lanes[a.kind] === lanes[b.kind];
    const there = upTo(m()).map((i) => {
      const { rank, kind, waits } = now[i];
      if (rank < 0) return [27, lanes[waits ? "F" : "B"]];
      const middle = from + rank * wide + (wide - 6) / 2;
      if (!waits) return [middle, lanes.works];
      const queue = upTo(m()).filter((k) => alike(now[k], now[i]));
      const pitch = Math.min(2 * r + 2, (wide - 10 - 2 * r) / Math.max(1, queue.length - 1));
      return [middle + (queue.indexOf(i) - (queue.length - 1) / 2) * pitch, lanes[kind]];
    });
    rows.forEach((row, rank) => {
      const action = moment() < total && running(row);
      if (action && action.kind === "W") {
        svg.append(disc(`weights ${rank} ${action.i}`, [from + rank * wide + (wide - 6) / 2, lanes.works], "W", action.i));
      }
    });
    const order = upTo(m()).sort((a, b) => now[b].waits - now[a].waits || b - a); // what goes next lies on top
    for (const i of order) svg.append(disc(`batch ${i}`, there[i], now[i].kind, i));
    const come = now.filter(({ rank, waits }) => rank < 0 && waits).length;
    const done = now.filter(({ rank, waits }) => rank < 0 && !waits).length;
    svg.append(s("g", { "data-key": "piles" }, label(2, 12, `${come} to come`), label(2, 111, `${done} done`)));
  }

  let momentPlace = null; // of the handle
  let toMoment = () => 0;
  const drawSchedule = w.stage((svg, width, tall) => {
    if (!total) {
      momentPlace = null;
      svg.append(label(width / 2, 30, "no schedule: the rule is below", { "text-anchor": "middle" }));
      return refused(which(), p(), m());
    }
    drawTrack(svg, width);
    [known, older] = [new Map(), known];
    const filled = fills(svg);
    const x = scale([0, total], [LEFT, width - 6]);
    const one = x(1) - x(0);
    const bottom = HEAD + p() * pitch();
    const every = [1, 2, 3, 6, 12, 24].find((step) => step * v() * one > 26) || 48;
    for (let t = 0; t <= total; t += every * v()) {
      svg.append(label(Math.min(x(t), width - 10), bottom + 12, units(t), { "text-anchor": "middle" }),
        s("line", { "data-key": `line ${t}`, x1: x(t), x2: x(t), y1: HEAD - 4, y2: bottom - 4, stroke: "var(--lc-line)", "stroke-width": 0.5 }));
    }
    rows.forEach((row, r) => {
      const y = HEAD + r * pitch();
      svg.append(label(LEFT - 6, y + pitch() / 2, `rank ${r}`, { "text-anchor": "end" }),
        s("rect", { x: LEFT, y, width: x(total) - LEFT, height: v() * lane(), fill: "var(--lc-back)" }));
      const now = running(row);
      for (const action of row) {
        const [a, b] = [x(action.start), x(action.end)];
        const group = block(filled, a, y + action.chunk * lane(), b - a, action, action.start >= moment() && moment() < total &&
          action !== now);
        group.dataset.key = `${r} ${name(action)}`;
        svg.append(group);
      }
      if (now && moment() < total) {
        svg.append(s("rect", { "data-key": `now ${r}`, x: x(now.start) - 1.5, y: y + now.chunk * lane() - 1.5,
          width: x(now.end) - x(now.start) + 2, height: lane() + 2, fill: "none", stroke: "var(--lc-text)",
          "stroke-width": 2 }));
      }
    });
    const at = x(moment());
    const far = at > width - 90;
    svg.append(line([[at, HEAD - 8], [at, bottom - 2]], { stroke: "var(--lc-text)", "stroke-width": 2,
      "stroke-dasharray": "5 3" }),
    label(far ? at - 18 : at + 18, TRACK + 17, `${units(moment())} ${moment() === v() ? "unit" : "units"}`,
      { "text-anchor": far ? "end" : "start" }));
    momentPlace = [at, TRACK + 14];
    toMoment = (px) => Math.round((px - LEFT) / (x(total) - LEFT) * total);
    let [left, y] = [width < 420 ? 4 : LEFT, tall - 5];
    for (const what of which() === "zero_bubble" ? ["F", "I", "W"] : ["F", "B"]) {
      svg.append(s("rect", { x: left, y: y - 11, width: 14, height: 12, fill: "currentColor", class: MARKS[what] }));
      if (filled[what]) svg.append(s("rect", { x: left, y: y - 4, width: 14, height: 5, fill: filled[what] }));
      const said = { F: "F forward", B: "B backward", I: "I input part", W: "W weight part" }[what];
      svg.append(label(left + 18, y, said));
      left += 28 + 6.4 * said.length;
    }
    svg.style.cursor = "pointer";
    return `${NAMES[which()]}, ${plural(p(), "rank")}, ${plural(m(), "micro-batch", "micro-batches")}` +
      `${v() > 1 ? `, ${v()} chunks on each rank` : ""}, ${units(total)} units of time. ${doing()}`;
  }, { height: () => (total ? HEAD + p() * pitch() + 40 : 50), label: "what every rank does over time", lasts: 2 });
  const picture = drawSchedule.picture;

  drawSchedule.handle({ x: slider, at: () => momentPlace, label: "moment in the picture",
    to: ([x]) => { player.stop(); return toMoment(x); } });

  w.stages.append(w.root.querySelector(".lc-status")); // beside what it is about
  const verdict = h("p", { class: "sp-verdict", "aria-live": "polite" });
  const caption = h("p", { class: "sp-small" });
  w.stages.append(verdict);

  // --- all schedules on one scale of time, in units

  let made = []; // of each schedule, its rows, its chunks and how long it takes; null where it is refused
  const makeAll = () => Object.keys(NAMES).map((other) => {
    const chunks = other === "interleaved" ? model.get("chunks") : 1;
    if (refused(other, p(), m())) return null;
    const drawn = other === which() ? rows : simulate(other, p(), m(), chunks);
    return { drawn, chunks, long: span(drawn) / chunks };
  });
  // What does not hang on the moment: made when the settings change, or the width.
  let board = null; // its width, its parts, its words, and its strips: [top, bottom, schedule], for a press
  function makeBoard(width) {
    const names = Object.keys(NAMES);
    const most = Math.max(...made.map((one) => (one ? one.long : 0)));
    const x = scale([0, most], [2, width - 6]);
    const thin = THIN(p());
    const [parts, strips] = [[], []];
    const said = names.map((other, k) => {
      const top = 8 + k * (p() * thin + 32);
      const low = top + 20 + p() * thin;
      const one = made[k];
      strips.push([top - 4, low + 8, other]);
      if (other === which()) {
        parts.push(s("rect", { "data-key": "chosen", x: 0.75, y: top - 6, width: width - 1.5, height: low - top + 13,
          rx: 4, fill: "none", stroke: "var(--lc-1)", "stroke-width": 1.5 }));
      }
      const group = s("g", { "data-key": other });
      parts.push(group);
      const words = one ? `${show(one.long)} units, bubble ${percent(bubble(one.drawn))}` : "not allowed here";
      const name = width < 420 ? NAMES[other].replace("interleaved 1F1B", "interleaved").replace(" (ZB-H1)", "")
        : NAMES[other];
      group.append(label(8, top + 10, name, { style: `font-weight: ${other === which() ? 700 : 400}` }),
        label(width - 8, top + 10, words, { "text-anchor": "end" }));
      if (!one) return `${NAMES[other]} is ${words}`;
      // What is not covered is idle.
      group.append(s("rect", { x: x(0), y: top + 17, width: x(one.long) - x(0), height: p() * thin, class: "lc-5",
        fill: "currentColor", opacity: 0.22 }));
      for (const what of ["F", "B", "I", "W"]) {
        const boxes = one.drawn.flatMap((row, r) => row.filter(({ kind }) => kind === what).map(({ start, end }) => {
          const [a, b] = [x(start / one.chunks), x(end / one.chunks)];
          const gap = b - a > 5 ? 1 : 0.25;
          return `M${a.toFixed(2)} ${top + 17 + r * thin}h${(b - a - gap).toFixed(2)}v${thin - 1}` +
            `h${(a - b + gap).toFixed(2)}z`;
        }));
        group.append(s("path", { d: boxes.join("") || "M0 0", fill: "currentColor", class: MARKS[what],
          "fill-opacity": what === "I" ? 0.7 : 1 }));
      }
      return `${NAMES[other]} ${words}`;
    });
    return { width, parts, strips, said: said.join("; "), x, bottom: names.length * (p() * thin + 32) };
  }
  const drawAll = w.stage((svg, width) => {
    if (board?.width !== width) board = makeBoard(width);
    svg.append(...board.parts.map((part) => part.cloneNode(true)));
    if (total) {
      const now = board.x(moment() / v());
      svg.append(line([[now, 4], [now, board.bottom]], { stroke: "var(--lc-text)", "stroke-width": 1.5,
        "stroke-dasharray": "5 3" }));
    }
    svg.style.cursor = "pointer";
    return board.said;
  }, { height: () => 8 + 4 * (p() * THIN(p()) + 32), label: "the four schedules on one scale of time" });
  drawAll.picture.addEventListener("click", (event) => {
    const [, y] = within(drawAll.picture, event);
    const found = board.strips.find(([top, bottom]) => top <= y && y <= bottom);
    if (found) w.put("schedule", found[2]);
  });
  w.stages.append(h("p", { class: "sp-small" }, "All four on one scale of time; where a line is pale, its rank waits. Press " +
    "one to see it above."));

  // --- what is live

  w.stages.append(caption);
  const drawLive = w.stage((svg, width) => {
    if (!total) return "nothing";
    const most = Math.max(...peaks);
    const room = Math.min(26, (width - LEFT - 84) / most);
    rows.forEach((row, r) => {
      const y = 4 + r * (CELL + 5);
      const held = live(row, moment());
      svg.append(label(LEFT - 6, y + 15, `rank ${r}`, { "text-anchor": "end" }));
      upTo(peaks[r]).forEach((k) => {
        const x = LEFT + k * room;
        const full = k < held.length;
        svg.append(s("rect", { x: x + 0.5, y: y + 0.5, width: Math.max(1, room - 2), height: CELL - 1,
          fill: full ? "currentColor" : "none", stroke: full ? "none" : "var(--lc-line)", class: "lc-4" }));
        if (full && room > 18) {
          svg.append(label(x + (room - 1) / 2, y + 14, held[k][0],
            { "text-anchor": "middle", style: "fill: var(--lc-on)" }));
        }
      });
      svg.append(label(LEFT + peaks[r] * room + 5, y + 15, `${held.length} of ${peaks[r]}`));
    });
    return rows.map((row, r) => `rank ${r} keeps ${live(row, moment()).length}, at most ${peaks[r]}`).join("; ");
  }, { height: () => (total ? 8 + p() * (CELL + 5) : 10), label: "live micro-batches of every rank" });

  const tables = {
    now: w.table("Every rank at this moment"),
    order: w.table("The order of actions of every rank"),
    compare: w.table("The four schedules for these numbers"),
  };

  // --- in words

  const doing = () => rows.map((row, r) => {
    const now = running(row);
    if (now) return `rank ${r} ${name(now)}`;
    return `rank ${r} ${moment() >= (row.at(-1)?.end ?? 0) ? "is done" : "waits"}`;
  }).join(", ");

  function sentence() {
    if (moment() >= total) return `All is done after ${units(total)} units.`;
    return `At ${units(moment())} of ${units(total)} units: ${doing()}.`;
  }

  function judge() {
    const work = 3 * m() * v();
    const idle = total - work;
    const [text, values] = {
      interleaved: ["(p − 1)/(v m)", `${p() - 1}/(${v()} · ${m()})`],
      zero_bubble: m() >= p() ? ["(p − 1)/(3 m)", `${p() - 1}/(3 · ${m()})`]
        : ["(2 (p − 1) − (m − 1))/(3 m)", `${2 * p() - 1 - m()}/(3 · ${m()})`],
    }[which()] || ["(p − 1)/m", `${p() - 1}/${m()}`];
    return `Bubble: every rank works ${units(work)} units and waits ${units(idle)}, which is ` +
      `${units(idle)}/${units(work)} = ${percent(bubble(rows))} of its work. Formula: ${text} = ${values} = ` +
      `${percent(formula(which(), p(), m(), v()))}. Peak of live micro-batches${v() > 1 ? ", each for one chunk" : ""}: ` +
      `${listed(peaks.map(String))}${p() > 1 ? `, rank 0 to ${p() - 1}` : ""}. ` +
      starved(p(), m());
  }

  function fillTables() {
    tables.now(() => ({
      columns: ["rank", "does", "until, units", "live now", "peak", "works, units", "waits, units"],
      rows: rows.map((row, r) => {
        const now = running(row);
        const work = row.reduce((sum, { start, end }) => sum + end - start, 0);
        return [`rank ${r}`, now ? `${WORDS[now.kind]} of micro-batch ${now.i}${v() > 1 ? `, chunk ${now.chunk}` : ""}`
          : moment() >= (row.at(-1)?.end ?? 0) ? "is done" : "waits", now ? units(now.end) : "",
        live(row, moment()).map(([i, c]) => (v() > 1 ? `${i}.${c}` : i)).join(" ") || "none", String(peaks[r]),
        units(work), units(total - work)];
      }),
    }));
  }

  // What does not hang on the moment.
  function fillPlans() {
    tables.order({ columns: ["rank", "actions in order"],
      rows: rows.map((row, r) => [`rank ${r}`, row.map(name).join(" ")]) });
    tables.compare({
      columns: ["schedule", "time, units", "bubble", "peak on rank 0", "on the last rank", "messages of a step"],
      rows: Object.keys(NAMES).map((other, k) => {
        if (!made[k]) return [NAMES[other], "not allowed", "", "", "", ""];
        const { drawn, chunks } = made[k];
        const share = (count) => (chunks > 1 ? `${count}/${chunks}` : String(count));
        return [`${NAMES[other]}${chunks > 1 ? `, v = ${chunks}` : ""}`, show(span(drawn) / chunks),
          percent(bubble(drawn)), share(peak(drawn[0])), share(peak(drawn.at(-1))),
          String(messages(p(), m(), chunks).reduce((a, b) => a + b, 0))];
      }),
    });
  }

  function redraw() {
    drawLive();
    drawAll();
    drawSchedule(); // the largest last: a picture that is measured waits for all that was drawn before
    const rule = refused(which(), p(), m());
    mend.hidden = !rule;
    w.say(rule || sentence());
    verdict.textContent = rule ? "" : judge();
    caption.textContent = rule ? "" : "Below: micro-batches that are live, from the start of forward to the end of " +
      `backward${v() > 1 ? "; each is counted for every chunk, which holds a v-th of the rank’s layers" : ""}. ` +
      "Frames without filling: the peak. One unit is the forward pass of all layers of a rank; backward takes two.";
    fillTables();
    atEnd = total > 0 && moment() >= total;
  }

  // What was done stays done when the schedule changes.
  function renew() {
    const ended = atEnd;
    const rule = refused(which(), p(), m());
    rows = rule ? [] : simulate(which(), p(), m(), v());
    total = span(rows);
    peaks = rows.map(peak);
    made = makeAll();
    board = null;
    chunkControl.range.parentElement.style.display = which() === "interleaved" ? "" : "none";
    model.get("limits").moment.high = slider.range.max = slider.field.max = total;
    slider.range.parentElement.querySelector("label").textContent = v() > 1 ? `moment, units/${v()}` : "moment, units";
    busy = true;
    if (ended || model.get("moment") > total) w.put("moment", total);
    busy = false;
    slider.range.value = model.get("moment");
    redraw();
    fillPlans();
  }

  // A press on the picture moves to that moment.
  picture.addEventListener("click", (event) => {
    const share = (within(picture, event)[0] - LEFT) / (picture.viewBox.baseVal.width - LEFT - 6);
    if (total && share > -0.05) { player.stop(); w.put("moment", clamp(Math.round(share * total), 0, total)); }
  });
  w.on(["schedule", "num_ranks", "micro_batches", "chunks"], renew);
  w.on(["moment"], () => { if (!busy) redraw(); });
  renew();
  return w.destroy;
}

export default { render };
