import { frame, h, label, s, show } from "./kit.js";

// --- arithmetic, compared with llmcourse.data.tokenizer by the tests

// The two patterns of the package.  What `\s` means differs between languages, so white space is
// named by its property; (?i:'s) also takes the long s, as Unicode's case rules have it.
const PATTERNS = {
  GPT2: new RegExp("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
    "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu"),
  LLAMA3: new RegExp("'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])" +
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" +
    "| ?[^\\p{White_Space}\\p{L}\\p{N}]+[\\r\\n]*|\\p{White_Space}*[\\r\\n]+" +
    "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu"),
};

// The words of a text that holds no special token.
export const cut = (text, kind) => text.match(PATTERNS[kind]) || [];

// The words of a text; a special token is a word of its own.  Of several that begin at one place
// the longest wins, of overlapping ones the first.
export function cutAtSpecials(text, { pattern, special_tokens }) {
  const longestFirst = Object.keys(special_tokens).sort((a, b) => b.length - a.length);
  const words = [];
  let from = 0;
  for (let at = 0; at < text.length;) {
    const special = longestFirst.find((token) => text.startsWith(token, at));
    if (special === undefined) { at++; continue; }
    words.push(...cut(text.slice(from, at), pattern), special);
    from = at += special.length;
  }
  return [...words, ...cut(text.slice(from), pattern)];
}

// What encoding needs to look up: ids of bytes, the merge of a pair of ids.
export function rulesOf({ tokens, merges, special_tokens }) {
  const specials = new Set(Object.values(special_tokens));
  const byteIds = [];
  tokens.forEach((hex, id) => { if (hex.length === 2 && !specials.has(id)) byteIds[parseInt(hex, 16)] = id; });
  return { byteIds, merges, rankOf: new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank])) };
}

// The merges of one word, in the order in which they apply: of all neighbouring pairs the one that
// was learnt first, of equal ones the leftmost; join it, and look again.
export function mergesOfWord(byteIds, { rankOf, merges }) {
  const ids = [...byteIds];
  const found = [];
  for (;;) {
    let best = null;
    for (let at = 0; at + 1 < ids.length; at++) {
      const rank = rankOf.get(`${ids[at]} ${ids[at + 1]}`);
      if (rank !== undefined && (best === null || rank < best.rank)) best = { rank, at };
    }
    if (best === null) return found;
    ids.splice(best.at, 2, merges[best.rank][2]);
    found.push(best);
  }
}

// Everything that happens to a text: its words as ids of bytes, and the merges { word, rank, at }
// in one order for the whole text, the first learnt first.  Words do not touch each other, so each
// of them sees its own merges in the encoder's order.
export function plan(text, state) {
  const rules = rulesOf(state);
  const start = cutAtSpecials(text, state).map((word) => (Object.hasOwn(state.special_tokens, word)
    ? [state.special_tokens[word]] : [...new TextEncoder().encode(word)].map((byte) => rules.byteIds[byte])));
  const waiting = start.map((ids) => mergesOfWord(ids, rules));
  const merges = [];
  for (;;) {
    let next = -1;
    waiting.forEach((found, word) => {
      if (found.length && (next < 0 || found[0].rank < waiting[next][0].rank)) next = word;
    });
    if (next < 0) return { start, merges };
    merges.push({ word: next, ...waiting[next].shift() });
  }
}

// The words as ids after the first `count` merges of a plan.
export function after({ start, merges }, count, rules) {
  const words = start.map((ids) => [...ids]);
  for (const { word, rank, at } of merges.slice(0, count)) words[word].splice(at, 2, rules[rank][2]);
  return words;
}

export function encode(text, state) {
  const made = plan(text, state);
  return after(made, made.merges.length, state.merges).flat();
}

// The ids after every merge, from none to all.
export function encodings(text, state) {
  const made = plan(text, state);
  return Array.from({ length: made.merges.length + 1 }, (_, count) => after(made, count, state.merges).flat());
}

// The bytes of a token as a reader sees them: its text with signs for white space, or, where the
// bytes are no whole characters or do not print, the bytes in hexadecimal digits.
export function spelt(hex) {
  const pairs = hex.match(/../g) || [];
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
      .decode(Uint8Array.from(pairs, (pair) => parseInt(pair, 16)));
    const shown = text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
    if (!/[\p{C}\p{Z}]/u.test(shown)) return shown;
  } catch { /* not UTF-8 */ }
  return pairs.join(" ").toUpperCase();
}

