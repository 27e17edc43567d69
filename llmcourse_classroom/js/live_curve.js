// Two pictures of a run: the time of its phases, and its loss against the step.

import { axes, clamp, label, line, onDrag, percent, s, scale, show, ticks } from "./kit.js";
import { nats, PHASES } from "./live_lab.js";


// The mean share of every phase in the time of the last steps.
export function shares(reports) {
  const sums = reports[0].map((_, i) => reports.reduce((sum, ms) => sum + ms[i], 0));
  const all = sums.reduce((a, b) => a + b, 0) || 1;
  return sums.map((sum) => sum / all);
}

// Where the axis of losses ends: above ln V, and as far as needed for a run that diverges, within reason.
export function highest(losses, nothing) {
  return clamp(1.05 * Math.max(...losses.filter(Number.isFinite)), 1.08 * nothing, 3 * nothing);
}

export function phasesPart(w, run) {
  const draw = w.stage((svg, width) => {
    const each = run.reports.length ? shares(run.reports) : null;
    const columns = width < 560 ? 4 : 7;
    const wide = width / columns;
    let at = 0;
    PHASES.forEach((phase, i) => {
      const share = each ? each[i] : 0;
      const colour = { fill: `var(--phase-${i + 1})` };
      svg.append(s("rect", { x: at * width, y: 2, width: Math.max(0, share * width - 1), height: 14, ...colour }));
      at += share;
      const [x, y] = [(i % columns) * wide, 36 + 36 * Math.floor(i / columns)];
      svg.append(s("rect", { x: x + 1, y: y - 10, width: 4, height: 28, ...colour }),
        label(x + 9, y, `${i + 1} ${phase}`), label(x + 9, y + 16, each ? percent(share, 2) : "–"));
    });
    if (each) return PHASES.map((phase, i) => `${phase} ${percent(each[i], 2)}`).join(", ");
    svg.append(s("rect", { x: 1, y: 2, width: width - 2, height: 14, fill: "none", stroke: "var(--lc-line)" }));
    return "not measured yet";
  }, { height: (width) => (width < 560 ? 96 : 60), label: "share of every phase in the time of a step" });
  return { draw };
}

// goTo() is called when a drag has set the step.
export function lossPart(w, run, { goTo }) {
  const { model } = w;
  const [floor, recorded] = [model.get("floor"), model.get("losses")];
  const { steps, vocab_size: V } = model.get("config");
  const nothing = Math.log(V);
  let toStep = null;
  const draw = w.stage((svg, width, height) => {
    const box = [38, 20, width - 12, height - 36];
    const most = highest([...run.losses, ...(run.left ?? [])], nothing);
    const x = scale([0, steps], [box[0], box[2]]);
    const y = scale([0, most], [box[3], box[1]]);
    toStep = (px) => Math.round(clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * steps);
    const high = (loss) => y(Number.isFinite(loss) ? Math.min(loss, most) : most);
    const curve = (values, attributes) => line(values.map((loss, i) => [x(i + 1), high(loss)]), attributes);
    svg.append(axes({ x, y, box, xTicks: ticks(0, steps, width < 420 ? 4 : 6), yTicks: ticks(0, most, 4),
      xTitle: "step", yTitle: "loss, nats per token" }));
    // The words stand where no curve is: above at the end, below at the beginning.
    for (const [value, text, at, anchor] of [
      [nothing, `ln ${show(V)} = ${nats(nothing)}: knows nothing`, box[2], "end"],
      [floor, `${nats(floor)}: entropy of the stories`, box[0] + 6, "start"]]) {
      const dashes = { stroke: "var(--lc-muted)", "stroke-dasharray": "6 4" };
      svg.append(line([[box[0], y(value)], [box[2], y(value)]], dashes),
        label(at, y(value) - 5, text, { "text-anchor": anchor }));
    }
    const dotted = run.left && (width < 480 ? "dotted: before" : "dotted: before you went back");
    const others = [recorded.length && "grey: recorded run", dotted].filter(Boolean).join(", ");
    svg.append(label(box[2], 13, others, { "text-anchor": "end" }));
    svg.append(curve(recorded, { stroke: "var(--lc-muted)", class: "lr-recorded" }));
    if (run.left) {
      svg.append(curve(run.left, { stroke: "var(--lc-3)", "stroke-width": 1, "stroke-dasharray": "2 2" }));
    }
    svg.append(curve(run.losses, { stroke: "var(--lc-1)", "stroke-width": 1.6, class: "lr-live" }));
    if (run.losses.length) { // right of its end, where no curve is; later above it
      const [end, loss] = [x(run.losses.length), run.losses.at(-1)];
      const early = end < (box[0] + box[2]) / 2;
      svg.append(label(end + (early ? 10 : 0), Math.max(box[1] + 10, high(loss) - (early ? 6 : 14)), "your run",
        { "text-anchor": early ? "start" : "end", class: "lr-name" }));
    }
    const now = model.get("step");
    const of = run.worker || run.losses.length ? run.losses : recorded;
    if (of.length) { // the loss of step 1 is that of the weights of step 0
      const loss = of[clamp(now, 1, of.length) - 1];
      svg.append(s("circle", { cx: x(Math.min(now, of.length)), cy: high(loss), r: 6, fill: "var(--lc-2)" }));
    }
    svg.style.touchAction = "pan-y";
    const curves = Object.entries({ "your run": run.losses, "before, dotted": run.left, "recorded run, grey": recorded });
    const said = curves.filter(([, values]) => values?.length).map(([name, values]) =>
      `${name} ${nats(values[0])} at step 1, ${nats(values.at(-1))} at step ${values.length}`);
    return said.join("; ") || "no step yet";
  }, { height: 230, label: "loss against step", docked: true });

  let dragged = null;
  onDrag(draw.picture, ([x]) => {
    const asked = toStep(x);
    if (asked === dragged || (run.worker && asked >= run.losses.length)) return; // the picture only leads back
    dragged = asked;
    model.set("step", asked);
    goTo();
  });
  return { draw };
}
