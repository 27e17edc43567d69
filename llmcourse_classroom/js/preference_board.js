import { frame, h, label, percent, s, scale, show } from "./kit.js";

// --- arithmetic, compared with llmcourse_labs.tuning.preferences by the tests

// The best policy for a beta, or one on the way to it: reference * exp(share * utility / beta) / Z.
export function policyOf(reference, utilities, beta, share = 1) {
  const logits = reference.map((p, i) => Math.log(p) + share * utilities[i] / beta);
  const top = Math.max(...logits);
  const weights = logits.map((x) => Math.exp(x - top));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((x) => x / total);
}

// KL from the reference, in nats.
export const klOf = (policy, reference) =>
  policy.reduce((sum, p, i) => sum + (p > 0 ? p * Math.log(p / reference[i]) : 0), 0);

export const meanUtility = (policy, utilities) => policy.reduce((sum, p, i) => sum + p * utilities[i], 0);

// The margin of a pair: beta times the difference of ln(policy / reference), without rounding to 0.
export const marginOf = (utilities, share, i, j) => share * (utilities[i] - utilities[j]);

// ln(1 + exp(-x)) for x of any size.
export const softLoss = (x) => (x > 0 ? Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)) - x);

// DPO's loss of a pair, over a judge who prefers by Bradley and Terry.
export function pairLoss(utilities, share, i, j) {
  const margin = marginOf(utilities, share, i, j);
  const wins = Math.exp(-softLoss(utilities[i] - utilities[j]));
  return wins * softLoss(margin) + (1 - wins) * softLoss(-margin);
}

// --- the page

const ROW = 50; // pixels of an answer: two bars
const BAR = 17;
const two = (x) => x.toFixed(2).replace("-", "−").replace("−0.00", "0.00");

function render({ model, el }) {
  const w = frame({ model, el, title: "Utility, at a price for distance" });
  const names = model.get("names");
  const [reference, utilities] = [model.get("reference"), model.get("utilities")];
  w.number("beta", "β", { log: true });
  w.number("training", "training, %");
  w.choice("chosen", "chosen", { options: names });
  w.choice("rejected", "rejected", { options: names });

  const share = () => model.get("training") / 100;
  const policy = () => policyOf(reference, utilities, model.get("beta"), share());
  const place = (name) => names.indexOf(model.get(name));

  const draw = w.stage((svg, width) => {
    const now = policy();
    const left = Math.min(150, width * 0.42);
    const x = scale([0, 1], [left, width - 62]);
    names.forEach((name, i) => {
      const top = 6 + i * ROW;
      const bar = (y, p, attributes) => svg.append(
        s("rect", { x: left, y, width: Math.max(0.5, x(p) - left), height: BAR, ...attributes }),
        label(x(p) + 5, y + 13, percent(p).replace("over ", ">"))); // the longest bar leaves no room for a word
      svg.append(label(0, top + 15, name), label(0, top + 33, `worth ${two(utilities[i])}`));
      bar(top, reference[i], { fill: "none", stroke: "var(--lc-muted)", "stroke-dasharray": "3 3" });
      bar(top + BAR + 4, now[i], { fill: "currentColor", class: "lc-1" });
    });
    svg.append(s("line", { x1: left, x2: left, y1: 2, y2: names.length * ROW, stroke: "var(--lc-line)" }));
    return names.map((name, i) => `${name}, worth ${two(utilities[i])}: reference ${percent(reference[i])}, policy ` +
      percent(now[i])).join("; ");
  }, { height: () => names.length * ROW + 8, label: "how likely each answer is" });
  w.stages.append(h("p", {}, "Upper bar, dashed: the reference. Lower bar, filled: the policy."));
  const numbers = w.table("Beta by beta");

  function redraw() {
    draw();
    const [beta, now, i, j] = [model.get("beta"), policy(), place("chosen"), place("rejected")];
    const kl = klOf(now, reference);
    const gain = meanUtility(now, utilities);
    const pair = i === j ? "Choose two different answers to see the loss of a pair."
      : `“${names[i]}” against “${names[j]}”: margin ${two(marginOf(utilities, share(), i, j))}, the judge prefers the first in ` +
        `${percent(Math.exp(-softLoss(utilities[i] - utilities[j])))}, and the mean DPO loss is ` +
        `${pairLoss(utilities, share(), i, j).toFixed(3)}.`;
    w.say(`With β = ${show(beta, 3)}${share() < 1 ? ` and ${show(100 * share(), 3)} % of the way` : ""} the mean utility is ` +
      `${two(gain)} and the KL from the reference ${two(kl)} nats: utility minus β KL is ${two(gain - beta * kl)}. ${pair}`);
    numbers({
      columns: ["β", ...names, "KL, nats", "utility", "utility − β KL"],
      rows: [0.03, 0.1, 0.3, 1, 3, 10].map((b) => {
        const p = policyOf(reference, utilities, b);
        const [far, worth] = [klOf(p, reference), meanUtility(p, utilities)];
        return [show(b), ...p.map((share) => percent(share)), two(far), two(worth), two(worth - b * far)];
      }),
    });
  }
  w.on(["beta", "training", "chosen", "rejected"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
