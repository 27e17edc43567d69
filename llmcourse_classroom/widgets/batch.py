"""A widget about the size of a batch: what it takes in steps, and what in text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget

MOST_RUNS = 6
MOST_SEEDS = 10
MOST_STEPS = 1_000


class BatchSlider(Widget):
    """The law of batches as a curve, with its knee, the runs that were measured, and a slider.

    Args:
        least_steps: S_min, the steps that a batch without noise would take; at most 1,000.
        runs: for each batch size, in sequences, the steps that its runs took; at most 6 sizes.
        state: batch (1 to 1,024 sequences), noise (the noise scale, 1 to 1,000 sequences).

    Raises:
        ValueError: if a number is not positive and finite or too large, or there are too many.
    """

    script = "batch_slider.js"
    alt = (
        "A curve of steps against sequences read, both on logarithmic axes.  It falls steeply "
        "where batches are small and runs flat where they are large; the knee between them lies "
        "at the noise scale, where both are twice their least.  Dots are measured runs, a ring is "
        "the chosen batch."
    )

    least_steps = traitlets.Float().tag(sync=True)
    runs = traitlets.List().tag(sync=True)
    batch = Whole(8, low=1, high=1_024, step=1, label="batch, sequences")
    noise = Limited(50, low=1, high=1_000, step=1, label="noise scale, sequences")

    def __init__(
        self,
        least_steps: int | float,
        runs: Mapping[int, Sequence[int | float]] | None = None,
        **state: Any,
    ) -> None:
        runs = runs or {}
        if len(runs) > MOST_RUNS or any(not 1 <= len(s) <= MOST_SEEDS for s in runs.values()):
            raise ValueError(
                f"give runs of at most {MOST_RUNS} batch sizes, with 1 to {MOST_SEEDS} each"
            )
        for value in (least_steps, *runs, *(n for steps in runs.values() for n in steps)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"batches and steps are finite and above 0, unlike {value}")
        if least_steps > MOST_STEPS:
            raise ValueError(f"least_steps is at most {MOST_STEPS:,}, not {least_steps}")
        super().__init__(
            least_steps=float(least_steps),
            runs=[[batch, [round(float(n), 2) for n in steps]] for batch, steps in runs.items()],
            **state,
        )
