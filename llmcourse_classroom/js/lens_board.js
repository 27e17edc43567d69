import { clamp, frame, h, label, s, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with what llmcourse_classroom.widgets.lens writes by the tests

// What was seen at a token: in each layer the place of the token that is chosen in the end, and the likeliest
// tokens, as numbers of words with their shares in per cent.
export const layersOf = (text) => text.split("|").map((layer) => {
  const [place, ...pairs] = layer.split(",").map(Number);
  return { place, top: pairs.flatMap((word, i) => (i % 2 ? [] : [{ word, share: pairs[i + 1] }])) };
});

// How far up a place is, by its logarithm: 1 for the first, 0 for the last.
export const height = (place, count) => 1 - Math.log(place) / Math.log(count);

// The layer from which on the token that is chosen in the end stays the likeliest.
export const leadsFrom = (layers) => layers.findLastIndex(({ place }) => place > 1) + 1;

// --- the page

const STYLE = `
.lc .lb-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc svg .lb-11 { font-size: 11px; }
.lc svg .lb-muted { fill: var(--lc-muted); }
.lc svg .lb-bold { font-weight: 700; }`;
const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "␣" };
const [CHIP, GAP, ROW, BAR] = [22, 5, 14.5, 24]; // heights, and what is between chips
const PANEL = 32 + 6 * BAR;

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are shown as signs
const visible = (token) => token.replace(/[\x00-\x20\u00a0]/g, (c) => INVISIBLE[c] ?? "�") || "(empty)";
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const perCent = (share) => (share < 1 ? "under 1 %" : `${share} %`);
const end = { "text-anchor": "end" };
const solid = (isAnswer) => (isAnswer ? { fill: "currentColor", class: "lc-1" } : { fill: "var(--lc-muted)", "fill-opacity": 0.65 });

