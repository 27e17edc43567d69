import { axes, clamp, frame, h, label, line, percent, plural, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.study.weights by the tests

// The numbers of a packed matrix: 8 bits each, in base64, times the scale.
export function numbersOf({ scale: quantum, values }) {
  const bytes = Uint8Array.from(atob(values), (character) => character.charCodeAt(0));
  return Array.from(new Int8Array(bytes.buffer), (value) => value * quantum);
}

// The size of a matrix, from its singular values.
export const norm = (singular) => Math.sqrt(singular.reduce((sum, x) => sum + x * x, 0));

// |change| / |start|: what was all zeros has no scale of its own.
export function ratio(change, start) {
  const [moved, was] = [norm(change), norm(start)];
  if (was === 0) return moved ? Infinity : 0;
  return moved / was;
}

// The share of the squares that the k largest singular values hold, for k = 0, 1, ...
export function held(singular) {
  const total = singular.reduce((sum, x) => sum + x * x, 0);
  let sum = 0;
  return [0, ...singular.map((x) => { sum += x * x; return total ? sum / total : 0; })];
}

// How few directions hold a share of the squares.
export function rankFor(singular, share) {
  const shares = held(singular).slice(1);
  return Math.min(shares.length, shares.filter((value) => value < share * (1 - 1e-12)).length + 1);
}

// How many directions are used: the exponential of the entropy of the singular values' shares.
export function effectiveRank(singular) {
  const total = singular.reduce((sum, x) => sum + x, 0);
  if (!(total > 0)) return 0;
  return Math.exp(singular.reduce((sum, x) => sum - (x > 0 ? x / total * Math.log(x / total) : 0), 0));
}

// The first `rank` terms of left (rows x count) times right (count x columns).
export function product(left, right, count, columns, rank) {
  const rows = left.length / count;
  return Array.from({ length: rows * columns }, (_, i) => {
    const [r, c] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let k = 0; k < rank; k++) sum += left[r * count + k] * right[k * columns + c];
    return sum;
  });
}

// --- the page

const CHANGE = "change since the start";
const FEW = "its largest directions alone";
const MOST = 0.9; // the share of the squares that is asked for
const STYLE = `
.lc .ws-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc .ws-key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; }`;

const largest = (values) => Math.max(...values.map(Math.abs));

// A number beside an axis: short, however large or small.
const brief = (value) => (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)
  ? Number(value.toPrecision(2)).toExponential().replace("e+", "e") : show(value));
const beside = (y, left, values) => values.map((t) => label(left - 5, y(t) + 4, brief(t),
  { "text-anchor": "end", style: "fill: var(--lc-muted)" }));

