import { h, pixelsPerUnit, show } from "./kit.js";
import { lossPart } from "./live_curve.js";
import { livePage } from "./live_page.js";

// The place of the number farthest from 0.
export function largest(numbers) {
  let best = 0;
  for (let i = 1; i < numbers.length; i++) if (Math.abs(numbers[i]) > Math.abs(numbers[best])) best = i;
  return best;
}

// A sample of a colour, in a line of text.
const swatch = (number) => h("span", { class: `lc-${number}`, "aria-hidden": "true" }, "■");

// A gradient as an image with a pixel for each number: one colour above 0, another below.
function painted({ rows, columns, numbers }, colours) {
  const [above, below] = colours.map((colour) => {
    const pen = h("canvas", { width: 1, height: 1 }).getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  });
  const most = Math.abs(numbers[largest(numbers)]) || 1;
  const image = new ImageData(columns, rows);
  numbers.forEach((g, i) => {
    const colour = g < 0 ? below : above;
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = colour[c];
    image.data[4 * i + 3] = 255 * Math.sqrt(Math.abs(g) / most);
  });
  const made = h("canvas", { width: columns, height: rows });
  made.getContext("2d").putImageData(image, 0, 0);
  return made;
}

// The gradient of a weight matrix as a picture; one of its numbers beside what a nudge says.
function gradientPart(w, run, { buttons, soon }) {
  const { model } = w;
  let shown = null; // the gradient in the picture: name, step, rows, columns, numbers
  let image = null; // that picture
  let nudged = null;

  const look = () => { if (run.stopped) run.tell({ gradient: model.get("weight") }); };
  w.choice("weight", "gradient of", { options: model.get("weights"), onset: look });

  const canvas = h("canvas", { class: "lr-cells", role: "img", style: "cursor: crosshair" });
  const holder = h("div", { class: "lc-stage" }, canvas);
  const key = h("p", { class: "lr-key" });
  const place = h("div", { class: "lc-controls" });
  const check = h("p", { "aria-live": "polite" });
  w.stages.append(key, holder, place, check);
  const nudge = () => {
    nudged = null;
    soon();
    if (!run.stopped || !shown) return;
    const [row, column] = cell();
    run.tell({ nudge: { name: shown.name, at: row * shown.columns + column, by: model.get("nudge") } });
  };
  // Row and column of the number that is looked at, both from 0.
  function cell() {
    for (const [name, of] of [["row", shown.rows], ["column", shown.columns]]) {
      if (model.get(name) < of) continue;
      model.set("note", `${name}: ${model.get(name)} is not possible (from 0 to ${of - 1}); ${of - 1} is used.`);
      w.put(name, of - 1);
    }
    return [model.get("row"), model.get("column")];
  }
  w.number("row", "row", { into: place, onset: nudge });
  w.number("column", "column", { into: place, onset: nudge });
  w.number("nudge", "nudge", { log: true, into: place, onset: nudge });
  canvas.addEventListener("pointerdown", (event) => {
    if (!shown) return;
    const box = canvas.getBoundingClientRect();
    w.put("row", Math.min(shown.rows - 1, Math.floor((event.clientY - box.top) / box.height * shown.rows)));
    w.put("column", Math.min(shown.columns - 1, Math.floor((event.clientX - box.left) / box.width * shown.columns)));
    nudge();
  });

  let lastWidth = 0;
  function drawCells() {
    lastWidth = holder.clientWidth;
    const there = lastWidth || 640;
    const unit = pixelsPerUnit(holder, there);
    const height = (shown ? 240 : 48) * unit;
    const sharp = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [there * sharp, height * sharp];
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    const ink = getComputedStyle(w.root);
    pen.strokeStyle = ink.getPropertyValue("--lc-line");
    pen.strokeRect(0, 0, canvas.width, canvas.height);
    if (!shown) {
      canvas.setAttribute("aria-label", "no gradient yet");
      pen.fillStyle = ink.color;
      pen.font = `${14 * unit * sharp}px ${ink.fontFamily}`;
      [pen.textAlign, pen.textBaseline] = ["center", "middle"];
      pen.fillText("no gradient yet", canvas.width / 2, canvas.height / 2);
      return;
    }
    const { rows, columns, numbers, name } = shown;
    image ??= painted(shown, [ink.getPropertyValue("--lc-2"), ink.getPropertyValue("--lc-1")]);
    pen.imageSmoothingEnabled = rows > canvas.height;
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    const [row, column] = cell();
    const [wide, tall] = [canvas.width / columns, canvas.height / rows];
    pen.strokeStyle = ink.color;
    pen.lineWidth = 2 * sharp;
    pen.beginPath();
    pen.arc((column + 0.5) * wide, (row + 0.5) * tall, 7 * sharp, 0, 2 * Math.PI);
    pen.stroke();
    const best = largest(numbers);
    canvas.setAttribute("aria-label", `gradient of ${name}, ${rows} rows and ${columns} columns; the largest ` +
      `number is ${show(numbers[best], 3)} in row ${Math.floor(best / columns)}, column ${best % columns}`);
  }

  const fillTable = w.table("The length of every gradient");
  function draw() {
    if (!run.worker) shown = nudged = null;
    buttons[1].textContent = run.stopped ? "Finish the step" : "Stop after backward";
    drawCells();
    fillTable({ columns: ["weights", "shape", "length of the gradient"],
      rows: Object.entries(run.stopped?.lengths ?? {}).map(([name, { rows, columns, length }]) =>
        [name, `${rows} x ${columns}`, length]) });
    key.replaceChildren(...(shown
      ? [`The gradient of ${shown.name} in step ${shown.step}, a cell for each of its ${shown.rows} x ` +
        `${shown.columns} weights: `, swatch(2), " one colour where the loss grows with the weight, ", swatch(1),
      ` the other where it falls; the strongest is ${show(Math.abs(shown.numbers[largest(shown.numbers)]), 3)}.`]
      : ["Press Stop after backward: the gradients of the next step are there, and no weight has changed."]));
    check.textContent = sentence();
  }
  function sentence() {
    if (!shown) return "";
    const [row, column] = cell();
    const head = `Row ${row}, column ${column}: the backward pass says ${show(shown.numbers[row * shown.columns + column], 4)}.`;
    if (!run.stopped) return `${head} Stop again to nudge it.`;
    if (!nudged) return head;
    const { before, by, up, down, quotient } = nudged;
    return `${head} The weight is ${show(before, 4)}. With ${show(by, 2)} more the loss of this batch is ` +
      `${up.toFixed(7)}, with ${show(by, 2)} less ${down.toFixed(7)}: a slope of ${show(quotient, 4)}.`;
  }

  const resized = new ResizeObserver(() => { if (holder.clientWidth !== lastWidth) drawCells(); });
  resized.observe(holder);
  const themed = new MutationObserver(() => { image = null; drawCells(); }); // a canvas keeps its colours
  for (const element of [document.documentElement, document.body]) {
    themed.observe(element, { attributeFilter: ["data-theme", "theme", "data-jp-theme-light"] });
  }
  return {
    draw,
    stop() { resized.disconnect(); themed.disconnect(); },
    hear(kind, news) {
      if (kind === "stopped") look();
      if (kind === "nudged") nudged = news;
      if (kind !== "gradient" || !run.stopped) return;
      const first = shown?.name !== news.name;
      [shown, image] = [{ ...news, step: run.stopped.step }, null];
      if (first) {
        const best = largest(news.numbers);
        w.put("row", Math.floor(best / news.columns));
        w.put("column", best % news.columns);
      }
      nudge();
    },
    say() {
      if (!run.stopped) return "";
      const { step, loss, lengths } = run.stopped;
      const all = Math.hypot(...Object.values(lengths).map(({ length }) => length));
      return `Step ${step} stands after its fourth phase, backward: loss ${show(loss, 4)}. All gradients together ` +
        `have length ${show(all, 3)}, that of ${model.get("weight")} has ${show(lengths[model.get("weight")].length, 3)}.`;
    },
  };
}

export default {
  render: ({ model, el }) => livePage({ model, el }, {
    title: "Stop after backward",
    buttons: [["Stop after backward", (run) => run.halt()]],
    parts: [gradientPart, lossPart],
  }),
};
