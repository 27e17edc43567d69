import { axes, clamp, frame, h, label, line, percent, s, scale, show, within } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.study.batch_law by the tests

export const stepsAt = (batch, least, noise) => least * (1 + noise / batch);
export const sequencesAt = (batch, least, noise) => least * noise * (1 + batch / noise);

// The share of a step along the true gradient that a step of this batch is worth.
export const worth = (batch, noise) => 1 / (1 + noise / batch);

// What twice the batch does: the share of the steps that it saves, and of the sequences that it adds.
export const doubled = (batch, noise) => [noise / (2 * (batch + noise)), batch / (batch + noise)];

// The batch whose run reads so many sequences; 0 where no batch reads so few.
export const batchAt = (sequences, least, noise) => Math.max(0, sequences / least - noise);

// Powers of ten, and 2 and 5 times them where few are inside.
export function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const k of [1, 2, 5]) found.push(Number(`${k}e${power}`));
  }
  const inside = found.filter((t) => t >= low && t <= high);
  const tens = inside.filter((t) => Math.log10(t) % 1 === 0);
  return tens.length >= 3 ? tens : inside;
}

// --- the page

const SHAPES = ["M-4 -4h8v8h-8z", "M0 -5l5 9h-10z", "M-5 0l5 -5l5 5l-5 5z", "M-4 -4l8 8m0 -8l-8 8"];
const LOWEST = 1;
const times = (x) => `${show(x, 3)} times`;
const round = (x) => show(x >= 100 ? Math.round(x) : x, 3);

function render({ model, el }) {
  const w = frame({ model, el, title: "Steps against sequences" });
  const batches = w.number("batch", "batch, sequences", { log: true });
  w.number("noise", "noise scale, sequences", { log: true });
  w.button("To the knee", () => w.put("batch", Math.round(model.get("noise"))));
  const least = model.get("least_steps");
  const runs = model.get("runs");
  const highest = model.get("limits").batch.high;
  const at = (batch) => {
    const noise = model.get("noise");
    return [sequencesAt(batch, least, noise), stepsAt(batch, least, noise)];
  };
  let toSequences = () => 0;
  let nowPlace = null;

  const draw = w.stage((svg, wide, tall) => {
    const noise = model.get("noise");
    const batch = model.get("batch");
    const box = [66, 24, wide - 14, tall - 40];
    const dots = runs.flatMap(([size, steps]) => steps.map((n) => [size * n, n]));
    const corners = [at(LOWEST), at(highest), ...dots];
    const range = (i, spare) => {
      const values = corners.map((point) => point[i]);
      return [Math.min(...values) / spare, Math.max(...values) * spare];
    };
    const [xs, ys] = [range(0, 1.3), range(1, 1.3)];
    const x = scale(xs, [box[0], box[2]], { log: true });
    const y = scale(ys, [box[3], box[1]], { log: true });
    const place = ([sequences, steps]) => [x(sequences), y(steps)];
    const curve = Array.from({ length: 121 }, (_, i) => place(at(LOWEST * (highest / LOWEST) ** (i / 120))));
    const [floorX, floorY] = [x(least * noise), y(least)];
    const [kneeX, kneeY] = place(at(noise));
    const [nowX, nowY] = place(at(batch));
    svg.append(axes({ x, y, box, xTicks: decades(...xs).filter((t) => x(t) < box[2] - 22), yTicks: decades(...ys),
      xTitle: "sequences read", yTitle: "steps" }));
    const faint = { stroke: "var(--lc-muted)", "stroke-dasharray": "2 4" };
    if (floorX > box[0]) svg.append(line([[floorX, box[1]], [floorX, box[3]]], faint));
    svg.append(line([[box[0], floorY], [box[2], floorY]], faint),
      line(curve, { stroke: "currentColor", class: "lc-1", "stroke-width": 2 }),
      ...runs.flatMap(([size, steps], k) => steps.map((n) => s("path", { d: SHAPES[k % SHAPES.length],
        transform: `translate(${x(size * n).toFixed(1)} ${y(n).toFixed(1)})`, class: "lc-3", stroke: "currentColor",
        fill: k % SHAPES.length === 3 ? "none" : "currentColor" }))),
      ...runs.map(([size, steps]) => {
        const [px, py] = place([size * Math.min(...steps), Math.min(...steps)]);
        return label(px - 8, Math.min(py + 13, floorY - 5), show(size), { "text-anchor": "end" });
      }),
      s("path", { d: "M-8 0h16m-8 -8v16", transform: `translate(${kneeX.toFixed(1)} ${kneeY.toFixed(1)})`,
        class: "lc-5", stroke: "currentColor", "stroke-width": 2 }),
      label(kneeX + (kneeX > box[2] - 45 ? -8 : 8), kneeY - 9, "knee",
        { "text-anchor": kneeX > box[2] - 45 ? "end" : "start" }),
      s("circle", { cx: nowX, cy: nowY, r: 7, fill: "none", stroke: "var(--lc-text)", "stroke-width": 2.5 }));
    nowPlace = [nowX, nowY];
    toSequences = (px) => Math.exp(Math.log(xs[0]) + (px - box[0]) / (box[2] - box[0]) * Math.log(xs[1] / xs[0]));
    return `a curve from ${round(at(LOWEST)[1])} steps and ${round(at(LOWEST)[0])} sequences at a batch of 1 to ` +
      `${round(at(highest)[1])} steps and ${round(at(highest)[0])} sequences at ${show(highest)}; the knee at a batch of ` +
      `${show(noise)}; the ring at ${show(batch)}` + (runs.length ? `; measured runs of batches ` +
      runs.map(([size]) => show(size)).join(", ") : "");
  }, { height: (width) => (width < 420 ? 270 : 320), label: "steps against sequences" });

  if (runs.length) w.stages.append(h("p", {}, "Marks with a number: measured runs, and their batch."));
  draw.handle({ x: batches, at: () => nowPlace, label: "batch in the picture",
    to: ([x]) => batchAt(toSequences(x), least, model.get("noise")) });
  const picture = w.stages.querySelector("svg");
  picture.style.touchAction = "pan-y";
  picture.addEventListener("pointerdown", (event) => {
    const wanted = batchAt(toSequences(within(picture, event)[0]), least, model.get("noise"));
    w.put("batch", clamp(Math.round(wanted), LOWEST, highest));
  });

  const numbers = w.table("Batch by batch");
  function redraw() {
    draw();
    const batch = model.get("batch");
    const noise = model.get("noise");
    const [sequences, steps] = at(batch);
    const [saved, added] = doubled(batch, noise);
    w.say(`A batch of ${show(batch)} takes ${round(steps)} steps, ${times(steps / least)} the least, and reads ` +
      `${round(sequences)} sequences, ${times(sequences / least / noise)} the least. Each step is worth ` +
      `${percent(worth(batch, noise), 2)} of one along the true gradient. Twice the batch would save ${percent(saved, 2)} ` +
      `of the steps and read ${percent(added, 2)} more. ${batch === Math.round(noise) ? "This is the knee."
        : `The batch is ${batch < noise ? "below" : "above"} the knee.`}`);
    const sizes = Array.from({ length: 11 }, (_, i) => 2 ** i).filter((size) => size <= highest);
    numbers({ columns: ["batch", "steps", "sequences", "worth of a step"],
      rows: sizes.map((size) => [show(size), round(at(size)[1]), round(at(size)[0]), percent(worth(size, noise), 2)]) });
  }
  w.on(["batch", "noise"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
