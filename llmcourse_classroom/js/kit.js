// The house toolkit of the course's widgets: controls, a stage, a player, a status line, a table.
// A widget's module starts with one line, `import { ... } from "./kit.js";`, and holds the rest.

const SVG = "http://www.w3.org/2000/svg";

// --- elements

// h("label", { class: "lc-x", onclick: f }, "text", child, ...) makes an element.
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// The same for the elements of a picture.
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

let counter = 0;
export const uniqueId = () => `lc-${Date.now().toString(36)}-${++counter}`;

// --- numbers

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

const WITH_COMMAS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 8 }); // made once: that takes long

// A number for people: 4 significant digits, thousands apart, powers of ten beyond 1e7 and 1e-4.
export function show(value, digits = 4) {
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "infinite" : "minus infinite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1).replace("e+", "e");
  return WITH_COMMAS.format(Number.isInteger(value) ? value : Number(value.toPrecision(digits)));
}

// A share in per cent.  What is more than nothing is never shown as 0, what is less than all never as 100.
export function percent(share, digits = 3) {
  if (!Number.isFinite(share)) return show(share);
  if (share !== 0 && Math.abs(share) < 0.0005) return "under 0.1 %";
  const shown = Number((100 * share).toPrecision(digits));
  return share < 1 && shown >= 100 ? `over ${100 - 10 ** (2 - digits)} %` : `${show(shown)} %`;
}

// --- words

export const plural = (count, one, several = `${one}s`) => `${show(count)} ${count === 1 ? one : several}`;

