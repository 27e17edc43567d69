"""The learning-rate range test: one short run in which the rate grows from step to step."""

import math
from collections.abc import Callable
from typing import NamedTuple

from llmcourse.base.arguments import require


class RangeTest(NamedTuple):
    """What a range test saw."""

    rates: list[float]
    """Learning rate of every step that was taken."""
    losses: list[float]
    """Loss of every step, before its update."""
    smoothed: list[float]
    """Running mean of the losses, corrected for its start."""
    diverged: bool
    """Whether it stopped before the last rate because the loss had left."""

    @property
    def lowest_rate(self) -> float:
        """The rate at which the smoothed loss was least: already too high to train with."""
        return self.rates[min(range(len(self.smoothed)), key=self.smoothed.__getitem__)]


def range_test(
    step: Callable[[float], float],
    *,
    low: int | float,
    high: int | float,
    num_steps: int,
    stop_at: int | float = 4.0,
    smoothing: int | float = 0.9,
) -> RangeTest:
    """Take steps whose learning rate grows by the same factor each time:

    rate_i = low (high / low)^(i / (num_steps - 1)).

    It changes the model: run it on a copy.

    Args:
        step: takes one training step at a learning rate and returns its loss.
        low: first rate, positive.
        high: last rate, above low.
        num_steps: 2 or more.
        stop_at: the test ends once the smoothed loss is this many times its least, or is not
            finite; above 1.
        smoothing: memory of the running mean, in [0, 1).

    Raises:
        ValueError: if a setting is outside its range, or the first loss is not finite.

    Source:
        Smith 2017, section 3.3, https://arxiv.org/abs/1506.01186
    """
    require("low", low, above=0)
    require("high", high, above=low)
    require("num_steps", num_steps, least=2)
    require("stop_at", stop_at, above=1)
    require("smoothing", smoothing, least=0, below=1)
    result = RangeTest([], [], [], diverged=False)
    mean = 0.0
    for i in range(num_steps):
        rate = low * (high / low) ** (i / (num_steps - 1))
        loss = step(rate)
        mean = smoothing * mean + (1 - smoothing) * loss
        smoothed = mean / (1 - smoothing ** (i + 1))
        if not math.isfinite(smoothed) or (i and smoothed > stop_at * min(result.smoothed)):
            if i == 0:
                raise ValueError(f"the loss is {loss} before the first update: look there first")
            return result._replace(diverged=True)
        result.rates.append(rate)
        result.losses.append(loss)
        result.smoothed.append(smoothed)
    return result
