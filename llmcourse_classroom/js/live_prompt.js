import { h, label, s, show } from "./kit.js";
import { lossPart } from "./live_curve.js";
import { livePage, readable } from "./live_page.js";

let draws = 7; // the seed of what is drawn

const asked = (model) => ({ prompt: model.get("prompt"), temperature: model.get("temperature"), draws });
const quoted = (token) => `“${readable(token).replaceAll("\n", "\\n")}”`;

// The probabilities of the next token, and how the model goes on.
function promptPart(w, run, { buttons }) {
  const { model } = w;
  const ask = () => run.tell({ prompt: asked(model) });
  w.text("prompt", "your beginning", { rows: 1, onset: ask });
  w.number("temperature", "temperature", { log: true, onset: ask });
  buttons.push(w.button("Draw again", () => { draws++; ask(); }));

  let answer = null; // what was asked, the step, the likeliest tokens and what was written
  const drawBars = w.stage((svg, width) => {
    if (!answer) return "not known yet";
    const rest = 1 - answer.likeliest.reduce((sum, [, p]) => sum + p, 0);
    const rows = [...answer.likeliest.map(([token, p]) => [quoted(token), p]), ["all others", Math.max(0, rest)]];
    const [left, right] = [Math.min(110, width * 0.34), width - 52];
    rows.forEach(([name, p], i) => {
      const y = 4 + 20 * i;
      svg.append(label(left - 6, y + 12, name, { "text-anchor": "end" }),
        s("rect", { x: left, y, width: (right - left) * p, height: 15,
          fill: i + 1 < rows.length ? "var(--lc-1)" : "var(--lc-muted)" }),
        label(width - 2, y + 12, p.toFixed(3), { "text-anchor": "end" }));
    });
    return rows.map(([name, p]) => `${name} ${p.toFixed(3)}`).join(", ");
  }, { height: 188, label: "probabilities of the next token" });
  const caption = h("p");
  const before = h("span");
  const after = h("strong");
  w.stages.append(caption, h("div", { class: "lr-words" }, before, after));

  function draw() {
    if (!run.worker) answer = null;
    drawBars();
    caption.textContent = answer ? `What the model of step ${answer.step} writes on, in bold:`
      : "What it writes on: press Train.";
    before.textContent = answer ? answer.asked.prompt : model.get("prompt");
    after.textContent = answer ? readable(answer.written) : "";
  }
  return {
    draw,
    hear(_, news) { if (news.likeliest) answer = news; },
    say() {
      if (!answer) return "";
      const [[token, p]] = answer.likeliest;
      return `At temperature ${show(answer.asked.temperature)} the likeliest next token is ${quoted(token)}, ` +
        `probability ${p.toFixed(3)}.`;
    },
  };
}

export default {
  render: ({ model, el }) => livePage({ model, el }, {
    title: "Your own prompt, and a model that you train",
    told: () => ({ prompt: asked(model) }),
    parts: [promptPart, lossPart],
  }),
};