export const listed = (words) => (words.length < 2 ? words.join("")
  : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

// --- the frame of a widget

// Returns { root, controls, say, note, table, stage, player, ... } for one widget in `el`.
//
// The picture comes first.  Under it are buttons, then at most three controls, then the others, folded
// away: `primary` names the three, or they are the first three.
export function frame({ model, el, title, primary = null }) {
  const titleId = uniqueId();
  const root = h("div", { class: "lc", role: "group", "aria-labelledby": titleId });
  root.append(h("p", { class: "lc-title", id: titleId }, title));
  const actions = h("div", { class: "lc-actions" });
  const controls = h("div", { class: "lc-controls" });
  const others = h("div", { class: "lc-controls" });
  const more = h("details", { class: "lc-more", hidden: true }, h("summary", {}, "More settings"), others);
  const stages = h("div", { class: "lc-stages" });
  const status = h("p", { class: "lc-status", role: "status" });
  const note = h("p", { class: "lc-note", role: "alert" });
  const rows = h("div", { class: "lc-tables" });
  const dock = h("div", { class: "lc-dock" }, actions, controls, more, note);
  root.append(dock, stages, status, rows);
  el.append(root);
  const limits = model.get("limits") || {};
  const listeners = [];
  const stops = [holdPicture(root)];

  // Put a control where it belongs: among the three, or with the others.
  function place(name, into, control) {
    const shown = primary ? primary.includes(name) : controls.childElementCount < 3;
    if (into || shown) (into || controls).append(control);
    else fold(control);
  }
  function fold(control) {
    more.hidden = false;
    others.append(control);
  }

  // Call `redraw` after every change of a named part of the state; the first call is the caller's.
  function on(names, redraw) {
    for (const name of names) {
      model.on(`change:${name}`, redraw);
      listeners.push([`change:${name}`, redraw]);
    }
  }
  const showNote = () => { note.textContent = model.get("note") || ""; };
  on(["note"], showNote);
  showNote();

  function put(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  // Set a number of the state; one that is impossible is clamped, and the widget says so.
  function putNumber(name, label, raw) {
    const { low, high, whole } = limits[name];
    let value = typeof raw === "number" ? raw : raw.trim() === "" ? NaN : Number(raw);
    const asked = value;
    if (Number.isNaN(value)) value = model.get(name);
    if (whole) value = Math.round(value);
    value = clamp(value, low, high);
    const said = value === asked ? ""
      : `${label}: ${Number.isNaN(asked) ? `“${raw}” is not a number` : `${show(asked)} is not possible`}` +
        ` (from ${show(low)} to ${show(high)}${whole ? ", whole" : ""}); ${show(value)} is used.`;
    model.set("note", said);
    put(name, value);
    return value;
  }

  // A slider and a number field for the same number.  `log` spreads a wide range evenly.
  // What it returns can be given to a handle of a picture.
  function number(name, label, { log = false, into = null, onset = null } = {}) {
    const id = uniqueId();
    const { low, high, step, whole } = limits[name];
    const there = log ? Math.log : (x) => x;
    const back = log ? Math.exp : (x) => x;
    const brief = (x) => (whole ? x : Number(x.toPrecision(4)));
    const tidy = (x) => clamp(Number((Math.round(x / step) * step).toPrecision(10)), low, high);
    const range = h("input", {
      type: "range", id, min: there(low), max: there(high),
      step: log ? (there(high) - there(low)) / 200 : step,
    });
    const field = h("input", { type: "number", min: low, max: high, step, "aria-label": `${label}, number` });
    const update = () => {
      range.value = there(model.get(name));
      range.setAttribute("aria-valuetext", show(model.get(name)));
      if (document.activeElement !== field) field.value = brief(model.get(name));
    };
    const set = (raw) => { putNumber(name, label, raw); if (onset) onset(); };
    range.addEventListener("input", () => set(tidy(back(Number(range.value)))));
    field.addEventListener("change", () => { set(field.value); field.value = brief(model.get(name)); });
    on([name], update);
    update();
    place(name, into, h("div", { class: "lc-control" }, h("label", { for: id }, label), range, field));
    const move = (times) => {
      range.stepUp(times);
      range.dispatchEvent(new Event("input"));
    };
    const now = () => ({ low: limits[name].low, high: limits[name].high, value: model.get(name),
      text: show(model.get(name)) });
    return { range, field, label, step: move, now, set: (value) => set(tidy(value)) };
  }

  // A choice among strings; `labels` are what is shown for them.
  function choice(name, label, { options = limits[name]?.options, labels = null, into = null, onset = null } = {}) {
    const id = uniqueId();
    const select = h("select", { id }, options.map((option, i) =>
      h("option", { value: option }, labels ? labels[i] : option)));
    const update = () => { select.value = model.get(name); };
    select.addEventListener("change", () => { put(name, select.value); if (onset) onset(); });
    on([name], update);
    update();
    const long = (labels || options).some((one) => one.length > 22); // its own row shows it whole
    place(name, into, h("div", { class: long ? "lc-control lc-long" : "lc-control" }, h("label", { for: id }, label), select));
    return select;
  }

  function toggle(name, label, { into = null, onset = null } = {}) {
    const id = uniqueId();
    const box = h("input", { type: "checkbox", id });
    const update = () => { box.checked = model.get(name); };
    box.addEventListener("change", () => { put(name, box.checked); if (onset) onset(); });
    on([name], update);
    update();
    place(name, into, h("div", { class: "lc-control lc-check" }, box, h("label", { for: id }, label)));
    return box;
  }

  function text(name, label, { rows: lines = 2, into = null, onset = null } = {}) {
    const id = uniqueId();
    const area = h("textarea", { id, rows: lines, spellcheck: "false" });
    const update = () => { if (area.value !== model.get(name)) area.value = model.get(name); };
    area.addEventListener("input", () => { put(name, area.value); if (onset) onset(); });
    on([name], update);
    update();
    place(name, into, h("div", { class: "lc-control lc-wide" }, h("label", { for: id }, label), area));
    return area;
  }

  function button(label, onclick, { into = actions } = {}) {
    const made = h("button", { type: "button", onclick }, label);
    into.append(made);
    return made;
  }

  // A picture that is redrawn to the width it really has, so that its text keeps its size: 12 units,
  // which are pixels unless the reader has larger text.
  // draw(svg, width, height) adds to an empty svg and returns the picture's text alternative.
  //
  // The controls come under the first picture, or under the one with `docked`.  What is at another
  // place after a change goes there in the time of --lc-move, or of `lasts` (or lasts()) times as much:
  // see "movement" below.
  function stage(draw, { height = 260, into = stages, label = "", docked = false, lasts = 1 } = {}) {
    const picture = s("svg", { role: "img" });
    const holder = h("div", { class: "lc-stage" }, picture);
    into.append(holder);
    if (docked || (into === stages && dock.parentElement === root)) holder.after(dock);
    const handles = [];
    let last = 0;
    let drawn = -Infinity;
    let halt = () => {};
    const redraw = () => {
      const there = holder.clientWidth || 640;
      const unit = pixelsPerUnit(holder, there);
      const width = Math.max(220, Math.round(there / unit));
      const tall = typeof height === "function" ? height(width) : height;
      // A picture that follows a hand or a fast player is there at once.
      const time = performance.now();
      const moves = last === holder.clientWidth && time - drawn > 150 && !document.hidden &&
        !root.classList.contains("lc-held");
      const usual = moves ? parseFloat(getComputedStyle(root).getPropertyValue("--lc-move")) : 0;
      drawn = time;
      last = holder.clientWidth;
      halt();
      const before = [...picture.children];
      picture.replaceChildren();
      picture.setAttribute("viewBox", `0 0 ${width} ${tall}`);
      picture.setAttribute("width", width * unit);
      picture.setAttribute("height", tall * unit);
      picture.setAttribute("aria-label", `${label}${label && ": "}${draw(picture, width, tall)}`);
      const long = usual * (typeof lasts === "function" ? lasts() : lasts);
      halt = glide(picture, long > 0 ? [...placesThatChange(before, [...picture.children]), ...journeys(picture)] : [], long);
      for (const put of handles) put(unit, long);
    };
    const watch = new ResizeObserver(() => {
      if (holder.clientWidth !== last) redraw();
    });
    watch.observe(holder);
    stops.push(() => { watch.disconnect(); halt(); });
    redraw.picture = picture;
    redraw.handle = (given) => handles.push(makeHandle(picture, root, redraw, given));
    return redraw;
  }

  // The numbers behind a picture.  fill({ columns, rows }), or a function that returns these, replaces them; they are
  // written while they are open.
  function table(caption, { open = false } = {}) {
    const body = h("div", { class: "lc-scroll", tabindex: 0, role: "region", "aria-label": caption });
    const folder = h("details", { class: "lc-table", open }, h("summary", {}, caption), body);
    rows.append(folder);
    let given = null;
    const write = () => {
      if (!given || !folder.open) return;
      const { columns, rows: lines } = typeof given === "function" ? given() : given;
      body.replaceChildren(h("table", {},
        h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col" }, c)))),
        h("tbody", {}, lines.map((line) => h("tr", {}, line.map((cell, i) =>
          h(i ? "td" : "th", i ? {} : { scope: "row" }, typeof cell === "number" ? show(cell) : cell)))))));
    };
    folder.addEventListener("toggle", write);
    return (numbers) => {
      given = numbers;
      write();
    };
  }

  // Step, play or pause, and reset.  `step` returns false when there is nothing left to do.  Where
  // the reader prefers reduced motion, play goes to the end at once: nothing moves.
  function player({ step, reset, perSecond = 12, into = actions, longest = 2000 }) {
    const group = h("div", { class: "lc-player" });
    into.prepend(group);
    let timer = null;
    const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = still() ? "To the end" : "Play";
      play.setAttribute("aria-pressed", "false");
      root.classList.remove("lc-playing");
    };
    const start = () => {
      if (still()) {
        for (let i = 0; i < longest && step() !== false; i++);
        return;
      }
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
      root.classList.add("lc-playing");
      timer = setInterval(() => { if (step() === false) stop(); }, 1000 / perSecond);
    };
    const play = button("Play", () => (timer ? stop() : start()), { into: group });
    play.classList.add("lc-go");
    button("Step", () => { stop(); step(); }, { into: group });
    button("Reset", () => { stop(); reset(); }, { into: group });
    stop();
    stops.push(stop);
    return { stop, playing: () => timer !== null };
  }

  // What the state is, in a sentence.  While the player runs, nothing is announced.
  const say = (sentence) => {
    status.setAttribute("aria-live", root.classList.contains("lc-playing") ? "off" : "polite");
    status.textContent = sentence;
  };
  const destroy = () => {
    stops.forEach((stop) => stop());
    listeners.forEach(([event, f]) => model.off(event, f));
  };
  return {
    root, dock, actions, controls, fold, stages, model, on, put, putNumber, number, choice, toggle, text, button, stage,
    table, player, say, destroy,
  };
}

// --- pictures

// The pixels of a picture's unit: as many times more than one as the text around it is larger than
// usual (0.9 of 16 pixels), but so that a picture stays as wide as it is on a phone.
export function pixelsPerUnit(element, there) {
  return clamp(parseFloat(getComputedStyle(element).fontSize) / 14.4 || 1, 1, Math.max(1, there / 316));
}

// Where an event is in a picture, in its units.
export function within(picture, event) {
  const box = picture.getBoundingClientRect();
  const unit = box.width / picture.viewBox.baseVal.width;
  return [(event.clientX - box.left) / unit, (event.clientY - box.top) / unit];
}

// Call `put` with the place, in a picture's units, where it is pressed and wherever the pointer is
// drawn from there.
export function onDrag(picture, put) {
  let held = false;
  const drag = (event) => { if (held) put(within(picture, event)); };
  picture.addEventListener("pointerdown", (event) => {
    held = true;
    picture.setPointerCapture(event.pointerId);
    drag(event);
  });
  picture.addEventListener("pointermove", drag);
  for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => { held = false; });
}

