import { frame, h, label, s, show, uniform } from "./kit.js";

// --- arithmetic, compared with llmcourse.model.next_token_probabilities by the tests

// Logits that were stored as 16-bit whole numbers, lowest byte first.
export function logits(base64, quantum) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 2 }, (_, i) => quantum * view.getInt16(2 * i, true));
}

// Temperature, then the top_k likeliest, then the fewest whose probability reaches top_p; null cuts nothing.
export function probabilities(z, { temperature, top_k, top_p }) {
  const most = z.reduce((a, b) => Math.max(a, b), -Infinity);
  const order = z.map((_, i) => i).sort((a, b) => z[b] - z[a] || a - b);
  let p = order.map((i) => Math.exp((z[i] - most) / temperature));
  const rescale = () => { const sum = p.reduce((a, b) => a + b, 0); p = p.map((x) => x / sum); };
  rescale();
  if (top_k !== null && top_k < p.length) {
    p = p.map((x, rank) => (rank < top_k ? x : 0));
    rescale();
  }
  if (top_p !== null) {
    const reached = top_p * (1 - 1e-12); // 0.5 and 0.3 reach 0.8, whatever is rounded
    let before = 0;
    p = p.map((x) => { const kept = before < reached; before += x; return kept ? x : 0; });
    rescale();
  }
  const found = new Array(z.length).fill(0);
  order.forEach((i, rank) => { found[i] = p[rank]; });
  return found;
}

export const entropyBits = (p) => p.reduce((sum, x) => (x > 0 ? sum - x * Math.log2(x) : sum), 0);

// The index that a number from 0 to 1 falls on.
export function draw(p, u) {
  let sum = 0;
  let last = 0;
  for (let i = 0; i < p.length; i++) {
    if (p[i] > 0) last = i;
    sum += p[i];
    if (u < sum) return i;
  }
  return last;
}

// --- the page

const SHOWN = 15;

function render({ model, el }) {
  const w = frame({ model, el, title: "From logits to the next token", primary: ["temperature", "top_k", "top_p"] });
  const contexts = model.get("contexts");
  const tokens = model.get("tokens");
  const all = model.get("logits").map((text) => logits(text, model.get("quantum")));
  w.choice("context", "the text so far ends in", { options: contexts });
  w.number("temperature", "temperature", { log: true });
  w.number("top_k", "top-k", { log: true });
  w.number("top_p", "top-p");
  w.number("draws", "tokens drawn");
  const limit = model.get("limits").draws.high;
  w.button("Draw 20", () => w.put("draws", Math.min(limit, model.get("draws") + 20)));
  w.player({
    step: () => { w.put("draws", Math.min(limit, model.get("draws") + 1)); return model.get("draws") < limit; },
    reset: () => w.put("draws", 0), perSecond: 6, longest: 20,
  });

  const z = () => all[Math.max(0, contexts.indexOf(model.get("context")))];
  // All tokens, and all of the probability, are no cut at all: a sum of many shares may pass 1 before the last.
  const settings = () => ({
    temperature: model.get("temperature"),
    top_k: model.get("top_k") < tokens.length ? model.get("top_k") : null,
    top_p: model.get("top_p") < 1 ? model.get("top_p") : null,
  });
  const plain = { temperature: 1, top_k: null, top_p: null };
  const word = (i) => `“${tokens[i]}”`;

  function state() {
    const before = probabilities(z(), plain);
    const now = probabilities(z(), settings());
    const order = before.map((_, i) => i).sort((a, b) => before[b] - before[a] || a - b);
    const counts = new Map();
    const drawn = [];
    for (let n = 0; n < model.get("draws"); n++) {
      const i = draw(now, uniform(1, n));
      drawn.push(i);
      counts.set(i, (counts.get(i) || 0) + 1);
    }
    return { before, now, order, counts, drawn };
  }

  let current = null;
  // All tokens but the likeliest `count`, as one: name, probability before and now, how often drawn.
  function others(count) {
    const { before, now, order, counts } = current;
    const rest = order.slice(count);
    const sum = (of) => rest.reduce((total, i) => total + of(i), 0);
    return [`${show(rest.length)} others`, sum((i) => before[i]), sum((i) => now[i]), sum((i) => counts.get(i) || 0)];
  }

  const drawBars = w.stage((svg, width) => {
    const { before, now, order, counts } = current;
    const rows = order.slice(0, SHOWN).map((i) => [word(i), before[i], now[i], counts.get(i)]);
    if (order.length > SHOWN) rows.push(others(SHOWN));
    const top = Math.max(...rows.flatMap(([, was, is]) => [was, is]));
    const [left, right] = [Math.min(130, width * 0.34), width - 96];
    rows.forEach(([name, was, is, drawn], row) => {
      const y = 4 + row * 22 + (row < SHOWN ? 0 : 8);
      const gone = is === 0;
      svg.append(
        label(left - 6, y + 13, name, { "text-anchor": "end", "text-decoration": gone ? "line-through" : null }),
        s("rect", { x: left, y, width: (right - left) * is / top, height: 17,
          fill: row < SHOWN ? "var(--lc-1)" : "var(--lc-muted)" }),
        s("rect", { x: left, y, width: (right - left) * was / top, height: 17, fill: "none",
          stroke: "var(--lc-2)", "stroke-width": 1.5, "stroke-dasharray": "4 2" }),
        label(width - 2, y + 13, gone ? "cut" : `${show(is, 3)}${drawn ? ` ×${drawn}` : ""}`,
          { "text-anchor": "end" }));
    });
    return [...rows.slice(0, 5), ...rows.slice(SHOWN)].map(([name, , is]) => `${name} ${show(is, 3)}`).join(", ");
  }, { height: 4 + Math.min(tokens.length, SHOWN + 1) * 22 + 8, label: "the likeliest tokens" });
  w.stages.append(h("p", {}, "Filled: the distribution that is drawn from. " +
    "Dashed: temperature 1, nothing cut. After ×, how often a token was drawn."));
  const written = h("p", { style: "overflow-wrap: anywhere" });
  w.stages.append(written);
  const numbers = w.table("The 30 likeliest tokens");

  function redraw() {
    current = state();
    const { before, now, order, counts, drawn } = current;
    drawBars();
    written.textContent = drawn.length ? `Drawn: ${drawn.slice(-40).map(word).join(" ")}`
      : "Nothing drawn yet: press Draw 20, or Step for one.";
    numbers({ columns: ["token", "logit", "p at T = 1", "p now", "drawn"],
      rows: [...order.slice(0, 30).map((i) => [word(i), z()[i], before[i], now[i], counts.get(i) || 0]),
        ...(order.length > 30 ? [others(30)].map(([name, ...rest]) => [name, "", ...rest]) : [])] });
    const kept = now.filter((p) => p > 0).length;
    const best = order[0];
    w.say(`${show(kept)} of ${show(tokens.length)} tokens can be drawn. ` +
      `The likeliest, ${word(best)}, has ${show(now[best], 3)} (${show(before[best], 3)} at temperature 1). ` +
      `Entropy ${show(entropyBits(now), 3)} bits, before ${show(entropyBits(before), 3)}; ` +
      `perplexity ${show(2 ** entropyBits(now), 3)}: as undecided as between so many equally likely tokens.`);
  }

  w.on(["context", "temperature", "top_k", "top_p", "draws"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
