// A training run: step does the seven phases of llmcourse.train.phases, in their order, and measures
// how long each takes.

import { adamw, clip, warmupCosine } from "./adamw.js";
import { backward } from "./backward.js";
import { forward, loss } from "./forward.js";
import { initialise, makeModel } from "./model.js";
import { Random } from "./random.js";
import { Sampler, softmax } from "./sample.js";
import { Stories } from "./stories.js";
import { Tokenizer } from "./tokenizer.js";

const MOST_CHECKPOINTS = 16;
const VALIDATE_EVERY = 10; // steps
const ADAMW = { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1 };

// Calls a phase, and notes the milliseconds that it took.
const clock = (ms) => (phase) => {
  const before = performance.now();
  const result = phase();
  ms.push(performance.now() - before);
  return result;
};

export class Run {
  // config: the shape of the model, batch_size, steps, learning_rate, warmup_steps, final_share,
  // clip_norm; batches, where the text has so many and is read again and again; held_out, of how many other
  // batches the loss is measured, every tenth step.  text: the grammar of the stories, the merges of their
  // tokens, and the token that ends a story.
  constructor({ config, text, seed, arithmetic }) {
    this.config = config;
    this.model = makeModel(config, arithmetic);
    initialise(this.model.w, config, seed);
    this.tokenizer = new Tokenizer(text);
    this.stories = new Stories(text.grammar, this.tokenizer, seed);
    const several = (count = 0) => Array.from({ length: count }, () => this.stories.batch(config));
    this.heldOut = several(config.held_out);
    this.text = several(config.batches);
    this.sampler = new Sampler(this.model);
    this.peak = config.learning_rate; // the reader may change it while the run lasts
    this.checkpoints = [];
    this.every = 10; // steps between checkpoints
    this.stopped = null; // a step of which four phases are done
    this.bad = 0; // so many of the next batches are tokens drawn at random
    this.checkpoint();
  }

  get stepsDone() {
    return this.model.stepsDone;
  }

  get done() {
    return this.stepsDone >= this.config.steps;
  }

  // Do one training step, or the rest of one that stopped; return what it has to say.
  step() {
    const { loss: nats, bad, ms } = this.stopped ?? this.stop();
    this.stopped = null;
    const timed = clock(ms);
    timed(() => {}); // sync: a single process has nobody to agree with
    const rate = this.rate();
    const norm = timed(() => this.update(rate));
    timed(() => { if (this.stepsDone % this.every === 0) this.checkpoint(); });
    return { step: this.stepsDone, loss: nats, rate, norm, bad, ms, heldOut: this.validate() };
  }

  // The loss on the batches that are held out; null where there are none, or it is not the time.
  validate() {
    if (!this.heldOut.length || this.stepsDone % VALIDATE_EVERY) return null;
    const losses = this.heldOut.map(({ ids, targets }) => {
      forward(this.model, ids);
      return loss(this.model, targets);
    });
    return losses.reduce((sum, nats) => sum + nats, 0) / losses.length;
  }

  load() {
    if (this.text.length) return this.text[this.stepsDone % this.text.length];
    const batch = this.stories.batch(this.config);
    if (this.bad > 0) {
      this.bad--;
      const chance = new Random(1000 + this.stepsDone);
      for (const ids of Object.values(batch)) ids.forEach((_, i) => { ids[i] = chance.below(this.config.vocab_size); });
    }
    return batch;
  }

  // Do the first four phases of a step and stop: the gradients are there, and no weight has changed.
  stop() {
    const { model } = this;
    const [ms, stories] = [[], this.stories.state()];
    const timed = clock(ms);
    const bad = this.bad > 0;
    const { ids, targets } = timed(() => this.load());
    timed(() => forward(model, ids));
    const nats = timed(() => loss(model, targets));
    timed(() => backward(model, ids));
    this.stopped = { ids, targets, stories, loss: nats, bad, ms };
    return this.stopped;
  }

  update(rate) {
    const norm = clip(this.model.flat.gradients, this.config.clip_norm);
    adamw(this.model, rate, ADAMW);
    return norm;
  }

