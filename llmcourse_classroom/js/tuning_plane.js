import { axes, clamp, frame, h, label, line, listed, plural, s, scale, ticks } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests
// A point is [loss, bits, ...], and less is better in both.

// The means of a run's seeds.
export const meanOf = (points) => points[0].map((_, i) => points.reduce((sum, point) => sum + point[i], 0) / points.length);

// Whether the first is nowhere worse than the second, and somewhere better.
export const beats = ([loss, bits], [other, others]) => loss <= other && bits <= others && (loss < other || bits < others);

// Who wins how many of the pairs of a point of one way and a point of the other.
export function tally(firsts, seconds) {
  const pairs = firsts.flatMap((a) => seconds.map((b) => [a, b]));
  const [first, second] = [pairs.filter(([a, b]) => beats(a, b)).length, pairs.filter(([a, b]) => beats(b, a)).length];
  return { pairs: pairs.length, first, second, neither: pairs.length - first - second };
}

// The places of the points that no other one beats.
export const unbeaten = (points) => points.map((_, i) => i).filter((i) => !points.some((other) => beats(other, points[i])));

// --- the page

const STYLE = `
.lc .tp-small { font-size: 0.85rem; color: var(--lc-muted); }
.lc svg .tp-11 { font-size: 11px; }
.lc svg .tp-muted { fill: var(--lc-muted); }
.lc svg .tp-bold { font-weight: 700; }
.lc svg .tp-over { paint-order: stroke; stroke: var(--pst-color-background, var(--jp-layout-color1, #fff)); stroke-width: 3px; }
.lc .tp-tests { margin: 0.2rem 0; padding-left: 1.3rem; overflow-wrap: anywhere; }
.lc .tp-tests ul { list-style: none; margin: 0 0 0.4rem; padding: 0; }
.lc .tp-tests li li { border-left: 4px solid currentColor; padding-left: 0.5rem; margin: 0.15rem 0; }
.lc .tp-tests span { color: var(--lc-text); }`;
const TALL = 330;
const SEEN = 3; // tests at once
const STEEP = 4; // a scale over more than this is one of logarithms
const three = (x) => x.toFixed(3);

