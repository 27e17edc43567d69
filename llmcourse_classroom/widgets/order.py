"""A widget about one global order: cut by step and rank, stopped, and continued by other ranks."""

from typing import Any

import numpy as np
import traitlets

from llmcourse.data.order import permuted
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget

NUM_SHARDS, NUM_STEPS, GLOBAL_BATCH = 4, 4, 12
NUM_WINDOWS = NUM_STEPS * GLOBAL_BATCH
RANKS = ("1", "2", "3", "4", "6")
"""They divide the global batch, and a rank's name fits above its windows on a phone."""


class OrderBoard(Widget):
    """One epoch of 48 windows in four shards: who reads which, in which step.

    The order is that of `permuted` with seed 0, as `Batches` reads it.

    Args:
        state: before and after (numbers of ranks, as strings), stop (steps before the stop, 0 to
            4), saved ("the step" or "nothing": what the run goes on with), window (the one that is
            followed, 0 to 47).
    """

    script = "order_board.js"
    alt = (
        "48 windows in four shards, and below each other the four steps of an epoch: each takes "
        "the next 12 windows of one shuffled order, and the ranks divide them.  After a stop, "
        "another number of ranks goes on: the same windows stand in the same step, and only the "
        "borders between the ranks move.  Each window is read once, unless the step was not saved."
    )

    before = Choice(RANKS, default="4")
    after = Choice(RANKS, default="2")
    stop = Whole(2, low=0, high=NUM_STEPS, step=1, label="steps before the stop")
    saved = Choice(("the step", "nothing"))
    window = Whole(0, low=0, high=NUM_WINDOWS - 1, step=1, label="window to follow")
    order = traitlets.List(traitlets.Int()).tag(sync=True)
    batch = traitlets.Int(GLOBAL_BATCH).tag(sync=True)
    steps = traitlets.Int(NUM_STEPS).tag(sync=True)
    shards = traitlets.Int(NUM_SHARDS).tag(sync=True)

    def __init__(self, **state: Any) -> None:
        order = permuted(np.arange(NUM_WINDOWS), NUM_WINDOWS, seed=0).tolist()
        super().__init__(order=order, **state)
