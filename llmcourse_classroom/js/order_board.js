import { frame, label, line, s, show, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.data.Batches by the tests
// A run takes `steps` steps, and stops once.  Its plan says of each which step of the order it
// reads, and on how many ranks.

export function planOf(before, stop, after, saved, steps) {
  return Array.from({ length: steps }, (_, i) =>
    (i < stop ? { step: i, ranks: before } : { step: saved ? i : i - stop, ranks: after }));
}

// The windows that each rank reads in a step of the order, a list for each rank.
export function partsOf(order, step, ranks, batch) {
  const each = batch / ranks;
  return Array.from({ length: ranks }, (_, rank) => {
    const first = step * batch + rank * each;
    return order.slice(first, first + each);
  });
}

// How many times each window is read.
export function countsOf(order, plan, batch) {
  const counts = order.map(() => 0);
  for (const { step, ranks } of plan) {
    for (const window of partsOf(order, step, ranks, batch).flat()) counts[window] += 1;
  }
  return counts;
}

// Where a window is read: [place in the plan, rank], once for each time.
export function readersOf(order, plan, batch, window) {
  return plan.flatMap(({ step, ranks }, i) => partsOf(order, step, ranks, batch)
    .flatMap((part, rank) => (part.includes(window) ? [[i, rank]] : [])));
}

// --- the page

const [LEFT, CELL, ROW, GAP] = [54, 20, 44, 34];
const many = (n, noun) => `${n === 0 ? "no" : show(n)} ${noun}${n === 1 ? "" : "s"}`;
const list = (found) => (found.length < 2 ? found.join("") : `${found.slice(0, -1).join(", ")} and ${found.at(-1)}`);

function render({ model, el }) {
  const w = frame({ model, el, title: "One order, any number of ranks", primary: ["after", "stop", "saved"] });
  const [order, batch, steps] = ["order", "batch", "steps"].map((name) => model.get(name));
  const perShard = order.length / model.get("shards");
  w.choice("after", "ranks after the stop");
  w.number("stop", "steps before the stop");
  w.choice("saved", "the checkpoint holds");
  w.choice("before", "ranks before the stop");
  w.number("window", "window to follow");

  // Everything that picture, table and sentence say.
  function now() {
    const [before, after] = [Number(model.get("before")), Number(model.get("after"))];
    const [stop, window, saved] = [model.get("stop"), model.get("window"), model.get("saved") === "the step"];
    const plan = planOf(before, stop, after, saved, steps);
    const counts = countsOf(order, plan, batch);
    const of = (times) => counts.filter((count) => count === times).length;
    return { before, after, stop, saved, window, plan, counts, of, readers: readersOf(order, plan, batch, window) };
  }

  let cells = []; // of the picture: [window, left, top]
  let wideCell = 0;
  const tall = { run: 28 + steps * ROW + GAP, disk: 22 + 26 * model.get("shards") + 22 };

  function cell(svg, window, left, top, times, chosen) {
    cells.push([window, left, top]);
    const box = { x: left + 1.5, y: top, width: wideCell - 3, height: CELL };
    svg.append(s("rect", { ...box, fill: "currentColor", "fill-opacity": times ? 0.25 : 0, stroke: "currentColor",
      "stroke-width": times > 1 ? 3 : 1, "stroke-dasharray": times ? null : "3 2",
      class: `lc-${Math.floor(window / perShard) + 1}` }),
    label(left + wideCell / 2, top + 14.5, window, { "text-anchor": "middle", "font-weight": chosen ? 700 : 400 }));
    if (chosen) {
      svg.append(s("rect", { x: left - 1, y: top - 2.5, width: wideCell + 2, height: CELL + 5, rx: 3, fill: "none",
        stroke: "var(--lc-text)", "stroke-width": 2.5 }));
    }
  }

  const draw = w.stage((svg, wide) => {
    const { stop, after, window, plan, counts, of } = now();
    cells = [];
    wideCell = Math.min(46, (wide - LEFT - 4) / batch);
    const right = LEFT + batch * wideCell;
    const middle = { "text-anchor": "middle" };
    svg.append(label(2, 14, "The order, cut into steps and ranks:"));
    plan.forEach(({ step, ranks }, i) => {
      const top = 22 + i * ROW + (i >= stop ? GAP : 0);
      svg.append(label(2, top + 31, `step ${step}`));
      partsOf(order, step, ranks, batch).forEach((part, rank) => {
        const [from, long] = [LEFT + rank * part.length * wideCell, part.length * wideCell];
        svg.append(label(from + long / 2, top + 11, `rank ${rank}`, middle),
          line([[from + 3, top + 41], [from + 3, top + 38.5], [from + 3, top + 41], [from + long - 3, top + 41],
            [from + long - 3, top + 38.5]], { stroke: "var(--lc-text)" }));
        part.forEach((one, j) => cell(svg, one, from + j * wideCell, top + 16, 1, one === window));
      });
    });
    const border = 32 + stop * ROW;
    svg.append(line([[2, border], [right, border]], { stroke: "var(--lc-text)", "stroke-dasharray": "5 4" }));
    if (stop < steps) {
      svg.append(label(2, border + 14, `the stop: ${many(after, "rank")} from here on`));
    }
    svg.append(label(2, tall.run + 14, "The windows in their shards:"));
    counts.forEach((times, one) => {
      const [shard, place] = [Math.floor(one / perShard), one % perShard];
      const top = tall.run + 22 + 26 * shard;
      if (place === 0) svg.append(label(2, top + 14.5, `shard ${shard}`));
      cell(svg, one, LEFT + place * wideCell, top, times, one === window);
    });
    svg.append(label(2, tall.run + tall.disk - 4, "Thick border: read twice. Dashed: never."));
    return `${plan.map(({ step, ranks }) => `step ${step} on ${many(ranks, "rank")}`).join(", ")}; ` +
      `${show(of(1))} windows are read once, ${show(of(2))} twice, ${show(of(0))} never`;
  }, { height: tall.run + tall.disk, label: "order and shards" });

  // A press on a window chooses it, as the number does.
  draw.picture.addEventListener("click", (event) => {
    const [x, y] = within(draw.picture, event);
    const found = cells.find(([, left, top]) => x >= left && x < left + wideCell && y >= top && y < top + CELL);
    if (found) w.putNumber("window", "window to follow", found[0]);
  });
  const numbers = w.table("What each rank reads, step by step");

  function sentence({ before, after, stop, saved, window, readers, of }) {
    const on = (count, ranks) => `${many(count, "step")} on ${many(ranks, "rank")}, ${many(batch / ranks, "window")} each`;
    const parts = [on(stop, before), on(steps - stop, after)].filter((_, i) => [stop, steps - stop][i] > 0);
    const again = !saved && stop > 0 && stop < steps;
    const all = of(1) === order.length ? `All ${order.length} windows are read exactly once.`
      : `${show(of(1))} windows are read once, ${show(of(2))} twice and ${show(of(0))} never.`;
    const who = readers.map(([i, rank]) => `by rank ${rank} in step ${now().plan[i].step}${again && i >= stop ? ", after the stop" : ""}`);
    return `${parts.join("; then ")}. ${again ? "The checkpoint holds no step, so the run begins the order again. " : ""}${all} ` +
      `Window ${window} is read ${who.length ? list(who) : "by nobody"}.`;
  }

  function redraw() {
    const state = now();
    draw();
    numbers({ columns: ["step", "rank", "windows"],
      rows: state.plan.flatMap(({ step, ranks }) => partsOf(order, step, ranks, batch)
        .map((part, rank) => [`${step}`, `${rank}`, part.join(", ")])) });
    w.say(sentence(state));
  }
  w.on(["after", "stop", "saved", "before", "window"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
