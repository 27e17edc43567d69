"""A widget of chapter 26: what it says of curves is computed from them, and every control obeys."""

import itertools
import math

import numpy as np
import pytest
import traitlets
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.course.widgets.regimes import RateRegimes
from tests.browser.kit import choose, enter, noted, pictured, said, table
from tests.browser.references import features, trailing_mean
from tests.browser.registry import rate_runs

# --- the Python side


@given(values=st.lists(st.floats(-100, 100), min_size=1, max_size=30), window=st.integers(1, 12))
def test_a_trailing_mean_is_a_mean_of_a_slice(values, window):
    expected = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    assert trailing_mean(values, window) == pytest.approx(expected, abs=1e-12)


def test_what_is_not_finite_is_left_out_of_a_mean():
    assert trailing_mean([1.0, None, 3.0, 5.0], 2) == [1.0, None, 2.0, 4.0]


def test_features_by_hand():
    train = [5.0, 4.0, 4.5, 3.0, 3.5, 3.25, 2.5, 2.75, 2.0, 2.25]
    run = {"steps": list(range(0, 100, 10)), "train": train, "validation": [None] * 9 + [2.5]}
    found = features(run)
    assert found == (5.0, 2.25, 0.5, 2.0, 80, 0.5, None, 2.5)
    broken = features({**run, "train": [*train[:8], None, None], "validation": [None] * 10})
    assert broken == (5.0, 2.75, 0.5, 2.5, 60, 0.5, 80, None)


# --- the shipped arithmetic, in Chromium


def test_trailing_means_are_those_of_python(arithmetic):
    lists = [run["train"] for run in RateRegimes(rate_runs()).runs]
    grid = [[values, window] for values in lists for window in (1, 2, 7, 100)]
    for (values, window), found in zip(
        grid, arithmetic(RateRegimes, "trailingMean", grid), strict=True
    ):
        expected = trailing_mean(values, window)
        assert [x is None for x in found] == [x is None for x in expected]
        assert [x for x in found if x is not None] == pytest.approx(
            [x for x in expected if x is not None], rel=1e-12
        )


def test_features_are_those_of_python(arithmetic):
    runs = [*RateRegimes(rate_runs()).runs, *RateRegimes(rate_runs(3)).runs]
    for run, found in zip(
        runs, arithmetic(RateRegimes, "features", [[run] for run in runs]), strict=True
    ):
        expected = features(run)._asdict()
        nothing = [name for name, one in expected.items() if one is None]
        assert [name for name, one in found.items() if one is None] == nothing
        for name in expected.keys() - set(nothing):
            assert found[name] == pytest.approx(expected[name], rel=1e-12, abs=1e-14), name


def test_a_deal_is_an_order_and_deals_differ(arithmetic):
    deals = arithmetic(RateRegimes, "dealt", [[4, deal] for deal in range(1, 201)])
    assert all(sorted(deal) == [0, 1, 2, 3] for deal in deals)
    counts = [deals.count(list(order)) for order in itertools.permutations(range(4))]
    assert min(counts) >= 1
    assert max(counts) < 25


# --- the page


def test_all_curves_are_read_at_a_step(show):
    made = RateRegimes(rate_runs())
    page = show(made)
    assert "Lowest at the end: good, rate 0.003." in said(page)
    enter(page, "at step", "150")
    place = made.runs[1]["steps"].index(150)
    train, validation = made.runs[1]["train"][place], made.runs[1]["validation"][place]
    assert f"good {train:.2f} (validation {validation:.2f})" in said(page)
    page.get_by_label("at step", exact=True).press("End")
    assert "At step 295: " in said(page)
    assert "diverging not finite" in said(page)
    enter(page, "at step", "1000")
    assert "1,000 is not possible (from 0 to 295, whole); 295 is used." in (noted(page))


def test_one_curve_is_told_in_words(show):
    made = RateRegimes(rate_runs())
    page = show(made)
    choose(page, "show", "A")
    fall = features(made.runs[0]).late_fall
    assert 0.1 < fall < 0.3
    assert f"it still falls at its end, by {fall:.2f} over the last fifth" in said(page)
    choose(page, "show", "B")
    assert "no other ends lower" in said(page)
    assert page.locator(".lc-stage svg g[opacity='0.25']").count() == 3
    choose(page, "show", "C")
    assert "its largest rise above its own lowest point is 0." in said(page)
    choose(page, "show", "D")
    assert "not finite from step 180 on" in said(page)


