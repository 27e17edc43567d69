import { frame, h, label, s, uniqueId } from "./kit.js";

// --- arithmetic

const STATES = ["not begun", "reading", "done"];
const FORMAT = "llmcourse-progress";
const VERSION = 1;
const KEY = `${FORMAT}.v${VERSION}`;
const LARGEST_FILE = 100000;

// How many of the chapters are in which state, and the share done.
export function counts(chapters, progress) {
  const found = { done: 0, reading: 0, all: chapters.length };
  for (const { number } of chapters) if (progress[number]) found[progress[number]]++;
  return { ...found, share: found.all ? found.done / found.all : 0 };
}

// Both together: of two states of a chapter the further one, so that nothing read is forgotten.
export function merged(mine, theirs) {
  const further = (a, b) => (STATES.indexOf(a) >= STATES.indexOf(b) ? a : b);
  const numbers = [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].sort();
  return Object.fromEntries(numbers.map((n) => [n, further(mine[n] ?? STATES[0], theirs[n] ?? STATES[0])]));
}

export const asFile = (progress) => `${JSON.stringify({ format: FORMAT, version: VERSION, progress }, null, 1)}\n`;

// { progress } of a text that `asFile` made, else { problem }.
export function fromFile(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    return { problem: "it is not JSON" };
  }
  if (given?.format !== FORMAT) return { problem: "it was not exported by this map" };
  if (given.version !== VERSION) {
    return { problem: `it has version ${String(given.version)}, and this map reads ${VERSION}` };
  }
  const { progress } = given;
  if (typeof progress !== "object" || progress === null || Array.isArray(progress)) {
    return { problem: "it holds no progress" };
  }
  for (const [number, state] of Object.entries(progress)) {
    if (!/^\d\d$/.test(number)) return { problem: `“${number.slice(0, 20)}” is no number of a chapter` };
    if (!STATES.slice(1).includes(state)) return { problem: `chapter ${number} is neither reading nor done` };
  }
  return { progress };
}

// --- the browser's storage, which may be blocked

function shelf() {
  try {
    const storage = window.localStorage;
    storage.setItem(`${KEY}.try`, "1");
    storage.removeItem(`${KEY}.try`);
    return storage;
  } catch {
    return null;
  }
}

// --- the page

const SIGNS = { "not begun": "○", reading: "◐", done: "●" };
const CLASSES = { "not begun": "", reading: "lc-2", done: "lc-3" };
const STYLE = `
.lc .pm-parts { display: grid; gap: 0.8rem 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
.lc .pm-part { border: 0; padding: 0; margin: 0; min-width: 0; }
.lc .pm-part legend { font-weight: 600; padding: 0; }
.lc .pm-chapter { display: grid; grid-template-columns: 1.2rem minmax(0, 1fr) auto; gap: 0.1rem 0.4rem;
  align-items: center; padding: 0.1rem 0; border-bottom: 1px solid var(--lc-line); }
.lc .pm-chapter a { color: inherit; text-decoration: underline; display: inline-block; min-height: 24px; }
.lc .pm-later { color: var(--lc-muted); }
.lc .pm-file { display: flex; flex-wrap: wrap; gap: 0.2rem 0.5rem; align-items: center; flex: 1 1 14rem; min-width: 0; }
.lc .pm-file input { flex: 1 1 12rem; width: 12rem; min-width: 0; }
.lc .pm-sign { font-size: 1.1rem; }
.lc .pm-ask { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; border: 2px solid var(--lc-2);
  border-radius: 0.3rem; padding: 0.4rem 0.6rem; margin: 0.5rem 0; }
.lc .pm-ask[hidden] { display: none; }`;

