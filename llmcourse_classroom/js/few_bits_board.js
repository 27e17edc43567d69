import { clamp, frame, h, label, percent, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.real.quantise by the tests

const { abs, floor, fround, max, min, sign } = Math;

// The nearest number of float16, of two as near the even one.
export function half(x) {
  const unit = 2 ** (max(-14, floor(Math.log2(abs(x) || 1))) - 10);
  const below = floor(x / unit);
  const rest = x / unit - below;
  return (rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below) * unit;
}

// The grid of a block, in float32: codes from `first` to `last`, and what they mean, step * code + low.  Codes are found
// with scale and minimum as they are; kept are these in float16.
export function gridOf(block, bits, levels) {
  const [least, most] = [min(...block), max(...block)];
  const alone = levels === "scale alone";
  const last = 2 ** (bits - alone) - 1;
  const exact = alone ? fround(max(-least, most) / last) : fround(fround(most - least) / last);
  return { exact, from: alone ? 0 : least, step: half(exact), low: alone ? 0 : half(least), first: alone ? -last : 0, last, alone };
}

// Where a weight is rounded to: the nearest code of its block.
export function placed(x, { exact, from, step, low, first, last, alone }) {
  const scaled = exact ? fround(fround(x - from) * fround(1 / exact)) : 0;
  const code = alone ? sign(scaled) * floor(abs(scaled) + 0.5) : floor(fround(scaled + 0.5));
  return fround(step * clamp(code, first, last) + low);
}

// A row in blocks of so many weights: the grid of each, and where every weight is rounded to.
export function rounded(row, long, bits, levels) {
  const grids = Array.from({ length: Math.ceil(row.length / long) }, (_, i) => gridOf(row.slice(i * long, (i + 1) * long), bits, levels));
  return { grids, values: row.map((x, i) => placed(x, grids[Math.floor(i / long)])) };
}

// The root mean square of what rounding changes, as a share of the weights' own.
export function errorOf(weights, values) {
  const own = weights.reduce((sum, x) => sum + x * x, 0);
  return own ? Math.sqrt(weights.reduce((sum, x, i) => sum + (x - values[i]) ** 2, 0) / own) : 0;
}

// Of a weight: its own bits, and a share of its block's scale and minimum, two bytes each.
export const bytesOf = (bits, long, levels) => bits / 8 + (levels === "scale alone" ? 2 : 4) / long;

// --- the page

const STYLE = `
.lc .fb-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc svg .fb-11 { font-size: 11px; }
.lc svg .fb-muted { fill: var(--lc-muted); }
.lc svg .fb-bold { font-weight: 700; }
.lc svg .fb-big { font-size: 20px; font-weight: 700; }`;
const SEEN = 64; // weights of the row
const BAR = 24;
const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "␣" };
const visible = (token) => token.replace(/[\s\u00a0]/g, (c) => INVISIBLE[c] ?? "␣") || "(empty)";
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const perCent = (share) => (share < 1 ? "under 1 %" : `${share} %`);
const off = (share) => (share ? percent(share) : "exactly 0");
const end = { "text-anchor": "end" };

