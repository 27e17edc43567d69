import { frame, h, hatch, label, percent, s, scale, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.model.attention by the tests

// The key/value head that a query head reads.
export const groupOf = (head, { heads, kvHeads }) => Math.floor(head / (heads / kvHeads));

export function mayLook(query, key, { mask, window }) {
  return mask === "none" || (key <= query && (mask === "causal" || query - key < window));
}

// q · k for every pair of positions; `queries` holds T x H x K numbers, `keys` T x G x K.
export function dots(queries, keys, shape, head) {
  const { length, heads, kvHeads, size } = shape;
  const group = groupOf(head, shape);
  return Array.from({ length }, (_, t) => Array.from({ length }, (__, i) => {
    const q = (t * heads + head) * size;
    const k = (i * kvHeads + group) * size;
    let sum = 0;
    for (let c = 0; c < size; c++) sum += queries[q + c] * keys[k + c];
    return sum;
  }));
}

// The softmax of some scores; a score of minus infinity gets nothing.
export function softmax(scores) {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((all, power) => all + power, 0);
  return powers.map((power) => power / sum);
}

// What every position reads: T rows of T shares, each row with the sum 1.
export function weights(queries, keys, shape, head, { mask, window, scaled }) {
  const divisor = scaled ? Math.sqrt(shape.size) : 1;
  return dots(queries, keys, shape, head).map((row, t) => softmax(row.map((dot, i) =>
    (mayLook(t, i, { mask, window }) ? dot / divisor : -Infinity))));
}

// Over how many positions a row is spread: e to its entropy; n where n have equal shares.
export const spread = (row) => Math.exp(-row.reduce((sum, w) => sum + (w > 0 ? w * Math.log(w) : 0), 0));

// The mean share of the token before, of the first token and of the token itself.  Rows 0 and 1 are left
// out: there two of the three are the same token.
export function habits(map) {
  const rows = map.slice(2);
  const mean = (pick) => rows.reduce((sum, row, i) => sum + row[pick(i + 2)], 0) / rows.length;
  return { before: mean((t) => t - 1), first: mean(() => 0), itself: mean((t) => t) };
}

// The places of the largest shares of a row, the largest first; what is 0 is left out.
export const strongest = (row, count) => row.map((_, i) => i).filter((i) => row[i] > 0)
  .sort((a, b) => row[b] - row[a] || a - b).slice(0, count);

// --- the page

const STYLE = `
.lc .am-heads { display: flex; flex-wrap: wrap; gap: 0.5rem; margin: 0.6rem 0; align-items: stretch; }
.lc .am-group { border: 1px solid var(--lc-line); border-radius: 0.3rem; padding: 0.2rem 0.4rem 0.4rem; }
.lc .am-group p { margin: 0 0 0.2rem; }
.lc .am-now { border: 2px solid var(--lc-text); }
.lc .am-group div { display: flex; flex-wrap: wrap; gap: 0.3rem; }
.lc .am-group button { padding: 0.2rem; display: grid; justify-items: center; border-width: 2px; }
.lc .am-group button[aria-pressed="true"] {
  background: var(--lc-back); color: var(--lc-text); border: 4px solid var(--lc-2); padding: calc(0.2rem - 2px);
  font-weight: 700;
}`;
const MASKS = { causal: "causal: itself and before", window: "sliding window", none: "none: all positions" };
const THUMB = 54;
const BARS = 112;
const NAMES = 92; // room for a token's name, turned upright, and for its key and value
const PARTS = ["query", "scores", "shares", "values"]; // what the picture has come to, for the chosen row
const SHADES = 8; // of a thumbnail
const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍" };

const visible = (token) => token.replace(/[ \n\t\r]/g, (c) => INVISIBLE[c]) || "(empty)";
// Shares of a few hundredths must show beside one of a half: ink goes with the square root.
const ink = (share) => Math.sqrt(share);

function render({ model, el }) {
  const w = frame({ model, el, title: "Who reads whom" });
  w.root.prepend(h("style", {}, STYLE));
  const tokens = model.get("tokens");
  const unit = 10 ** model.get("decimals");
  const real = (layers) => layers.map((numbers) => numbers.map((n) => n / unit));
  const queries = real(model.get("query_numbers"));
  const keys = real(model.get("key_numbers"));
  const shape = {
    length: tokens.length, heads: model.get("num_heads"), kvHeads: model.get("num_kv_heads"),
    size: model.get("head_size"),
  };
  const names = tokens.map(visible);
  const short = names.map((name) => (name.length > 8 ? `${name.slice(0, 7)}…` : name));
  const word = (i) => `“${names[i]}” (${i})`;
  const many = (n) => `${show(n, 2)} position${n < 1.05 ? "" : "s"}`;
  const layerAt = () => model.get("layer") - 1; // layers are counted from 1
  const of = (layer, head, scaled) => weights(queries[layer], keys[layer], shape, head,
    { mask: model.get("mask"), window: model.get("window"), scaled });
  const looks = (query, key) => mayLook(query, key, { mask: model.get("mask"), window: model.get("window") });

  const field = (name, title) => w.number(name, title).field.parentElement;
  field("layer", "layer").style.display = queries.length > 1 ? "" : "none";
  field("row", "position that reads");
  w.choice("mask", "mask", { options: Object.keys(MASKS), labels: Object.values(MASKS) });
  const windowField = field("window", "window: positions seen");
  w.toggle("scaled", "divide scores by √K");

  // The heads, in the groups that share one key/value head; a press chooses one.
  const gallery = h("div", { class: "am-heads" });
  w.stages.append(h("p", {}, "Query heads of this layer, in groups that share one key/value head:"), gallery);
  const thumbs = [];
  const groups = Array.from({ length: shape.kvHeads }, (_, group) => {
    const inside = h("div");
    const box = h("div", { class: "am-group", role: "group", "aria-label": `key/value head ${group}` },
      h("p", {}, `key/value head ${group}`), inside);
    for (let head = 0; head < shape.heads; head++) {
      if (groupOf(head, shape) !== group) continue;
      const picture = s("svg", { width: THUMB, height: THUMB, "aria-hidden": "true",
        viewBox: `0 0 ${shape.length} ${shape.length}` });
      const button = w.button(`head ${head}`, () => w.put("head", head), { into: inside });
      button.prepend(picture);
      thumbs.push({ button, picture });
    }
    gallery.append(box);
    return box;
  });
  const inGroup = (group) => thumbs.map((_, head) => head).filter((head) => groupOf(head, shape) === group);
  const next = w.button("Next head with the same keys", () => {
    const mates = inGroup(groupOf(model.get("head"), shape));
    w.put("head", mates[(mates.indexOf(model.get("head")) + 1) % mates.length]);
  }, { into: w.stages });
  next.disabled = shape.heads === shape.kvHeads;

  let map = [];
  let others = {}; // the same head with the other choice of scale
  let scores = []; // of the chosen row
  let place = null; // where the map lies in the picture
  let drawn = 3; // the part that was drawn last
  let went = false; // from the part before to this one
  const part = () => PARTS.indexOf(model.get("shown"));
  // The row asks, step by step; from the end it begins anew.
  w.player({
    perSecond: 0.6,
    longest: PARTS.length,
    step: () => {
      w.put("shown", PARTS[(part() + 1) % PARTS.length]);
      return part() < PARTS.length - 1;
    },
    reset: () => w.put("shown", PARTS[0]),
  });

  // One path for each shade: a picture of few elements, drawn for every head.
  function fillThumb({ picture, button }, shares, pressed) {
    const paths = Array.from({ length: SHADES + 1 }, () => "");
    shares.forEach((row, t) => row.forEach((share, i) => {
      paths[Math.round(SHADES * ink(share))] += `M${i} ${t}h1v1h-1z`;
    }));
    picture.replaceChildren(
      ...paths.map((d, shade) => shade && d && s("path", { d, fill: "currentColor", opacity: shade / SHADES }))
        .filter(Boolean),
      s("rect", { width: shape.length, height: shape.length, fill: "none", stroke: "currentColor",
        "stroke-width": shape.length / THUMB }));
    button.setAttribute("aria-pressed", String(pressed));
  }

  w.stages.append(h("p", {}, "A row is a token that reads, a column a token that is read: the stronger its colour, the more."));
  const drawMap = w.stage((svg, width) => {
    const { left, top, cell } = (place = layout(width));
    const T = shape.length;
    const row = model.get("row");
    const id = uniqueId();
    const X = (i) => left + i * cell;
    const Y = (t) => top + t * cell;
    const best = strongest(map[row], 3);
    const now = part();
    went = now === drawn + 1;
    drawn = now;
    const then = (into, time) => (went && now === into ? time : null);
    svg.append(hatch(id));

    // What the chosen position reads, above the names that bars and map share: scores, then their shares.
    const seen = map[row].map((_, i) => i).filter((i) => looks(row, i));
    const [low, high] = [Math.min, Math.max].map((end) => end(...seen.map((i) => scores[i])));
    const floor = BARS - 4;
    const full = BARS - 36;
    const tall = scale([0, 1], [0, full]);
    const up = (i) => [() => 0, () => tall(0.08 + 0.92 * (scores[i] - low) / (high - low || 1)),
      () => tall(map[row][i])][Math.min(now, 2)]();
    const axis = s("g", { "data-key": now < 2 ? "scores" : "shares" });
    svg.append(label(2, 12, now === 0 ? `What ${row} asks:` : now === 1 ? `Scores of ${row}:` : `What ${row} reads:`), axis);
    for (const share of [0, 0.5, 1]) {
      const y = floor - tall(share);
      const name = now > 1 ? `${100 * share} %` : now === 1 && share !== 0.5 ? show(share ? high : low, 2) : "";
      axis.append(label(left - 5, y + 4, name, { "text-anchor": "end" }),
        s("line", { x1: left, x2: X(T), y1: y, y2: y, stroke: "var(--lc-line)", "stroke-dasharray": share ? "2 4" : null }));
    }
    for (const i of seen) {
      svg.append(s("rect", { "data-key": `bar ${i}`, "data-while": then(1, "0.6 1") || then(2, "0 0.7"), x: X(i) + 1,
        width: cell - 2, y: floor - up(i), height: up(i), fill: "var(--lc-attention)",
        "fill-opacity": now < 2 ? 0.35 : null, stroke: now < 2 ? "var(--lc-attention)" : null }));
    }
    if (best.length && now) {
      svg.append(label(X(best[0]) + cell / 2, floor - up(best[0]) - 4,
        now === 1 ? show(scores[best[0]], 2) : percent(map[row][best[0]], 2), { "text-anchor": "middle",
          style: "font-weight: 700", ...(then(1, true) || then(2, true) ? { "data-while": "0.8 1" } : { "data-key": "best" }) }));
    }
    for (let i = 0; i < T; i++) {
      svg.append(
        s("text", { transform: `translate(${X(i) + cell / 2 + 4} ${top - 18}) rotate(-90)`,
          style: best.includes(i) ? "font-weight: 700" : null }, `${i} ${short[i]}`),
        label(left - 18, Y(i) + cell / 2 + 4, `${i} ${short[i]}`,
          { "text-anchor": "end", style: i === row ? "font-weight: 700" : null }));
    }
    map.forEach((shares, t) => {
      const most = strongest(shares, 1)[0];
      shares.forEach((share, i) => {
        const box = { x: X(i), y: Y(t), width: cell, height: cell };
        if (t === row && looks(t, i)) {
          if (now < 2) return;
          box["data-while"] = then(2, "0.6 1");
        }
        if (!box["data-while"]) box["data-key"] = `cell ${t} ${i}`;
        if (!looks(t, i)) svg.append(s("rect", { ...box, fill: `url(#${id})` }));
        else if (share > 1e-4) svg.append(s("rect", { ...box, fill: "var(--lc-attention)", "fill-opacity": ink(share) }));
        if (i === most) {
          svg.append(s("circle", { "data-key": `most ${t}`, cx: X(i) + cell / 2, cy: Y(t) + cell / 2, r: Math.min(4, cell / 4),
            fill: "var(--lc-text)", stroke: "var(--lc-on)", "stroke-width": 1 }));
        }
      });
    });
    svg.append(
      s("rect", { x: left, y: top, width: T * cell, height: T * cell, fill: "none", stroke: "var(--lc-line)" }),
      s("rect", { "data-key": "row", x: left - 1, y: Y(row) - 1, width: T * cell + 2, height: cell + 2, fill: "none", rx: 2,
        stroke: "var(--lc-query)", "stroke-width": 2.5 }));
    drawTravel(svg, { X, row, seen, level: Y(row) + cell / 2, now, then });
    drawLegend(svg, id);
    svg.style.cursor = "pointer";
    return now < 3 ? partSentence() : mapSentence();
  }, { height: (width) => layout(width).height, label: "map of what every position reads", lasts: () => (went ? 7 : 1) });
  const picture = drawMap.picture;

  const disc = (r, colour) => s("circle", { r, fill: `var(--lc-${colour})`, stroke: "var(--lc-on)" });
  // What a token has for those that read it: its key, and beside it its value.
  const pair = (r) => [["key", 0], ["value", 1]].map(([colour, sweep]) =>
    s("path", { d: `M0 ${-r}A${r} ${r} 0 0 ${sweep} 0 ${r}z`, fill: `var(--lc-${colour})` }));

  // The query goes along its row and up to the keys; values come the same way, as large as their shares.
  function drawTravel(svg, { X, row, seen, level, now, then }) {
    const { left, top, cell } = place;
    const r = Math.min(8, cell / 2 - 0.5);
    const home = [left - 9, level];
    const middle = (i) => X(i) + cell / 2;
    const head = top - 9;
    for (const i of seen) {
      svg.append(s("g", { "data-key": `pair ${i}`, transform: `translate(${middle(i)} ${head})` }, pair(r)));
    }
    const ended = then(3, "0.8 1");
    if (now < 3 || ended) {
      svg.append(s("g", { transform: `translate(${home.join(" ")})`, "data-while": ended, "data-gone": Boolean(ended) },
        disc(r, "query")));
    }
    if (now === 3) svg.append(s("g", { transform: `translate(${home.join(" ")})`, "data-while": ended }, disc(r, "value")));
    if (!went || now === 0 || now === 2) return;
    for (const i of seen) {
      const way = [home, [middle(i), level], [middle(i), head]].map((point) => point.join(","));
      const time = { "data-gone": true, "data-while": then(1, "0 0.6") || then(3, "0 0.85") };
      svg.append(now === 1 ? s("g", { "data-way": way.join(" "), ...time, class: "am-query" }, disc(r, "query"))
        : s("g", { "data-way": way.reverse().join(" "), ...time, class: "am-value" },
          disc(Math.max(1.5, 1.6 * r * Math.sqrt(map[row][i])), "value")));
    }
  }

  // The legend stands beside the map where there is room, else below it.
  function layout(width) {
    const left = 99;
    const top = BARS + NAMES;
    const beside = width > 600;
    const cell = Math.min(24, (width - left - (beside ? 200 : 4)) / shape.length);
    const tall = cell * shape.length;
    return {
      left, top, cell,
      legend: beside ? [left + tall + 18, top + 16] : [left, top + tall + 22],
      height: top + Math.max(tall + 6, beside ? 150 : 0) + (beside ? 0 : 156),
    };
  }

  function drawLegend(svg, id) {
    const [x, y] = place.legend;
    [0.01, 0.2, 1].forEach((share, i) => svg.append(
      s("rect", { x: x + 56 * i, y: y - 12, width: 16, height: 16, fill: "var(--lc-attention)", "fill-opacity": ink(share),
        stroke: "var(--lc-line)" }),
      label(x + 56 * i + 19, y + 1, `${100 * share} %`)));
    svg.append(
      s("circle", { cx: x + 8, cy: y + 19, r: 4, fill: "var(--lc-text)" }), label(x + 22, y + 23, "strongest of its row"),
      s("rect", { x, y: y + 34, width: 16, height: 16, fill: `url(#${id})`, stroke: "var(--lc-line)" }),
      label(x + 22, y + 47, "shut by the mask"),
      s("rect", { x, y: y + 59, width: 16, height: 14, fill: "none", stroke: "var(--lc-query)", "stroke-width": 2.5 }),
      label(x + 22, y + 71, "row of the bars above"),
      s("g", { transform: `translate(${x + 8} ${y + 92})` }, disc(7, "query")), label(x + 22, y + 96, "query of the row"),
      s("g", { transform: `translate(${x + 8} ${y + 117})` }, pair(7)), label(x + 22, y + 121, "key and value of a token"));
  }

  const about = h("p");
  w.stages.append(about);
  const numbers = w.table("What the chosen position reads, number by number");

  function headSentence() {
    const head = model.get("head");
    const group = groupOf(head, shape);
    const mates = inGroup(group).filter((other) => other !== head);
    const shared = mates.length ? `shared with head${mates.length > 1 ? "s" : ""} ${mates.join(", ")}`
      : "shared with no other";
    return `Layer ${model.get("layer")}, query head ${head} reads key/value head ${group}, ${shared}.`;
  }

  function rowSentence() {
    const row = map[model.get("row")];
    const best = strongest(row, 3).map((i) => `${percent(row[i], 2)} from ${word(i)}`);
    return `Position ${word(model.get("row"))} reads ${best.join(", ")}.`;
  }

  // What the choices do to the row, as a consequence.
  function choiceSentence() {
    const t = model.get("row");
    const row = map[t];
    const later = row.slice(t + 1).reduce((sum, share) => sum + share, 0);
    const root = `√${shape.size}`;
    const [now, then] = [spread(row), spread(others[t])];
    const said = [model.get("scaled")
      ? `It is spread as over ${many(now)}; without the division by ${root}, over ${many(then)}.`
      : `Not divided by ${root} = ${show(Math.sqrt(shape.size), 3)}, the softmax is sharper: ` +
        `spread as over ${many(now)} in place of ${many(then)}.`];
    if (model.get("mask") === "none") {
      said.push(t + 1 < shape.length
        ? `Without a mask ${percent(later, 2)} comes from later tokens, those that it is to predict.`
        : "The last position has no later tokens: choose an earlier one to see the leak.");
    }
    if (model.get("mask") === "window") {
      const first = Math.max(0, t + 1 - model.get("window"));
      said.push(first ? `The window shuts out positions 0 to ${first - 1}.` : "The window shuts nothing out here.");
    }
    return said.join(" ");
  }

  // What has been done of the row, and what comes.
  function partSentence() {
    const t = model.get("row");
    const count = map[t].filter((_, i) => looks(t, i)).length;
    const best = strongest(map[t], 1)[0];
    const keys = count === 1 ? "one key" : `${count} keys`;
    if (part() === 0) return `Position ${word(t)} has a query; the mask lets it go to ${keys}. Step: it goes there.`;
    if (part() === 1) {
      return `The query of ${word(t)} met ${keys}: query times key${model.get("scaled") ? `, divided by √${shape.size},` : ""} ` +
        `is the score. The highest, ${show(scores[best], 3)}, is that of ${word(best)}. Step: scores become shares.`;
    }
    return `The softmax made shares of the scores, together 100 %. ${rowSentence()} Step: each value comes by its share.`;
  }

  function mapSentence() {
    if (shape.length < 3) return rowSentence();
    const { before, first, itself } = habits(map);
    return `Head ${model.get("head")} over all positions from 2 on: ${percent(before, 2)} to the token before, ` +
      `${percent(first, 2)} to the first token, ${percent(itself, 2)} to itself.`;
  }

  function redraw() {
    const [head, t] = ["head", "row"].map((name) => model.get(name));
    const layer = layerAt();
    windowField.style.display = model.get("mask") === "window" ? "" : "none";
    const scaled = model.get("scaled");
    thumbs.forEach((thumb, i) => fillThumb(thumb, of(layer, i, scaled), i === head));
    groups.forEach((box, group) => box.classList.toggle("am-now", group === groupOf(head, shape)));
    map = of(layer, head, scaled);
    others = of(layer, head, !scaled);
    const row = dots(queries[layer], keys[layer], shape, head)[t];
    const divisor = scaled ? Math.sqrt(shape.size) : 1;
    scores = row.map((dot) => dot / divisor);
    drawMap();
    about.textContent = mapSentence();
    numbers({
      columns: ["position", "token", "q · k", scaled ? `q · k / √${shape.size}` : "score", "share"],
      rows: row.map((dot, i) => [String(i), names[i], dot, looks(t, i) ? scores[i] : "masked", map[t][i]]),
    });
    sayRow();
  }
  const sayRow = () => w.say(part() < 3 ? partSentence() : `${headSentence()} ${rowSentence()} ${choiceSentence()}`);

  // A press on a row chooses it, as the slider and the field do.
  picture.addEventListener("click", (event) => {
    const t = Math.floor((within(picture, event)[1] - place.top) / place.cell);
    if (t >= 0 && t < shape.length) w.put("row", t);
  });
  w.on(["layer", "head", "row", "mask", "window", "scaled"], redraw);
  w.on(["shown"], () => {
    drawMap();
    sayRow();
  });
  redraw();
  return w.destroy;
}

export default { render };
