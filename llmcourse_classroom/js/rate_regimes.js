import { axes, clamp, frame, h, label, line, onDrag, s, scale, show, ticks, uniform, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_classroom.widgets.regimes by the tests

const isNumber = (value) => value !== null;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Each value becomes the mean of the last `window` numbers up to it; what is null stays null.
export function trailingMean(values, window) {
  const held = [];
  return values.map((value) => {
    if (value === null) return null;
    held.push(value);
    if (held.length > window) held.shift();
    return mean(held);
  });
}

// What can be read off a curve of training losses.
export function features({ steps, train, validation }) {
  const known = train.filter(isNumber);
  const tenth = Math.max(1, Math.floor(known.length / 10));
  const end = mean(known.slice(-tenth));
  const earlier = known.slice(-3 * tenth, -2 * tenth);
  const before = mean(earlier.length ? earlier : known.slice(0, 1));
  let lowest = Infinity;
  let rise = 0;
  for (const value of known) {
    lowest = Math.min(lowest, value);
    rise = Math.max(rise, value - lowest);
  }
  const broken = train.indexOf(null);
  const measured = validation.filter(isNumber);
  return {
    first: known[0], end, late_fall: before - end, lowest, lowest_step: steps[train.indexOf(lowest)], rise,
    broken: broken < 0 ? null : steps[broken], validation: measured.length ? measured.at(-1) : null,
  };
}

// The place of the last step that is not after `step`; 0 where all are.
export const placeAt = (steps, step) => steps.reduce((found, n, i) => (n <= step ? i : found), 0);

// The order in which `count` curves are dealt: the same for the same deal (Fisher and Yates).
export function dealt(count, deal) {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(uniform(7919 * deal, i) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// --- the page

const LETTERS = "ABCDEF";
const CHOOSE = "choose …";
const STYLE = `
.lc .rr-key { list-style: none; padding: 0; margin: 0.4rem 0; display: grid; gap: 0.3rem; }
.lc .rr-key li { display: flex; flex-wrap: wrap; gap: 0.2rem 0.6rem; align-items: center; margin: 0; }
.lc .rr-badge { display: inline-grid; place-items: center; width: 1.7em; height: 1.7em; border-radius: 50%;
  background: currentColor; font-weight: 600; flex: none; }
.lc .rr-badge span { color: var(--lc-on); }
.lc .rr-small { font-size: 0.85rem; color: var(--lc-muted); }`;
const loss = (value) => (value === null ? "not finite" : Math.abs(value) >= 1e4 ? show(value, 3) : value.toFixed(2));
const rateText = (value) => (value >= 1e-3 ? show(value, 3) : value.toExponential(2).replace(/\.?0+e/, "e"));

function render({ model, el }) {
  const w = frame({ model, el, title: "Learning rates, told by their curves", primary: ["curve", "step", "quiz"] });
  w.root.prepend(h("style", {}, STYLE));
  const runs = model.get("runs");
  const facts = runs.map(features);
  const letters = [...LETTERS].slice(0, runs.length);
  const quiz = () => model.get("quiz");
  const order = () => (quiz() ? dealt(runs.length, model.get("deal")) : runs.map((_, i) => i));
  const guesses = () => model.get("guesses");
  const solved = (k) => guesses()[letters[k]] === runs[order()[k]].name;
  const named = (k) => !quiz() || solved(k); // whether the reader may know which run a letter is
  const nameOf = (k) => (named(k) ? runs[order()[k]].name : `curve ${letters[k]}`);
  const chosen = () => (model.get("curve") === "all" ? null : letters.indexOf(model.get("curve")));
  const best = facts.reduce((found, one, i) => (one.broken === null && one.end < (facts[found]?.end ?? Infinity) ? i
    : found), -1);

  const pick = w.choice("curve", "show", { options: ["all", ...letters] });
  w.number("window", "points in a mean");
  w.toggle("train", "training, solid");
  w.toggle("validation", "validation, dashed");
  w.toggle("tall", "up to the highest loss");
  w.toggle("quiz", "hide the names and guess", { onset: () => { w.put("guesses", {}); w.put("curve", "all"); } });
  w.number("step", "at step");

  // --- the picture

  let toStep = () => 0;
  const end = Math.max(...runs.map(({ steps }) => steps.at(-1)));
  const draw = w.stage((svg, width, tall) => {
    const box = [40, 22, width - 34, tall - 38];
    const all = order().map((i) => runs[i]);
    const curves = all.map((run) => ({
      solid: model.get("train") ? trailingMean(run.train, model.get("window")) : [],
      dashed: model.get("validation") ? run.validation : [], steps: run.steps,
    }));
    const values = curves.flatMap(({ solid, dashed }) => [...solid, ...dashed]).filter(isNumber);
    const firsts = facts.map(({ first }) => first);
    const highest = values.length ? Math.max(...values) : Math.max(...firsts);
    const lowest = values.length ? Math.min(...values) : 0;
    const top = model.get("tall") ? highest : Math.min(highest, 1.35 * Math.max(...firsts));
    const margin = 0.06 * (top - lowest) || 1;
    const x = scale([0, end], [box[0], box[2]]);
    const inside = scale([lowest - margin, top + margin], [box[3], box[1]]);
    const y = (value) => clamp(inside(value), box[1], box[3]);
    svg.append(axes({ x, y, box, xTicks: ticks(0, end, width < 420 ? 4 : 6), yTicks: ticks(lowest, top, 4),
      xTitle: "step", yTitle: "loss, nats per token" }));
    const at = model.get("step");
    svg.append(line([[x(at), box[1]], [x(at), box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "1 3" }));
    const ends = [];
    curves.forEach(({ solid, dashed, steps }, k) => {
      const faint = chosen() !== null && chosen() !== k;
      const group = s("g", { class: `lc-${k + 1}`, opacity: faint ? 0.25 : 1 });
      const points = (list) =>
        list.map((value, i) => (value === null ? null : [x(steps[i]), y(value)])).filter(Boolean);
      const [through, across] = [points(solid), points(dashed)];
      if (through.length) group.append(line(through, { stroke: "currentColor", "stroke-width": 2 }));
      if (across.length) {
        group.append(line(across, { stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "6 4" }),
          ...(faint ? [] : across.map(([px, py]) => s("rect", { x: px - 3, y: py - 3, width: 6, height: 6,
            fill: "var(--lc-back)", stroke: "currentColor" }))));
      }
      const lastPoint = through.at(-1) ?? across.at(-1);
      if (lastPoint && solid.includes(null)) { // where the numbers end
        const [px, py] = lastPoint;
        group.append(line([[px - 6, py - 6], [px + 6, py + 6]], { stroke: "currentColor", "stroke-width": 3 }),
          line([[px - 6, py + 6], [px + 6, py - 6]], { stroke: "currentColor", "stroke-width": 3 }));
      }
      svg.append(group);
      if (lastPoint && !faint) ends.push({ k, px: lastPoint[0], py: lastPoint[1] });
    });
    spread(ends, box).forEach(({ k, px, py, place }) => svg.append(
      line([[px, py], [px + 12, place]], { stroke: "currentColor", class: `lc-${k + 1}` }),
      s("circle", { cx: px + 20, cy: place, r: 9, fill: "currentColor", class: `lc-${k + 1}` }),
      label(px + 20, place + 4, letters[k],
        { "text-anchor": "middle", style: "fill: var(--lc-on); font-weight: 600" })));
    if (highest > top * 1.0001) {
      svg.append(label(box[2], box[1] - 8, `▲ up to ${loss(highest)}`, { "text-anchor": "end" }));
    }
    toStep = (px) => Math.round(clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * end);
    svg.style.touchAction = "pan-y";
    return `${runs.length} runs over ${show(end)} steps; ${letters.map((letter, k) => `${letter}${quiz() ? ""
      : `, ${nameOf(k)}`}: from ${loss(facts[order()[k]].first)} to ${loss(facts[order()[k]].end)}`).join("; ")}`;
  }, { height: (width) => (width < 420 ? 280 : 320), label: "training and validation loss against step" });

  // Letters at the right end, none upon another.
  function spread(ends, [, top, , bottom]) {
    const sorted = ends.map((one) => ({ ...one, place: one.py })).sort((a, b) => a.place - b.place);
    sorted.forEach((one, i) => { if (i) one.place = Math.max(one.place, sorted[i - 1].place + 19); });
    const over = Math.max(0, (sorted.at(-1)?.place ?? 0) - (bottom - 8));
    sorted.forEach((one) => { one.place = Math.max(top + 8, one.place - over); });
    sorted.forEach((one, i) => { if (i) one.place = Math.max(one.place, sorted[i - 1].place + 19); });
    return sorted;
  }

  const picture = w.stages.querySelector("svg");
  onDrag(picture, ([x]) => w.put("step", toStep(x)));

  // --- the key, which is also where one guesses

  const status = w.root.querySelector(".lc-status");
  const key = h("ul", { class: "rr-key" });
  const buttons = h("div", { class: "lc-player" });
  w.stages.append(key, buttons, status);
  const again = w.button("Deal again", () => {
    w.put("guesses", {});
    w.put("deal", model.get("deal") % model.get("limits").deal.high + 1);
  }, { into: buttons });
  const rows = letters.map((letter, k) => {
    const id = uniqueId();
    const select = h("select", { id }, [CHOOSE, ...runs.map(({ name }) => name)].map((name, i) =>
      h("option", { value: i ? name : "" }, name)));
    select.addEventListener("change", () => w.put("guesses", { ...guesses(), [letter]: select.value }));
    const guess = h("label", { for: id }, `curve ${letter} is`);
    const words = h("span", {});
    key.append(h("li", {}, h("span", { class: `rr-badge lc-${k + 1}`, "aria-hidden": "true" }, h("span", {}, letter)),
      guess, select, words));
    return { guess, select, words };
  });

  // What is to be seen in a curve, in words.
  function seen(i) {
    const { first, end: last, late_fall: fall, rise, broken, validation } = facts[i];
    const parts = [`from ${loss(first)} to ${loss(last)}`];
    if (broken !== null) parts.push(`not finite from step ${show(broken)} on`);
    else parts.push(last > first ? "it ends above its beginning" : Math.abs(fall) < 0.01 * Math.abs(first)
      ? "it is flat at its end" : fall > 0 ? `it still falls at its end, by ${loss(fall)} over the last fifth`
      : `it rises at its end, by ${loss(-fall)} over the last fifth`);
    parts.push(`its largest rise above its own lowest point is ${loss(rise)}`);
    if (best >= 0 && best !== i && broken === null) {
      parts.push(`it ends ${loss(last - facts[best].end)} above the lowest`);
    }
    if (best === i) parts.push("no other ends lower");
    if (validation !== null && broken === null) parts.push(`validation ends at ${loss(validation)}`);
    return parts.join("; ");
  }

  function fillKey() {
    again.style.display = quiz() ? "" : "none";
    rows.forEach(({ guess, select, words }, k) => {
      const i = order()[k];
      const given = guesses()[letters[k]] ?? "";
      guess.style.display = select.style.display = quiz() ? "" : "none";
      select.value = given;
      if (!quiz()) words.textContent = `${runs[i].name}, rate ${rateText(runs[i].rate)}: ` +
        (facts[i].broken === null ? `ends at ${loss(facts[i].end)}`
          : `not finite from step ${show(facts[i].broken)} on`);
      else if (!given) words.textContent = "";
      else if (solved(k)) words.textContent = `✓ right, rate ${rateText(runs[i].rate)}: ${seen(i)}.`;
      else words.textContent = `✗ no. Look again: ${seen(i)}.`;
    });
    [...pick.options].forEach((option, n) => {
      option.textContent = n === 0 ? "all of them" : quiz() ? `curve ${letters[n - 1]}`
        : `${letters[n - 1]}: ${nameOf(n - 1)}`;
    });
  }

  // --- words and tables

  function reading(k) {
    const { steps, train, validation } = runs[order()[k]];
    const place = placeAt(steps, model.get("step"));
    const measured = validation.slice(0, place + 1).filter(isNumber).at(-1);
    return { name: nameOf(k), train: trailingMean(train, model.get("window"))[place], validation: measured ?? null,
      has: measured !== undefined && train[place] !== null };
  }

  function sentence() {
    const shown = chosen() === null ? letters.map((_, k) => k) : [chosen()];
    const readings = shown.map(reading).map(({ name, train, validation, has }) =>
      `${name} ${loss(train)}${has ? ` (validation ${loss(validation)})` : ""}`).join(", ");
    const head = `At step ${show(model.get("step"))}: ${readings}.`;
    if (quiz()) {
      const right = letters.filter((_, k) => solved(k)).length;
      return right === runs.length ? `All ${right} right. ${head}`
        : `Which regime is each curve? ${right} of ${runs.length} right so far. Look at the end of a curve, at how ` +
          `it swings, and at which ends lowest. ${head}`;
    }
    if (chosen() !== null) return `${head} Rate ${rateText(runs[chosen()].rate)}: ${seen(chosen())}.`;
    if (best < 0) return `${head} No run stayed finite.`;
    return `${head} Lowest at the end: ${runs[best].name}, rate ${rateText(runs[best].rate)}.`;
  }

  const summary = w.table("What each curve does");
  const numbers = w.table("The curves step by step");
  function fillTables() {
    const rate = (k) => (named(k) ? rateText(runs[order()[k]].rate) : "?");
    summary({
      columns: ["curve", "rate", "first", "end", "fall over the last fifth", "largest rise", "validation", "finite"],
      rows: letters.map((letter, k) => {
        const one = facts[order()[k]];
        return [`${letter}${named(k) ? `: ${nameOf(k)}` : ""}`, rate(k), loss(one.first), loss(one.end),
          loss(one.late_fall), loss(one.rise), one.validation === null ? "" : loss(one.validation),
          one.broken === null ? "yes" : `until step ${show(one.broken)}`];
      }),
    });
    const longest = runs.reduce((a, b) => (b.steps.length > a.steps.length ? b : a)).steps;
    const every = Math.ceil(longest.length / 40);
    const kept = longest.filter((_, i) => i % every === 0 || i === longest.length - 1);
    numbers({ columns: ["step", ...letters.flatMap((letter) => [letter, `${letter}, validation`])],
      rows: kept.map((n) => [show(n), ...order().flatMap((i) => {
        const place = runs[i].steps.indexOf(n);
        const [a, b] = place < 0 ? [undefined, null] : [runs[i].train[place], runs[i].validation[place]];
        return [a === undefined ? "" : loss(a), b === null ? "" : loss(b)];
      })]) });
  }

  function redraw() {
    draw();
    fillKey();
    fillTables();
    w.say(sentence());
  }
  w.on(["curve", "window", "train", "validation", "tall", "quiz", "deal", "guesses", "step"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
