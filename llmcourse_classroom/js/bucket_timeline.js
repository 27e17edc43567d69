import { axes, clamp, frame, h, hatch, label, line, plural, s, scale, show, ticks, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse_classroom.widgets.buckets by the tests

// Gradients in the order of backward are [bytes, share of backward after which it is there].  They go into a bucket
// until it would be larger than allowed; a larger one has its own.  A bucket is [bytes, share, how many].
export function fullBuckets(tensors, bucketBytes) {
  const full = [];
  for (const [bytes, share] of tensors) {
    const last = full.at(-1);
    if (last && last[0] + bytes <= bucketBytes) {
      last[0] += bytes;
      last[1] = Math.max(last[1], share);
      last[2] += 1;
    } else full.push([bytes, share, 1]);
  }
  return full;
}

// A ring: 2 (n - 1) messages in a row, each of an n-th.
export const ringSeconds = (bytes, n, latency, rate) => 2 * (n - 1) * (latency + bytes / n / rate);

// When each bucket is full, and when its sum begins and ends: one link, one bucket after the other.
export function bucketTimes(buckets, backward, n, latency, rate, overlap) {
  let free = 0;
  return buckets.map(([bytes, share]) => {
    const ready = backward * (overlap ? share : 1);
    const start = Math.max(ready, free);
    free = start + ringSeconds(bytes, n, latency, rate);
    return [ready, start, free];
  });
}

// What a step still waits for when backward has ended.
export const exposed = (times, backward) => Math.max(0, times.at(-1)[2] - backward);

// The exposed time for a row of bucket sizes, evenly spread over the powers of ten.
export function sweep(tensors, low, high, count, backward, n, latency, rate, overlap) {
  return Array.from({ length: count }, (_, i) => {
    const size = low * (high / low) ** (i / (count - 1));
    return [size, exposed(bucketTimes(fullBuckets(tensors, size), backward, n, latency, rate, overlap), backward)];
  });
}

// --- the page

const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];
const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const LEAST = 1e3; // bytes, where the curve begins
const MOST_ROWS = 60;

function inUnits(value, units) {
  if (value === 0) return `0 ${units.at(-2)[1]}`;
  const [unit, name] = units.find(([least]) => value >= least * 0.9995) || units.at(-1);
  return `${show(Number((value / unit).toPrecision(3)))} ${name}`;
}
const size = (bytes) => inUnits(bytes, SIZES);
const time = (seconds) => (seconds === 0 ? "0 s" : inUnits(seconds, TIMES));

