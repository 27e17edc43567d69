import { frame, h, hatch, label, line, listed, percent, plural, s, scale, show, ticks, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.real.serve_counts by the tests

const upTo = (count) => Array.from({ length: count }, (_, i) => i);

// Every step of serving requests, each [prompt, answer, arrival]: the request in each place of the batch, the cells of
// those that compute, the pages of each in a place, who was preempted, and who waits.
export function serve(requests, { maxRows, numPages, pageSize, continuous, shared }) {
  const [made, rows, tables, steps] = [requests.map(() => 0), Array(maxRows).fill(null), {}, []];
  const ended = (i) => made[i] === requests[i][1];
  const cellsOf = (i, count) => requests[i][0] + count - 1; // the last token is not read again
  const inPlace = () => rows.filter((i) => i !== null);
  const missing = (i) => Math.ceil(cellsOf(i, made[i] + 1) / pageSize) - tables[i].length;
  const release = (i) => delete tables[i] && rows.splice(rows.indexOf(i), 1, null);
  const free = () => {
    const held = new Set(Object.values(tables).flat());
    return upTo(numPages).filter((page) => !held.has(page));
  };
  while (requests.some((_, i) => !ended(i))) {
    if (continuous || inPlace().every(ended)) inPlace().filter(ended).forEach(release);
    const running = inPlace().filter((i) => !ended(i)).sort((a, b) => a - b);
    const preempted = [];
    for (const i of running) {
      while (tables[i] && missing(i) > 0) {
        if (free().length) tables[i].push(free()[0]);
        else release(preempted[preempted.push(running.findLast((each) => tables[each])) - 1]);
      }
    }
    const waiting = upTo(requests.length).filter((i) => requests[i][2] <= steps.length && !tables[i] && !ended(i));
    if (continuous || !inPlace().length) {
      while (waiting.length && rows.includes(null)) {
        const [i] = waiting;
        tables[i] = (Object.values(tables)[0] ?? []).slice(0, Math.floor(shared / pageSize));
        if (missing(i) > free().length && delete tables[i]) break;
        rows[rows.indexOf(null)] = waiting.shift();
        tables[i].push(...free().slice(0, missing(i)));
      }
    }
    const computing = inPlace().filter((i) => !ended(i));
    const cells = Object.fromEntries(computing.map((i) => [i, cellsOf(i, ++made[i])]));
    steps.push({ rows: [...rows], cells, tables: structuredClone(tables), preempted, waiting });
  }
  return steps;
}

// How many cells of each page are used.
export const filled = ({ cells, tables }, pageSize) => Object.fromEntries(Object.entries(cells).flatMap(([i, used]) =>
  tables[i].map((page, place) => [page, Math.min(pageSize, used - place * pageSize)])));

// What steps cost together.
export function count(steps, pageSize) {
  const sum = (of) => steps.reduce((total, step) => total + (Object.keys(step.cells).length ? of(step) : 0), 0);
  return {
    steps: sum(() => 1), places: sum(({ rows }) => rows.length), tokens: sum(({ cells }) => Object.keys(cells).length),
    held: pageSize * sum(({ tables }) => new Set(Object.values(tables).flat()).size),
    used: sum((step) => Object.values(filled(step, pageSize)).reduce((a, b) => a + b, 0)),
    preemptions: steps.reduce((total, { preempted }) => total + preempted.length, 0),
  };
}

const shares = ({ steps, places, tokens, held, used, preemptions }) => ({ steps, preemptions, pace: tokens / (steps || 1),
  idle: 1 - tokens / places || 0, empty: 1 - used / held || 0 });

// --- the page

const STYLE = `
.lc .sb-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc svg .sb-11, .lc svg .sb-muted { font-size: 11px; }
.lc svg .sb-muted { fill: var(--lc-muted); }
.lc svg .sb-on { fill: var(--lc-on); font-size: 11px; }
.lc svg .sb-big { font-size: 20px; font-weight: 700; }`;
const [LEFT, LANE, WAITING, LANES] = [52, 20, 60, 78]; // of the batch
const [CELLS, TALL] = [32, 24]; // of a line of memory
const mark = (i) => `lc-${i % 6 + 1}`;
const middle = { "text-anchor": "middle" };
const owners = (tables, page) => Object.keys(tables).filter((i) => tables[i].includes(page)).map(Number);

function render({ model, el }) {
  const w = frame({ model, el, title: "Many requests, one model", primary: ["batching", "memory", "pool"] });
  w.root.prepend(h("style", {}, STYLE));
  const [requests, maxRows, reserved, beginning] = ["requests", "max_rows", "reserved", "beginning"].map((name) => model.get(name));
  let [total, atEnd, busy, all, steps, pageSize] = [0, false, false, [], [], 1];
  const [lanes, done, memory] = [upTo(maxRows), LANES + maxRows * LANE + 32, LANES + maxRows * LANE + 56];
  const idle = uniqueId(); // of the stripes

  w.choice("batching", "batching");
  w.choice("memory", "memory", { labels: [`reserved: ${reserved} cells a row`, "pages, as needed"] });
  w.number("pool", "cells of memory");
  w.choice("page_size", "cells of a page");
  w.toggle("shared", `all prompts begin with the same ${beginning} tokens`);
  const slider = w.number("step", "step");
  w.player({
    perSecond: 4,
    step: () => {
      w.put("step", model.get("step") < total ? model.get("step") + 1 : 0); // the end, then anew
      return model.get("step") < total;
    },
    reset: () => w.put("step", 0),
  });

  // Both ways of batching with both of memory, and which of them is shown.
  function follow() {
    const [pool, shared] = [model.get("pool"), model.get("shared") ? beginning : 0];
    const { batching, memory: memories } = model.get("limits");
    all = batching.options.flatMap((way) => memories.options.map((kept) => {
      const size = kept === "reserved" ? reserved : Number(model.get("page_size"));
      const found = serve(requests, { maxRows, numPages: Math.floor(pool / size), pageSize: size, continuous: way === "continuous", shared });
      return { way, kept, size, ...shares(count(found, size)), steps: found };
    }));
    ({ steps, size: pageSize } = all.find(({ way, kept }) => way === model.get("batching") && kept === model.get("memory")));
    total = steps.length;
    model.get("limits").step.high = slider.range.max = slider.field.max = total;
    slider.range.value = model.get("step");
  }

  // What stands where now.
  function state() {
    const [at, past] = [model.get("step"), steps.slice(0, model.get("step"))];
    const last = past.at(-1) ?? { rows: lanes.map(() => null), cells: {}, tables: {}, preempted: [],
      waiting: upTo(requests.length).filter((i) => requests[i][2] === 0) };
    const over = upTo(requests.length).filter((i) => past.filter(({ cells }) => i in cells).length === requests[i][1]);
    return { at, past, last, over, before: past.at(-2)?.tables ?? {}, ...shares(count(past, pageSize)) };
  }

  // What a place of the batch has done: [request, computed, from, to].
  function runsOf(past, place) {
    const runs = [];
    past.forEach(({ rows, cells }, t) => {
      const [i, computed, before] = [rows[place], rows[place] in cells, runs.at(-1)];
      if (before && before.i === i && before.computed === computed) before.to = t + 1;
      else runs.push({ i, computed, from: t, to: t + 1 });
    });
    return runs;
  }

  // --- the picture

  function drawBatch(svg, width, { at, past, last, over }) {
    const radius = width > 500 ? 8.5 : 7.5;
    const longest = Math.max(...all.map((one) => one.steps.length));
    const x = scale([0, longest], [LEFT, width - 2 * radius - 4]);
    const y = (place) => LANES + place * LANE;
    svg.append(label(0, WAITING + 4, "waiting"), label(0, done + 4, "done"));
    for (const place of lanes) {
      svg.append(label(0, y(place) + 14, `row ${place + 1}`, { class: "sb-muted" }),
        s("line", { x1: LEFT, x2: x(longest), y1: y(place) + LANE - 1, y2: y(place) + LANE - 1, stroke: "var(--lc-line)", "stroke-width": 0.5 }));
      for (const { i, computed, from, to } of runsOf(past, place)) {
        const box = { x: x(from), y: y(place) + 1, width: Math.max(0.5, x(to) - x(from) - 0.8), height: LANE - 3 };
        svg.append(s("g", { "data-key": `run ${place} ${from}` },
          s("rect", { ...box, ...(computed ? { fill: "currentColor" } : { fill: `url(#${idle})`, stroke: i === null ? "none" : "currentColor" }),
            class: i === null ? null : mark(i) }),
          computed && box.width > 7 * `${i + 1}`.length + 3 ? label(box.x + box.width / 2, y(place) + 14, i + 1, { ...middle, class: "sb-on" }) : null));
      }
      past.forEach(({ preempted }, t) => {
        if (preempted.includes(past[t - 1]?.rows[place])) {
          svg.append(line([[x(t), y(place)], [x(t), y(place) + LANE - 1]], { stroke: "var(--lc-text)", "stroke-width": 3 }));
        }
      });
    }
    svg.append(line([[x(total), LANES - 2], [x(total), y(maxRows)]], { stroke: "var(--lc-text)", "stroke-dasharray": "3 3" }),
      ...ticks(0, longest, width > 500 ? 8 : 4).map((t) => label(x(t), y(maxRows) + 12, t ? show(t) : "step 0", { ...middle, class: "sb-muted" })));
    // Every request where it is: it waits, is in a place, or is done.
    const pitch = Math.min(2 * radius + 2, (width - LEFT - radius) / requests.length);
    for (const i of upTo(requests.length).reverse()) {
      const [place, waits] = [at < total ? last.rows.indexOf(i) : -1, last.waiting.indexOf(i)];
      if (place < 0 && waits < 0 && !over.includes(i)) continue;
      const [cx, cy] = place >= 0 ? [x(at) + radius + 1, y(place) + LANE / 2]
        : [LEFT + radius + pitch * (waits < 0 ? i : waits), waits < 0 ? done : WAITING];
      const hollow = place >= 0 && !(i in last.cells); // it has ended, and waits for its batch
      svg.append(s("g", { "data-key": `request ${i}`, transform: `translate(${cx} ${cy})` },
        s("circle", { r: radius - 0.5, fill: hollow ? "var(--lc-back)" : "currentColor", stroke: "currentColor", "stroke-width": 1.5, class: mark(i) }),
        label(0, 4, i + 1, { ...middle, class: hollow ? "sb-11" : "sb-on" })));
    }
  }

  function drawMemory(svg, width, { last, before }) {
    const [cell, fill] = [(width - 4) / CELLS, filled(last, pageSize)];
    const pages = upTo(Math.floor(model.get("pool") / pageSize));
    const { held, used } = count([last], pageSize);
    svg.append(label(0, memory + 4, `memory: ${held} of ${pages.length * pageSize} cells held, ${used} in use`));
    for (const page of pages) {
      const [row, column] = [Math.floor(page * pageSize / CELLS), page * pageSize % CELLS];
      const [x, y, wide] = [2 + column * cell, memory + 12 + row * TALL, pageSize * cell - 1.5];
      const [now, old] = [owners(last.tables, page), owners(before, page)];
      const long = Math.max(0, (fill[page] ?? 0) * cell - 1.5);
      const name = now.length > 1 ? "all" : now.length ? `${now[0] + 1}` : "";
      const passed = now.length && old.length && !old.some((i) => now.includes(i));
      svg.append(s("g", { "data-key": `page ${page}`, class: now.length === 1 ? mark(now[0]) : null },
        s("rect", { x, y, width: long, height: TALL - 4, fill: now.length > 1 ? "var(--lc-muted)" : "currentColor" }),
        s("rect", { x, y, width: wide, height: TALL - 4, fill: "none", "stroke-width": passed ? 2.5 : 1,
          stroke: passed ? "var(--lc-text)" : now.length ? "currentColor" : "var(--lc-line)" }),
        now.length && long < wide - 1 ? s("rect", { x: x + long, y, width: wide - long, height: TALL - 4, fill: `url(#${idle})` }) : null,
        name && (long || wide) > 6.5 * name.length + 2 ? label(x + (long || wide) / 2, y + 14, name, { ...middle, class: long ? "sb-on" : "sb-11" }) : null));
    }
  }

  const draw = w.stage((svg, width) => {
    const now = state();
    svg.append(hatch(idle));
    [[now.at, `of ${total} steps`], [show(now.pace, 2), "tokens a step"],
      [percent(now.idle, 2), "places idle"], [percent(now.empty, 2), "held, not used"]].forEach(([big, small], i) =>
      svg.append(label(width * i / 4, 20, big, { class: "sb-big" }), label(width * i / 4, 36, small, { class: "sb-muted" })));
    drawBatch(svg, width, now);
    drawMemory(svg, width, now);
    return sentence(now);
  }, { height: () => memory + 14 + TALL * Math.ceil(model.get("pool") / CELLS), label: "rows of the batch, and the memory" });
  w.stages.append(h("p", { class: "sb-small" }, `${requests.length} requests with lengths made for this picture, ${maxRows} rows at most. ` +
    "Hatched: an idle place, or a cell that is held and of no use. A ring: an answer that has ended and waits for its batch. Dashed: " +
    "the end of this way; all four have one scale. Bold frame: a page that went to another request at once. Bar: a row that was preempted."));
  const numbers = w.table("The four ways, to their end");

  // --- in words

  function sentence({ at, last, over, pace, idle: unused, empty, before }) {
    const [computing, stay] = [last.rows.filter((i) => i in last.cells).length, last.rows.filter((i) => i !== null && !(i in last.cells)).length];
    const taken = Object.keys(last.tables).filter((i) => !(i in before)).map((i) => [i, Object.keys(before).filter((j) =>
      !(j in last.tables) && before[j].some((page) => last.tables[i].includes(page)))]).filter(([, from]) => from.length);
    const named = (some) => listed(some.map((i) => `${Number(i) + 1}`));
    return `After ${at} of ${total} steps, ${model.get("batching")} batching and ${model.get("memory")} memory: ` +
      (at < total ? `${plural(computing, "row computes", "rows compute")}${stay ? `, ${stay} ended and wait${stay === 1 ? "s" : ""} for the batch` : ""}, ` +
        `${plural(last.waiting.length, "request waits", "requests wait")}, ${over.length} of ${requests.length} are done. ` : "all are done. ") +
      (last.preempted.length ? `The memory is full: request ${named(last.preempted)} gives its pages back and waits again. ` : "") +
      taken.map(([i, from]) => `Request ${named([i])} takes pages that ${named(from)} left. `).join("") +
      (at ? `So far ${show(pace, 3)} tokens a step, ${percent(unused)} of the places idle and ${percent(empty)} of the held cells empty.` : "");
  }

  function redraw() {
    draw();
    numbers(() => ({ columns: ["batching, memory", "steps", "tokens a step", "places idle", "held cells empty", "preempted"],
      rows: all.map((one) => [`${one.way}, ${one.kept}`, one.steps.length, show(one.pace, 3), percent(one.idle), percent(one.empty), one.preemptions]) }));
    w.say(sentence(state()));
    atEnd = model.get("step") >= total;
  }

  // What was at its end is at its end in the new way, too.
  function renew() {
    follow();
    busy = true;
    if (atEnd || model.get("step") > total) w.put("step", total);
    busy = false;
    redraw();
  }
  w.on(["batching", "memory", "pool", "page_size", "shared"], renew);
  w.on(["step"], () => (model.get("step") > total ? w.putNumber("step", "step", model.get("step")) : busy || redraw()));
  renew();
  return w.destroy;
}

export default { render };
