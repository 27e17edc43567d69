import { axes, frame, h, label, line, percent, s, scale, show } from "./kit.js";
import { nearestDivisor, nextDivisor, parametersByPart, total } from "./llama.js";

// --- arithmetic, compared with llmcourse_labs.scale.cost by the tests

export const headsOf = (c) => c.width / c.head_size;

export const parameters = (c) => parametersByPart({ ...c, num_heads: headsOf(c) });

// What the feed-forward networks are counted against: everything, everything but the output head, and the
// blocks alone, without the last norm.
export function wholes(c) {
  const parts = parameters(c);
  const all = total(parts);
  return { all, headless: all - parts.head, blocks: all - parts.head - parts.embedding - c.width };
}

export function shares(c) {
  const { feed_forward: counted } = parameters(c);
  return Object.fromEntries(Object.entries(wholes(c)).map(([name, whole]) => [name, counted / whole]));
}

// The hidden size of Meta's code: 2/3 of 4 D, times a factor, rounded up to a multiple.
export function ruleHidden(width, { factor, multiple }) {
  const thirds = Math.trunc(8 * width / 3);
  return multiple * Math.ceil(Math.trunc(factor * thirds) / multiple);
}

// The multiple of `unit` nearest to `wanted`, at least one unit and at most `high`.
export const nearestMultiple = (unit, wanted, high) =>
  unit * Math.max(1, Math.min(Math.floor(high / unit), Math.round(wanted / unit)));

// --- the page

const FIELDS = ["width", "num_kv_heads", "hidden", "num_layers"];
const PARTS = [
  ["embedding", "embedding", "lc-2"], ["attention", "attention", "lc-3"], ["feed_forward", "feed-forward", "lc-1"],
  ["norms", "norms", "lc-5"], ["head", "output head", "lc-4"],
];
const READINGS = [["all", "everything"], ["headless", "output head left out"], ["blocks", "blocks alone"]];
const UNITS = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"], [1, ""]];
const POINTS = 60;

const short = (value) => {
  const [size, letter] = UNITS.find(([limit]) => value >= limit) || UNITS.at(-1);
  return `${show(value / size, 4)}${letter}`;
};
const exact = (value) => value.toLocaleString("en-US");