// Lines of a shard file: offset, bytes in hexadecimal, and ids, eight to a line.  The header is before them,
// and the low byte of an id comes first: two bytes for each, or four where the vocabulary has more than 65,536.
const HEADER = 104;
export function shardRows(ids, vocabSize) {
  const size = vocabSize <= 65536 ? 2 : 4;
  const bytes = (id) => Array.from({ length: size }, (_, i) => ((id >>> (8 * i)) & 255).toString(16).padStart(2, "0"));
  return Array.from({ length: Math.ceil(ids.length / 8) }, (_, row) => {
    const here = ids.slice(8 * row, 8 * row + 8);
    return [HEADER + 8 * size * row, here.map((id) => bytes(id).join(" ")).join("  ").toUpperCase(), here];
  });
}

// --- the page

const MOST = 200;
const TALL = 58;
const STYLE = `
.lc svg .lc-tile { font: 14px ui-monospace, monospace; }
.lc svg .lc-id { font-size: 11px; fill: var(--lc-muted); }
.lc svg .lc-new text { fill: var(--lc-on); font-weight: 700; }
@media (prefers-reduced-motion: no-preference) {
  .lc .lc-new { animation: lc-join 0.25s ease-out; transform-box: fill-box; transform-origin: center; }
}
@keyframes lc-join { from { transform: scale(1.25, 0.8); } }`;

// Places that a text takes in a type of one width: Chinese characters and emoji take two.
const columns = (text) => [...text].reduce(
  (sum, c) => sum + (c.codePointAt(0) < 0x1100 || "␣↵⇥␍".includes(c) ? 1 : 2), 0);

// Where every tile lies: lines of a given width, with a wider gap between words than inside them.
function arranged(words, state, width) {
  const tiles = [];
  let x = 4;
  let row = 0;
  words.forEach((ids, word) => {
    x += word ? 12 : 0;
    const wide = ids.map((id) => {
      const most = Math.floor((width - 30) / 8.6);
      const full = spelt(state.tokens[id]);
      const text = columns(full) > most ? `${[...full].slice(0, Math.floor(most / 2)).join("")}…` : full;
      return { id, text, wide: Math.max(24, columns(text) * 8.6 + 10, String(id).length * 6.8 + 8) };
    });
    const all = wide.reduce((sum, tile) => sum + tile.wide + 2, 0);
    if (x > 4 && x + all > width - 4) { x = 4; row++; }
    wide.forEach((tile, at) => {
      if (x > 4 && x + tile.wide > width - 4) { x = 4; row++; }
      tiles.push({ ...tile, word, at, x, y: row * TALL + 4 });
      x += tile.wide + 2;
    });
  });
  return { tiles, height: (row + 1) * TALL + 4 };
}

