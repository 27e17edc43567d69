"""The chart of chapter 36: the page's speeds are those of the package, and every control obeys."""

import itertools
import math

import pytest

from llmcourse.model.attention import RopeScaling
from llmcourse_classroom.widgets.wavelengths import WavelengthChart
from tests.browser.hands import choose, enter, later, press, stop_time
from tests.browser.kit import holds, pictured, said, table, value

KINDS = ("linear", "ntk", "yarn", "llama3")
STATES = [
    {"pairs": pairs, "theta": theta, "trained": trained, "factor": factor}
    for (pairs, theta), trained, factor in itertools.product(
        ((2, 100.0), (3, 512.0), (16, 10_000.0), (17, 1e7), (64, 500_000.0)),
        (8, 64, 8_192, 1_048_576),
        (1, 1.5, 4, 64),
    )
]
LLAMA = {"scaling": "llama3", "factor": 8, "trained": 8_192, "wanted": 131_072}
LLAMA |= {"theta": 500_000, "pairs": 64}
FIRST = {"pairs": 16, "theta": 10_000, "trained": 64, "factor": 4}


def packages(kind, *, pairs, theta, trained, factor):
    if kind == "none":
        return [theta ** (-j / pairs) for j in range(pairs)]
    length = {"original_length": trained} if kind in ("yarn", "llama3") else {}
    return RopeScaling(kind=kind, factor=float(factor), **length).frequencies(
        2 * pairs, theta=float(theta)
    )


def new_pairs(kind, *, wanted, **state):
    """How many pairs come to angles that training did not show, by going through all angles."""
    found = 0
    for before, now in zip(packages("none", **state), packages(kind, **state), strict=True):
        shown = min(2 * math.pi, before * state["trained"])
        reached = min(2 * math.pi, now * wanted)
        found += reached > shown * (1 + 1e-9)
    return found


def test_speeds_and_wavelengths_are_those_of_the_package(arithmetic):
    for kind in ("none", *KINDS):
        got = arithmetic(WavelengthChart, "scaled", [[kind, state] for state in STATES])
        for speeds, state in zip(got, STATES, strict=True):
            assert speeds == pytest.approx(packages(kind, **state), rel=1e-12), (kind, state)
    got = arithmetic(WavelengthChart, "speeds", [[s["pairs"], s["theta"]] for s in STATES])
    assert got == [pytest.approx(packages("none", **state), rel=1e-12) for state in STATES]
    assert arithmetic(WavelengthChart, "wavelength", [[0.5]])[0] == pytest.approx(4 * math.pi)


def test_a_pair_is_new_where_it_turns_further_than_it_ever_did(arithmetic):
    quarter, whole = math.pi / 128, math.pi / 32  # a quarter and a full turn in 64 tokens
    given = {(quarter, quarter, 64, 64): False, (quarter, quarter, 64, 65): True}
    given |= {(quarter, quarter / 4, 64, 256): False, (quarter, quarter / 4, 64, 257): True}
    given |= {(quarter, quarter / 2, 64, 256): True, (whole, whole, 64, 10_000): False}
    given |= {(whole * 0.99, whole, 64, 10_000): True, (quarter, quarter, 64, 8): False}
    assert arithmetic(WavelengthChart, "isNew", [list(x) for x in given]) == list(given.values())


def says_new(page, new, pairs, wanted, trained):
    holds(said(page), f" {new} of {pairs} pairs", f"within {wanted} tokens that {trained} did not")
    assert page.locator(".lc-new").count() == new


def test_the_state_in_words_and_every_scaling(show):
    page = show(WavelengthChart())
    bare = new_pairs("none", wanted=256, **FIRST)
    assert 0 < bare < 16
    says_new(page, bare, 16, 256, 64)
    holds(said(page), "Without scaling", f"{16 - bare} pairs turned full circle", "and 0 of these")
    holds(pictured(page), "length, 64", "one, 256", f"{bare} pairs are marked")
    rows = table(page)
    assert (len(rows), [row[-1] for row in rows].count("yes")) == (16, bare)
    assert rows[0] == ["0", "6.3", "6.3", "1.00", "10.2", "no"]
    names = ("position interpolation", "NTK-aware", "YaRN", "Llama 3.1's")
    for kind, name in zip(KINDS, names, strict=True):
        page.get_by_label("scaling", exact=True).select_option(label=name)
        says_new(page, new_pairs(kind, wanted=256, **FIRST), 16, 256, 64)
        holds(said(page), " by 4, ")
        before, now = packages("none", **FIRST), packages(kind, **FIRST)
        by = [b / n for b, n in zip(before, now, strict=True)]
        assert [row[3] for row in table(page)] == [f"{x:.2f}" for x in by]
        turned = [x for b, x in zip(before, by, strict=True) if b * 64 >= 2 * math.pi]
        holds(said(page), f"and {sum(x > 1.000001 for x in turned)} of these")
        assert ("multiplied by 1.30" in said(page)) == (kind == "yarn")
        holds(pictured(page, 1), "the factor, 4")


def test_the_buttons_set_a_known_model_and_every_control_changes_the_chart(show):
    page = show(WavelengthChart())
    press(page, "Llama 3.1")
    state = {name: LLAMA[name] for name in ("pairs", "theta", "trained", "factor")}
    new = new_pairs("llama3", wanted=131_072, **state)
    assert new > 0
    holds(said(page), f"Llama 3.1's scaling by 8, {new} of 64 pairs")
    assert value(page, "wanted length, tokens") == "131072"
    press(page, "This page's model", "Without scaling", values={"pairs of a head": "16"})
    choose(page, "scaling", "linear")
    says_new(page, 0, 16, 256, 64)
    enter(page, "factor s", "2")
    says_new(page, new_pairs("linear", wanted=256, **FIRST | {"factor": 2}), 16, 256, 64)
    enter(page, "wanted length, tokens", "128")
    says_new(page, 0, 16, 128, 64)
    enter(page, "trained length, tokens", "32")
    enter(page, "base θ", "500000")
    enter(page, "pairs of a head", "8")
    state = {"pairs": 8, "theta": 500_000, "trained": 32, "factor": 2}
    says_new(page, new_pairs("linear", wanted=128, **state), 8, 128, 32)


HAND = """() => Number(document.querySelector("[data-key='pair 9'] line").getAttribute("transform")
  .match(/[\\d.]+/)[0])"""


def degrees(kind):
    return math.degrees(256 * packages(kind, **FIRST)[9])


def test_a_scaling_turns_the_hands_back(show):
    page = show(WavelengthChart(), as_is=True)
    stop_time(page)
    assert page.evaluate(HAND) == pytest.approx(degrees("none"), abs=0.01)
    choose(page, "scaling", "linear")
    assert page.evaluate(HAND) == pytest.approx(degrees("none"), abs=0.01)
    later(page, 250)
    assert degrees("linear") + 1 < page.evaluate(HAND) < degrees("none") - 1
    later(page, 1_500)
    assert page.evaluate(HAND) == pytest.approx(degrees("linear"), abs=0.01)


def test_with_reduced_motion_the_hands_are_there_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(WavelengthChart(), as_is=True)
    stop_time(page)
    choose(page, "scaling", "linear")
    assert page.evaluate(HAND) == pytest.approx(degrees("linear"), abs=0.01)
