import { frame, h, label, s, scale, show } from "./kit.js";
import { brief, cannot, chart, fillKey, LAB_STYLE, nats, openTable, PACES, PHASES, thread, told, trainButton, whenSeen } from "./live_lab.js";
import ENGINE from "./live/rank.js" with { type: "text" };

// --- arithmetic, compared with its definition by the tests

// The arrows between ranks: what one sent as its message i, the next received as its message i.
// Reports are in the order of the ranks; returns [from, sent, received].
export const arrows = (reports) => reports.flatMap(({ sent }, r) =>
  sent.map((at, i) => [r, at, reports[(r + 1) % reports.length].received[i]]));

// Steps a second, from the moments at which steps were done, in ms; null if there are not enough.
export function perSecond(moments) {
  if (moments.length < 6) return null;
  return 1000 * (moments.length - 1) / (moments.at(-1) - moments[0]);
}

// --- the page

const TIMED = PHASES.slice(0, 6); // there are no checkpoints
const AHEAD = 3; // steps that are ordered before the last report is there
const MEASURED = 60; // steps over which the speed is taken
const LOOKS = { // hues of none of the six phases in the time lines
  1: { stroke: "var(--lc-muted)", "stroke-width": 7, "stroke-opacity": 0.4 },
  2: { stroke: "var(--phase-7)", "stroke-width": 3.2 },
  4: { stroke: "var(--lc-text)", "stroke-width": 1.2 },
};
const STYLE = `
.lc .lr-hash { font-family: monospace; paint-order: stroke; stroke-width: 4;
  stroke: var(--pst-color-background, var(--jp-layout-color1, #fff)); }`;
const hue = (phase) => `var(--phase-${phase}, var(--lc-${(phase - 1) % 6 + 1}))`;
const ranksOf = (n) => `${n} rank${n === 1 ? "" : "s"}`;
const points = (losses) => losses.map((loss, i) => [i + 1, loss]);

