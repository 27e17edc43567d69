import { axes, clamp, frame, h, line, onDrag, s, scale, show, ticks, pixelsPerUnit } from "./kit.js";

// --- arithmetic, compared with Python by the tests

// The numbers of a snapshot: 8 bits each, in base64, times the scale.
export function numbersOf({ scale: quantum, values }) {
  const bytes = Uint8Array.from(atob(values), (character) => character.charCodeAt(0));
  return Array.from(new Int8Array(bytes.buffer), (value) => value * quantum);
}

// The matrix of snapshot `i`: that of step 0, plus the change since then.
export function matrixAt(snapshots, i) {
  const first = numbersOf(snapshots[0]);
  if (i === 0) return first;
  return numbersOf(snapshots[i]).map((change, k) => first[k] + change);
}

export function changeAt(snapshots, i) {
  return i === 0 ? numbersOf(snapshots[0]).map(() => 0) : numbersOf(snapshots[i]);
}

export const norm = (values) => Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));

// Where the entry of largest size is, and the entry.
export function largest(values) {
  const place = values.reduce((best, x, i) => (Math.abs(x) > Math.abs(values[best]) ? i : best), 0);
  return { place, value: values[place] };
}

// How alike `count` rows from `first` on are: the mean cosine of the angle between two of them.
export function alikeness(values, columns, first, count) {
  const sum = new Array(columns).fill(0);
  for (let r = first; r < first + count; r++) {
    const row = values.slice(r * columns, (r + 1) * columns);
    const size = norm(row) || 1;
    row.forEach((x, c) => { sum[c] += x / size; });
  }
  // The square of a sum of unit vectors holds each pair twice, and each vector with itself once.
  return count < 2 ? 1 : (sum.reduce((total, x) => total + x * x, 0) - count) / (count * (count - 1));
}

// The last of some increasing numbers that is not above `step`; -1 where all are.
export const lastAt = (numbers, step) => numbers.reduce((found, n, i) => (n <= step ? i : found), -1);

// --- the page

const WORDS = "What the model writes";
const STYLE = `
.lc .rs-words { white-space: pre-wrap; border-left: 4px solid var(--lc-2); padding: 0.1rem 0 0.1rem 0.7rem;
  margin: 0.3rem 0; height: 7rem; overflow: auto; overflow-wrap: anywhere; }
.lc .rs-key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; }
.lc .rs-matrix { display: block; width: 100%; }`;

