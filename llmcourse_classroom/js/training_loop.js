import { clamp, frame, h, label, line, percent, s } from "./kit.js";

// --- arithmetic

// The ellipse of the ring in a width.
export const ring = (width) => ({ cx: width / 2, cy: 176, rx: Math.min(width / 2 - 76, 280), ry: 146 });

const onRing = ({ cx, cy, rx, ry }, turn) => {
  const angle = 2 * Math.PI * turn - Math.PI / 2;
  return [cx + rx * Math.cos(angle), cy + ry * Math.sin(angle)];
};

// Where each of `count` boxes stands in a width: a ring, or a column where it is narrow.
export function places(count, width) {
  if (width < 560) {
    return Array.from({ length: count }, (_, i) => ({ x: 100, y: 24 + 52 * i }));
  }
  return Array.from({ length: count }, (_, i) => {
    const [x, y] = onRing(ring(width), i / count);
    return { x, y };
  });
}

// The phase after `phase`, counted from 1: after the last comes the first.
export const following = (phase, count, by = 1) => ((phase - 1 + by) % count + count) % count + 1;

// --- the page

const BOX = { width: 132, height: 34 };
const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
const STYLE = `
.lc .tl-boxes { position: absolute; inset: 0; pointer-events: none; transform-origin: 0 0; }
.lc .tl-boxes button { position: absolute; width: ${BOX.width}px; height: ${BOX.height}px; padding: 0;
  font-size: 14.4px; pointer-events: auto; transform: translate(-50%, -50%); border: 2px solid var(--own);
  border-radius: 1rem; }
.lc .tl-boxes button[aria-pressed="true"] { font-weight: 700; background: var(--own); outline: 2px solid var(--now); outline-offset: 2px; }
.lc .tl-boxes button:focus-visible { outline: 3px solid var(--lc-2); outline-offset: 2px; }
.lc .tl-panel { border-left: 4px solid var(--now); padding-left: 0.8rem; }
.lc .tl-panel dl { display: grid; grid-template-columns: minmax(6rem, auto) minmax(0, 1fr); gap: 0.15rem 0.9rem;
  margin: 0.3rem 0; }
.lc .tl-panel dt { color: var(--lc-muted); }
.lc .tl-panel dd { margin: 0; overflow-wrap: anywhere; }
.lc .tl-panel code { color: inherit; background: none; border: 0; padding: 0; }`;

