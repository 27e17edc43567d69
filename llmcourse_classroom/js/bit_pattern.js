import { clamp, frame, h, label, line, s, scale, uniqueId } from "./kit.js";

// --- arithmetic, compared with llmcourse.optim.precision by the tests

// A format is { bits, exponent_bits, mantissa_bits, bias, has_infinity, overflow, infinity_code, largest_code,
// nan_code }, as Python's FloatFormat has them.  Codes go up to 2^32, so they are divided, never shifted.

const signOf = (code, fmt) => (code >= 2 ** (fmt.bits - 1) ? 1 : 0);
const magnitudeOf = (code, fmt) => code % 2 ** (fmt.bits - 1);

// [sign, exponent field, mantissa field]
export function fieldsOf(code, fmt) {
  const magnitude = magnitudeOf(code, fmt);
  const unit = 2 ** fmt.mantissa_bits;
  return [signOf(code, fmt), Math.floor(magnitude / unit), magnitude % unit];
}

// The number that some bits stand for.
export function decode(code, fmt) {
  const [negative, exponent, mantissa] = fieldsOf(code, fmt);
  const sign = negative ? -1 : 1;
  if (magnitudeOf(code, fmt) > fmt.largest_code) {
    return fmt.has_infinity && magnitudeOf(code, fmt) === fmt.infinity_code ? sign * Infinity : NaN;
  }
  const leading = exponent > 0 ? 2 ** fmt.mantissa_bits : 0;
  return sign * (leading + mantissa) * 2 ** (Math.max(exponent, 1) - fmt.bias - fmt.mantissa_bits);
}

// The exponent of a number's leading 1: 2^e <= size < 2^(e + 1).
export function leadingPower(size) {
  let e = Math.floor(Math.log2(size)); // may err by one beside a power of two
  if (2 ** e > size) e -= 1;
  if (2 ** (e + 1) <= size) e += 1;
  return e;
}

// Round to the nearest number of a format, ties to the even code; return its bits.  As in the package, what is given
// is a float32: other numbers are rounded to that first.
export function encode(number, fmt) {
  const x = Math.fround(number);
  const sign = x < 0 || Object.is(x, -0) ? 2 ** (fmt.bits - 1) : 0;
  if (Number.isNaN(x)) return fmt.nan_code;
  const beyond = fmt.overflow === "infinity" ? fmt.infinity_code : fmt.largest_code;
  const size = Math.abs(x);
  if (size === Infinity) return sign + beyond;
  if (size === 0) return sign;
  // One unit of the last place: it follows the exponent, down to the smallest normal number.
  const field = Math.max(1, leadingPower(size) + fmt.bias);
  const units = size / 2 ** (field - fmt.bias - fmt.mantissa_bits);
  let n = Math.floor(units);
  const rest = units - n;
  if (rest > 0.5 || (rest === 0.5 && n % 2 === 1)) n += 1;
  // A carry out of the mantissa raises the exponent by itself.
  const code = n + (field - 1) * 2 ** fmt.mantissa_bits;
  return sign + (code > fmt.largest_code ? beyond : code);
}

// The next codes below and above in value; null where there is none.  Both zeros are one place.
export function neighbours(code, fmt) {
  if (Number.isNaN(decode(code, fmt))) return [null, null];
  const half = 2 ** (fmt.bits - 1);
  const last = fmt.has_infinity ? fmt.infinity_code : fmt.largest_code;
  const place = signOf(code, fmt) ? -magnitudeOf(code, fmt) : magnitudeOf(code, fmt);
  const codeAt = (at) => (Math.abs(at) > last ? null : at < 0 ? half - at : at);
  return [codeAt(place - 1), codeAt(place + 1)];
}

