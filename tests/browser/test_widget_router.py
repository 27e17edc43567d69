"""The widget of chapter 14: the page routes as the package, and every control obeys."""

import itertools
import re

import pytest
import torch

from llmcourse.model import moe
from llmcourse_classroom.widgets.router import MOST_EXPERTS, WORDS, RouterBoard, tastes
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees

BIASES = [0.3, -0.1, 0.02, 0.0, -0.4, 0.25, 0.1, -0.05]
CASES = [
    {"experts": experts, "experts_per_token": k, "skew": skew, "scoring": scoring, "biases": biases}
    for experts, k, skew, scoring, biases in itertools.product(
        (2, 3, 8), (1, 2, 4), (0, 0.07, 1), ("softmax", "sigmoid"), ([0.0] * 8, BIASES)
    )
    if k <= experts
]


def click_word(page, word, place=0):
    page.locator(".lc-stage svg").first.get_by_text(word, exact=True).nth(place).click()


def balance_loss(made):
    routing = made.routing()
    counts_E = moe.count_choices(routing.experts_NK, made.experts)
    return moe.balance_loss(routing.probabilities_NE, counts_E).item()


@pytest.fixture(scope="module")
def pages_routing(arithmetic):
    made = [RouterBoard(**case) for case in CASES]
    scored = arithmetic(RouterBoard, "scores", [[w.tastes, w.experts, w.skew] for w in made])
    given = [
        [logits, w.experts_per_token, w.scoring, w.biases]
        for logits, w in zip(scored, made, strict=True)
    ]
    return list(zip(made, arithmetic(RouterBoard, "routed", given), strict=True))


def test_experts_weights_and_probabilities_are_the_packages(pages_routing):
    for made, rows in pages_routing:
        expected = made.routing()
        assert [row["experts"] for row in rows] == expected.experts_NK.tolist()
        weights = torch.tensor([row["weights"] for row in rows], dtype=torch.float64)
        scores = torch.tensor([row["probabilities"] for row in rows], dtype=torch.float64)
        torch.testing.assert_close(weights, expected.weights_NK, rtol=1e-9, atol=0)
        shares = scores / scores.sum(-1, keepdim=True)
        torch.testing.assert_close(shares, expected.probabilities_NE, rtol=1e-9, atol=0)


def test_balance_loss_is_the_packages(pages_routing, arithmetic):
    given = [[rows, made.experts] for made, rows in pages_routing]
    expected = [balance_loss(made) for made, _ in pages_routing]
    assert arithmetic(RouterBoard, "balanceLoss", given) == pytest.approx(expected, rel=1e-9)
    assert min(expected) < 1.05
    assert max(expected) > 7


def test_who_is_taken_and_who_is_dropped_is_the_packages(pages_routing, arithmetic):
    given, expected, drops = [], [], 0
    of_boards = [[rows, made.experts] for made, rows in pages_routing]
    wanted = arithmetic(RouterBoard, "wanted", of_boards)
    for (made, _), of_board in zip(pages_routing, wanted, strict=True):
        for factor in (0, 0.05, 0.3, 0.7, 1, 1.1, 1.25, 2.2, 8):
            made.capacity_factor = factor
            plan = made.plan()
            taken = [x.tolist() for x in plan.tokens_R.split(plan.counts_E.tolist())]
            drops += (plan.positions_NK == moe.DROPPED).sum().item()
            given.append([factor, len(WORDS), made.experts_per_token, made.experts])
            expected.append((of_board, taken))
    most = arithmetic(RouterBoard, "capacityOf", given)
    got = [[tokens[:m] for tokens in board] for (board, _), m in zip(expected, most, strict=True)]
    expected = [taken for _, taken in expected]
    assert got == expected
    assert drops > 1_000


def test_the_capacity_counts_decimals_as_the_package(arithmetic):
    factors = [percent / 100 for percent in range(5, 805, 5)]
    cases = list(itertools.product(factors, (10, 24, 100), (1, 2, 3, 4), range(2, 9)))
    right = [moe.capacity(*sizes, capacity_factor=factor) for factor, *sizes in cases]
    assert arithmetic(RouterBoard, "capacityOf", cases) == right


def test_biases_move_as_the_packages(arithmetic):
    def moved(biases, counts, rate):
        expected = torch.tensor(biases, dtype=torch.float64)
        moe.update_bias(expected[: len(counts)], torch.tensor(counts), rate=rate)
        return expected.tolist()

    counts = [[6] * 8, [24, 16, 8, 0, 0, 0, 0, 0], [3, 9, 4, 6, 6, 7, 5, 8], [7, 9, 8]]
    cases = [[BIASES, each, 0.02] for each in counts]
    agrees(arithmetic, RouterBoard, "moved", cases, moved, abs=1e-12)


