"""A widget that compares runs of several learning rates, and tells regimes by their curves."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import traitlets

from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget

LETTERS = "ABCDEF"
MOST_RUNS = len(LETTERS)
MOST_POINTS = 500
"""Points of a curve that the page keeps."""
MOST_STEPS = 10_000_000
KEYS = ("name", "rate", "steps", "train", "validation")


class RateRegimes(Widget):
    """Runs that differ in the learning rate: training solid, validation dashed, names to guess.

    Args:
        runs: 2 to 6, each a dict of name (the regime), rate (learning rate), steps (increasing),
            train (a loss for each of them; what is not finite ends the curve) and validation
            (likewise, None where it was not measured).  At most 500 points each.
        state: curve ("all", or a letter from "A": the order of `runs`, or of the deal), window
            (points in a mean), train, validation, tall (up to the highest loss), step, quiz
            (whether the names are hidden), deal (the order in the quiz), guesses (letter to name).

    Raises:
        ValueError: if a run lacks something, or its parts do not belong together.
    """

    script = "rate_regimes.js"
    alt = (
        "Losses of runs that differ in the learning rate alone: too low falls slowly, a good one "
        "falls fast and ends lowest, one that is too high swings and stays above, and a diverging "
        "one rises.  Training is solid, validation dashed.  The names can be hidden and guessed."
    )

    runs = traitlets.List(traitlets.Dict()).tag(sync=True)
    curve = Named("all").tag(sync=True)
    window = Whole(1, low=1, high=100, step=1, label="points in a mean")
    train = traitlets.Bool(True).tag(sync=True)
    validation = traitlets.Bool(True).tag(sync=True)
    tall = traitlets.Bool(False).tag(sync=True)
    step = Whole(0, low=0, high=MOST_STEPS, step=1, label="at step")
    quiz = traitlets.Bool(False).tag(sync=True)
    deal = Whole(1, low=1, high=1_000, step=1, label="deal")
    guesses = traitlets.Dict().tag(sync=True)

    def __init__(self, runs: Sequence[Mapping[str, Any]], **state: Any) -> None:
        kept = [_checked(run) for run in runs]
        if not 2 <= len(kept) <= MOST_RUNS:
            raise ValueError(f"give 2 to {MOST_RUNS} runs, not {len(kept)}")
        names = [run["name"] for run in kept]
        if len(set(names)) < len(names):
            raise ValueError(f"each run needs a name of its own, got {names}")
        last = max(run["steps"][-1] for run in kept)
        bounds = {"step": last, "curve": ["all", *LETTERS[: len(kept)]]}
        super().__init__(runs=kept, bounds=bounds, **{"step": last, **state})


def _checked(run: Mapping[str, Any]) -> dict[str, Any]:
    missing = [key for key in KEYS if key not in run]
    if missing:
        raise ValueError(f"a run has no {missing}; it needs {list(KEYS)}")
    name, rate, steps = str(run["name"]), float(run["rate"]), [int(n) for n in run["steps"]]
    if not (name and math.isfinite(rate) and rate > 0):
        raise ValueError(f"a run needs a name and a rate above 0, got {name!r} and {rate}")
    if not 2 <= len(steps) <= MOST_POINTS:
        raise ValueError(
            f"{name}: give 2 to {MOST_POINTS} points, not {len(steps)}; keep every n-th of many"
        )
    if steps[0] < 0 or any(b <= a for a, b in pairwise(steps)):
        raise ValueError(f"{name}: steps must increase from 0 or more")
    train, validation = (_plain(run[key]) for key in ("train", "validation"))
    if len(train) != len(steps) or len(validation) != len(steps):
        raise ValueError(
            f"{name}: {len(steps)} steps, {len(train)} losses of training and {len(validation)} "
            "of validation; give one for each step, None where it was not measured"
        )
    if train[0] is None:
        raise ValueError(f"{name}: the first loss of training must be finite")
    return {"name": name, "rate": rate, "steps": steps, "train": train, "validation": validation}


def _plain(values: Sequence[float | None]) -> list[float | None]:
    """Return 5 digits of each number, and None for what is not finite."""
    return [
        float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
        for value in values
    ]