// A handle on a picture: a thing to drag, and a slider to the keyboard.  `x` is the control that it
// moves (what `number` returns, or { label, step, now, set }), and `y` one that the upper and lower
// arrow keys move, if there are two.  at() is its place in the picture's units, null where there is
// none now; to([x, y]) is the value of each control for a place.  `mark` is the class of its colour.
function makeHandle(picture, root, redraw, { x, y = null, at, to, label: name = x.label, mark = "" }) {
  const knob = h("div", { class: `lc-handle ${mark}`, role: "slider", tabindex: 0, "aria-label": name });
  const drag = (event) => {
    const values = [to(within(picture, event))].flat();
    [x, y].forEach((control, i) => { if (control && values[i] != null) control.set(values[i]); });
  };
  knob.addEventListener("pointerdown", (event) => {
    knob.setPointerCapture(event.pointerId);
    root.classList.add("lc-held");
    event.stopPropagation();
  });
  knob.addEventListener("pointermove", (event) => {
    if (knob.hasPointerCapture(event.pointerId)) drag(event);
  });
  knob.addEventListener("lostpointercapture", () => {
    root.classList.remove("lc-held");
    redraw(); // scales that were held may follow
  });
  const KEYS = { ArrowRight: [x, 1], ArrowLeft: [x, -1], ArrowUp: [y || x, 1], ArrowDown: [y || x, -1],
    PageUp: [y || x, 10], PageDown: [y || x, -10], End: [x, 1e6], Home: [x, -1e6] };
  knob.addEventListener("keydown", (event) => {
    if (!KEYS[event.key]) return;
    event.preventDefault();
    const [control, times] = KEYS[event.key];
    control.step(times);
  });
  picture.after(knob);
  return (unit, long) => {
    const place = at();
    knob.hidden = !place;
    if (!place) return;
    const { low, high, value, text } = x.now();
    knob.setAttribute("aria-valuemin", low);
    knob.setAttribute("aria-valuemax", high);
    knob.setAttribute("aria-valuenow", value);
    knob.setAttribute("aria-valuetext", y ? `${x.label} ${text}, ${y.label} ${y.now().text}` : text);
    knob.style.transitionDuration = `${long || 0}ms`;
    knob.style.left = `${place[0] * unit}px`;
    knob.style.top = `${place[1] * unit}px`;
  };
}

