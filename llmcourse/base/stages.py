"""What holds from one place on, until the next begins: batches that grow, mixtures that change.

A place is counted in steps or in tokens, from 0.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence


def stage_at(begins: Sequence[int | float], place: int | float) -> int:
    """Return the number of the stage that holds at a place.

    Args:
        begins: where each stage begins, ascending.
        place: at or behind the first of them.

    Raises:
        ValueError: if no stage has begun.
    """
    if not (number := bisect_right(begins, place)):
        raise ValueError(f"no stage has begun at {place}: the first must begin at 0")
    return number - 1


def lengths_before(begins: Sequence[int], place: int) -> list[int]:
    """Return how much of each stage lies before a place; the last stage has no end."""
    ends = [*begins[1:], math.inf]
    return [int(max(0, min(end, place) - begin)) for begin, end in zip(begins, ends, strict=True)]
