import { axes, frame, h, label, line, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests

// What is known after the first `number` events of a log.
export function stateAt(events, number) {
  const now = { at: 0, stage: "", done: [], ranks: "", step: 0, loss: null, saved: 0, killed: 0, resumed: -1, again: 0, same: 0 };
  const losses = new Map();
  for (const event of events.slice(0, number)) {
    now.at = event.at;
    if (event.event === "begin") Object.assign(now, { stage: event.stage, ranks: "", step: 0, loss: null, saved: 0 });
    if (event.event === "end" || event.event === "kept") Object.assign(now, { stage: "", ranks: "", done: [...now.done, event.stage] });
    if (event.event === "ranks") now.ranks = event.state;
    if (event.event === "saved") now.saved = event.step;
    if (event.event === "kill") now.killed = event.step;
    if (event.event === "resume") now.resumed = event.step;
    if (event.event === "step") {
      const key = `${event.stage} ${event.step}`;
      if (losses.has(key)) {
        now.again += 1;
        now.same += losses.get(key) === event.loss;
      }
      losses.set(key, event.loss);
      Object.assign(now, { step: event.step, loss: event.loss });
    }
  }
  return now;
}

// From when to when each stage has run, of the first `number` events.
export function stageSpans(events, number) {
  const found = [];
  const seen = events.slice(0, number);
  for (const { event, stage, at } of seen) {
    if (event === "begin") found.push({ stage, from: at, to: null });
    if (event === "end") found[found.length - 1].to = at;
  }
  return found.map((each) => ({ ...each, to: each.to ?? seen[seen.length - 1].at }));
}

// From when to when the processes have been in which state.
export function rankSpans(events, number) {
  const found = [];
  const seen = events.slice(0, number);
  for (const { event, state, at, number: count } of seen) {
    const last = found[found.length - 1];
    if (last && last.to === null && (event === "ranks" || event === "kill" || event === "end")) last.to = at;
    if (event === "kill") found.push({ state: "killed", from: at, to: null, count: last ? last.count : 1 });
    if (event === "ranks" && state !== "ended" && state !== "killed") found.push({ state, from: at, to: null, count });
  }
  return found.map((each) => ({ ...each, to: each.to ?? seen[seen.length - 1].at }));
}

// The losses of a stage, step by step; `again` for a step that was taken a second time.
export function curve(events, number, stage) {
  const seen = new Set();
  return events.slice(0, number).filter((e) => e.event === "step" && e.stage === stage).map(({ step, loss }) => {
    const again = seen.has(step);
    seen.add(step);
    return { step, loss, again };
  });
}

// --- the page

const COLOURS = { starting: "lc-2", training: "lc-1", killed: "lc-5" };
const WORDS = {
  starting: "are being started", training: "are training", killed: "are dead, killed by SIGKILL", ended: "have ended",
};

function render({ model, el }) {
  const w = frame({ model, el, title: "The machine, replayed from its log" });
  const [events, stages, mesh] = [model.get("events"), model.get("stages"), model.get("mesh")];
  const count = Math.max(...events.filter((e) => e.event === "ranks").map((e) => e.number));
  const places = Array.from({ length: count }, (_, rank) => [Math.floor(rank / mesh.pp), rank % mesh.pp]);
  const end = events[events.length - 1].at;
  const title = (name) => stages.find((each) => each.name === name)?.title ?? name;
  const number = (name) => stages.findIndex((each) => each.name === name) + 1;

  w.player({
    step: () => {
      w.put("event", model.get("event") < events.length ? model.get("event") + 1 : 1); // the end, then anew
      return model.get("event") < events.length;
    },
    reset: () => w.put("event", 1),
  });
  w.number("event", "events of the log");
  w.choice("of", "losses of", { options: ["train", "sft", "dpo"], labels: ["pre-training", "fine-tuning (SFT)", "preferences (DPO)"] });

  const drawTimes = w.stage((svg, wide) => {
    const [left, right, height] = [58, wide - 8, 19];
    const x = scale([0, end], [left, right]);
    const row = (place) => 8 + place * (height + 6);
    const now = model.get("event");
    const bars = (from, to, place, colour) => s("rect", { x: x(from), y: row(place), width: Math.max(1.5, x(to) - x(from)), height,
      fill: "currentColor", class: colour });
    svg.append(label(left - 6, row(0) + 14, "stage", { "text-anchor": "end" }));
    stageSpans(events, now).forEach(({ stage, from, to }, i) => {
      svg.append(bars(from, to, 0, i % 2 ? "lc-3" : "lc-4"));
      if (x(to) - x(from) > 14) svg.append(label((x(from) + x(to)) / 2, row(0) + 14, number(stage), { "text-anchor": "middle",
        style: "fill: var(--lc-on); font-weight: 700" }));
    });
    const spans = rankSpans(events, now);
    places.forEach((_, rank) => {
      svg.append(label(left - 6, row(rank + 1) + 14, `rank ${rank}`, { "text-anchor": "end" }));
      for (const { state, from, to, count: taken } of spans) {
        if (rank >= taken) continue;
        svg.append(bars(from, to, rank + 1, COLOURS[state]));
      }
      for (const { from } of spans.filter((each) => each.state === "killed" && rank < each.count)) {
        const [mx, my] = [x(from), row(rank + 1) + height / 2];
        svg.append(...[-1, 1].map((turn) => line([[mx - 6, my - 6 * turn], [mx + 6, my + 6 * turn]], { stroke: "var(--lc-text)",
          "stroke-width": 3 })));
      }
    });
    const bottom = row(count + 1);
    const cursor = x(stateAt(events, now).at);
    svg.append(line([[cursor, 2], [cursor, bottom]], { stroke: "var(--lc-text)", "stroke-dasharray": "3 3" }),
      ...ticks(0, end, wide < 420 ? 4 : 8).map((t) => label(x(t), bottom + 14, show(t), { "text-anchor": "middle" })),
      label((left + right) / 2, bottom + 30, "seconds", { "text-anchor": "middle" }));
    const told = stageSpans(events, now).map(({ stage, from, to }) => `${title(stage)} ${show(from)} to ${show(to)}`);
    return `${told.join("; ")}; processes: ${spans.map((p) => `${p.count} ${p.state} ${show(p.from)} to ${show(p.to)}`).join("; ")}`;
  }, { height: 8 + (count + 1) * 25 + 38, label: "seconds" });

  const drawLosses = w.stage((svg, wide, tall) => {
    const of = model.get("of");
    const all = curve(events, events.length, of);
    const seen = curve(events, model.get("event"), of);
    const box = [40, 24, wide - 12, tall - 40];
    const last = Math.max(1, ...all.map((p) => p.step));
    const top = 1.05 * Math.max(0.1, ...all.map((p) => p.loss));
    const x = scale([0, last], [box[0], box[2]]);
    const y = scale([0, top], [box[3], box[1]]);
    svg.append(axes({ x, y, box, xTicks: ticks(0, last, 6), yTicks: ticks(0, top, 4), xTitle: "step", yTitle: "loss" }));
    svg.append(line(seen.filter((p) => !p.again).map((p) => [x(p.step), y(p.loss)]), { stroke: "currentColor", class: "lc-1",
      "stroke-width": 2 }));
    const repeated = seen.filter((p) => p.again);
    svg.append(...repeated.map((p) => s("circle", { cx: x(p.step), cy: y(p.loss), r: 4.5, fill: "none", stroke: "currentColor",
      class: "lc-2", "stroke-width": 2 })));
    const { killed, resumed } = stateAt(events, model.get("event"));
    if (of === "train" && killed) {
      svg.append(line([[x(killed), box[1]], [x(killed), box[3]]], { stroke: "currentColor", class: "lc-5", "stroke-width": 2 }),
        label(x(killed) + 5, box[1] + 10, "killed"));
      if (resumed >= 0) svg.append(line([[x(resumed), box[1]], [x(resumed), box[3]]], { stroke: "currentColor", class: "lc-2",
        "stroke-dasharray": "4 3", "stroke-width": 2 }), label(x(resumed) - 5, box[1] + 10, "resumed", { "text-anchor": "end" }));
    }
    const ends = seen.length ? `from ${show(seen[0].loss)} to ${show(seen[seen.length - 1].loss)}` : "no step yet";
    return `${ends}; ${repeated.length} steps drawn a second time`;
  }, { height: 220, label: "loss by step" });

  w.stages.append(h("p", {}, "Above: stages by their numbers, and what each process does: orange, it is being started; blue, it trains; " +
    "a cross, it is killed. Below: the loss; a ring is a step that was taken a second time."));

  const fill = w.table("The stages");

  function redraw() {
    drawTimes();
    drawLosses();
    const now = stateAt(events, model.get("event"));
    const spans = stageSpans(events, model.get("event"));
    fill({
      columns: ["stage", "state", "seconds"],
      rows: stages.map(({ name, title: told }, i) => {
        const span = spans.find((each) => each.stage === name);
        const state = now.done.includes(name) ? "done" : span ? "running" : "waiting";
        return [`${i + 1} ${told}`, state, span ? show(Number((span.to - span.from).toFixed(1))) : ""];
      }),
    });
    const parts = [`${now.at.toFixed(1)} s, ${now.done.length} of ${stages.length} stages done.`];
    if (now.stage) parts.push(`Stage ${number(now.stage)}, ${title(now.stage)}.`);
    const { number: taken } = [...events.slice(0, model.get("event"))].reverse().find((e) => e.event === "ranks") ?? { number: 0 };
    if (now.ranks) parts.push(taken > 1 ? `All ${taken} processes ${WORDS[now.ranks]}.`
      : `One process; it ${WORDS[now.ranks].replace("are being", "is being").replace("are", "is").replace("have", "has")}.`);
    if (now.step) parts.push(`Step ${show(now.step)}, loss ${now.loss.toFixed(3)}${now.saved ? `; last checkpoint: step ${show(now.saved)}` : ""}.`);
    if (now.killed) parts.push(`Killed after step ${show(now.killed)}${now.resumed < 0 ? "."
      : `, resumed from step ${show(now.resumed)}; steps taken again: ${show(now.again)}, with the same loss: ${show(now.same)}.`}`);
    w.say(parts.join(" "));
  }
  w.on(["event", "of"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
