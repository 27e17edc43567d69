"""Valleys of the loss at one amount of compute, and the power law of their bottoms.

Models of several sizes that have all had C FLOPs form a valley: the small ones have read much and
learn no more, the large ones have read too little.  Near its bottom, with x = log N,

    L = loss + curvature / 2 (x - log N_best)^2

The bottoms of several C lie on a power law

    y = coefficient x^exponent,   log y = log coefficient + exponent log x

Source: Hoffmann et al. 2022, section 3.2 (approach 2), https://arxiv.org/abs/2203.15556.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from llmcourse.base.arguments import require, require_fields
from llmcourse_labs.scale.laws.fitting import Numbers


class Valley(NamedTuple):
    """The bottom of the losses at one amount of compute."""

    num_parameters: float
    """Of the best size."""
    loss: float
    """At the bottom, in nats per token."""
    curvature: float
    """Second derivative of the loss by log N: a size e times off costs half of it."""


def valley(num_parameters: Numbers, losses: Numbers) -> Valley:
    """Fit a parabola in log N to runs of one amount of compute.

    Args:
        num_parameters: N of every run, 3 or more different ones.
        losses: of every run, in nats per token.

    Raises:
        ValueError: if there are fewer than 3 sizes, numbers that are not finite and above 0, or no
            valley: the parabola opens down, or its bottom is outside the sizes.
    """
    sizes_N, losses_N = _columns("size", num_parameters, "loss", losses)
    if (several := len(set(sizes_N))) < 3:
        raise ValueError(f"{several} sizes make no parabola: give runs of 3 or more sizes")
    x_N = np.log(sizes_N)
    middle = x_N.mean()
    half, slope, level = np.polyfit(x_N - middle, losses_N, 2)
    if half <= 0:
        raise ValueError(
            f"the losses make no valley, the curvature is {2 * half:.3g}: add smaller and larger "
            "sizes at this compute"
        )
    place = middle - slope / (2 * half)
    if not x_N.min() <= place <= x_N.max():
        side = "larger" if place > x_N.max() else "smaller"
        raise ValueError(
            f"the bottom is outside the sizes, which reach from {sizes_N.min():.3g} to "
            f"{sizes_N.max():.3g} parameters: add {side} ones"
        )
    return Valley(math.exp(place), float(level - slope**2 / (4 * half)), float(2 * half))


@dataclass(frozen=True, kw_only=True)
class PowerLaw:
    """y = coefficient x^exponent."""

    coefficient: int | float
    """y at x = 1, above 0."""
    exponent: int | float
    """x times 10 makes y 10^exponent times as large."""

    def __post_init__(self) -> None:
        """Reject numbers of no law."""
        require_fields(self, "coefficient", above=0)

    def value(self, x: int | float) -> float:
        """Return y."""
        require("x", x, above=0)
        return self.coefficient * x**self.exponent


def power_law(x: Numbers, y: Numbers) -> PowerLaw:
    """Fit a power law by least squares on logarithms.

    Raises:
        ValueError: if numbers are not finite and above 0, or there are fewer than 2 different x.
    """
    x_N, y_N = _columns("x", x, "y", y)
    if len(set(x_N)) < 2:
        raise ValueError("one x gives no exponent: give 2 or more different ones")
    exponent, level = np.polyfit(np.log(x_N), np.log(y_N), 1)
    return PowerLaw(coefficient=math.exp(level), exponent=float(exponent))


def _columns(name_x: str, x: Numbers, name_y: str, y: Numbers) -> list[np.ndarray]:
    """Return two columns of numbers above 0, after a look at them."""
    columns = [np.asarray(column, dtype=np.float64) for column in (x, y)]
    if columns[0].shape != columns[1].shape or columns[0].ndim != 1:
        shapes = f"{columns[0].shape} and {columns[1].shape}"
        raise ValueError(f"the shapes are {shapes}: give one {name_y} for every {name_x}")
    for name, column in zip((name_x, name_y), columns, strict=True):
        if (bad := np.flatnonzero(~(np.isfinite(column) & (column > 0)))).size:
            raise ValueError(
                f"{name} {bad[0]} is {column[bad[0]]}: it must be finite and above 0; leave it out"
            )
    return columns


LLAMA3_BUDGET_FLOP = 3.8e25
"""Of Llama 3 405B: Grattafiori et al. 2024, section 1, https://arxiv.org/abs/2407.21783."""
LLAMA3_PRINTED = PowerLaw(coefficient=0.29, exponent=0.53)
"""Best number of tokens for so many FLOPs, as the text prints it: section 3.2.1."""
LLAMA3_FIGURE = PowerLaw(coefficient=0.299, exponent=0.537)
"""The same law in the legend of figure 3, with one more digit."""
