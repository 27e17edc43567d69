// The run in a thread of its own.  The page posts { start }, { run: to which step }, { step },
// { rate }, { rewind }, { pace } or { save }; what comes back is { ready }, { report }, { rewound },
// { saved } or { failed }.

import { fastest } from "./matrix.js";
import { numWeights } from "./model.js";
import { Run } from "./run.js";

export function serve(port) {
  let run = null;
  let until = 0; // the step to which the reader wants it to run
  const running = () => run.stepsDone < until;
  let timer = null;
  let watched = []; // ids of the rows of the embedding that are shown
  let pause = 0; // ms from the begin of a step to that of the next, at least
  let shown = -Infinity;

  // How the run stands.  Writing and rows come with the first steps, and then a few times a second.
  function post(kind, report = {}) {
    const now = performance.now();
    const full = kind !== "report" || run.stepsDone <= 1 || !running() || now - shown > 400;
    if (full) shown = now;
    port.postMessage({ [kind]: { step: run.stepsDone, ...report,
      ...(full ? { written: run.write(), rows: run.rows(watched) } : {}) } });
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
    start({ saved, watched: ids = [], arithmetic = fastest(), ...given }) {
      run = new Run({ ...given, arithmetic });
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
