import { axes, frame, h, label, line, percent, s, scale, show, ticks, uniform } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests

const sum = (values) => values.reduce((a, b) => a + b, 0);
const shareOf = (values) => {
  const all = sum(values);
  return values.map((x) => x / all);
};

// Probabilities of the source: in proportion to 1, 1/2, 1/3 and so on.
export const zipf = (count) => shareOf(Array.from({ length: count }, (_, i) => 1 / (i + 1)));

// What a temperature makes of probabilities; one of 0 stays 0.
export const sharpened = (p, temperature) => (temperature === 1 ? p : shareOf(p.map((x) => x ** (1 / temperature))));

export const entropyBits = (p) => -sum(p.map((x) => (x > 0 ? x * Math.log2(x) : 0))) + 0;

export const alive = (p) => p.filter((x) => x > 0).length;

// The word that a number u from 0 to 1 draws: the first with u below its probability and those before.
export function drawn(p, u) {
  let below = 0;
  let last = 0;
  for (let i = 0; i < p.length; i++) {
    if (p[i] === 0) continue;
    below += p[i];
    last = i;
    if (u < below) break;
  }
  return last;
}

// The probabilities of every generation, the source first.  Fresh samples are the first of a generation.
export function generations(source, { temperature, fresh, samples, seed }, count) {
  const found = [source];
  const fromSource = Math.round(fresh * samples);
  for (let g = 0; g < count; g++) {
    const writer = sharpened(found[g], temperature);
    const counts = source.map(() => 0);
    for (let i = 0; i < samples; i++) {
      counts[drawn(i < fromSource ? source : writer, uniform(seed, g * samples + i))] += 1;
    }
    found.push(counts.map((x) => x / samples));
  }
  return found;
}

// --- the page

const WORDS = 50;
const GENERATIONS = 10;
const NAMES = ["temperature", "fresh", "samples", "seed"];
const bits = (x) => x.toFixed(2);

function render({ model, el }) {
  const w = frame({ model, el, title: "Models that learn from models" });
  w.number("temperature", "temperature");
  w.number("fresh", "share of fresh samples");
  w.number("samples", "samples per generation");
  w.button("Again, with other chances", () => w.put("seed", (model.get("seed") + 1) % 10000));

  const source = zipf(WORDS);
  const truth = entropyBits(source);
  let all = [];

  // A curve over the generations, from the source at 0, with what it should be as a dashed line.
  const curve = ({ value, right, high, name, mark, text }) => w.stage((svg, wide, tall) => {
    const box = [34, 22, wide - 10, tall - 36];
    const x = scale([0, GENERATIONS], [box[0], box[2]]);
    const y = scale([0, high], [box[3], box[1]]);
    const points = all.map((p, g) => [x(g), y(value(p))]);
    svg.append(axes({ x, y, box, xTicks: ticks(0, GENERATIONS, 10), yTicks: ticks(0, high, 4), xTitle: "generation", yTitle: name }),
      line([[box[0], y(right)], [box[2], y(right)]], { stroke: "var(--lc-text)", "stroke-dasharray": "6 4" }),
      label(box[2], y(right) - 6, `source: ${text(right)}`, { "text-anchor": "end" }),
      line(points, { stroke: "currentColor", class: mark, "stroke-width": 2 }),
      ...points.map(([cx, cy]) => s("circle", { cx, cy, r: 3.5, fill: "currentColor", class: mark })));
    return all.map((p, g) => `${g ? `generation ${g}` : "source"} ${text(value(p))}`).join(", ");
  }, { height: 190, label: name });
  const curves = [
    curve({ value: entropyBits, right: truth, high: 6, name: "entropy, bits per word", mark: "lc-1", text: bits }),
    curve({ value: alive, right: WORDS, high: 60, name: "words still written", mark: "lc-3", text: show }),
  ];

  const drawBars = w.stage((svg, wide, tall) => {
    const last = all.at(-1);
    const box = [34, 22, wide - 10, tall - 42];
    const high = Math.max(...source, ...last);
    const step = (box[2] - box[0]) / WORDS;
    const cross = Math.min(step - 2, 5) / 2;
    const x = (word) => box[0] + step * word;
    const y = scale([0, high], [box[3], box[1]]);
    // Between the axis and its numbers is a row for the crosses.
    svg.append(axes({ x, y, box, xTicks: [], yTicks: ticks(0, high, 4), yTitle: `probability in generation ${GENERATIONS}` }),
      ...[1, 10, 20, 30, 40, 50].map((rank) => label(x(rank - 0.5), box[3] + 20, rank, { "text-anchor": "middle" })),
      label((box[0] + box[2]) / 2, box[3] + 36, "word, the commonest first", { "text-anchor": "middle" }));
    last.forEach((p, i) => {
      svg.append(p > 0
        ? s("rect", { x: x(i) + 0.5, y: y(p), width: step - 1, height: box[3] - y(p), fill: "currentColor", class: "lc-1" })
        : s("path", { d: `M${x(i + 0.5) - cross} ${box[3] + 1}l${2 * cross} ${2 * cross}m0 ${-2 * cross}l${-2 * cross} ${2 * cross}`,
          stroke: "currentColor", class: "lc-5", "stroke-width": 1.5 }));
    });
    const outline = source.flatMap((p, i) => [[x(i), y(p)], [x(i + 1), y(p)]]);
    svg.append(line(outline, { stroke: "var(--lc-text)", "stroke-width": 1.5 }));
    return [0, 1, 2].map((i) => `word ${i + 1} ${percent(last[i])}, truly ${percent(source[i])}`).join("; ") +
      `; ${WORDS - alive(last)} of ${WORDS} words have died out`;
  }, { height: 230, label: "probabilities of the last generation" });
  w.stages.append(h("p", {}, `Bars: generation ${GENERATIONS}. Line: the source. Crosses: words that nobody writes any more.`));

  const numbers = w.table("Generation by generation");

  function sentence() {
    const last = all.at(-1);
    const fresh = model.get("fresh");
    const top = last.indexOf(Math.max(...last));
    return `After ${GENERATIONS} generations of ${show(model.get("samples"))} samples at temperature ${show(model.get("temperature"))}, ` +
      `${fresh > 0 ? `${percent(fresh)} of them fresh` : "none of them fresh"}: ` +
      `${alive(last)} of ${WORDS} words are still written, and the entropy is ${bits(entropyBits(last))} bits, ` +
      `with ${bits(truth)} in the source. The commonest word, word ${top + 1}, has ${percent(last[top])}; ` +
      `in the source it has ${percent(source[top])}.`;
  }

  function redraw() {
    all = generations(source, Object.fromEntries(NAMES.map((name) => [name, model.get(name)])), GENERATIONS);
    for (const draw of [...curves, drawBars]) draw();
    numbers({
      columns: ["generation", "entropy, bits", "words still written", "probability of word 1"],
      rows: all.map((p, g) => [g ? String(g) : "source", bits(entropyBits(p)), show(alive(p)), percent(p[0])]),
    });
    w.say(sentence());
  }
  w.on(NAMES, redraw);
  redraw();
  return w.destroy;
}

export default { render };
