"""A widget about texts of several sizes that are read again and again."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import traitlets

from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget

MOST_RUNS, MOST_SEEDS, MOST_POINTS = 6, 5, 60
LONGEST_NAME = 7
MOST_STEPS = 1_000_000
KEYS = ("name", "tokens", "epochs", "steps", "training", "held_out")


class EpochBoard(Widget):
    """Runs with equally many steps on texts of several sizes: training solid, validation dashed.

    Args:
        runs: 2 to 6, each a dict of name (of the text, 7 characters at most), tokens (of the
            text), epochs (how often it has been read at the last step), steps (increasing, those
            of the measurements), training and held_out (for each of up to 5 seeds a list of
            losses, one for each step, in nats per token).
        floor: entropy of the text, in nats per token.
        state: text (the name of the run that is shown), step, patience (validations without a
            better one that end a run), seeds (whether each seed's curve is drawn).

    Raises:
        ValueError: if a run lacks something, or its parts do not belong together.
    """

    script = "epoch_board.js"
    alt = (
        "Losses against steps for texts of several sizes.  With little text the solid training "
        "curve falls below the entropy, while the dashed validation curve turns and rises.  With "
        "much text the two stay together."
    )

    runs = traitlets.List(traitlets.Dict()).tag(sync=True)
    floor = traitlets.Float().tag(sync=True)
    text = Named().tag(sync=True)
    step = Whole(0, low=0, high=MOST_STEPS, step=1, label="step")
    patience = Whole(3, low=1, high=MOST_POINTS, step=1, label="patience, in validations")
    seeds = traitlets.Bool(False).tag(sync=True)

    def __init__(self, runs: Sequence[Mapping[str, Any]], *, floor: float, **state: Any) -> None:
        kept = [_checked(run) for run in runs]
        if not 2 <= len(kept) <= MOST_RUNS:
            raise ValueError(f"give 2 to {MOST_RUNS} runs, not {len(kept)}")
        names = [run["name"] for run in kept]
        if len(set(names)) < len(names):
            raise ValueError(f"each run needs a name of its own, got {names}")
        if not (math.isfinite(floor) and floor > 0):
            raise ValueError(f"the entropy is a number above 0, not {floor}")
        last = max(run["steps"][-1] for run in kept)
        longest = max(len(run["steps"]) for run in kept)
        super().__init__(
            runs=kept,
            floor=floor,
            bounds={"step": last, "text": names, "patience": longest},
            **({"text": names[0], "step": last} | state),
        )


def _checked(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as the page takes it."""
    if missing := [key for key in KEYS if key not in run]:
        raise ValueError(f"a run has no {missing}; it needs {list(KEYS)}")
    name, steps = str(run["name"]), [int(n) for n in run["steps"]]
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"names have 1 to {LONGEST_NAME} characters, unlike {name!r}")
    if (
        not 2 <= len(steps) <= MOST_POINTS
        or steps[0] < 1
        or any(b <= a for a, b in pairwise(steps))
    ):
        raise ValueError(f"{name}: give 2 to {MOST_POINTS} steps that increase from 1, not {steps}")
    # Said so that NaN is refused, too.
    if not (run["tokens"] >= 1 and run["epochs"] > 0):
        raise ValueError(f"{name}: tokens and epochs are above 0")
    # Training and held-out, for each seed; five digits keep the page small.
    curves = {key: [[float(f"{x:.5g}") for x in one] for one in run[key]] for key in KEYS[-2:]}
    # Each solid curve has its dashed one, and each step a point on both.
    num_seeds = {len(each) for each in curves.values()}
    if len(num_seeds) != 1 or not 1 <= max(num_seeds) <= MOST_SEEDS:
        raise ValueError(f"{name}: give training and held_out for the same 1 to {MOST_SEEDS} seeds")
    for one in (one for each in curves.values() for one in each):
        if len(one) != len(steps) or not all(math.isfinite(x) for x in one):
            raise ValueError(f"{name}: a curve has a finite loss for each of {len(steps)} steps")
    return {
        "name": name,
        "tokens": int(run["tokens"]),
        "epochs": float(run["epochs"]),
        "steps": steps,
        **curves,
    }
