import { axes, frame, h, label, line, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse.model.attention.rope_scaling by the tests

// The radians by which each pair of a head turns from one token to the next: theta^(-j / J).
export const speeds = (pairs, theta) => Array.from({ length: pairs }, (_, j) => theta ** (-j / pairs));

export const wavelength = (speed) => 2 * Math.PI / speed;

const within01 = (x) => Math.min(1, Math.max(0, x));

// The share of its speed that each pair keeps under YaRN, by its number: a ramp between 32 turns and 1.
function ramp(pairs, theta, trained) {
  const pairWith = (turns) => 2 * pairs * Math.log(trained / (2 * Math.PI * turns)) / 2 / Math.log(theta);
  const first = Math.max(Math.floor(pairWith(32)), 0);
  const last = Math.min(Math.ceil(pairWith(1)), 2 * pairs - 1);
  return Array.from({ length: pairs }, (_, j) => 1 - within01((j - first) / (last - first || 0.001)));
}

// The speeds under a scaling for rows that are `factor` times as long as the trained ones.
export function scaled(kind, { pairs, theta, trained, factor }) {
  const all = speeds(pairs, theta);
  if (kind === "linear") return all.map((w) => w / factor);
  if (kind === "ntk") return all.map((w, j) => w * factor ** (-j / (pairs - 1)));
  if (kind === "none") return all;
  const kept = kind === "yarn" ? ramp(pairs, theta, trained)
    : all.map((w) => within01((trained / wavelength(w) - 1) / (4 - 1)));
  return all.map((w, j) => w * (kept[j] + (1 - kept[j]) / factor));
}

// Whether a pair comes to angles that training did not show: it never turned full circle there, and turns
// further now.
export const isNew = (before, now, trained, wanted) =>
  trained * before < 2 * Math.PI && wanted * now > trained * before * (1 + 1e-9);

// --- the page

const KINDS = {
  none: "none", linear: "position interpolation", ntk: "NTK-aware", yarn: "YaRN", llama3: "Llama 3.1's",
};
const PRESETS = [
  ["This page's model", { scaling: "none", pairs: 16, theta: 10_000, trained: 64, wanted: 256, factor: 4 }],
  ["Llama 3.1", { scaling: "llama3", pairs: 64, theta: 500_000, trained: 8_192, wanted: 131_072, factor: 8 }],
];
const NAMES = Object.keys(PRESETS[0][1]);

function render({ model, el }) {
  const w = frame({ model, el, title: "Wavelengths against context", primary: ["scaling", "factor", "wanted"] });
  w.choice("scaling", "scaling", { options: Object.keys(KINDS), labels: Object.values(KINDS) });
  w.number("factor", "factor s", { log: true });
  w.number("trained", "trained length, tokens", { log: true });
  w.number("wanted", "wanted length, tokens", { log: true });
  w.number("theta", "base θ", { log: true });
  w.number("pairs", "pairs of a head");
  const group = h("div", { class: "lc-player", role: "group", "aria-label": "known models" });
  for (const [name, state] of PRESETS) {
    w.button(name, () => {
      busy = true;
      for (const [key, value] of Object.entries(state)) model.set(key, value);
      busy = false;
      w.put("note", "");
      redraw();
    }, { into: group });
  }
  w.actions.append(group);
  let busy = false;

  const get = (name) => model.get(name);
  const settings = () => Object.fromEntries(NAMES.map((name) => [name, get(name)]));
  const tokens = (number) => show(number < 100 ? Number(number.toFixed(1)) : Math.round(number));

  let all = [];
  // Every pair: its speed before and now, and whether it comes to new angles.
  function pairs() {
    const now = scaled(get("scaling"), settings());
    return speeds(get("pairs"), get("theta")).map((before, j) => ({
      j, before, now: now[j], isNew: isNew(before, now[j], get("trained"), get("wanted")),
    }));
  }
  const counted = () => all.filter((pair) => pair.isNew).length;

  // A clock for each pair: as many in a row as stay large enough to see.
  function grid(wide) {
    const most = Math.max(1, Math.floor(wide / (get("pairs") > 16 ? 39 : 78)));
    const across = Math.min(most, Math.ceil(get("pairs") / Math.ceil(get("pairs") / most)));
    const side = Math.min(wide / across, 120);
    const named = side > 60;
    return { across, side, named, radius: side / 2 - 7, high: side + (named ? 32 : 4) };
  }
  const drawClocks = w.stage((svg, wide) => {
    const { across, side, named, radius, high } = grid(wide);
    const thick = named ? 8 : 5;
    // Copies of one clock: each stands at its place, and what moves in it are angles.
    const ring = { r: radius, fill: "none" };
    const arc = { ...ring, stroke: "currentColor", pathLength: 360 };
    const clock = s("g", {}, s("circle", { ...ring, stroke: "var(--lc-line)" }),
      s("circle", { ...arc, class: "lc-1", "stroke-width": thick, opacity: 0.5, transform: "rotate(-90)" }),
      s("circle", { ...arc, "stroke-width": thick / 2.5 }),
      s("line", { y2: -radius, stroke: "var(--lc-text)", "stroke-width": named ? 2 : 1.2 }));
    const dashes = (degrees) => `${degrees.toFixed(2)} 720`;
    const turned = (degrees) => `rotate(${degrees.toFixed(2)})`;
    all.forEach(({ j, before, now, isNew: marked }) => {
      const [known, reached] = [before * get("trained"), now * get("wanted")].map((turn) => Math.min(turn * 180 / Math.PI, 360));
      const made = clock.cloneNode(true);
      const [, thickArc, thinArc, hand] = made.children;
      made.dataset.key = `pair ${j}`;
      made.setAttribute("transform", `translate(${(j % across + 0.5) * side} ${Math.floor(j / across) * high + side / 2})`);
      thickArc.setAttribute("stroke-dasharray", dashes(known));
      thinArc.setAttribute("stroke-dasharray", dashes(Math.max(known, reached) - known));
      thinArc.setAttribute("transform", turned(known - 90));
      thinArc.setAttribute("class", marked ? "lc-5 lc-new" : "lc-5");
      hand.setAttribute("transform", turned(reached));
      if (named) made.append(label(0, side / 2 + 9, tokens(wavelength(now)), { "text-anchor": "middle" }));
      if (named && j % across === 0) made.append(label(-radius, side / 2 + 23, j ? "" : "tokens for a turn", { style: "fill: var(--lc-muted)" }));
      svg.append(made);
    });
    return `${all.length} pairs, the fastest with one turn in ${tokens(wavelength(all[0].now))} tokens, the slowest in ` +
      `${tokens(wavelength(all.at(-1).now))}; thick: angles within the trained length, ${show(get("trained"))}; hand: how far it comes ` +
      `within the wanted one, ${show(get("wanted"))}; ${counted()} pairs are marked, since they come to new angles`;
  }, { height: (wide) => Math.ceil(get("pairs") / grid(wide).across) * grid(wide).high + 6, label: "a clock for each pair", lasts: 5 });
  w.stages.append(h("p", {}, "A clock for each pair, from fast to slow. Thick: the angles that training showed. The hand: how far the " +
    "pair turns within the wanted length, at most once around. Thin and red: angles that training did not show."));

  const drawFactor = w.stage((svg, wide, tall) => {
    const box = [64, 24, wide - 12, tall - 38];
    const x = scale([-0.5, all.length - 0.5], [box[0], box[2]]);
    const y = scale([0, Math.max(2, 1.1 * get("factor"))], [box[3], box[1]]);
    const by = ({ before, now }) => before / now;
    svg.append(axes({ x, y, box, xTicks: ticks(0, all.length - 1, wide < 420 ? 4 : 8),
      yTicks: ticks(0, Math.max(2, 1.1 * get("factor")), 4), xTitle: "pair, from fast to slow", yTitle: "slowed by" }),
    s("line", { "data-key": "factor", x1: box[0], x2: box[2], y1: y(get("factor")), y2: y(get("factor")), stroke: "var(--lc-text)", "stroke-dasharray": "7 4" }),
    line(all.map((pair) => [x(pair.j), y(by(pair))]), { stroke: "currentColor", class: "lc-1", "stroke-width": 2 }),
    s("path", { d: all.map((pair) => `M${x(pair.j).toFixed(2)} ${y(by(pair)).toFixed(2)}h0`).join(""), stroke: "currentColor",
      class: "lc-1", "stroke-width": 5, "stroke-linecap": "round" })); // dots
    return `from ${show(by(all[0]), 3)} at the fastest pair to ${show(by(all.at(-1)), 3)} at the slowest; the factor, ` +
      `${show(get("factor"))}, is a dashed line`;
  }, { height: 170, label: "by how much each pair is slowed", lasts: 5 });
  const numbers = w.table("The pairs in numbers");

  function sentence() {
    const many = all.length;
    const whole = all.filter(({ before }) => get("trained") * before >= 2 * Math.PI);
    const slowed = whole.filter(({ before, now }) => before / now > 1 + 1e-9).length;
    const kind = get("scaling");
    const bare = all.filter(({ before }) => isNew(before, before, get("trained"), get("wanted"))).length;
    const first = kind === "none" ? `Without scaling, ${counted()} of ${many} pairs come`
      : `Under ${kind === "llama3" ? "Llama 3.1's scaling" : KINDS[kind]} by ${show(get("factor"))}, ${counted()} of ${many} pairs come`;
    const sharper = kind === "yarn" ? ` All scores are multiplied by ${((0.1 * Math.log(get("factor")) + 1) ** 2).toFixed(2)}.` : "";
    return `${first} to angles within ${show(get("wanted"))} tokens that ${show(get("trained"))} did not show` +
      `${kind === "none" ? "" : `, with ${bare} without scaling`}. ${whole.length} pairs turned full circle in training, ` +
      `and ${slowed} of these are slowed.${sharper}`;
  }

  function redraw() {
    if (busy) return;
    all = pairs();
    drawFactor();
    drawClocks(); // the largest last: a picture that is measured waits for all that was drawn before
    numbers(() => ({
      columns: ["pair", "wavelength", "scaled", "slowed by", "turns in the trained length", "new angles"],
      rows: all.map(({ j, before, now, isNew: marked }) => [j, tokens(wavelength(before)), tokens(wavelength(now)),
        (before / now).toFixed(2), show(get("trained") / wavelength(before), 3), marked ? "yes" : "no"]),
    }));
    w.say(sentence());
  }
  w.on(NAMES, redraw);
  redraw();
  return w.destroy;
}

export default { render };
