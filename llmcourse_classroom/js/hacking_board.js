import { axes, clamp, frame, h, label, line, onDrag, s, scale, show, ticks } from "./kit.js";

// --- arithmetic, compared with plain Python and with llmcourse_labs.tuning.rewards by the tests
// Points are [KL, proxy, gold], with a KL that increases from 0.

// Proxy and gold at a budget, straight between two points.
export function at(points, budget) {
  const after = points.findIndex(([kl]) => kl >= budget);
  if (after < 0) return points.at(-1).slice(1);
  if (after === 0) return points[0].slice(1);
  const [low, high] = [points[after - 1], points[after]];
  const share = (budget - low[0]) / (high[0] - low[0]);
  return [1, 2].map((i) => low[i] + share * (high[i] - low[i]));
}

// The place of the highest gold, the first of equals.
export const bestStop = (points) => points.reduce((best, point, i) => (point[2] > points[best][2] ? i : best), 0);

// --- the page

const two = (x) => (Math.abs(x) < 0.005 ? "0.00" : x.toFixed(2));
const nats = (x) => `${show(x, 3)} ${x === 1 ? "nat" : "nats"}`;

function render({ model, el }) {
  const w = frame({ model, el, title: "How hard to push" });
  const scores = model.get("scores");
  const chosen = () => scores.find(({ name }) => name === model.get("score"));
  const run = () => chosen().runs[model.get("seed")];
  const end = model.get("limits").budget.high;
  const every = scores.flatMap(({ runs }) => runs.flat());
  const low = Math.min(0, ...every.map(([, proxy, gold]) => Math.min(proxy, gold)));
  const top = Math.max(0.1, ...every.map(([, proxy, gold]) => Math.max(proxy, gold)));

  w.choice("score", "score", { options: scores.map(({ name }) => name) });
  const budget = w.number("budget", "budget of KL, in nats");
  w.number("seed", "seed");
  w.toggle("all", "all seeds");

  let [toBudget, mark] = [() => 0, null];
  const draw = w.stage((svg, wide, tall) => {
    const box = [40, 22, wide - 16, tall - 38];
    const x = scale([0, end], [box[0], box[2]]);
    const y = scale([low, top], [box[3], box[1]]);
    const curve = (points, i) => points.filter(([kl]) => kl <= end + 1e-9).map((point) => [x(point[0]), y(point[i])]);
    svg.append(axes({ x, y, box, xTicks: ticks(0, end, wide < 420 ? 3 : 6), yTicks: ticks(low, top, 6),
      xTitle: "KL from the reference, nats", yTitle: "expected score" }),
    line([[box[0], y(0)], [box[2], y(0)]], { stroke: "var(--lc-line)" }));
    const kinds = [[1, "lc-1", {}], [2, "lc-2", { "stroke-dasharray": "7 5" }]];
    for (const [i, mark, style] of kinds) {
      if (model.get("all")) {
        for (const points of chosen().runs) {
          svg.append(line(curve(points, i), { stroke: "currentColor", class: mark, opacity: 0.45, ...style }));
        }
      }
      svg.append(line(curve(run(), i), { stroke: "currentColor", class: mark, "stroke-width": 2.5, ...style }));
    }
    const there = x(model.get("budget"));
    mark = [there, box[3]];
    svg.append(line([[there, box[1]], [there, box[3]]], { stroke: "var(--lc-text)", "stroke-dasharray": "4 4" }));
    at(run(), model.get("budget")).forEach((value, i) => {
      svg.append(s("circle", { cx: there, cy: y(value), r: 4.5, fill: "currentColor", class: kinds[i][1] }));
    });
    const [kl, , gold] = run()[bestStop(run())];
    if (kl <= end + 1e-9) {
      svg.append(s("circle", { cx: x(kl), cy: y(gold), r: 8, fill: "none", stroke: "currentColor", "stroke-width": 2, class: "lc-2" }),
        label(clamp(x(kl), box[0] + 30, box[2] - 30), y(gold) - 13, "best stop", { "text-anchor": "middle" }));
    }
    toBudget = (px) => Math.round(20 * clamp((px - box[0]) / (box[2] - box[0]), 0, 1) * end) / 20;
    svg.style.touchAction = "pan-y";
    return sentence();
  }, { height: 290, label: "proxy and gold against KL" });
  const picture = w.stages.querySelector("svg");
  onDrag(picture, ([x]) => w.putNumber("budget", "budget of KL, in nats", toBudget(x)));
  draw.handle({ x: budget, at: () => mark, label: "budget in the picture", to: ([x]) => toBudget(x) });
  w.stages.append(h("p", {}, "Solid: the proxy, what the policy is made for. Dashed: gold, what it is worth. Ring: the highest gold."));
  const numbers = w.table("The chosen run, point by point");

  function sentence() {
    const budget = model.get("budget");
    const [proxy, gold] = at(run(), budget);
    const best = run()[bestStop(run())];
    const lost = best[2] - gold;
    const so = `With ${nats(budget)} by “${chosen().name}”: proxy ${two(proxy)}, gold ${two(gold)}.`;
    if (best === run().at(-1)) return `${so} Gold does not turn as far as this run goes.`;
    const turn = `Gold is highest at ${nats(best[0])}, ${two(best[2])}`;
    if (lost < 0.005) return `${so} ${turn}: this is the best stop.`;
    return budget < best[0] ? `${so} ${turn}: there is more to gain.`
      : `${so} ${turn}: pushing on has cost ${two(lost)}, while the proxy rose by ${two(proxy - best[1])}.`;
  }

  function redraw() {
    draw();
    const best = bestStop(run());
    numbers({ columns: ["KL, nats", "proxy", "gold", "best stop"],
      rows: run().map(([kl, proxy, gold], i) => [show(kl, 3), two(proxy), two(gold), i === best ? "yes" : ""]) });
    w.say(sentence());
  }
  w.on(["score", "budget", "seed", "all"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
