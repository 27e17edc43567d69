import { clamp, frame, h, label, line, s, scale, show, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.parallel.context_parallel by the tests

const upTo = (count) => Array.from({ length: count }, (_, i) => i);
const mod = (a, n) => ((a % n) + n) % n;

// Both layouts are cut into 2n chunks here: a block is two neighbours.
export const owner = (layout, n, chunk) =>
  (layout === "blocks" ? Math.floor(chunk / 2) : Math.min(chunk, 2 * n - 1 - chunk));

// Whose keys a rank has in a step of the ring, counted from 0.
export const source = (n, rank, step) => mod(rank - step, n);

// The cells of the triangle: chunk of queries, chunk of keys, the rank that has the queries, and the step in which
// the keys are with it.
export const cells = (layout, n) => upTo(2 * n).flatMap((query) => upTo(query + 1).map((key) => {
  const rank = owner(layout, n, query);
  return { query, key, rank, step: mod(rank - owner(layout, n, key), n) };
}));

// Pairs of query and key that every rank (row) computes in every step (column); `length` is a multiple of 2n.
export function workPairs(length, n, layout) {
  const chunk = length / (2 * n);
  const work = upTo(n).map(() => upTo(n).map(() => 0));
  for (const { query, key, rank, step } of cells(layout, n)) {
    work[rank][step] += query === key ? chunk * (chunk + 1) / 2 : chunk * chunk;
  }
  return work;
}

// A step takes as long as its busiest rank.
export const stepTimes = (work) => upTo(work.length).map((step) => Math.max(...work.map((row) => row[step])));

// --- the page

const TOKENS = 8_400; // a multiple of 2n for 2 to 8 ranks
const NAMES = { blocks: "blocks", zigzag: "zig-zag" };
const ROW = 22;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const mark = (rank) => `lc-rank-${rank % 6}`;
const middle = { "text-anchor": "middle" };

function render({ model, el }) {
  const w = frame({ model, el, title: "Keys that go round a ring of ranks" });
  w.root.prepend(h("style", {}, ".lc .kr-small { font-size: 0.85rem; color: var(--lc-muted); }"));
  const n = () => model.get("num_ranks");
  const layout = () => model.get("cut");
  const step = () => clamp(model.get("step"), 0, n());
  // In units: 1 is all queries of a rank with all keys of a rank.
  const workOf = (name) => workPairs(TOKENS, n(), name).map((row) => row.map((pairs) => pairs / (TOKENS / n()) ** 2));
  const work = () => workOf(layout());
  const units = (value) => `${show(value, 3)} ${show(value, 3) === "1" ? "unit" : "units"}`;

  w.choice("cut", "sequence cut in", { labels: Object.values(NAMES) });
  w.number("num_ranks", "ranks n");
  const steps = w.number("step", "steps done");
  w.player({
    perSecond: 0.7,
    step: () => {
      w.put("step", step() < n() ? step() + 1 : 0); // the end, then anew
      return step() < n();
    },
    reset: () => w.put("step", 0),
  });

  // There are as many steps as ranks: the slider ends there.
  function follow() {
    model.get("limits").step.high = steps.range.max = steps.field.max = n();
    steps.range.value = model.get("step");
  }

  // Rows are chunks of queries, columns chunks of keys.
  function drawTriangle(svg, left, top, across) {
    const side = across / (2 * n());
    const name = { style: side < 15 ? "font-size: 0.7rem" : null };
    for (const { query, key, rank, step: at } of cells(layout(), n())) {
      const [x, y] = [left + key * side, top + query * side];
      const corners = [[x, y], ...(query === key ? [] : [[x + side, y]]), [x + side, y + side], [x, y + side]];
      const now = at === step() - 1;
      svg.append(s("polygon", { "data-key": `cell ${query} ${key}`, class: mark(rank), fill: "currentColor",
        "fill-opacity": now ? 1 : at < step() ? 0.45 : 0.12, points: corners.map((corner) => corner.join()).join(" "),
        stroke: now ? "var(--lc-text)" : "var(--lc-line)", "stroke-width": now ? 1.2 : 0.6 }));
    }
    for (const c of upTo(2 * n())) {
      const who = owner(layout(), n(), c);
      svg.append(
        label(left - 6, top + (c + 0.5) * side + 4, `rank ${who}`, { "text-anchor": "end", ...name }),
        label(left + (c + 0.5) * side, top + across + 15, who, { ...middle, ...name }));
    }
    svg.append(label(left + across / 2, top + across + 32, "keys, by the rank that had them first", middle),
      label(2, top - 10, "queries, by rank"));
  }

  // Ranks on a ring, and outside of it the keys that each has now.
  function drawRing(svg, cx, cy, r) {
    const turned = Math.max(0, step() - 1);
    svg.append(s("circle", { cx, cy, r, fill: "none", stroke: "var(--lc-line)" }),
      label(cx, cy - 4, "keys go round", middle), label(cx, cy + 14, "clockwise", middle));
    for (const k of upTo(n())) {
      const angle = 2 * Math.PI * k / n() - Math.PI / 2;
      const reads = step() > 0 && work()[k][step() - 1] > 0;
      svg.append(s("g", { "data-key": `rank ${k}`,
        transform: `translate(${cx + r * Math.cos(angle)} ${cy + r * Math.sin(angle)})` },
      s("circle", { r: 15, fill: "currentColor", class: mark(k) }),
      s("circle", { r: 18.5, fill: "none", stroke: "var(--lc-text)", "stroke-width": 2, opacity: reads ? 1 : 0 }),
      label(0, 4, k, { ...middle, style: "fill: var(--lc-on); font-weight: 700" })));
      const degrees = 360 * (k + turned) / n();
      svg.append(s("g", { "data-key": `keys ${k}`, transform: `rotate(${degrees} ${cx} ${cy})` },
        s("g", { transform: `translate(${cx} ${cy - r - 41}) rotate(${-degrees})` },
          s("rect", { x: -17, y: -12, width: 34, height: 24, rx: 5, fill: "var(--lc-back)", stroke: "currentColor",
            "stroke-width": 3, class: mark(k) }),
          label(0, 4, `K${k}`, middle))));
    }
  }

  const beside = (width) => width > 600;
  const across = (width) => (beside(width) ? Math.min(340, width * 0.5 - 70) : Math.min(width - 66, 340));
  const drawReads = w.stage((svg, width, high) => {
    const size = across(width);
    drawTriangle(svg, 58, 26, size);
    if (beside(width)) drawRing(svg, (58 + size + width) / 2, high / 2, 80);
    else drawRing(svg, width / 2, size + 204, 80);
    return pictured();
  }, { height: (width) => Math.max(across(width) + 66, beside(width) ? 280 : across(width) + 344),
    label: "triangle of queries and keys, and the ring", lasts: 3 });
  w.stages.append(h("p", { class: "kr-small" }, "Full colour: read in this step. Half: read before. Pale: to come. " +
    "On the ring, K2 are the keys and values that rank 2 had first; a rank with a frame reads."),
  w.root.querySelector(".lc-status")); // beside what it is about

  const drawTime = w.stage((svg, width) => {
    const ends = Object.keys(NAMES).map((name) => sum(stepTimes(workOf(name))));
    const times = stepTimes(work());
    const x = scale([0, Math.max(...ends)], [58, width - 8]);
    const bottom = 30 + ROW * n();
    upTo(n()).forEach((r) => svg.append(label(50, 42 + ROW * r, `rank ${r}`, { "text-anchor": "end" })));
    let begin = 0;
    times.forEach((long, at) => {
      const done = at < step();
      work().forEach((row, r) => svg.append(s("rect", { "data-key": `bar ${r} ${at}`, x: x(begin) + 1, y: 32 + ROW * r,
        width: Math.max(0, x(begin + row[at]) - x(begin) - 2), height: ROW - 6, class: mark(r), fill: "currentColor",
        "fill-opacity": done ? 1 : 0.12 })));
      svg.append(line([[x(begin), 28], [x(begin), bottom]], { stroke: "var(--lc-line)" }),
        label(x(begin + long / 2), bottom + 15, at + 1, { ...middle, style: at === step() - 1 ? "font-weight: 700" : null }));
      begin += long;
    });
    Object.keys(NAMES).forEach((name, i) => {
      svg.append(line([[x(ends[i]), 22], [x(ends[i]), bottom]], { stroke: "var(--lc-text)", "stroke-dasharray": "5 3",
        "stroke-width": name === layout() ? 2 : 1 }),
      label(x(ends[i]), 15, `${NAMES[name]} ${show(ends[i], 3)}`, { "text-anchor": "end",
        style: name === layout() ? "font-weight: 700" : null }));
    });
    svg.append(label(58, bottom + 32, "time; below each step its number"));
    return `${work().map((row, r) => `rank ${r} has computed ${units(sum(row.slice(0, step())))}`).join(", ")}; ` +
      `in all, ${Object.values(NAMES).map((name, i) => `${name} takes ${units(ends[i])}`).join(" and ")}`;
  }, { height: () => 70 + ROW * n(), label: "bars of every rank's work in every step" });
  w.stages.append(h("p", { class: "kr-small" }, "Unit: the time for all queries of a rank with all keys of a rank. " +
    "The next step begins when the busiest rank is done; messages take no time here."));
  const table = w.table("Work of every rank in every step, in units");

  // --- in words

  const pictured = () => (step() === 0 ? "nothing was read yet" : upTo(n()).map((r) => {
    const amount = work()[r][step() - 1];
    const whose = source(n(), r, step() - 1);
    return `rank ${r} has the keys of rank ${whose} and ${amount ? `reads, ${units(amount)}` : "may read none of them"}`;
  }).join("; "));

  function sentence() {
    if (!step()) return "Every rank has its own queries, keys and values, and has read nothing yet. Step or play.";
    const amounts = work().map((row) => row[step() - 1]);
    const times = stepTimes(work());
    const idle = upTo(n()).filter((r) => !amounts[r]);
    const whose = step() === 1 ? "every rank reads its own keys"
      : `every rank has the keys of the rank ${step() - 1} before it`;
    const waits = idle.length ? ` ${idle.length > 1 ? `Ranks ${idle.join(", ")} have` : `Rank ${idle[0]} has`} ` +
      "nothing to read: these keys come later than all queries there." : "";
    const equal = Math.max(...amounts) - Math.min(...amounts) < 1e-9;
    const busiest = equal ? `All ranks have equal work: ${units(times[step() - 1])}.`
      : `The step takes as long as its busiest rank: ${units(times[step() - 1])}.`;
    const so = sum(times.slice(0, step()));
    const spent = sum(work().map((row) => sum(row.slice(0, step()))));
    return `Step ${step()} of ${n()}: ${whose}.${waits} ${busiest} ` +
      `${step() === n() ? "Done in" : "So far"} ${units(so)}; of the ranks’ time ` +
      `${Math.round(100 * (1 - spent / (n() * so)))} % was waiting.`;
  }

  // A press on a cell of the triangle goes to the step in which it is read.
  drawReads.picture.addEventListener("click", (event) => {
    const [px, py] = within(drawReads.picture, event);
    const side = across(drawReads.picture.viewBox.baseVal.width) / (2 * n());
    const [key, query] = [Math.floor((px - 58) / side), Math.floor((py - 26) / side)];
    const found = cells(layout(), n()).find((cell) => cell.key === key && cell.query === query);
    if (found) w.put("step", found.step + 1);
  });

  function redraw() {
    follow();
    if (step() !== model.get("step")) { w.put("step", step()); return; }
    drawReads();
    drawTime();
    const times = stepTimes(work());
    table({ columns: ["", ...times.map((_, at) => `step ${at + 1}`), "in all"],
      rows: [...work().map((row, r) => [`rank ${r}`, ...row.map((value) => show(value, 3)), show(sum(row), 3)]),
        ["time", ...times.map((value) => show(value, 3)), show(sum(times), 3)]] });
    w.say(sentence());
  }
  w.on(["cut", "num_ranks", "step"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