// While a slider is held on a phone, the picture before it is moved to where it can be seen.
function holdPicture(root) {
  let lifted = null;
  const hold = ({ target }) => {
    if (!target.closest?.('input[type="range"]')) return;
    root.classList.add("lc-held");
    const before = [...root.querySelectorAll(".lc-stage")].filter((one) =>
      one.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING);
    const picture = before.at(-1);
    if (!picture || root.clientWidth > 600) return;
    const [box, slider] = [picture.getBoundingClientRect(), target.getBoundingClientRect()];
    const [above, below] = [slider.top - 44, window.innerHeight - slider.bottom - 16];
    if (box.top >= 0) return;
    const onTop = above >= Math.min(box.height, below);
    const size = Math.min(1, (onTop ? above : below) / box.height);
    const top = onTop ? 0 : window.innerHeight - size * box.height;
    picture.style.transform = `translateY(${top - box.top}px) scale(${size})`;
    picture.classList.add("lc-lifted");
    lifted = picture;
  };
  const release = () => {
    root.classList.remove("lc-held");
    if (lifted) lifted.style.transform = "";
    lifted?.classList.remove("lc-lifted");
    lifted = null;
  };
  root.addEventListener("pointerdown", hold);
  const ends = ["pointerup", "pointercancel"];
  for (const end of ends) window.addEventListener(end, release);
  return () => ends.forEach((end) => window.removeEventListener(end, release));
}

