"""A widget about all-reduce: who sends which chunk to whom, step by step, and what it costs."""

from typing import Any

from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget


class RingStepper(Widget):
    """All-reduce of a tensor by a ring, a tree, or through rank 0, step by step.

    Args:
        num_ranks: 2 to 8.
        algorithm: "ring", "tree" or "naive".
        state: step (how many are done; a ring has 2(n-1)), rank (the one that is described),
            megabytes (of the tensor), latency_us (of a message), gigabytes_per_s (of a link).
    """

    script = "ring_stepper.js"
    alt = (
        "All-reduce round a ring of ranks.  Each cuts its numbers into as many chunks as there are "
        "ranks.  In n - 1 steps partial sums go from rank to rank, and every rank ends with the "
        "finished sum of one chunk; in n - 1 more the finished sums go round.  Discs fly round the "
        "ring and gain a slice at every rank.  In the end every rank has sent 2(n-1)/n times the "
        "tensor."
    )

    algorithm = Choice(("ring", "tree", "naive"))
    num_ranks = Whole(4, low=2, high=8, step=1, label="ranks n")
    step = Whole(0, low=0, high=14, step=1, label="steps done")
    rank = Whole(0, low=0, high=7, step=1, label="rank in words")
    megabytes = Limited(1, low=0.001, high=100_000, step=0.001, label="tensor, MB")
    latency_us = Limited(5, low=0.1, high=10_000, step=0.1, label="latency of a message, µs")
    gigabytes_per_s = Limited(50, low=0.1, high=1_000, step=0.1, label="bandwidth of a link, GB/s")

    def __init__(self, num_ranks: int = 4, algorithm: str = "ring", **state: Any) -> None:
        super().__init__(num_ranks=num_ranks, algorithm=algorithm, **state)