// The exact decimal of n 2^power, for whole n: multiply, or divide by 2 as "times 5, and one more decimal".
export function exactDecimal(code, fmt) {
  const value = decode(code, fmt);
  if (!Number.isFinite(value)) return String(value);
  const [negative, exponent, mantissa] = fieldsOf(code, fmt);
  const n = BigInt(mantissa + (exponent > 0 ? 2 ** fmt.mantissa_bits : 0));
  const power = Math.max(exponent, 1) - fmt.bias - fmt.mantissa_bits;
  const sign = negative ? "-" : "";
  if (power >= 0) return `${sign}${n * 2n ** BigInt(power)}`;
  const digits = String(n * 5n ** BigInt(-power)).padStart(-power + 1, "0");
  const [whole, rest] = [digits.slice(0, power), digits.slice(power).replace(/0+$/, "")];
  return sign + whole + (rest && `.${rest}`);
}

// "0.1", "-1e-8", "1/3", "2^-24", "1 + 2^-8", "inf", "nan": the number; null if it is none.
export function parsed(text) {
  const plain = text.trim().toLowerCase().replaceAll("−", "-").replace(/\s*([-+/^])\s*/g, "$1")
    .replace(/([0-9]),(?=[0-9]{3}(?![0-9]))/g, "$1"); // 70,000
  if (/^[+-]?nan$/.test(plain)) return NaN;
  if (/^[+-]?inf(inity)?$/.test(plain)) return plain[0] === "-" ? -Infinity : Infinity;
  const decimal = "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:e[+-]?[0-9]+)?";
  const term = `2\\^([+-]?[0-9]+)|(${decimal})(?:/(${decimal}))?`;
  const whole = new RegExp(`^([+-]?)(?:${term})(?:([+-])(?:${term}))?$`).exec(plain);
  if (whole === null) return null;
  const [, sign, ...rest] = whole;
  const size = ([power, number, below]) => (power !== undefined ? 2 ** Number(power)
    : below === undefined ? Number(number) : Number(number) / Number(below));
  const first = (sign === "-" ? -1 : 1) * size(rest.slice(0, 3));
  const sum = rest[3] === undefined ? first : first + (rest[3] === "-" ? -1 : 1) * size(rest.slice(4));
  return Number.isNaN(sum) ? null : sum;
}

// "0x3dcd" and "0b0011" are bits of the format itself; what is too long loses its first bits.
export function bitsGiven(text, fmt) {
  const plain = text.trim().toLowerCase();
  return /^0x[0-9a-f]{1,12}$|^0b[01]{1,48}$/.test(plain) ? Number(plain) % 2 ** fmt.bits : null;
}

export const isNumber = (text, fmt) => bitsGiven(text, fmt) !== null || parsed(text) !== null;
export const codeOf = (text, fmt) => bitsGiven(text, fmt) ?? encode(parsed(text), fmt);

export function numberOf(text, fmt) {
  const bits = bitsGiven(text, fmt);
  return bits === null ? parsed(text) : decode(bits, fmt);
}

// What became of a number: a word, which the page explains.
export function fateOf(number, fmt) {
  const value = decode(encode(number, fmt), fmt);
  if (Number.isNaN(number)) return "nan";
  const largest = decode(fmt.largest_code, fmt);
  const lastUnit = 2 ** (leadingPower(largest) - fmt.mantissa_bits);
  if (Number.isFinite(value) && Math.abs(number) > largest + lastUnit / 2) return "saturated";
  if (!Number.isFinite(value)) return Number.isFinite(number) ? "overflow" : "infinity";
  if (value === 0) return number === 0 ? "exact" : "underflow";
  if (Math.abs(value) < 2 ** (1 - fmt.bias)) return "subnormal";
  return value === number ? "exact" : "rounded";
}

// How many bits of a finite number count: all, or fewer for a subnormal one.
export function significantBits(code, fmt) {
  const [, exponent, mantissa] = fieldsOf(code, fmt);
  return exponent > 0 ? fmt.mantissa_bits + 1 : mantissa > 0 ? leadingPower(mantissa) + 1 : 0;
}

// --- the page

const EXAMPLES = ["0.1", "1/3", "1 + 2^-8", "500", "70000", "0.00003", "1e-8", "-0", "inf", "nan"];
const LOW_POWER = -152; // of the picture of ranges
const HIGH_POWER = 132;
const FRACTIONS = ["½", "¼", "⅛"];

