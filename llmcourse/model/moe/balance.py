"""Keeping the experts equally busy: by a loss, or by a bias that only chooses.

Shape suffixes:  N tokens, E experts.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.base.pairs import differentiable


class BalanceSaved(NamedTuple):
    """What `balance_loss_backward` needs: the slope that all tokens share."""

    slope_E: Float[Tensor, " E"]
    probabilities_NE: Float[Tensor, "N E"]


def balance_loss_forward(
    probabilities_NE: Float[Tensor, "N E"], counts_E: Int[Tensor, " E"]
) -> tuple[Float[Tensor, ""], BalanceSaved]:
    """Measure how unequally the experts are used:  loss = E * sum over e of f_e P_e.

    f_e is the share of all choices that fell on expert e, P_e the mean probability that the router
    gave it.  Uniform f or uniform P gives 1; when both favour the same experts it is greater, up to
    E / k for k choices of each token.  The choices have no gradient, the probabilities have.

    Args:
        probabilities_NE: of every token for every expert, each row summing to 1.
        counts_E: choices of each expert, the dropped ones too.

    Returns:
        The loss, dimensionless, and what the backward pass needs.

    Raises:
        ValueError: if there is no token or no choice.

    Source:
        Fedus et al. 2022 (Switch Transformer), equations 4 to 6, https://arxiv.org/abs/2101.03961,
        for k = 1; for more choices f is divided by k as well, so that uniform stays 1 (transformers
        does not: its loss of Mixtral is k times this one).
    """
    num_choices = int(counts_E.sum())
    if not len(probabilities_NE) or not num_choices:
        raise ValueError("the balance of no token is not defined: give at least one")
    share_E = counts_E.to(probabilities_NE.dtype) / num_choices
    slope_E = share_E * (len(counts_E) / len(probabilities_NE))
    return (probabilities_NE.sum(0) * slope_E).sum(), BalanceSaved(slope_E, probabilities_NE)


def balance_loss_backward(
    dloss: Float[Tensor, ""], saved: BalanceSaved
) -> tuple[Float[Tensor, "N E"]]:
    """Gradient of `balance_loss_forward` for the probabilities:  dp_ne = dloss E f_e / N."""
    return ((dloss * saved.slope_E).expand_as(saved.probabilities_NE),)


balance_loss = differentiable(balance_loss_forward, balance_loss_backward, autocast="float32")


@torch.no_grad()
def update_bias(
    bias_E: Float[Tensor, " E"], counts_E: Int[Tensor, " E"], *, rate: int | float = 0.001
) -> Float[Tensor, " E"]:
    """Move the bias of every expert a step towards balance, in place; return it.

    bias_e += rate * sign(mean count - count_e)

    The bias decides who is chosen and nothing else, so that this balances without a gradient.  To
    be called after each step with the choices of the whole batch, of all ranks.

    Args:
        bias_E: added to the scores for the choice, see `route`.
        counts_E: choices of each expert.
        rate: of one step, in the units of a score; positive.

    Raises:
        ValueError: if the rate is not positive.

    Source:
        Wang et al. 2024, algorithm 1, https://arxiv.org/abs/2408.15664; DeepSeek-V3 used 0.001.
    """
    require("rate", rate, above=0)
    # Whole numbers, so that an expert exactly at the mean stays where it is.
    missing_E = counts_E.sum() - counts_E * len(counts_E)
    return bias_E.add_(missing_E.sign().to(bias_E.dtype), alpha=rate)
