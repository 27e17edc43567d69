import { clamp, frame, h, label, line, percent, s, scale, show, within } from "./kit.js";

// --- arithmetic, compared with llmcourse.model.moe by the tests

const upTo = (count) => Array.from({ length: count }, (_, i) => i);
const sum = (values) => values.reduce((a, b) => a + b, 0);

// A token's scores: its own taste, and what all tokens find in an expert.  The first is liked most.
export const scores = (tastes, experts, skew) => tastes.map((taste) =>
  upTo(experts).map((e) => taste[e] + 3 * skew * ((experts - 1) / 2 - e)));

function probabilitiesOf(row, scoring) {
  if (scoring === "sigmoid") return row.map((x) => 1 / (1 + Math.exp(-x)));
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  const all = sum(powers);
  return powers.map((x) => x / all);
}

// For every token: probabilities of all experts, the k chosen ones, best first, and their weights.
export function routed(scored, k, scoring, biases) {
  return scored.map((row) => {
    const probabilities = probabilitiesOf(row, scoring);
    const rank = probabilities.map((p, e) => p + (scoring === "sigmoid" ? biases[e] : 0));
    const experts = upTo(row.length).sort((a, b) => rank[b] - rank[a] || a - b).slice(0, k);
    const all = sum(experts.map((e) => probabilities[e]));
    return { probabilities, experts, weights: experts.map((e) => probabilities[e] / all) };
  });
}

// Rows that an expert takes at most; a factor of 0 sets no limit.  In millionths, so that 1.1 is 11/10.
export const capacityOf = (factor, tokens, k, experts) =>
  (factor === 0 ? tokens : Math.ceil((Math.round(1e6 * factor) * tokens * k) / (1e6 * experts)));

// For every expert the tokens that want it, in their order; those beyond the capacity are dropped.
export const wanted = (routing, experts) => upTo(experts).map((e) =>
  upTo(routing.length).filter((n) => routing[n].experts.includes(e)));

export const counts = (routing, experts) => wanted(routing, experts).map((tokens) => tokens.length);

// Experts, times the sum over them of (share of the choices) x (mean probability).
export function balanceLoss(routing, experts) {
  const chosen = counts(routing, experts);
  const all = sum(chosen);
  const shares = routing.map(({ probabilities }) => {
    const whole = sum(probabilities);
    return probabilities.map((p) => p / whole);
  });
  return experts * sum(chosen.map((count, e) => (count / all) * (sum(shares.map((p) => p[e])) / routing.length)));
}

// A step of each bias against its expert's load.
export function moved(biases, chosen, rate) {
  const mean = sum(chosen) / chosen.length;
  return biases.map((b, e) => (e < chosen.length ? b + rate * Math.sign(mean - chosen[e]) : b));
}

// --- the page

const RATE = 0.02;
const CHIP = 26; // height of a token above
const SLOT = 17; // height of a place in an expert
const GAP = 66; // between the tokens and the experts
const FLIGHT_MS = 350;
const fixed = (x, digits = 2) => x.toFixed(digits).replace("-", "−");
const many = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const STYLE = ".lc .rb-small { font-size: 0.85rem; color: var(--lc-muted); }";

