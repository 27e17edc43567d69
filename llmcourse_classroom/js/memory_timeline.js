import { axes, clamp, frame, h, hatch, label, line, percent, s, scale, show, ticks, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_classroom.widgets.memory by the tests

const CHOICES = ["nothing", "cheap", "attention", "block"];

// Bytes kept of one sequence by one layer, by what it computes again.  GPT-3 writes attention out, and pays for it.
export function kept(shape, tokens) {
  const { width: D, num_heads: H, num_kv_heads: G, head_size: K, hidden: F } = shape;
  const each = F === undefined
    ? { nothing: 34 * D + 5 * H * tokens, cheap: 22 * D + 5 * H * tokens, attention: 34 * D, block: 2 * D }
    : { nothing: 2 * (4 * D + 3 * F + 2 * (H + G) * K) + 4 * (2 + H), attention: 2 * (4 * D + 3 * F) + 8,
      cheap: 2 * (2 * D + 2 * F + 2 * (H + G) * K) + 4 * (2 + H), block: 2 * D };
  return Object.fromEntries(CHOICES.map((choice) => [choice, tokens * each[choice]]));
}

// FLOPs that one layer does again in backward, for one sequence.
export function again(shape, tokens) {
  const { width: D, num_heads: H, num_kv_heads: G, head_size: K, hidden: F } = shape;
  const attention = F === undefined ? 4 * tokens * D : 4 * D * (H + G) * K + 4 * H * K * (tokens + 1) / 2;
  const block = attention + (F === undefined ? 24 * D * D : 6 * D * F);
  return { nothing: 0, cheap: 0, attention: tokens * attention, block: tokens * block };
}

// Bytes that live at every moment: at the start, after each layer forward, in each layer backward, at the end.
// While backward is in a layer, all of it is there, whatever was kept.
export function live(bytes, choices) {
  const sums = [0];
  for (const choice of choices) sums.push(sums.at(-1) + bytes[choice]);
  return [...sums, ...sums.slice(0, -1).reverse().map((before) => before + bytes.nothing), 0];
}

// What is done again, as a share of a step: three forward passes.
export const extra = (flop, choices) =>
  choices.reduce((sum, choice) => sum + flop[choice], 0) / (3 * choices.length * flop.block);

export const limit = (bytes, numLayers, target) => (target / 100) * (numLayers * bytes.nothing);

// The cheapest choices whose peak stays within the target, or null.  Only how many choose what counts.
export function best(bytes, flop, numLayers, target) {
  let found = null;
  for (let blocks = 0; blocks < numLayers; blocks++) {
    for (let attentions = 0; attentions + blocks < numLayers; attentions++) {
      for (let cheap = 0; cheap + attentions + blocks < numLayers; cheap++) {
        const choices = ["block", "attention", "cheap", "nothing"].flatMap((choice, k) =>
          Array(([blocks, attentions, cheap, numLayers - blocks - attentions - cheap])[k]).fill(choice));
        if (Math.max(...live(bytes, choices)) > limit(bytes, numLayers, target)) continue;
        if (!found || extra(flop, choices) < extra(flop, found)) found = choices;
      }
    }
  }
  return found;
}

// --- the page

const SAYS = { nothing: "keeps everything", cheap: "recomputes its cheap parts",
  attention: "recomputes attention", block: "recomputes its insides" };
const OPTIONS = ["keep all", "recompute cheap parts", "recompute attention", "recompute block"];
const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];

const unitOf = (value) => UNITS.find(([size]) => value >= size) || UNITS.at(-1);
const size = (value) => {
  const [unit, name] = unitOf(value);
  return `${show(value / unit, 3)} ${name}`;
};