function render({ model, el }) {
  const w = frame({ model, el, title: "Text becomes tokens, merge by merge" });
  w.root.append(h("style", {}, STYLE));
  const state = () => Object.fromEntries(
    ["tokens", "merges", "special_tokens", "pattern"].map((name) => [name, model.get(name)]));
  let made = plan("", state());
  let atEnd = false;

  // One text can be merged more often than another: the slider ends where this one ends.
  const control = { text: w.text("text", "your text", { onset: tidy }), ...w.number("applied", "merges applied") };
  function follow() {
    made = plan(model.get("text"), state());
    const total = made.merges.length;
    model.get("limits").applied.high = control.range.max = control.field.max = total;
    control.range.value = model.get("applied");
  }

  // A text that is too long to show is cut, and so is half of a character's pair of codes.
  function tidy() {
    const whole = [...model.get("text").replace(/\p{Cs}/gu, "\ufffd")];
    model.set("note", whole.length > MOST
      ? `The text has ${whole.length} characters; the first ${MOST} are used.` : "");
    w.put("text", whole.slice(0, MOST).join(""));
  }

  const words = () => after(made, model.get("applied"), model.get("merges"));
  const quote = (id) => `“${spelt(model.get("tokens")[id])}”`;
  const pair = (rank) => {
    const [a, b, c] = model.get("merges")[rank];
    return `${quote(a)} + ${quote(b)} → ${quote(c)}, rank ${show(rank)}, id ${c}`;
  };

  let layout = null;
  const drawTiles = w.stage((svg) => {
    const specials = new Set(Object.values(model.get("special_tokens")));
    const count = model.get("applied");
    const last = made.merges[count - 1];
    const next = made.merges[count];
    for (const tile of layout.tiles) {
      const fresh = last && tile.word === last.word && tile.at === last.at;
      const joined = model.get("tokens")[tile.id].length > 2;
      svg.append(s("g", { class: fresh ? "lc-new" : null },
        s("rect", { x: tile.x, y: tile.y, width: tile.wide, height: 40, rx: 4, class: fresh ? "lc-2" : "lc-1",
          fill: fresh ? "currentColor" : joined ? "var(--lc-back)" : "none",
          stroke: joined ? "currentColor" : "var(--lc-line)", "stroke-width": joined ? 2 : 1,
          "stroke-dasharray": specials.has(tile.id) ? "5 3" : null }),
        label(tile.x + tile.wide / 2, tile.y + 18, tile.text, { "text-anchor": "middle", class: "lc-tile" }),
        label(tile.x + tile.wide / 2, tile.y + 34, tile.id, { "text-anchor": "middle", class: "lc-id" })));
    }
    const joinsNext = ({ word, at }) => next && word === next.word && (at === next.at || at === next.at + 1);
    for (const tile of layout.tiles.filter(joinsNext)) {
      svg.append(s("line", { x1: tile.x, x2: tile.x + tile.wide, y1: tile.y + 46, y2: tile.y + 46,
        stroke: "currentColor", class: "lc-3", "stroke-width": 3, "stroke-dasharray": "4 2" }));
    }
    const tokens = layout.tiles.map((tile) => tile.text);
    return `${tokens.slice(0, 60).join(" | ")}${tokens.length > 60 ? " and more" : ""}. ${sentence()}`;
  }, { height: (width) => { layout = arranged(words(), state(), width); return layout.height; }, label: "tiles" });
  w.root.querySelector(".lc-stage").after(h("p", { class: "lc-legend" },
    "Each tile is a token, its id below. Thin frame: one byte. Thick frame: merged. Filled: just made. " +
    "Dashes under two tiles: they join next." +
    (Object.keys(model.get("special_tokens")).length ? " Dashed frame: a special token." : "")));
  const numbers = w.table("The tokens");
  const file = w.table("As a shard file holds them");

  function sentence() {
    const text = model.get("text");
    const count = model.get("applied");
    const total = made.merges.length;
    const num = words().flat().length;
    if (!num) return "No text, no tokens: type something.";
    const bytes = new TextEncoder().encode(text).length;
    const each = [...text].length / num;
    const size = `${count} of ${total} merges: ${show(bytes)} bytes are ${show(num)} token${num === 1 ? "" : "s"}, ` +
      `${show(each, 3)} character${each === 1 ? "" : "s"} per token.`;
    const last = count ? ` Last: ${pair(made.merges[count - 1].rank)}.` : " Every byte is still a token of its own.";
    const then = count < total ? ` Next: ${pair(made.merges[count].rank)}.`
      : " No pair of neighbours has a merge: these ids are what the model reads.";
    return size + last + then;
  }

  function redraw() {
    drawTiles();
    numbers({
      columns: ["token", "id", "bytes", "text"],
      rows: words().flat().map((id, i) => [String(i + 1), String(id),
        model.get("tokens")[id].match(/../g).join(" ").toUpperCase(), spelt(model.get("tokens")[id])]),
    });
    file({ columns: ["offset", "bytes", "text"], rows: shardRows(words().flat(), model.get("tokens").length)
      .map(([offset, bytes, ids]) => [String(offset), bytes, ids.map((id) => spelt(model.get("tokens")[id])).join(" | ")]) });
    w.say(sentence());
    atEnd = model.get("applied") >= made.merges.length;
  }

  // Where the end was shown, the end of the new text is shown.
  function renew() {
    const ended = atEnd && model.get("applied") > 0;
    follow();
    const total = made.merges.length;
    if (ended || model.get("applied") > total) w.put("applied", total);
    redraw();
  }

  w.player({
    step: () => {
      const total = made.merges.length;
      w.put("applied", model.get("applied") < total ? model.get("applied") + 1 : 0); // the end, then anew
      return model.get("applied") < total;
    },
    reset: () => w.put("applied", 0),
    perSecond: 3,
  });
  w.on(["applied"], () => (model.get("applied") > made.merges.length
    ? w.putNumber("applied", "merges applied", model.get("applied")) : redraw()));
  w.on(["text", "tokens", "merges", "special_tokens", "pattern"], renew);
  renew();
  return w.destroy;
}

export default { render };
