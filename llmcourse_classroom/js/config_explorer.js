import { clamp, frame, h, label, s, show } from "./kit.js";
import { nearestDivisor, nextDivisor, parametersByPart, total } from "./llama.js";

// --- arithmetic, compared with llmcourse_labs.scale.cost by the tests

export function forwardFlop(c) {
  const parts = parametersByPart(c);
  return {
    projections: 2 * parts.attention,
    "attention pairs": c.num_layers * 4 * c.num_heads * c.head_size * (c.context_length + 1) / 2,
    feed_forward: 2 * parts.feed_forward,
    head: 2 * c.vocab_size * c.width,
  };
}

// The seven matrices of a layer.
export const matrices = (c) => ({
  q: c.width * c.num_heads * c.head_size, o: c.width * c.num_heads * c.head_size,
  k: c.width * c.num_kv_heads * c.head_size, v: c.width * c.num_kv_heads * c.head_size,
  gate: c.width * c.hidden, up: c.width * c.hidden, down: c.width * c.hidden,
});

// Bytes that training keeps, by what they hold.
export function trainingMemory(c, bytesPerParameter) {
  const count = total(parametersByPart(c));
  return Object.fromEntries(Object.entries(bytesPerParameter).map(([name, bytes]) => [name, bytes * count]));
}

// Bytes that writing keeps: the weights, and the keys and values of one text of full length.
export function writingMemory(c, weightBytes, cacheBytes) {
  return {
    weights: weightBytes * total(parametersByPart(c)),
    "KV cache": 2 * c.num_layers * c.num_kv_heads * c.head_size * cacheBytes * c.context_length,
  };
}

// --- the page

const FIELDS = [
  ["num_layers", "layers L"], ["width", "width D"], ["num_heads", "query heads H"],
  ["num_kv_heads", "key/value heads G"],
  ["head_size", "head size K"], ["hidden", "hidden width F"],
  ["vocab_size", "vocabulary V"], ["context_length", "context T"],
];
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

// Three digits with a prefix; counts without a unit say B for a billion, as papers do.
export function short(value, unit = "") {
  const [size, letter] = UNITS.find(([limit]) => value >= limit) || UNITS.at(-1);
  const prefix = unit === "" && letter === "G" ? "B" : letter;
  return `${show(value / size, 3)} ${prefix}${unit}`.trim();
}

