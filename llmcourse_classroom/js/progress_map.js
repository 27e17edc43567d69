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

// --- exercises: number of a chapter to { passed, of, points, of_points }

const EXERCISES_KEY = "llmcourse-exercises.v1";
const ELSEWHERE = {
  questions: "it is the progress itself: llmcourse progress summary FILE makes a summary of it",
  progress: "it holds the marks of this map: “Import a file” takes it",
};

const isCount = (value) => Number.isInteger(value) && value >= 0;
const isAmount = (value) => Number.isFinite(value) && value >= 0;
const isSum = (sum) => typeof sum === "object" && sum !== null
  && isCount(sum.passed) && isCount(sum.of) && sum.passed <= sum.of && sum.of > 0
  && isAmount(sum.points) && isAmount(sum.of_points) && sum.points <= sum.of_points;

export const summaryFile = (exercises) => JSON.stringify({ format: 1, chapters: exercises });

// { exercises } of a text that `progress summary` made, else { problem }.
export function fromSummary(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    return { problem: "it is not JSON" };
  }
  const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isTable(given)) return { problem: "it is no summary of progress" };
  const other = Object.keys(ELSEWHERE).find((name) => name in given);
  if (other) return { problem: ELSEWHERE[other] };
  if (!Number.isInteger(given.format) || !isTable(given.chapters)) return { problem: "it is no summary of progress" };
  if (given.format !== 1) return { problem: `it has format ${given.format}, and this map reads 1` };
  for (const [number, sum] of Object.entries(given.chapters)) {
    if (!/^\d\d$/.test(number)) return { problem: `“${number.slice(0, 20)}” is no number of a chapter` };
    if (!isSum(sum)) return { problem: `the sums of chapter ${number} are not possible` };
  }
  return { exercises: given.chapters };
}

// Of two sums of a chapter the one with more passed; of equal ones the second, which is newer.
export function furtherSums(older, newer) {
  const better = (a, b) => (a && b ? (a.passed > b.passed ? a : b) : a ?? b);
  const numbers = [...new Set([...Object.keys(older), ...Object.keys(newer)])].sort();
  return Object.fromEntries(numbers.map((n) => [n, better(older[n], newer[n])]));
}

