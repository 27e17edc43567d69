import { frame, h, label, line, s, scale, show } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.scale.cost by the tests

// The rule of six.
export const trainingFlop = (parameters, tokens) => 6 * parameters * tokens;

export const gpuHours = (flop, peak, mfu) => flop / (peak * mfu * 3600);

export const energyKwh = (hours, watts, host, pue) => (hours * watts * (1 + host) * pue) / 1000;

// What a run takes: [FLOPs, GPU-hours, days, dollars, kWh].
export function bill({ parameters, tokens, peak, mfu, gpus, price, watts, host, pue }) {
  const flop = trainingFlop(parameters, tokens);
  const hours = gpuHours(flop, peak, mfu);
  return [flop, hours, hours / gpus / 24, hours * price, energyKwh(hours, watts, host, pue)];
}

// A number in words that people use: 30.84 million.
export function inWords(value) {
  const [size, word] = [[1e9, " billion"], [1e6, " million"]].find(([least]) => value >= least) ?? [1, ""];
  const few = Number((value / size).toPrecision(4));
  return few >= 1e6 || few < 1e-4 ? `${show(value)}` : `${few.toLocaleString("en-US", { maximumFractionDigits: 8 })}${word}`;
}

// --- the page

const OWN = "your own";
const NUMBERS = [
  ["parameters_b", "parameters N, billion"], ["tokens_b", "tokens D, billion"], ["gpus", "GPUs"], ["mfu", "MFU"],
  ["price", "dollars per GPU-hour"], ["watts", "watts of a GPU"], ["host_share", "server and network, share"],
  ["pue", "PUE"],
];
const LOG = ["parameters_b", "tokens_b", "gpus", "price", "watts"];
const QUANTITIES = ["GPU-hours", "days", "dollars", "kWh"];
const ROW = 30;

function render({ model, el }) {
  const w = frame({ model, el, title: "What a training run costs", primary: ["preset", "gpu", "gpus"] });
  const presets = model.get("presets");
  const parts = model.get("hardware");
  const published = model.get("limits").preset.options.filter((name) => name !== OWN);
  const names = ["gpu", ...NUMBERS.map(([name]) => name)];
  let busy = false;
  w.choice("preset", "start from");
  w.choice("gpu", "GPU", { onset: () => w.put("watts", parts[model.get("gpu")].watts) });
  for (const [name, text] of NUMBERS) w.number(name, text, { log: LOG.includes(name) });
  w.choice("shown", "compare");

  const given = (state) => ({
    parameters: state.parameters_b * 1e9, tokens: state.tokens_b * 1e9, peak: parts[state.gpu].peak, mfu: state.mfu,
    gpus: state.gpus, price: state.price, watts: state.watts, host: state.host_share, pue: state.pue,
  });
  const now = () => Object.fromEntries(names.map((name) => [name, model.get(name)]));

  // The chain in formulas, with the numbers in their places.
  const chain = h("ol", { style: "overflow-wrap: anywhere; padding-left: 1.4rem" });
  const sources = h("p", { style: "overflow-wrap: anywhere" });
  w.stages.append(chain, sources);
  function steps() {
    const c = given(now());
    const [flop, hours, days, dollars, kwh] = bill(c);
    return [
      ["FLOPs", "6 · N · D", `6 · ${show(c.parameters)} · ${show(c.tokens)}`, show(flop), "Kaplan et al. 2020"],
      ["GPU-hours", "FLOPs / (peak · MFU · 3,600 s)", `${show(flop)} / (${show(c.peak)} · ${show(c.mfu)} · 3,600)`,
        inWords(hours), parts[model.get("gpu")].source],
      ["days", "GPU-hours / GPUs / 24", `${inWords(hours)} / ${show(c.gpus)} / 24`, inWords(days), ""],
      ["dollars", "GPU-hours · rent", `${inWords(hours)} · ${show(c.price)}`, inWords(dollars), ""],
      ["kWh", "GPU-hours · watts · (1 + share) · PUE / 1,000",
        `${inWords(hours)} · ${show(c.watts)} · ${show(1 + c.host)} · ${show(c.pue)} / 1,000`, inWords(kwh),
        "Patterson et al. 2021"],
    ];
  }

  // All runs on one logarithmic axis, for the quantity that was chosen.
  const draw = w.stage((svg, wide) => {
    const place = QUANTITIES.indexOf(model.get("shown")) + 1;
    const rows = [...published.map((name) => [name, bill(given(presets[name]))[place]]),
      ["now", bill(given(now()))[place]]];
    const values = rows.map(([, value]) => value);
    const ends = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
    const left = 104;
    const right = wide - 96;
    const x = scale([10 ** ends[0], 10 ** Math.max(ends[1], ends[0] + 1)], [left, right], { log: true });
    rows.forEach(([name, value], i) => {
      const y = ROW * i + 16;
      const mine = name === "now";
      svg.append(label(left - 10, y + 4, name, { "text-anchor": "end", "font-weight": mine ? 700 : 400 }),
        line([[left, y], [right, y]], { stroke: "var(--lc-line)" }),
        mine ? s("path", { d: `M${x(value)} ${y - 8} l8 8 l-8 8 l-8 -8 z`, fill: "currentColor", class: "lc-2" })
          : s("circle", { cx: x(value), cy: y, r: 6, fill: "currentColor", class: "lc-1" }),
        label(wide - 2, y + 4, inWords(value), { "text-anchor": "end" }));
    });
    return rows.map(([name, value]) => `${name} ${inWords(value)}`).join(", ");
  }, { height: ROW * (published.length + 1) + 6, label: "runs compared" });

  const numbers = w.table("Formulas, numbers and sources");

  function redraw() {
    if (busy) return;
    const found = steps();
    chain.replaceChildren(...found.map(([what, formula, filled, value]) =>
      h("li", {}, h("b", {}, what), ` = ${formula} = ${filled} = `, h("b", {}, value))));
    draw();
    const part = parts[model.get("gpu")];
    const preset = model.get("preset");
    sources.textContent = `Sources: ${part.source}${preset === OWN ? "" : `; ${presets[preset].source}`}. ` +
      "Below, each run on a logarithmic axis:";
    const rows = found.map(([what, formula, , value, source]) => [what, formula, value, source]);
    if (preset !== OWN) rows.push(["run", preset, "", presets[preset].source]);
    numbers({ columns: ["what", "formula", "number", "source"], rows });
    const c = given(now());
    const [, hours, days, dollars, kwh] = bill(c);
    w.say(`${inWords(hours)} GPU-hours of ${part.name} at ${show((c.peak * c.mfu) / 1e12, 3)} TFLOP/s: ` +
      `${inWords(days)} days on ${show(c.gpus)}, ${inWords(dollars)} dollars at ${show(c.price)} an hour, ` +
      `${inWords(kwh)} kWh, ${show(((c.watts * (1 + c.host) * c.pue) / 1000), 3)} for each GPU-hour.`);
  }

  w.on(["preset"], () => {
    const chosen = presets[model.get("preset")];
    if (!chosen || busy) return;
    busy = true;
    model.set("note", "");
    for (const name of names) w.put(name, chosen[name]);
    busy = false;
    redraw();
  });

  // A run that is no longer the published one is one's own.
  function settle() {
    if (busy) return;
    const chosen = presets[model.get("preset")];
    if (chosen && names.some((name) => chosen[name] !== model.get(name))) w.put("preset", OWN);
    redraw();
  }
  w.on(names, settle);
  w.on(["shown"], redraw);
  settle();
  return w.destroy;
}

export default { render };