function render({ model, el }) {
  const name = model.get("name");
  const w = frame({ model, el, title: `What training changes: ${name}` });
  w.root.prepend(h("style", {}, STYLE));
  const steps = model.get("steps");
  const losses = model.get("losses");
  const [rows, columns] = [model.get("rows"), model.get("columns")];
  const spectra = model.get("spectra");
  const rank = spectra[0].weights.length;
  const packed = model.get("changes");
  const first = numbersOf(model.get("start"));
  const changes = packed.map(numbersOf);
  const factors = packed.map(({ left, right }) => [numbersOf(left), numbersOf(right)]);
  const count = factors[0][0].length / rows.length;
  const ratios = spectra.map(({ change }) => ratio(change, spectra[0].weights));
  const shares = spectra.map(({ change }) => held(change));
  const noise = model.get("random");
  const now = () => model.get("checkpoint");
  const few = () => model.get("directions");
  // One scale of colours for the whole run, so that growth is seen.
  const deepest = {
    change: Math.max(...changes.map(largest)) || 1,
    weights: Math.max(...changes.map((change) => largest(change.map((x, i) => x + first[i])))) || 1,
  };

  function shown() {
    if (model.get("view") === CHANGE) return changes[now()];
    if (model.get("view") === FEW) return product(...factors[now()], count, columns.length, few());
    return changes[now()].map((x, i) => x + first[i]);
  }

  w.number("checkpoint", `checkpoint (0 to ${steps.length - 1})`);
  w.player({
    step: () => {
      w.put("checkpoint", (now() + 1) % steps.length); // after the last it begins again
      return now() < steps.length - 1;
    },
    reset: () => w.put("checkpoint", 0),
    perSecond: 1.5,
  });
  w.choice("view", "show");
  w.number("directions", "largest directions");

  // --- the matrix

  const drawMatrix = w.stage((svg, width, tall) => {
    const left = 34;
    const top = 20;
    const cell = [(width - left - 4) / columns.length, (tall - top - 4) / rows.length];
    const most = deepest[model.get("view") === "weights" ? "weights" : "change"];
    const values = shown();
    values.forEach((value, i) => {
      const [r, c] = [Math.floor(i / columns.length), i % columns.length];
      const [x, y] = [left + c * cell[0], top + r * cell[1]];
      const opacity = Math.sqrt(Math.min(1, Math.abs(value) / most)).toFixed(3); // small ones can be seen as well
      if (opacity < 0.02) return;
      const around = `M${x.toFixed(1)},${y.toFixed(1)}h${(cell[0] - 0.5).toFixed(1)}v${(cell[1] - 0.5).toFixed(1)}` +
        `h${(0.5 - cell[0]).toFixed(1)}z`;
      const hole = `M${(x + 0.34 * cell[0]).toFixed(1)},${(y + 0.34 * cell[1]).toFixed(1)}` +
        `h${(0.3 * cell[0]).toFixed(1)}v${(0.3 * cell[1]).toFixed(1)}h${(-0.3 * cell[0]).toFixed(1)}z`;
      svg.append(s("path", { d: value < 0 ? around + hole : around, "fill-rule": "evenodd", opacity,
        fill: value < 0 ? "var(--lc-1)" : "var(--lc-2)" }));
    });
    svg.append(s("rect", { x: left - 1, y: top - 1, width: width - left - 2, height: tall - top - 2, fill: "none",
      stroke: "var(--lc-line)" }));
    for (const c of [0, columns.length - 1]) {
      svg.append(label(left + (c + 0.5) * cell[0], 14, columns[c], { "text-anchor": c ? "end" : "start" }));
    }
    for (const r of [0, rows.length - 1]) {
      svg.append(label(left - 5, top + (r + 0.5) * cell[1] + 4, rows[r], { "text-anchor": "end" }));
    }
    return `${rows.length} rows by ${columns.length} columns at step ${steps[now()]}; the largest entry is ` +
      `${show(largest(values), 3)} in size, ${show(most, 3)} in the whole run`;
  }, { height: (width) => 24 + rows.length * clamp(width / columns.length, 9, 14), label: name });
  const sign = (mark, shape, words) => h("span", {}, h("span", { class: mark, "aria-hidden": "true" }, shape), words);
  const [m, n] = model.get("shape");
  const part = m > rows.length || n > columns.length
    ? `shown are ${rows.length} of ${m} rows and ${columns.length} of ${n} columns, evenly spread`
    : `${m} rows, ${n} columns`;
  w.stages.append(h("p", { class: "ws-key ws-small" }, sign("lc-2", "■", " positive, full cells"),
    sign("lc-1", "◘", " negative, cells with a hole"), h("span", {}, part)));
  w.stages.append(w.root.querySelector(".lc-status"));

  // --- the run: loss, and how far the matrix has moved

  const panel = (svg, area, values, title, kind) => {
    const top = Math.max(...values.filter(Number.isFinite), 0) * 1.08 || 1;
    const x = scale([steps[0], steps.at(-1)], [area[0], area[2]]);
    const y = scale([0, top], [area[3], area[1]]);
    const points = values.map((value, i) => [x(steps[i]), y(Number.isFinite(value) ? value : top)]);
    svg.append(axes({ x, y, box: area, xTicks: ticks(steps[0], steps.at(-1), 4).filter(Number.isInteger), yTicks: [],
      xTitle: "step", yTitle: title }),
    ...beside(y, area[0], ticks(0, top, 4)),
    line(points, { stroke: "currentColor", class: kind, "stroke-width": 2 }));
    points.forEach(([px, py], i) => svg.append(s("circle", { cx: px, cy: py, r: i === now() ? 7 : 3,
      fill: i === now() ? "var(--lc-text)" : "currentColor", class: kind })));
  };
  const drawRun = w.stage((svg, width, tall) => {
    const wide = width >= 480;
    const half = wide ? width / 2 : width;
    const low = wide ? tall : tall / 2;
    panel(svg, [42, 22, half - 14, low - 36], losses, "loss, nats per token", "lc-1");
    panel(svg, wide ? [half + 42, 22, width - 14, tall - 36] : [42, low + 22, width - 14, tall - 36], ratios,
      "|change| / |weights at the start|", "lc-2");
    return `the loss goes from ${show(losses[0], 3)} to ${show(losses.at(-1), 3)}, the change to ` +
      `${percent(ratios.at(-1))} of the size at the start; marked is step ${steps[now()]}, ` +
      `${show(losses[now()], 3)} and ${percent(ratios[now()])}`;
  }, { height: (width) => (width >= 480 ? 190 : 360), label: "loss and size of the change against step" });

  // --- how few directions hold how much

  const drawShares = w.stage((svg, width, tall) => {
    const area = [42, 22, width - 14, tall - 36];
    const x = scale([1, Math.max(2, rank)], [area[0], area[2]], { log: true });
    const y = scale([0, 100], [area[3], area[1]]);
    const curve = (values, attributes) => line(values.slice(1).map((value, k) => [x(k + 1), y(100 * value)]),
      { stroke: "currentColor", "stroke-width": 2, ...attributes });
    const here = shares[now()][few()];
    svg.append(axes({ x, y, box: area, xTicks: [1, 2, 5, 10, 20, 50, 100, 200].filter((k) => k <= rank),
      yTicks: [0, 25, 50, 75, 100], xTitle: "directions, the largest first", yTitle: "held, % of the squares" }),
    line([[x(few()), area[1]], [x(few()), area[3]]], { stroke: "var(--lc-line)" }),
    curve(held(noise), { class: "lc-3", "stroke-dasharray": "2 3" }),
    curve(held(spectra[now()].weights), { class: "lc-1", "stroke-dasharray": "7 4" }),
    curve(shares[now()], { class: "lc-2" }),
    s("circle", { cx: x(few()), cy: y(100 * here), r: 6, fill: "var(--lc-text)" }));
    return `the ${few()} largest of ${rank} hold ${percent(here)} of the change, ` +
      `${percent(held(spectra[now()].weights)[few()])} of the weights, ${percent(held(noise)[few()])} of a random ` +
      "matrix";
  }, { height: 210, label: "share of the squared singular values" });
  w.stages.append(h("p", { class: "ws-key ws-small" }, sign("lc-2", "━━", " change since the start"),
    sign("lc-1", "╍╍", " the weights themselves"), sign("lc-3", "┈┈", " a random matrix of this shape"),
    h("span", {}, "● the directions chosen above")));

  // --- tables and words

  w.table("Every checkpoint")({
    columns: ["step", "loss", "|change| / |start|", `directions for ${100 * MOST} % of the change`,
      "effective rank of the change", "effective rank of the weights"],
    rows: steps.map((step, i) => [String(step), losses[i], percent(ratios[i]),
      String(ratios[i] ? rankFor(spectra[i].change, MOST) : 0), effectiveRank(spectra[i].change),
      effectiveRank(spectra[i].weights)]),
  });
  const entries = w.table("The cells of the picture");
  const details = w.root.querySelector(".lc-tables").lastElementChild;
  function fillEntries() { // hundreds of cells: only where they are seen
    if (!details.open) return;
    const values = shown();
    entries({ columns: ["row", ...columns.map(String)], rows: rows.map((row, r) => [String(row),
      ...values.slice(r * columns.length, (r + 1) * columns.length).map((x) => show(x, 3))]) });
  }
  details.addEventListener("toggle", fillEntries);

  function sentence() {
    const i = now();
    const head = `Step ${steps[i]}: loss ${show(losses[i], 3)} nats per token.`;
    if (!ratios[i]) return `${head} Nothing has moved yet: the change is all zeros.`;
    const moved = Number.isFinite(ratios[i])
      ? `The matrix has moved by ${percent(ratios[i])} of its size at the start.`
      : "The matrix was all zeros at the start.";
    const need = [spectra[i].change, spectra[i].weights, noise].map((singular) => rankFor(singular, MOST));
    return `${head} ${moved} ${few() === 1 ? "The largest direction" : `The ${few()} largest directions`} of ${rank} ` +
      `${few() === 1 ? "holds" : "hold"} ${percent(shares[i][few()])} of the change (of the sum of its squares). ` +
      `For ${100 * MOST} % the change needs ${plural(need[0], "direction")}, the weights ${need[1]}, a random matrix ${need[2]}.`;
  }

  function redraw() {
    drawMatrix();
    drawRun();
    drawShares();
    fillEntries();
    w.say(sentence());
  }
  w.on(["checkpoint", "view", "directions"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
