"""Record what the live widgets show where no script runs: llmcourse/course/live_labs.json.

python -m tools.live_lab_runs

The runs are those of the widgets themselves, done by their engine in Chromium with plain SIMD.
"""

import json
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from llmcourse.course.widget import bundle
from llmcourse.course.widgets.live_labs import LiveCrash, LiveRanks, LiveSpike

FILE = Path(__file__).resolve().parents[1] / "llmcourse" / "course" / "live_labs.json"
NAMES = ("chromium", "chromium-browser", "google-chrome")
CALL = """async ([engine, body, given]) => {
  const text = `${engine}\\nexport const called = (given) => { ${body} };`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const { called } = await import(address);
  return called(given);
}"""
RANKS = """const run = new Run(given);
  return Array.from({ length: given.config.steps }, () => run.step().loss);"""
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


def main() -> None:
    """Do the runs and write the file."""
    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()

        def done(widget: LiveRanks, body: str, **more: int) -> object:
            given = {"config": widget.config, "text": widget.text, "seed": 0, "arithmetic": "SIMD"}
            return page.evaluate(CALL, [bundle("live/worker.js"), body, given | more])

        found = {
            "ranks": done(LiveRanks(losses=[]), RANKS),
            "spike": done(LiveSpike(recorded={}), SPIKE, at=100),
            "crash": done(LiveCrash(recorded={}), CRASH, at=40),
        }
        browser.close()
    FILE.write_text(json.dumps(rounded(found), separators=(",", ":")) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
