"""A widget about pipelines: which rank does what when, what it keeps, and how long it waits."""

from typing import Any

from llmcourse.parallel.pipeline import SCHEDULES
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget


class SchedulePlayer(Widget):
    """The actions of every rank of a pipeline on a line of time, to be played step by step.

    Args:
        schedule: "gpipe", "1f1b", "interleaved" or "zero_bubble".
        state: num_ranks (p, 1 to 8), micro_batches (m, 1 to 16), chunks (v, of interleaved alone, 2
            to 4), moment (in units of a forward pass; with chunks in v-ths of it).
    """

    script = "schedule_player.js"
    alt = (
        "Four rows over time, one for each rank of a pipeline, with 1F1B and eight micro-batches. "
        "Forward passes go down the rows, backward passes come back up, and every rank works 24 of "
        "33 units.  Rank 0 keeps up to four micro-batches, the last rank one.  Below, on one scale "
        "of time: GPipe and 1F1B take 33 units, interleaved 1F1B 28.5 and zero-bubble 27."
    )

    schedule = Choice(SCHEDULES, default="1f1b")
    num_ranks = Whole(4, low=1, high=8, step=1, label="ranks p")
    micro_batches = Whole(8, low=1, high=16, step=1, label="micro-batches m")
    chunks = Whole(2, low=2, high=4, step=1, label="chunks v")
    moment = Whole(10, low=0, high=300, step=1, label="moment")

    def __init__(self, schedule: str = "1f1b", **state: Any) -> None:
        super().__init__(schedule=schedule, **state)
