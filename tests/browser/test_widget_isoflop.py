"""The valley of chapter 34: the page computes as the package does, and every control obeys."""

import itertools

import pytest

from llmcourse_classroom.widgets.isoflop import IsoflopValley
from llmcourse_labs.scale.laws import CHINCHILLA_PRINTED, CHINCHILLA_REPLICATED, ParametricLaw
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import SMALL_LAW, isoflop_valley
from tests.browser.twins import same

LAWS = [SMALL_LAW, CHINCHILLA_PRINTED, CHINCHILLA_REPLICATED]
LAWS.append(ParametricLaw(E=0.0, A=3.0, B=70.0, alpha=0.9, beta=0.25))
BUDGETS = [10 ** (k / 2) for k in range(18, 55)]


def numbers(law):
    return [law.E, law.A, law.B, law.alpha, law.beta]


SIZES = itertools.product(LAWS, (1e15, 5.76e23), [[10 ** (k / 5) for k in range(20, 60)]])
SPLITS = itertools.product(LAWS, (1e12, 1e18, 1e24), (0.05, 0.3, 1, 2, 20))
MODELS = [(law, 10**n, 10**d) for law in LAWS for n in range(3, 12, 2) for d in range(5, 14, 2)]


def test_losses_and_best_splits_are_those_of_the_package(arithmetic):
    """A valley has the whole compute; the share that is needed buys the loss of what is off."""
    near = {"rel": 1e-13}
    for name, cases, right in (
        ("loss", MODELS, lambda law, n, d: law.loss(n, d)),
        ("valleyOf", SIZES, lambda law, compute, all: [law.loss(n, compute / 6 / n) for n in all]),
    ):
        given = [(law, rest) for law, *rest in cases]
        found = arithmetic(IsoflopValley, name, [[numbers(law), *rest] for law, rest in given])
        assert same(found, [right(law, *rest) for law, rest in given], near), name
    given = [[numbers(law), compute] for law, compute in itertools.product(LAWS, BUDGETS)]
    best = [law.optimum(compute) for law, compute in itertools.product(LAWS, BUDGETS)]
    assert same(arithmetic(IsoflopValley, "optimum", given), best, {"rel": 1e-12})
    cases = list(SPLITS)
    given = [[numbers(law), *rest] for law, *rest in cases]
    for (law, compute, off), share in zip(
        cases, arithmetic(IsoflopValley, "shareNeeded", given), strict=True
    ):
        best = law.optimum(compute)
        there = law.loss(best.num_parameters * off, best.num_tokens / off)
        assert law.optimum(share * compute).loss == pytest.approx(there, rel=1e-9)
        assert share == pytest.approx(1) if off == 1 else share < 0.999


def test_runs_within_a_fifth_of_the_compute_and_sizes_in_words(arithmetic):
    runs = [[1e5, share * 1e8, 1.0, False] for share in (0.5, 0.82, 0.84, 1, 1.19, 1.21, 2)]
    (found,) = arithmetic(IsoflopValley, "nearby", [[runs, 6e13]])
    assert found == runs[2:5]
    words = {32.2e9: "32.2 billion", 1.4e12: "1.4 trillion", 207_760: "208 thousand", 12.34: "12.3"}
    words |= {999.7e6: "1 billion", 0.5: "0.5", 2e16: "2.00e16", 640e12: "640 trillion"}
    assert arithmetic(IsoflopValley, "inWords", [[x] for x in words]) == list(words.values())


def test_the_best_split_in_words_picture_and_table(show):
    page = show(isoflop_valley(law="Chinchilla, as printed", budget=23.8))
    best = CHINCHILLA_PRINTED.optimum(10**23.8)
    split = f"{best.num_tokens / best.num_parameters:.3g}"
    holds(said(page), "Chinchilla, as printed: 6.31e23", f"{best.num_parameters / 1e9:.3g} billion")
    holds(said(page), f"{best.num_tokens / 1e12:.3g} trillion", f"{split} for each parameter")
    holds(said(page), f"loss is {best.loss:.3f}", "runs of this compute")
    holds(pictured(page), "0 measured runs")
    rows = table(page)
    assert (len(rows), rows[3][3:]) == (7, [split, f"{best.loss:.3f}"])
    tenth = CHINCHILLA_PRINTED.optimum(10**22.8)
    assert rows[2][1] == f"{tenth.num_parameters / 1e9:.3g} billion"


def test_what_a_size_that_is_off_costs_and_what_is_said_far_from_the_runs(show):
    page = show(isoflop_valley(budget=13))
    enter(page, "size, times the best", "4")
    best = SMALL_LAW.optimum(1e13)
    higher = SMALL_LAW.loss(4 * best.num_parameters, best.num_tokens / 4) - best.loss
    holds(said(page), f"ends {higher:.3f} higher")
    holds(pictured(page), "4 measured runs")
    enter(page, "compute C, power of ten", "13.5", picture=["0 measured runs"])
    compute = "compute C, power of ten"
    holds(said(page), "runs of this compute")
    enter(page, compute, "17", "3 powers of ten above")
    choose(page, "law", "Chinchilla, as printed", "1.8 powers of ten below", values={compute: "17"})
    enter(page, compute, "10")
    for law, brought in (("stories", "10"), ("Chinchilla, as printed", "21.3")):
        choose(page, "law", law, values={compute: brought})