// --- movement

// After a change of the state the new picture begins as the old one and becomes itself.  What its
// elements do on the way is said by attributes of theirs:
//
//   data-key    What has the same key is the same thing: it goes from its old place to its new.  So do
//               elements without any of these that stand at the same place among their neighbours.
//   data-way    It goes along the points "x,y x,y ...", and `transform` is where it ends.
//   data-while  "0.3 0.8": its part of the time.  What has this alone comes to sight in it.
//   data-gone   It is there only while the picture moves: it is seen in its part of the time where it has
//               a way, else until then.
const OF_MOVEMENT = ["key", "way", "while", "gone"];
const MOVING_ATTRIBUTES = new Set(["x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "width", "height",
  "points", "d", "transform", "opacity", "stroke-dasharray"]);
const NUMBERS_IN_TEXT = /-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?/g;

// A function of the time's share that puts something where it then is, from 0 to 1 in its part of the time.
function during(part, put) {
  if (!part) return (share) => put(1 - (1 - share) ** 3); // quick at first, then gently
  const [from, to] = part.split(" ").map(Number);
  return (share) => {
    const done = clamp((share - from) / (to - from), 0, 1);
    put(done * done * (3 - 2 * done));
  };
}

// What differs between two lists of elements, as functions of the time's share.
function placesThatChange(before, after, part = "") {
  const found = [];
  const keyed = new Map(before.filter((one) => one.dataset.key).map((one) => [one.dataset.key, one]));
  const [old, fresh] = [before, after].map((all) => all.filter((one) => OF_MOVEMENT.every((name) => !(name in one.dataset))));
  const alike = (a, b) => a && b && a.localName === b.localName;
  const pairs = after.filter((one) => one.dataset.key).map((one) => [keyed.get(one.dataset.key), one]);
  let [first, last] = [0, 0];
  const shorter = Math.min(old.length, fresh.length);
  while (first < shorter && alike(old[first], fresh[first])) first++;
  while (last < shorter - first && alike(old.at(-1 - last), fresh.at(-1 - last))) last++;
  for (let i = 0; i < first; i++) pairs.push([old[i], fresh[i]]);
  for (let i = 1; i <= last; i++) pairs.push([old.at(-i), fresh.at(-i)]);
  for (const [a, b] of pairs) {
    if (!alike(a, b) || b.localName === "defs" || a.isEqualNode(b)) continue;
    const mine = b.dataset.while || part;
    for (const { name, value: to } of [...b.attributes].filter((one) => MOVING_ATTRIBUTES.has(one.name))) {
      const from = a.getAttribute(name);
      if (from === to || from === null || (name === "d" && /a/i.test(to))) continue;
      const between = to.split(NUMBERS_IN_TEXT);
      if (from.split(NUMBERS_IN_TEXT).join("\n") !== between.join("\n")) continue;
      const [begin, end] = [from, to].map((text) => text.match(NUMBERS_IN_TEXT).map(Number));
      found.push(during(mine, (done) => b.setAttribute(name, done === 1 ? to : between.reduce((text, words, i) =>
        text + Number((begin[i - 1] + (end[i - 1] - begin[i - 1]) * done).toFixed(3)) + words))));
    }
    found.push(...placesThatChange([...a.children], [...b.children], mine));
  }
  return found;
}

