"""Learning from pairs of answers of which one was preferred: a reward model, or the policy itself.

Both ask how likely the preferred answer wins.  Bradley and Terry let each answer have a score r::

    p(chosen is preferred) = sigma(r_chosen - r_rejected),     loss = -log of it

A reward model computes the score with a head of one number on a decoder.  Direct preference
optimization (DPO) reads the score off the policy itself, beside a reference that stays as it is::

    r = beta (log policy(answer) - log reference(answer))

At the start both models are one, every score is 0, and the loss is ln 2.

Shape suffixes:  B batch (pairs, or answers), T time (tokens), D width, A answers to choose from.

Source:
    Ouyang et al. 2022, section 3.5, https://arxiv.org/abs/2203.02155 (reward model);
    Rafailov et al. 2023, equation 7, https://arxiv.org/abs/2305.18290 (DPO).
"""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.base.arguments import require
from llmcourse.model import Transformer
from llmcourse_labs.tuning.likelihood import AnswerRows

# --- losses


class PreferenceLoss(NamedTuple):
    """What a batch of pairs says of a policy."""

    losses_B: Float[Tensor, " B"]
    """Loss of each pair, in nats for DPO."""
    chosen_B: Float[Tensor, " B"]
    """Score of the chosen answers, without a gradient."""
    rejected_B: Float[Tensor, " B"]
    """Score of the rejected answers, without a gradient."""

    @property
    def margins(self) -> Float[Tensor, " B"]:
        """By how much the chosen answer is ahead."""
        return self.chosen_B - self.rejected_B


