import { frame, label, line, percent, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.scale.scheduler by the tests

export const ANSWERS = ["spare", "wait", "shrink"];

// What each group of nodes does, as [group, nodes, from, to, state], from 0 to `until`.
export function afterFailure({ replicas, replicaNodes, spares, checkpoint, fails, restart, repair, until }, answer) {
  const found = [];
  const add = (group, nodes, ends) => {
    let now = 0;
    for (const [end, state] of ends) {
      const to = Math.min(end, until);
      if (nodes && to > now) {
        found.push([group, nodes, now, to, state]);
        now = to;
      }
    }
  };
  const back = fails + repair;
  const others = (replicas - 1) * replicaNodes;
  const before = [[fails - (fails % checkpoint), "working"], [fails, "lost"]];
  add("spares", spares - (answer === "spare" ? 1 : 0), [[until, "idle"]]);
  if (answer === "spare") {
    const again = [[fails + restart, "restarting"], [until, "working"]];
    add("spares", 1, [[fails, "idle"], ...again]);
    add("failed", 1, [...before, [back, "down"], [until, "idle"]]);
    add("mates", replicaNodes - 1, [...before, ...again]);
    add("others", others, [...before, ...again]);
    return found;
  }
  const first = fails + restart;
  const joins = answer === "wait" ? back : first + Math.max(0, Math.ceil((back - first) / checkpoint)) * checkpoint;
  const meanwhile = answer === "wait" ? [[joins, "reserved"]] : [[first, "restarting"], [joins, "working"]];
  const again = [[joins + restart, "restarting"], [until, "working"]];
  add("failed", 1, [...before, [back, "down"], [joins, "reserved"], ...again]);
  add("mates", replicaNodes - 1, [...before, [joins, "reserved"], ...again]);
  add("others", others, [...before, ...meanwhile, ...again]);
  return found;
}

// The node-seconds in each state.
export function nodeSeconds(stretches) {
  const found = {};
  for (const [, nodes, from, to, state] of stretches) found[state] = (found[state] ?? 0) + nodes * (to - from);
  return found;
}

// --- the page

const UNTIL = 24 * 60;  // minutes
const STATES = [
  ["working", "lc-1", "W"], ["lost", "lc-5", "L"], ["restarting", "lc-2", "R"],
  ["reserved", "lc-4", "H"], ["down", "lc-6", "D"], ["idle", "lc-3", "I"],
];
const SHOWN = { working: "kept work", lost: "lost work", restarting: "restarting", reserved: "reserved",
  down: "down", idle: "idle" };
const WORDS = { spare: "takes a spare", wait: "waits for the repair", shrink: "goes on with fewer replicas" };
const GROUPS = ["failed", "mates", "others", "spares"];
const NAMED = { failed: "the failed node", mates: "its replica", others: "other replicas", spares: "spares" };
const ROW = 30;
const CELL = 26;
const hours = (minutes) => show(minutes / 60, 3);

function render({ model, el }) {
  const w = frame({ model, el, title: "A node fails: what the others do" });
  w.choice("answer", "the job", { labels: ANSWERS.map((name) => WORDS[name]) });
  for (const [name, text] of [["replicas", "replicas"], ["replica_nodes", "nodes of a replica"], ["spares", "spare nodes"],
    ["checkpoint", "hours between checkpoints"], ["fails", "fails at hour"], ["restart", "restart, hours"],
    ["repair", "repair, hours"], ["hour", "shown hour"]]) w.number(name, text);

  const minutes = (name) => Math.round(60 * model.get(name));
  // Only who means to use a spare keeps one.
  const given = (answer) => ({
    replicas: model.get("replicas"), replicaNodes: model.get("replica_nodes"),
    spares: answer === "spare" ? model.get("spares") : 0, checkpoint: minutes("checkpoint"), fails: minutes("fails"),
    restart: minutes("restart"), repair: minutes("repair"), until: UNTIL,
  });
  const possible = (answer) => answer !== "shrink" || model.get("replicas") > 1;
  const used = () => (possible(model.get("answer")) ? model.get("answer") : "wait");
  const numNodes = (answer) => model.get("replicas") * model.get("replica_nodes") + given(answer).spares;
  const shares = (answer) => {
    const spent = nodeSeconds(afterFailure(given(answer), answer));
    return STATES.map(([state]) => (spent[state] ?? 0) / (numNodes(answer) * UNTIL));
  };

  const box = (x, y, wide, tall, state, attributes = {}) => s("rect", { x, y, width: Math.max(0, wide), height: tall,
    class: STATES.find(([name]) => name === state)[1], fill: "currentColor", "fill-opacity": 0.35,
    stroke: "currentColor", ...attributes });
  const letter = (state) => STATES.find(([name]) => name === state)[2];

  // The state of every node at the shown hour: a row for each replica, one for the spares.
  function now() {
    const answer = used();
    const at = Math.min(minutes("hour"), UNTIL - 1);
    const there = afterFailure(given(answer), answer).filter(([, , from, to]) => from <= at && at < to);
    const of = (group) => there.filter(([name]) => name === group).flatMap(([, nodes, , , state]) => Array(nodes).fill(state));
    const others = of("others");
    const rows = [["replica 0", [...of("failed"), ...of("mates")]]];
    const size = model.get("replica_nodes");
    for (let i = 0; i < others.length; i += size) rows.push([`replica ${rows.length}`, others.slice(i, i + size)]);
    if (given(answer).spares) rows.push(["spares", of("spares")]);
    return rows;
  }

  const drawBoard = w.stage((svg) => {
    const rows = now();
    rows.forEach(([name, states], row) => {
      const y = 4 + row * CELL;
      svg.append(label(2, y + 16, name));
      states.forEach((state, i) => {
        const x = 76 + i * CELL;
        svg.append(box(x, y, CELL - 4, CELL - 4, state),
          label(x + CELL / 2 - 2, y + 16, letter(state), { "text-anchor": "middle", "font-weight": 600 }));
      });
    });
    // The key stands beside the board, where there is room in every width.
    STATES.forEach(([state], i) => svg.append(box(196, 4 + 22 * i, 18, 18, state),
      label(205, 18 + 22 * i, letter(state), { "text-anchor": "middle", "font-weight": 600 }),
      label(220, 18 + 22 * i, SHOWN[state])));
    return rows.map(([name, states]) => `${name} ${states.join(" ")}`).join("; ");
  }, { height: () => Math.max(140, 8 + now().length * CELL), label: "nodes at the shown hour" });

  const drawTime = w.stage((svg, wide) => {
    const answer = used();
    const all = afterFailure(given(answer), answer);
    const x = scale([0, UNTIL], [104, wide - 14]);
    const rows = GROUPS.filter((group) => all.some(([name]) => name === group));
    const told = rows.map((group, row) => {
      const y = 4 + row * ROW;
      // Of several spares, the one that is used.
      const mine = all.filter(([name]) => name === group);
      const last = mine.slice(group === "spares" && mine.length > 1 && mine[0][3] === UNTIL ? 1 : 0);
      svg.append(label(2, y + 17, NAMED[group]));
      for (const [, , from, to, state] of last) {
        svg.append(box(x(from), y, x(to) - x(from), ROW - 6, state));
        if (x(to) - x(from) > 14) {
          svg.append(label((x(from) + x(to)) / 2, y + 17, letter(state), { "text-anchor": "middle", "font-weight": 600 }));
        }
      }
      return `${NAMED[group]} ${last.map(([, , from, to, state]) => `${state} ${hours(from)} to ${hours(to)}`).join(", ")}`;
    });
    const bottom = 4 + ROW * GROUPS.length;
    const at = x(Math.min(minutes("hour"), UNTIL));
    svg.append(line([[at, 0], [at, bottom]], { stroke: "var(--lc-text)", "stroke-width": 2 }));
    for (const t of ticks(0, 24, wide < 420 ? 4 : 8)) {
      svg.append(label(x(60 * t), bottom + 14, t ? show(t) : "hour 0", { "text-anchor": "middle" }));
    }
    return told.join("; ");
  }, { height: 8 + ROW * 4 + 16, label: "what each group does over the day" });

  const numbers = w.table("Shares of all node-hours of the day, for the three answers", { open: true });

  function redraw() {
    drawBoard();
    drawTime();
    const rows = ANSWERS.map((answer) => (possible(answer)
      ? [WORDS[answer], numNodes(answer), ...shares(answer).map((share) => percent(share))]
      : [WORDS[answer], numNodes(answer), ...STATES.map(() => "–")]));
    numbers({ columns: ["the job", "nodes", ...STATES.map(([state]) => SHOWN[state])], rows });
    const answer = used();
    const [kept, lost] = shares(answer);
    const kinds = ANSWERS.filter(possible);
    const best = kinds.reduce((a, b) => (shares(b)[0] > shares(a)[0] + 1e-12 ? b : a));
    const refused = possible(model.get("answer")) ? "" : "A job of one replica cannot shrink, so it waits. ";
    w.say(`${refused}The job ${WORDS[answer]}: ${percent(kept)} of ${numNodes(answer)} nodes' day is work that is kept, ` +
      `${percent(lost)} was lost in the failure. ` +
      (best === answer ? "Of the three answers this keeps the largest share." : `A job that ${WORDS[best]} keeps ${percent(shares(best)[0])}.`));
  }

  w.player({
    step: () => {
      if (model.get("hour") >= 24) return false;
      w.put("hour", Math.min(24, model.get("hour") + 0.5));
      return model.get("hour") < 24;
    },
    reset: () => w.put("hour", 0),
    perSecond: 6,
  });
  w.on(["answer", "replicas", "replica_nodes", "spares", "checkpoint", "fails", "restart", "repair", "hour"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
