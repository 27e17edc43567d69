import { axes, frame, h, label, line, percent, s, scale, show, ticks, within } from "./kit.js";

// --- arithmetic, compared with its definition by the tests

// Among how many tokens of equal chances one would have to guess, for the same loss.
export const guessesAmong = (loss) => Math.exp(loss);

// The share of what can be learnt at all that a model has learnt.
export const learnt = (loss, { floor, nothing }) => (nothing - loss) / (nothing - floor);

// --- the page

const ROW = 24;
const BAR = 24;
const STYLE = `
.lc .la-sample { border-left: 4px solid var(--lc-1); margin: 0.4rem 0; padding: 0.1rem 0.7rem; }
.lc .la-sample p { white-space: pre-wrap; overflow-wrap: anywhere; }`;
const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥" };

// A byte that is no sign by itself is shown as the sign for what cannot be read.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are shown as signs
const visible = (token) => token.replace(/[\x00- ]/g, (c) => INVISIBLE[c] ?? "�");
const nats = (loss) => loss.toFixed(2);

function render({ model, el }) {
  const w = frame({ model, el, title: "The axis of losses, and its models" });
  w.root.prepend(h("style", {}, STYLE));
  const models = model.get("models");
  const names = models.map(({ name }) => name);
  const beginnings = model.get("beginnings");
  const floor = model.get("floor");
  const nothing = Math.log(model.get("vocab_size"));
  const chosen = () => names.indexOf(model.get("model"));

  w.choice("model", "model", { options: names });
  w.number("sample", "sample");

  // Narrow pictures have the names above their rows.
  const room = 16 + 7.2 * Math.max(...names.map((name) => name.length));
  const beside = (width) => width > room + 340;
  const top = Math.max(nothing, ...models.map(({ loss, spread }) => loss + spread));
  const rowHeight = (width) => (beside(width) ? ROW : 2 * ROW - 8);
  const drawAxis = w.stage((svg, width, tall) => {
    const box = [beside(width) ? room : 8, 22, width - 16, tall - 38];
    const x = scale([0, top], [box[0], box[2]]);
    const step = rowHeight(width);
    svg.append(axes({ x, y: x, box, xTicks: ticks(0, top, 6), yTicks: [], xTitle: "loss on new stories, nats per token" }));
    for (const [at, text, anchor, dash] of [
      [floor, `floor ${nats(floor)}`, "start", "6 4"],
      [nothing, `ln ${show(model.get("vocab_size"))} = ${nats(nothing)}`, "end", "2 4"],
    ]) {
      svg.append(line([[x(at), box[1]], [x(at), box[3]]], { stroke: "var(--lc-muted)", "stroke-dasharray": dash }),
        label(x(at), 14, text, { "text-anchor": anchor }));
    }
    models.forEach(({ name, loss, spread }, i) => {
      const now = i === chosen();
      const y = box[1] + step * (i + 1) - ROW / 2;
      const weight = now ? "font-weight: 700" : null;
      const text = `${nats(loss)}${spread >= 0.005 ? ` ± ${nats(spread)}` : ""}`;
      const left = x(loss) > (box[0] + box[2]) / 2;
      if (now) {
        svg.append(s("rect", { x: 1, y: box[1] + step * i + 1, width: width - 2, height: step - 2, rx: 3,
          fill: "var(--lc-back)", stroke: "var(--lc-2)", "stroke-width": 2 }));
      }
      svg.append(
        beside(width) ? label(room - 10, y + 4, name, { "text-anchor": "end", style: weight })
          : label(8, y - 12, name, { style: weight }),
        s("line", { x1: x(loss - spread), x2: x(loss + spread), y1: y, y2: y, stroke: "currentColor", class: "lc-1",
          "stroke-width": 3 }),
        s("circle", { cx: x(loss), cy: y, r: 5, fill: now ? "currentColor" : "var(--lc-on)", stroke: "currentColor",
          "stroke-width": 2, class: "lc-1" }),
        label(x(loss + (left ? -spread : spread)) + (left ? -10 : 10), y + 4, text,
          { "text-anchor": left ? "end" : "start", style: weight }));
    });
    svg.style.cursor = "pointer";
    return `${models.map(({ name, loss }) => `${name} ${nats(loss)}`).join(", ")}; the floor is ${nats(floor)}`;
  }, { height: (width) => 60 + rowHeight(width) * models.length, label: "losses of the models" });
  const picture = drawAxis.picture;
  picture.addEventListener("click", (event) => {
    const row = Math.floor((within(picture, event)[1] - 22) / rowHeight(picture.viewBox.baseVal.width));
    if (row >= 0 && row < names.length) w.put("model", names[row]);
  });

  const about = h("p");
  const written = h("p");
  w.stages.append(about, h("p", {}, "It wrote:"), h("blockquote", { class: "la-sample" }, written));
  w.choice("beginning", "it reads", { options: beginnings, into: w.stages });

  const drawNext = w.stage((svg, width) => {
    const expected = models[chosen()].expects[beginnings.indexOf(model.get("beginning"))];
    const x = scale([0, 1], [0, width - 150]);
    svg.append(label(2, 14, "and expects next:"));
    expected.forEach(([token, p], i) => {
      const y = 22 + BAR * i;
      svg.append(label(92, y + 16, visible(token), { "text-anchor": "end" }),
        s("rect", { x: 98, y: y + 4, width: Math.max(1, x(p)), height: BAR - 8, fill: "currentColor", class: "lc-1" }),
        label(104 + x(p), y + 16, percent(p, 2)));
    });
    return expected.map(([token, p]) => `${visible(token)} ${percent(p, 2)}`).join(", ");
  }, {
    height: () => 26 + BAR * Math.max(...models.flatMap(({ expects }) => expects.map((row) => row.length))),
    label: "the likeliest next tokens",
  });
  const numbers = w.table("All models, number by number");
  numbers({
    columns: ["model", "loss", "seeds differ by ±", "below the row above", "like guessing among"],
    rows: models.map(({ name, loss, spread }, i) => [name, nats(loss), nats(spread),
      i ? nats(models[i - 1].loss - loss) : "–", show(guessesAmong(loss), 2)]),
  });

  function sentence(i) {
    const { name, loss } = models[i];
    const share = learnt(loss, { floor, nothing });
    return `${name}: ${nats(loss)} nats per token, as if it guessed among ${show(guessesAmong(loss), 2)} equally likely ` +
      `tokens. That is ${percent(share, 2)} of the way from ln V down to the floor.`;
  }

  function redraw() {
    const now = models[chosen()];
    drawAxis();
    drawNext();
    about.textContent = `It can know ${now.knows}. It cannot know ${now.misses}.`;
    written.textContent = now.samples[model.get("sample") - 1];
    w.say(sentence(chosen()));
  }
  w.on(["model", "sample", "beginning"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
