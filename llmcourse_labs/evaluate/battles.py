"""Which model is the best, by battles: who wins against whom, and how strong that makes each.

The model of Bradley and Terry gives each player a strength s, and the chance that i beats j is::

    P(i beats j) = 1 / (1 + exp(s_j - s_i))

Elo's rating estimates the same strengths by a step after each battle, so it depends on their order.
A draw counts as half a win of either.

Shape suffixes:  K players, D draws of the bootstrap.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse_labs.evaluate.intervals import CONFIDENCE, Interval

START = 1_000.0
"""Elo points of a player who has not fought yet."""

PER_NAT = 400 / math.log(10)
"""Elo points of a strength of 1: by custom, 400 points are a factor of ten in the odds."""

_MOST_ROUNDS = 20_000


class Battle(NamedTuple):
    """Two players, and what the first one got."""

    first: str
    """A player."""
    second: str
    """Another one."""
    score: int | float
    """1.0 if the first one won, 0.0 if the second did, 0.5 for a draw."""


def chance_to_win(strength: int | float, other: int | float) -> float:
    """Return the chance that a player of the first strength beats one of the other."""
    return 1 / (1 + math.exp(other - strength))


def elo_points(strength: int | float) -> float:
    """Return a strength in Elo points, with the mean of all players at `START`."""
    return START + PER_NAT * strength


def bradley_terry(battles: Sequence[Battle]) -> dict[str, float]:
    """Return the strengths, with mean 0, under which the battles are likeliest.

    At the maximum each player's expected wins equal the real ones.  Solved for one player after
    the other that is, with p = exp(s)::

        p_i  <-  wins_i / sum over j of n_ij / (p_i + p_j)

    and each round makes the battles likelier.

    Raises:
        ValueError: if there is no battle, a player fights himself, a score is none, or the battles
            leave a strength without a finite value: some group never lost to the others.

    Source: Zermelo 1929, https://doi.org/10.1007/BF01180541; Bradley and Terry 1952,
        https://doi.org/10.2307/2334029; Hunter 2004, section 2,
        https://doi.org/10.1214/aos/1079120141
    """
    players, wins_KK = _wins(battles)
    if not bool(_is_connected(wins_KK[None])):
        raise ValueError(
            "some players never lost to the others, or never met them: their strength has no "
            "finite value; give more battles, or leave these players out"
        )
    return dict(zip(players, _strengths(wins_KK[None])[0].tolist(), strict=True))


def bradley_terry_intervals(
    battles: Sequence[Battle],
    *,
    generator: torch.Generator,
    draws: int = 200,
    confidence: int | float = CONFIDENCE,
) -> dict[str, Interval]:
    """Return an interval of each player's strength: between quantiles over samples of the battles.

    Args:
        battles: as many are drawn from them, with replacement, for each sample.
        generator: of the draws.
        draws: how many samples.
        confidence: between 0 and 1.

    Raises:
        ValueError: as `bradley_terry`; also if a sample leaves a strength without a finite value.
    """
    require("draws", draws, least=1)
    require("confidence", confidence, above=0, below=1)
    players, _ = _wins(battles)
    place = {name: k for k, name in enumerate(players)}
    size, number = len(players), len(battles)
    cells = torch.tensor([place[b.first] * size + place[b.second] for b in battles])
    back = torch.tensor([place[b.second] * size + place[b.first] for b in battles])
    scores = torch.tensor([b.score for b in battles], dtype=torch.float64)
    flat_DK2 = torch.zeros(draws, size * size, dtype=torch.float64)
    drawn = torch.randint(number, (draws, number), generator=generator)
    flat_DK2.scatter_add_(1, cells[drawn], scores[drawn])
    flat_DK2.scatter_add_(1, back[drawn], 1 - scores[drawn])
    wins_DKK = flat_DK2.view(draws, size, size)
    lost = int((~_is_connected(wins_DKK)).sum())
    if lost:
        raise ValueError(
            f"in {lost} of {draws} samples some players never lost to the others: give more "
            "battles, or leave these players out"
        )
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    low_K, high_K = torch.quantile(_strengths(wins_DKK), ends, dim=0).tolist()
    found = zip(low_K, high_K, strict=True)
    return {name: Interval(*each) for name, each in zip(players, found, strict=True)}


def elo(battles: Sequence[Battle], *, step: int | float = 32.0) -> dict[str, float]:
    """Return each player's rating after the battles, in the order in which they were fought.

    Everybody begins with 1,000 points.  After a battle the first player gets, and the second one
    loses::

        step * (score - expected),   expected = 1 / (1 + 10^((r_second - r_first) / 400))

    Args:
        battles: in their order.
        step: points that a won battle brings at most, above 0.

    Raises:
        ValueError: as `bradley_terry`, but for strengths without a finite value, which Elo's
            rating does not notice.

    Source: Elo 1978, The Rating of Chessplayers, sections 1.6 and 8.2.
    """
    require("step", step, above=0)
    players, _ = _wins(battles)
    rating = dict.fromkeys(players, START)
    for first, second, score in battles:
        expected = chance_to_win(rating[first] / PER_NAT, rating[second] / PER_NAT)
        rating[first] += step * (score - expected)
        rating[second] -= step * (score - expected)
    return rating


# --- parts


def _wins(battles: Sequence[Battle]) -> tuple[list[str], Float64[Tensor, "K K"]]:
    """Return the players in the order in which they appear, and how often row i beat column j."""
    if not battles:
        raise ValueError("no battle was given: strengths come from one or more")
    players = list(dict.fromkeys(name for b in battles for name in (b.first, b.second)))
    place = {name: k for k, name in enumerate(players)}
    wins_KK = torch.zeros(len(players), len(players), dtype=torch.float64)
    for first, second, score in battles:
        if first == second:
            raise ValueError(f"{first!r} fights itself: a battle has two different players")
        if score not in (0, 0.5, 1):
            raise ValueError(f"a score is 1, 0.5 or 0, got {score}")
        wins_KK[place[first], place[second]] += score
        wins_KK[place[second], place[first]] += 1 - score
    return players, wins_KK


def _is_connected(wins_DKK: Float64[Tensor, "D K K"]) -> Tensor:
    """Say whether chains of wins lead from every player to every other one."""
    reach = wins_DKK > 0
    for _ in range(reach.shape[-1].bit_length()):  # chains of length 1, 2, 4, ...
        reach = reach | ((reach.double() @ reach.double()) > 0)
    size = reach.shape[-1]
    return (reach | torch.eye(size, dtype=torch.bool)).flatten(1).all(1)


def _strengths(wins_DKK: Float64[Tensor, "D K K"]) -> Float64[Tensor, "D K"]:
    """Return the strengths of tables of wins, side by side."""
    met_DKK = wins_DKK + wins_DKK.transpose(1, 2)
    wins_DK = wins_DKK.sum(2)
    s_DK = torch.zeros_like(wins_DK)
    for _ in range(_MOST_ROUNDS):
        p_DK = s_DK.exp()
        new_DK = (wins_DK / (met_DKK / (p_DK[:, :, None] + p_DK[:, None, :])).sum(2)).log()
        new_DK -= new_DK.mean(1, keepdim=True)
        moved = float((new_DK - s_DK).abs().max())
        s_DK = new_DK
        if moved < 1e-10:
            break
    return s_DK