function render({ model, el }) {
  const w = frame({ model, el, title: "Tokens and experts", primary: ["skew", "scoring", "capacity_factor"] });
  w.root.prepend(h("style", {}, STYLE));
  const words = model.get("words");
  const size = words.length;
  const isSigmoid = () => model.get("scoring") === "sigmoid";
  const experts = () => model.get("experts");
  const token = () => clamp(model.get("token"), 1, size) - 1;
  let busy = false;

  w.number("experts", "experts E");
  const choose = w.number("experts_per_token", "experts per token k");
  w.number("skew", "skew of the router");
  w.number("capacity_factor", "capacity factor (0: no limit)");
  w.choice("scoring", "scores by", { labels: ["softmax", "sigmoid and bias"] });
  w.number("token", "token in words");
  w.number("sent", "tokens sent");
  const goTo = (sent) => {
    busy = true;
    if (sent > 0) w.put("token", sent);
    busy = false;
    w.put("sent", sent);
  };
  w.player({
    perSecond: 2.5,
    step: () => {
      goTo(model.get("sent") < size ? model.get("sent") + 1 : 0); // the end, then anew
      return model.get("sent") < size;
    },
    reset: () => goTo(0),
  });
  const move = (steps) => {
    let biases = model.get("biases");
    for (let i = 0; i < steps; i++) {
      biases = moved(biases, counts(route(biases), experts()), RATE);
    }
    w.put("biases", biases);
  };
  const moves = [
    w.button("Move the biases", () => move(1)),
    w.button("Move them 50 times", () => move(50)),
    w.button("Biases to 0", () => w.put("biases", model.get("biases").map(() => 0))),
  ];

  const route = (biases) => routed(scores(model.get("tastes"), experts(), model.get("skew")),
    model.get("experts_per_token"), model.get("scoring"), biases);

  // Everything that pictures, tables and sentence say.
  function now() {
    const k = model.get("experts_per_token");
    const routing = route(model.get("biases"));
    const asked = wanted(routing, experts());
    const capacity = capacityOf(model.get("capacity_factor"), size, k, experts());
    const dropped = asked.map((tokens) => tokens.slice(capacity));
    return { k, routing, asked, capacity, dropped, limited: model.get("capacity_factor") > 0,
      isDropped: (n, e) => dropped[e].includes(n),
      lost: upTo(size).filter((n) => routing[n].experts.every((e) => dropped[e].includes(n))) };
  }
  let state = now();

  // --- the board

  const columns = (wide) => (wide < 460 ? 8 : 12);
  const strip = (wide) => Math.ceil(size / columns(wide)) * (CHIP + 4);
  const rows = () => {
    const full = Math.max(...state.asked.map((tokens) => tokens.length));
    return Math.max(full, state.limited ? Math.min(state.capacity, size) : 0);
  };

  const chip = (x, y, wide, high, text, { ours, out, gone }) => s("g", {},
    s("rect", { x: x + 1, y: y + 1, width: wide - 2, height: high - 2, rx: 3,
      class: ours ? "lc-2" : "lc-1", fill: out || gone ? "none" : "currentColor", stroke: "currentColor",
      "stroke-width": ours ? 2.5 : 1.2, "stroke-dasharray": out ? "3 2" : null }),
    label(x + wide / 2, y + high / 2 + 4, text, { "text-anchor": "middle",
      style: `${out || gone ? "" : "fill: var(--lc-on);"}${ours ? "font-weight: 700;" : ""}` }),
    out ? line([[x + 3, y + high / 2], [x + wide - 3, y + high / 2]], { stroke: "var(--lc-text)",
      "stroke-width": 1.2 }) : null);

  const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  let flying = false;
  let spots = []; // of what a press can choose: [left, top, right, bottom, token]

  const drawBoard = w.stage((svg, wide) => {
    const { routing, asked, capacity, limited } = state;
    const sent = model.get("sent");
    const across = columns(wide);
    const cell = wide / across;
    spots = [];
    const at = (n) => [(n % across) * cell, Math.floor(n / across) * (CHIP + 4)];
    const wideColumn = wide / experts();
    const slot = Math.min(wideColumn - 4, 76);
    const left = (e) => e * wideColumn + (wideColumn - slot) / 2;
    const head = strip(wide) + GAP;
    const top = head + 22;
    const chosen = token();

    // The chosen token's lines, as thick as their weights.
    routing[chosen].experts.forEach((e, i) => {
      if (chosen >= sent) return;
      const [x, y] = at(chosen);
      const out = state.isDropped(chosen, e);
      svg.append(line([[x + cell / 2, y + CHIP], [left(e) + slot / 2, head - 18]], { class: "lc-2",
        stroke: "currentColor", "stroke-width": 1.5 + 6 * routing[chosen].weights[i],
        "stroke-dasharray": out ? "4 4" : null, "stroke-linecap": "butt" }));
    });
    words.forEach((word, n) => {
      const [x, y] = at(n);
      // A ground, so that no line runs through a word.
      svg.append(s("rect", { x: x + 1, y: y + 1, width: cell - 2, height: CHIP - 2, rx: 3,
        fill: "var(--pst-color-background, var(--jp-layout-color1, #fff))" }),
      chip(x + 1, y, cell - 2, CHIP, word, { ours: n === chosen, gone: n >= sent,
        out: n < sent && state.lost.includes(n) }));
      spots.push([x, y, x + cell, y + CHIP, n]);
    });
    upTo(experts()).forEach((e) => {
      const x = left(e);
      const here = asked[e].filter((n) => n < sent);
      const ours = chosen < sent && asked[e].includes(chosen);
      svg.append(label(x + slot / 2, head, `E${e}`, { "text-anchor": "middle", style: "font-weight: 700" }),
        label(x + slot / 2, head + 15, limited ? `${Math.min(here.length, capacity)}/${capacity}` : here.length,
          { "text-anchor": "middle" }));
      if (ours) {
        svg.append(s("rect", { x: x - 1, y: head - 14, width: slot + 2, height: 33, rx: 4, fill: "none",
          class: "lc-2", stroke: "currentColor", "stroke-width": 2 }));
      }
      if (limited) {
        for (const i of upTo(Math.min(capacity, rows()))) {
          svg.append(s("rect", { x: x + 1, y: top + SLOT * i + 1, width: slot - 2, height: SLOT - 2, rx: 3,
            fill: "none", stroke: "var(--lc-line)" }));
        }
      }
      here.forEach((n, i) => {
        const out = i >= capacity;
        const y = top + SLOT * i + (out ? 6 : 0);
        const made = chip(x, y, slot, SLOT, words[n], { ours: n === chosen, out });
        svg.append(made);
        spots.push([x, y, x + slot, y + SLOT, n]);
        if (flying && n === sent - 1 && made.animate && !still()) {
          const [fromX, fromY] = at(n);
          made.animate([{ transform: `translate(${fromX - x}px, ${fromY - y}px)` }, { transform: "none" }],
            { duration: FLIGHT_MS, easing: "ease-in-out" });
        }
      });
    });
    if (limited && capacity < rows()) {
      const y = top + SLOT * capacity + 3;
      svg.append(line([[0, y], [wide, y]], { stroke: "var(--lc-text)", "stroke-width": 2.5 }));
    }
    svg.style.cursor = "pointer";
    return upTo(experts()).map((e) => {
      const here = asked[e].filter((n) => n < sent).length;
      const over = Math.max(0, here - capacity);
      return `expert ${e} takes ${here - over}${over ? ` and drops ${over}` : ""}`;
    }).join(", ");
  }, {
    height: (wide) => strip(wide) + GAP + 22 + SLOT * rows() + 8,
    label: "tokens above, experts below, and which tokens each expert gets",
  });
  const board = drawBoard.picture;
  w.stages.append(
    h("p", { class: "rb-small" }, "Above the tokens in their order, below the experts with the tokens that came. " +
      "Struck out below the thick line: dropped, for want of room. Struck out above: dropped by all its experts. " +
      "Empty frames: room that nobody uses. Press a token to choose it."),
    w.root.querySelector(".lc-status"));
  const caption = h("p", { class: "rb-small" });
  w.stages.append(caption);

  // --- the chosen token

  const BAR = 24;
  const drawToken = w.stage((svg, wide) => {
    const { probabilities, experts: chosen, weights } = state.routing[token()];
    const biases = model.get("biases");
    const narrow = wide < 460;
    const room = narrow ? (isSigmoid() ? 190 : 140) : (isSigmoid() ? 320 : 210);
    const x = scale([0, 1], [34, wide - room]);
    const said = probabilities.map((p, e) => {
      const y = BAR * e;
      const place = chosen.indexOf(e);
      const out = place >= 0 && state.isDropped(token(), e);
      const decides = isSigmoid()
        ? `${fixed(p, 3)} ${biases[e] < 0 ? "−" : "+"} ${fixed(Math.abs(biases[e]))} = ${fixed(p + biases[e], 3)}`
        : fixed(p, 3);
      const weight = place < 0 ? "" : `, weight ${fixed(weights[place])}`;
      const text = decides + weight + (out ? ", dropped" : "");
      const brief = decides + (isSigmoid() ? "" : weight.replace("weight", "w")) + (out ? ", out" : "");
      svg.append(label(4, y + 16, `E${e}`, { style: place >= 0 ? "font-weight: 700" : null }),
        s("rect", { x: x(0), y: y + 3, width: x(1) - x(0), height: 17, fill: "none", stroke: "var(--lc-line)" }),
        s("rect", { x: x(0), y: y + 3, width: x(p) - x(0), height: 17, fill: place >= 0 ? "currentColor" : "none",
          class: place >= 0 ? "lc-2" : "lc-1", stroke: "currentColor" }),
        label(x(1) + 7, y + 16, narrow ? brief : text, { style: place >= 0 ? "font-weight: 700" : null }));
      return `expert ${e} ${text}`;
    });
    return said.join("; ");
  }, { height: () => BAR * experts() + 4, label: "the chosen token’s probabilities, chosen experts filled" });

  const tables = {
    experts: w.table("Experts: wanted, taken, dropped"),
    tokens: w.table("Tokens: experts and weights"),
  };

  // --- in words

  function boardSentence() {
    const { k, asked, capacity, dropped, limited, lost, routing } = state;
    const lengths = asked.map((tokens) => tokens.length);
    const fullest = lengths.indexOf(Math.max(...lengths));
    const none = lengths.filter((count) => !count).length;
    const out = sum(dropped.map((tokens) => tokens.length));
    const loss = balanceLoss(routing, experts());
    const load = `${size} tokens, ${k} of ${experts()} experts each: ${size * k} rows, ` +
      `${show((size * k) / experts(), 3)} for each expert on average. Expert ${fullest} is wanted by ` +
      `${lengths[fullest]}${none ? `, and ${many(none, "expert")} by nobody` : ""}. ` +
      `Balance loss ${fixed(loss)} (1 when all are equal, ${show(experts() / k, 3)} at worst). `;
    if (!limited) return `${load}No limit: nothing is dropped.`;
    const used = size * k - out;
    return `${load}Capacity ${capacity} rows: ${out} of ${size * k} are dropped, ${percent(out / (size * k))}` +
      `${lost.length ? `; ${many(lost.length, "token")} get${lost.length === 1 ? "s" : ""} no expert` : ""}. ` +
      `Of ${experts() * capacity} places ${used} are used, ${percent(used / (experts() * capacity))}.`;
  }

  function tokenSentence() {
    const n = token();
    const { experts: chosen, weights } = state.routing[n];
    const parts = chosen.map((e, i) => `expert ${e} with weight ${fixed(weights[i])}` +
      (state.isDropped(n, e) ? " (dropped)" : ""));
    return `Token ${n + 1}, “${words[n]}”, goes to ${parts.join(" and ")}.`;
  }

  function redraw() {
    state = now();
    for (const button of moves) button.disabled = !isSigmoid();
    drawBoard();
    drawToken();
    caption.textContent = isSigmoid()
      ? "The token’s sigmoid + bias = what decides the choice. The weights are shares of the sigmoids alone."
      : "The token’s softmax over all experts. The weights are the shares of the chosen ones.";
    const mean = (e) => sum(state.routing.map(({ probabilities }) => probabilities[e])) / size;
    tables.experts({
      columns: ["expert", "wanted by", "taken", "dropped", "mean probability", "bias"],
      rows: state.asked.map((tokens, e) => [`expert ${e}`, tokens.length, tokens.length - state.dropped[e].length,
        state.dropped[e].length, fixed(mean(e), 3), isSigmoid() ? fixed(model.get("biases")[e]) : "none"]),
    });
    tables.tokens({
      columns: ["token", "word", "experts", "weights", "dropped by"],
      rows: state.routing.map(({ experts: chosen, weights }, n) => [String(n + 1), words[n], chosen.join(", "),
        weights.map((x) => fixed(x, 3)).join(", "),
        chosen.filter((e) => state.isDropped(n, e)).join(", ") || "none"]),
    });
    w.say(`${boardSentence()} ${tokenSentence()}`);
  }

  // A token has at most as many experts as there are.
  function follow() {
    const high = Math.min(4, experts());
    model.get("limits").experts_per_token.high = choose.range.max = choose.field.max = high;
    choose.range.value = model.get("experts_per_token");
    if (model.get("experts_per_token") > high) {
      w.putNumber("experts_per_token", "experts per token k", model.get("experts_per_token"));
    } else redraw();
  }

  board.addEventListener("click", (event) => {
    const [x, y] = within(board, event);
    const found = spots.find(([x0, y0, x1, y1]) => x >= x0 && x < x1 && y >= y0 && y < y1);
    if (found) w.put("token", found[4] + 1);
  });
  const unlessBusy = () => { if (!busy) redraw(); };
  w.on(["experts"], follow);
  w.on(["sent"], () => {
    flying = true;
    redraw();
    flying = false;
  });
  w.on(["experts_per_token", "skew", "capacity_factor", "scoring", "token", "biases"], unlessBusy);
  follow();
  return w.destroy;
}

export default { render };