  // The learning rate of the next step.
  rate() {
    const { steps, warmup_steps, final_share } = this.config;
    const final = final_share * this.peak;
    return warmupCosine(this.stepsDone, { peak: this.peak, num_steps: steps, warmup_steps, final });
  }

  // --- what is saved: all that the next step depends on

  state() {
    const { weights, means, squares } = this.model.flat;
    const { stepsDone, momentsFrom } = this.model;
    const stories = this.stopped?.stories ?? this.stories.state(); // a step that stopped is not done
    return { stepsDone, momentsFrom, peak: this.peak, stories,
      weights: weights.slice(), means: means.slice(), squares: squares.slice() };
  }

  restore({ stepsDone, momentsFrom, peak, stories, ...arrays }) {
    for (const [name, numbers] of Object.entries(arrays)) this.model.flat[name].set(numbers);
    Object.assign(this.model, { stepsDone, momentsFrom });
    this.peak = peak;
    this.stories.restore(stories);
    this.stopped = null;
  }

  // Keep a copy of the run as it stands; of too many, every second one.
  checkpoint() {
    if (this.checkpoints.length === MOST_CHECKPOINTS) {
      this.checkpoints = this.checkpoints.filter((_, i) => i % 2 === 0);
      this.every *= 2;
      if (this.stepsDone % this.every) return;
    }
    this.checkpoints.push(this.state());
  }

  // Go back to the last checkpoint at or before a step; the learning rate stays as it is now.
  rewind(step) {
    const { peak } = this;
    this.bad = 0;
    this.checkpoints = this.checkpoints.filter((saved, i) => i === 0 || saved.stepsDone <= step);
    this.restore(this.checkpoints.at(-1));
    this.peak = peak;
  }

  // --- looking on

  // A beginning as tokens, after the end of another story; of a long one the last part, which leaves
  // half of what the model sees at once to go on.
  beginning(text) {
    return [this.tokenizer.idOf.get(this.tokenizer.end), ...this.tokenizer.encode(text)
      .slice(-this.config.context_length / 2)];
  }

  // What the model writes after a beginning.  The same draws each time: what changes comes from the weights.
  write({ prompt = "", temperature = 0.8, draws = 7 } = {}) {
    const end = this.tokenizer.tokens.length - 1;
    const ids = this.sampler.write(this.beginning(prompt), { end, temperature, chance: new Random(draws) });
    return this.tokenizer.decode(ids.filter((id) => id < end)); // the vocabulary may have more rows
  }

  // The likeliest tokens after a beginning, with their probabilities.
  likeliest({ prompt, temperature }, count) {
    const logits = this.sampler.after(this.beginning(prompt));
    return softmax([...logits].map((z) => z / temperature))
      .map((p, id) => [this.tokenizer.tokens[id] ?? `no token ${id}`, p])
      .sort(([, a], [, b]) => b - a).slice(0, count);
  }

  // Some rows of the embedding, one after the other.
  rows(ids) {
    const D = this.config.width;
    const found = new Float32Array(ids.length * D);
    ids.forEach((id, i) => found.set(this.model.w.embedding.numbers.subarray(id * D, (id + 1) * D), i * D));
    return found;
  }

  // The gradients of a step that stopped: rows, columns and length of each, by its name.
  lengths() {
    return Object.fromEntries(Object.entries(this.model.dw).map(([name, { numbers, rows, columns }]) =>
      [name, { rows, columns, length: Math.sqrt(numbers.reduce((sum, g) => sum + g * g, 0)) }]));
  }

  // The loss of the same batch with one weight a little larger, and a little smaller, and what the
  // gradient should be by that: (up - down) / the distance of the two weights.
  nudge({ name, at, by }) {
    const { numbers } = this.model.w[name];
    const before = numbers[at];
    const [up, down] = [by, -by].map((change) => {
      numbers[at] = before + change;
      forward(this.model, this.stopped.ids);
      return { weight: numbers[at], loss: loss(this.model, this.stopped.targets) };
    });
    numbers[at] = before;
    return { name, at, by, before, up: up.loss, down: down.loss,
      quotient: (up.loss - down.loss) / (up.weight - down.weight) };
  }
}
