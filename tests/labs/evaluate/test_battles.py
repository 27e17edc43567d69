"""evaluate.battles: strengths against an independent optimiser, Elo by hand and by order."""

import itertools
import math

import pytest
import torch

from llmcourse_labs.evaluate import (
    Battle,
    bradley_terry,
    bradley_terry_intervals,
    chance_to_win,
    elo,
    elo_points,
)
from llmcourse_labs.evaluate import battles as own

TRUTH = {"a": 0.9, "b": 0.4, "c": -0.1, "d": -1.2}


def fought(number, seed=0, truth=TRUTH, draws=0.1):
    generator = torch.Generator().manual_seed(seed)
    names = list(truth)
    found = []
    for _ in range(number):
        i, j = torch.randperm(len(names), generator=generator)[:2].tolist()
        first, second = names[i], names[j]
        if torch.rand((), generator=generator) < draws:
            score = 0.5
        else:
            p = 1 / (1 + math.exp(truth[second] - truth[first]))
            score = float(torch.rand((), generator=generator) < p)
        found.append(Battle(first, second, score))
    return found


def by_gradient(battles):
    """The strengths that make the battles likeliest, by torch's optimiser on the likelihood."""
    names = sorted({b.first for b in battles} | {b.second for b in battles})
    s = torch.zeros(len(names), dtype=torch.float64, requires_grad=True)
    i, j = (torch.tensor([names.index(b[k]) for b in battles]) for k in (0, 1))
    score = torch.tensor([b.score for b in battles], dtype=torch.float64)
    optimizer = torch.optim.LBFGS(
        [s], max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        margin = s[i] - s[j]
        logs = torch.nn.functional.logsigmoid
        value = -(score * logs(margin) + (1 - score) * logs(-margin)).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return dict(zip(names, (s - s.mean()).tolist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_strengths_are_those_of_an_optimiser(seed):
    battles = fought(300, seed)
    found, right = bradley_terry(battles), by_gradient(battles)
    for name in TRUTH:
        assert found[name] == pytest.approx(right[name], abs=1e-6)
    assert sum(found.values()) == pytest.approx(0, abs=1e-9)


def test_two_players_and_elo_by_hand_to_which_alone_the_order_matters():
    """Three wins to one: the odds are 3, so the strengths differ by ln 3."""
    battles = [Battle("x", "y", 1.0)] * 2 + [Battle("y", "x", 0.0), Battle("x", "y", 0.0)]
    found = bradley_terry(battles)
    assert found["x"] - found["y"] == pytest.approx(math.log(3), abs=1e-8)
    assert chance_to_win(found["x"], found["y"]) == pytest.approx(0.75)
    assert elo_points(0.0) == 1_000
    assert elo_points(math.log(10)) == pytest.approx(1_400)
    battles = fought(200)
    turned = battles[::-1]
    one, other = bradley_terry(battles), bradley_terry(turned)
    assert all(one[name] == pytest.approx(other[name], abs=1e-8) for name in TRUTH)
    first, second = elo(battles), elo(turned)
    assert max(abs(first[name] - second[name]) for name in TRUTH) > 20
    # The first win of equals brings half a step; what one gets the other loses.
    found = elo([Battle("x", "y", 1.0), Battle("y", "x", 1.0)])
    expected = 1 / (1 + 10 ** (32 / 400))  # y's chance, with 984 against 1,016
    assert found["y"] == pytest.approx(984 + 32 * (1 - expected))
    assert sum(found.values()) == pytest.approx(2_000)
    assert elo([Battle("x", "y", 0.5)], step=10) == {"x": 1_000, "y": 1_000}


def test_intervals_of_strengths_cover(generator):
    """The mutant that draws half of the battles has wider ones, by the root of two."""
    held, number = dict.fromkeys(TRUTH, 0), 150
    middle = sum(TRUTH.values()) / len(TRUTH)
    for seed in range(number):
        battles = fought(240, seed, draws=0.0)
        for name, (low, high) in bradley_terry_intervals(battles, generator=generator).items():
            held[name] += low <= TRUTH[name] - middle <= high
    total = sum(held.values()) / len(held) / number
    assert total == pytest.approx(0.95, abs=0.025)


def test_a_circle_of_wins_leaves_all_equal_and_elo_takes_any_battles():
    circle = [Battle(x, y, 1.0) for x, y in itertools.pairwise("abcdea")]
    assert bradley_terry(circle) == pytest.approx(dict.fromkeys("abcde", 0.0))
    assert set(elo([Battle("x", "y", 1.0), Battle("y", "z", 1.0)])) == {"x", "y", "z"}


def test_the_tests_see_typical_mistakes(monkeypatch):
    """Draws that count as losses, and rounds that stop too early."""
    battles = fought(300)
    right = by_gradient(battles)
    lost = [b._replace(score=float(b.score == 1)) for b in battles]
    assert max(abs(bradley_terry(lost)[n] - right[n]) for n in TRUTH) > 1e-3
    monkeypatch.setattr(own, "_MOST_ROUNDS", 2)
    assert max(abs(bradley_terry(battles)[n] - right[n]) for n in TRUTH) > 1e-3
