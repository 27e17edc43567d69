"""The live run in a browser, against the package on one thread: steps of the same shape."""

import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from bench.timing import medians, row
from llmcourse import model, nutshell, train
from llmcourse.data.corpus import stories
from llmcourse.train import phases
from llmcourse_classroom.widget import bundle
from llmcourse_classroom.widgets import LiveRun
from llmcourse_classroom.widgets.live import small_run
from tools.machine import chromium

STEPS = 5
"""Of one side before the other's turn."""
OPEN = """async ([engine, given]) => {
  const address = URL.createObjectURL(new Blob([engine], { type: "text/javascript" }));
  window.engine = await import(address);
  window.runs = {};
  for (const arithmetic of window.engine.ARITHMETICS.filter(window.engine.has))
    window.runs[arithmetic] = new window.engine.Run({ ...given, seed: 0, arithmetic });
  return Object.keys(window.runs);
}"""


def _compared(name: str, config: train.TrainConfig, page: Page, *, quick: bool) -> list[dict]:
    """Return rows of one shape in every arithmetic that the browser has."""
    merges = nutshell.learn_merges(stories(300_000, seed=0), config.model.vocab_size)
    widget = LiveRun(config, merges, floor=0.4)
    arithmetics = page.evaluate(
        OPEN, [bundle("live/worker.js"), {k: getattr(widget, k) for k in ("config", "text")}]
    )
    if config.model.num_layers > 2:
        arithmetics = [each for each in arithmetics if each != "JavaScript"]
    with tempfile.TemporaryDirectory() as folder:
        run = train.start(config.replace(corpus_bytes=300_000), Path(folder) / "run")

        def ours(arithmetic):
            steps = f"for (let i = 0; i < {STEPS}; i++) window.runs['{arithmetic}'].step();"
            return lambda: page.evaluate(f"() => {{ {steps} }}")

        sides = {each: ours(each) for each in arithmetics}
        sides["train"] = lambda: [phases.step(run) for _ in range(STEPS)]
        seconds = medians(sides, repeats=3 if quick else 12, warm_up=3)
    tokens = STEPS * config.batch_size * config.model.context_length
    return [
        row(
            f"training {name} weights in a browser, {arithmetic}",
            tokens / seconds[arithmetic],
            tokens / seconds["train"],
            "llmcourse.train, one thread",
            "tokens/s",
            aim=">= 0.4" if arithmetic == arithmetics[0] else "",
        )
        for arithmetic in arithmetics
    ]


def rows(*, quick: bool) -> list[dict]:
    """Return the rows; none where there is no Chromium."""
    try:
        path = chromium.path()
    except FileNotFoundError:
        return []
    shapes = {"135,488": small_run(), "354,000": train.TrainConfig(model=model.stories())}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        found = []
        for name, config in shapes.items():
            page = browser.new_page()
            found += _compared(name, config, page, quick=quick)
            page.close()
        browser.close()
    return found