// The marks once `after` is known: a chapter whose exercises were not all passed before and are
// now is done, unless the reader has marked it.
export function marksAfter(marks, before, after) {
  const whole = (sum) => sum !== undefined && sum.passed === sum.of;
  const now = Object.keys(after).filter((n) => whole(after[n]) && !whole(before[n]) && !marks[n]);
  return { ...marks, ...Object.fromEntries(now.map((n) => [n, "done"])) };
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

const markOf = (lap) => String.fromCodePoint(0x245f + lap); // 1 has ①
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
.lc .pm-file { display: flex; flex-wrap: wrap; gap: 0.2rem 0.5rem; align-items: center; flex: 1 1 14rem; min-width: 0; }
.lc .pm-file input { flex: 1 1 12rem; width: 12rem; min-width: 0; }
.lc .pm-exercises { display: block; color: var(--lc-muted); font-size: 0.85em; }
.lc .pm-sign { font-size: 1.1rem; }
.lc .pm-ask { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; border: 2px solid var(--lc-2);
  border-radius: 0.3rem; padding: 0.4rem 0.6rem; margin: 0.5rem 0; }
.lc .pm-ask[hidden] { display: none; }`;

function render({ model, el }) {
  const w = frame({ model, el, title: "Where you are in the course" });
  w.root.prepend(h("style", {}, STYLE));
  const chapters = model.get("chapters");
  const inOrder = [...chapters].sort((a, b) => (a.turn ?? 0) - (b.turn ?? 0)); // of the laps
  const parts = [...new Set(chapters.map((c) => c.part))];
  const storage = shelf();
  // A notebook has a kernel, and the pages are not beside it: there the titles are no links.
  const inPage = !model.widget_manager;
  const note = (text) => w.put("note", text);
  const progress = () => model.get("progress");
  const sums = () => model.get("exercises")?.chapters || {};

  // --- what the browser keeps

  let known = {}; // the sums that have already marked their chapters

  function keep() {
    try {
      storage?.setItem(KEY, asFile(progress()));
      storage?.setItem(EXERCISES_KEY, summaryFile(known));
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

  function fetchSums() {
    const text = storage?.getItem(EXERCISES_KEY);
    return (text && fromSummary(text).exercises) || {};
  }

  // Show new sums; returns how many chapters they have marked as done.
  function putSums(after) {
    const marks = marksAfter(progress(), known, after);
    const newly = Object.keys(marks).length - Object.keys(progress()).length;
    const isNew = JSON.stringify(after) !== JSON.stringify(known);
    known = after;
    if (JSON.stringify(after) !== JSON.stringify(sums())) {
      w.put("exercises", Object.keys(after).length ? { format: 1, chapters: after } : {});
    }
    if (newly) w.put("progress", marks);
    if (isNew) keep();
    redraw();
    return newly;
  }

  // --- controls

  const many = (count, one, more) => `${count} ${count === 1 ? one : more}`;

  // The text of a chosen file; it may be chosen again.
  async function chosen(field) {
    const [file] = field.files;
    if (!file) return null;
    const text = file.size > LARGEST_FILE ? null : await file.text();
    field.value = "";
    return { name: file.name, text };
  }
  const refuse = (name, problem) => note(`“${name}” is not taken: ${problem}. Nothing has changed.`);

  function save() {
    const address = URL.createObjectURL(new Blob([asFile(progress())], { type: "application/json" }));
    h("a", { href: address, download: `${FORMAT}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    note("");
  }

  async function load() {
    const file = await chosen(input);
    if (!file) return;
    const { progress: theirs, problem } = file.text === null ? { problem: "it is too large" } : fromFile(file.text);
    if (problem) {
      refuse(file.name, problem);
      return;
    }
    const before = progress();
    const after = merged(before, theirs);
    const changed = Object.keys(after).filter((n) => after[n] !== before[n]).length;
    put(after);
    note(`“${file.name}”: ${many(changed, "chapter is", "chapters are")} further than before.`);
  }

  async function loadSums() {
    const file = await chosen(sumsInput);
    if (!file) return;
    const { exercises, problem } = file.text === null ? { problem: "it is too large" } : fromSummary(file.text);
    if (problem) {
      refuse(file.name, problem);
      return;
    }
    const newly = putSums(exercises);
    note(`“${file.name}” is loaded: ${exerciseSentence()} ` +
      `${many(newly, "chapter has", "chapters have")} been marked as done by it.`);
  }

  w.button("Export", save);
  const clear = w.button("Clear", () => ask());
  function fileField(text, onchange) {
    const id = uniqueId();
    const field = h("input", { type: "file", id, accept: ".json,application/json", onchange });
    w.controls.append(h("div", { class: "pm-file" }, h("label", { for: id }, text), field));
    return field;
  }
  const input = fileField("Import a file", load);
  const sumsInput = fileField("Load a progress summary", loadSums);

  // The question is part of the page.
  const question = h("p", { id: uniqueId() });
  const forget = () => {
    putSums({});
    put({});
    note("All marks and the exercises passed are cleared.");
    close();
  };
  const yes = h("button", { type: "button", onclick: forget }, "Yes, clear");
  const no = h("button", { type: "button", onclick: () => close() }, "Keep");
  const asked = h("div", { class: "pm-ask", role: "group", "aria-labelledby": question.id, hidden: true,
    onkeydown: (event) => { if (event.key === "Escape") close(); } }, question, no, yes);
  w.controls.after(asked);

  function ask() {
    const { done, reading } = counts(chapters, progress());
    const marks = done + reading;
    const passed = total().passed > 0;
    const what = [marks && `the marks of ${many(marks, "chapter", "chapters")}`, passed && "the exercises passed"];
    question.textContent = marks || passed ? `Forget ${what.filter(Boolean).join(" and ")}?`
      : "There is nothing to clear.";
    yes.hidden = !marks && !passed;
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
    const name = `${chapter.number} ${chapter.title}${chapter.lap ? ` ${markOf(chapter.lap)}` : ""}`;
    const minutes = chapter.minutes ? ` (${chapter.minutes} min)` : "";
    const title = inPage ? h("a", { href: chapter.href }, name + minutes) : h("span", {}, name + minutes);
    const passed = h("span", { class: "pm-exercises" });
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
      const sum = sums()[chapter.number];
      passed.textContent = sum ? `${sum.passed} of ${many(sum.of, "exercise", "exercises")}` : "";
    });
    return h("div", { class: "pm-chapter" }, sign, h("div", {}, title, passed), select);
  }
  const map = h("div", { class: "pm-parts" }, parts.map((part) => h("fieldset", { class: "pm-part" },
    h("legend", {}, part), chapters.filter((c) => c.part === part).map(chapterRow))));
  w.stages.append(map);
  w.stages.before(w.root.querySelector(".lc-status")); // what comes next is said above the long map

  const numbers = w.table("Done and begun, part by part");
  w.root.append(h("p", {}, "A summary of your exercises comes from ",
    h("code", {}, "llmcourse progress summary FILE"), ". A chapter is marked as done when its last " +
    "exercise is passed, unless you have marked it: what you set yourself stays."));
  const laps = model.get("laps").map((lap, place) => `${markOf(place + 1)} ${lap[0].toLowerCase()}${lap.slice(1)}.`);
  if (laps.length) w.root.append(h("p", {}, laps.join(" ")));
  w.root.append(h("p", {}, storage
    ? "Marks are kept in this browser alone and sent nowhere. Export saves them to a file, for another browser."
    : "Nothing is kept: this browser does not let the page store anything. Export saves the marks to a file."));

  function total() {
    const shown = chapters.map(({ number }) => sums()[number]).filter(Boolean);
    const add = (name) => shown.reduce((sum, each) => sum + each[name], 0);
    return { passed: add("passed"), of: add("of"), points: add("points"), ofPoints: add("of_points") };
  }

  function exerciseSentence() {
    const { passed, of, points, ofPoints } = total();
    return of ? `${passed} of ${many(of, "exercise", "exercises")} passed, ${points} of ${ofPoints} points.`
      : "It has no exercise of these chapters.";
  }

  function sentence() {
    const { done, reading, all, share } = counts(chapters, progress());
    const next = inOrder.find((c) => progress()[c.number] !== "done");
    return `${done} of ${all} chapters done (${Math.round(100 * share)} %), ${reading} being read. ` +
      (total().of ? `${exerciseSentence()} ` : "") +
      (next ? `Next: ${next.number} ${next.title}.` : "Every chapter is done.");
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
    if (!event.newValue) return;
    if (event.key === KEY) {
      const { progress: theirs } = fromFile(event.newValue);
      if (theirs) w.put("progress", theirs);
    } else if (event.key === EXERCISES_KEY) {
      const { exercises } = fromSummary(event.newValue);
      if (!exercises) return;
      known = exercises; // that tab has marked the chapters
      w.put("exercises", { format: 1, chapters: exercises });
    }
  };
  window.addEventListener("storage", elsewhere);

  w.on(["progress"], redraw);
  w.on(["exercises"], () => (JSON.stringify(sums()) === JSON.stringify(known) ? redraw() : putSums(sums())));
  const kept = { ...fetch(), ...progress() };
  if (JSON.stringify(kept) !== JSON.stringify(progress())) w.put("progress", kept);
  known = fetchSums();
  putSums(furtherSums(known, sums()));
  return () => { window.removeEventListener("storage", elsewhere); w.destroy(); };
}

export default { render };