def bradley_terry_loss(
    chosen_B: Float[Tensor, " B"], rejected_B: Float[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Return the loss of each pair::

        loss = -log sigma(r_chosen - r_rejected)
        dloss/dr_chosen = -sigma(r_rejected - r_chosen) = -dloss/dr_rejected

    Args:
        chosen_B: scores of the answers that were preferred.
        rejected_B: scores of the others.

    Raises:
        ValueError: if a score is not finite.
    """
    _require_finite("score", chosen_B, rejected_B)
    return -F.logsigmoid(chosen_B - rejected_B)


def dpo_loss(
    chosen_B: Float[Tensor, " B"],
    rejected_B: Float[Tensor, " B"],
    reference_chosen_B: Float[Tensor, " B"],
    reference_rejected_B: Float[Tensor, " B"],
    *,
    beta: int | float,
) -> PreferenceLoss:
    """Return the loss of direct preference optimization::

        r = beta (log policy(answer) - log reference(answer)),   loss = -log sigma(r_c - r_r)
        dloss/dlog policy(chosen) = -beta sigma(r_r - r_c) = -dloss/dlog policy(rejected)

    Args:
        chosen_B: log p that the policy gives to the answers that were preferred, all their tokens.
        rejected_B: to the others.
        reference_chosen_B: that the reference gives.
        reference_rejected_B: to the others.
        beta: what a nat away from the reference costs, above 0.

    Raises:
        ValueError: if beta is not above 0, or a log-probability is not finite.
    """
    require("beta", beta, above=0)
    scored_c = beta * (chosen_B - reference_chosen_B)
    scored_r = beta * (rejected_B - reference_rejected_B)
    return PreferenceLoss(
        bradley_terry_loss(scored_c, scored_r), scored_c.detach(), scored_r.detach()
    )


def ipo_loss(
    chosen_B: Float[Tensor, " B"],
    rejected_B: Float[Tensor, " B"],
    reference_chosen_B: Float[Tensor, " B"],
    reference_rejected_B: Float[Tensor, " B"],
    *,
    beta: int | float,
) -> PreferenceLoss:
    """Return the loss of IPO, which stops at a margin where DPO asks for ever more::

        loss = (h_chosen - h_rejected - 1 / (2 beta))^2,    h = log policy - log reference

    Arguments and errors as for `dpo_loss`.  The paper sums log-probabilities over an answer; some
    libraries take the mean over its tokens.  Scores are beta h.

    Source:
        Azar et al. 2024, equation 17, https://arxiv.org/abs/2310.12036
    """
    as_dpo = dpo_loss(chosen_B, rejected_B, reference_chosen_B, reference_rejected_B, beta=beta)
    ahead_B = (chosen_B - reference_chosen_B) - (rejected_B - reference_rejected_B)
    return as_dpo._replace(losses_B=(ahead_B - 1 / (2 * beta)) ** 2)


def simpo_loss(
    chosen_B: Float[Tensor, " B"],
    rejected_B: Float[Tensor, " B"],
    *,
    beta: int | float,
    margin: int | float,
) -> PreferenceLoss:
    """Return the loss of SimPO: no reference, the mean over tokens, and a margin to be had::

        r = beta log policy(answer) / its number of tokens,   loss = -log sigma(r_c - r_r - margin)

    Args:
        chosen_B: mean log p of a token of the answers that were preferred.
        rejected_B: of the others.
        beta: the scale, above 0.
        margin: by which the chosen answer should be ahead, 0 or more.

    Raises:
        ValueError: if a number is outside its range, or a log-probability is not finite.

    Source:
        Meng et al. 2024, equation 6, https://arxiv.org/abs/2405.14734
    """
    require("beta", beta, above=0)
    require("margin", margin, least=0)
    losses_B = bradley_terry_loss(beta * chosen_B - margin, beta * rejected_B)
    return PreferenceLoss(losses_B, beta * chosen_B.detach(), beta * rejected_B.detach())


def optimal_policy(
    reference_A: Float[Tensor, "*B A"], utilities_A: Float[Tensor, "*B A"], *, beta: int | float
) -> Float[Tensor, "*B A"]:
    """Return the policy that has the most utility for its distance from the reference::

        pi* = argmax of  sum over a of pi(a) u(a)  -  beta KL(pi || reference)
            = reference exp(u / beta) / Z

    Args:
        reference_A: probability of each answer, above 0; their sum is 1.
        utilities_A: what each is worth.
        beta: what a nat away from the reference costs, above 0.

    Raises:
        ValueError: if beta is not above 0.

    Source:
        Rafailov et al. 2023, equation 4, https://arxiv.org/abs/2305.18290
    """
    require("beta", beta, above=0)
    return (reference_A.log() + utilities_A / beta).softmax(-1)


def _require_finite(name: str, *values: Tensor) -> None:
    """Refuse numbers that would make every weight NaN in the next step."""
    for each in values:
        if not each.isfinite().all():
            bad = each.detach()[~each.isfinite()][0].item()
            raise ValueError(
                f"a {name} is {bad}: all must be finite; lower the learning rate, or look for an "
                "answer whose probability is 0"
            )


# --- the reward model


class RewardModel(nn.Module):
    """A decoder that gives an answer one number, its reward, where it has read the whole of it.

    r = w · h(last token of the answer),   w = 0 at the start

    Args:
        model: whose weights it begins with; a copy of them is trained.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.body = copy.deepcopy(model)
        vars(self.body).update(project=_as_it_is)
        self.w_D = nn.Parameter(model.embedding.new_zeros(model.config.width))

    def forward(self, rows: AnswerRows) -> Float[Tensor, " B"]:
        """Return the reward of each answer."""
        hidden_BTD = self.body(rows.ids_BT)
        places_T = torch.arange(rows.ids_BT.shape[1], device=rows.ids_BT.device)
        last_B = (rows.is_answer_BT * places_T).argmax(1)
        return hidden_BTD[torch.arange(len(last_B)), last_B] @ self.w_D


def _as_it_is(x_BTD: Tensor, _w_VD: Tensor) -> Tensor:
    """Return what the head would read; see `Transformer.project`."""
    return x_BTD
