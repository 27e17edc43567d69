"""The router: which experts a token goes to, and how much each of them counts.

A score for every expert, the best k of them, and weights that add up to 1:

    Mixtral       p = softmax(W x);   the k largest p;         weight_k = p_k / sum of the chosen p
    DeepSeek-V3   s = sigmoid(W x);   the k largest s + bias;  weight_k = s_k / sum of the chosen s

The choice itself has no gradient: moving a score a little changes no choice, as long as no two
scores tie.  The weights have one, and it is how the router learns.

Shape suffixes:  N tokens, D width, E experts, K experts of one token.
"""

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.pairs import differentiable, upcast
from llmcourse.model.config import check_chosen
from llmcourse.model.ops import linear_backward, linear_forward

Scoring = Literal["softmax", "sigmoid"]
"""How logits become scores."""

SCORINGS: tuple[Scoring, ...] = get_args(Scoring)
"""Every scoring by its name."""

FLOOR = 1e-20
"""Added to the sum of the chosen scores, as DeepSeek-V3 does: all of them may be 0 in float32."""


class Routing(NamedTuple):
    """Where every token goes."""

    weights_NK: Float[Tensor, "N K"]
    """How much each chosen expert counts; a row sums to 1."""
    experts_NK: Int[Tensor, "N K"]
    """The chosen experts, the highest score first, all different."""
    probabilities_NE: Float[Tensor, "N E"]
    """The scores of all experts, brought to sum 1: what the balance loss looks at."""


router_logits = differentiable(linear_forward, linear_backward, autocast="float32")
"""The linear layer of a router, which autocast does not narrow: a choice hangs on small differences
(Fedus et al. 2022, section 2.4, "selective precision")."""


class SoftmaxSaved(NamedTuple):
    """What `softmax_backward` needs: its result."""

    probabilities_NE: Float[Tensor, "N E"]


def softmax_forward(
    logits_NE: Float[Tensor, "N E"],
) -> tuple[Float[Tensor, "N E"], SoftmaxSaved]:
    """Turn logits into probabilities:  p_e = exp(l_e) / sum over j of exp(l_j)."""
    probabilities_NE = logits_NE.softmax(-1)
    return probabilities_NE, SoftmaxSaved(probabilities_NE)


def softmax_backward(
    dp_NE: Float[Tensor, "N E"], saved: SoftmaxSaved
) -> tuple[Float[Tensor, "N E"]]:
    """Gradient of `softmax_forward`:  dl = p (dp - sum over j of p_j dp_j)."""
    (p_NE,) = saved
    return (p_NE * (dp_NE - (p_NE * dp_NE).sum(-1, keepdim=True)),)


softmax = differentiable(softmax_forward, softmax_backward, autocast="float32")


def top_experts(scores_NE: Float[Tensor, "N E"], experts_per_token: int) -> Int[Tensor, "N K"]:
    """Return the experts with the k largest scores of each token, the largest first.

    Of equal scores the expert with the lower number comes first.  A stable sort sees to that on
    every machine; torch.topk promises nothing about ties.

    Raises:
        ValueError: if k is not from 1 to the number of experts.
    """
    check_chosen(experts_per_token, scores_NE.shape[-1])
    order_NE = scores_NE.detach().sort(dim=-1, descending=True, stable=True).indices
    return order_NE[:, :experts_per_token].contiguous()  # not a view, which would keep all E


class ChosenSaved(NamedTuple):
    """What `chosen_weights_backward` needs: its result, the divisor, and where the scores stood."""

    weights_NK: Float[Tensor, "N K"]
    total_N1: Float[Tensor, "N 1"]
    experts_NK: Int[Tensor, "N K"]
    scores_NE: Float[Tensor, "N E"]


def chosen_weights_forward(
    scores_NE: Float[Tensor, "N E"], experts_NK: Int[Tensor, "N K"]
) -> tuple[Float[Tensor, "N K"], ChosenSaved]:
    """Bring the scores of the chosen experts to sum 1:  w_k = s_k / (sum of the chosen s)."""
    chosen_NK = scores_NE.gather(-1, experts_NK)
    total_N1 = chosen_NK.sum(-1, keepdim=True) + FLOOR
    weights_NK = chosen_NK / total_N1
    return weights_NK, ChosenSaved(weights_NK, total_N1, experts_NK, scores_NE)


def chosen_weights_backward(
    dw_NK: Float[Tensor, "N K"], saved: ChosenSaved
) -> tuple[Float[Tensor, "N E"]]:
    """Gradient of `chosen_weights_forward` for all scores, 0 for those that were not chosen.

    ds_k = (dw_k - sum over j of dw_j w_j) / (sum of the chosen s)

    With one expert for a token it is 0 everywhere: the weight is 1 whatever the score.
    """
    projection_N1 = (dw_NK * saved.weights_NK).sum(-1, keepdim=True)
    dchosen_NK = (dw_NK - projection_N1) / saved.total_N1
    return (torch.zeros_like(saved.scores_NE).scatter_(-1, saved.experts_NK, dchosen_NK),)


chosen_weights = differentiable(chosen_weights_forward, chosen_weights_backward, autocast="float32")


def route(
    x_ND: Float[Tensor, "N D"],
    w_router_ED: Float[Tensor, "E D"],
    *,
    experts_per_token: int,
    scoring: Scoring = "softmax",
    bias_E: Float[Tensor, " E"] | None = None,
) -> Routing:
    """Choose the experts of every token, and their weights.

    Scores are computed in float32 at least.

    Args:
        x_ND: activations.
        w_router_ED: one row per expert.
        experts_per_token: k, from 1 to the number of experts.
        scoring: "softmax" over all experts, or "sigmoid" of each by itself.
        bias_E: added to the scores for the choice alone, not to the weights; with sigmoid only.

    Raises:
        ValueError: if k is outside its range, there is no such scoring, or softmax is given a bias.

    Source:
        Jiang et al. 2024 (Mixtral), section 2.1, https://arxiv.org/abs/2401.04088;
        DeepSeek-AI 2024 (DeepSeek-V3), equations 12 to 16, https://arxiv.org/abs/2412.19437
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring must be one of {', '.join(SCORINGS)}, got {scoring!r}")
    if bias_E is not None and scoring == "softmax":
        raise ValueError("bias_E goes with scoring='sigmoid'; leave it out for softmax")
    logits_NE = upcast(router_logits(x_ND, w_router_ED))
    scores_NE = softmax(logits_NE) if scoring == "softmax" else logits_NE.sigmoid()
    by_NE = scores_NE.detach() if bias_E is None else scores_NE.detach() + bias_E
    experts_NK = top_experts(by_NE, experts_per_token)
    weights_NK = chosen_weights(scores_NE, experts_NK)
    if scoring == "softmax":
        return Routing(weights_NK, experts_NK, scores_NE)
    everyone_NE = torch.arange(scores_NE.shape[-1], device=x_ND.device).expand_as(scores_NE)
    return Routing(weights_NK, experts_NK, chosen_weights(scores_NE, everyone_NE))
