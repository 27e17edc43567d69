import { axes, clamp, frame, h, label, line, listed, onDrag, plural, s, scale, show } from "./kit.js";

// --- arithmetic, compared with numpy and llmcourse_labs.tuning.votes by the tests

// The chance that one of k draws is right, where each is with a chance of p.
export const oneOf = (k, p) => -Math.expm1(k * Math.log1p(-p));

// Its mean over sums.
export const passAt = (k, all) => all.reduce((sum, p) => sum + oneOf(k, p), 0) / all.length;

// How many sums get a right one more often than not: with one draw, thanks to the others alone, or not at all.
export function counts(k, all) {
  const [once, among] = [1, k].map((draws) => all.filter((p) => oneOf(draws, p) > 0.5).length);
  return { once, rescued: among - once, left: all.length - among };
}

// Who is ahead with a single draw (1: the second, -1: the first, 0: neither at any number of draws),
// and the numbers of draws at which the lead changes.
export function lead(first, second, most) {
  const changes = [];
  let [from, now] = [0, 0];
  for (let k = 1; k <= most; k++) {
    const gap = passAt(k, second) - passAt(k, first);
    if (Math.abs(gap) < 1e-9 || Math.sign(gap) === now) continue;
    if (now) changes.push(k);
    else from = Math.sign(gap);
    now = Math.sign(gap);
  }
  return { from, changes };
}

// The next power of two above k, or below it.
export const powerBeside = (k, way) => (way > 0 ? 2 ** (Math.floor(Math.log2(k)) + 1) : 2 ** (Math.ceil(Math.log2(k)) - 1));

// A share as a number of 100: what is more than nothing is never 0, what is less than all never 100.
export function of100(share) {
  const shown = Math.round(100 * share);
  if (share > 0 && shown === 0) return "fewer than 1";
  return share < 1 && shown === 100 ? "more than 99" : String(shown);
}

// --- the page

const STYLE = `
.lc .pk-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc svg .pk-over { paint-order: stroke; stroke: var(--pst-color-background, var(--jp-layout-color1, #fff)); stroke-width: 4px; }
.lc svg .pk-bold { font-weight: 700; }
.lc svg .pk-muted { fill: var(--lc-muted); }
.lc .pk-faint { color: var(--lc-muted); }`;
const BESIDE = 560; // from this width on the two pictures stand side by side
const KS = [1, 4, 16, 64, 256, 1024];
const MOVES = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
const three = (x) => x.toFixed(3);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

