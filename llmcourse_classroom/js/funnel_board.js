import { frame, label, percent, s, scale, show, uniqueId } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests
// A row is [words, probability of English, similarity to an earlier page, quality, whether it is wanted].

export const STEPS = [
  { name: "English", keeps: (row, t) => row[1] >= t.english },
  { name: "length", keeps: (row, t) => row[0] >= t.words },
  { name: "no copy", keeps: (row, t) => row[2] < t.similarity },
  { name: "quality", keeps: (row, t) => row[3] >= t.quality },
];

const wanted = (rows) => rows.filter((row) => row[4]).length;

// What every step takes and drops, in order, and what of it is wanted.
export function funnel(rows, thresholds) {
  let left = rows;
  return STEPS.map(({ name, keeps }) => {
    const kept = left.filter((row) => keeps(row, thresholds));
    const [taken, takenWanted, keptWanted] = [left.length, wanted(left), wanted(kept)];
    left = kept;
    return { name, taken, takenWanted, kept: kept.length, keptWanted };
  });
}

// Of the dropped pages the share that deserved it, and of the deserving the share that was dropped; null if none.
export function grades({ taken, takenWanted, kept, keptWanted }) {
  const [dropped, bad] = [taken - kept, taken - takenWanted];
  const right = dropped - (takenWanted - keptWanted);
  return { precision: dropped ? right / dropped : null, recall: bad ? right / bad : null };
}

// --- the page

const ROW = 44;
const shareOf = (share) => (share === null ? "none" : percent(share));

function render({ model, el }) {
  const w = frame({ model, el, title: "What the thresholds let through" });
  w.number("english", "least probability of English");
  w.number("words", "least number of words");
  w.number("similarity", "a copy from this similarity on");
  w.number("quality", "least quality");

  const thresholds = () => Object.fromEntries(
    ["english", "words", "similarity", "quality"].map((name) => [name, model.get(name)]));
  const rows = model.get("rows");

  // Unwanted pages are dotted, so that they differ in more than colour.
  function dotted(svg) {
    const id = uniqueId();
    svg.append(s("defs", {}, s("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", class: "lc-2" },
      s("rect", { width: 7, height: 7, fill: "currentColor", opacity: 0.35 }),
      s("circle", { cx: 3.5, cy: 3.5, r: 1.6, fill: "currentColor" }))));
    return `url(#${id})`;
  }

  const draw = w.stage((svg, wide) => {
    const steps = funnel(rows, thresholds());
    const fill = dotted(svg);
    const x = scale([0, rows.length], [4, wide - 4]);
    const bars = [{ name: "with prose", kept: rows.length, keptWanted: wanted(rows) }, ...steps];
    const texts = bars.map(({ name, kept, keptWanted }, i) => {
      const y = ROW * i;
      const text = `${i ? `after ${name}` : name}: ${show(kept)} pages, ${show(keptWanted)} wanted`;
      svg.append(label(4, y + 14, text),
        s("rect", { x: x(0), y: y + 20, width: x(keptWanted) - x(0), height: 16, fill: "currentColor", class: "lc-3" }),
        s("rect", { x: x(keptWanted), y: y + 20, width: x(kept) - x(keptWanted), height: 16, fill }));
      return text;
    });
    const y = ROW * bars.length + 6;
    svg.append(s("rect", { x: 4, y, width: 14, height: 14, fill: "currentColor", class: "lc-3" }), label(24, y + 12, "wanted"),
      s("rect", { x: 100, y, width: 14, height: 14, fill }), label(120, y + 12, "not wanted"));
    return texts.join("; ");
  }, { height: ROW * 5 + 28, label: "pages left after each step" });

  const numbers = w.table("Precision and recall of every step");

  function redraw() {
    draw();
    const steps = funnel(rows, thresholds());
    numbers({
      columns: ["step", "pages before", "dropped", "of these wanted", "precision", "recall"],
      rows: steps.map((step) => {
        const { precision, recall } = grades(step);
        return [step.name, show(step.taken), show(step.taken - step.kept), show(step.takenWanted - step.keptWanted),
          shareOf(precision), shareOf(recall)];
      }),
    });
    const last = steps.at(-1);
    const all = wanted(rows);
    const clean = last.kept ? last.keptWanted / last.kept : null;
    w.say(`${show(last.kept)} of ${show(rows.length)} pages are left. ` +
      `${clean === null ? "Nothing is left to train on." : `${percent(clean)} of them are wanted`}` +
      `${clean === null ? "" : `, and ${show(all - last.keptWanted)} of the ${show(all)} wanted pages are lost.`}`);
  }
  w.on(["english", "words", "similarity", "quality"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