const raised = (power) => String(power).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
const power2 = (power) => `2${raised(power)}`;

// A number in at most so many digits, without trailing zeros.
function brief(value, digits = 7) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "infinity" : "-infinity";
  if (Object.is(value, -0)) return "-0";
  const short = Number(value.toPrecision(digits));
  const size = Math.abs(short);
  if (size > 0 && size < 1e-4) return short.toExponential();
  return size >= 1e3 && size < 1e9 ? short.toLocaleString("en-US", { maximumFractionDigits: 4 }) : String(short);
}

// All digits of a number of the format, if they are not too many.
function whole(code, fmt) {
  const exact = exactDecimal(code, fmt);
  const value = decode(code, fmt);
  if (!Number.isFinite(value) || exact.length > 28) return brief(value, 9);
  return Math.abs(value) >= 1e4 ? brief(value, 12) : exact;
}

const hex = (code, fmt) => `0x${code.toString(16).padStart(Math.ceil(fmt.bits / 4), "0")}`;
const spelled = (value, code, fmt) => (Number.isNaN(value) ? hex(code, fmt) : Object.is(value, -0) ? "-0"
  : value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value));

function grouped(code, fmt) {
  const bits = code.toString(2).padStart(fmt.bits, "0");
  return `${bits[0]} ${bits.slice(1, 1 + fmt.exponent_bits)} ${bits.slice(1 + fmt.exponent_bits)}`;
}