def test_solid_is_training_and_dashed_is_validation(show):
    page = show(RateRegimes(rate_runs()))
    dashed = page.locator(".lc-stage svg polyline[stroke-dasharray='6 4']")
    assert dashed.count() == 4
    page.get_by_label("validation, dashed").uncheck()
    assert dashed.count() == 0
    page.get_by_label("training, solid").uncheck()
    assert page.locator(".lc-stage svg polyline[stroke-width='2']").count() == 0
    page.get_by_label("validation, dashed").focus()
    page.keyboard.press("Space")
    assert dashed.count() == 4


def test_the_height_can_hold_the_highest_loss(show):
    page = show(RateRegimes(rate_runs()))
    mark = page.locator(".lc-stage svg text", has_text="▲ up to 17")
    assert mark.count() == 1
    page.get_by_label("up to the highest loss").check()
    assert mark.count() == 0


def test_the_mark_follows_the_mouse(show):
    page = show(RateRegimes(rate_runs()))
    box = page.locator(".lc-stage svg").bounding_box()
    page.mouse.click(box["x"] + 40, box["y"] + 100)
    assert "At step 0: " in said(page)


def test_names_are_hidden_and_guessed(show):
    page = show(RateRegimes(rate_runs()))
    box = page.get_by_label("hide the names and guess")
    box.focus()
    page.keyboard.press("Space")
    assert "0 of 4 right so far" in said(page)
    shown = page.locator(".lc-stages").inner_text() + said(page) + pictured(page)
    shown = shown.replace("too low\ngood\ntoo high but going\ndiverging", "")
    for name in ("too low", "too high", "diverging", "0.003"):
        assert name not in shown
    rows = table(page, "What each curve does")
    assert [row[:2] for row in rows] == [[letter, "?"] for letter in "ABCD"]
    broken = next(row[0] for row in rows if row[7] != "yes")
    choose(page, f"curve {broken} is", "good")
    assert "✗ no. Look again: " in page.locator(".rr-key").inner_text()
    assert "0 of 4 right" in said(page)
    choose(page, f"curve {broken} is", "diverging")
    assert "✓ right, rate 1: " in page.locator(".rr-key").inner_text()
    assert "1 of 4 right" in said(page)
    # Ends tell the others apart: lowest, between, highest.
    ends = sorted((float(row[3]), row[0]) for row in rows if row[0] != broken)
    for (_, letter), name in zip(ends, ("good", "too high but going", "too low"), strict=True):
        choose(page, f"curve {letter} is", name)
    assert "All 4 right." in said(page)


def test_another_deal_forgets_the_guesses(show):
    page = show(RateRegimes(rate_runs(), quiz=True))
    choose(page, "curve A is", "good")
    before = pictured(page)
    page.get_by_role("button", name="Deal again").press("Enter")
    assert page.get_by_label("curve A is").input_value() == ""
    for _ in range(3):
        page.get_by_role("button", name="Deal again").click()
    assert pictured(page) != before
    page.get_by_label("hide the names and guess").uncheck()
    assert not page.get_by_role("button", name="Deal again").is_visible()
    assert "A, too low" in pictured(page)


def test_a_mean_smooths(show):
    page = show(RateRegimes(rate_runs()))
    line = page.locator(".lc-stage svg polyline[stroke-width='2']").first
    before = line.get_attribute("points")
    enter(page, "points in a mean", "10")
    assert line.get_attribute("points") != before
    enter(page, "points in a mean", "1")
    assert line.get_attribute("points") == before


# --- Python


def test_runs_that_do_not_fit_are_refused():
    runs = rate_runs()
    with pytest.raises(ValueError, match="give 2 to 6 runs, not 1"):
        RateRegimes(runs[:1])
    with pytest.raises(ValueError, match="a name of its own"):
        RateRegimes([runs[0], runs[0]])
    changes = [
        ({"rate": 0}, "a rate above 0"),
        ({"name": ""}, "needs a name"),
        ({"steps": runs[0]["steps"][::-1]}, "steps must increase"),
        ({"train": [1.0]}, "60 steps, 1 losses of training"),
        ({"validation": [1.0]}, "60 steps, 60 losses of training and 1 of validation"),
        ({"train": [math.nan] * 60}, "the first loss of training must be finite"),
    ]
    for change, match in changes:
        with pytest.raises(ValueError, match=match):
            RateRegimes([runs[0], runs[1] | change])
    with pytest.raises(ValueError, match="keep every n-th"):
        RateRegimes(rate_runs(501))
    del runs[0]["train"]
    with pytest.raises(ValueError, match=r"a run has no \['train'\]"):
        RateRegimes(runs)


def test_state_is_checked():
    made = RateRegimes(rate_runs())
    made.step = 9_999
    assert made.step == 295
    assert "(from 0 to 295, whole); 295 is used" in made.note
    with pytest.raises(traitlets.TraitError, match="curve must be one of"):
        made.curve = "E"
