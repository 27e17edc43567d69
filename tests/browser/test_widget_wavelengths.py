"""The chart of chapter 36: the page's speeds are those of the package, and every control obeys."""

import itertools
import math

import pytest
import traitlets

from llmcourse.course.widgets.wavelengths import WavelengthChart
from llmcourse.model.attention import RopeScaling
from tests.browser.kit import choose, enter, noted, pictured, said, table, value

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


def packages(kind, *, pairs, theta, trained, factor):
    """The speeds of the package."""
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


# --- arithmetic


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_speeds_are_those_of_the_package(arithmetic, kind):
    got = arithmetic(WavelengthChart, "scaled", [[kind, state] for state in STATES])
    for speeds, state in zip(got, STATES, strict=True):
        assert speeds == pytest.approx(packages(kind, **state), rel=1e-12), (kind, state)


def test_plain_speeds_and_wavelengths(arithmetic):
    got = arithmetic(WavelengthChart, "speeds", [[s["pairs"], s["theta"]] for s in STATES])
    assert got == [pytest.approx(packages("none", **state), rel=1e-12) for state in STATES]
    assert arithmetic(WavelengthChart, "wavelength", [[0.5]])[0] == pytest.approx(4 * math.pi)


def test_a_pair_is_new_where_it_turns_further_than_it_ever_did(arithmetic):
    quarter, whole = math.pi / 128, math.pi / 32  # a quarter and a full turn in 64 tokens
    given = {
        (quarter, quarter, 64, 64): False,
        (quarter, quarter, 64, 65): True,
        (quarter, quarter / 4, 64, 256): False,
        (quarter, quarter / 4, 64, 257): True,
        (quarter, quarter / 2, 64, 256): True,
        (whole, whole, 64, 10_000): False,
        (whole * 0.99, whole, 64, 10_000): True,
        (quarter, quarter, 64, 8): False,
    }
    assert arithmetic(WavelengthChart, "isNew", [list(x) for x in given]) == list(given.values())


# --- the page


def test_the_state_in_words_pictures_and_table(show):
    page = show(WavelengthChart())
    bare = new_pairs("none", wanted=256, pairs=16, theta=10_000, trained=64, factor=4)
    assert 0 < bare < 16
    assert said(page).startswith(
        f"Without scaling, {bare} of 16 pairs come to angles within 256 tokens that 64 did not "
        f"show. {16 - bare} pairs turned full circle in training, and 0 of these are slowed."
    )
    assert pictured(page).endswith(
        f"lines at the trained length, 64, and the wanted one, 256; {bare} pairs are marked, "
        "since they come to new angles"
    )
    assert page.locator(".lc-new").count() == bare
    rows = table(page)
    assert len(rows) == 16
    assert [row[-1] for row in rows].count("yes") == bare
    assert rows[0] == ["0", "6.3", "6.3", "1.00", "10.2", "no"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_scaling_is_described(show, kind):
    page = show(WavelengthChart())
    names = dict(zip(KINDS, ("position interpolation", "NTK-aware", "YaRN", "Llama 3.1's"),
                     strict=True))  # fmt: skip
    page.get_by_label("scaling", exact=True).select_option(label=names[kind])
    state = {"pairs": 16, "theta": 10_000, "trained": 64, "factor": 4}
    new = new_pairs(kind, wanted=256, **state)
    assert f" by 4, {new} of 16 pairs come to angles within 256 tokens" in said(page)
    assert page.locator(".lc-new").count() == new
    before, now = packages("none", **state), packages(kind, **state)
    by = [b / n for b, n in zip(before, now, strict=True)]
    assert [row[3] for row in table(page)] == [f"{x:.2f}" for x in by]
    slowed = sum(b * 64 >= 2 * math.pi and x > 1.000001 for b, x in zip(before, by, strict=True))
    assert f"and {slowed} of these are slowed." in said(page)
    assert ("All scores are multiplied by 1.30." in said(page)) == (kind == "yarn")
    assert pictured(page, 1).endswith("at the slowest; the factor, 4, is a dashed line")


def test_the_buttons_set_a_known_model(show):
    page = show(WavelengthChart())
    page.get_by_role("button", name="Llama 3.1").click()
    state = {name: LLAMA[name] for name in ("pairs", "theta", "trained", "factor")}
    new = new_pairs("llama3", wanted=131_072, **state)
    assert new > 0
    assert said(page).startswith(f"Under Llama 3.1's scaling by 8, {new} of 64 pairs come to")
    assert value(page, "wanted length, tokens") == "131072"
    page.get_by_role("button", name="This page's model").click()
    assert said(page).startswith("Without scaling, ")
    assert value(page, "pairs of a head") == "16"


def test_every_control_changes_the_chart(show):
    page = show(WavelengthChart())
    choose(page, "scaling", "linear")
    assert ", 0 of 16 pairs come" in said(page)
    enter(page, "factor s", "2")
    state = {"pairs": 16, "theta": 10_000, "trained": 64, "factor": 2}
    assert f", {new_pairs('linear', wanted=256, **state)} of 16 pairs come" in said(page)
    enter(page, "wanted length, tokens", "128")
    assert ", 0 of 16 pairs come to angles within 128 tokens that 64 did not show" in said(page)
    enter(page, "trained length, tokens", "32")
    enter(page, "base θ", "500000")
    enter(page, "pairs of a head", "8")
    state = {"pairs": 8, "theta": 500_000, "trained": 32, "factor": 2}
    assert f", {new_pairs('linear', wanted=128, **state)} of 8 pairs come" in said(page)
    enter(page, "factor s", "0.5")
    assert "0.5 is not possible" in noted(page)
    assert value(page, "factor s") == "1"


def test_python_sets_the_state():
    made = WavelengthChart(**LLAMA)
    assert (made.scaling, made.pairs, made.wanted) == ("llama3", 64, 131_072)
    made.factor = 500
    assert made.factor == 64
    assert "500" in made.note
    with pytest.raises(traitlets.TraitError, match="scaling must be one of none, linear, ntk"):
        made.scaling = "longrope"