function render({ model, el }) {
  const w = frame({ model, el, title: "The seven phases of a training step" });
  w.root.prepend(h("style", {}, STYLE));
  const phases = model.get("phases");
  const count = phases.length;
  const chosen = () => phases[model.get("phase") - 1];
  const timed = phases.every((phase) => typeof phase.share === "number");

  // Play ends with the last phase: a step is done.  The next press begins another.
  w.player({
    step: () => {
      w.put("phase", following(model.get("phase"), count));
      return model.get("phase") < count;
    },
    reset: () => w.put("phase", 1),
    perSecond: 0.7,
  });

  // --- the ring: arrows in the picture, and a button for each phase upon it

  const buttons = phases.map((phase, i) =>
    h("button", { type: "button", style: `--own: var(--phase-${i + 1})`, onclick: () => choose(i + 1) },
      `${i + 1} ${phase.name}`));
  function choose(phase) {
    w.put("phase", phase);
    buttons[phase - 1].focus();
  }
  const boxes = h("div", { class: "tl-boxes", role: "group", "aria-label": "phases" }, buttons);
  boxes.addEventListener("keydown", (event) => {
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    choose(following(model.get("phase"), count, MOVES[event.key]));
  });

  // An arrow from box a to box b along straight lines, cut where the boxes end.
  function arrow(svg, points, lit) {
    const [[x0, y0], [x1, y1]] = points.slice(-2);
    const angle = Math.atan2(y1 - y0, x1 - x0);
    const wing = (turn) => [x1 - 9 * Math.cos(angle + turn), y1 - 9 * Math.sin(angle + turn)];
    const ink = { stroke: lit ? "var(--now)" : "var(--lc-line)", "stroke-width": lit ? 3 : 1.5 };
    svg.append(line(points, ink), line([wing(0.45), [x1, y1], wing(-0.45)], ink));
  }

  function drawColumn(svg, at, width) {
    at.forEach(({ x, y }, i) => {
      const lit = i === model.get("phase") - 1;
      if (i < count - 1) arrow(svg, [[x, y + 20], [x, at[i + 1].y - 20]], lit);
      else arrow(svg, [[x - 68, y], [x - 88, y], [x - 88, at[0].y], [x - 70, at[0].y]], lit);
      if (!timed) return;
      const left = x + 80;
      const room = Math.max(20, width - left - 4);
      const fill = lit ? "var(--now)" : "var(--lc-line)";
      svg.append(s("rect", { x: left, y: y - 12, width: Math.max(1, room * phases[i].share), height: 9, fill }),
        label(left, y + 13, percent(phases[i].share, 2)));
    });
  }

  function drawRing(svg, at, width) {
    at.forEach((_, i) => {
      // Sample the ellipse between two boxes and keep what neither box covers.
      const ends = [at[i], at[(i + 1) % count]];
      const free = ([x, y]) => ends.every((box) =>
        Math.abs(x - box.x) > BOX.width / 2 + 7 || Math.abs(y - box.y) > BOX.height / 2 + 7);
      const path = Array.from({ length: 41 }, (_x, k) => onRing(ring(width), (i + k / 40) / count)).filter(free);
      if (path.length > 1) arrow(svg, path, i === model.get("phase") - 1);
    });
    if (timed) drawShares(svg, ring(width));
  }

  // The time of the phases as a clock: where the hand has come when a phase ends.
  function drawShares(svg, { cx: x, cy: y }) {
    const inner = 62;
    let from = -Math.PI / 2;
    phases.forEach(({ share }, i) => {
      const lit = i === model.get("phase") - 1;
      const span = 2 * Math.PI * share;
      const steps = Math.max(2, Math.ceil(span * 30));
      const arc = Array.from({ length: steps + 1 }, (_, k) =>
        from + clamp(span * k / steps, 0, Math.max(0, span - 0.03)));
      svg.append(line(arc.map((angle) => [x + inner * Math.cos(angle), y + inner * Math.sin(angle)]),
        { stroke: lit ? "var(--now)" : "var(--lc-line)", "stroke-width": lit ? 20 : 10 }));
      from += span;
    });
    const middle = { "text-anchor": "middle" };
    svg.append(label(x, y - 8, chosen().name, { ...middle, style: "font-weight: 700" }),
      label(x, y + 9, percent(chosen().share, 2), middle),
      label(x, y + 26, "of the time", middle));
  }

  const draw = w.stage((svg, width) => {
    const at = places(count, width);
    boxes.style.transform = `scale(${svg.getAttribute("width") / width})`;
    (width < 560 ? drawColumn : drawRing)(svg, at, width);
    buttons.forEach((button, i) => {
      button.style.left = `${at[i].x}px`;
      button.style.top = `${at[i].y}px`;
      button.setAttribute("aria-pressed", String(i === model.get("phase") - 1));
    });
    const shares = timed ? `; shares of the time: ${phases.map((p) => `${p.name} ${percent(p.share, 2)}`).join(", ")}`
      : "";
    return `${phases.map((p) => p.name).join(", then ")}, then the next step; ${chosen().name} is lit${shares}`;
  }, { height: (width) => (width < 560 ? 48 + 52 * (count - 1) : 352), label: "the loop" });
  const stage = draw.picture.parentElement;
  stage.style.overflow = "hidden"; // the boxes are as large as the picture, before they are scaled
  stage.append(boxes);

  // --- what the chosen phase does

  const panel = h("div", { class: "tl-panel" });
  w.stages.append(panel);
  function fill() {
    const { name, takes, gives, function: where, facts, share } = chosen();
    const [chapter, href] = model.get("chapters")[model.get("phase") - 1];
    const inPage = !model.widget_manager; // a notebook has no pages to lead to
    const pairs = [["takes", takes], ["gives", gives], ["function", h("code", {}, where)], ...facts,
      ...(timed ? [["share of the time", `${percent(share, 2)}, indicative`]] : []),
      ["in the book from", inPage ? h("a", { href }, chapter) : chapter]];
    panel.replaceChildren(h("p", {}, h("strong", {}, `Phase ${model.get("phase")}: ${name}`)),
      h("dl", {}, pairs.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])));
  }

  w.table("All phases and their numbers")({
    columns: ["phase", "takes", "gives", "function", "numbers", "share of the time"],
    rows: phases.map((p, i) => [`${i + 1} ${p.name}`, p.takes, p.gives, p.function,
      p.facts.map(([name, value]) => `${name}: ${value}`).join("; "), timed ? percent(p.share, 2) : "not measured"]),
  });

  function sentence() {
    const { name, takes, gives, share } = chosen();
    const next = model.get("phase") === count ? "Then the next step begins."
      : `Then comes ${phases[model.get("phase")].name}.`;
    const time = timed ? ` It takes ${percent(share, 2)} of the step's time.` : "";
    return `Phase ${model.get("phase")} of ${count}, ${name}: takes ${takes}; gives ${gives}.${time} ${next}`;
  }

  function redraw() {
    w.root.style.setProperty("--now", `var(--phase-${model.get("phase")})`);
    draw();
    fill();
    w.say(sentence());
  }
  w.on(["phase"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