function render({ model, el }) {
  const w = frame({ model, el, title: "A shape and what it costs", primary: ["preset", "num_layers", "width"] });
  const presets = model.get("presets");
  const names = FIELDS.map(([name]) => name);
  let busy = false;
  const bySize = (a, b) => total(parametersByPart(presets[a])) - total(parametersByPart(presets[b]));
  w.choice("preset", "shape", { options: [...Object.keys(presets).sort(bySize), "your own"] });
  const inputs = Object.fromEntries(FIELDS.map(([name, text]) => [name, w.number(name, text, { log: true })]));
  // One more key/value head would be moved straight back: an arrow key goes to the next that divides.
  const onArrow = (ups, downs) => (event) => {
    const direction = ups.includes(event.key) ? 1 : downs.includes(event.key) ? -1 : 0;
    if (!direction) return;
    event.preventDefault();
    model.set("note", "");
    const value = nextDivisor(model.get("num_heads"), model.get("num_kv_heads"), direction);
    inputs.num_kv_heads.field.value = value;
    w.put("num_kv_heads", value);
  };
  inputs.num_kv_heads.range.addEventListener("keydown", onArrow(["ArrowUp", "ArrowRight"], ["ArrowDown", "ArrowLeft"]));
  inputs.num_kv_heads.field.addEventListener("keydown", onArrow(["ArrowUp"], ["ArrowDown"]));
  w.toggle("tied_head", "output head tied to the embedding");

  const shape = () => Object.fromEntries([...names, "tied_head"].map((name) => [name, model.get(name)]));

  // A bar of shares, each part named beside it.
  const bars = (parts, unit) => (svg, width) => {
    const shown = Object.entries(parts());
    const sum = shown.reduce((all, [, value]) => all + value, 0);
    const left = Math.min(130, width * 0.31);
    shown.forEach(([name, value], i) => {
      const y = 4 + i * 26;
      const most = width - left - 136;
      svg.append(label(left - 6, y + 15, name.replace("_", "-"), { "text-anchor": "end" }),
        s("rect", { x: left, y, width: most, height: 20, fill: "none", stroke: "var(--lc-line)" }),
        s("rect", { x: left, y, width: most * value / sum, height: 20, fill: "var(--lc-1)" }),
        label(width - 2, y + 15, `${(100 * value / sum).toFixed(1)} % · ${short(value, unit)}`,
          { "text-anchor": "end" }));
    });
    return shown.map(([name, value]) => `${name} ${short(value, unit)}`).join(", ");
  };
  const heading = (text) => w.stages.append(h("p", { class: "lc-title" }, text));

  // The weights to scale: an area is a number of parameters, a layer a row of seven matrices.
  const drawParameters = w.stage((svg, width, tall) => {
    const c = shape();
    const parts = parametersByPart(c);
    const sum = total(parts);
    const wide = Math.max(120, Math.min(width - 172, 560));
    const shares = Object.entries(matrices(c));
    const layer = total(matrices(c));
    const Y = (count) => tall - 2 - (tall - 4) * count / sum;
    const block = (key, from, count, mark) => s("rect", { "data-key": key, x: 1, y: Y(from + count), width: wide,
      height: Math.max(0, Y(from) - Y(from + count)), fill: "currentColor", class: mark });
    const bottom = parts.embedding;
    const top = bottom + c.num_layers * layer;
    svg.append(block("embedding", 0, parts.embedding, "lc-3"), block("head", top, parts.head, "lc-6"));
    let left = 1;
    shares.forEach(([name, count], i) => {
      const across = wide * count / layer;
      svg.append(s("rect", { "data-key": name, x: left, y: Y(top), width: Math.max(0, across - 0.75),
        height: Y(bottom) - Y(top), fill: "currentColor", class: i < 4 ? "lc-1" : "lc-2",
        opacity: i % 2 ? 0.72 : 1 }));
      if (across > 8 * name.length + 4 && Y(bottom) - Y(top) > 18) {
        svg.append(label(left + across / 2, (Y(top) + Y(bottom)) / 2 + 4, name,
          { "data-key": `${name} in words`, "text-anchor": "middle", style: "fill: var(--lc-on); font-weight: 700" }));
      }
      left += across;
    });
    const high = (Y(bottom) - Y(top)) / c.num_layers;
    for (let i = 0; i <= c.num_layers; i++) {
      const y = Y(bottom) - i * high;
      svg.append(s("line", { "data-key": `layer ${i}`, x1: 1, x2: wide + 1, y1: y, y2: y, stroke: "var(--lc-on)",
        "stroke-width": Math.min(1, high / 5) }));
    }
    // Names beside the picture, each at its height where there is room.
    const row = (name, value, mark, y, more = "") => svg.append(
      s("rect", { x: wide + 12, y: y - 9, width: 10, height: 10, fill: "currentColor", class: mark }),
      label(wide + 28, y, name), label(wide + 28, y + 15,
        `${(100 * value / sum).toFixed(1)} % · ${short(value)}${more}`, { style: "fill: var(--lc-muted)" }));
    const middle = (Y(top) + Y(bottom)) / 2;
    const upper = Math.min(Math.max(12, (Y(top + parts.head) + Y(top)) / 2), tall / 2 - 76);
    const lower = Math.max(Math.min(tall - 22, (Y(0) + Y(bottom)) / 2), tall / 2 + 66);
    row(c.tied_head ? "no head: tied" : "head", parts.head, "lc-6", upper);
    svg.append(label(wide + 12, clamp(middle, upper + 52, lower - 74) - 18, `${show(c.num_layers)} layers`,
      { style: "font-weight: 700" }));
    row("feed-forward", parts.feed_forward, "lc-2", clamp(middle, upper + 52, lower - 74));
    row("attention", parts.attention, "lc-1", clamp(middle, upper + 52, lower - 74) + 34);
    row("embedding", parts.embedding, "lc-3", lower);
    return Object.entries(parts).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  }, { height: (width) => (width < 480 ? 300 : 340), label: "parameters" });
  w.stages.append(h("p", { class: "lc-small" }, "Areas are numbers of parameters. A row of the middle part is a layer: " +
    "the matrices of attention (q, o, k, v) and of the feed-forward network (gate, up, down). Norms are too small to see."));
  heading("Forward pass, FLOPs per token");
  const drawFlop = w.stage(bars(() => forwardFlop(shape()), "FLOP"), { height: 108, label: "FLOPs" });
  const training = () => trainingMemory(shape(), model.get("bytes"));
  const writing = () => writingMemory(shape(), model.get("bytes").weights, model.get("cache_bytes"));
  heading("Memory of mixed-precision training");
  const drawTraining = w.stage(bars(training, "B"), { height: 108, label: "memory of training" });
  heading("Memory of writing one text as long as the context");
  const drawWriting = w.stage(bars(writing, "B"), { height: 56, label: "memory of writing" });
  const numbers = w.table("All numbers, exact");

  function redraw() {
    if (busy) return;
    drawParameters();
    drawFlop();
    drawTraining();
    drawWriting();
    const c = shape();
    const groups = [["parameters", parametersByPart(c)], ["FLOPs", forwardFlop(c)],
      ["bytes of training", training()], ["bytes of writing", writing()]];
    numbers({ columns: ["what", "part", "number"], rows: groups.flatMap(([what, parts]) =>
      [...Object.entries(parts), ["in all", total(parts)]].map(([part, value]) =>
        [what, part, value.toLocaleString("en-US")])) });
    const count = total(parametersByPart(c));
    const flop = total(forwardFlop(c));
    const state = total(model.get("bytes")) * count;
    const share = show(100 * parametersByPart(c).feed_forward / count, 3);
    w.say(`${short(count)} parameters, ${share} % of them in the feed-forward networks. ` +
      `One token costs ${short(flop, "FLOP")} forward; 2 N would be ${short(2 * count, "FLOP")}. ` +
      `Weights, gradients and optimizer state take ${short(state, "B")}: ` +
      `${show(Math.ceil(state / 80e9))} GPUs of 80 GB at least. ` +
      `The cache of one text of ${c.context_length.toLocaleString("en-US")} tokens takes ` +
      `${short(writing()["KV cache"], "B")}.`);
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
    const said = [];
    const kv = nearestDivisor(c.num_heads, c.num_kv_heads);
    if (kv !== c.num_kv_heads) {
      said.push(`Key/value heads must divide ${c.num_heads} query heads: ${kv} is used in place of ${c.num_kv_heads}.`);
      w.put("num_kv_heads", kv);
    }
    if (c.head_size % 2) {
      said.push(`The head size must be even for rotary positions: ` +
        `${c.head_size + 1} is used in place of ${c.head_size}.`);
      w.put("head_size", c.head_size + 1);
    }
    if (said.length) w.put("note", said.join(" "));
  }

  // After a change, and at the start: Python may have set a shape that cannot be built.
  function settle() {
    if (busy) return;
    busy = true;
    mend();
    const chosen = presets[model.get("preset")];
    const now = shape();
    if (chosen && Object.keys(now).some((name) => now[name] !== chosen[name])) w.put("preset", "your own");
    busy = false;
    redraw();
  }
  w.on([...names, "tied_head"], settle);
  settle();
  return w.destroy;
}

export default { render };
