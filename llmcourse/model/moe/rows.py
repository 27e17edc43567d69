"""Rows for the experts: sort the tokens' choices by expert, take, and put the results back.

A token that goes to k experts is k rows.  `dispatch` plans, once for both directions:

    take      rows_r = x[token of r]                    one row per kept choice, sorted by expert
    combine   y_n = sum over k of weight_nk rows[position of choice nk]

Each is the other's backward pass, apart from the weights.  Both gather; nothing is added in an
order that could differ from run to run.

Shape suffixes:  N tokens, D width, E experts, K experts of one token, R routed rows.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.pairs import differentiable, upcast

DROPPED = -1
"""Position of a choice that found its expert full."""


class Plan(NamedTuple):
    """Which row is which choice of which token."""

    choices_R: Int[Tensor, " R"]
    """The choice of each row, counted through the flattened N x K choices: token * K + k."""
    tokens_R: Int[Tensor, " R"]
    """The token of each row."""
    positions_NK: Int[Tensor, "N K"]
    """The row of each choice, `DROPPED` where it has none."""
    counts_E: Int[Tensor, " E"]
    """Rows of each expert, in order; zeros are possible."""


def capacity(
    num_tokens: int, experts_per_token: int, num_experts: int, *, capacity_factor: int | float
) -> int:
    """Return the rows that one expert takes at most:  ceil(factor N k / E).

    The factor counts as its decimals say: 1.1 is 11/10 here, not the binary number beside it.

    Args:
        num_tokens: N.
        experts_per_token: k.
        num_experts: E.
        capacity_factor: 1 is the fair share, exactly; positive.

    Raises:
        ValueError: if the factor is not a positive number.

    Source:
        Fedus et al. 2022 (Switch Transformer), equation 3, https://arxiv.org/abs/2101.03961
    """
    if not (capacity_factor > 0 and math.isfinite(capacity_factor)):
        raise ValueError(f"capacity_factor must be positive and finite, got {capacity_factor}")
    exact = Fraction(str(capacity_factor)) * num_tokens * experts_per_token / num_experts
    return math.ceil(exact)


def count_choices(experts_NK: Int[Tensor, "N K"], num_experts: int) -> Int[Tensor, " E"]:
    """Count how many choices each expert has got."""
    return torch.bincount(experts_NK.flatten(), minlength=num_experts)


def dispatch(
    experts_NK: Int[Tensor, "N K"], num_experts: int, *, capacity_factor: int | float = 0.0
) -> Plan:
    """Sort the choices by expert; the tokens of one expert keep their order.

    With a capacity, an expert takes the first tokens that chose it, whichever of their k choices it
    was, and the rest of its choices have no row: they add nothing to their tokens, and the other
    weights stay as they are.

    Args:
        experts_NK: the chosen experts, 0 to num_experts - 1.
        num_experts: E.
        capacity_factor: see `capacity`; 0 is no limit.

    Raises:
        ValueError: if the factor is negative or not finite, or an expert is outside its range.
    """
    chosen = experts_NK.flatten()
    if chosen.numel() and not 0 <= chosen.min() <= chosen.max() < num_experts:
        raise ValueError(
            f"experts must be from 0 to {num_experts - 1}, got {int(chosen.min())} to "
            f"{int(chosen.max())}"
        )
    counts_E = count_choices(experts_NK, num_experts)
    expert_R, choices_R = chosen.sort(stable=True)
    if capacity_factor:
        num_tokens, num_chosen = experts_NK.shape
        most = capacity(num_tokens, num_chosen, num_experts, capacity_factor=capacity_factor)
        first_E = counts_E.cumsum(0) - counts_E
        place_R = torch.arange(len(chosen), device=chosen.device) - first_E[expert_R]
        choices_R, counts_E = choices_R[place_R < most], counts_E.clamp(max=most)
    positions = torch.full_like(chosen, DROPPED)
    positions[choices_R] = torch.arange(len(choices_R), device=chosen.device)
    tokens_R = choices_R // experts_NK.shape[1]
    return Plan(choices_R, tokens_R, positions.view(experts_NK.shape), counts_E)


def _sum_of_rows(
    rows_RD: Float[Tensor, "R D"],
    positions_NK: Int[Tensor, "N K"],
    weights_NK: Float[Tensor, "N K"] | None = None,
) -> Float[Tensor, "N D"]:
    """Add up the rows of every token, weighted or not, in float32 at least."""
    y_ND = upcast(rows_RD.new_zeros(len(positions_NK), rows_RD.shape[1]))
    for k in range(positions_NK.shape[1]):
        found_ND = upcast(_rows_at(rows_RD, positions_NK[:, k]))
        y_ND += found_ND if weights_NK is None else found_ND * weights_NK[:, k, None]
    return y_ND.to(rows_RD.dtype)


def _rows_at(rows_RD: Float[Tensor, "R D"], positions_N: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    """Return the rows at some positions, zeros for what was dropped."""
    found_ND = rows_RD[positions_N.clamp(min=0)]
    return found_ND.masked_fill_((positions_N == DROPPED).unsqueeze(-1), 0.0)


class TakeSaved(NamedTuple):
    """What `take_backward` needs: where each choice of a token went."""

    positions_NK: Int[Tensor, "N K"]


def take_forward(
    x_ND: Float[Tensor, "N D"], tokens_R: Int[Tensor, " R"], positions_NK: Int[Tensor, "N K"]
) -> tuple[Float[Tensor, "R D"], TakeSaved]:
    """Copy the token of every row:  rows_r = x[token of r]."""
    return x_ND[tokens_R], TakeSaved(positions_NK)


def take_backward(drows_RD: Float[Tensor, "R D"], saved: TakeSaved) -> tuple[Float[Tensor, "N D"]]:
    """Gradient of `take_forward`: a token gathers the gradients of all its rows."""
    return (_sum_of_rows(drows_RD, saved.positions_NK),)


_take = differentiable(take_forward, take_backward)


def take(x_ND: Float[Tensor, "N D"], plan: Plan) -> Float[Tensor, "R D"]:
    """Return the rows that the experts read, sorted by expert."""
    return _take(x_ND, plan.tokens_R, plan.positions_NK)


class CombineSaved(NamedTuple):
    """What `combine_backward` needs: the rows, the weights, and which is which."""

    rows_RD: Float[Tensor, "R D"]
    weights_NK: Float[Tensor, "N K"]
    choices_R: Int[Tensor, " R"]
    positions_NK: Int[Tensor, "N K"]


def combine_forward(
    rows_RD: Float[Tensor, "R D"],
    weights_NK: Float[Tensor, "N K"],
    choices_R: Int[Tensor, " R"],
    positions_NK: Int[Tensor, "N K"],
) -> tuple[Float[Tensor, "N D"], CombineSaved]:
    """Add up what the experts of a token return:  y_n = sum over k of w_nk rows[position of nk].

    A dropped choice adds nothing.  The sum has the dtype of the rows.
    """
    saved = CombineSaved(rows_RD, weights_NK, choices_R, positions_NK)
    return _sum_of_rows(rows_RD, positions_NK, weights_NK), saved


def combine_backward(
    dy_ND: Float[Tensor, "N D"], saved: CombineSaved
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "N K"]]:
    """Gradients of `combine_forward` for the rows and for the weights.

    drows_r = w_nk dy_n,  dw_nk = sum over d of dy_nd rows[position of nk]_d

    The weight of a dropped choice gets 0.
    """
    rows_RD, weights_NK, choices_R, positions_NK = saved
    num_choices = weights_NK.shape[1]
    dy_ND = upcast(dy_ND)
    weights_R1 = weights_NK.flatten()[choices_R].unsqueeze(-1)
    drows_RD = (dy_ND[choices_R // num_choices] * weights_R1).to(rows_RD.dtype)
    dweights_NK = torch.stack(
        [(dy_ND * _rows_at(rows_RD, positions_NK[:, k])).sum(-1) for k in range(num_choices)], -1
    )
    return drows_RD, dweights_NK.to(weights_NK.dtype)


_combine = differentiable(combine_forward, combine_backward)


def combine(
    rows_RD: Float[Tensor, "R D"], plan: Plan, weights_NK: Float[Tensor, "N K"]
) -> Float[Tensor, "N D"]:
    """Put the results of the experts back to their tokens, weighted."""
    return _combine(rows_RD, weights_NK, plan.choices_R, plan.positions_NK)