function render({ model, el }) {
  const config = model.get("config");
  const recorded = model.get("losses");
  const w = frame({ model, el, title: "Ranks in your browser: one thread each, and messages between them" });
  w.root.prepend(h("style", {}, LAB_STYLE + STYLE));
  const ranks = () => Number(model.get("ranks"));

  // --- the ranks, each in a thread of its own

  let team = []; // the threads
  let facts = null;
  let wanted = false;
  let seen = true;
  let ordered = 0; // steps that the ranks were told to do
  let orders = null; // a timer where steps come slowly
  let coming = []; // reports of the ranks by step, until all are there
  let last = null; // all reports of the last step
  let moments = [];
  let apart = null; // the first step after which the ranks had different weights
  let skipped = 0; // steps without phase 5
  const runs = new Map(); // number of ranks to its last run

  const done = () => last?.[0].step ?? 0;
  const own = () => runs.get(ranks());

  function begin() {
    const n = ranks();
    model.set("note", "");
    runs.set(n, { losses: [], hash: null, speed: null, bytes: 0, messages: 0, skipped: 0 });
    team = Array.from({ length: n }, () => thread(ENGINE, (kind, news) => heard[kind]?.(news), fail));
    if (team.includes(null)) return false;
    const ports = team.map(() => new MessageChannel()); // from every rank to the next
    team.forEach((worker, rank) => {
      const [next, previous] = [ports[rank].port1, ports[(rank + n - 1) % n].port2];
      const start = { config, text: model.get("text"), seed: 0, rank, ranks: n, next, previous };
      worker.postMessage({ start }, [next, previous]);
    });
    return true;
  }

  function dismiss() {
    team.forEach((worker) => worker?.terminate());
    clearTimeout(orders);
    [team, coming, moments, last, facts, apart] = [[], [], [], null, null, null];
    [wanted, ordered, skipped] = [false, 0, 0];
  }

  const heard = {
    ready(news) { facts = news; },
    report(news) {
      coming.push(news);
      const all = coming.filter(({ step }) => step === done() + 1);
      if (all.length < team.length) return;
      coming = coming.filter(({ step }) => step > all[0].step);
      finished(all.sort((a, b) => a.rank - b.rank));
    },
  };

  function finished(all) {
    last = all;
    const run = own();
    run.losses.push(all.reduce((sum, { loss }) => sum + loss, 0) / all.length);
    [run.hash, run.messages, run.bytes] = [all[0].hash, all[0].sent.length, all[0].bytes];
    run.skipped = skipped;
    const same = all.every(({ hash }) => hash === all[0].hash);
    if (!same) apart ??= all[0].step;
    run.apart = apart;
    moments = PACES[model.get("pace")] ? [] : [...moments, all[0].times.at(-1)].slice(-MEASURED);
    run.speed = perSecond(moments) ?? run.speed;
    if (done() >= config.steps) wanted = false;
    order();
    soon();
  }

  // Every rank is told of the same steps, in the same order: a rank that left a step out would let
  // the others wait for ever.
  function tell() {
    const sync = model.get("sync");
    if (!sync && ranks() > 1) skipped++;
    ordered++;
    team.forEach((worker) => worker.postMessage({ step: { sync } }));
  }

  function order() {
    const pause = PACES[model.get("pace")];
    if (!wanted || !seen) { moments = []; return; }
    if (!pause) while (ordered < Math.min(config.steps, done() + AHEAD)) tell();
    else if (ordered === done() && ordered < config.steps) {
      clearTimeout(orders);
      orders = setTimeout(() => { if (wanted && seen && ordered === done()) tell(); }, ordered ? pause : 0);
    }
  }

  function fail(why) {
    dismiss();
    for (const button of [train, once, anew]) button.disabled = true;
    model.set("note", `${cannot(why)} The grey curve is a recorded run.`);
    draw();
  }

  function press() {
    if (!team.length && !begin()) return;
    wanted = !wanted;
    order();
    draw();
  }

  function stepOnce() {
    if (done() >= config.steps) return;
    if (!team.length && !begin()) return;
    wanted = false;
    if (ordered === done()) tell();
    draw();
  }

  function startAnew() {
    dismiss();
    draw();
  }

  const { button: train, draw, soon, stop } = trainButton(w,
    { press, wanted: () => wanted, runs: () => wanted && seen, over: () => done() >= config.steps, anew: dismiss,
      show: showAll });
  const once = w.button("Step", stepOnce);
  const anew = w.button("Start anew", startAnew);
  w.choice("ranks", "ranks", { onset: startAnew });
  w.toggle("sync", "phase 5: sum the gradients", { onset: draw });
  w.choice("pace", "speed", { onset: order });

  // --- pictures

  const ROW = 46;
  const drawStep = w.stage((svg, width) => {
    const n = ranks();
    const [left, right, top] = [50, width - (width < 480 ? 8 : 96), 8];
    const bottom = top + ROW * n;
    const first = last ? Math.min(...last.map(({ times }) => times[0])) : 0;
    const end = last ? Math.max(...last.map(({ times }) => times.at(-1))) - first : 1;
    const x = scale([0, end || 1], [left, right]);
    for (let r = 0; r < n; r++) {
      const y = top + ROW * r;
      svg.append(label(2, y + 15, `rank ${r}`),
        s("rect", { x: left, y, width: right - left, height: 22, fill: "none", stroke: "var(--lc-line)" }));
      const report = last?.[r];
      report?.times.slice(1).forEach((until, i) => {
        const [from, to] = [report.times[i] - first, until - first];
        svg.append(s("rect", { x: x(from), y, width: Math.max(0.5, x(to) - x(from)), height: 22, fill: hue(i + 1),
          "fill-opacity": i === 4 || !report.sent.length ? 1 : 0.45, class: `lr-phase-${i + 1}` }));
      });
    }
    if (n > 1) {
      svg.append(label(2, bottom + 12, "rank 0", { style: "fill: var(--lc-muted)" }),
        s("line", { x1: left, x2: right, y1: bottom + 2, y2: bottom + 2, stroke: "var(--lc-line)" }));
    }
    if (last && n > 1) {
      for (const [r, sent, received] of arrows(last)) {
        const [x1, x2, y1, y2] = [x(sent - first), x(received - first), top + ROW * r + 22, top + ROW * (r + 1)];
        svg.append(s("line", { x1, x2, y1, y2: y2 + (r === n - 1 ? 2 : 0), stroke: hue(5), "stroke-width": 2,
          class: "lr-message" }), s("circle", { cx: x2, cy: y2, r: 2.5, fill: hue(5) }));
      }
    }
    last?.forEach(({ hash }, r) => {
      const odd = hash !== last[0].hash;
      const [hx, hy] = width < 480 ? [left, top + ROW * r + 36] : [right + 8, top + ROW * r + 15];
      svg.append(label(hx, hy, `${odd ? "≠ " : ""}${brief(hash)}`, { class: "lr-hash",
        style: `fill: var(${odd ? "--lc-5" : "--lc-text"})` }));
    });
    svg.append(label(left, bottom + 30, "0"), label(right, bottom + 30, last ? `${end.toFixed(1)} ms` : "time", {
      "text-anchor": "end" }));
    if (!last) return "no step yet";
    const sent = last[0].sent.length;
    return `step ${done()}, ${end.toFixed(1)} ms. ${phaseTimes().join(", ")}. ` +
      (sent ? `Each rank sent ${sent} messages to the next.` : "No messages.");
  }, { height: () => 46 + ROW * ranks(), label: "time lines of the ranks in the last step" });
  const key = h("p", { class: "ll-key" });
  const keyOf = h("p", { class: "ll-key" });
  drawStep.picture.parentElement.after(key);

  // The mean time of every phase over the ranks, in words.
  function phaseTimes() {
    return TIMED.map((phase, i) => {
      const ms = last.reduce((sum, { times }) => sum + times[i + 1] - times[i], 0) / last.length;
      return `${i + 1} ${phase} ${i === 4 && !last[0].sent.length ? "skipped" : `${ms.toFixed(1)} ms`}`;
    });
  }

  const curves = () => [
    { name: "recorded, 1 rank", points: points(recorded), look: { stroke: "var(--lc-muted)", "stroke-width": 1,
      "stroke-dasharray": "4 3" } },
    ...[1, 2, 4].map((n) => ({ name: ranksOf(n), points: points(runs.get(n)?.losses ?? []), look: LOOKS[n] })),
  ].filter((curve) => curve.points.length);
  const drawLoss = w.stage((svg, width, height) => {
    const top = Math.log(config.vocab_size) * 1.08;
    chart(svg, width, height, { steps: config.steps, range: [0, top], yTitle: "mean loss, nats per token",
      curves: curves() });
    return told(curves());
  }, { height: 200, label: "loss against step" });
  w.stages.append(keyOf);

  const fillNumbers = openTable(w, "Compare the runs", () => {
    const alone = runs.get(1)?.losses;
    return {
      columns: ["ranks", "sequences each", "steps done", "last loss", "most apart from 1 rank", "weights of rank 0",
        "sent by a rank and step", "steps a second"],
      rows: [1, 2, 4].map((n) => {
        const run = runs.get(n);
        if (!run?.losses.length) return [String(n), String(config.batch_size / n), ...Array(6).fill("–")];
        const both = alone ? run.losses.slice(0, alone.length).map((loss, i) => Math.abs(loss - alone[i])) : [];
        const sent = run.messages ? `${run.messages} messages, ${show(run.bytes / 1e6, 3)} MB` : "nothing";
        return [String(n), String(config.batch_size / n), String(run.losses.length), run.losses.at(-1).toFixed(6),
          n === 1 || !both.length ? "–" : Math.max(...both).toExponential(1),
          run.apart ? `ranks differ since step ${run.apart}` : brief(run.hash), sent,
          run.speed ? show(run.speed, 2) : "–"];
      }),
    };
  });

  function sentence() {
    const n = ranks();
    const cores = navigator.hardwareConcurrency;
    const has = cores ? ` This device says that it has ${cores} processor cores.` : "";
    if (!team.length) return `Press Train: ${ranksOf(n)}, ${config.batch_size / n} sequences each.${has}`;
    if (!last) return "It begins: every rank draws the same random weights.";
    const { hash, sent, bytes } = last[0];
    const bits = n === 1 ? `Weights ${brief(hash)}.`
      : last.every((each) => each.hash === hash) ? `Weights of all ranks: the same bits, ${brief(hash)}.`
        : `The ranks have had different weights since step ${apart}.`;
    const moved = sent.length ? ` In phase 5 each rank sent ${sent.length} messages, ${show(bytes / 1e6, 3)} MB.`
      : n > 1 ? " Phase 5 was left out." : "";
    const speed = own().speed;
    const pace = speed ? ` ${show(speed, 2)} steps a second.` : "";
    const hidden = wanted && !seen ? " Paused: out of sight." : "";
    return `Step ${done()} of ${config.steps}, ${ranksOf(n)}, ${show(facts.weights)} weights each. ` +
      `Mean loss ${nats(own().losses.at(-1))} nats per token. ${bits}${moved}${pace}${hidden}`;
  }

  function showAll() {
    drawStep();
    key.replaceChildren(...(last ? phaseTimes() : TIMED.map((phase, i) => `${i + 1} ${phase}`)).map((words, i) =>
      h("span", {}, s("svg", { width: 12, height: 12, "aria-hidden": "true" },
        s("rect", { width: 12, height: 12, fill: hue(i + 1) })), words)));
    drawLoss();
    fillKey(keyOf, curves());
    fillNumbers();
    w.say(sentence());
  }

  const unwatch = whenSeen(w.root, (now) => { seen = now; order(); draw(); });
  draw();
  return () => {
    dismiss();
    stop();
    unwatch();
    w.destroy();
  };
}

export default { render };