// What goes along a way, and what comes to sight or leaves it.
function journeys(picture) {
  return [...picture.querySelectorAll("[data-way], [data-while]:not([data-key])")].map((one) => {
    const { way, while: part, gone } = one.dataset;
    const seen = one.getAttribute("opacity") ?? 1;
    if (!way) return during(part, (done) => one.setAttribute("opacity", seen * (gone == null ? done : 1 - done)));
    const final = one.getAttribute("transform");
    const at = along(way.split(" ").map((point) => point.split(",").map(Number)));
    return during(part || "0 1", (done) => {
      one.setAttribute("transform", done === 1 && final ? final : `translate(${at(done).map((x) => x.toFixed(2)).join(" ")})`);
      if (gone != null) one.setAttribute("opacity", done > 0 && done < 1 ? seen : 0);
    });
  });
}

// The place on a way, a list of points, after a share of its length.
function along(points) {
  const ends = [0];
  points.slice(1).forEach(([x, y], i) => ends.push(ends[i] + Math.hypot(x - points[i][0], y - points[i][1])));
  return (share) => {
    const far = share * ends.at(-1);
    const i = clamp(ends.findIndex((end) => end >= far), 1, points.length - 1);
    const between = (far - ends[i - 1]) / (ends[i] - ends[i - 1] || 1);
    return [0, 1].map((axis) => points[i - 1][axis] + (points[i][axis] - points[i - 1][axis]) * between);
  };
}

// Take a picture from what it was to what it is; returns a function that ends it.
function glide(picture, found, long) {
  const begin = performance.now();
  let frameId = 0;
  const tick = () => {
    const share = Math.min(1, (performance.now() - begin) / long);
    for (const put of found) put(share);
    if (share < 1) frameId = requestAnimationFrame(tick);
    else leave();
  };
  const leave = () => picture.querySelectorAll("[data-gone]").forEach((one) => one.remove());
  if (found.length && found.length < 4000) {
    for (const put of found) put(0);
    frameId = requestAnimationFrame(tick);
  } else leave();
  return () => cancelAnimationFrame(frameId);
}

// A straight scale from [d0, d1] to [r0, r1]; `log` takes logarithms of the domain first.
export function scale([d0, d1], [r0, r1], { log = false } = {}) {
  const f = log ? Math.log : (x) => x;
  const slope = (r1 - r0) / (f(d1) - f(d0) || 1);
  return (x) => r0 + (f(x) - f(d0)) * slope;
}

// About `count` round numbers in [low, high].
export function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

export const line = (points, attributes = {}) => s("polyline", {
  points: points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" "), fill: "none", ...attributes,
});

// Stripes, for what is empty, padded or late: `fill: url(#id)` where they are wanted.
export const hatch = (id, stripes = { stroke: "var(--lc-line)", "stroke-width": 2 }) => s("defs", {},
  s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("line", { x1: 0, x2: 0, y1: 0, y2: 7, ...stripes })));

export const label = (x, y, content, attributes = {}) => s("text", { x, y, ...attributes }, content);

// Axes with ticks and titles around the box; returns their group.
export function axes({ x, y, box: [left, top, right, bottom], xTicks, yTicks, xTitle = "", yTitle = "" }) {
  return s("g", { class: "lc-axes" },
    s("line", { x1: left, x2: right, y1: bottom, y2: bottom }),
    s("line", { x1: left, x2: left, y1: top, y2: bottom }),
    xTicks.map((t) => label(x(t), bottom + 15, show(t), { "text-anchor": "middle" })),
    yTicks.map((t) => label(left - 5, y(t) + 4, show(t), { "text-anchor": "end" })),
    label((left + right) / 2, bottom + 31, xTitle, { "text-anchor": "middle" }),
    label(left, top - 7, yTitle));
}

// The number from 0 to 1 of draw `n`, the same for the same seed (mulberry32).
export function uniform(seed, n) {
  let t = (seed + Math.imul(n + 1, 0x6d2b79f5)) >>> 0;
  t = Math.imul(t ^ (t >>> 15), 1 | t);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