// The mark of a way: a disc, a square, a triangle.
const MARKS = [
  (r) => s("circle", { r, fill: "currentColor" }),
  (r) => s("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r, fill: "currentColor" }),
  (r) => s("path", { d: `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`, fill: "currentColor" }),
];

function render({ model, el }) {
  const w = frame({ model, el, title: "Learning against forgetting", primary: ["first", "second", "part"] });
  w.root.prepend(h("style", {}, STYLE));
  const [before, tests, diverged, settings] = ["before", "tests", "diverged", "settings"].map((name) => model.get(name));
  const runs = model.get("runs").map((run) => ({ ...run, mean: meanOf(run.points) }));
  const ways = [...new Set(runs.map(({ way }) => way))];
  const of = (way) => runs.filter((run) => run.way === way);
  const color = ({ way }) => `lc-${ways.indexOf(way) % 6 + 1}`;
  const mark = ({ way }, r) => MARKS[ways.indexOf(way) % MARKS.length](r);
  const picked = () => ["first", "second"].map((name) => runs.find((run) => run.name === model.get(name)));

  w.toggle("every", "all runs, and the curves of the ways", { into: w.actions });
  w.choice("first", "one run", { options: runs.map(({ name }) => name) });
  w.choice("second", "another run", { options: runs.map(({ name }) => name) });
  w.number("part", `tests, ${SEEN} at a time`);

  // --- the picture

  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const all = runs.flatMap(({ points }) => points);
  const places = (width) => {
    const [[least, most], [low, top]] = [ends(all.map(([loss]) => loss)), ends([before.bits, ...all.map(([, bits]) => bits)])];
    const box = [44, 26, width - 14, TALL - 42];
    const spread = (a, b) => (b / a > STEEP ? [a / 1.2, b * 1.2] : [a - 0.1 * (b - a || a), b + 0.1 * (b - a || a)]);
    const across = (a, b, [from, to]) => scale(spread(a, b), [from, to], { log: b / a > STEEP });
    const round = (a, b, count) => (b / a > STEEP ? [0.1, 0.2, 0.5, 1, 2, 5, 10, 20].filter((t) => t >= a / 1.2 && t <= b * 1.2) : ticks(a, b, count));
    return { box, x: across(least, most, [box[0], box[2]]), y: across(low, top, [box[3], box[1]]),
      xTicks: round(least, most, width > 500 ? 6 : 3), yTicks: round(low, top, 5) };
  };
  let there = []; // of the runs in the picture

  function drawRun(svg, run, { x, y, box }, own) {
    const [cx, cy] = [x(run.mean[0]), y(run.mean[1])];
    there.push({ run, cx, cy });
    svg.append(s("g", { class: color(run), "data-key": `run ${run.name}` },
      run.points.length > 1 ? run.points.map(([loss, bits]) => s("circle", { cx: x(loss), cy: y(bits), r: 2.5, fill: "currentColor", opacity: 0.6 })) : null,
      s("g", { transform: `translate(${cx} ${cy})` }, mark(run, 5))));
    if (own) return;
    const last = run === of(run.way).at(-1);
    if (!last && box[2] < 500) return; // a phone has no place for them
    const text = last ? `${run.way}, ${run.rate}` : run.rate;
    const long = 5.7 * text.length;
    const [dx, dy] = [last ? [9, 4] : [-long / 2, -10], [9, 4], last ? [9, 4] : [-long / 2, 18]][ways.indexOf(run.way) % 3];
    svg.append(label(cx + dx + long > box[2] ? cx - 9 - long : cx + dx, cy + (cx + dx + long > box[2] ? 4 : dy), text, { class: "tp-11 tp-muted tp-over" }));
  }

  // A ring around a run, with its name where the picture has the most space.
  function drawPicked(svg, run, which, other, { x, y, box }) {
    const [cx, cy] = [x(run.mean[0]), y(run.mean[1])];
    const long = 7.2 * run.name.length;
    const up = cy < y(other.mean[1]) || (run === other && which === "first");
    const left = clamp(cx - long / 2, box[0] + 2, box[2] - long);
    svg.append(s("g", { "data-key": which, transform: `translate(${cx} ${cy})`, class: color(run) },
      s("circle", { r: which === "first" ? 9.5 : 12, fill: "none", stroke: "currentColor", "stroke-width": 2 })),
    s("g", { "data-key": `name ${which}`, transform: `translate(${left} ${clamp(up ? cy - 26 : cy + 34, box[1] + 10, box[3] - 4)})` },
      label(0, 0, run.name, { class: "tp-bold tp-over" })));
  }

  const draw = w.stage((svg, width) => {
    const at = places(width);
    const { box, x, y } = at;
    const [one, two] = picked();
    const every = model.get("every");
    there = [];
    svg.append(axes({ ...at, xTitle: "← better: loss on new answers, nats a token", yTitle: "↓ better: bits a byte of English" }),
      line([[box[0], y(before.bits)], [box[2], y(before.bits)]], { stroke: "var(--lc-muted)", "stroke-dasharray": "5 4" }),
      label(box[2], y(before.bits) + 14, "before training", { "text-anchor": "end", class: "tp-11 tp-muted" }));
    for (const way of every ? ways : []) {
      svg.append(line(of(way).map(({ mean }) => [x(mean[0]), y(mean[1])]), { stroke: "currentColor", "stroke-width": 2, opacity: 0.6, class: color({ way }) }));
    }
    for (const run of every ? runs : [...new Set([one, two])]) drawRun(svg, run, at, run === one || run === two);
    drawPicked(svg, one, "first", two, at);
    if (two !== one) drawPicked(svg, two, "second", one, at);
    return `${sentence()} ${every ? runs.map(told).join("; ") : ""}`;
  }, { height: () => TALL, label: "loss on new answers, and bits a byte of English" });
  draw.picture.addEventListener("click", ({ clientX, clientY }) => {
    const shown = draw.picture.getBoundingClientRect();
    const unit = shown.width / draw.picture.viewBox.baseVal.width;
    const far = ({ cx, cy }) => Math.hypot(clientX - shown.left - unit * cx, clientY - shown.top - unit * cy);
    const nearest = there.toSorted((a, b) => far(a) - far(b))[0];
    // The run of its way gives way to it, or else the second.
    if (nearest && far(nearest) < 24 * unit) w.put(nearest.run.way === picked()[0].way ? "first" : "second", nearest.run.name);
  });
  w.stages.append(h("p", { class: "tp-small" }, `Recorded: ${settings.steps} steps on ${settings.trained} conversations, judged on ${settings.tests} ` +
    `others and on English; lines lead from a way's lowest rate to its highest. Small dots: single seeds, where there are several. ` +
    `Dashed: the bits before training, ${three(before.bits)}; the loss was ${three(before.loss)}.` +
    (diverged.length ? ` Diverged: ${listed(diverged)}.` : "")));
  const answers = h("div", {});
  w.root.querySelector(".lc-status").after(answers);
  const numbers = w.table("Every run");

  // --- in words

  const told = ({ name, mean: [loss, bits] }) => `${name} (loss ${three(loss)}, ${three(bits)} bits)`;

  function sentence() {
    const [one, two] = picked();
    const same = one.way === two.way;
    if (one === two) return `${told(one)} stands on both sides: choose another run.`;
    const so = `Compared: ${told(one)} with ${told(two)}. `;
    const winner = beats(one.mean, two.mean) ? one : beats(two.mean, one.mean) ? two : null;
    const [better, kinder] = one.mean[0] < two.mean[0] ? [one, two] : [two, one];
    const name = (run) => (same ? run.name : run.way);
    return so + (winner ? `By this pair “${name(winner)}” wins: it has learnt more and forgotten less. `
      : `This pair decides nothing: “${name(better)}” has learnt more, “${name(kinder)}” has forgotten less. `) +
      (same ? `Both are “${one.way}”: the rate alone has moved it. ` : "") + (model.get("every") ? whole(one, two) : "");
  }

  // What all runs say, where a pair says one thing.
  function whole(one, two) {
    const best = unbeaten(runs.map(({ mean }) => mean)).map((i) => runs[i]);
    const ends = best.filter((run) => [of(run.way)[0], of(run.way).at(-1)].includes(run)); // of the rates that were tried
    const names = (some) => listed(some.map(({ name }) => `“${name}”`));
    const front = `Beaten by no other run: ${names(best)}.` + (ends.length ? ` At an end of its way's rates: ${names(ends)}. A better rate may lie beyond.` : "");
    if (one.way === two.way) return front;
    const { pairs, first, second, neither } = tally(of(one.way).map(({ mean }) => mean), of(two.way).map(({ mean }) => mean));
    return `Of the ${plural(pairs, "pair")} of one rate each, “${one.way}” wins ${first}, “${two.way}” wins ${second}, and ${neither} decide nothing. ${front}`;
  }

  function drawAnswers() {
    const [one, two] = picked();
    const from = SEEN * (model.get("part") - 1);
    const said = (who, { said: texts, right }, i, look) => h("li", { class: look },
      h("span", {}, `${who}: ${texts[i]} `, h("span", { class: "tp-small" }, right[i] ? "(right)" : "(wrong)")));
    answers.replaceChildren(h("ol", { class: "tp-tests", start: from + 1 }, tests.slice(from, from + SEEN).map(([asked, answer], i) =>
      h("li", {}, `${asked} Right: `, h("strong", {}, answer), h("ul", {},
        said("before", before, from + i, ""),
        [...new Set([one, two])].map((run) => said(run.name, run, from + i, color(run))))))));
  }

  function redraw() {
    draw();
    drawAnswers();
    const best = unbeaten(runs.map(({ mean }) => mean));
    numbers(() => ({ columns: ["run", "loss", "bits", "right of all", "seeds", "beaten by another"],
      rows: [["before", three(before.loss), three(before.bits), three(before.share), "", ""],
        ...runs.map(({ name, mean: [loss, bits, share], points }, i) =>
          [name, three(loss), three(bits), three(share), String(points.length), best.includes(i) ? "no" : "yes"])] }));
    w.say(sentence());
  }
  w.on(["first", "second", "every", "part"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
