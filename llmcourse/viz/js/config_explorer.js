import { frame, h, label, s, show } from "./kit.js";

// --- arithmetic, compared with llmcourse.cost by the tests

export function parameters(c) {
  const heads = 2 * c.num_heads + 2 * c.num_kv_heads;
  return {
    embedding: c.vocab_size * c.width,
    attention: c.num_layers * c.width * heads * c.head_size,
    feed_forward: c.num_layers * 3 * c.width * c.hidden,
    norms: (2 * c.num_layers + 1) * c.width,
    head: c.tied_head ? 0 : c.vocab_size * c.width,
  };
}

export function forwardFlop(c) {
  const parts = parameters(c);
  return {
    projections: 2 * parts.attention,
    "attention pairs": c.num_layers * 4 * c.num_heads * c.head_size * (c.context_length + 1) / 2,
    feed_forward: 2 * parts.feed_forward,
    head: 2 * c.vocab_size * c.width,
  };
}

export const total = (parts) => Object.values(parts).reduce((sum, part) => sum + part, 0);

// Bytes of training state by what they hold, and of a sequence in the key/value cache.
export function memory(c, bytesPerParameter, cacheBytes) {
  const count = total(parameters(c));
  const held = Object.fromEntries(Object.entries(bytesPerParameter).map(([name, bytes]) => [name, bytes * count]));
  return { ...held, "KV cache, one text":
    2 * c.num_layers * c.num_kv_heads * c.head_size * cacheBytes * c.context_length };
}

// The nearest number of key/value heads that divides the heads.
export function nearestDivisor(number, wanted) {
  let best = 1;
  for (let d = 1; d <= number; d++) {
    if (number % d === 0 && Math.abs(d - wanted) < Math.abs(best - wanted)) best = d;
  }
  return best;
}

// --- the page

const FIELDS = [
  ["num_layers", "layers L"], ["width", "width D"], ["num_heads", "query heads H"], ["num_kv_heads", "key/value heads G"],
  ["head_size", "head size K"], ["hidden", "hidden width F"], ["vocab_size", "vocabulary V"], ["context_length", "context T"],
];
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

// Three digits with a prefix; counts without a unit say B for a billion, as papers do.
export function short(value, unit = "") {
  const [size, letter] = UNITS.find(([limit]) => value >= limit) || UNITS.at(-1);
  const prefix = unit === "" && letter === "G" ? "B" : letter;
  return `${show(value / size, 3)} ${prefix}${unit}`.trim();
}

function render({ model, el }) {
  const w = frame({ model, el, title: "A shape and what it costs" });
  const presets = model.get("presets");
  const names = FIELDS.map(([name]) => name);
  let busy = false;
  w.choice("preset", "shape", { options: [...Object.keys(presets), "your own"] });
  FIELDS.forEach(([name, text]) => w.number(name, text, { log: true }));
  w.toggle("tied_head", "output head tied to the embedding");

  const shape = () => ({ ...Object.fromEntries(names.map((name) => [name, model.get(name)])), tied_head: model.get("tied_head") });

  // A bar of shares, each part named beside it.
  const bars = (parts, unit) => (svg, width) => {
    const shown = Object.entries(parts());
    const sum = shown.reduce((all, [, value]) => all + value, 0);
    const left = Math.min(170, width * 0.36);
    shown.forEach(([name, value], i) => {
      const y = 4 + i * 26;
      const most = width - left - 136;
      svg.append(label(left - 6, y + 15, name.replace("_", "-"), { "text-anchor": "end" }),
        s("rect", { x: left, y, width: most, height: 20, fill: "none", stroke: "var(--lc-line)" }),
        s("rect", { x: left, y, width: most * value / sum, height: 20, fill: "var(--lc-1)" }),
        label(width - 2, y + 15, `${(100 * value / sum).toFixed(1)} %  ${short(value, unit)}`, { "text-anchor": "end" }));
    });
    return shown.map(([name, value]) => `${name} ${short(value, unit)}`).join(", ");
  };
  const heading = (text) => w.stages.append(h("p", { class: "lc-title" }, text));
  heading("Parameters");
  const drawParameters = w.stage(bars(() => parameters(shape()), ""), { height: 134, label: "parameters" });
  heading("Forward pass, FLOPs per token");
  const drawFlop = w.stage(bars(() => forwardFlop(shape()), "FLOP"), { height: 108, label: "FLOPs" });
  heading("Memory of mixed-precision training");
  const drawMemory = w.stage(bars(() => memory(shape(), model.get("bytes"), model.get("cache_bytes")), "B"), { height: 134, label: "memory" });
  const numbers = w.table("All numbers, exact");

  function redraw() {
    if (busy) return;
    drawParameters();
    drawFlop();
    drawMemory();
    const c = shape();
    const groups = [["parameters", parameters(c)], ["FLOPs", forwardFlop(c)], ["bytes", memory(c, model.get("bytes"), model.get("cache_bytes"))]];
    numbers({ columns: ["what", "part", "number"], rows: groups.flatMap(([what, parts]) =>
      [...Object.entries(parts), ["in all", total(parts)]].map(([part, value]) => [what, part, value.toLocaleString("en-US")])) });
    const count = total(parameters(c));
    const flop = total(forwardFlop(c));
    const state = total(model.get("bytes")) * count;
    w.say(`${short(count)} parameters, ${show(100 * parameters(c).feed_forward / count, 3)} % of them in the feed-forward networks. ` +
      `One token costs ${short(flop, "FLOP")} forward; 2 N would be ${short(2 * count, "FLOP")}. ` +
      `Weights, gradients and optimizer state take ${short(state, "B")}: ${show(Math.ceil(state / 80e9))} GPUs of 80 GB at least.`);
  }

  w.on(["preset"], () => {
    const chosen = presets[model.get("preset")];
    if (!chosen || busy) return;
    busy = true;
    model.set("note", "");
    for (const [name, value] of Object.entries(chosen)) w.put(name, value);
    busy = false;
    redraw();
  });

  // A shape that cannot be built is moved to the nearest that can.
  function mend() {
    const c = shape();
    const kv = nearestDivisor(c.num_heads, c.num_kv_heads);
    if (kv !== c.num_kv_heads) {
      model.set("note", `Key/value heads must divide ${c.num_heads} query heads: ${kv} is used in place of ${c.num_kv_heads}.`);
      w.put("num_kv_heads", kv);
    }
    if (c.head_size % 2) {
      model.set("note", `The head size must be even for rotary positions: ${c.head_size + 1} is used in place of ${c.head_size}.`);
      w.put("head_size", c.head_size + 1);
    }
  }

  w.on([...names, "tied_head"], () => {
    if (busy) return;
    busy = true;
    mend();
    const chosen = presets[model.get("preset")];
    const now = shape();
    if (chosen && Object.keys(now).some((name) => now[name] !== chosen[name])) w.put("preset", "your own");
    busy = false;
    redraw();
  });
  redraw();
  return w.destroy;
}

export default { render };