def test_the_sentence_follows_the_skew_and_a_press_on_a_word(show):
    page = show(RouterBoard())
    holds(said(page), "24 tokens, 2 of 8 experts", "48 rows, 6 for each", "Expert 1 is wanted by 7")
    holds(said(page), "loss 1.01", "4 at worst", "nothing is dropped", "Token 1, “the”, goes")
    holds(pictured(page), "expert 0 takes 6, expert 1 takes 7")
    keys(page, "skew of the router", "ArrowRight " * 20, values={"skew of the router": "0.2"})
    holds(said(page), f"Balance loss {balance_loss(RouterBoard(skew=0.2)):.2f}")
    click_word(page, "barn")
    assert value(page, "token in words") == str(WORDS.index("barn") + 1)
    holds(said(page), "Token 15, “barn”")
    click_word(page, "dog", 1)  # in an expert
    holds(said(page), "Token 9, “dog”")


def test_a_collapsed_router_drops_most(show):
    page = show(RouterBoard(skew=1, capacity_factor=1))
    holds(said(page), "Expert 0 is wanted by 24", "6 experts by nobody", "Balance loss 3.98")
    holds(said(page), "Capacity 6 rows: 36 of 48 are dropped, 75 %", "18 tokens get no expert")
    holds(said(page), "Of 48 places 12 are used, 25 %")
    holds(pictured(page), "expert 0 takes 6 and drops 18", "expert 6 takes 0, expert 7 takes 0")


def test_tokens_leave_one_by_one(show):
    page = show(RouterBoard())
    by_key(page, "Reset", values={"tokens sent": "0"})
    assert pictured(page).endswith(": " + ", ".join(f"expert {e} takes 0" for e in range(8)))
    for _ in range(2):
        by_key(page, "Step")
    assert value(page, "tokens sent") == value(page, "token in words") == "2"
    holds(said(page), "Token 2, “cat”")
    first = RouterBoard().routing().experts_NK[:2].flatten().bincount(minlength=8).tolist()
    assert pictured(page).endswith(", ".join(f"expert {e} takes {n}" for e, n in enumerate(first)))
    page.emulate_media(reduced_motion="reduce")
    press(page, "Reset")
    page.get_by_role("button", name=re.compile("Play|To the end")).click()
    assert value(page, "tokens sent") == "24"
    press(page, "Step", values={"tokens sent": "0"})


def test_the_tables_have_the_packages_numbers(show):
    made = RouterBoard(skew=0.2, capacity_factor=1.25, scoring="sigmoid", biases=BIASES)
    page = show(made)
    routing, plan = made.routing(), made.plan()
    wanted = moe.count_choices(routing.experts_NK, 8).tolist()
    rows = table(page, "wanted, taken")
    assert [[int(row[1]), int(row[2])] for row in rows] == [
        list(pair) for pair in zip(wanted, plan.counts_E.tolist(), strict=True)
    ]
    assert [row[5].replace("−", "-") for row in rows] == [f"{b:.2f}" for b in BIASES]
    rows = table(page, "and weights")
    experts = [", ".join(map(str, row)) for row in routing.experts_NK.tolist()]
    assert [row[2] for row in rows] == experts
    shown = torch.tensor([[float(w) for w in row[3].split(", ")] for row in rows]).double()
    torch.testing.assert_close(shown, routing.weights_NK, atol=5.1e-4, rtol=0)
    out = (plan.positions_NK == moe.DROPPED).any(-1).tolist()
    assert [row[4] != "none" for row in rows] == out
    assert 0 < sum(out) < 24


def test_biases_balance_a_skewed_router(show):
    page = show(RouterBoard(skew=0.2))
    assert page.get_by_role("button", name="Move the biases").is_disabled()
    choose(page, "scores by", "sigmoid", "Expert 0 is wanted by 23")
    by_key(page, "Move them 50 times")
    biases, made = torch.zeros(8, dtype=torch.float64), RouterBoard(skew=0.2, scoring="sigmoid")
    for _ in range(50):
        counts = moe.count_choices(made.routing().experts_NK, 8)
        moe.update_bias(biases, counts, rate=0.02)
        made.biases = biases.tolist()
    counts = moe.count_choices(made.routing().experts_NK, 8)
    holds(said(page), f"is wanted by {counts.max()}.")
    assert counts.max() < 10
    press(page, "Biases to 0", "Expert 0 is wanted by 23")
    press(page, "Move the biases")
    shown = [row[5].replace("−", "-") for row in table(page, "wanted, taken")]
    assert shown[::7] == ["-0.02", "0.02"]


def test_no_more_choices_than_experts(show):
    page = show(RouterBoard(experts_per_token=4))
    enter(page, "experts E", "3", values={"experts per token k": "3"}, note=["3 is used"])
    holds(said(page), "24 tokens, 3 of 3 experts", "Balance loss 1.00", "1 at worst")


def test_equal_words_have_similar_likes():
    likes = torch.tensor(tastes())
    the = likes[[n for n, word in enumerate(WORDS) if word == "the"]]
    assert len(the) == 4
    assert (the.amax(0) - the.amin(0)).max() <= 0.41
    assert (likes.amax(0) - likes.amin(0)).min() > 2
    assert likes.shape == (24, MOST_EXPERTS)
