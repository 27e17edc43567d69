// One of several ranks, each in a thread of its own: the same model, another part of every batch.
// The page posts { start }, with a port to the next rank and one from the rank before, and then
// { step } once for every step; what comes back is { ready }, { report } or { failed }.

import { backward } from "./backward.js";
import { forward, loss } from "./forward.js";
import { fingerprint } from "./hash.js";
import { has } from "./matrix.js";
import { numWeights } from "./model.js";
import { Run } from "./run.js";

// Sum arrays of all ranks, in place, by messages around the ring, as all_reduce_ring does, in its order of
// additions: in n - 1 rounds every rank passes on a chunk, and the next adds its own; then rank r has the sum of
// chunk r, and in n - 1 more rounds these sums go round.  All ranks end with the same bits.
export async function allReduce(x, { rank, ranks, send, receive }) {
  const [size, longer] = [Math.floor(x.length / ranks), x.length % ranks]; // the first chunks are one longer
  const cut = (i) => i * size + Math.min(i, longer);
  const chunk = (i) => {
    const place = (i + 3 * ranks) % ranks;
    return x.subarray(cut(place), cut(place + 1));
  };
  for (let round = 0; round < 2 * (ranks - 1); round++) {
    send(chunk(rank - round - 1).slice());
    const [got, mine] = [await receive(), chunk(rank - round - 2)];
    if (round >= ranks - 1) mine.set(got);
    else for (let i = 0; i < mine.length; i++) mine[i] += got[i];
  }
}

// Messages that came through a port, in their order, each with the time at which it came.
export class Inbox {
  constructor(port) {
    [this.held, this.waiting] = [[], null];
    port.onmessage = ({ data }) => {
      this.held.push([data, moment()]);
      this.waiting?.();
    };
  }

  async take() {
    if (!this.held.length) await new Promise((resolve) => { this.waiting = resolve; });
    this.waiting = null;
    return this.held.shift();
  }
}

// Milliseconds on a clock that all threads share.
export const moment = () => performance.timeOrigin + performance.now();

export class Rank {
  constructor({ config, rank, ranks, next, previous, ...given }) {
    const arithmetic = has("SIMD") ? "SIMD" : "JavaScript"; // the same bits on every rank
    this.whole = config; // of the batch, every rank has some rows
    this.rows = config.batch_size / ranks;
    this.run = new Run({ ...given, arithmetic, config: { ...config, batch_size: this.rows } });
    Object.assign(this, { rank, ranks, next, arithmetic });
    this.inbox = previous && new Inbox(previous);
  }

  // This rank's rows of the batch, of which all ranks draw the same.
  load() {
    const { ids, targets } = this.run.stories.batch(this.whole);
    const size = this.rows * this.whole.context_length;
    const own = (all) => all.subarray(this.rank * size, (this.rank + 1) * size);
    return { ids: own(ids), targets: own(targets) };
  }

  // Average the gradients of all ranks; return when each message left and when its like arrived.
  async sync() {
    const { rank, ranks, next, inbox, run: { model: { flat: { gradients } } } } = this;
    const [sent, received] = [[], []];
    let bytes = 0;
    await allReduce(gradients, {
      rank, ranks,
      send(numbers) {
        sent.push(moment());
        bytes += numbers.byteLength;
        next.postMessage(numbers, [numbers.buffer]); // handed over, not copied
      },
      async receive() {
        const [numbers, at] = await inbox.take();
        received.push(at);
        return numbers;
      },
    });
    for (let i = 0; i < gradients.length; i++) gradients[i] /= ranks;
    return { sent, received, bytes };
  }

  // One training step; without phase 5 where the page asks for it.
  async step({ sync }) {
    const { run, run: { model } } = this;
    const times = [moment()];
    const mark = (result) => { times.push(moment()); return result; };
    const { ids, targets } = mark(this.load());
    mark(forward(model, ids));
    const nats = mark(loss(model, targets));
    mark(backward(model, ids));
    const messages = mark(sync && this.ranks > 1 ? await this.sync() : { sent: [], received: [], bytes: 0 });
    const norm = mark(run.update(run.rate()));
    const hash = fingerprint(model.flat.weights);
    return { rank: this.rank, step: run.stepsDone, loss: nats, norm, hash, times, ...messages };
  }
}

function serveRank(port) {
  let rank = null;
  let work = Promise.resolve(); // a message waits until the one before is done
  const answers = {
    start(given) {
      rank = new Rank(given);
      port.postMessage({ ready: { weights: numWeights(given.config), arithmetic: rank.arithmetic } });
    },
    async step(how) { port.postMessage({ report: await rank.step(how) }); },
  };
  async function answer(data) {
    for (const [what, given] of Object.entries(data)) await answers[what](given);
  }
  port.onmessage = ({ data }) => {
    work = work.then(() => answer(data)).catch((error) => port.postMessage({ failed: String(error) }));
  };
}

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) serveRank(self);
