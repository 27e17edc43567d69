import { frame, h, hatch, label, s, show, uniqueId, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.loss by the tests

const END = "<|end|>"; // ends every turn of a conversation

// Whether a token is one that the model should learn to write.
export const LEARN = {
  "all tokens": () => true,
  "assistant": (strip, t) => strip.roles[t] === "assistant",
  "assistant without end": (strip, t) => strip.roles[t] === "assistant" && strip.tokens[t] !== END,
};

// What each position is asked for: the place of the token (null if there is none), whether it
// counts, and why or why not.  `separate` ignores targets that begin another document.
export function targets(strip, { shift, learn, separate }) {
  const { tokens, documents } = strip;
  return tokens.map((_, t) => {
    const target = t + shift < tokens.length ? t + shift : null;
    const no = (why) => ({ target, counted: false, why });
    if (target === null) return no("end of row");
    if (documents[t] < 0 || documents[target] < 0) return no("padding");
    const crosses = documents[t] !== documents[target];
    if (crosses && separate) return no("another document");
    if (!LEARN[learn](strip, target)) return no(LEARN.assistant(strip, target) ? "end left out" : "not learned");
    return { target, counted: true, why: crosses ? "crosses" : "counts" };
  });
}

export const numCounted = (asked) => asked.filter(({ counted }) => counted).length;

// The positions that a position may look at: itself and those before it in its document.
export function seen({ documents }, t) {
  if (documents[t] < 0) return [];
  return documents.map((_, i) => i).filter((i) => i <= t && documents[i] === documents[t]);
}

// A token with signs for its white space; `spaces` keeps the plain ones.
export function spelt(token, { spaces = false } = {}) {
  const shown = token.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
  return spaces ? shown : shown.replaceAll(" ", "␣");
}

export const isSpecial = (token) => /^<\|.+\|>$/s.test(token);

// --- the page

const HEAD = 70; // pixels of the names of the rows
const ROW = 25;
const MOST_SEEN = 60; // columns of what a position sees, in the sentence
const ROWS = ["position", "reads", "asked for", "counts"];
const SHIFTS = [
  "Shift 0 asks for the token that the position itself reads. Copying is enough: the loss falls towards 0, " +
    "and nothing is learned about what comes next.",
  "Shift 1 is right: each position is asked for the token that comes next, which it cannot see.",
  "Shift 2 asks for the token after the next. The one between stays hidden, so the loss stays higher, and a model " +
    "that writes one token at a time leaves one out each time.",
];
const LEARNED = {
  "all tokens": "All tokens are learned, whoever wrote them, as in pre-training.",
  "assistant": `Only the assistant's tokens are learned, its ${END} among them: so the model learns to stop.`,
  "assistant without end": `Without ${END} the model is never asked for the token that ends its turn: ` +
    "it does not learn to stop.",
};
const STYLE = `
.lc svg .lc-token { font: 12px ui-monospace, monospace; }
.lc svg .lc-off { fill: var(--lc-muted); }
.lc .lc-legend { color: var(--lc-muted); }`;

// Wide signs, such as Chinese ones or emoji, take two columns.
const WIDE = /[\u1100-\u11ff\u2e80-\uffe6\u{1f000}-\u{3ffff}]/u;
const size = (text) => [...text].reduce((sum, sign) => sum + (WIDE.test(sign) ? 2 : 1), 0);
const cut = (text, most) => (size(text) > most ? `${[...text].slice(0, Math.max(1, most - 1)).join("")}…` : text);

// The rows of the picture: role and document only where they differ.
function rowsOf(strip) {
  return [...ROWS, ...["role", "document"].filter((name) => new Set(strip[`${name}s`]).size > 1)];
}

// Where each position stands: columns as wide as their tokens, in lines of the picture's width.
function layOut(strip, asked, width) {
  const tall = rowsOf(strip).length * ROW + 16;
  const most = Math.floor((width - HEAD - 14) / 7.4);
  let [x, row] = [HEAD, 0];
  const places = strip.tokens.map((token, t) => {
    const text = cut(spelt(token), Math.min(most, 16));
    const target = asked[t].target === null ? "none" : cut(spelt(strip.tokens[asked[t].target]), Math.min(most, 16));
    const wide = Math.max(30, 7.4 * Math.max(size(text), size(target)) + 10);
    if (x > HEAD && x + wide > width - 2) { x = HEAD; row++; }
    const place = { t, text, target, wide, x, top: row * tall };
    x += wide;
    return place;
  });
  return { places, tall, height: (row + 1) * tall };
}

// Neighbours in a line with the same value, as one band.
function bands(places, valueAt) {
  const made = [];
  for (const place of places) {
    const last = made.at(-1);
    if (last && last.top === place.top && last.value === valueAt(place.t)) last.wide += place.wide;
    else made.push({ value: valueAt(place.t), x: place.x, top: place.top, wide: place.wide });
  }
  return made;
}

function render({ model, el }) {
  const w = frame({ model, el, title: "What each position is asked for, and what counts",
    primary: ["strip", "position", "shift"] });
  w.root.append(h("style", {}, STYLE));
  const strips = model.get("strips");
  const strip = () => strips.find(({ name }) => name === model.get("strip"));
  const settings = () => ({
    shift: model.get("shift"), learn: model.get("learn"), separate: model.get("separate") });
  const asked = () => targets(strip(), settings());
  const last = () => strip().tokens.length - 1;

  w.choice("strip", "row of tokens", { options: strips.map(({ name }) => name) });
  const place = w.number("position", "position");
  w.player({
    step: () => {
      w.put("position", model.get("position") < last() ? model.get("position") + 1 : 0); // the end, then anew
      return model.get("position") < last();
    },
    reset: () => w.put("position", 0),
    perSecond: 1.5,
  });
  w.button("Back", () => w.put("position", Math.max(0, model.get("position") - 1)));
  w.number("shift", "shift of the targets");
  w.choice("learn", "learn", { options: Object.keys(LEARN),
    labels: ["all tokens", "assistant only", "assistant without end token"] });
  w.toggle("separate", "ignore targets across documents");

  const quote = (t) => `“${spelt(strip().tokens[t])}”`;

  // Why a target of the document itself counts.
  function because(target) {
    if (model.get("shift") === 0) return "but it is the token that the position reads: copying is enough";
    if (model.get("shift") === 2) return `but ${quote(target - 1)} between them stays hidden`;
    return model.get("learn") === "all tokens" ? "it comes next in the same document"
      : "it comes next, and the assistant wrote it";
  }

  // Why a position's target counts or does not.
  function reason({ target, why }) {
    if (why === "counts") return because(target);
    return {
      "end of row": "the row ends here",
      padding: "padding is no text",
      "another document": "the target belongs to another document, and nothing here tells what comes there",
      crosses: "but it belongs to another document, and nothing here tells what comes there",
      "not learned": "only the assistant's tokens are learned, and this one is not " +
        `(role ${strip().roles[target]})`,
      "end left out": `${END} is left out`,
    }[why];
  }

  // The last tokens that a position sees, as text.
  function before(t) {
    const texts = seen(strip(), t).map((i) => spelt(strip().tokens[i], { spaces: true }));
    let first = texts.length - 1;
    for (let length = size(texts[first]); first > 0; first--) {
      length += size(texts[first - 1]);
      if (length > MOST_SEEN) break;
    }
    return `${first ? "… " : ""}${texts.slice(first).join("")}`;
  }

  function sentence() {
    const t = model.get("position");
    const each = asked()[t];
    if (strip().documents[t] < 0) return `Position ${t} is padding: it reads no text, and nothing is asked of it.`;
    const wanted = each.target === null ? "there is no token to ask for" : `is asked for ${quote(each.target)}`;
    const told = reason(each);
    return `Position ${t} sees “${before(t)}” and ${wanted}; it ${each.counted ? "counts" : "does not count"}` +
      `${told.startsWith("but") ? "," : ":"} ${told}.`;
  }

  function counts() {
    const [many, all] = [numCounted(asked()), strip().tokens.length];
    if (!many) return `None of the ${all} positions counts: a mean over none would be 0 / 0.`;
    return `${many} of ${all} positions count, ${show(100 * many / all, 3)} %: ` +
      `the loss is their sum divided by ${many}.`;
  }

  // One token in its box: round for a special token, dashed where it is not seen or does not count.
  function box(text, token, x, y, wide, on, mark) {
    return s("g", {},
      s("rect", { x: x + 1.5, y: y + 2, width: wide - 3, height: ROW - 4, rx: isSpecial(token) ? 10 : 2,
        class: mark, fill: on ? "currentColor" : "none", "fill-opacity": 0.22,
        stroke: on ? "currentColor" : "var(--lc-line)", "stroke-dasharray": on ? null : "3 3" }),
      label(x + wide / 2, y + 16.5, text, { "text-anchor": "middle", class: on ? "lc-token" : "lc-token lc-off" }));
  }

  // A tick in a disc, or a bare cross.
  function sign(counted, cx, cy) {
    return counted
      ? s("g", {}, s("circle", { cx, cy, r: 8, fill: "currentColor", class: "lc-3" }),
        s("path", { d: `M${cx - 4} ${cy}l3 3.5l5 -7`, fill: "none", stroke: "var(--lc-on)", "stroke-width": 2 }))
      : s("path", { d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8`, stroke: "var(--lc-muted)", "stroke-width": 1.6 });
  }

  // A role, or a document; one below 0 is padding, and hatched.
  function band({ value, x, top, wide }, at, hatching) {
    const y = top + at * ROW;
    const name = typeof value === "number" ? `document ${value}` : value;
    const padding = value < 0;
    const most = Math.floor((wide - 4) / 6.6);
    const text = size(name) <= most ? name : cut(String(value), most);
    return s("g", {},
      s("rect", { x: x + 1.5, y: y + 3, width: wide - 3, height: ROW - 6, stroke: "var(--lc-line)",
        fill: padding ? `url(#${hatching})` : "none" }),
      padding ? null : label(x + wide / 2, y + 16.5, text, { "text-anchor": "middle" }));
  }

  let places = []; // of the last drawing: a press on a column chooses it
  const drawStrip = w.stage((svg, width) => {
    const all = asked();
    const t = model.get("position");
    const looked = new Set(seen(strip(), t));
    const id = uniqueId();
    const made = layOut(strip(), all, width);
    places = made.places;
    svg.append(hatch(id));
    const rows = rowsOf(strip());
    for (let top = 0; top < made.height; top += made.tall) {
      svg.append(...rows.map((name, i) => label(0, top + i * ROW + 16.5, name)));
    }
    for (const { t: at, text, target, wide, x, top } of places) {
      const each = all[at];
      svg.append(
        label(x + wide / 2, top + 16.5, at, { "text-anchor": "middle", "font-weight": at === t ? 700 : 400 }),
        box(text, strip().tokens[at], x, top + ROW, wide, looked.has(at), "lc-1"),
        box(target, strip().tokens[each.target] ?? "", x, top + 2 * ROW, wide, each.counted, "lc-3"),
        sign(each.counted, x + wide / 2, top + 3.5 * ROW));
    }
    rows.slice(ROWS.length).forEach((name, i) => svg.append(
      ...bands(places, (at) => strip()[`${name}s`][at]).map((each) => band(each, ROWS.length + i, id))));
    const here = places[t];
    svg.append(s("rect", { x: here.x, y: here.top + 1, width: here.wide, height: ROWS.length * ROW + 2, rx: 4,
      fill: "none", stroke: "var(--lc-text)", "stroke-width": 2.5 }));
    return `${counts()} ${sentence()}`;
  }, {
    height: (width) => layOut(strip(), asked(), width).height,
    label: "tokens with their targets",
  });
  const picture = drawStrip.picture;
  const why = h("p", {});
  const legend = h("p", { class: "lc-legend" });
  w.stages.append(legend, why);
  const numbers = w.table("Every position in words");

  function redraw() {
    drawStrip();
    const all = asked();
    const { tokens, roles, documents } = strip();
    const same = ["role", "document"].filter((name) => !rowsOf(strip()).includes(name))
      .map((name) => `${name} ${strip()[`${name}s`][0]}`);
    legend.textContent = "Tinted: what the chosen position sees, and targets that count. Dashed: not. " +
      "Round: special token. ␣ space, ↵ new line." + (documents.some((d) => d < 0) ? " Hatched: padding." : "") +
      (same.length ? ` All tokens: ${same.join(", ")}.` : "");
    why.textContent = `${SHIFTS[model.get("shift")]} ${LEARNED[model.get("learn")]} ` +
      (model.get("separate") ? "No target crosses the border of a document."
        : "The first token of a document is asked of the document before it.");
    numbers({
      columns: ["position", "reads", "sees, tokens", "asked for", "counts", "because", "role", "document"],
      rows: tokens.map((token, t) => [String(t), spelt(token), seen(strip(), t).length,
        all[t].target === null ? "none" : spelt(tokens[all[t].target]), all[t].counted ? "yes" : "no",
        reason(all[t]), roles[t], documents[t] < 0 ? "padding" : String(documents[t])]),
    });
    w.say(`${sentence()} ${counts()}`);
  }

  // How many positions there are depends on the strip.
  function settle() {
    const { range, field } = place;
    model.get("limits").position.high = range.max = field.max = last();
    range.value = model.get("position");
    if (model.get("position") > last()) w.putNumber("position", "position", model.get("position"));
    else redraw();
  }

  // A press on a column chooses it, as the slider, the field and the buttons do.
  picture.addEventListener("click", (event) => {
    const [x, y] = within(picture, event);
    const hit = places.find((p) => x >= p.x && x < p.x + p.wide && y >= p.top && y < p.top + ROWS.length * ROW);
    if (hit) w.put("position", hit.t);
  });
  w.on(["strip", "position", "shift", "learn", "separate"], settle);
  settle();
  return w.destroy;
}

export default { render };
