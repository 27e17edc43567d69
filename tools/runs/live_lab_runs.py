"""Record what the page says of live runs, in llmcourse_classroom/live_labs.json.

    python -m tools.runs.live_lab_runs [ranks] [spike] [crash] [letters] [schedule] [epochs]

The runs are those of the widgets themselves, done by their engine in Chromium with plain SIMD; a
call that was cut short goes on with what is missing.

ranks     the run of chapter 23, on one rank.
spike     chapter 28: three bad batches, with clipping and without; and none.
crash     chapter 30: the run that nobody interrupts, and what comes of it after each restore.
letters   chapter 03: a constant rate, and one that is raised on the way.
schedule  chapter 26: ten steps at a rate of 1.
epochs    chapter 33: texts of several sizes, read again and again.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

from llmcourse import nutshell, train
from llmcourse.data import corpus
from llmcourse.model import tiny
from llmcourse_classroom.widget import bundle
from llmcourse_classroom.widgets import LiveCrash, LiveEpochs, LiveRanks, LiveRun, LiveSpike
from llmcourse_classroom.widgets.live import letters_run
from tools.machine import chromium
from tools.runs.recording import record

FILE = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "live_labs.json"
CALL = """async ([engine, body, given]) => {
  const text = `${engine}\\nexport const called = (given) => { ${body} };`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const { called } = await import(address);
  return called(given);
}"""
LOSSES = """const run = new Run(given);
  return given.rates.flatMap(([rate, until]) => {
    run.peak = rate;
    return Array.from({ length: until - run.stepsDone }, () => run.step().loss);
  });"""
SPIKE = """const run = new Run(given);
  const on = (reports) => { while (!run.done) reports.push(run.step()); return reports; };
  const trunk = Array.from({ length: given.at }, () => run.step());
  const saved = run.state();
  const found = {};
  for (const [name, bad, norm] of [["calm", 0, 1], ["clipped", 3, 1], ["free", 3, Infinity]]) {
    run.restore(saved);
    [run.bad, run.config.clip_norm] = [bad, norm];
    const all = on([...trunk]);
    found[name] = { loss: all.map(({ loss }) => loss), norm: all.map(({ norm }) => norm) };
  }
  return found;"""
EPOCHS = """return Object.fromEntries(given.sizes.map(([name, batches]) => {
    const run = new Run({ ...given, config: { ...given.config, batches } });
    const rows = [];
    while (!run.done) {
      const { step, loss, heldOut } = run.step();
      if (heldOut !== null) rows.push([step, loss, heldOut]);
    }
    return [name, rows];
  }));"""
CRASH = """const run = new Run(given);
  const begun = run.state();
  const on = (points) => {
    while (!run.done) { const { step, loss } = run.step(); points.push([step, loss]); }
    return points;
  };
  let saved = null;
  const whole = [];
  while (!run.done) {
    const { step, loss } = run.step();
    whole.push([step, loss]);
    if (step === given.at) saved = run.state();
  }
  const zeros = new Float32Array(saved.weights.length);
  const found = { whole };
  for (const [name, other] of [
    ["everything", {}],
    ["all but Adam's moments", { means: zeros, squares: zeros, momentsFrom: given.at }],
    ["all but the place in the data", { stories: begun.stories }],
  ]) {
    run.restore({ ...saved, ...other });
    found[name] = on([]);
  }
  return found;"""


def rounded(value: object) -> object:
    """Return nested lists and dicts with their floats to five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def done(widget: LiveRun, body: str, **more: object) -> object:
    """Let the engine of a widget do what `body` says, from seed 0."""
    given = {"config": widget.config, "text": widget.text, "seed": 0, "arithmetic": "SIMD"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.path(), args=chromium.FLAGS)
        page = browser.new_page()
        found = page.evaluate(CALL, [bundle("live/worker.js"), body, given | more])
        browser.close()
    return rounded(found)


def losses(widget: LiveRun, *rates: Sequence[float]) -> Callable[[int], object]:
    """Return how to make a run at rates, each until a step; and all of it at the run's own."""
    whole = [(widget.config["learning_rate"], widget.config["steps"])]
    return lambda _seed: done(widget, LOSSES, rates=rates or whole)


def scheduled() -> LiveRun:
    """Return the widget in which the reader of chapter 26 sets the rate."""
    shape = replace(tiny(), width=48, head_size=12, hidden=128, vocab_size=400, context_length=64)
    config = train.PRESETS["stories"]().replace(
        model=shape,
        steps=400,
        batch_size=8,
        learning_rate=1e-2,
        warmup_steps=0,
        final_share=1.0,
    )
    merges = nutshell.learn_merges(corpus.stories(200_000, seed=0), shape.vocab_size)
    return LiveRun(config, merges, floor=0.5)


def main(wanted: list[str]) -> int:
    """Make the parts that are missing, of the wanted ones or of all."""
    letters = LiveRun(letters_run(), (), floor=0.5)
    epochs = LiveEpochs(recorded={})
    runs = {
        "ranks": {"small": losses(LiveRanks(losses=[]))},
        "spike": {"lab": lambda _: done(LiveSpike(recorded={}), SPIKE, at=100)},
        "crash": {"lab": lambda _: done(LiveCrash(recorded={}), CRASH, at=40)},
        "letters": {
            "steady": losses(letters),
            "raised": losses(letters, (6e-3, 100), (0.1, 400)),
        },
        "epochs": {"small": lambda _: done(epochs, EPOCHS, sizes=epochs.sizes)},
        "schedule": {"thrown": losses(scheduled(), (1e-2, 150), (1.0, 160), (1e-2, 400))},
    }
    about = {"command": "python -m tools.runs.live_lab_runs"}
    record(FILE, runs, seeds=(0,), wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
