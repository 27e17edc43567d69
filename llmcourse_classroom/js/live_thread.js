// The run of a widget, in a thread of its own: how it stands, and what the reader asks of it.

import { clamp } from "./kit.js";
import { thread, whenSeen } from "./live_lab.js";
import ENGINE from "./live/worker.js" with { type: "text" };

const REMEMBERED = 20; // steps over whose time is averaged

export class Training {
  // start() is what the thread is told first; steps, where the run ends; changed(atOnce) is called when
  // something is new, after heard(kind, news) with what the thread said; failed(why) where no thread can
  // be had.  The step is the model's, of the widget.
  constructor({ model, steps, start, changed, heard, failed }) {
    Object.assign(this, { model, steps, start, changed, heard, failed });
    this.worker = null; // null before the reader begins, and after the end of what cannot run
    this.seen = true; // whether the reader can see it
    this.left = null; // losses of what the reader went back from
    this.forget();
  }

  forget() {
    this.facts = null; // what the worker said when it was ready
    this.wanted = false; // whether the reader wants it to run
    this.until = this.steps;
    this.losses = []; // of step 1, 2, ...
    this.reports = []; // the last steps' times
    this.written = null; // the step of a sample, and the sample
    this.rows = null;
    this.stopped = null; // what is known of a step that stopped after its backward pass
  }

  get runs() {
    return this.worker !== null && this.wanted && this.seen;
  }

  // Whether it has done its last step; a step that the reader goes back to is another matter.
  get over() {
    return this.losses.length >= this.steps;
  }

  // --- the thread

  // Returns whether there is a thread.
  begin() {
    if (this.worker) return true;
    this.worker = thread(ENGINE, (kind, news) => this.hear(kind, news), (why) => this.fail(why));
    if (!this.worker) return false;
    this.tell(this.start());
    this.model.set("step", 0);
    return true;
  }

  tell(message) {
    this.worker?.postMessage(message);
  }

  hear(kind, news) {
    if (kind === "ready") this.facts = news;
    if (kind === "stopped") this.stopped = news;
    if (kind === "report" || kind === "rewound") this.stopped = null;
    if (news.written !== undefined) [this.written, this.rows] = [[news.step, news.written], news.rows];
    if (kind === "report") this.hearStep(news);
    if (kind === "rewound") {
      if (this.losses.length > news.step) this.left = this.losses;
      this.losses = this.losses.slice(0, news.step);
      this.model.set("step", news.step);
    }
    this.heard(kind, news);
    this.changed(false);
  }

  hearStep({ step, loss, ms }) {
    this.losses.push(loss);
    this.reports = [...this.reports, ms].slice(-REMEMBERED);
    this.model.set("step", step);
    if (!Number.isFinite(loss)) {
      this.model.set("note", `The loss is ${loss}: the weights are lost. Go back to an earlier step, and lower ` +
        "the learning rate.");
    }
    if (step >= this.until || !Number.isFinite(loss)) this.want(false);
  }

  fail(why) {
    this.end();
    this.wanted = false;
    this.failed(why);
  }

  end() {
    this.worker?.terminate();
    this.worker = null;
  }

  // --- what the reader asks

  want(on) {
    this.wanted = on;
    this.tell({ run: this.runs ? this.until : 0 });
    this.changed(true); // what the reader presses is answered at once
  }

  // Train, or pause.
  press() {
    if (!this.begin()) return;
    if (!this.wanted && this.model.get("step") >= this.until) this.until = this.steps;
    this.want(!this.wanted && this.model.get("step") < this.until);
  }

  once() {
    if (!this.begin()) return;
    this.want(false);
    this.tell({ step: true });
  }

  // Stop after the backward pass of the next step; or do the rest of a step that stopped.
  halt() {
    if (this.stopped) return this.once();
    if (!this.begin()) return null;
    this.want(false);
    return this.tell({ stop: true });
  }

  anew() {
    this.end();
    if (this.losses.length) this.left = this.losses;
    this.forget();
    this.model.set("note", "");
    this.model.set("step", 0);
    this.changed(false);
  }

  // Train to a step, or go back to the last checkpoint before it.
  goTo(asked) {
    if (this.worker && asked >= this.losses.length) {
      this.until = clamp(asked, this.losses.length + 1, this.steps);
      return this.want(this.losses.length < this.steps);
    }
    this.wanted = false;
    this.until = this.steps;
    this.tell({ run: 0, rewind: asked });
    return this.changed(false);
  }

  // Rest while the reader cannot see it.  Returns what ends the watch.
  watch(element) {
    return whenSeen(element, (now) => { this.seen = now; this.want(this.wanted); });
  }
}
