import { axes, frame, h, label, line, percent, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests

export const total = (numbers) => numbers.reduce((sum, x) => sum + x, 0);
export const meanOf = (numbers) => total(numbers) / numbers.length;

// The interval of Wilson for k right answers of n, at 95 %.
export function wilson(k, n) {
  const z = 1.959964;
  const middle = (k + (z * z) / 2) / (n + z * z);
  const half = (z / (n + z * z)) * Math.sqrt((k * (n - k)) / n + (z * z) / 4);
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

// How many of some p-values are an alarm.
export const alarms = (values, level) => values.filter((p) => p <= level + 1e-12).length;

// --- the page

const seeds = (n) => `${n} ${n === 1 ? "seed" : "seeds"}`;

function render({ model, el }) {
  const w = frame({ model, el, title: "Copies of a test in the training text" });
  const [rows, half] = [model.get("rows"), model.get("half")];
  const lengths = model.get("lengths");
  const chance = 1 / model.get("options");
  const chosen = () => rows.find((row) => row.name === model.get("copies"));
  const named = ({ name }) => `${name} ${name === "1" ? "copy" : "copies"}`;
  const place = () => lengths.indexOf(model.get("words"));
  const asked = (row) => half * row.losses.length;

  w.choice("copies", "copies", { options: rows.map(({ name }) => name) });
  w.choice("words", "runs of so many words", { options: lengths });
  w.number("level", "level", { log: true });

  // What is marked: leaked questions and fresh ones, or seeds whose test gives an alarm.
  function detectors(row) {
    const at = place();
    const [found, wrong] = ["overlap_leaked", "overlap_fresh"].map((key) => meanOf(row[key].map((one) => one[at])));
    const of = row.losses.length;
    const test = (values) => `${alarms(values, model.get("level"))} of ${seeds(of)}`;
    return [
      [`runs of ${model.get("words")} words`, `${percent(found, 2)} of leaked questions`, `${percent(wrong, 2)} of fresh questions`],
      ["canary", test(row.canary_p), percent(model.get("level"), 2)],
      ["min-k %", `${percent(meanOf(row.min_k_hits), 2)} of leaked questions`, `${percent(meanOf(row.min_k_false), 2)} of fresh questions`],
      ["order of the questions", test(row.order_p), percent(model.get("level"), 2)],
    ];
  }

  const drawScores = w.stage((svg, wide, tall) => {
    const box = [40, 24, wide - 16, tall - 40];
    const x = scale([-0.5, rows.length - 0.5], [box[0], box[2]]);
    const y = scale([0, 1], [box[3], box[1]]);
    svg.append(axes({ x, y, box, xTicks: [], yTicks: ticks(0, 1, 5), xTitle: "copies", yTitle: "share of right answers" }),
      line([[box[0], y(chance)], [box[2], y(chance)]], { stroke: "var(--lc-text)", "stroke-dasharray": "1 4" }),
      label(box[2], y(chance) + 14, "chance", { "text-anchor": "end" }));
    rows.forEach((row, i) => {
      if (row === chosen()) {
        svg.append(s("rect", { x: x(i - 0.45), y: box[1], width: x(0.9) - x(0), height: box[3] - box[1], fill: "currentColor",
          opacity: 0.1 }));
      }
      svg.append(label(x(i), box[3] + 15, row.name, { "text-anchor": "middle", "font-weight": row === chosen() ? 700 : 400 }));
      for (const [key, mark, shift] of [["leaked", "lc-2", -0.1], ["fresh", "lc-1", 0.1]]) {
        const right = total(row[key]);
        const [low, high] = wilson(right, asked(row));
        const there = [x(i + shift), y(right / asked(row))];
        svg.append(line([[there[0], y(low)], [there[0], y(high)]], { stroke: "currentColor", class: mark, "stroke-width": 2.5 }),
          key === "fresh" ? s("circle", { cx: there[0], cy: there[1], r: 5, fill: "currentColor", class: mark })
            : s("rect", { x: there[0] - 5, y: there[1] - 5, width: 10, height: 10, fill: "currentColor", class: mark }));
      }
    });
    return rows.map((row) => `${named(row)}: leaked half ${percent(total(row.leaked) / asked(row), 2)}, ` +
      `fresh half ${percent(total(row.fresh) / asked(row), 2)}`).join("; ");
  }, { height: 260, label: "scores with their intervals" });

  const drawLosses = w.stage((svg, wide, tall) => {
    const box = [40, 24, wide - 16, tall - 40];
    const top = 1.15 * Math.max(...rows.flatMap((row) => row.losses));
    const x = scale([-0.5, rows.length - 0.5], [box[0], box[2]]);
    const y = scale([0, top], [box[3], box[1]]);
    svg.append(axes({ x, y, box, xTicks: [], yTicks: ticks(0, top, 4), xTitle: "copies", yTitle: "loss on clean text, nats per token" }));
    rows.forEach((row, i) => {
      svg.append(label(x(i), box[3] + 15, row.name, { "text-anchor": "middle" }),
        s("rect", { x: x(i - 0.3), y: y(meanOf(row.losses)), width: x(0.6) - x(0), height: box[3] - y(meanOf(row.losses)),
          fill: "currentColor", class: "lc-3", opacity: row === chosen() ? 0.9 : 0.45 }),
        ...row.losses.map((loss) => s("circle", { cx: x(i), cy: y(loss), r: 2.5, fill: "var(--lc-text)" })));
    });
    return rows.map((row) => `${named(row)}: ${meanOf(row.losses).toFixed(2)}`).join("; ");
  }, { height: 170, label: "loss on clean text" });
  w.stages.append(h("p", {}, "Squares: the half of the test that leaks. Circles: the other half. Bars: 95 % intervals over all seeds. " +
    "Below: the loss on clean text, mean and each seed."));

  const found = w.table("What each detector finds", { open: true });

  function redraw() {
    for (const draw of [drawScores, drawLosses]) draw();
    const row = chosen();
    found({ columns: ["detector", "finds", "false alarms"], rows: detectors(row) });
    const parts = ["leaked", "fresh"].map((key) => {
      const right = total(row[key]);
      return `${percent(right / asked(row), 2)} (${wilson(right, asked(row)).map((x) => Math.round(100 * x)).join(" to ")})`;
    });
    const [right, kept] = ["clean_right", "clean_items"].map((key) => total(row[key].map((one) => one[place()])));
    w.say(`Recorded: ${named(row)}, ${seeds(row.losses.length)}. Leaked half ${parts[0]}, fresh half ${parts[1]}, ` +
      `loss on clean text ${meanOf(row.losses).toFixed(2)}. ` +
      (kept === 0 ? `Runs of ${model.get("words")} words flag every question: there is no clean subset.`
        : `Without what runs of ${model.get("words")} words flag, the score is ${percent(right / kept, 2)} of ${show(kept)} answers; ` +
          `of all ${show(2 * asked(row))} it is ${percent((total(row.leaked) + total(row.fresh)) / (2 * asked(row)), 2)}.`));
  }
  w.on(["copies", "words", "level"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
