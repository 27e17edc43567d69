"""How the laws are fitted: a Huber loss on logarithms of losses, L-BFGS from many starts at once.

Of a run with loss L and prediction P, delta a length on the scale of logarithms::

    deviation = h(log P - log L),   h(r) = r^2 / 2               where |r| <= delta
                                           delta (|r| - delta/2)  beyond

so that a run that went wrong counts by how far it is off, not by the square of it.

Starts and resampled data are rows of one array, and all rows descend side by side: the fits of a
bootstrap take as long as a few.

Source: Hoffmann et al. 2022, section 3.3, https://arxiv.org/abs/2203.15556; Nocedal and Wright,
Numerical Optimization, 2nd ed. 2006, algorithms 3.1 and 7.4.

Shape suffixes:  S rows, N runs, P numbers of a law.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

HUBER_DELTA = 1e-3
"""On the scale of log losses: a thousandth of the loss.  Hoffmann et al. 2022, section 3.3."""
MOST_STEPS = 300
TOLERANCE = 1e-8
"""A row is at its end when a step takes off less than this part of its value."""
MEMORY = 10
"""Steps from which L-BFGS learns the curvature."""

Numbers = Sequence[int | float] | np.ndarray
Quantity = TypeVar("Quantity", int | float, np.ndarray)
"""Of one run, or of an array of runs."""


def checked_runs(
    law: str, num_numbers: int, num_parameters: Numbers, num_tokens: Numbers, losses: Numbers
) -> Float64[Tensor, "3 N"]:
    """Return the logarithms of sizes, tokens and losses of runs, after a look at them.

    Raises:
        ValueError: if the lengths differ, a number is not finite and above 0, there are fewer
            different runs than numbers in the law, or fewer than 3 sizes or counts of tokens.
    """
    table: dict[str, Any] = {"size": num_parameters, "number of tokens": num_tokens, "loss": losses}
    columns = [np.asarray(column, dtype=np.float64) for column in table.values()]
    if any(column.shape != columns[0].shape or column.ndim != 1 for column in columns):
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(
            f"sizes, tokens and losses have the shapes {shapes}: give one of each for every run"
        )
    for name, column in zip(table, columns, strict=True):
        if (bad := np.flatnonzero(~(np.isfinite(column) & (column > 0)))).size:
            raise ValueError(
                f"the {name} of run {bad[0]} is {column[bad[0]]}: it must be finite and above 0; "
                "leave out failed runs"
            )
    if (distinct := len(set(zip(*columns[:2], strict=True)))) < num_numbers:
        raise ValueError(
            f"{distinct} different runs cannot tell the {num_numbers} numbers of {law}: add runs"
        )
    for name, column in zip(table, columns[:2], strict=False):
        if (several := len(set(column))) < 3:
            raise ValueError(
                f"the runs have {several} different values of {name}: the law needs 3 or more, add "
                f"runs with another {name}"
            )
    return torch.from_numpy(np.log(np.stack(columns)))


def deviations(logs_SN: Float64[Tensor, "S N"], delta: int | float) -> Float64[Tensor, " S"]:
    """Return the mean Huber loss of every row, in units of delta^2."""
    scaled_SN = logs_SN / delta
    zeros_SN = torch.zeros_like(scaled_SN)
    return torch.nn.functional.huber_loss(scaled_SN, zeros_SN, reduction="none").mean(-1)


def lbfgs(
    value_of: Callable[[Float64[Tensor, "S P"], Int64[Tensor, " S"]], Float64[Tensor, " S"]],
    starts_SP: Float64[Tensor, "S P"],
) -> Float64[Tensor, "S P"]:
    """Return where L-BFGS ends from every start.

    Args:
        value_of: takes the numbers of some rows and which rows they are; returns their values.
        starts_SP: of each row.
    """
    ends_SP, rows = starts_SP.clone(), torch.arange(len(starts_SP))
    at_SP = starts_SP
    history: list[tuple[Tensor, ...]] = []
    value_S, slope_SP = _with_slope(value_of, at_SP, rows)
    scale_S = 1 / slope_SP.norm(dim=-1).clamp(min=1e-300)
    for _ in range(MOST_STEPS):
        now = {"at_SP": at_SP, "value_S": value_S, "slope_SP": slope_SP}
        way_SP = _direction(slope_SP, history, scale_S)
        next_SP = _step(value_of, rows, **now, way_SP=way_SP)
        next_S, next_slope_SP = _with_slope(value_of, next_SP, rows)
        step_SP, bend_SP = next_SP - at_SP, next_slope_SP - slope_SP
        along_S, square_S = (step_SP * bend_SP).sum(-1), (bend_SP**2).sum(-1)
        bends_up = along_S > 1e-12 * square_S
        inverse_S = torch.where(bends_up, 1 / along_S, 0.0)  # 0: a row learns nothing from a step
        scale_S = torch.where(bends_up, along_S / square_S, scale_S)
        history = [*history[1 - MEMORY :], (step_SP, bend_SP, inverse_S)]
        # Rows that are at their end leave, so that the others need not wait for them.
        going = value_S - next_S > TOLERANCE * value_S
        ends_SP[rows] = next_SP
        if not going.any():
            break
        rows, at_SP, value_S, slope_SP, scale_S = (
            each[going] for each in (rows, next_SP, next_S, next_slope_SP, scale_S)
        )
        history = [tuple(each[going] for each in kept) for kept in history]
    return ends_SP


def _step(
    value_of: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    *,
    at_SP: Tensor,
    value_S: Tensor,
    slope_SP: Tensor,
    way_SP: Tensor,
) -> Tensor:
    """Return where each row gets on its way down: half the way, if the whole leads up, or less."""
    next_SP, left = at_SP.clone(), torch.arange(len(rows))
    gain_S = (slope_SP * way_SP).sum(-1)
    for halvings in range(30):
        part = 0.5**halvings
        tried_SP = at_SP[left] + part * way_SP[left]
        enough = value_of(tried_SP, rows[left]) <= value_S[left] + 1e-4 * part * gain_S[left]
        next_SP[left[enough]] = tried_SP[enough]
        left = left[~enough]
        if not len(left):
            break
    return next_SP


def _with_slope(
    value_of: Callable[[Tensor, Tensor], Tensor], at_SP: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Return values and gradients."""
    with torch.enable_grad():
        numbers_SP = at_SP.detach().requires_grad_()
        value_S = value_of(numbers_SP, rows)
        (slope_SP,) = torch.autograd.grad(value_S.sum(), numbers_SP)
    return value_S.detach(), slope_SP


def _direction(slope_SP: Tensor, history: list[tuple[Tensor, ...]], scale_S: Tensor) -> Tensor:
    """Return minus the inverse curvature times the slope: the two loops of L-BFGS."""
    way_SP, parts = -slope_SP, []
    for step_SP, bend_SP, inverse_S in reversed(history):
        parts.append(inverse_S * (step_SP * way_SP).sum(-1))
        way_SP = way_SP - parts[-1][:, None] * bend_SP
    way_SP = scale_S[:, None] * way_SP
    for (step_SP, bend_SP, inverse_S), part_S in zip(history, reversed(parts), strict=True):
        rest_S = part_S - inverse_S * (bend_SP * way_SP).sum(-1)
        way_SP = way_SP + rest_S[:, None] * step_SP
    return way_SP
