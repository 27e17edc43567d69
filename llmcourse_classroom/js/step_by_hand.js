import { frame, label, s, scale, show } from "./kit.js";

// --- arithmetic, compared with llmcourse.loss and llmcourse.optim by the tests

export function softmax(logits) {
  const most = Math.max(...logits);
  const e = logits.map((z) => Math.exp(z - most));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / sum);
}

// Shares that add up to 1; an edited probability keeps its value, the others share what is left.
export function edited(probabilities, index, value) {
  const left = 1 - value;
  const others = probabilities.reduce((sum, p, i) => (i === index ? sum : sum + p), 0);
  return probabilities.map((p, i) => (i === index ? value
    : others > 0 ? p / others * left : left / (probabilities.length - 1)));
}

export const lossOf = (probabilities, target) => -Math.log(probabilities[target]);

export const gradient = (probabilities, target) => probabilities.map((p, i) => p - (i === target ? 1 : 0));

// The probabilities after one step of gradient descent on the logits themselves.
export function afterStep(probabilities, target, rate) {
  const g = gradient(probabilities, target);
  return softmax(probabilities.map((p, i) => Math.log(p) - rate * g[i]));
}

// --- the page

const LEAST = 0.001;

function render({ model, el }) {
  const w = frame({ model, el, title: "One training step by hand", primary: ["target", "learning_rate"] });
  const words = model.get("words");
  const ids = words.map((_, i) => `p${i}`);
  const probabilities = () => ids.map((id) => model.get(id));
  const target = () => words.indexOf(model.get("target"));
  const start = probabilities();
  let history = [];
  let busy = false;

  function putAll(values) {
    busy = true;
    values.forEach((value, i) => w.put(ids[i], value));
    busy = false;
    redraw();
  }

  w.choice("target", "the word that came", { options: words });
  w.number("learning_rate", "learning rate");
  ids.forEach((id, i) => w.number(id, `probability of “${words[i]}”`));

  const bars = (values, low, high, names) => (svg, width, height) => {
    const box = [72, 6, width - 66, height - 20];
    const x = scale([low, high], [box[0], box[2]]);
    const tall = (box[3] - box[1]) / words.length;
    const shown = values();
    svg.append(s("line", { x1: x(0), x2: x(0), y1: box[1], y2: box[3], stroke: "var(--lc-line)" }));
    shown.forEach((value, i) => {
      const y = box[1] + i * tall;
      svg.append(
        s("rect", { x: Math.min(x(0), x(value)), y: y + 3, width: Math.abs(x(value) - x(0)), height: tall - 7,
          fill: "currentColor", class: i === target() ? "lc-2" : "lc-1" }),
        label(66, y + tall / 2 + 4, words[i], { "text-anchor": "end", "font-weight": i === target() ? 700 : 400 }),
        label(width - 2, y + tall / 2 + 4, show(value, 3), { "text-anchor": "end" }));
    });
    svg.append(label(box[0], height - 4, names));
    return words.map((word, i) => `${word} ${show(shown[i], 3)}`).join(", ");
  };
  const drawShares = w.stage(bars(probabilities, 0, 1, "probability p, from 0 to 1"), { height: 170, label: "probabilities" });
  const drawGradient = w.stage(bars(() => gradient(probabilities(), target()), -1, 1, "gradient p − y, from −1 to 1"),
    { height: 170, label: "gradient of the loss by the logits" });
  const numbers = w.table("The numbers of this step and the steps before");

  function redraw() {
    if (busy) return;
    const p = probabilities();
    const loss = lossOf(p, target());
    const next = afterStep(p, target(), model.get("learning_rate"));
    drawShares();
    drawGradient();
    numbers({
      columns: ["step", ...words, "loss"],
      rows: [...history, p].map((row, i) => [i, ...row, lossOf(row, target())]),
    });
    w.say(`Loss of “${words[target()]}”: −ln ${show(p[target()], 3)} = ${show(loss)} nats. ` +
      `One step at rate ${show(model.get("learning_rate"), 3)} would give ${show(lossOf(next, target()))}.`);
  }

  w.player({
    step: () => {
      const next = afterStep(probabilities(), target(), model.get("learning_rate"));
      // A number field holds no less than LEAST: a step that goes below ends the walk.
      if (next.some((p) => p < LEAST)) {
        model.set("note", `A probability would fall below ${LEAST}: this is as far as the picture goes.`);
        w.model.save_changes();
        return false;
      }
      history.push(probabilities());
      putAll(next);
      return history.length < 100;
    },
    reset: () => { history = []; model.set("note", ""); putAll(start); },
    perSecond: 4,
    longest: 100,
  });

  // One probability was edited: the others keep their proportions.
  ids.forEach((id, i) => w.on([id], () => {
    if (busy) return;
    const sum = probabilities().reduce((a, b) => a + b, 0);
    history = [];
    if (Math.abs(sum - 1) > 1e-9) {
      const most = 1 - LEAST * (words.length - 1);
      putAll(edited(probabilities(), i, Math.min(most, model.get(id))).map((p) => Math.max(LEAST, p)));
    } else redraw();
  }));
  w.on(["target"], () => { history = []; redraw(); });
  w.on(["learning_rate"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
