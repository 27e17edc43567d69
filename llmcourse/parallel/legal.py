"""Which numbers a rule allows, and which of them stand next to the one that was given.

Every way to split a model has a rule about numbers, such as: ranks divide heads.  What breaks one
is refused before a process starts, with the legal numbers on both sides.
"""

import math
from collections.abc import Iterable

from llmcourse.base.arguments import require


def divisors(number: int) -> list[int]:
    """Return the numbers that divide a number of 1 or more, from 1 on."""
    lower = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*lower, *(number // n for n in lower)})


def multiples(step: int, about: int) -> list[int]:
    """Return the multiples of a step on both sides of a number, without 0 and what is below."""
    below = max(about // step, 0) * step
    return [n for n in (below, below + step) if n > 0]


def nearest(given: int, legal: Iterable[int]) -> str:
    """Say which legal numbers stand next to one that is not, below and above.

    Args:
        given: a number that the rule does not allow.
        legal: numbers that it does; at least one.
    """
    known = sorted(legal)
    found = [*[n for n in known if n < given][-1:], *[n for n in known if n > given][:1]]
    return " or ".join(map(str, found))


def chunk_sizes(length: int, parts: int) -> list[int]:
    """Cut a length into nearly equal parts, the first `length mod parts` of them one longer.

    Args:
        length: to cut, 0 or more.
        parts: how many, 1 or more; some are 0 if there are more parts than length.

    Raises:
        ValueError: if the length is negative, or there is no part.
    """
    require("length", length, least=0)
    require("parts", parts, least=1)
    size, longer = divmod(length, parts)
    return [size + 1] * longer + [size] * (parts - longer)