function render({ model, el }) {
  const w = frame({ model, el, title: "A row of weights in few bits", primary: ["bits", "block", "levels"] });
  w.root.prepend(h("style", {}, STYLE));
  const known = model.get("recorded");
  const rows = Object.fromEntries(Object.entries(known).map(([name, { row }]) => [name, row.weights.map(fround)]));
  const prompts = model.get("prompts");
  const { low: fewest, high: finest } = model.get("limits").bits;
  const now = () => Object.fromEntries(["weights", "bits", "block", "levels", "reads", "part"].map((name) => [name, model.get(name)]));
  const longOf = ({ weights, block }) => Number(block) || rows[weights].length;

  w.choice("weights", "weights of SmolLM2", { options: Object.keys(known), into: w.actions });
  w.number("bits", "bits a weight");
  w.choice("block", "weights in a block");
  w.choice("levels", "a block has");
  w.choice("reads", "the model reads", { options: prompts });
  w.number("part", "part of the row");
  w.player({
    perSecond: 1,
    longest: 10,
    step: () => {
      w.put("bits", model.get("bits") > fewest ? model.get("bits") - 1 : finest);
      return model.get("bits") > fewest;
    },
    reset: () => w.put("bits", finest),
  });

  // What is seen of the row, and what became of it.
  function seen({ weights, bits, levels, part, ...others }) {
    const row = rows[weights];
    const long = longOf({ weights, ...others });
    const [from, to] = [(part - 1) * SEEN, part * SEEN];
    const { grids, values } = rounded(row, long, bits, levels);
    const own = row.slice(from, to);
    const there = values.slice(from, to);
    return { long, from, grids, own, there, error: errorOf(own, there), ofRow: errorOf(row, values) };
  }

  // What the model says with all matrices rounded so, of the record: [share, token] with the place of the first choice.
  function said({ weights, bits, block, levels, reads }, plain = false) {
    const { error, next } = known[weights].next[plain ? "not rounded" : `${bits} bits, ${block}, ${levels}`];
    const [place, share, ...pairs] = next[prompts.indexOf(reads)];
    return { error, place, share, top: pairs.flatMap((token, i) => (i % 2 ? [] : [{ token, share: pairs[i + 1] }])) };
  }

  // --- the picture

  function layout(width) {
    const beside = width > 560;
    const right = beside ? width - 244 : width - 2;
    const lines = beside ? 1 : 2;
    const tall = beside ? 268 : 168;
    return { beside, left: 36, right, lines, tall, top: 26, gap: 34, panel: beside ? { x: right + 18, y: 4, long: 224 }
      : { x: 4, y: 26 + 2 * (tall + 34) + 8, long: width - 8 } };
  }

  function drawRow(svg, { left, right, lines, tall, top, gap }, { long, from, grids, own, there }, { bits }) {
    const [least, most] = [min(...own, ...there), max(...own, ...there)];
    const spare = (most - least) * 0.05;
    const count = SEEN / lines;
    const step = (right - left - 4) / count;
    const x = (i) => left + 4 + step * ((i % count) + 0.5);
    for (let at = 0; at < lines; at++) {
      const box = [top + at * (tall + gap), top + at * (tall + gap) + tall];
      const y = scale([least - spare, most + spare], [box[1], box[0]]);
      svg.append(s("rect", { x: left, y: box[0], width: right - left, height: tall, fill: "none", stroke: "var(--lc-line)" }),
        ...ticks(least, most, 4).map((t) => label(left - 5, y(t) + 4, show(t), { ...end, class: "fb-11 fb-muted" })));
      const [first, after] = [from + at * count, from + (at + 1) * count]; // of the row
      for (let i = Math.floor(first / long); i * long < after; i++) {
        const [a, b] = [max(first, i * long), min(after, (i + 1) * long)].map((n) => left + 4 + step * (n - first));
        const { step: high, low, first: code, last } = grids[i];
        const places = Array.from({ length: last - code + 1 }, (_, n) => y(low + high * (code + n))).filter((p) => p >= box[0] && p <= box[1]);
        svg.append(s("path", { d: places.map((p) => `M${(a + 1).toFixed(1)} ${p.toFixed(1)}H${(b - 1).toFixed(1)}`).join(""),
          stroke: "var(--lc-line)", "stroke-opacity": bits > 5 ? 0.45 : 0.8, "stroke-width": bits > 6 ? 0.5 : 1 }),
        a > left + 4 ? s("line", { x1: a, x2: a, y1: box[0], y2: box[1] + 4, stroke: "var(--lc-text)", "stroke-dasharray": "3 3" }) : "",
        label((a + b) / 2, box[1] + 15, b - a > 110 ? `levels ${show(high, 2)} apart` : show(high, 2), { "text-anchor": "middle", class: "fb-11 fb-muted" }));
      }
      for (let i = at * count; i < (at + 1) * count; i++) {
        const [to, of] = [y(there[i]), y(own[i])];
        svg.append(s("line", { x1: x(i), x2: x(i), y1: of, y2: to, stroke: "currentColor", class: "lc-2", "stroke-width": 2.5 }),
          s("rect", { x: x(i) - min(4, step / 2.2), width: 2 * min(4, step / 2.2), y: to - 1.5, height: 3, fill: "currentColor", class: "lc-1" }),
          s("circle", { cx: x(i), cy: of, r: min(2.6, step / 2.4), fill: "none", stroke: "var(--lc-text)", "stroke-width": 1.2 }));
      }
    }
    svg.append(s("circle", { cx: left + 6, cy: 11, r: 2.6, fill: "none", stroke: "var(--lc-text)", "stroke-width": 1.2 }),
      label(left + 13, 15, "a weight", { class: "fb-11" }),
      s("rect", { x: left + 68, y: 9.5, width: 8, height: 3, fill: "currentColor", class: "lc-1" }),
      label(left + 81, 15, "its level", { class: "fb-11" }),
      s("line", { x1: left + 136, x2: left + 136, y1: 5, y2: 17, stroke: "currentColor", class: "lc-2", "stroke-width": 2.5 }),
      label(left + 143, 15, "what is lost", { class: "fb-11" }));
  }

  function drawPanel(svg, { beside, panel }, { error, long }, state) {
    const { bits, levels, reads } = state;
    const [with_, plain] = [said(state), said(state, true)];
    const before = new Map(plain.top.map(({ token, share }) => [token, share]));
    const first = plain.top[0].token;
    const shown = with_.top.map((one, i) => ({ ...one, place: i + 1 }));
    if (with_.place > shown.length) shown.push({ token: first, share: with_.share, place: with_.place });
    const column = beside ? { x: 0, y: 46 } : { x: panel.long / 2, y: 0 };
    const name = 88;
    const bar = panel.long - name - 42;
    const y0 = beside ? 110 : 66;
    svg.append(s("g", { transform: `translate(${panel.x} ${panel.y})` },
      label(0, 18, off(error), { class: "fb-big" }),
      label(0, 33, "error of these weights", { class: "fb-11 fb-muted" }),
      label(column.x, column.y + 18, show(bytesOf(bits, long, levels)), { class: "fb-big" }),
      label(column.x, column.y + 33, "bytes a weight (float32: 4)", { class: "fb-11 fb-muted" }),
      label(0, y0, `recorded: all matrices so, error ${with_.error ? percent(with_.error) : 0},`, { class: "fb-11 fb-muted" }),
      label(0, y0 + 15, `next after “${cut(reads, 26)}”`, { class: "fb-11 fb-muted" })));
    shown.forEach(({ token, share, place }, i) => {
      const isFirst = token === first;
      const look = isFirst ? "fb-bold" : "";
      svg.append(s("g", { "data-key": `next ${token}`, transform: `translate(${panel.x} ${panel.y + y0 + 20 + BAR * i + (place > 5 ? 6 : 0)})` },
        label(name - 6, 16, `${place > 5 ? `${show(place)}. ` : ""}${cut(visible(token), place > 5 ? 7 : 12)}`, { ...end, class: look }),
        before.get(token) ? s("rect", { x: name, y: 3, width: bar * before.get(token) / 100, height: BAR - 6, fill: "none",
          stroke: "var(--lc-text)", "stroke-dasharray": "3 2" }) : null,
        s("rect", { x: name, y: 7, width: max(1, bar * share / 100), height: BAR - 14, fill: isFirst ? "currentColor" : "var(--lc-muted)", class: "lc-1" }),
        label(panel.long, 16, share < 1 ? "<1 %" : `${share} %`, { ...end, class: look })));
    });
  }

  const draw = w.stage((svg, width) => {
    const [places, state] = [layout(width), now()];
    const found = seen(state);
    drawRow(svg, places, found, state);
    drawPanel(svg, places, found, state);
    return `${sentence(state, found)} The likeliest: ${said(state).top.map(({ token, share }) => `${visible(token)} ${perCent(share)}`).join(", ")}.`;
  }, { height: (width) => { const { beside, top, tall, panel } = layout(width); return beside ? top + tall + 22 : panel.y + 66 + 20 + 6 * BAR + 12; },
    label: "weights on their levels, and the next token", lasts: 2 });
  w.stages.append(h("p", { class: "fb-small" }, `Shown: ${SEEN} weights of ${Object.values(known)[0].row.where}. Levels, error and bytes are ` +
    "computed here; what all matrices do is recorded. Dashed: the share without rounding. Bold: the token that is likeliest then. " +
    "Shuffled: the same weights in another order, which compute the same and lie on no grid."));
  const numbers = w.table("All numbers of bits");

  // --- in words

  function sentence(state, { error, long, grids, from }) {
    const { bits, levels, reads } = state;
    const { first, last } = grids[Math.floor(from / long)];
    const [with_, plain] = [said(state), said(state, true)];
    const at = ({ top: [{ token, share }] }) => `“${visible(token)}” with ${perCent(share)}`;
    return `${bits} bits: ${last - first + 1} levels for each ${long} weights, ${show(bytesOf(bits, long, levels))} bytes a weight. ` +
      `Error of these ${SEEN} weights: ${off(error)}. With all matrices rounded so (error ${off(with_.error)}), the likeliest token after “${reads}” ` +
      `is ${at(with_)}; without rounding it is ${at(plain)}.`;
  }

  function redraw() {
    draw();
    const state = now();
    numbers(() => ({ columns: ["bits", "error of these weights", "of the row", "of all matrices", "bytes a weight", "likeliest next token"],
      rows: Array.from({ length: finest - fewest + 1 }, (_, i) => {
        const each = { ...state, bits: fewest + i };
        const [found, next] = [seen(each), said(each)];
        return [String(each.bits), off(found.error), off(found.ofRow), off(next.error), show(bytesOf(each.bits, found.long, each.levels)),
          `${visible(next.top[0].token)} ${perCent(next.top[0].share)}`];
      }) }));
    w.say(sentence(state, seen(state)));
  }
  w.on(["weights", "bits", "block", "levels", "reads", "part"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
