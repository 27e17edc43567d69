"""Bubble and memory of every schedule, in closed form; `timeline.simulate` agrees exactly."""

from fractions import Fraction

from llmcourse.parallel.pipeline.schedules import check_name
from llmcourse.parallel.pipeline.timed import Exact


def bubble_share(
    name: str,
    num_ranks: int,
    num_micro_batches: int,
    num_chunks: int = 1,
    *,
    forward: Exact = 1,
    input_gradient: Exact = 1,
    weight_gradient: Exact = 1,
) -> Fraction:
    """Return the idle time of a rank relative to the time in which it works.

    With f, i, w the units of a micro-batch's F, I and W on a rank::

        gpipe, 1f1b   (p - 1) / m
        interleaved   (p - 1) / (v m)
        zero_bubble   ((p - 1) (f + i) - (min(m, p) - 1) min(f, i, w)) / (m (f + i + w))

    which for m >= p and w <= f, i is ZB-H1's (p - 1) (f + i - w) / (m (f + i + w)).  Of the whole
    time, a bubble b is b / (1 + b).  Stages take equal time here, and messages none.

    Args:
        name: one of `SCHEDULES`.
        num_ranks: p.
        num_micro_batches: m; for interleaved a multiple of p.
        num_chunks: v, stages per rank.
        forward: f, any unit.
        input_gradient: i, same unit.
        weight_gradient: w, same unit.

    Raises:
        ValueError: if there is no such schedule.

    Source:
        Narayanan et al. 2021, section 2.2, https://arxiv.org/abs/2104.04473; Qi et al. 2023,
        table 1, https://arxiv.org/abs/2401.10241 (for w <= f, i)
    """
    check_name(name)
    if name != "zero_bubble":
        return Fraction(num_ranks - 1, num_chunks * num_micro_batches)
    waits = (num_ranks - 1) * (forward + input_gradient)
    filled: Exact = min(num_micro_batches, num_ranks) - 1
    filled *= min(forward, input_gradient, weight_gradient)
    return Fraction(waits - filled) / (
        num_micro_batches * (forward + input_gradient + weight_gradient)
    )


def peak_micro_batches(
    name: str, num_ranks: int, num_micro_batches: int, num_chunks: int = 1
) -> tuple[int, ...]:
    """Return how many micro-batches every rank holds at most, each chunk of a rank for itself.

    On rank r::

        gpipe         m
        1f1b          min(m, p - r)
        interleaved   min(m v, 2 (p - 1 - r) + (v - 1) p + 1), each of 1/v of the rank's layers
        zero_bubble   min(m, p)

    Errors and sources as in `bubble_share`.
    """
    check_name(name)
    p, m, v = num_ranks, num_micro_batches, num_chunks
    on_rank = {
        "gpipe": lambda r: m,
        "1f1b": lambda r: min(m, p - r),
        "interleaved": lambda r: min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1),
        "zero_bubble": lambda r: min(m, p),
    }[name]
    return tuple(map(on_rank, range(p)))
