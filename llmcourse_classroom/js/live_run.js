import { h } from "./kit.js";
import { lossPart, phasesPart } from "./live_curve.js";
import { livePage, readable } from "./live_page.js";
import { rowsPart } from "./live_rows.js";

// Of increasing [step, what] pairs, the last that is not above a step.
export const lastUpTo = (pairs, step) => pairs.filter(([at]) => at <= step).at(-1) ?? null;

function wordsPart(w, run) {
  const caption = h("p");
  const words = h("div", { class: "lr-words" });
  w.stages.append(caption, words);
  function draw() {
    const [at, text] = run.written ?? lastUpTo(w.model.get("samples"), w.model.get("step")) ?? [null, ""];
    if (at === null) caption.textContent = "What it writes: press Train.";
    else if (!run.written) caption.textContent = `What the recorded run wrote after step ${at}:`;
    else caption.textContent = `What it writes after step ${at}, with the same dice each time:`;
    words.textContent = readable(text) + (/[.!?"']\s*$|^$/.test(text) ? "" : " …"); // cut off in a sentence
  }
  return { draw };
}

const PARTS = { phases: phasesPart, loss: lossPart, words: wordsPart, rows: rowsPart };

export default {
  render: ({ model, el }) => livePage({ model, el }, {
    title: "A Llama that learns in your browser",
    buttons: [["Step", (run) => run.once()]],
    steered: true,
    parts: model.get("show").map((name) => PARTS[name]),
  }),
};