function render({ model, el }) {
  const w = frame({ model, el, title: "Live memory through one step, and what to recompute",
    primary: ["preset", "target"] });
  const presets = model.get("presets");
  const names = Object.keys(presets);
  const choices = () => model.get("choices");
  const layers = choices().length;
  const shape = () => presets[model.get("preset")];
  const last = 2 * layers + 1;
  const moment = () => clamp(model.get("moment"), 0, last);

  w.choice("preset", "layers of", { options: names, labels: names.map((name) => presets[name].label) });
  w.number("context_length", "tokens", { log: true });
  w.number("target", "target, % of the full peak");

  // One choice for each layer, and buttons for all of them.
  const columns = "repeat(auto-fill, minmax(8.4rem, 1fr))";
  const grid = h("div", { style: `display: grid; grid-template-columns: ${columns}; gap: 0.4rem 0.7rem` });
  const selects = choices().map((_, i) => {
    const id = uniqueId();
    const select = h("select", { id, style: "width: 100%" }, CHOICES.map((option, k) =>
      h("option", { value: option }, OPTIONS[k])));
    select.addEventListener("change", () => putChoices(choices().map((old, j) => (j === i ? select.value : old))));
    grid.append(h("div", {}, h("label", { for: id }, `layer ${i + 1}`), select));
    return select;
  });
  w.dock.prepend(h("fieldset", { style: "border: 0; padding: 0; margin: 0; min-width: 0" },
    h("legend", {}, "In forward, each layer …"), grid));
  const putChoices = (values) => {
    model.set("note", "");
    w.put("choices", values);
  };
  CHOICES.forEach((choice, k) => w.button(`All: ${OPTIONS[k]}`, () => putChoices(choices().map(() => choice))));
  w.button("Show the cheapest", () => {
    const found = now().cheapest;
    if (found) putChoices(found);
    else w.put("note", "No choice reaches this target: the layer that backward is in is there as a whole.");
  });
  w.player({
    perSecond: 2,
    step: () => {
      if (moment() >= last) return false;
      w.put("moment", moment() + 1);
      return moment() < last;
    },
    reset: () => w.put("moment", 0),
  });

  // Everything that picture, table and sentence say.
  function now() {
    const tokens = model.get("context_length");
    const bytes = kept(shape(), tokens);
    const flop = again(shape(), tokens);
    const curve = live(bytes, choices());
    const peak = Math.max(...curve);
    const top = limit(bytes, layers, model.get("target"));
    return { bytes, flop, curve, peak, at: curve.indexOf(peak), top, share: extra(flop, choices()),
      cheapest: best(bytes, flop, layers, model.get("target")) };
  }

  const layerAt = (at) => (at <= layers ? at : 2 * layers + 1 - at);
  const place = (at) => {
    if (at === 0) return "before the step";
    if (at === last) return "after the step";
    return at <= layers ? `after layer ${at} forward` : `in layer ${layerAt(at)} backward`;
  };

  const draw = w.stage((svg, wide, tall) => {
    const { bytes, curve, peak, at, top } = now();
    const full = layers * bytes.nothing;
    const [unit, name] = unitOf(full);
    const box = [46, 26, wide - 8, tall - 66];
    const y = scale([0, full / unit], [box[3], box[1]]);
    const room = (box[2] - box[0]) / (2 * layers);
    const striped = uniqueId();
    svg.append(hatch(striped, { stroke: "currentColor", "stroke-width": 5, class: "lc-2" }),
    axes({ x: () => 0, y, box, xTicks: [], yTicks: ticks(0, full / unit, 4), yTitle: `live, ${name}` }));
    for (let bar = 1; bar <= 2 * layers; bar++) {
      const x = box[0] + (bar - 1) * room;
      // In backward the layer's own kept bytes are there from forward; the rest came back.
      const returned = bar > layers ? bytes.nothing - bytes[choices()[layerAt(bar) - 1]] : 0;
      const middle = y((curve[bar] - returned) / unit);
      const end = y(curve[bar] / unit);
      svg.append(s("rect", { x: x + 1, y: middle, width: room - 2, height: box[3] - middle,
        fill: "currentColor", class: "lc-1" }));
      if (returned) {
        svg.append(s("rect", { x: x + 1, y: end, width: room - 2, height: middle - end, fill: `url(#${striped})`,
          stroke: "currentColor", class: "lc-2" }));
      }
      if (room > 15 || layerAt(bar) % 2 === 1) {
        svg.append(label(x + room / 2, box[3] + 15, layerAt(bar), { "text-anchor": "middle" }));
      }
      if (bar === moment()) {
        svg.append(s("rect", { x, y: box[1] - 4, width: room, height: box[3] - box[1] + 4, fill: "none",
          stroke: "var(--lc-text)", "stroke-width": 2, "stroke-dasharray": "3 2" }));
      }
    }
    const half = box[0] + layers * room;
    svg.append(
      label((box[0] + half) / 2, box[3] + 32, "forward, layer", { "text-anchor": "middle" }),
      label((half + box[2]) / 2, box[3] + 32, "backward, layer", { "text-anchor": "middle" }),
      line([[half, box[1]], [half, box[3] + 20]], { stroke: "var(--lc-line)" }),
      // Dark dashes on a light line: seen on the bars and beside them, in both themes.
      line([[box[0], y(top / unit)], [box[2], y(top / unit)]], { stroke: "var(--lc-on)", "stroke-width": 4 }),
      line([[box[0], y(top / unit)], [box[2], y(top / unit)]],
        { stroke: "var(--lc-text)", "stroke-width": 2, "stroke-dasharray": "8 4" }),
      label(box[2], 14, `- - target ${size(top)}`, { "text-anchor": "end" }),
      s("rect", { x: box[0], y: tall - 16, width: 14, height: 12, fill: "currentColor", class: "lc-1" }),
      label(box[0] + 19, tall - 6, "kept from forward"),
      s("rect", { x: box[0] + 136, y: tall - 16, width: 14, height: 12, fill: `url(#${striped})`,
        stroke: "currentColor", class: "lc-2" }),
      label(box[0] + 155, tall - 6, "computed again"));
    return `rises to ${size(curve[layers])} at the end of forward; highest ${size(peak)}, ${place(at)}; ` +
      `target ${size(top)}, ${peak <= top ? "kept" : "missed"}`;
  }, { height: 290, label: "bars of live memory, one for each layer forward and backward" });

  const about = h("p");
  w.stages.append(about);
  const numbers = w.table("Live memory at every moment");

  // What the chosen moment shows.
  function momentSentence({ bytes, curve }) {
    const at = moment();
    if (at === 0 || at === last) return "Step or play: forward through the layers, and backward.";
    const layer = layerAt(at);
    const choice = choices()[layer - 1];
    const there = size(curve[at]);
    if (at <= layers) {
      return `After layer ${layer} forward, which ${SAYS[choice]} and keeps ${size(bytes[choice])}: ${there} in all.`;
    }
    return choice === "nothing" ? `In layer ${layer} backward: it is all there. ${there} in all.`
      : `In layer ${layer} backward: it ran again, and ${size(bytes.nothing - bytes[choice])} came back. ` +
        `${there} in all.`;
  }

  function sentence({ peak, at, top, share, cheapest, flop }) {
    const cost = `Extra arithmetic: ${percent(share)} of the step.`;
    const where = `Peak ${size(peak)}, ${place(at)}; target ${size(top)}`;
    if (peak > top) {
      const hope = cheapest ? "" : " No choice reaches it: the layer that backward is in is there as a whole.";
      return `${where}: ${size(peak - top)} too much. ${cost}${hope}`;
    }
    const least = extra(flop, cheapest);
    const verdict = share <= least * (1 + 1e-9) + 1e-12 ? "It cannot be had for less."
      : `${percent(least)} would be enough.`;
    const wasted = choices().at(-1) === "nothing" ? ""
      : ` Layer ${layers} recomputes for nothing: backward comes to it at once, and needs all of it.`;
    return `${where}: reached. ${cost} ${verdict}${wasted}`;
  }

  function redraw() {
    selects.forEach((select, i) => { select.value = choices()[i]; });
    const state = now();
    draw();
    about.textContent = momentSentence(state);
    numbers({ columns: ["moment", "live", "bytes"], rows: state.curve.map((value, at) =>
      [place(at), size(value), value.toLocaleString("en-US")]) });
    w.say(sentence(state));
  }
  w.on(["preset", "context_length", "target", "choices", "moment"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