function render({ model, el }) {
  const w = frame({ model, el, title: "Where the parameters are" });
  const presets = model.get("presets");
  const names = Object.keys(presets);
  const preset = () => presets[model.get("preset")];
  const ofPreset = () => Object.fromEntries(FIELDS.map((name) => [name, preset()[name]]));
  const ofState = () => Object.fromEntries(FIELDS.map((name) => [name, model.get(name)]));
  const shape = () => ({ ...preset(), ...ofState() });
  const high = (name) => model.get("limits")[name].high;
  let busy = false;

  w.choice("preset", "start from", { options: names, labels: names.map((name) => presets[name].label) });
  const width = w.number("width", "width D", { log: true });
  const groups = w.number("num_kv_heads", "key/value heads G", { log: true });
  w.number("hidden", "hidden size F", { log: true });
  w.number("num_layers", "layers L", { log: true });
  w.toggle("follow_rule", "F follows the 8/3 rule");
  w.button("Back to the model", () => renew());

  // An arrow key goes to the next value that can be: anything between would be moved straight back.
  const onArrow = (name, { range, field }, next) => {
    const listen = (input, ups, downs) => input.addEventListener("keydown", (event) => {
      const direction = ups.includes(event.key) ? 1 : downs.includes(event.key) ? -1 : 0;
      if (!direction) return;
      event.preventDefault();
      model.set("note", "");
      const value = next(direction);
      field.value = value;
      w.put(name, value);
    });
    listen(range, ["ArrowUp", "ArrowRight"], ["ArrowDown", "ArrowLeft"]);
    listen(field, ["ArrowUp"], ["ArrowDown"]);
  };
  // Widths of which the key/value heads divide the query heads.
  const unit = () => model.get("num_kv_heads") * preset().head_size;
  onArrow("width", width, (direction) =>
    nearestMultiple(unit(), model.get("width") + direction * unit(), high("width")));
  onArrow("num_kv_heads", groups, (direction) =>
    nextDivisor(headsOf(shape()), model.get("num_kv_heads"), direction));

  const ruled = (c) => (model.get("follow_rule") ? { ...c, hidden: ruleHidden(c.width, preset().rule) } : c);

  const drawBar = w.stage((svg, wide) => {
    const c = shape();
    const parts = parameters(c);
    const x = scale([0, total(parts)], [4, wide - 4]);
    let from = 0;
    let start = 0;
    const ends = {};
    PARTS.forEach(([part, name, mark], i) => {
      const room = x(from + parts[part]) - x(from);
      const text = room > 7.5 * name.length ? name : room > 12 ? String(i + 1) : "";
      if (part === "feed_forward") start = from;
      svg.append(
        s("rect", { x: x(from), y: 4, width: room, height: 40, fill: "currentColor", class: mark,
          stroke: "var(--lc-on)", "stroke-width": room > 4 ? 1 : 0 }),
        label(x(from) + room / 2, 29, text, { "text-anchor": "middle",
          style: `fill: var(--lc-on)${part === "feed_forward" ? "; font-weight: 700" : ""}` }));
      from += parts[part];
      ends[part] = from;
    });
    // The same piece, measured against three wholes.
    const spans = { all: [0, from], headless: [0, ends.norms], blocks: [ends.embedding, ends.norms - c.width] };
    const against = wholes(c);
    svg.append(label(4, 66, "The filled piece is the same each time:"));
    READINGS.forEach(([name, text], i) => {
      const y = 90 + 36 * i;
      const [a, b] = spans[name];
      const why = name === "headless" && c.tied_head ? "it has no output head of its own" : text;
      svg.append(
        label(4, y, `${percent(parts.feed_forward / against[name])} of ${short(against[name])}: ${why}`),
        s("rect", { x: x(a), y: y + 5, width: x(b) - x(a), height: 11, fill: "none", stroke: "var(--lc-text)" }),
        s("rect", { x: x(start), y: y + 5, width: x(start + parts.feed_forward) - x(start), height: 11,
          fill: "currentColor", class: "lc-1", stroke: "var(--lc-text)" }));
    });
    PARTS.forEach(([part, name, mark], i) => {
      const y = 216 + 22 * i;
      svg.append(s("rect", { x: 4, y: y - 12, width: 16, height: 16, fill: "currentColor", class: mark }),
        label(26, y + 1, `${i + 1} ${name}`),
        label(190, y + 1, short(parts[part]), { "text-anchor": "end" }),
        label(278, y + 1, percent(parts[part] / from), { "text-anchor": "end" }));
    });
    return PARTS.map(([part, name]) => `${name} ${short(parts[part])}`).join(", ");
  }, { height: 316, label: "bar of the parameters by part, and the feed-forward networks against three wholes" });

  // What moving the width alone would do.
  const drawLine = w.stage((svg, wide, tall) => {
    const box = [44, 22, wide - 24, tall - 82];
    const c = shape();
    const [low, most] = [unit(), high("width")];
    const x = scale([low, Math.max(most, 2 * low)], [box[0], box[2]], { log: true });
    const y = scale([0, 1], [box[3], box[1]]);
    const widths = [...new Set(Array.from({ length: POINTS }, (_, i) =>
      nearestMultiple(low, low * (most / low) ** (i / (POINTS - 1)), most)))];
    const at = widths.map((D) => [D, shares(ruled({ ...c, width: D }))]);
    const path = (name, attributes) => line(at.map(([D, share]) => [x(D), y(share[name])]),
      { stroke: "currentColor", "stroke-width": 2.5, ...attributes });
    const now = shares(c);
    const doubled = Array.from({ length: 20 }, (_, i) => 2 ** i).filter((k) => low * k <= most);
    const every = Math.ceil(doubled.length / (wide < 420 ? 4 : 8));
    svg.append(
      axes({ x, y, box, xTicks: doubled.filter((_, i) => i % every === 0).map((k) => low * k), yTicks: [],
        xTitle: "width D", yTitle: "feed-forward share if the width alone moves" }),
      ...[0, 0.25, 0.5, 0.75, 1].map((t) => label(box[0] - 5, y(t) + 4, `${100 * t} %`, { "text-anchor": "end" })),
      path("all", { class: "lc-1" }), path("blocks", { class: "lc-2", "stroke-dasharray": "6 4" }),
      s("circle", { cx: x(c.width), cy: y(now.all), r: 6, fill: "var(--lc-text)", stroke: "var(--lc-on)",
        "stroke-width": 1.5 }));
    const key = [["of all", "lc-1", null], ["of the blocks", "lc-2", "6 4"]];
    key.forEach(([text, mark, dash], i) => {
      const [left, top] = [box[0] + 14 + 110 * i, tall - 26];
      svg.append(line([[left, top - 4], [left + 26, top - 4]],
        { stroke: "currentColor", class: mark, "stroke-width": 2.5, "stroke-dasharray": dash }),
        label(left + 31, top, text));
    });
    svg.append(s("circle", { cx: box[0] + 27, cy: tall - 9, r: 6, fill: "var(--lc-text)" }),
      label(box[0] + 45, tall - 5, `now: D = ${exact(c.width)}, ${percent(now.all)} of all`));
    const share = (D) => percent(at.find(([found]) => found === D)[1].all);
    return `now ${percent(now.all)} of all at width ${exact(c.width)}; from ${share(widths[0])} at width ` +
      `${exact(widths[0])} to ${share(widths.at(-1))} at width ${exact(widths.at(-1))}`;
  }, { height: 270, label: "share of the feed-forward networks against the width" });
  const about = h("p");
  w.stages.append(about);
  const numbers = w.table("Parameters by part, exact");

  function shapeSentence(c) {
    const { factor, multiple } = preset().rule;
    const times = factor === 1 ? "" : ` × ${factor}`;
    const rule = model.get("follow_rule")
      ? `, by the rule 8/3 D${times}, rounded up to a multiple of ${exact(multiple)}` : ", chosen freely";
    return `Width ${exact(c.width)} is ${show(headsOf(c))} query heads of ${c.head_size}; the head size stays. ` +
      `F = ${exact(c.hidden)} = ${show(c.hidden / c.width, 3)} D${rule}.`;
  }

  function sentence(c) {
    const now = shares(c);
    const against = wholes(c);
    const same = FIELDS.every((name) => c[name] === preset()[name]);
    const headless = c.tied_head ? "the head is the embedding, so none can be forgotten"
      : `${percent(now.headless)} of ${short(against.headless)} where the output head is forgotten`;
    const ratio = 3 * c.hidden / (2 * c.width * (1 + c.num_kv_heads / headsOf(c)));
    return `${same ? "" : "Changed from "}${preset().label}: the feed-forward networks hold ` +
      `${percent(now.all)} of ${short(against.all)} parameters; ${headless}; ` +
      `${percent(now.blocks)} of the blocks alone. ` +
      `In a block they are ${show(ratio, 3)} times attention: 3 F against 2 D (1 + G/H).`;
  }

  function redraw() {
    const c = shape();
    const parts = parameters(c);
    const against = wholes(c);
    drawBar();
    drawLine();
    about.textContent = shapeSentence(c);
    const none = "not counted";
    const rows = PARTS.map(([part, name]) => [name, exact(parts[part]), percent(parts[part] / against.all),
      part === "head" ? none : percent(parts[part] / against.headless),
      ["embedding", "head"].includes(part) ? none
        : percent((parts[part] - (part === "norms" ? c.width : 0)) / against.blocks)]);
    numbers({ columns: ["part", "parameters", "of all", "without head", "of the blocks"],
      rows: [...rows, ["the whole", exact(against.all), exact(against.all), exact(against.headless),
        exact(against.blocks)]] });
    w.say(sentence(c));
  }

  // A shape that cannot be built is moved to the nearest that can, and the note says so.
  function mend() {
    const { head_size: size, label: name } = preset();
    const said = [];
    const put = (field, value, reason) => {
      if (reason) said.push(`${reason}: ${exact(value)} is used in place of ${exact(model.get(field))}.`);
      w.put(field, value);
    };
    const sliding = document.activeElement === width.range;
    const asked = model.get("width");
    const D = nearestMultiple(sliding ? unit() : size, asked, high("width"));
    if (D !== asked) {
      put("width", D, sliding ? "" : `The width must be a multiple of the head size ${size} of ${name}`);
    }
    const G = nearestDivisor(D / size, model.get("num_kv_heads"));
    if (G !== model.get("num_kv_heads")) {
      put("num_kv_heads", G, `Key/value heads must divide ${show(D / size)} query heads`);
    }
    const { hidden } = ruled({ ...shape() });
    if (hidden !== model.get("hidden")) put("hidden", hidden);
    if (said.length) w.put("note", said.join(" "));
  }

  function settle() {
    if (busy) return;
    busy = true;
    mend();
    busy = false;
    redraw();
  }
  const putAll = (values) => {
    busy = true;
    for (const [name, value] of Object.entries(values)) w.put(name, value);
    busy = false;
    settle();
  };
  const renew = () => {
    w.put("note", "");
    putAll({ ...ofPreset(), follow_rule: true });
  };

  w.on(["preset"], () => { if (!busy) renew(); });
  w.on(["follow_rule"], () => {
    if (busy) return;
    w.put("note", "");
    settle();
  });
  // Who moves the hidden size does not want the rule.
  w.on(["hidden"], () => {
    if (busy) return;
    if (model.get("follow_rule") && model.get("hidden") !== ruled(shape()).hidden) {
      putAll({ follow_rule: false });
    } else settle();
  });
  w.on(["width", "num_kv_heads", "num_layers"], settle);
  settle();
  return w.destroy;
}

export default { render };