function render({ model, el }) {
  const w = frame({ model, el, title: "A run, step by step" });
  w.root.prepend(h("style", {}, STYLE));
  const losses = model.get("losses");
  const samples = model.get("samples");
  const snapshots = model.get("snapshots");
  const groups = model.get("groups");
  const columns = model.get("columns");
  const name = model.get("name");
  const at = snapshots.map((snapshot) => snapshot.step);
  const matrices = at.map((_, i) => matrixAt(snapshots, i));
  const changes = at.map((_, i) => changeAt(snapshots, i));
  const rowNames = groups.flatMap(([, rows]) => rows);
  const step = () => model.get("step");
  const now = () => lastAt(at, step());
  const isChange = () => model.get("view") !== "weights";
  const shown = () => (isChange() ? changes : matrices)[now()];
  // One scale of colours for the whole run, so that growth is seen.
  const mostOf = (all) => Math.max(...all.map((values) => Math.abs(largest(values).value))) || 1;
  const most = { weights: mostOf(matrices), change: mostOf(changes) };
  // The loss of step 1 is that of the weights of step 0.
  const lossAt = (n) => losses[Math.max(0, n - 1)];

  const chosen = w.number("step", "step");
  w.player({
    step: () => {
      const next = at.find((n) => n > step()) ?? losses.length;
      w.put("step", next);
      return next < losses.length;
    },
    reset: () => w.put("step", 0),
    perSecond: 1.5,
  });

  // --- loss

  let [toStep, place] = [null, null];
  const drawLoss = w.stage((svg, width, height) => {
    const box = [38, 20, width - 12, height - 36];
    const top = Math.max(...losses) * 1.05;
    const x = scale([0, losses.length], [box[0], box[2]]);
    const y = scale([0, top], [box[3], box[1]]);
    toStep = (px) => Math.round(clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * losses.length);
    svg.append(axes({ x, y, box, xTicks: ticks(0, losses.length, width < 420 ? 4 : 6), yTicks: ticks(0, top, 4),
      xTitle: "step (marks: snapshots)", yTitle: "loss, nats per token" }),
    line(losses.map((value, i) => [x(i + 1), y(value)]), { stroke: "var(--lc-1)", "stroke-width": 1.3 }));
    for (const n of at) {
      svg.append(s("line", { x1: x(n), x2: x(n), y1: box[3] - 6, y2: box[3], stroke: "var(--lc-text)" }));
    }
    svg.append(s("line", { x1: x(step()), x2: x(step()), y1: box[1], y2: box[3], stroke: "var(--lc-2)",
      "stroke-dasharray": "4 3" }));
    place = [x(step()), y(lossAt(step()))];
    svg.style.touchAction = "pan-y";
    return `${show(losses[0], 3)} at first, ${show(losses.at(-1), 3)} at step ${losses.length}; ` +
      `marker at step ${step()}, ${show(lossAt(step()), 3)}`;
  }, { height: 210, label: "loss against step" });
  const lossPicture = drawLoss.picture;
  onDrag(lossPicture, ([x]) => w.put("step", toStep(x)));
  drawLoss.handle({ x: chosen, at: () => place, label: "step in the picture", mark: "lc-2", to: ([x]) => toStep(x) });

  // --- words

  const caption = h("p", {});
  const words = h("div", { class: "rs-words", tabindex: 0, role: "region", "aria-label": WORDS });
  function fillWords() {
    const i = lastAt(samples.map(([n]) => n), step());
    caption.textContent = i < 0 ? `${WORDS}: no sample was kept before step ${samples[0]?.[0] ?? "1"}.`
      : `${WORDS} after step ${samples[i][0]}:`;
    words.textContent = i < 0 ? "" : samples[i][1];
  }
  w.stages.append(caption, words);

  // --- matrix

  const views = h("div", { class: "lc-controls" });
  w.stages.append(views);
  w.choice("view", "show", { into: views });
  const canvas = h("canvas", { class: "rs-matrix", role: "img" });
  const holder = h("div", { class: "lc-stage" }, canvas);
  w.stages.append(holder);
  const sign = (mark, shape, words) => h("span", {}, h("span", { class: mark, "aria-hidden": "true" }, shape), words);
  const key = h("p", { class: "rs-key" }, sign("lc-2", "■", " positive, full cells"),
    sign("lc-1", "◘", " negative, cells with a hole"), h("span", {}));
  w.stages.append(key);

  let lastWidth = 0;
  function drawMatrix() {
    const there = holder.clientWidth || 640;
    const unit = pixelsPerUnit(holder, there);
    const width = Math.max(220, Math.round(there / unit));
    lastWidth = holder.clientWidth;
    const left = Math.min(92, width * 0.26);
    const gap = 6;
    const cell = (width - left - 2) / columns;
    const tall = clamp(cell, 7, 9);
    const height = Math.ceil(rowNames.length * tall + gap * (groups.length - 1) + 4);
    const sharp = (window.devicePixelRatio || 1) * unit;
    canvas.width = width * sharp;
    canvas.height = height * sharp;
    canvas.style.height = `${height * unit}px`;
    const ink = getComputedStyle(w.root);
    const colour = (token) => ink.getPropertyValue(token).trim();
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const [plus, minus, text] = [colour("--lc-2"), colour("--lc-1"), ink.color];
    const values = shown();
    const top = isChange() ? most.change : most.weights;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    let y = 2;
    let r = 0;
    for (const [group, rows] of groups) {
      pen.globalAlpha = 1;
      pen.fillStyle = text;
      pen.fillText(group, 0, y + rows.length * tall / 2, left - 8);
      pen.fillRect(left - 5, y, 2, rows.length * tall);
      for (let k = 0; k < rows.length; k++, r++, y += tall) {
        for (let c = 0; c < columns; c++) {
          const value = values[r * columns + c];
          pen.globalAlpha = Math.sqrt(Math.abs(value) / top); // small weights can be seen as well
          pen.fillStyle = value < 0 ? minus : plus;
          pen.fillRect(left + c * cell, y, cell, tall);
          if (value < 0) pen.clearRect(left + (c + 0.36) * cell, y + 0.36 * tall, 0.28 * cell, 0.28 * tall);
        }
      }
      y += gap;
    }
    canvas.setAttribute("aria-label", `${matrixSentence()} ${rowNames.length} rows, ${columns} columns.`);
    key.lastElementChild.textContent = `strongest colour: ${show(top, 3)}`;
  }

  function matrixSentence() {
    const values = shown();
    const { place, value } = largest(values);
    const where = `row “${rowNames[Math.floor(place / columns)]}”, column ${place % columns + 1}`;
    const moved = show(norm(changes[now()]), 3);
    const head = isChange() ? `Change of the ${name} from step 0 to step ${at[now()]}: length ${moved}`
      : `The ${name} at step ${at[now()]}: length ${show(norm(values), 3)}, change since step 0 has length ${moved}`;
    return `${head}; largest entry ${value ? `${show(value, 3)} (${where})` : "0"}.`;
  }

  // How alike the rows of every group are at a snapshot; groups of one row are left out.
  function cosines(i) {
    let first = 0;
    return groups.map(([group, rows]) => {
      const value = alikeness(matrices[i], columns, first, rows.length);
      first += rows.length;
      return { group, count: rows.length, value };
    }).filter(({ count }) => count > 1);
  }
  const tidy = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2));

  function groupSentence() {
    const current = cosines(now());
    if (groups.length < 2 || !current.length) return "";
    const start = Math.max(...cosines(0).map(({ value }) => Math.abs(value)));
    const each = current.map(({ group, value }) => `${group} ${tidy(value)}`).join(", ");
    return `How alike two rows of a group are (1 if they point the same way): ${each}` +
      `${now() ? `; at step 0 all were below ${tidy(start + 0.005)} in size` : ""}.`;
  }

  // --- tables

  w.table("The run at every snapshot")({
    columns: ["step", "loss", `norm of the ${name}`, "norm of its change", "largest entry",
      ...cosines(0).map(({ group }) => `cosine: ${group}`)],
    rows: at.map((n, i) => [String(n), lossAt(n), norm(matrices[i]), norm(changes[i]), largest(matrices[i]).value,
      ...cosines(i).map(({ value }) => tidy(value))]),
  });
  const entries = w.table("The cells of the picture");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  function fillEntries() { // thousands of cells: only where they are seen
    if (!details.open) return;
    const values = shown();
    entries({ columns: ["row", ...Array.from({ length: columns }, (_, c) => String(c + 1))],
      rows: rowNames.map((row, r) => [row, ...values.slice(r * columns, (r + 1) * columns).map((x) => show(x, 2))]) });
  }
  details.addEventListener("toggle", fillEntries);

  function sentence() {
    const before = step() === 0 ? `Before the first step the loss is ${show(losses[0], 3)} nats per token.`
      : `Step ${step()} of ${losses.length}: loss ${show(lossAt(step()), 3)} nats per token, ` +
        `${show(losses[0], 3)} at first.`;
    return `${before} ${matrixSentence()} ${groupSentence()}`.trim();
  }

  function redraw() {
    drawLoss();
    fillWords();
    drawMatrix();
    fillEntries();
    w.say(sentence());
  }

  const resized = new ResizeObserver(() => { if (holder.clientWidth !== lastWidth) drawMatrix(); });
  resized.observe(holder);
  // A canvas keeps its colours when the page changes its theme.
  const themed = new MutationObserver(() => drawMatrix());
  const watched = ["data-theme", "theme", "data-jp-theme-light"];
  for (const element of [document.documentElement, document.body]) {
    themed.observe(element, { attributeFilter: watched });
  }
  w.on(["step", "view"], redraw);
  redraw();
  return () => { resized.disconnect(); themed.disconnect(); w.destroy(); };
}

export default { render };