function render({ model, el }) {
  const w = frame({ model, el, title: "One right answer among k draws" });
  w.root.prepend(h("style", {}, STYLE));
  const [before, sums, policies, steps] = ["before", "sums", "policies", "steps"].map((name) => model.get(name));
  const all = [{ name: "before", told: "before", p: before }, ...policies];
  const most = model.get("limits").k.high;
  const picked = () => all.find(({ name }) => name === model.get("policy"));
  const color = (one) => (one === all[0] ? "pk-faint" : `lc-${(all.indexOf(one) - 1) % 6 + 1}`);
  const when = (one) => (one === all[0] ? "before" : "after");
  const shownOf = (one) => (one === all[0] ? [one] : [all[0], one]);
  const leads = new Map(policies.map((one) => [one, lead(before, one.p, most)]));

  const draws = w.number("k", "draws, k", { log: true });
  w.choice("policy", "the model", { options: all.map(({ name }) => name), labels: all.map(({ told }) => told) });
  // An arrow key doubles the draws, or halves them: the least steps of the slider would not move a 1.
  draws.range.addEventListener("keydown", (event) => {
    if (!MOVES[event.key]) return;
    event.preventDefault();
    draws.set(powerBeside(model.get("k"), MOVES[event.key]));
  });

  // --- the curves

  let hand = null; // where a press takes k, and how
  function drawCurves(svg, box, k) {
    const x = scale([1, most], [box[0] + 6, box[2] - 6], { log: true });
    const y = scale([0, 1], [box[3], box[1]]);
    hand = { box, at: (px) => Math.exp((px - x(1)) / (x(most) - x(1)) * Math.log(most)) };
    svg.append(axes({ x, y, box, xTicks: KS, yTicks: [0, 0.2, 0.4, 0.6, 0.8, 1], xTitle: "draws, k", yTitle: "pass@k, the mean over sums" }),
      s("g", { "data-key": "k" }, line([[x(k), box[1]], [x(k), box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "4 4" })));
    const steps = Array.from({ length: 81 }, (_, i) => most ** (i / 80));
    const shown = shownOf(picked());
    for (const one of shown) {
      const faint = one === all[0] && shown.length > 1;
      svg.append(s("g", { class: color(one), "data-key": `curve ${when(one)}` },
        line(steps.map((draws) => [x(draws), y(passAt(draws, one.p))]), { stroke: "currentColor", "stroke-width": faint ? 1.5 : 2.5,
          "stroke-dasharray": one === all[0] ? "6 3" : null })),
      s("g", { class: color(one), "data-key": `mark ${when(one)}`, transform: `translate(${x(k)} ${y(passAt(k, one.p))})` },
        s("circle", { r: faint ? 4.5 : 6, fill: "currentColor", stroke: "var(--pst-color-background, var(--jp-layout-color1, #fff))", "stroke-width": 1.5 })));
    }
    // Where curves that rise hardly ever come.
    shown.toReversed().forEach((one, i) => svg.append(label(box[2] - 4, box[3] - 12 - 18 * i,
      `pass@${k} ${when(one)}: ${three(passAt(k, one.p))}`,
      { "text-anchor": "end", class: one === all[0] && shown.length > 1 ? "pk-over pk-muted" : "pk-over pk-bold" })));
  }

  // --- the sums

  function drawSums(svg, box, k) {
    const one = picked();
    const y = scale([0, 1], [box[3], box[1]]);
    const wide = (box[2] - box[0]) / sums.length;
    svg.append(axes({ x: (v) => v, y, box, xTicks: [], yTicks: [0, 0.5, 1], xTitle: "", yTitle: k === 1 ? "a right draw" : `a right one among ${show(k)} draws` }),
      label(box[0], box[3] + 15, "← harder before", { class: "pk-muted" }),
      label(box[2], box[3] + 15, "easier before →", { class: "pk-muted", "text-anchor": "end" }));
    one.p.forEach((p, i) => {
      const [left, alone, among] = [box[0] + i * wide + wide * 0.1, y(p), y(oneOf(k, p))];
      const column = (top, low, more) => s("rect", { x: left, width: wide * 0.8, y: top, height: Math.max(0, low - top), ...more });
      svg.append(s("g", { class: one === all[0] ? "pk-faint" : color(one), "data-key": `sum ${i}` },
        s("title", {}, `${sums[i]}: ${three(p)} with one draw, ${three(oneOf(k, p))} with ${show(k)}`),
        column(box[1], box[3], { fill: "var(--lc-back)" }), column(among, alone, { fill: "currentColor", opacity: 0.5 }),
        column(alone, box[3], { fill: "currentColor" })));
    });
    svg.append(line([[box[0], y(0.5)], [box[2], y(0.5)]], { stroke: "var(--lc-text)", "stroke-dasharray": "2 4" }));
    if (one === all[0]) return;
    const stairs = before.flatMap((p, i) => [[box[0] + i * wide, y(oneOf(k, p))], [box[0] + (i + 1) * wide, y(oneOf(k, p))]]);
    svg.append(s("g", { "data-key": "stairs" }, line(stairs, { stroke: "var(--lc-text)", "stroke-width": 1.2 })));
  }

  const draw = w.stage((svg, width, tall) => {
    const k = model.get("k");
    const beside = width >= BESIDE;
    drawCurves(svg, beside ? [34, 24, width / 2 - 12, tall - 40] : [34, 24, width - 18, tall / 2 - 26], k);
    drawSums(svg, beside ? [width / 2 + 34, 24, width - 8, tall - 40] : [34, tall / 2 + 36, width - 18, tall - 24], k);
    const one = picked();
    return shownOf(one).map(({ told, p }) => `${told}, a curve from ${three(passAt(1, p))} with one draw to ${three(passAt(most, p))} ` +
      `with ${show(most)}, now at ${three(passAt(k, p))}`).join("; ") + `. ${sums.length} columns, one a sum, filled from ` +
      `${three(oneOf(k, Math.min(...one.p)))} to ${three(oneOf(k, Math.max(...one.p)))}.`;
  }, { height: (width) => (width < BESIDE ? 500 : 290), label: "pass@k, and each sum" });
  draw.picture.style.touchAction = "pan-y";
  onDrag(draw.picture, ([px, py]) => {
    const [left, top, right, bottom] = hand.box;
    if (px > left - 12 && px < right + 12 && py > top && py < bottom) w.put("k", clamp(Math.round(hand.at(px)), 1, most));
  });
  w.stages.append(h("p", { class: "pk-small" }, "Columns: a sum each. Filled: the chance of a right answer with one draw; paler: what further draws add; " +
    `dotted: an even chance; stairs: the model before. Recorded for ${sums.length} sums that were kept out of this training, ` +
    `${steps.length ? `after ${listed(steps)} updates of training, ` : ""}with exact chances, to four decimals.`));
  const [curves, each] = [w.table("Draw by draw"), w.table("Sum by sum")];

  // --- in words

  function sentence() {
    const [one, k] = [picked(), model.get("k")];
    const passes = shownOf(one).map(({ p }) => passAt(k, p));
    const { once, rescued, left } = counts(k, one.p);
    return `With ${plural(k, "draw")}, ${of100(passes[0])} of 100 sums have a right one before` +
      (passes.length > 1 ? `, ${of100(passes[1])} ${one.told}` : "") + ` (pass@${k}: ${listed(passes.map(three))}). ${ahead(one)}` +
      (left ? `Of the ${sums.length} sums, ${once + rescued} get` : `All ${sums.length} sums get`) + " a right one more often than not" +
      (k > 1 ? `, ${rescued || "none"} of them only thanks to the further draws` : "") + (left ? `; ${left} ${left === 1 ? "does" : "do"} not` : "") +
      (one === all[0] ? "." : ` (before, ${counts(k, before).left} did not).`);
  }

  function ahead(one) {
    if (!leads.has(one)) return "";
    const { from, changes } = leads.get(one);
    if (!from) return "Both are equal at any number of draws. ";
    const [first, second] = from > 0 ? ["the trained model", "the model before"] : ["the model before", "the trained model"];
    if (!changes.length) return `${capital(first)} is ahead at any number of draws up to ${show(most)}. `;
    return `${capital(first)} is ahead with ${changes[0] === 2 ? "1 draw" : `up to ${plural(changes[0] - 1, "draw")}`}, ${second} from ${changes[0]} on` +
      (changes.length > 1 ? `; the lead changes again at ${listed(changes.slice(1).map((k) => show(k)))}. ` : ". ");
  }

  function redraw() {
    draw();
    const [one, k] = [picked(), model.get("k")];
    curves(() => ({ columns: ["draws, k", ...all.map(({ told }) => told)],
      rows: [...new Set([...Array.from({ length: Math.log2(most) + 1 }, (_, i) => 2 ** i), k])].sort((a, b) => a - b)
        .map((draws) => [show(draws), ...all.map(({ p }) => three(passAt(draws, p)))]) }));
    each(() => ({ columns: ["sum", ...shownOf(one).flatMap(({ told }) => [`${told}, 1 draw`, ...(k > 1 ? [`${told}, ${show(k)} draws`] : [])])],
      rows: sums.map((sum, i) => [sum, ...shownOf(one).flatMap(({ p }) => [1, ...(k > 1 ? [k] : [])].map((draws) => three(oneOf(draws, p[i]))))]) }));
    w.say(sentence());
  }
  w.on(["k", "policy"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
