"""tuning.rewards against sums over all draws, closed forms, and what must hold of any policy."""

import itertools
import math

import pytest
import torch

from llmcourse.base.runtime import generator
from llmcourse_labs import tuning


def world(size=6, seed=0, levels=None):
    draws = generator(seed)
    p = torch.rand(size, generator=draws, dtype=torch.float64) + 0.1
    scores = torch.randn(size, generator=draws, dtype=torch.float64)
    if levels:
        scores = torch.randint(levels, (size,), generator=draws).double()
    return p / p.sum(), scores


def by_enumeration(p, scores, n):
    """Best of n by all p^n rows of draws; of equals the first that was drawn."""
    found = torch.zeros_like(p)
    for drawn in itertools.product(range(len(p)), repeat=n):
        best = max(range(n), key=lambda i: (scores[drawn[i]].item(), -i))
        found[drawn[best]] += math.prod(p[i].item() for i in drawn)
    return found


@pytest.mark.parametrize("levels", [None, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_best_of_n_is_that_of_all_draws(n, levels):
    for seed in range(3):
        p, scores = world(seed=seed, levels=levels)
        found = tuning.best_of_n(p, scores, n)
        assert torch.allclose(found, by_enumeration(p, scores, n), atol=1e-12)
        assert tuning.kl(found, p) <= tuning.best_of_n_bound(n) + 1e-12


def test_the_formula_is_reached_by_many_answers_and_a_bound_for_few():
    many = torch.full((200_000,), 1 / 200_000, dtype=torch.float64)
    scores = torch.randperm(200_000, generator=generator(0)).double()
    for n in (2, 10, 100):
        exact = tuning.kl(tuning.best_of_n(many, scores, n), many)
        assert exact == pytest.approx(math.log(n) - (n - 1) / n, abs=1e-3)
        assert exact <= tuning.best_of_n_bound(n) <= exact + 1e-3
    p, scores = world(4)
    most = -math.log(p[scores.argmax()])
    assert tuning.kl(tuning.best_of_n(p, scores, 1_000), p) == pytest.approx(most, abs=1e-6)
    assert tuning.best_of_n_bound(1_000) > most + 3


def test_the_kl_by_hand_and_of_what_is_never_said():
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    q = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert tuning.kl(q, p) == pytest.approx(0.5 * math.log(2))
    assert tuning.kl(p, p) == 0


def test_no_policy_beats_the_tilted_one():
    p, scores = world()
    for beta in (0.3, 1, 4.0):
        ours = tuning.kl_optimal(p, scores, beta)
        torch.testing.assert_close(tuning.optimal_policy(p, scores, beta=beta), ours)
        value = (ours * scores).sum().item() - beta * tuning.kl(ours, p)
        assert value == pytest.approx(beta * (p * (scores / beta).exp()).sum().log().item())
        draws = generator(1)
        for _ in range(200):
            other = (ours.log() + 0.3 * torch.randn(6, generator=draws).double()).softmax(0)
            assert (other * scores).sum().item() - beta * tuning.kl(other, p) <= value + 1e-12


def test_a_budget_is_spent_and_buys_the_most():
    p, scores = world(40)
    before = -math.inf
    for budget in (0, 0.1, 0.5, 1, 2):
        policy = tuning.within_kl(p, scores, budget)
        assert tuning.kl(policy, p) == pytest.approx(budget, abs=1e-6)
        reached = (policy * scores).sum().item()
        assert reached > before
        before = reached
        # Scores of another scale and level ask for the same policy.
        assert torch.allclose(policy, tuning.within_kl(p, 7 * scores - 3, budget), atol=1e-6)


def test_the_world_is_what_it_says():
    for shared in (0.0, 0.5, 1.0):
        made = tuning.trick_world(0, shared=shared, members=4)
        assert (abs(made.tricks_MN.double().mean(1) - 0.01) < 0.003).all()
        common = made.tricks_MN.all(0).double().mean().item()
        assert common == pytest.approx(0.01 * shared, abs=0.003)
        others = ~made.tricks_MN.any(0)
        for fooled, proxy in zip(made.tricks_MN, made.proxies_MN, strict=True):
            gap = proxy[fooled].mean() - proxy[others].mean()
            assert gap.item() == pytest.approx(2.5, abs=0.4)
            gap = made.gold_N[fooled].mean() - made.gold_N[others].mean()
            assert gap.item() == pytest.approx(-2.5, abs=0.4)
        assert made.gold_N[others].std().item() == pytest.approx(1, abs=0.05)


def test_gold_rises_and_falls_while_the_proxy_rises_with_every_seed():
    budgets = (0, 0.5, 1, 1.5, 2, 3, 4, 5, 6.5)
    for seed in range(4):
        made = tuning.trick_world(seed)
        points = tuning.over_optimised(made, made.proxies_MN[0], budgets)
        assert [p.kl for p in points] == pytest.approx(budgets, abs=1e-6)
        assert all(b.proxy > a.proxy for a, b in itertools.pairwise(points))
        gold = [p.gold for p in points]
        best = gold.index(max(gold))
        assert 1 <= points[best].kl <= 3
        assert gold[best] > gold[0] + 0.6
        assert gold[best] > gold[-1] + 0.1


def test_an_ensemble_cures_what_its_members_do_not_share():
    own, common = (tuning.trick_world(0, shared=shared) for shared in (0.0, 1.0))
    for how in ("mean", "worst"):
        scores = own.proxies_MN[0], tuning.combined(own.proxies_MN, how)
        one, many = (tuning.over_optimised(own, each, (4,))[0].gold for each in scores)
        assert many > one + 1
        still = tuning.over_optimised(common, tuning.combined(common.proxies_MN, how), (1.5, 6.5))
        assert still[1].gold < still[0].gold


def test_scores_are_put_together_answer_by_answer():
    scores = torch.tensor([[1.0, 4.0], [3.0, -2.0]])
    assert tuning.combined(scores, "mean").tolist() == [2.0, 1.0]
    assert tuning.combined(scores, "worst").tolist() == [1.0, -2.0]


def test_a_run_stops_at_its_best_once_patience_ends():
    gold = [0.1, 0.5, 0.4, 0.6, 0.5, 0.5, 0.9]
    assert [tuning.best_stop(gold, patience=n) for n in (1, 2, 3, 9)] == [1, 3, 6, 6]
    assert tuning.best_stop([1.0, 1.0], patience=1) == 0
    assert tuning.best_stop([0.0], patience=1) == 0
