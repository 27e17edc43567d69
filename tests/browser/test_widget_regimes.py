"""A widget of chapter 26: what it says of curves is computed from them, and every control obeys."""

import itertools

import numpy as np

from llmcourse_classroom.widgets.regimes import RateRegimes
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import rate_runs
from tests.browser.twins import agrees


def trailing_mean(values, window):
    known = [[x for x in values[: i + 1] if x is not None] for i in range(len(values))]
    ends = zip(values, known, strict=True)
    return [None if value is None else np.mean(end[-window:]) for value, end in ends]


def features(run):
    """What can be read off the curves of a run; None is not finite, or not measured."""
    steps, train = run["steps"], run["train"]
    known = [loss for loss in train if loss is not None]
    tenth = max(1, len(known) // 10)
    end = np.mean(known[-tenth:])
    measured = [loss for loss in run["validation"] if loss is not None]
    return {
        "first": known[0],
        "end": end,
        "late_fall": np.mean(known[-3 * tenth : -2 * tenth] or known[:1]) - end,
        "lowest": min(known),
        "lowest_step": steps[train.index(min(known))],
        "rise": max(np.subtract(known, np.minimum.accumulate(known))),
        "broken": steps[train.index(None)] if None in train else None,
        "validation": measured[-1] if measured else None,
    }


BY_HAND = [5.0, 4.0, 4.5, 3.0, 3.5, 3.25, 2.5, 2.75, 2.0, 2.25]


def test_means_and_features_are_those_of_python(arithmetic):
    runs = [run for points in (60, 3) for run in RateRegimes(rate_runs(points)).runs]
    runs.append({"steps": list(range(0, 100, 10)), "train": BY_HAND})
    runs[-1]["validation"] = [None] * 9 + [2.5]
    grid = [[run["train"], window] for run in runs for window in (1, 2, 7, 100)]
    agrees(arithmetic, RateRegimes, "trailingMean", grid, trailing_mean, rel=1e-12)
    near = {"rel": 1e-12, "abs": 1e-14}
    found = agrees(arithmetic, RateRegimes, "features", [[r] for r in runs], features, **near)
    assert tuple(found[-1].values()) == (5.0, 2.25, 0.5, 2.0, 80, 0.5, None, 2.5)


def test_a_deal_is_an_order_and_deals_differ(arithmetic):
    deals = arithmetic(RateRegimes, "dealt", [[4, deal] for deal in range(1, 201)])
    assert all(sorted(deal) == [0, 1, 2, 3] for deal in deals)
    counts = [deals.count(list(order)) for order in itertools.permutations(range(4))]
    assert min(counts) >= 1
    assert max(counts) < 25


def test_all_curves_are_read_at_a_step(show):
    made = RateRegimes(rate_runs())
    page = show(made, says=["Lowest at the end: good, rate 0.003"])
    enter(page, "at step", "150")
    place = made.runs[1]["steps"].index(150)
    train, validation = made.runs[1]["train"][place], made.runs[1]["validation"][place]
    holds(said(page), f"good {train:.2f} (validation {validation:.2f})")
    keys(page, "at step", "End", "At step 295: ", "diverging not finite")


def test_one_curve_is_told_in_words(show):
    made = RateRegimes(rate_runs())
    page = show(made)
    choose(page, "show", "A")
    fall = features(made.runs[0])["late_fall"]
    assert 0.1 < fall < 0.3
    holds(said(page), "still falls", f"by {fall:.2f} over the last fifth")
    choose(page, "show", "B", "no other ends lower")
    assert page.locator(".lc-stage svg g[opacity='0.25']").count() == 3
    choose(page, "show", "C", "largest rise", "lowest point is 0.")
    choose(page, "show", "D", "not finite from step 180")


def test_solid_is_training_and_dashed_is_validation(show):
    page = show(RateRegimes(rate_runs()))
    dashed = page.locator(".lc-stage svg polyline[stroke-dasharray='6 4']")
    solid = page.locator(".lc-stage svg polyline[stroke-width='2']")
    before = solid.first.get_attribute("points")
    for points in ("10", "1"):  # a mean smooths
        enter(page, "points in a mean", points)
        assert (solid.first.get_attribute("points") == before) == (points == "1")
    assert dashed.count() == 4
    page.get_by_label("validation, dashed").uncheck()
    assert dashed.count() == 0
    page.get_by_label("training, solid").uncheck()
    assert solid.count() == 0
    keys(page, "validation, dashed", "Space")
    assert dashed.count() == 4
    mark = page.locator(".lc-stage svg text", has_text="▲ up to 17")
    page.get_by_label("training, solid").check()
    assert mark.count() == 1
    page.get_by_label("up to the highest loss").check()
    assert mark.count() == 0


def test_names_are_hidden_and_guessed_and_another_deal_forgets_the_guesses(show):
    page = show(RateRegimes(rate_runs()))
    keys(page, "hide the names and guess", "Space", "0 of 4 right")
    shown = page.locator(".lc-stages").inner_text() + said(page) + pictured(page)
    shown = shown.replace("too low\ngood\ntoo high but going\ndiverging", "")
    for name in ("too low", "too high", "diverging", "0.003"):
        assert name not in shown
    rows = table(page, "What each curve does")
    assert [row[:2] for row in rows] == [[letter, "?"] for letter in "ABCD"]
    broken = next(row[0] for row in rows if row[7] != "yes")
    choose(page, f"curve {broken} is", "good")
    holds(page.locator(".rr-key").inner_text(), "✗ no")
    holds(said(page), "0 of 4 right")
    choose(page, f"curve {broken} is", "diverging")
    holds(page.locator(".rr-key").inner_text(), "✓ right, rate 1: ")
    holds(said(page), "1 of 4 right")
    # Ends tell the others apart: lowest, between, highest.
    ends = sorted((float(row[3]), row[0]) for row in rows if row[0] != broken)
    for (_, letter), name in zip(ends, ("good", "too high but going", "too low"), strict=True):
        choose(page, f"curve {letter} is", name)
    holds(said(page), "All 4 right")
    choose(page, "curve A is", "good")
    before = pictured(page)
    by_key(page, "Deal again")
    assert page.get_by_label("curve A is").input_value() == ""
    press(page, "Deal again", times=3)
    assert pictured(page) != before
    page.get_by_label("hide the names and guess").uncheck()
    assert not page.get_by_role("button", name="Deal again").is_visible()
    holds(pictured(page), "A, too low")
