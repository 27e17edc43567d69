"""The widget of chapter 41: its policies, KL and losses are the package's, and controls obey."""

import math
import random

import pytest
import torch

from llmcourse_classroom.widgets import PreferenceBoard
from llmcourse_labs.tuning import dpo_loss, optimal_policy, preferred
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import answer_world


def drawn(count=60):
    rng = random.Random(0)
    for _ in range(count):
        size = rng.randint(2, 6)
        reference = torch.tensor([rng.uniform(0.01, 1) for _ in range(size)]).double()
        utilities = torch.tensor([rng.uniform(-5, 5) for _ in range(size)]).double()
        beta = math.exp(rng.uniform(math.log(0.03), math.log(10)))
        yield reference / reference.sum(), utilities, beta, rng.choice([0.0, 0.3, 1.0])


CASES = list(drawn())


def policies():
    return [optimal_policy(p, share * u, beta=beta) for p, u, beta, share in CASES]


def test_the_policy_its_kl_its_utility_and_a_finite_loss_are_the_packages(arithmetic):
    grid = [[p.tolist(), u.tolist(), beta, share] for p, u, beta, share in CASES]
    for found, right in zip(arithmetic(PreferenceBoard, "policyOf", grid), policies(), strict=True):
        assert found == pytest.approx(right.tolist(), rel=1e-9, abs=1e-300)
    pairs = list(zip(policies(), CASES, strict=True))
    kl = arithmetic(PreferenceBoard, "klOf", [[q.tolist(), c[0].tolist()] for q, c in pairs])
    right = [torch.special.xlogy(q, q / c[0]).sum().item() for q, c in pairs]
    assert kl == pytest.approx(right, rel=1e-9, abs=1e-12)
    worth = arithmetic(
        PreferenceBoard, "meanUtility", [[q.tolist(), c[1].tolist()] for q, c in pairs]
    )
    assert worth == pytest.approx([(q @ c[1]).item() for q, c in pairs], rel=1e-9, abs=1e-12)
    found = arithmetic(PreferenceBoard, "softLoss", [[0], [800], [-800]])
    assert found == pytest.approx([math.log(2), 0, 800])


def test_margin_and_loss_are_those_of_dpo_whatever_beta_is(arithmetic):
    """The margin is beta times the difference of ln(policy / reference): the utilities' own."""
    grid = [[u.tolist(), share, 0, 1] for _, u, _, share in CASES]
    margins = arithmetic(PreferenceBoard, "marginOf", grid)
    losses = arithmetic(PreferenceBoard, "pairLoss", grid)
    for q, (p, u, beta, _), margin, loss in zip(policies(), CASES, margins, losses, strict=True):
        if not (q > 1e-300).all():
            continue
        logs = [x.log()[n : n + 1] for x in (q, p) for n in (0, 1)]
        first = dpo_loss(*logs, beta=beta)
        other = dpo_loss(logs[1], logs[0], logs[3], logs[2], beta=beta)
        wins = preferred((u[0] - u[1]).item())
        assert margin == pytest.approx(first.margins.item(), rel=1e-6, abs=1e-9)
        mean = wins * first.losses_B + (1 - wins) * other.losses_B
        assert loss == pytest.approx(mean.item(), rel=1e-6)


def test_the_sentence_follows_every_control(show):
    page = show(answer_world())
    holds(
        said(page),
        "β = 1",
        "utility is 1.46",
        "0.37 nats",
        "β KL is 1.10",
        "“short” against “long”",
    )
    holds(said(page), "margin −2.20", "in 10 %", "loss is 0.325")
    holds(pictured(page), "kind, worth 1.10: reference 33.3 %, policy 33.3 %")
    choose(page, "chosen", "long")
    choose(page, "rejected", "kind", "“long” against “kind”: margin 1.10", "in 75 %")
    enter(page, "training, %", "0", "loss is 0.693", "0 % of the way", "utility is 0.73")
    enter(page, "training, %", "100")
    enter(page, "β", "0.03", picture=["policy over 99.9 %"])
    holds(said(page), "margin 1.10")  # beta does not change it
    rows = table(page)
    assert [row[0] for row in rows] == ["0.03", "0.1", "0.3", "1", "3", "10"]
    assert rows[3][1:5] == ["16.7 %", "33.3 %", "50 %", "0.37"]
    choose(page, "rejected", "long", "two different answers")