function render({ model, el }) {
  const w = frame({ model, el, title: "Where you are in the course" });
  w.root.prepend(h("style", {}, STYLE));
  const chapters = model.get("chapters");
  const parts = [...new Set(chapters.map((c) => c.part))];
  const storage = shelf();
  // A notebook has a kernel, and the pages are not beside it: there the titles are no links.
  const inPage = !model.widget_manager;
  const note = (text) => w.put("note", text);
  const progress = () => model.get("progress");

  // --- what the browser keeps

  function keep() {
    try {
      storage?.setItem(KEY, asFile(progress()));
    } catch {
      note("This browser's storage is full: the last change is not kept. Export saves it to a file.");
    }
  }

  function put(next) {
    const begun = Object.entries(next).filter(([, state]) => state !== STATES[0]).sort();
    w.put("progress", Object.fromEntries(begun));
    keep();
  }

  function fetch() {
    const text = storage?.getItem(KEY);
    if (!text) return {};
    const found = fromFile(text);
    if (!found.problem) return found.progress;
    storage.setItem(`${KEY}.unreadable`, text);
    note(`What this browser kept could not be read (${found.problem}); it is set aside, and the map starts empty.`);
    return {};
  }

  // --- controls

  function save() {
    const address = URL.createObjectURL(new Blob([asFile(progress())], { type: "application/json" }));
    h("a", { href: address, download: `${FORMAT}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    note("");
  }

  async function load() {
    const [file] = input.files;
    if (!file) return;
    const text = file.size > LARGEST_FILE ? "" : await file.text();
    input.value = ""; // the same file may be chosen again
    const { progress: theirs, problem } = file.size > LARGEST_FILE ? { problem: "it is too large" } : fromFile(text);
    if (problem) {
      note(`“${file.name}” is not taken: ${problem}. Nothing has changed.`);
      return;
    }
    const before = progress();
    const after = merged(before, theirs);
    const changed = Object.keys(after).filter((n) => after[n] !== before[n]).length;
    put(after);
    note(`“${file.name}”: ${changed} chapter${changed === 1 ? " is" : "s are"} further than before.`);
  }

  w.button("Export", save);
  const inputId = uniqueId();
  const input = h("input", { type: "file", id: inputId, accept: ".json,application/json", onchange: load });
  w.controls.append(h("div", { class: "pm-file" }, h("label", { for: inputId }, "Import a file"), input));
  const clear = w.button("Clear", () => ask());

  // The question is part of the page.
  const question = h("p", { id: uniqueId() });
  const forget = () => { put({}); note("All marks are cleared."); close(); };
  const yes = h("button", { type: "button", onclick: forget }, "Yes, clear");
  const no = h("button", { type: "button", onclick: () => close() }, "Keep");
  const asked = h("div", { class: "pm-ask", role: "group", "aria-labelledby": question.id, hidden: true,
    onkeydown: (event) => { if (event.key === "Escape") close(); } }, question, no, yes);
  w.controls.after(asked);

  function ask() {
    const { done, reading } = counts(chapters, progress());
    const marks = done + reading;
    question.textContent = marks ? `Forget the marks of ${marks} chapter${marks === 1 ? "" : "s"}?`
      : "There is no mark to clear.";
    yes.hidden = marks === 0;
    asked.hidden = false;
    no.focus();
  }

  function close() {
    asked.hidden = true;
    clear.focus();
  }

  // --- the picture: a bar of the whole

  const pattern = uniqueId();
  const drawBar = w.stage((svg, width) => {
    const { done, reading, all } = counts(chapters, progress());
    const x = (count) => 1 + (width - 2) * count / Math.max(1, all);
    const part = (from, to, attributes) =>
      s("rect", { x: x(from), y: 4, width: x(to) - x(from), height: 22, ...attributes });
    svg.append(
      s("defs", {}, s("pattern", { id: pattern, width: 6, height: 6, patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)" },
        s("rect", { width: 3, height: 6, fill: "var(--lc-2)" }))),
      part(0, done, { fill: "var(--lc-3)" }),
      part(done, done + reading, { fill: `url(#${pattern})` }),
      part(0, all, { fill: "none", stroke: "var(--lc-line)" }),
      label(1, 42, `● done ${done}   ◐ reading ${reading}   ○ not begun ${all - done - reading}`));
    return sentence();
  }, { height: 48, label: "share of the chapters done" });

  // --- the map

  const updates = [];
  function chapterRow(chapter) {
    const sign = h("span", { class: "pm-sign", "aria-hidden": "true" });
    const name = `${chapter.number} ${chapter.title}`;
    const minutes = chapter.minutes ? ` (${chapter.minutes} min)` : "";
    const title = chapter.written && chapter.href && inPage ? h("a", { href: chapter.href }, name + minutes)
      : h("span", { class: chapter.written ? "" : "pm-later" }, name + minutes);
    const select = h("select", { "aria-label": `${name}: progress` },
      STATES.map((state) => h("option", { value: state }, state)));
    select.addEventListener("change", () => {
      model.set("note", "");
      put({ ...progress(), [chapter.number]: select.value });
    });
    updates.push(() => {
      const state = progress()[chapter.number] || STATES[0];
      select.value = state;
      sign.textContent = SIGNS[state];
      sign.className = `pm-sign ${CLASSES[state]}`;
    });
    return h("div", { class: "pm-chapter" }, sign, title, select);
  }
  const map = h("div", { class: "pm-parts" }, parts.map((part) => h("fieldset", { class: "pm-part" },
    h("legend", {}, part), chapters.filter((c) => c.part === part).map(chapterRow))));
  w.stages.append(map);
  w.stages.before(w.root.querySelector(".lc-status")); // what comes next is said above the long map

  const numbers = w.table("Done and begun, part by part");
  w.root.append(h("p", {}, inPage ? "Underlined chapters can be read; the grey ones are not written yet."
    : "The grey chapters are not written yet."), h("p", {}, storage
    ? "Marks are kept in this browser alone and sent nowhere. Export saves them to a file, for another browser."
    : "Nothing is kept: this browser does not let the page store anything. Export saves the marks to a file."));

  function sentence() {
    const { done, reading, all, share } = counts(chapters, progress());
    const next = chapters.find((c) => c.written && progress()[c.number] !== "done");
    return `${done} of ${all} chapters done (${Math.round(100 * share)} %), ${reading} being read. ` +
      (next ? `Next: ${next.number} ${next.title}.` : "Every chapter that is written is done.");
  }

  function redraw() {
    drawBar();
    updates.forEach((update) => update());
    numbers({
      columns: ["part", "done", "reading", "not begun", "chapters"],
      rows: parts.map((part) => {
        const { done, reading, all } = counts(chapters.filter((c) => c.part === part), progress());
        return [part, done, reading, all - done - reading, all];
      }),
    });
    w.say(sentence());
  }

  // Another tab of the same browser changed something.
  const elsewhere = (event) => {
    if (event.key !== KEY || !event.newValue) return;
    const { progress: theirs } = fromFile(event.newValue);
    if (theirs) w.put("progress", theirs);
  };
  window.addEventListener("storage", elsewhere);

  w.on(["progress"], redraw);
  const kept = { ...fetch(), ...progress() };
  if (JSON.stringify(kept) !== JSON.stringify(progress())) w.put("progress", kept);
  else redraw();
  return () => { window.removeEventListener("storage", elsewhere); w.destroy(); };
}

export default { render };
