"""Policies that are pushed hard towards a score: proxy and gold, and what keeps them together.

A policy is learnt from a proxy, a score that can be computed, and should be good by gold, what one
really wants.  Here the answers are a list, each with both scores, so that every policy is a row of
probabilities and every mean and KL a sum: nothing is trained, and nothing is left to chance but the
world itself.

Shape suffixes:  N answers, M members of an ensemble.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.base.runtime import generator

# --- policies by their scores


def kl(policy_N: Float[Tensor, " N"], reference_N: Float[Tensor, " N"]) -> float:
    """Return the sum of p log(p / ref), in nats; what the policy never says adds nothing."""
    return torch.special.xlogy(policy_N, policy_N / reference_N).sum().item()


def kl_optimal(
    reference_N: Float[Tensor, " N"], scores_N: Float[Tensor, " N"], beta: int | float
) -> Float[Tensor, " N"]:
    """Return the policy with the most of: expected score minus beta KL.

    Formula::

        p(y) = ref(y) exp(score(y) / beta) / Z

    Args:
        reference_N: probabilities.
        scores_N: of the answers.
        beta: what a nat of KL costs, above 0.

    Raises:
        ValueError: if beta is not above 0.

    Source:
        Rafailov et al. 2023, equation 4, https://arxiv.org/abs/2305.18290
    """
    require("beta", beta, above=0)
    return (reference_N.log() + scores_N / beta).softmax(0)


def within_kl(
    reference_N: Float[Tensor, " N"], scores_N: Float[Tensor, " N"], budget: int | float
) -> Float[Tensor, " N"]:
    """Return the policy with the highest expected score among all within a budget of KL.

    It is a tilted one; its beta is found by halving.

    Args:
        reference_N: probabilities, all above 0.
        scores_N: of the answers.
        budget: in nats, 0 or greater.

    Raises:
        ValueError: if the budget is negative, or all scores are equal.
    """
    require("budget", budget, least=0)
    if scores_N.amax() == scores_N.amin():
        raise ValueError("all answers have the same score: there is nothing to go to")
    if budget == 0:
        return reference_N.clone()
    spread = (scores_N - (reference_N * scores_N).sum()).square().mul(reference_N).sum().sqrt()
    low, high = -12.0, 12.0  # log of the spread of scores / beta
    for _ in range(30):
        middle = (low + high) / 2
        policy_N = kl_optimal(reference_N, scores_N, (spread / math.exp(middle)).item())
        low, high = (middle, high) if kl(policy_N, reference_N) < budget else (low, middle)
    return policy_N


def best_of_n(
    reference_N: Float[Tensor, " N"], scores_N: Float[Tensor, " N"], n: int
) -> Float[Tensor, " N"]:
    """Return the probabilities of the answer with the highest score among n draws.

    Formula, with F(s) the probability of a score up to s::

        p(score is s) = F(s)^n - F(below s)^n

    Answers with the same score share it as the reference does: the first that was drawn is taken.

    Args:
        reference_N: probabilities.
        scores_N: of the answers.
        n: draws, 1 or more.

    Raises:
        ValueError: if n is below 1.
    """
    require("n", n, least=1)
    levels, level_of_N = scores_N.unique(return_inverse=True)
    mass = torch.zeros_like(levels).index_add(0, level_of_N, reference_N)
    up_to = mass.cumsum(0).clamp(max=1)
    below = torch.cat([up_to.new_zeros(1), up_to[:-1]])
    won = up_to**n - below**n
    return reference_N * (won / mass.clamp_min(torch.finfo(mass.dtype).tiny))[level_of_N]


def best_of_n_bound(n: int) -> float:
    """Return log n - (n - 1) / n: the most KL, in nats, that the best of n draws can have.

    It is nearly reached where no two answers have the same score and every single one is very rare,
    as long texts are.  Among few answers the KL is lower: it never exceeds -log of the
    probability of the best one.

    Raises:
        ValueError: if n is below 1.

    Source:
        Beirami et al. 2024, theorem 3.1, https://arxiv.org/abs/2401.01879
    """
    require("n", n, least=1)
    return math.log(n) - (n - 1) / n


def combined(scores_MN: Float[Tensor, "M N"], how: str) -> Float[Tensor, " N"]:
    """Return one score from those of an ensemble: "mean", or "worst" for the lowest.

    Raises:
        ValueError: if `how` is neither.

    Source:
        Coste et al. 2024, section 3, https://arxiv.org/abs/2310.02743
    """
    if how not in ("mean", "worst"):
        raise ValueError(f"how must be mean or worst, got {how!r}")
    return scores_MN.mean(0) if how == "mean" else scores_MN.amin(0)


# --- a world in which both scores are known


class World(NamedTuple):
    """Answers with what they are worth, and what several judges say of them."""

    reference_N: Float[Tensor, " N"]
    """How likely the first policy gives each answer: all alike."""
    gold_N: Float[Tensor, " N"]
    """What each is worth."""
    proxies_MN: Float[Tensor, "M N"]
    """What each judge says."""
    tricks_MN: Shaped[Tensor, "M N"]
    """Whether the answer fools the judge."""


TRICK_SHARE = 0.01
"""Of the answers that fool a judge."""

TRICK_COSTS, TRICK_EARNS = 2.5, 2.5
"""How much worse an answer is that fools somebody, and how much better the judge finds it."""

NOISE = 0.7
"""Standard deviation of a judge's other errors; that of what the answers are worth is 1."""


