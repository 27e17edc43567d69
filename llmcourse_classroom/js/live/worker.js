// The run in a thread of its own.  The page posts { start }, { run: to which step }, { step },
// { rate }, { rewind }, { pace }, { save }, { prompt: how to write }, { stop } (after backward), { gradient:
// name }, { nudge }, { poison: how many bad batches } or { clip: at which norm }; what comes back is
// { ready }, { report }, { rewound }, { saved }, { answered }, { stopped }, { gradient }, { nudged } or
// { failed }.

import { fingerprint } from "./hash.js";
import { fastest, has } from "./matrix.js";
import { numWeights } from "./model.js";
import { Run } from "./run.js";

export function serve(port) {
  let run = null;
  let until = 0; // the step to which the reader wants it to run
  const running = () => run.stepsDone < until;
  let timer = null;
  let watched = []; // ids of the rows of the embedding that are shown
  let asked = null; // what the reader would like to be written on
  let pause = 0; // ms from the begin of a step to that of the next, at least
  let shown = -Infinity;
  let hashed = false; // whether reports say the fingerprint of the weights

  // How the run stands.  Writing and rows come with the first steps, and then a few times a second.
  function post(kind, report = {}) {
    const now = performance.now();
    const full = kind !== "report" || run.stepsDone <= 1 || !running() || now - shown > 400;
    if (full) shown = now;
    port.postMessage({ [kind]: { step: run.stepsDone, ...report,
      ...(hashed ? { hash: fingerprint(run.model.flat.weights) } : {}),
      ...(full ? { written: run.write(asked ?? {}), rows: run.rows(watched) } : {}),
      ...(full && asked ? { asked, likeliest: run.likeliest(asked, 8) } : {}) } });
  }

  function next() {
    timer = null;
    if (!running()) return;
    const before = performance.now();
    const report = run.step();
    if (!Number.isFinite(report.loss)) until = 0;
    post("report", report);
    timer = setTimeout(next, Math.max(0, pause - (performance.now() - before)));
  }

  const answers = {
    start({ saved, watched: ids = [], hashed: wanted = false, arithmetic: asked = fastest(), ...given }) {
      const arithmetic = has(asked) ? asked : fastest();
      run = new Run({ ...given, arithmetic });
      hashed = wanted;
      watched = ids;
      if (saved) run.restore(saved);
      post("ready", { weights: numWeights(run.config), arithmetic });
    },
    run(step) {
      until = Math.min(step, run.config.steps);
      if (timer === null) timer = setTimeout(next, 0);
    },
    step() { if (!run.done) post("report", run.step()); },
    rate(peak) { run.peak = peak; },
    pace(ms) { pause = ms; },
    rewind(step) { run.rewind(step); post("rewound"); },
    prompt(given) { asked = given; post("answered"); },
    stop() {
      until = 0;
      if (run.done) return;
      const { loss } = run.stopped ?? run.stop();
      port.postMessage({ stopped: { step: run.stepsDone + 1, loss, lengths: run.lengths() } });
    },
    gradient(name) {
      const { rows, columns, numbers } = run.model.dw[name];
      port.postMessage({ gradient: { name, rows, columns, numbers: numbers.slice() } });
    },
    nudge(given) { if (run.stopped) port.postMessage({ nudged: run.nudge(given) }); },
    poison(batches) { run.bad = batches; },
    clip(norm) { run.config.clip_norm = norm; },
    save() { port.postMessage({ saved: run.state() }); },
  };

  port.onmessage = ({ data }) => {
    try {
      for (const [what, given] of Object.entries(data)) answers[what](given);
    } catch (error) {
      until = 0;
      port.postMessage({ failed: String(error) });
    }
  };
}

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) serve(self);
