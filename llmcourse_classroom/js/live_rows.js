// Rows of the embedding of a run, as cells of a picture.

import { h, pixelsPerUnit } from "./kit.js";

// How alike the rows of a group are: the mean cosine of the angle between two of them.
export function alikeness(rows) {
  const units = rows.map((row) => {
    const size = Math.hypot(...row) || 1;
    return Array.from(row, (x) => x / size);
  });
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const pairs = units.flatMap((a, i) => units.slice(i + 1).map((b) => dot(a, b)));
  return pairs.reduce((a, b) => a + b, 0) / (pairs.length || 1);
}

export function rowsPart(w, run) {
  const groups = w.model.get("rows"); // pairs of a name and its tokens
  const D = w.model.get("config").width;
  const canvas = h("canvas", { class: "lr-cells", role: "img" });
  const holder = h("div", { class: "lc-stage" }, canvas);
  const key = h("p", { class: "lr-key" });
  w.stages.append(key, holder);
  const count = groups.reduce((sum, [, tokens]) => sum + tokens.length, 0);
  const ofGroups = () => {
    let first = 0;
    return groups.map(([group, tokens]) => {
      const found = tokens.map((_, i) => run.rows.slice((first + i) * D, (first + i + 1) * D));
      first += tokens.length;
      return [group, found];
    });
  };
  let lastWidth = 0;
  function draw() {
    const { rows } = run;
    lastWidth = holder.clientWidth;
    const there = lastWidth || 640;
    const unit = pixelsPerUnit(holder, there);
    const width = Math.max(220, Math.round(there / unit));
    const [edge, tall, gap] = [Math.min(92, width * 0.28), 8, 6];
    const height = count * tall + gap * groups.length;
    const sharp = (window.devicePixelRatio || 1) * unit;
    [canvas.width, canvas.height] = [width * sharp, height * sharp];
    canvas.style.height = `${height * unit}px`;
    const ink = getComputedStyle(w.root);
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const top = rows ? Math.max(0.1, ...rows.map(Math.abs)) : 1;
    const cell = (width - edge) / D;
    let [y, i] = [0, 0];
    for (const [group, tokens] of groups) {
      pen.globalAlpha = 1;
      pen.fillStyle = ink.color;
      pen.fillText(group, 0, y + tokens.length * tall / 2, edge - 6);
      for (const _ of tokens) {
        for (let d = 0; rows && d < D; d++) {
          const value = rows[i * D + d];
          pen.globalAlpha = Math.sqrt(Math.min(1, Math.abs(value) / top));
          pen.fillStyle = ink.getPropertyValue(value < 0 ? "--lc-1" : "--lc-2").trim();
          pen.fillRect(edge + d * cell, y, cell - 0.5, tall - 0.5);
          if (value < 0) pen.clearRect(edge + (d + 0.36) * cell, y + 0.36 * tall, 0.28 * cell, 0.28 * tall);
        }
        y += tall;
        i++;
      }
      y += gap;
    }
    const alike = rows ? ofGroups().filter(([, all]) => all.length > 1)
      .map(([group, all]) => `${group} ${alikeness(all).toFixed(2)}`).join(", ") : "";
    canvas.setAttribute("aria-label", rows ? `${count} rows of the embedding, ${D} columns` : "no rows yet");
    const more = alike ? `How alike two rows of a group are (1 if they point the same way): ${alike}.`
      : "They appear with your run.";
    key.textContent = "Rows of the embedding: a row for a token, full cells positive, cells with a hole negative. " + more;
  }
  const resized = new ResizeObserver(() => { if (holder.clientWidth !== lastWidth) draw(); });
  resized.observe(holder);
  const themed = new MutationObserver(draw); // a canvas keeps its colours when the theme changes
  for (const element of [document.documentElement, document.body]) {
    themed.observe(element, { attributeFilter: ["data-theme", "theme", "data-jp-theme-light"] });
  }
  return { draw, stop() { resized.disconnect(); themed.disconnect(); } };
}
