"""The widget of chapter 33: turns, gaps and patience are those of Python and of the package."""

import random
from bisect import bisect_right

import numpy as np
import pytest

from llmcourse.train.early_stopping import EarlyStopping
from llmcourse_classroom.widgets import EpochBoard
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import epoch_board, epoch_runs
from tests.browser.twins import agrees, each

DRAWS = random.Random(33)
CURVES = [
    [DRAWS.choice([1.0, 2.0, 2.5, DRAWS.random()]) for _ in range(DRAWS.randrange(1, 12))]
    for _ in range(60)
]


class Watched(EarlyStopping):
    """The package's early stopping, told losses in place of a run."""

    def __init__(self, patience):
        self.patience, self.best_step, self.best_loss, self.waited = patience, 0, float("inf"), 0

    def end_of(self, losses):
        """Return the place of the best loss, and the place where a run would end, or None."""
        for place, loss in enumerate(losses):
            self._count(place, loss)
            if self.is_over:
                return self.best_step, place
        return self.best_step, None


def test_a_patient_run_ends_where_the_package_ends_it(arithmetic):
    """Mutants: waiting one longer, counting ties as better, never resetting the wait."""
    grid = [[curve, patience] for curve in CURVES for patience in (1, 2, 3, 7)]
    right = agrees(arithmetic, EpochBoard, "endOf", grid, lambda c, p: Watched(p).end_of(c)[1])
    assert {None, 1, 4} <= set(right)


def test_the_turn_is_the_first_of_the_lowest(arithmetic):
    found = arithmetic(EpochBoard, "lowest", [[curve] for curve in CURVES])
    assert found == [int(np.argmin(curve)) for curve in CURVES]
    assert found == [Watched(0).end_of(curve)[0] for curve in CURVES]


def test_means_places_and_epochs(arithmetic):
    curves = [[[DRAWS.random() for _ in range(7)] for _ in range(n)] for n in (1, 2, 3, 5)]
    for (several,), found in each(arithmetic, EpochBoard, "meanOf", [[c] for c in curves]):
        assert found == pytest.approx(np.mean(several, axis=0), rel=1e-12)
    steps = [20, 40, 50, 300]
    grid = [[steps, step] for step in range(0, 310, 5)]
    agrees(arithmetic, EpochBoard, "placeAt", grid, lambda s, x: max(0, bisect_right(s, x) - 1))
    run = {"steps": steps, "epochs": 24.0}
    found = arithmetic(EpochBoard, "epochsAt", [[run, step] for step in (50, 100, 300)])
    assert found == pytest.approx([4, 8, 24])
    grid = [[curve, 0.7] for curve in CURVES]
    right = [next((i for i, x in enumerate(c) if x < 0.7), None) for c in CURVES]
    assert arithmetic(EpochBoard, "below", grid) == right


def test_the_state_is_said_in_words_and_numbers(show):
    page = show(epoch_board(step=210))
    run = epoch_runs()[0]
    training, held_out = (np.mean(run[key], axis=0) for key in ("training", "held_out"))
    turn = int(held_out.argmin())
    seeds = [curve[9] for curve in run["held_out"]]
    now = [f"{x:.2f}" for x in (training[9], held_out[9], min(seeds), max(seeds))]
    holds(said(page), "Step 200: 20 kB, 4,800 tokens, read 64 times", f"Training {now[0]}")
    holds(said(page), f"validation {now[1]} ({now[2]} to {now[3]} with 3 seeds)")
    holds(said(page), f"gap {held_out[9] - training[9]:.2f}", "below the entropy of 0.38")
    holds(said(page), f"turned at step {run['steps'][turn]}")
    holds(said(page), f"risen by {held_out[9] - held_out[turn]:.2f}")
    holds(said(page), f"patience of 3 ends this run at step {run['steps'][turn + 3]}")
    holds(pictured(page), f"turn at step {run['steps'][turn]}, {held_out[turn]:.2f}")
    holds(pictured(page, 1), "80 kB, read 16 times: training ")
    assert table(page)[9] == ["200", "64", *now[:2]]


def test_every_control_changes_what_is_said(show):
    page = show(epoch_board())
    turn = 20 * (1 + int(np.mean(epoch_runs()[0]["held_out"], axis=0).argmin()))
    enter(page, "step", str(turn), "this is the turn")
    enter(page, "step", str(turn - 20), "has not turned yet")
    enter(page, "step", "7", "Step 20: ")
    enter(page, "patience, in validations", "15", "patience of 15 does not end")
    choose(page, "text", "W" * 7, "does not turn", picture=["without a turn"])
    lines = page.locator(".lc-stage > svg").first.locator("polyline")
    before = lines.count()
    page.get_by_label("each seed").check()
    assert lines.count() == before + 6