function render({ model, el }) {
  const w = frame({ model, el, title: "Buckets on the link, while backward goes on",
    primary: ["bucket_mb", "latency_us", "overlap"] });
  w.root.prepend(h("style", {}, ".lc .bt-small { font-size: 0.85rem; color: var(--lc-muted); }"));
  const presets = model.get("presets");
  const names = Object.keys(presets);

  // A preset brings its own numbers along.
  w.choice("preset", "gradients of", {
    options: names, labels: names.map((name) => presets[name].label),
    onset: () => {
      model.set("note", "");
      Object.entries(presets[model.get("preset")].start).forEach(([name, value]) => w.put(name, value));
    },
  });
  const bucket = w.number("bucket_mb", "bucket, MB", { log: true });
  w.number("num_ranks", "ranks", { log: true });
  w.number("latency_us", "latency of a message, µs", { log: true });
  w.number("gigabytes_per_s", "bandwidth of a link, GB/s", { log: true });
  w.number("backward_ms", "backward, ms", { log: true });
  w.toggle("overlap", "send during backward");
  w.button("Take the best size", () => w.putNumber("bucket_mb", "bucket, MB", tidy(best()[0])));

  // Everything that pictures, table and sentence say.
  const tensors = () => presets[model.get("preset")].tensors;
  const total = () => tensors().reduce((sum, [bytes]) => sum + bytes, 0);
  const backward = () => 1e-3 * model.get("backward_ms");
  const link = () => [model.get("num_ranks"), 1e-6 * model.get("latency_us"), 1e9 * model.get("gigabytes_per_s")];
  const buckets = () => fullBuckets(tensors(), Math.round(1e6 * model.get("bucket_mb")));
  const times = () => bucketTimes(buckets(), backward(), ...link(), model.get("overlap"));
  const most = () => 1e6 * model.get("limits").bucket_mb.high;
  const curve = () => sweep(tensors(), LEAST, Math.min(most(), 2 * total()), 81, backward(), ...link(),
    model.get("overlap"));
  const best = () => curve().reduce((a, b) => (b[1] < a[1] * (1 - 1e-9) ? b : a));
  const tidy = (bytes) => Number((bytes / 1e6).toPrecision(3));

  const drawTime = w.stage((svg, width, tall) => {
    const all = times();
    const wait = exposed(all, backward());
    const end = Math.max(backward(), all.at(-1)[2]);
    const [left, right] = [4, width - 4];
    const x = scale([0, end], [left, right]);
    const [top, bar, below] = [24, 30, 88];
    const striped = uniqueId();
    svg.append(hatch(striped, { stroke: "currentColor", "stroke-width": 6, class: "lc-2" }),
      label(left, 16, "backward"),
      s("rect", { x: x(0), y: top, width: x(backward()) - x(0), height: bar, fill: "currentColor", class: "lc-1" }),
      label(left, below + bar + 17, "link, bucket by bucket"));
    const room = (right - left) / end;
    all.forEach(([ready, start, stop], k) => {
      const wide = Math.max(0.5, (stop - start) * room - (all.length > 80 ? 0 : 1));
      const late = stop > backward() + 1e-12;
      if (all.length <= MOST_ROWS) {
        svg.append(line([[x(ready), top + bar], [x(start), below]], { stroke: "var(--lc-line)" }));
      }
      svg.append(s("rect", { x: x(start), y: below, width: wide, height: bar, fill: late ? `url(#${striped})` :
        "currentColor", stroke: late ? "currentColor" : "none", class: late ? "lc-2" : "lc-3" }));
      if (!late && wide > 20) {
        svg.append(label(x(start) + wide / 2, below + 20, k, { "text-anchor": "middle", style: "fill: var(--lc-on)" }));
      }
    });
    const edge = x(backward());
    const before = edge > 190; // room for both words above the bar
    svg.append(
      line([[edge, top - 4], [edge, below + bar + 4]],
        { stroke: "var(--lc-text)", "stroke-width": 2, "stroke-dasharray": "5 3" }),
      label(before ? edge : Math.max(edge, 75), 16, "its end", { "text-anchor": before ? "end" : "start" }),
      label(right, below + bar + 17, time(end), { "text-anchor": "end" }),
      s("rect", { x: left, y: tall - 15, width: 14, height: 12, fill: "currentColor", class: "lc-3" }),
      label(left + 19, tall - 5, "hidden"),
      s("rect", { x: left + 84, y: tall - 15, width: 14, height: 12, fill: `url(#${striped})`, stroke: "currentColor",
        class: "lc-2" }),
      label(left + 103, tall - 5, "ends after backward"));
    return `backward takes ${time(backward())}; ${plural(all.length, "bucket")}, the first begins at ` +
      `${time(all[0][1])}, the last ends at ${time(all.at(-1)[2])}; exposed ${time(wait)}`;
  }, { height: 162, label: "backward and the link over time" });

  const caption = h("p", { class: "bt-small" }, "Exposed time against the size of a bucket. Left: latency is paid " +
    "often. Right: the last bucket is large, and starts late.");
  const status = w.root.querySelector(".lc-status"); // beside what it is about
  w.stages.append(status, caption);

  let [nowPlace, toSize] = [null, null];
  const drawCurve = w.stage((svg, width, tall) => {
    const points = curve();
    const [low, high] = [points[0][0], points.at(-1)[0]];
    const worst = Math.max(...points.map(([, wait]) => wait)) || 1;
    const [unit, name] = TIMES.find(([least]) => worst >= least) || TIMES.at(-1);
    const box = [52, 22, width - 14, tall - 40];
    const x = scale([low, high], [box[0], box[2]], { log: true });
    const y = scale([0, worst / unit], [box[3], box[1]]);
    const powers = Array.from({ length: 9 }, (_, i) => 10 ** (i + 3)).filter((p) => p <= high * 1.01);
    const every = powers.length > 5 && width < 480 ? 2 : 1;
    const frameOf = axes({ x: () => 0, y, box, xTicks: [], yTicks: ticks(0, worst / unit, 3), yTitle: `exposed, ${name}` });
    powers.filter((_, i) => i % every === 0).forEach((p) => frameOf.append(
      label(clamp(x(p), 20, width - 26), box[3] + 15, size(p), { "text-anchor": "middle" })));
    frameOf.append(label((box[0] + box[2]) / 2, box[3] + 32, "bucket, at most", { "text-anchor": "middle" }));
    const now = clamp(1e6 * model.get("bucket_mb"), low, high);
    const here = exposed(times(), backward());
    const [bestSize, least] = best();
    svg.append(frameOf,
      line(points.map(([at, wait]) => [x(at), y(wait / unit)]), { stroke: "currentColor", class: "lc-1",
        "stroke-width": 2 }),
      line([[x(now), box[1]], [x(now), box[3]]], { stroke: "var(--lc-line)" }),
      s("circle", { cx: x(now), cy: y(Math.min(here, worst) / unit), r: 5, fill: "currentColor", class: "lc-2" }),
      s("rect", { x: x(bestSize) - 5, y: y(least / unit) - 5, width: 10, height: 10, fill: "none",
        stroke: "var(--lc-text)", "stroke-width": 2 }));
    nowPlace = [x(now), y(Math.min(here, worst) / unit)];
    toSize = (px) => low * (high / low) ** clamp((px - box[0]) / (box[2] - box[0]), 0, 1);
    return `${time(here)} at ${size(now)}, the round mark; least is ${time(least)} near ${size(bestSize)}, ` +
      "the square mark";
  }, { height: 220, label: "exposed time against the size of a bucket" });

  drawCurve.handle({ x: bucket, at: () => nowPlace, label: "bucket in the picture", mark: "lc-2",
    to: ([x]) => Number((toSize(x) / 1e6).toPrecision(3)) });

  const numbers = w.table("Every bucket: when it is full, and when it travels");

  function sentence() {
    const all = times();
    const wait = exposed(all, backward());
    const [n, latency] = link();
    const busy = all.reduce((sum, [, start, stop]) => sum + stop - start, 0);
    const paid = all.length * 2 * (n - 1) * latency;
    const head = `${plural(all.length, "bucket")}: the link works ${time(busy)}, of which ` +
      `${Math.round(100 * paid / busy)} % is latency. Exposed: ${time(wait)}, ` +
      `${Math.round(100 * wait / busy)} % of it.`;
    if (!model.get("overlap")) return `${head} Nothing leaves before backward ends, so nothing is hidden.`;
    const [bestSize, least] = best();
    const verdict = wait <= least * 1.02 + 1e-12 ? "No size does much better."
      : `With ${size(bestSize)} it would be ${time(least)}.`;
    if (all.length === 1) return `${head} A single bucket is full when backward ends. ${verdict}`;
    const behind = all.some(([ready, , stop]) => ready < backward() * (1 - 1e-9) && stop > backward() * (1 + 1e-9));
    const why = behind ? "The link is behind: buckets that were full in time are still waiting."
      : "The link keeps up: only what is full at the very end is left.";
    return `${head} ${why} ${verdict}`;
  }

  function redraw() {
    drawTime();
    drawCurve();
    const packed = buckets();
    const rows = times().map(([ready, start, stop], k) => [`bucket ${k}`, String(packed[k][2]), size(packed[k][0]),
      time(ready), time(start), time(stop), stop > backward() + 1e-12 ? "no" : "yes"]);
    const cut = rows.length > MOST_ROWS;
    numbers({
      columns: ["bucket", "gradients", "bytes", "full at", "begins", "ends", "hidden"],
      rows: cut ? [...rows.slice(0, MOST_ROWS - 10), [`… ${rows.length - MOST_ROWS} more`, "", "", "", "", "", ""],
        ...rows.slice(-10)] : rows,
    });
    w.say(sentence());
  }
  w.on(["preset", "bucket_mb", "num_ranks", "latency_us", "gigabytes_per_s", "backward_ms", "overlap"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