def trick_world(
    seed: int, *, members: int = 5, shared: float = 0.0, num_answers: int = 20_000
) -> World:
    """Return answers to judge, of which each judge has a weak spot for one in a hundred.

    Formula::

        gold  = quality - TRICK_COSTS (if it fools any judge)
        proxy = quality + TRICK_EARNS (if it fools this one) + noise

    Args:
        seed: of the world.
        members: judges, 1 or more.
        shared: part of the weak spots that all judges have in common, 0 to 1.
        num_answers: in all.

    Raises:
        ValueError: if an argument is outside its range.
    """
    require("members", members, least=1)
    require("shared", shared, least=0, most=1)
    require("num_answers", num_answers, least=2)
    draws = generator(seed)
    quality_N = torch.randn(num_answers, generator=draws, dtype=torch.float64)
    place_N = torch.rand(num_answers, generator=draws, dtype=torch.float64)
    common, own = TRICK_SHARE * shared, TRICK_SHARE * (1 - shared)
    # The weak spots lie side by side: first the common one, then each judge's own.
    starts_M1 = common + own * torch.arange(members)[:, None]
    own_MN = (place_N >= starts_M1) & (place_N < starts_M1 + own)
    tricks_MN = own_MN | (place_N < common)
    noise_MN = NOISE * torch.randn(members, num_answers, generator=draws, dtype=torch.float64)
    return World(
        torch.full_like(quality_N, 1 / num_answers),
        quality_N - TRICK_COSTS * tricks_MN.any(0),
        quality_N + TRICK_EARNS * tricks_MN + noise_MN,
        tricks_MN,
    )


class Point(NamedTuple):
    """Where a policy is."""

    kl: float
    """Nats from the reference."""
    proxy: float
    """Expected score by what the policy was made for."""
    gold: float
    """Expected worth."""


def over_optimised(
    world: World, scores_N: Float[Tensor, " N"], budgets: Sequence[int | float]
) -> list[Point]:
    """Return where the best policies by a score end up, for each budget of KL."""
    found = []
    for budget in budgets:
        policy_N = within_kl(world.reference_N, scores_N, budget)
        proxy, gold = ((policy_N * each).sum().item() for each in (scores_N, world.gold_N))
        found.append(Point(kl(policy_N, world.reference_N), proxy, gold))
    return found


def best_stop(gold: Sequence[int | float], *, patience: int) -> int:
    """Return the place at which a run is to stop: the best so far, once others did not better it.

    Args:
        gold: what held-out judgements say along the way, in order; at least one.
        patience: how many later ones in a row may fail to be better, 1 or more.

    Raises:
        ValueError: if there is none, or patience is below 1.
    """
    require("patience", patience, least=1)
    require("number of judgements", len(gold), least=1)
    best = 0
    for place, value in enumerate(gold):
        if value > gold[best]:
            best = place
        elif place - best >= patience:
            break
    return best
