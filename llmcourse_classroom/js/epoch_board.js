import { axes, clamp, frame, h, label, line, onDrag, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with plain Python and with llmcourse.train's early stopping by the tests
// A run has its steps, and for each seed a curve of losses at them.

export const meanOf = (curves) => curves[0].map((_, i) => curves.reduce((sum, curve) => sum + curve[i], 0) / curves.length);

// The place of the last step that is not after `step`; 0 where all are.
export const placeAt = (steps, step) => steps.reduce((found, n, i) => (n <= step ? i : found), 0);

// The place of the lowest loss, the first of equals.
export const lowest = (losses) => losses.indexOf(Math.min(...losses));

// Where a run ends that waits for so many validations without a better one, or null if it goes on to its end.
export function endOf(losses, patience) {
  let best = Infinity;
  let waited = 0;
  for (let i = 0; i < losses.length; i++) {
    if (losses[i] < best) [best, waited] = [losses[i], 0];
    else waited += 1;
    if (waited === patience) return i;
  }
  return null;
}

// How often the text has been read after a step.
export const epochsAt = ({ steps, epochs }, step) => (epochs * step) / steps.at(-1);

// The first place where a loss is below the floor, or null.
export function below(losses, floor) {
  const found = losses.findIndex((loss) => loss < floor);
  return found < 0 ? null : found;
}

// --- the page

const nats = (loss) => (loss < 0.1 ? loss.toFixed(3) : loss.toFixed(2));
const times = (epochs) => `${show(epochs, 3)} ${epochs === 1 ? "time" : "times"}`;

function render({ model, el }) {
  const w = frame({ model, el, title: "How much text, how often read" });
  const floor = model.get("floor");
  const runs = model.get("runs").map((run) => ({
    ...run, solid: meanOf(run.training), dashed: meanOf(run.held_out),
  }));
  const end = Math.max(...runs.map(({ steps }) => steps.at(-1)));
  const top = Math.max(...runs.flatMap(({ solid, dashed }) => [...solid, ...dashed]));
  const chosen = () => runs.find(({ name }) => name === model.get("text"));
  const at = (run) => placeAt(run.steps, model.get("step"));
  const turned = (run) => lowest(run.dashed) < run.dashed.length - 1;

  w.choice("text", "text", { options: runs.map(({ name }) => name) });
  const asked = w.number("step", "step");
  w.number("patience", "patience, in validations");
  w.toggle("seeds", "each seed");

  let [toStep, mark] = [() => 0, null];
  const drawCurves = w.stage((svg, wide, tall) => {
    const run = chosen();
    const box = [36, 22, wide - 20, tall - 38];
    const x = scale([0, end], [box[0], box[2]]);
    const y = scale([0, top], [box[3], box[1]]);
    const points = (curve) => curve.map((loss, i) => [x(run.steps[i]), y(loss)]);
    svg.append(axes({ x, y, box, xTicks: ticks(0, end, wide < 420 ? 3 : 6), yTicks: ticks(0, top, 6),
      xTitle: "step", yTitle: "loss, nats per token" }),
    line([[box[0], y(floor)], [box[2], y(floor)]], { stroke: "var(--lc-text)", "stroke-dasharray": "1 4" }),
    label(box[2], y(floor) - 5, `entropy ${nats(floor)}`, { "text-anchor": "end" }));
    const there = x(run.steps[at(run)]);
    mark = [there, box[1]];
    svg.append(line([[there, box[1]], [there, box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "4 4" }));
    const kinds = [[run.solid, run.training, "lc-1", {}], [run.dashed, run.held_out, "lc-2", { "stroke-dasharray": "7 5" }]];
    for (const [curve, each, mark, style] of kinds) {
      if (model.get("seeds")) {
        for (const one of each) svg.append(line(points(one), { stroke: "currentColor", class: mark, opacity: 0.5, ...style }));
      }
      svg.append(line(points(curve), { stroke: "currentColor", class: mark, "stroke-width": 2.5, ...style }),
        s("circle", { cx: there, cy: y(curve[at(run)]), r: 4.5, fill: "currentColor", class: mark }));
    }
    if (turned(run)) {
      const best = lowest(run.dashed);
      const [px, py] = points(run.dashed)[best];
      svg.append(s("circle", { cx: px, cy: py, r: 8, fill: "none", stroke: "currentColor", "stroke-width": 2, class: "lc-2" }),
        label(px, py - 13, "turn", { "text-anchor": "middle" }));
    }
    const stop = endOf(run.dashed, model.get("patience"));
    if (stop !== null) {
      const px = x(run.steps[stop]);
      svg.append(line([[px, box[1]], [px, box[1] + 14]], { stroke: "currentColor", "stroke-width": 3, class: "lc-3" }),
        label(clamp(px, box[0] + 40, box[2] - 40), box[1] + 27, "patience ends", { "text-anchor": "middle" }));
    }
    toStep = (px) => Math.round(clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * end);
    svg.style.touchAction = "pan-y";
    return `${run.name} over ${show(end)} steps; training, solid, from ${nats(run.solid[0])} to ${nats(run.solid.at(-1))}; ` +
      `validation, dashed, from ${nats(run.dashed[0])} to ${nats(run.dashed.at(-1))}, ` +
      (turned(run) ? `with its turn at step ${show(run.steps[lowest(run.dashed)])}, ${nats(Math.min(...run.dashed))}` : "without a turn");
  }, { height: 280, label: "loss against step" });
  const picture = w.stages.querySelector("svg");
  onDrag(picture, ([x]) => w.putNumber("step", "step", toStep(x)));
  drawCurves.handle({ x: asked, at: () => mark, label: "step in the picture", to: ([x]) => toStep(x) });

  // Every text at the same step: the gap is the bar between training and validation.
  const ROW = 34;
  const drawGaps = w.stage((svg, wide, tall) => {
    const box = [92, 22, wide - 20, tall - 38];
    const x = scale([0, top], [box[0], box[2]]);
    svg.append(s("g", { class: "lc-axes" }, s("line", { x1: box[0], x2: box[2], y1: box[3], y2: box[3] }),
      ticks(0, top, wide < 420 ? 3 : 6).map((t) => label(x(t), box[3] + 15, show(t), { "text-anchor": "middle" })),
      label((box[0] + box[2]) / 2, box[3] + 31, "loss, nats per token", { "text-anchor": "middle" }),
      label(4, box[1] - 7, `each text at step ${show(model.get("step"))}`)),
    line([[x(floor), box[1]], [x(floor), box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "1 4" }));
    runs.forEach((run, i) => {
      const [low, high] = [run.solid[at(run)], run.dashed[at(run)]];
      const middle = box[1] + ROW * (i + 0.5);
      svg.append(label(box[0] - 8, middle + 4, run.name, { "text-anchor": "end", "font-weight": run === chosen() ? 700 : 400 }),
        line([[x(low), middle], [x(high), middle]], { stroke: "currentColor", class: "lc-4", "stroke-width": 5, opacity: 0.6 }),
        s("circle", { cx: x(low), cy: middle, r: 6, fill: "currentColor", class: "lc-1" }),
        s("rect", { x: x(high) - 5, y: middle - 5, width: 10, height: 10, fill: "var(--lc-back)", stroke: "currentColor",
          "stroke-width": 2.5, class: "lc-2" }));
    });
    return runs.map((run) => `${run.name}, read ${times(epochsAt(run, run.steps[at(run)]))}: training ${nats(run.solid[at(run)])}, ` +
      `validation ${nats(run.dashed[at(run)])}`).join("; ");
  }, { height: runs.length * ROW + 60, label: "the gap of each text" });
  w.stages.append(h("p", {}, "Solid and round: training. Dashed and square: validation. Both are means over the seeds. Bar: the gap. Dotted: the entropy."));

  const numbers = w.table("The chosen text, measurement by measurement");

  function sentence() {
    const run = chosen();
    const place = at(run);
    const [step, best] = [run.steps[place], lowest(run.dashed)];
    const [low, high] = [run.solid[place], run.dashed[place]];
    const seeds = run.held_out.map((curve) => curve[place]);
    const parts = [`Step ${show(step)}: ${run.name}, ${show(run.tokens)} tokens, read ${times(epochsAt(run, step))}. ` +
      `Training ${nats(low)}, validation ${nats(high)} (${nats(Math.min(...seeds))} to ${nats(Math.max(...seeds))} with ` +
      `${seeds.length} seeds), gap ${nats(Math.max(0, high - low))}.`];
    if (low < floor) parts.push(`The training loss is below the entropy of ${nats(floor)}: that can only be memory.`);
    if (!turned(run)) parts.push("The validation loss of this text does not turn in these steps.");
    else if (place > best) {
      parts.push(`The validation loss has turned at step ${show(run.steps[best])}, after reading the text ` +
        `${times(epochsAt(run, run.steps[best]))}, and has risen by ${nats(high - run.dashed[best])} since.`);
    } else parts.push(place === best ? "Here the validation loss is lowest: this is the turn." : "The validation loss has not turned yet.");
    const stop = endOf(run.dashed, model.get("patience"));
    parts.push(stop === null ? `A patience of ${model.get("patience")} does not end this run.`
      : `A patience of ${model.get("patience")} ends this run at step ${show(run.steps[stop])}.`);
    return parts.join(" ");
  }

  function redraw() {
    for (const draw of [drawCurves, drawGaps]) draw();
    const run = chosen();
    numbers({ columns: ["step", "times read", "training", "validation"],
      rows: run.steps.map((step, i) => [show(step), show(epochsAt(run, step), 3), nats(run.solid[i]), nats(run.dashed[i])]) });
    w.say(sentence());
  }
  w.on(["text", "step", "patience", "seeds"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
