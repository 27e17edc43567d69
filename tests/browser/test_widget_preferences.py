"""The widget of chapter 41: its policies, KL and losses are the package's, and controls obey."""

import math
import random

import pytest
import torch

from llmcourse.course.widgets import PreferenceBoard
from llmcourse.data import preferred
from llmcourse.posttrain import dpo_loss, optimal_policy
from tests.browser.kit import choose, enter, noted, pictured, said, table
from tests.browser.registry import answer_world


def drawn(count=60):
    """Random worlds, betas and shares of the way."""
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


def test_the_policy_is_the_packages(arithmetic):
    grid = [[p.tolist(), u.tolist(), beta, share] for p, u, beta, share in CASES]
    for found, right in zip(arithmetic(PreferenceBoard, "policyOf", grid), policies(), strict=True):
        assert found == pytest.approx(right.tolist(), rel=1e-9, abs=1e-300)


def test_kl_and_utility_are_sums_over_answers(arithmetic):
    pairs = list(zip(policies(), CASES, strict=True))
    kl = arithmetic(PreferenceBoard, "klOf", [[q.tolist(), c[0].tolist()] for q, c in pairs])
    right = [torch.special.xlogy(q, q / c[0]).sum().item() for q, c in pairs]
    assert kl == pytest.approx(right, rel=1e-9, abs=1e-12)
    worth = arithmetic(
        PreferenceBoard, "meanUtility", [[q.tolist(), c[1].tolist()] for q, c in pairs]
    )
    assert worth == pytest.approx([(q @ c[1]).item() for q, c in pairs], rel=1e-9, abs=1e-12)


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


def test_a_loss_of_any_size_is_finite(arithmetic):
    found = arithmetic(PreferenceBoard, "softLoss", [[0], [800], [-800]])
    assert found == pytest.approx([math.log(2), 0, 800])


def test_the_sentence_follows_every_control(show):
    page = show(answer_world())
    assert said(page) == (
        "With β = 1 the mean utility is 1.46 and the KL from the reference 0.37 nats: utility "
        "minus β KL is 1.10. “short” against “long”: margin −2.20, the judge prefers the first in "
        "10.0 %, and the mean DPO loss is 0.325."
    )
    assert "kind, worth 1.10: reference 33.3 %, policy 33.3 %" in pictured(page)
    choose(page, "chosen", "long")
    choose(page, "rejected", "kind")
    assert "“long” against “kind”: margin 1.10, the judge prefers the first in 75.0 %" in said(page)
    enter(page, "training, %", "0")
    assert "and the mean DPO loss is 0.693" in said(page)
    assert "0 % of the way the mean utility is 0.73 and the KL from" in said(page)
    enter(page, "training, %", "100")
    enter(page, "β", "0.03")
    assert "policy 100.0 %" in pictured(page)
    assert "margin 1.10" in said(page)  # beta does not change it
    rows = table(page)
    assert [row[0] for row in rows] == ["0.03", "0.1", "0.3", "1", "3", "10"]
    assert rows[3][1:5] == ["16.7 %", "33.3 %", "50.0 %", "0.37"]


def test_a_pair_of_one_answer_is_explained(show):
    page = show(answer_world(chosen="kind", rejected="kind"))
    assert said(page).endswith("Choose two different answers to see the loss of a pair.")


def test_numbers_outside_are_clamped(show):
    page = show(answer_world())
    enter(page, "β", "0")
    assert "0 is not possible (from 0.03 to 10); 0.03 is used" in noted(page)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a"]}, "2 to 6 answers with names of their own"),
        ({"names": ["a", "a", "b"]}, "2 to 6 answers with names of their own"),
        ({"names": ["a", "b", ""]}, "a name has 1 to 16 characters"),
        ({"reference": [0.5, 0.5]}, "a share from 1e-06 to 1 for each answer"),
        ({"reference": [0.5, 0.5, 0.0]}, "a share from 1e-06 to 1 for each answer"),
        ({"reference": [0.5, 0.2, 0.2]}, "the shares of the reference sum to 1, not 0.9"),
        ({"utilities": [1.0, 2.0]}, "a utility from -20 to 20 for each answer"),
        ({"utilities": [1.0, 2.0, math.nan]}, "a utility from -20 to 20 for each answer"),
    ],
)
def test_what_a_world_refuses(change, message):
    world = {"names": ["a", "b", "c"], "reference": [0.5, 0.3, 0.2], "utilities": [0, 1, 2]}
    PreferenceBoard(world)
    with pytest.raises(ValueError, match=message):
        PreferenceBoard(world | change)
    with pytest.raises(ValueError, match=r"the world has no \['utilities'\]"):
        PreferenceBoard({k: v for k, v in world.items() if k != "utilities"})