function render({ model, el }) {
  const w = frame({ model, el, title: "A number, bit by bit" });
  w.root.prepend(h("style", {}, `
    .lc .bp-row { display: flex; flex-wrap: wrap; gap: 0.3rem; align-items: center; margin: 0.4rem 0; }
    .lc .bp-bits { display: flex; flex-wrap: wrap; gap: 0.3rem 0.6rem; margin: 0.5rem 0; }
    .lc .bp-bits fieldset { border: 0; border-top: 3px solid var(--bp); padding: 0; margin: 0; min-width: 0; }
    .lc .bp-bits legend { font-size: 0.8rem; padding: 0 0.4rem 0 0; color: var(--lc-text); }
    .lc .bp-bits fieldset > div { display: flex; flex-wrap: wrap; gap: 2px; }
    .lc .bp-bits button { width: 2.05em; min-height: 40px; padding: 0; line-height: 1.15; }
    .lc .bp-bits button small { display: block; font-size: 0.6rem; }
    .lc .bp-bits button[aria-pressed="true"] { background: var(--bp); font-weight: 700; }
    .lc .bp-sum { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
    .lc .lc-tables td, .lc .lc-tables tbody th { white-space: nowrap; }
    .lc .bp-number { grid-column: span 2; width: 100%; }`));
  const formats = model.get("formats");
  const names = model.get("limits").format.options; // in their order
  const format = () => formats[model.get("format")];
  const text = () => model.get("number");
  const code = () => codeOf(text(), format());

  const fieldId = uniqueId();
  const field = h("input", { type: "text", id: fieldId, class: "bp-number", spellcheck: "false", autocomplete: "off" });
  function setNumber(asked) {
    if (!isNumber(asked, format())) {
      model.set("note", `“${asked}” is not a number; ${text()} is kept. Possible are 0.1, -1e-8, 1/3, 2^-24, `
        + "1 + 2^-8, inf, nan, and bits such as 0x3dcd.");
    } else {
      const { bits } = format();
      const long = bitsGiven(asked, format()) !== null && Number(asked) >= 2 ** bits;
      model.set("note", long ? `${asked.trim()} is longer than ${bits} bits: its last ${bits} are used.` : "");
      w.put("number", asked.trim());
    }
  }
  field.addEventListener("change", () => { setNumber(field.value); field.value = text(); });
  w.controls.append(h("div", { class: "lc-control" }, h("label", { for: fieldId }, "number"), field));
  let before = model.get("format");
  w.choice("format", "format", {
    options: names,
    onset: () => { // bits of one format mean nothing in another: go on with their value
      model.set("note", "");
      const value = numberOf(text(), formats[before]);
      if (bitsGiven(text(), formats[before]) !== null) w.put("number", Number.isNaN(value) ? "nan" : spelled(value));
      before = model.get("format");
    },
  });
  const examples = h("div", { class: "bp-row", role: "group", "aria-label": "numbers to try" }, "Try");
  EXAMPLES.forEach((example) => w.button(example, () => setNumber(example), { into: examples }));
  const bitRow = h("div", { class: "bp-bits" });
  const moves = h("div", { class: "bp-row" });
  const put = (to) => { model.set("note", ""); w.put("number", spelled(decode(to, format()), to, format())); };
  const goTo = (side) => { const to = neighbours(code(), format())[side]; if (to !== null) put(to); };
  const down = w.button("Next number below", () => goTo(0), { into: moves });
  const up = w.button("Next number above", () => goTo(1), { into: moves });
  const sum = h("p", { class: "bp-sum" });
  [examples, bitRow, sum, moves].forEach((part) => w.root.insertBefore(part, w.stages));

  // One button for each bit.  They stay when bits flip, so that the focus stays, too.
  let buttons = [];
  let built = "";
  function build() {
    const fmt = format();
    built = model.get("format");
    buttons = [];
    const bit = (place, worth, spoken) => {
      const made = h("button", { type: "button", "data-spoken": spoken, onclick: () => {
        const on = Math.floor(code() / 2 ** place) % 2;
        put(code() + (on ? -1 : 1) * 2 ** place);
      } }, h("span", {}, "0"), h("small", { "aria-hidden": "true" }, worth));
      buttons.push([place, made]);
      return made;
    };
    const part = (name, colour, made) => h("fieldset", { style: `--bp: var(--lc-${colour})`, "data-part": name },
      h("legend", {}, name), h("div", {}, made));
    const { exponent_bits: e, mantissa_bits: m } = fmt;
    bitRow.replaceChildren(
      part("sign", 5, [bit(fmt.bits - 1, "−", "sign bit")]),
      part("exponent", 1, Array.from({ length: e }, (_, i) =>
        bit(fmt.bits - 2 - i, 2 ** (e - 1 - i), `exponent bit worth ${2 ** (e - 1 - i)}`))),
      part("mantissa", 3, Array.from({ length: m }, (_, i) =>
        bit(m - 1 - i, FRACTIONS[i] || power2(-1 - i), `mantissa bit worth 2^-${i + 1}`))));
  }

  function fillBits() {
    if (built !== model.get("format")) build();
    const fmt = format();
    const now = code();
    for (const [place, made] of buttons) {
      const on = Math.floor(now / 2 ** place) % 2 === 1;
      made.firstChild.textContent = on ? "1" : "0";
      made.setAttribute("aria-pressed", on);
      made.setAttribute("aria-label", `${made.dataset.spoken}: ${on ? 1 : 0}`);
    }
    const [, exponent, mantissa] = fieldsOf(now, fmt);
    const legend = (name, said) => { bitRow.querySelector(`[data-part="${name}"] legend`).textContent = said; };
    legend("exponent", `exponent ${exponent}`);
    const apart = (whole) => whole.toLocaleString("en-US");
    legend("mantissa", `mantissa ${apart(mantissa)} of ${apart(2 ** fmt.mantissa_bits)}`);
  }

  // The bits, written as a product.
  function product() {
    const fmt = format();
    const now = code();
    const [negative, exponent, mantissa] = fieldsOf(now, fmt);
    const value = decode(now, fmt);
    if (Number.isNaN(value)) return `${hex(now, fmt)}: these bits mean “not a number” (NaN).`;
    const sign = negative ? "−" : "+";
    if (!Number.isFinite(value)) return `${hex(now, fmt)}: highest exponent, mantissa 0: ${sign}infinity.`;
    const bits = mantissa.toString(2).padStart(fmt.mantissa_bits, "0");
    const lead = exponent > 0 ? 1 : 0;
    const factor = brief(lead + mantissa / 2 ** fmt.mantissa_bits, 9);
    const why = exponent > 0 ? `${exponent} − ${fmt.bias}` : `1 − ${fmt.bias}, as exponent 0 has no leading 1`;
    return `${hex(now, fmt)} = ${sign} ${lead}.${bits} (binary) × 2^(${why}) = ${sign} ${factor} × `
      + `${power2(Math.max(1, exponent) - fmt.bias)} = ${whole(now, fmt)}`;
  }

  const drawLine = w.stage((svg, width) => {
    const fmt = format();
    const now = code();
    const number = numberOf(text(), fmt);
    const value = decode(now, fmt);
    if (Number.isNaN(value)) {
      svg.append(label(6, 40, "NaN has no place on the line of numbers."));
      return "NaN has no place on it";
    }
    const half = 2 ** (fmt.bits - 1);
    const focus = Number.isFinite(value) ? now : fmt.largest_code + (value < 0 ? half : 0);
    const finite = (one) => one !== null && Number.isFinite(decode(one, fmt));
    const codes = [focus];
    for (let i = 0; i < 2; i++) {
      const [lower] = neighbours(codes[0], fmt);
      const higher = neighbours(codes.at(-1), fmt)[1];
      if (finite(lower)) codes.unshift(lower);
      if (finite(higher)) codes.push(higher);
    }
    const places = codes.map((one) => decode(one, fmt));
    const gap = (places.at(-1) - places[0]) / (places.length - 1);
    const centre = decode(focus, fmt);
    const low = Math.min(places[0], centre - 2 * gap) - 0.4 * gap;
    const high = Math.max(places.at(-1), centre + 2 * gap) + 0.4 * gap;
    const x = scale([low, high], [4, width - 4]);
    const y = 62;
    const [atFocus, largest] = [places.indexOf(centre), decode(fmt.largest_code, fmt)];
    const halfway = (a, b, beyond) => (b === undefined ? beyond : (a + b) / 2);
    let [from, to] = [halfway(centre, places[atFocus - 1], low), halfway(centre, places[atFocus + 1], high)];
    if (Math.abs(centre) === largest && fmt.overflow === "infinity") {
      const edge = centre + (Math.sign(centre) * gap) / 2;
      const isInfinite = !Number.isFinite(value);
      if (centre > 0) [from, to] = isInfinite ? [edge, high] : [from, edge];
      else [from, to] = isInfinite ? [low, edge] : [edge, to];
    }
    svg.append(
      s("rect", { x: x(from), y: y - 9, width: Math.max(0, x(to) - x(from)), height: 18, fill: "currentColor",
        "fill-opacity": 0.3, class: "lc-3" }),
      line([[4, y], [width - 4, y]], { stroke: "var(--lc-line)" }));
    const digits = fmt.mantissa_bits > 10 ? 9 : fmt.mantissa_bits > 7 ? 7 : 6;
    places.forEach((place, i) => {
      const isValue = place === value;
      svg.append(line([[x(place), y - 8], [x(place), y + 8]], { stroke: "var(--lc-text)",
        "stroke-width": isValue ? 3 : 1.3 }));
      if (Math.abs(i - atFocus) > (width < 560 ? 1 : 2)) return;
      const wide = 7.7 * brief(place, digits).length;
      svg.append(label(clamp(x(place), wide / 2 + 2, width - wide / 2 - 2), y + (i % 2 === atFocus % 2 ? 24 : 40),
        brief(place, digits), { "text-anchor": "middle", style: isValue ? "font-weight: 700" : null }));
    });
    if (Number.isFinite(value)) svg.append(s("circle", { cx: x(value), cy: y, r: 6, fill: "currentColor",
      class: "lc-3" }));
    const px = clamp(x(number), 8, width - 8);
    const out = !(number >= low && number <= high);
    const arrow = out ? (number > centre ? " →" : " ←") : "";
    const name = `given: ${text().length > 22 ? brief(number, 12) : text()}${arrow}`;
    const wide = 7.6 * name.length;
    svg.append(s("polygon", { points: `${px},${y - 10} ${px - 6},${y - 22} ${px + 6},${y - 22}`, fill: "currentColor",
      class: "lc-2" }),
      label(clamp(px, wide / 2 + 2, width - wide / 2 - 2), y - 28, name, { "text-anchor": "middle" }));
    const becomes = Number.isFinite(value) ? brief(value, width < 400 ? 7 : digits)
      : value > 0 ? "infinity" : "-infinity";
    svg.append(label(4, 12, `Whatever lies in the band becomes ${becomes}.`));
    return `${name}; numbers of the format near it ${places.map((place) => brief(place, digits)).join(", ")}; `
      + `the band from ${brief(from, 9)} to ${brief(to, 9)} becomes ${becomes}`;
  }, { height: 110, label: "the numbers of the format on a line" });

  const status = w.root.querySelector(".lc-status"); // beside what it is about
  w.stages.append(status, h("p", {}, "How far the formats reach, by size. Solid: all bits count. Pale: "
    + "subnormal, fewer and fewer do."));

  const drawRanges = w.stage((svg, width, tall) => {
    const size = Math.abs(numberOf(text(), format()));
    const box = [74, 6, width - 8, tall - 24];
    const x = scale([LOW_POWER, HIGH_POWER], [box[0], box[2]]);
    const row = (box[3] - box[1]) / names.length;
    names.forEach((name, i) => {
      const fmt = formats[name];
      const [tiny, normal] = [1 - fmt.bias - fmt.mantissa_bits, 1 - fmt.bias];
      const most = Math.log2(decode(fmt.largest_code, fmt));
      const top = box[1] + i * row + 3;
      const chosen = name === model.get("format");
      svg.append(
        label(4, top + row / 2 + 1, name, { style: chosen ? "font-weight: 700" : null }),
        s("rect", { x: x(tiny), y: top, width: x(normal) - x(tiny), height: row - 6, fill: "currentColor",
          "fill-opacity": 0.3,
          class: "lc-1", stroke: "currentColor", "stroke-dasharray": "3 2" }),
        s("rect", { x: x(normal), y: top, width: x(most) - x(normal), height: row - 6, fill: "currentColor",
          class: "lc-1" }));
      if (chosen) svg.append(s("rect", { x: x(tiny) - 3, y: top - 2, width: x(most) - x(tiny) + 6, height: row - 2,
        fill: "none",
        stroke: "var(--lc-text)", "stroke-width": 2 }));
    });
    for (const ten of [-45, -30, -15, 0, 15, 30]) {
      svg.append(label(x(ten * Math.log2(10)), tall - 8, ten === 0 ? "1" : `10${raised(ten)}`,
        { "text-anchor": "middle" }));
    }
    if (Number.isFinite(size) && size > 0) {
      const at = clamp(x(Math.log2(size)), box[0], box[2]);
      svg.append(line([[at, box[1]], [at, box[3]]], { stroke: "currentColor", class: "lc-2", "stroke-width": 2.5,
        "stroke-dasharray": "6 3" }),
        s("polygon", { points: `${at},${box[3]} ${at - 5},${box[3] + 7} ${at + 5},${box[3] + 7}`, fill: "currentColor",
          class: "lc-2" }));
    }
    return names.map((name) => `${name} to ${brief(decode(formats[name].largest_code, formats[name]), 5)}, from `
      + `${brief(decode(1, formats[name]), 3)}`).join("; ");
  }, { height: 150, label: "the range of each format" });

  const board = w.table("The same number in every format", { open: true });
  const facts = w.table("The formats");

  const percent = (share) => `${brief(100 * share, 3)} %`;
  const FATES = { exact: "exact", rounded: "rounded", subnormal: "subnormal", underflow: "underflow to 0",
    overflow: "overflow to infinity", saturated: "too large: the largest", infinity: "infinity", nan: "NaN" };

  function sentence() {
    const fmt = format();
    const name = model.get("format");
    const now = code();
    const number = numberOf(text(), fmt);
    const value = decode(now, fmt);
    const given = bitsGiven(text(), fmt) === null ? text() : brief(number, 9);
    const largest = brief(decode(fmt.largest_code, fmt), 6);
    const [below, above] = neighbours(now, fmt).map((one) => (one === null ? "nothing" : brief(decode(one, fmt), 9)));
    const beside = `Next to it: ${below} below and ${above} above.`;
    const off = Math.abs(value - number) / Math.abs(number);
    const side = Math.abs(value) > Math.abs(number) ? "large" : "small";
    const error = value === number ? "exactly" : `${percent(off)} too ${side}`;
    const most = percent(2 ** (-1 - fmt.mantissa_bits));
    const said = {
      exact: () => `${given} is a number of ${name}: nothing is lost. ${beside}`,
      rounded: () => `${given} becomes ${whole(now, fmt)} in ${name}: ${error} (at most ${most}, `
        + `half of the distance). ${beside}`,
      subnormal: () => `${given} lies below ${brief(2 ** (1 - fmt.bias), 4)}, `
        + `the smallest normal number of ${name}: subnormal, with `
        + `${significantBits(now, fmt)} of ${fmt.mantissa_bits + 1} significant bits left. `
        + `It becomes ${brief(value, 9)}`
        + `${value === number ? ", exactly" : `, ${error}`}. ${beside}`,
      underflow: () => `Underflow: ${given} is at most half of ${brief(decode(1, fmt), 3)}, `
        + `the smallest number of ${name}, and becomes 0. A gradient of this size is lost.`,
      overflow: () => `Overflow: ${given} is beyond ${largest}, the largest number of ${name}, and becomes infinite.`,
      saturated: () => `${given} is beyond ${largest}, the largest number of ${name}. The format has no infinity: `
        + `it becomes ${brief(value, 6)}.`,
      infinity: () => `Infinity has bits of its own in ${name}: the highest exponent, and mantissa 0.`,
      nan: () => `Not a number: what 0/0 gives. In ${name} ${fmt.has_infinity
        ? "every mantissa but 0 under the highest exponent means this"
        : "only the code with all ones means this, besides its negative"}.`,
    };
    return said[fateOf(number, fmt)]();
  }

  function redraw() {
    fillBits();
    const fmt = format();
    if (document.activeElement !== field) field.value = text();
    const [below, above] = neighbours(code(), fmt);
    down.disabled = below === null;
    up.disabled = above === null;
    sum.textContent = product();
    drawLine();
    drawRanges();
    const number = numberOf(text(), fmt);
    board({
      columns: ["format", "becomes", "relative error", "that is", "bits: sign, exponent, mantissa"],
      rows: names.map((name) => {
        const own = name === model.get("format") ? code() : encode(number, formats[name]);
        const value = decode(own, formats[name]);
        const off = Math.abs(value - number) / Math.abs(number);
        return [name, brief(value, 9), value === number ? "0" : Number.isFinite(off) ? percent(off) : "",
          FATES[fateOf(number, formats[name])], grouped(own, formats[name])];
      }),
    });
    facts({
      columns: ["format", "exponent bits", "mantissa bits", "bias", "largest", "smallest normal", "smallest",
        "from 1 to the next"],
      rows: names.map((name) => {
        const one = formats[name];
        return [name, String(one.exponent_bits), String(one.mantissa_bits), String(one.bias),
          brief(decode(one.largest_code, one), 6),
          brief(2 ** (1 - one.bias), 4), brief(decode(1, one), 4), brief(2 ** -one.mantissa_bits, 4)];
      }),
    });
    w.say(sentence());
  }
  w.on(["number", "format"], redraw);
  redraw();
  return w.destroy;
}

export default { render };
