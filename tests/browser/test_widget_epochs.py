"""The widget of chapter 33: turns, gaps and patience are those of Python and of the package."""

import random

import numpy as np
import pytest
import traitlets

from llmcourse.course.recorded import recorded_runs
from llmcourse.course.widgets import EpochBoard
from llmcourse.train.early_stopping import EarlyStopping
from tests.browser.kit import choose, enter, noted, pictured, said, table, value
from tests.browser.registry import epoch_board, epoch_runs

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


# --- the shipped arithmetic, in Chromium


def test_a_patient_run_ends_where_the_package_ends_it(arithmetic):
    """Mutants: waiting one longer, counting ties as better, never resetting the wait."""
    grid = [[curve, patience] for curve in CURVES for patience in (1, 2, 3, 7)]
    found = arithmetic(EpochBoard, "endOf", grid)
    right = [Watched(patience).end_of(curve)[1] for curve, patience in grid]
    assert found == right
    assert {None, 1, 4} <= set(right)


def test_the_turn_is_the_first_of_the_lowest(arithmetic):
    found = arithmetic(EpochBoard, "lowest", [[curve] for curve in CURVES])
    assert found == [int(np.argmin(curve)) for curve in CURVES]
    assert found == [Watched(0).end_of(curve)[0] for curve in CURVES]


def test_means_places_and_epochs(arithmetic):
    curves = [[[DRAWS.random() for _ in range(7)] for _ in range(n)] for n in (1, 2, 3, 5)]
    for each, found in zip(
        curves, arithmetic(EpochBoard, "meanOf", [[c] for c in curves]), strict=True
    ):
        assert found == pytest.approx(np.mean(each, axis=0), rel=1e-12)
    steps = [20, 40, 50, 300]
    grid = [[steps, step] for step in range(0, 310, 5)]
    right = [max(0, int(np.searchsorted(steps, step, side="right")) - 1) for _, step in grid]
    assert arithmetic(EpochBoard, "placeAt", grid) == right
    run = {"steps": steps, "epochs": 24.0}
    found = arithmetic(EpochBoard, "epochsAt", [[run, step] for step in (50, 100, 300)])
    assert found == pytest.approx([4, 8, 24])
    grid = [[curve, 0.7] for curve in CURVES]
    right = [next((i for i, x in enumerate(c) if x < 0.7), None) for c in CURVES]
    assert arithmetic(EpochBoard, "below", grid) == right


# --- the page


def test_the_state_is_said_in_words_and_numbers(show):
    page = show(epoch_board(step=210))
    run = epoch_runs()[0]
    training, held_out = (np.mean(run[key], axis=0) for key in ("training", "held_out"))
    turn = int(held_out.argmin())
    seeds = [curve[9] for curve in run["held_out"]]
    words = said(page)
    assert words.startswith(
        "Step 200: 20 kB, 4,800 tokens, read 64 times. "
        f"Training {training[9]:.2f}, validation {held_out[9]:.2f} "
        f"({min(seeds):.2f} to {max(seeds):.2f} with 3 seeds), "
        f"gap {held_out[9] - training[9]:.2f}. The training loss is below the entropy of 0.38"
    )
    assert f"has turned at step {run['steps'][turn]}, " in words
    assert f"risen by {held_out[9] - held_out[turn]:.2f} since" in words
    assert f"A patience of 3 ends this run at step {run['steps'][turn + 3]}." in words
    assert f"with its turn at step {run['steps'][turn]}, {held_out[turn]:.2f}" in pictured(page)
    assert "80 kB, read 16 times: training " in pictured(page, 1)
    assert table(page)[9] == ["200", "64", f"{training[9]:.2f}", f"{held_out[9]:.2f}"]


def test_every_control_changes_what_is_said(show):
    page = show(epoch_board())
    turn = 20 * (1 + int(np.mean(epoch_runs()[0]["held_out"], axis=0).argmin()))
    enter(page, "step", str(turn))
    assert "this is the turn" in said(page)
    enter(page, "step", str(turn - 20))
    assert "has not turned yet" in said(page)
    enter(page, "step", "7")
    assert said(page).startswith("Step 20: ")
    enter(page, "patience, in validations", "15")
    assert "A patience of 15 does not end this run." in said(page)
    enter(page, "patience, in validations", "16")
    assert "16 is not possible (from 1 to 15, whole)" in noted(page)
    choose(page, "text", "W" * 7)
    assert "does not turn in these steps" in said(page)
    assert pictured(page).endswith("without a turn")
    lines = page.locator(".lc-stage > svg").first.locator("polyline")
    before = lines.count()
    page.get_by_label("each seed").check()
    assert lines.count() == before + 6


def test_the_cursor_is_dragged(show):
    page = show(epoch_board(step=20))
    box = page.locator(".lc-stage > svg").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 40, box["y"] + 100)
    page.mouse.up()
    assert value(page, "step") == "300"
    page.mouse.move(box["x"] + 60, box["y"] + 100)
    assert said(page).startswith("Step 300: ")


def test_it_shows_what_the_chapter_has_recorded(show):
    rows = recorded_runs("epochs")["sizes"]["runs"]
    runs = [row | {"name": f"text {i}", "held_out": row["held out"]} for i, row in enumerate(rows)]
    page = show(EpochBoard(runs, floor=0.38))
    assert "turned at step 80, after reading the text 25.6 times" in said(page)
    assert "A patience of 3 ends this run at step 140." in said(page)


# --- Python

WRONG = [
    ({"name": ""}, "names have 1 to 7 characters"),
    ({"name": "W" * 8}, "names have 1 to 7 characters"),
    ({"steps": [20, 20, 40]}, "steps that increase from 1"),
    ({"steps": [0, 20]}, "steps that increase from 1"),
    ({"epochs": 0}, "tokens and epochs are above 0"),
    ({"training": []}, "for the same 1 to 5 seeds"),
    ({"held_out": [[1.0] * 15]}, "for the same 1 to 5 seeds"),
    ({"held_out": [[1.0] * 14] * 3}, "a finite loss for each of 15 steps"),
    ({"held_out": [[float("nan")] * 15] * 3}, "a finite loss for each of 15 steps"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_runs_that_do_not_fit_are_refused(change, message):
    runs = epoch_runs()
    with pytest.raises(ValueError, match=message):
        EpochBoard([runs[0] | change, *runs[1:]], floor=0.38)


def test_boards_that_do_not_fit_are_refused():
    runs = epoch_runs()
    with pytest.raises(ValueError, match="give 2 to 6 runs, not 1"):
        EpochBoard(runs[:1], floor=0.38)
    with pytest.raises(ValueError, match="a name of its own"):
        EpochBoard([runs[0], runs[0]], floor=0.38)
    with pytest.raises(ValueError, match="the entropy is a number above 0, not 0"):
        EpochBoard(runs, floor=0.0)
    with pytest.raises(ValueError, match=r"a run has no \['epochs'\]"):
        EpochBoard([{k: v for k, v in runs[0].items() if k != "epochs"}, runs[1]], floor=0.38)


def test_state_is_checked():
    made = epoch_board()
    assert (made.text, made.step, made.patience) == ("20 kB", 300, 3)
    made.step = 999
    assert (made.step, made.note) == (
        300,
        "step: 999 is not possible (from 0 to 300, whole); 300 is used.",
    )
    with pytest.raises(traitlets.TraitError, match="text must be one of 20 kB, 80 kB, WWWW"):
        made.text = "poems"
