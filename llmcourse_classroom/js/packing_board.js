import { frame, hatch, label, line, s, scale, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.data by the tests

// Documents cut into pieces that fit into a row; only the last of a document may be shorter.
export function pieces(lengths, context) {
  return lengths.flatMap((length, document) => Array.from({ length: Math.ceil(length / context) }, (_, i) =>
    ({ document, start: i * context, length: Math.min(context, length - i * context) })));
}

// Every piece with its row, in the order in which they are placed.
export const METHODS = {
  one_per_row: (lengths, context) => pieces(lengths, context).map((piece, row) => ({ ...piece, row })),

  // All documents joined, and cut wherever a row is full.
  concatenate_and_cut(lengths, context) {
    const placed = [];
    let used = 0; // tokens so far, over all rows
    lengths.forEach((length, document) => {
      for (let start = 0; start < length;) {
        const taken = Math.min(context - used % context, length - start);
        placed.push({ document, start, length: taken, row: Math.floor(used / context) });
        start += taken;
        used += taken;
      }
    });
    return placed;
  },

  // The longest first (equal ones stay in order), each into the first row that has room.
  pack(lengths, context) {
    const room = [];
    return pieces(lengths, context).sort((a, b) => b.length - a.length).map((piece) => {
      let row = room.findIndex((left) => left >= piece.length);
      if (row < 0) row = room.push(context) - 1;
      room[row] -= piece.length;
      return { ...piece, row };
    });
  },
};

export const placing = (method, lengths, context) => METHODS[method](lengths, context);

// The rows of the pieces placed so far, each a list of pieces.
export function rowsOf(placed) {
  const rows = [];
  for (const piece of placed) (rows[piece.row] ||= []).push(piece);
  return rows;
}

export const tokensIn = (row) => row.reduce((sum, piece) => sum + piece.length, 0);

// Share of the room that documents fill; 1 where there are no rows.
export function efficiency(rows, context) {
  return rows.length ? rows.reduce((sum, row) => sum + tokensIn(row), 0) / (rows.length * context) : 1;
}

// Documents that do not lie in one piece.
export function numCut(placed, lengths) {
  return new Set(placed.filter((p) => p.length < lengths[p.document]).map((p) => p.document)).size;
}

// Whether the token at `query` may look at the token at `key`: not later, and of the same document.
// Padding looks at nothing, and nothing looks at it.
export function mayLook(row, query, key) {
  const of = (place) => {
    let end = 0;
    return row.findIndex((piece) => place < (end += piece.length));
  };
  return key <= query && of(query) >= 0 && of(query) === of(key);
}

// Pairs (query, key) that a row's document mask allows, itself included.
export const allowedPairs = (row) => row.reduce((sum, { length }) => sum + length * (length + 1) / 2, 0);

// --- the page

const LABELS = {
  one_per_row: "one document per row", concatenate_and_cut: "joined and cut", pack: "packed, longest first",
};
const SHOWN = 20; // rows in the picture at a time
const TALL = 24;
const HEAD = 46;
const MASK = 220;

function render({ model, el }) {
  const w = frame({ model, el, title: "Documents into rows" });
  const context = () => model.get("context_length");
  let placed = []; // all pieces in order; the state says how many of them are shown
  let atEnd = false;
  let busy = false;

  w.choice("method", "method", { options: Object.keys(LABELS), labels: Object.values(LABELS) });
  w.number("context_length", "context length T");
  const controls = { placed: w.number("placed", "pieces placed"), row: null };
  w.player({
    step: () => {
      const next = model.get("placed") < placed.length ? model.get("placed") + 1 : 0; // the end, then anew
      busy = true; // one redraw, or nothing would move
      w.put("placed", next);
      if (next) w.put("row", placed[next - 1].row + 1); // look where something happens
      busy = false;
      redraw();
      return next < placed.length;
    },
    reset: () => w.put("placed", 0),
    perSecond: 2,
  });
  controls.row = w.number("row", "row for the mask");
  const turn = (by) => w.put("row", Math.min(allRows().length, Math.max(1, model.get("row") + by)));
  w.button("Previous row", () => turn(-1));
  w.button("Next row", () => turn(1));

  const allRows = () => rowsOf(placed);
  const rows = () => rowsOf(placed.slice(0, model.get("placed")));
  const chosen = () => rows()[model.get("row") - 1] || [];
  const firstShown = () => Math.floor((model.get("row") - 1) / SHOWN) * SHOWN;
  const lastShown = () => Math.min(allRows().length, firstShown() + SHOWN);
  const part = ({ document, start, length }) => {
    const whole = model.get("lengths")[document];
    return `${start ? "…" : ""}${document + 1}${start + length < whole ? "…" : ""}`;
  };
  const mark = (piece) => `lc-${piece.document % 6 + 1}`;

  // How many pieces and rows there are depends on the method: the sliders end there.
  function follow() {
    placed = placing(model.get("method"), model.get("lengths"), context());
    for (const [name, high] of [["placed", placed.length], ["row", allRows().length]]) {
      model.get("limits")[name].high = controls[name].range.max = controls[name].field.max = high;
      controls[name].range.value = model.get(name);
    }
  }

  // A document's bar, with its number where there is room for it.
  function bar(piece, x, y, attributes = {}) {
    const wide = x(piece.length) - x(0);
    const name = part(piece);
    return s("g", { "data-key": `document ${piece.document} ${piece.start}`, opacity: piece.opacity ?? 1,
      transform: `translate(${piece.at || 0} ${y})` },
      s("rect", { x: x(0), y: 0, width: wide, height: TALL - 5, fill: "currentColor", class: mark(piece),
        stroke: "var(--lc-on)", "stroke-width": 1, ...attributes }),
      wide > 7 * name.length + 2
        ? label(x(0) + wide / 2, 14, name, { "text-anchor": "middle", style: "fill: var(--lc-on)" }) : null);
  }

  const drawRows = w.stage((svg, width) => {
    const id = uniqueId();
    const x = scale([0, context()], [34, width - 44]);
    const length = (n) => x(n) - x(0);
    const count = model.get("placed");
    const [next, afterIt] = placed.slice(count, count + 2);
    const [bars, falling] = [[], []]; // above the rows, and what was placed last above all others
    svg.append(hatch(id));
    if (next) {
      svg.append(label(2, 13, `Next: document ${part(next)} (length ${next.length}) into row ${next.row + 1}`),
        ...(afterIt ? [bar({ ...afterIt, opacity: 0 }, x, 18)] : []), bar(next, x, 18, { stroke: "var(--lc-text)", "stroke-width": 2, "stroke-dasharray": "4 3" }));
    } else {
      svg.append(label(2, 13, "The numbers are documents; … marks a cut one."),
        label(2, 31, "Hatched: padding. All are placed: Play begins anew."));
    }
    const shown = rows();
    for (let i = firstShown(); i < lastShown(); i++) {
      const y = HEAD + (i - firstShown()) * TALL;
      const row = shown[i] || [];
      const picked = i === model.get("row") - 1;
      svg.append(label(28, y + 14, i + 1, {
        "text-anchor": "end", "font-weight": picked ? 700 : 400, style: i < 999 ? null : "font-size: 10px" }));
      if (shown[i]) {
        svg.append(s("rect", { x: x(0), y, width: length(context()), height: TALL - 5,
          fill: `url(#${id})`, stroke: "var(--lc-line)" }));
      }
      let at = 0;
      for (const piece of row) {
        const last = piece === placed[count - 1];
        const edge = last && next ? { stroke: "var(--lc-text)", "stroke-width": 3 } : {};
        (last ? falling : bars).push(bar({ ...piece, at: length(at) }, x, y, edge));
        at += piece.length;
      }
      const share = `${Math.round(100 * at / context())} %`;
      if (shown[i]) svg.append(label(width - 2, y + 14, share, { "text-anchor": "end" }));
      if (picked) {
        svg.append(s("rect", { "data-key": "picked", x: x(0) - 2, y: y - 2, width: length(context()) + 4, height: TALL - 1, rx: 3,
          fill: "none", stroke: "var(--lc-text)", "stroke-width": 2 }));
      }
    }
    svg.append(...bars, ...falling);
    const some = lastShown() - firstShown() < allRows().length ? ` of ${allRows().length}` : "";
    svg.append(label(x(0), HEAD + (lastShown() - firstShown()) * TALL + 14,
      `rows ${firstShown() + 1} to ${lastShown()}${some}; 0 to ${context()} tokens`));
    return sentence();
  }, {
    height: () => HEAD + (lastShown() - firstShown()) * TALL + 20,
    label: "rows as bars with the documents in them",
    lasts: 2.3,
  });
  const rowsPicture = drawRows.picture;

  const drawMask = w.stage((svg, width) => {
    const row = chosen();
    const id = uniqueId();
    const at = scale([0, context()], [0, MASK]);
    const left = 24;
    const top = 22;
    const X = (token) => left + at(token);
    const Y = (token) => top + at(token);
    // Below 33 tokens every pair is a square; beyond, steps are too fine to see.
    const corner = (from, to) => {
      if (context() > 32) return [[from, from], [from, to], [to, to]];
      const steps = Array.from({ length: to - from }, (_, i) => [[to - i, to - i], [to - i, to - i - 1]]).flat();
      return [[from, to], ...steps, [from, from]];
    };
    const area = (from, to, attributes) => s("polygon", {
      points: corner(from, to).map(([key, query]) => `${X(key)},${Y(query)}`).join(" "), ...attributes });
    svg.append(hatch(id),
      s("rect", { x: left, y: top, width: MASK, height: MASK, fill: "none", stroke: "var(--lc-line)" }));
    const filled = tokensIn(row);
    if (filled) svg.append(area(0, filled, { fill: `url(#${id})`, stroke: "var(--lc-line)" }));
    let from = 0;
    for (const piece of row) {
      const to = from + piece.length;
      svg.append(area(from, to, { fill: "currentColor", class: mark(piece), stroke: "var(--lc-on)" }));
      const middle = [X(from + piece.length / 3), Y(from + piece.length * 2 / 3) + 5];
      if (at(piece.length) > 30) {
        svg.append(label(...middle, part(piece), { "text-anchor": "middle", style: "fill: var(--lc-on)" }));
      } else {
        svg.append(label(X(to) + 4, Y((from + to) / 2) + 4, part(piece)));
      }
      from = to;
    }
    if (filled < context()) {
      svg.append(line([[X(filled), Y(filled)], [X(filled), Y(context())]],
        { stroke: "var(--lc-line)", "stroke-dasharray": "3 3" }));
    }
    svg.append(label(left, 14, "looked at: token 1 to T →"),
      s("text", { transform: `translate(14 ${top + MASK}) rotate(-90)` }, "token that looks ←"));
    const legend = [`Row ${model.get("row")}: ${parts(row)}.`, "Coloured: may look.",
      "Hatched: another document,", "shut by the document mask.", "Empty: later, or padding."];
    const beside = width > left + MASK + 190;
    const [legendX, legendY] = beside ? [left + MASK + 18, top + 30] : [left, top + MASK + 18];
    legend.forEach((text, i) => svg.append(label(legendX, legendY + 18 * i, text)));
    return maskSentence();
  }, { height: (width) => (width > MASK + 214 ? MASK + 30 : MASK + 125), label: "document mask" });
  const numbers = w.table("The rows of the picture");

  const parts = (row) => `${row.length} document${row.length === 1 ? "" : "s"}`;

  function maskSentence() {
    const row = chosen();
    const filled = tokensIn(row);
    if (!filled) return `Row ${model.get("row")} is still empty.`;
    const all = filled * (filled + 1) / 2;
    const allowed = allowedPairs(row);
    return `Row ${model.get("row")} holds ${parts(row)}: of ${show(all)} pairs (token, itself or an earlier one) ` +
      `the document mask allows ${show(allowed)}, ${Math.round(100 * allowed / all)} %.`;
  }

  function sentence() {
    const count = model.get("placed");
    const done = placed.slice(0, count);
    const filled = rowsOf(done);
    const many = filled.length === 1 ? "1 row" : `${show(filled.length)} rows`;
    const way = `${count} of ${placed.length} pieces, ${LABELS[model.get("method")]}: `;
    if (!count) return `${way}no rows yet.`;
    const share = efficiency(filled, context());
    const last = count < placed.length ? `Document ${part(done.at(-1))} went into row ${done.at(-1).row + 1}. ` : "";
    return `${last}${way}${many} of ${context()} tokens, ${show(100 * share, 3)} % filled, ` +
      `padding ${show(filled.length * context() - tokensIn(done))}, ` +
      `documents cut: ${numCut(done, model.get("lengths"))}.`;
  }

  function redraw() {
    drawRows();
    drawMask();
    numbers({
      columns: ["row", "documents (their tokens)", "tokens", "padding", "filled"],
      rows: rows().slice(firstShown(), lastShown()).map((row, i) => [String(firstShown() + i + 1),
        row.map((piece) => `${part(piece)} (${piece.length})`).join(", "), tokensIn(row),
        context() - tokensIn(row), `${show(100 * tokensIn(row) / context(), 3)} %`]),
    });
    w.say(`${sentence()} ${maskSentence()}`);
    atEnd = model.get("placed") >= placed.length;
  }

  // Where all pieces were placed, all are placed in the new way too.
  function renew() {
    const ended = atEnd;
    follow();
    busy = true;
    if (ended || model.get("placed") > placed.length) w.put("placed", placed.length);
    if (model.get("row") > allRows().length) w.put("row", allRows().length);
    busy = false;
    redraw();
  }
  const checked = (name, title) => () => {
    if (busy) return;
    if (model.get(name) > model.get("limits")[name].high) w.putNumber(name, title, model.get(name));
    else redraw();
  };

  // A press on a row chooses it, as the field and the buttons do.
  rowsPicture.addEventListener("click", (event) => {
    const i = Math.floor((within(rowsPicture, event)[1] - HEAD) / TALL);
    if (i >= 0 && firstShown() + i < lastShown()) w.put("row", firstShown() + i + 1);
  });
  w.on(["method", "context_length", "lengths"], renew);
  w.on(["placed"], checked("placed", "pieces placed"));
  w.on(["row"], checked("row", "row"));
  renew();
  return w.destroy;
}

export default { render };
