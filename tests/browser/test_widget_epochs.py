"""The widget of chapter 33: a text that is read again, losses on what is held out, and patience."""

import random

import numpy as np
import pytest

from llmcourse.train.early_stopping import EarlyStopping
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widget import bundle
from llmcourse_classroom.widgets import LiveEpochs
from tests.browser import hands, kit
from tests.browser.engine import start_of
from tests.browser.kit import holds
from tests.browser.registry import tiny_config
from tests.browser.test_widget_live import press_until
from tests.browser.twins import agrees

RUN, DRAWS = bundle("live/worker.js"), random.Random(33)
CURVES = [
    [DRAWS.choice([1.0, 2.0, 2.5, DRAWS.random()]) for _ in range(DRAWS.randrange(1, 12))]
    for _ in range(60)
]


class Watched(EarlyStopping):
    """The package's early stopping, told losses in place of a run."""

    def __init__(self, patience):
        self.patience, self.best_step, self.best_loss, self.waited = patience, 0, float("inf"), 0

    def end_of(self, losses):
        for place, loss in enumerate(losses):
            self._count(place, loss)
            if self.is_over:
                return self.best_step, place
        return self.best_step, None


def test_a_patient_run_ends_where_the_package_ends_it(arithmetic):
    """Mutants: waiting one longer, counting ties as better, never resetting the wait."""
    grid = [[curve, patience] for curve in CURVES for patience in (1, 2, 3, 7)]
    right = agrees(arithmetic, LiveEpochs, "endOf", grid, lambda c, p: Watched(p).end_of(c)[1])
    assert {None, 1, 4} <= set(right)


def test_the_turn_is_the_first_of_the_lowest(arithmetic):
    found = arithmetic(LiveEpochs, "lowest", [[curve] for curve in CURVES])
    assert found == [int(np.argmin(curve)) for curve in CURVES]
    assert found == [Watched(0).end_of(curve)[0] for curve in CURVES]


READ = """const config = { ...given.start.config, batches: given.batches };
  const run = new Run({ ...given.start, config });
  const read = [];
  const reports = [];
  for (let i = 0; i < 20; i++) {
    read.push([...run.load().ids].join());
    reports.push(run.step());
  }
  const held = run.heldOut.map(({ ids, targets }) => {
    forward(run.model, ids);
    return loss(run.model, targets);
  });
  const kept = run.heldOut.map(({ ids }) => [...ids].join());
  return [read, kept, reports.map(({ heldOut }) => heldOut), held];"""


@pytest.mark.parametrize("batches", [2, 3, 0])
def test_a_text_comes_again_in_its_order_and_nobody_trains_on_what_is_held_out(engine, batches):
    """Mutants: what is held out is the text's, another period, the loss of one batch alone."""
    start = start_of(LiveEpochs(tiny_config())) | {"arithmetic": "SIMD"}
    read, held, losses, expected = engine(READ, mutant=RUN, start=start, batches=batches)
    if batches:
        assert read == [read[step % batches] for step in range(20)]
    assert (len(set(read)), len(set(held))) == (batches or 20, LiveEpochs.HELD_OUT)
    assert not set(held) & set(read)
    assert [step for step, loss in enumerate(losses, 1) if loss is not None] == [10, 20]
    assert losses[-1] == pytest.approx(np.mean(expected), rel=1e-12)


def test_little_text_is_memorised_and_its_curve_stays_beside_that_of_new_stories(show):
    page = show(LiveEpochs(tiny_config(steps=60, learning_rate=2e-2), patience=1))
    press_until(page, "Train", "Step 60 of 60: the text has been read 30 times")
    shown = kit.table(page, "The run so far")
    rows = [[float(x) for x in row] for row in shown]
    assert [row[:2] for row in rows] == [[10 * n, 5 * n] for n in range(1, 7)]
    assert rows[-1][3] - rows[-1][2] > 1 > rows[0][3] - rows[0][2]
    holds(kit.said(page), f"Training {shown[-1][2]}, validation {shown[-1][3]}, gap ")
    hands.choose(page, "text", "new stories at each step")
    press_until(page, "Train", "Step 60 of 60: no story is read twice")
    fresh = [[float(x) for x in row[2:]] for row in kit.table(page, "The run so far")]
    assert abs(fresh[-1][1] - fresh[-1][0]) < 0.5
    holds(kit.pictured(page), f"validation before, 1,000 tokens {rows[-1][3]:.2g}")


def test_the_recorded_runs_have_the_turn_and_the_entropy_that_the_page_speaks_of():
    runs = recorded_runs("live_labs")["epochs"]["small"]["0"]
    floor = recorded_runs("live")["run"]["small"]["0"]["floor"]
    assert list(runs) == list(LiveEpochs.SIZES)
    least, little, more, fresh = (np.array(rows) for rows in runs.values())
    for rows in (least, little):
        assert rows[-1, 1] < floor
        assert rows[-1, 2] > rows[:, 2].min() + 0.5
    for rows in (more, fresh):
        assert rows[-1, 2] < rows[:, 2].min() + 0.05
        assert rows[-1, 1] > floor + 0.3
    still = LiveEpochs().still()
    assert still.count("<polyline") == 4
    holds(still, f"1,000 tokens: {least[0, 2]:.2f} at step 10, {least[-1, 2]:.2f} at step 300")