function render({ model, el }) {
  const w = frame({ model, el, title: "What it would say after each layer" });
  w.root.prepend(h("style", {}, STYLE));
  const limits = model.get("limits");
  const count = model.get("vocab_size");
  const last = limits.layer.high;
  const clip = uniqueId();
  const known = () => model.get("readings").map(({ name }) => name);
  const reading = () => model.get("readings")[known().indexOf(model.get("beginning"))];
  const token = () => clamp(model.get("token"), 1, reading().tokens.length); // counted from 1
  const seen = (at = token()) => layersOf(reading().layers[at - 1]);
  const word = (number) => visible(reading().words[number]);
  const answer = (at) => seen(at)[last].top[0];
  const layer = () => clamp(model.get("layer"), 0, last);

  const names = w.choice("beginning", "it reads", { options: known() });
  const tokenControl = w.number("token", "token of it");
  const layerControl = w.number("layer", "after layer");
  w.player({
    perSecond: 2,
    longest: last + 2,
    step: () => {
      w.put("layer", layer() < last ? layer() + 1 : 0); // the end, then anew
      return layer() < last;
    },
    reset: () => w.put("layer", 0),
  });
  if (model.get("types")) {
    const field = h("input", { "aria-label": "a beginning of your own", placeholder: "your own", style: "flex: 1 1 9rem" });
    const look = () => { if (field.value) w.put(known().includes(field.value) ? "beginning" : "typed", field.value); };
    field.addEventListener("keydown", ({ key }) => { if (key === "Enter") look(); });
    w.actions.append(field);
    w.button("Look", look);
  }

  // --- where things are

  const pen = document.createElement("canvas").getContext("2d");
  // What is read up to a token, the answer, and what would follow, in lines.
  function chips(width, at) {
    let [x, y] = [1, 1];
    const all = reading().tokens.map((text, i) => ({ at: i + 1, key: `token ${i}`, text: cut(visible(text), 22),
      kind: i + 1 < at ? "read" : i + 1 === at ? "now" : "unread" }));
    const { word: number, share } = answer(at);
    all.splice(at, 0, { key: "answer", text: `→ ${cut(word(number), 16)} ${perCent(share)}`, kind: "answer" });
    for (const one of all) {
      pen.font = `${one.kind === "answer" ? "bold " : ""}12.5px system-ui, sans-serif`;
      one.long = pen.measureText(one.text).width + 12;
      if (x > 1 && x + one.long > width - 1) [x, y] = [1, y + CHIP + GAP];
      [one.x, one.y] = [x, y];
      x += one.long + GAP;
    }
    return { all, tall: y + CHIP };
  }

  function layout(width) {
    const beside = width > 560;
    const top = Math.max(...reading().tokens.map((_, i) => chips(width, i + 1).tall)) + 36;
    const right = beside ? width - Math.min(250, width * 0.38) - 34 : width - 26;
    const left = beside ? 118 : 98; // of the bars
    const every = Array.from({ length: last + 1 }, (_, i) => i);
    // A narrow picture has every second layer, and the chosen one in the place of that before it.
    const rows = beside ? every : every.filter((i) => i % 2 === 0).map((i) => (i === layer() - 1 ? layer() : i));
    const step = beside ? ROW : ROW + 2.5;
    const bottom = top + step * rows.length;
    const middle = top + step * (rows.indexOf(layer()) + 0.5);
    const panel = beside ? { x: right + 34, y: clamp(middle - PANEL / 2, top - 18, bottom - PANEL), long: width - right - 36 }
      : { x: 1, y: bottom + 12, long: width - 2 };
    return { beside, top, right, left, rows, step, bottom, middle, panel, tall: beside ? bottom + 3 : bottom + PANEL + 14 };
  }

  // --- the picture

  function drawChips(svg, width) {
    for (const { key, text, kind, x, y, long } of chips(width, token()).all) {
      const [isAnswer, unread] = [kind === "answer", kind === "unread"];
      svg.append(s("g", { "data-key": key, transform: `translate(${x} ${y})`, class: isAnswer ? "lc-1" : "lc-2", opacity: unread ? 0.5 : 1 },
        s("rect", { width: long, height: CHIP - 2, rx: 5, fill: isAnswer ? "currentColor" : "var(--lc-back)",
          stroke: kind === "now" ? "currentColor" : "var(--lc-line)", "stroke-width": kind === "now" ? 2.5 : 1,
          "stroke-dasharray": unread ? "3 2" : null }),
        label(long / 2, 14.5, text, { "text-anchor": "middle", style: isAnswer ? "fill: var(--lc-on); font-weight: 700" : null })));
    }
  }

  function drawRows(svg, { beside, top, right, left, rows, step, middle }) {
    const layers = seen();
    const found = answer().word;
    const half = (right - left) / 2;
    const [first, second, bar] = [left + 6, left + half + 8, half - 53];
    const heading = { y: top - 8, class: "lb-11 lb-muted" };
    svg.append(
      label(4, 0, "layer", heading), label(first, 0, beside ? "likeliest next token" : "likeliest next", heading),
      label(second, 0, `place of “${cut(word(found), beside ? 12 : 7)}”`, { ...heading, class: "lb-11 lb-bold lc-1", style: "fill: currentColor" }),
      s("rect", { "data-key": "frame", x: 1, y: middle - step / 2 - 1, width: right - 2, height: step + 2, rx: 3, fill: "var(--lc-back)",
        stroke: "currentColor", class: "lc-2", "stroke-width": 2 }));
    rows.forEach((at, i) => {
      const { place, top: [best] } = layers[at];
      const isAnswer = best.word === found;
      const again = i > 0 && at !== layer() && layers[rows[i - 1]].top[0].word === best.word;
      const y = top + step * i;
      const text = (x, content, look) => label(x, y + step / 2 + 4, content, { ...end, class: `lb-11 ${look}` });
      const bold = (is, otherwise = "lb-muted") => (is ? "lb-bold" : otherwise);
      const box = { y: y + 2.5, height: step - 5, rx: 1.5 };
      svg.append(
        text(26, at, bold(at === layer())),
        text(left, cut(word(best.word), beside ? 13 : 10), bold(isAnswer, again ? "lb-muted" : "")),
        s("rect", { x: first, width: Math.max(1, bar * best.share / 100), ...box, ...solid(isAnswer) }),
        text(first + bar + 40, `${best.share} %`, bold(isAnswer)),
        s("rect", { x: second, width: Math.max(1.5, bar * height(place, count)), ...box, ...solid(true) }),
        text(second + bar + 40, show(place, 5), bold(place === 1)));
    });
  }

  let shown = []; // candidates of the picture before
  function drawPanel(svg, { beside, right, panel, middle, step }) {
    const left = Math.min(100, panel.long * 0.36);
    const bar = panel.long - left - 76;
    const row = (name, share, said, attributes, look, box) => s("g", attributes,
      label(left - 6, 16, cut(name, 13), { ...end, class: look }),
      s("rect", { x: left, y: 4, width: share && Math.max(1, bar * share / 100), height: BAR - 8, rx: 2, ...box }),
      label(panel.long - 10, 16, said, { ...end, class: look }));
    const candidate = ({ name, share, isAnswer }, given) => row(name, share, perCent(share), given, isAnswer ? "lb-bold" : "", solid(isAnswer));
    const now = seen()[layer()].top.map(({ word: number, share }, i) =>
      ({ name: word(number), share, isAnswer: number === answer().word, y: BAR * i }));
    const [before, after] = [shown, now].map((all) => new Set(all.map(({ name }) => name)));
    const outside = 5 * BAR + 4;
    // Who leaves falls out of the list, who is new rises into it, and the others change places.
    const list = s("g", { "clip-path": `url(#${clip})` },
      shown.filter(({ name }) => !after.has(name)).map((one) =>
        candidate(one, { "data-way": `0,${one.y} 0,${outside}`, "data-while": "0 0.5", "data-gone": true })),
      now.map((one) => candidate(one, { "data-key": one.name, transform: `translate(0 ${one.y})`,
        ...(before.has(one.name) ? {} : { "data-way": `0,${outside} 0,${one.y}`, "data-while": "0.4 1" }) })));
    shown = now;
    const rest = Math.max(0, 100 - now.reduce((sum, { share }) => sum + share, 0));
    if (beside) {
      svg.append(s("polygon", { "data-key": "light", class: "lc-2", fill: "currentColor", "fill-opacity": 0.13, points: [[right, middle - step / 2],
        [panel.x, panel.y], [panel.x, panel.y + PANEL], [right, middle + step / 2]].join(" ") }));
    }
    svg.append(s("g", { "data-key": "panel", transform: `translate(${panel.x} ${panel.y})` },
      s("defs", {}, s("clipPath", { id: clip }, s("rect", { width: panel.long, height: 5 * BAR }))),
      s("rect", { width: panel.long, height: PANEL, rx: 5, fill: "var(--lc-back)", stroke: "currentColor", class: "lc-2", "stroke-width": 2 }),
      label(12, 19, layer() ? `after layer ${layer()} of ${last}` : "before the first layer", { class: "lb-bold" }),
      s("g", { transform: "translate(0 26)" }, list),
      row("all others", rest, rest ? `≈ ${rest} %` : "–", { transform: `translate(0 ${26 + 5 * BAR})` }, "lb-muted",
        { fill: "none", stroke: "var(--lc-line)", "stroke-dasharray": "3 2" })));
  }

  const draw = w.stage((svg, width) => {
    const places = layout(width);
    drawChips(svg, width);
    drawPanel(svg, places);
    drawRows(svg, places);
    svg.style.cursor = "pointer";
    return `${sentence()} The likeliest: ${seen()[layer()].top.map((one) => `${word(one.word)} ${perCent(one.share)}`).join(", ")}`;
  }, { height: (width) => layout(width).tall, label: "the layers, and the lens on one of them", lasts: 2 });

  // The lens is taken along the layers, by hand or by keys; left and right go through what is read.
  const there = () => layout(draw.picture.viewBox.baseVal.width);
  const rowAt = (y, { rows, top, step } = there()) => rows[clamp(Math.floor((y - top) / step), 0, rows.length - 1)];
  draw.handle({
    x: tokenControl, y: { ...layerControl, step: (times) => layerControl.step(-times) }, mark: "lc-2", label: "lens",
    at: () => [there().right + 12, there().middle], to: ([, y]) => [null, rowAt(y)],
  });
  draw.picture.addEventListener("click", (event) => {
    const [px, py] = within(draw.picture, event);
    const { top, bottom, right } = there();
    const hit = chips(draw.picture.viewBox.baseVal.width, token()).all
      .find(({ x, y, long }) => px >= x && px <= x + long && py >= y && py <= y + CHIP);
    if (hit?.at) w.put("token", hit.at);
    else if (py >= top && py < bottom && px < right) w.put("layer", rowAt(py));
  });
  w.stages.append(h("p", { class: "lb-small" }, "In colour through all layers: the token that the model chooses in the end. " +
    `Its place among all ${show(count)} tokens is on a scale of logarithms: a full bar is place 1, no bar the last.`));
  const numbers = w.table("Layer by layer");

  // --- in words

  function sentence() {
    const { place, top: [best] } = seen()[layer()];
    const [likeliest, found] = [best, answer()].map((one) => `“${word(one.word)}”`);
    const read = reading().tokens.slice(0, token()).join("").replace(/\n/g, "↵").trim();
    const first = leadsFrom(seen());
    const so = `${layer() ? `After layer ${layer()} of ${last}` : "Before the first layer"}, having read “${read}”, the likeliest next ` +
      `token is ${likeliest} with ${perCent(best.share)}`;
    if (place > 1) return `${so}. ${found}, which is chosen in the end, has place ${show(place, 5)} of ${show(count)}.`;
    return `${so}: the one that is chosen in the end. ${first > layer() ? `It loses this place, and has it for good from layer ${first} on.`
      : `It is in this place from layer ${first} on.`}`;
  }

  function redraw() {
    if (known().join("\n") !== [...names.options].map(({ value }) => value).join("\n")) {
      names.replaceChildren(...known().map((name) => h("option", { value: name }, name)));
    }
    names.value = model.get("beginning");
    limits.token.high = tokenControl.range.max = tokenControl.field.max = reading().tokens.length;
    tokenControl.range.value = token();
    if (token() !== model.get("token")) { w.put("token", token()); return; }
    draw();
    const found = word(answer().word);
    numbers(() => ({ columns: ["after layer", "the likeliest", "with", "then", `place of “${found}”`],
      rows: seen().map(({ place, top: [best, ...others] }, i) => [String(i), word(best.word), perCent(best.share),
        others.map((one) => `${word(one.word)} ${perCent(one.share)}`).join(", "), show(place, 5)]) }));
    w.say(sentence());
  }
  w.on(["token", "layer"], redraw);
  w.on(["beginning"], () => { // it is read to its end
    const whole = reading().tokens.length;
    if (model.get("token") === whole) redraw();
    else w.put("token", whole);
  });
  redraw();
  return w.destroy;
}

export default { render };
