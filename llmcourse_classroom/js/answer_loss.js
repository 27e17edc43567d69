import { frame, h, label, percent, s, within } from "./kit.js";

// --- arithmetic, compared with plain Python by the tests

// Which tokens count: place by place, the first never, since nothing comes before it.
export const counted = ({ roles }, learn) =>
  roles.map((role, t) => t > 0 && (learn === "all tokens" || role === "assistant"));

// The mean loss of the tokens that count.
export function meanLoss(chat, model, learn) {
  const kept = chat.losses[model].filter((_, i) => counted(chat, learn)[i + 1]);
  return kept.reduce((a, b) => a + b, 0) / kept.length;
}

// The chance that the model gave a token.
export const chance = (loss) => Math.exp(-loss);

// --- the page

const TALL = 76; // pixels of a line of tokens: bars above, text below
const BAR = 46;
const HIGH = 8; // nats of the highest bar that is drawn whole
const shown = (token) => token.replaceAll("\n", "↵").replaceAll(" ", "␣");
const nats = (x) => x.toFixed(2);
const STYLE = `
.lc svg .lc-token { font: 12px ui-monospace, monospace; }
.lc svg .lc-off { fill: var(--lc-muted); }`;

// Where each token stands, in lines of the picture's width.
function layOut(tokens, width) {
  const most = Math.max(4, Math.floor((width - 12) / 7.4) - 2);
  let [x, row] = [4, 0];
  const places = tokens.map((token, t) => {
    const signs = [...shown(token)];
    const text = signs.length > most ? `${signs.slice(0, most - 1).join("")}…` : signs.join("");
    const wide = Math.max(22, 7.4 * [...text].length + 8);
    if (x > 4 && x + wide > width - 2) { x = 4; row++; }
    const place = { t, text, wide, x, top: row * TALL };
    x += wide;
    return place;
  });
  return { places, height: (row + 1) * TALL + 4 };
}

function render({ model, el }) {
  const w = frame({ model, el, title: "What each token of a conversation costs",
    primary: ["token", "model", "learn"] });
  w.root.append(h("style", {}, STYLE));
  const chats = model.get("conversations");
  const chat = () => chats.find(({ name }) => name === model.get("conversation"));
  const last = () => chat().tokens.length - 1;
  const loss = (t) => chat().losses[model.get("model")][t - 1];

  w.choice("conversation", "conversation", { options: chats.map(({ name }) => name) });
  const place = w.number("token", "token");
  w.choice("model", "model", { options: model.get("models") });
  w.choice("learn", "what counts", { options: ["assistant", "all tokens"], labels: ["assistant", "all tokens"] });

  let places = []; // of the last drawing: a press on a token chooses it
  const draw = w.stage((svg, width) => {
    const marks = counted(chat(), model.get("learn"));
    places = layOut(chat().tokens, width).places;
    for (const { t, text, wide, x, top } of places) {
      const base = top + BAR + 6;
      const tall = t ? Math.max(1, BAR * Math.min(HIGH, loss(t)) / HIGH) : 0;
      svg.append(
        s("line", { x1: x, x2: x + wide, y1: base, y2: base, stroke: "var(--lc-line)" }),
        t ? s("rect", { x: x + 3, y: base - tall, width: wide - 6, height: tall, class: "lc-3",
          fill: marks[t] ? "currentColor" : "none", stroke: "currentColor", "stroke-dasharray": marks[t] ? null : "3 3" }) : null,
        label(x + wide / 2, base + 15, text, { "text-anchor": "middle", class: marks[t] ? "lc-token" : "lc-token lc-off" }));
      if (t === model.get("token")) {
        svg.append(s("rect", { x: x + 0.5, y: base + 2, width: wide - 1, height: 18, rx: 4, fill: "none",
          stroke: "var(--lc-text)", "stroke-width": 2 }));
      }
    }
    return `${whole()} ${one()}`;
  }, { height: (width) => layOut(chat().tokens, width).height, label: "tokens and their losses" });
  const picture = draw.picture;
  w.stages.append(h("p", {}, `Bars: the loss of each token, in nats, up to ${HIGH}. Filled: it counts. Dashed: it is read and does ` +
    "not count. The first token has nothing before it. ␣ space."));
  const numbers = w.table("Every token in words");

  function whole() {
    const many = counted(chat(), model.get("learn")).filter(Boolean).length;
    return `Model “${model.get("model")}”: ${many} of ${last()} tokens count, and their mean loss is ` +
      `${nats(meanLoss(chat(), model.get("model"), model.get("learn")))} nats.`;
  }

  function one() {
    const t = model.get("token");
    return `Token ${t}, “${shown(chat().tokens[t])}” (${chat().roles[t]}), costs ${nats(loss(t))} nats: the model gave it ` +
      `${percent(chance(loss(t)))}.`;
  }

  function redraw() {
    draw();
    const marks = counted(chat(), model.get("learn"));
    numbers({
      columns: ["place", "token", "role", "counts", "loss, nats"],
      rows: chat().tokens.map((token, t) => [String(t), shown(token), chat().roles[t], marks[t] ? "yes" : "no", t ? nats(loss(t)) : "none"]),
    });
    w.say(`${whole()} ${one()}`);
  }

  // How many tokens there are depends on the conversation.
  function settle() {
    const { range, field } = place;
    model.get("limits").token.high = range.max = field.max = last();
    range.value = model.get("token");
    if (model.get("token") > last()) w.putNumber("token", "token", model.get("token"));
    else redraw();
  }

  picture.addEventListener("click", (event) => {
    const [x, y] = within(picture, event);
    const hit = places.find((p) => x >= p.x && x < p.x + p.wide && y >= p.top && y < p.top + TALL);
    if (hit?.t) w.put("token", hit.t);
  });
  w.on(["model", "learn", "token"], redraw);
  w.on(["conversation"], settle);
  settle();
  return w.destroy;
}

export default { render };
