"""A widget about context parallelism: whose keys each rank reads, step by step, and who waits."""

from typing import Any

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget


class KeyRing(Widget):
    """The ring of causal attention: keys go from rank to rank, and each reads what it may see.

    Args:
        cut: "blocks" (each rank has a stretch of the tokens) or "zigzag" (two, one from each
            end of the sequence).
        num_ranks: 2 to 8.
        state: step (how many are done, 0 to num_ranks).
    """

    script = "key_ring.js"
    alt = (
        "The triangle of causal attention, a row for each stretch of queries and a column for each "
        "stretch of keys, in the colours of the ranks that have the queries.  Beside it the ranks "
        "stand on a ring, and in every step keys travel to the next rank, which reads what it may "
        "see of them.  Below, the work of every rank over time: cut in blocks, the first ranks "
        "wait for the last; in the zig-zag all ranks have equal work in every step."
    )

    cut = Choice(("blocks", "zigzag"))
    num_ranks = Whole(4, low=2, high=8, step=1, label="ranks n")
    step = Whole(0, low=0, high=8, step=1, label="steps done")

    def __init__(self, cut: str = "blocks", num_ranks: int = 4, **state: Any) -> None:
        super().__init__(cut=cut, num_ranks=num_ranks, **state)
