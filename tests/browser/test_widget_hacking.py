"""The widget of chapter 42: the page reads curves as the package and plain Python do, and obeys."""

import math
import random

import numpy as np
import pytest

from llmcourse.course.widgets import HackingBoard
from llmcourse.posttrain import best_stop, over_optimised, trick_world
from tests.browser.kit import enter, noted, said, table, value
from tests.browser.registry import hacking_board, hacking_scores

DRAWS = random.Random(42)


def drawn_points():
    """Random points, with KL that increases from 0."""
    kls = sorted({0.0, *(round(DRAWS.uniform(0, 7), 3) for _ in range(DRAWS.randint(1, 12)))})
    return [[kl, DRAWS.gauss(0, 1), DRAWS.choice([0.5, DRAWS.gauss(0, 1)])] for kl in kls]


MANY = [drawn_points() for _ in range(60)]

# --- the shipped arithmetic, in Chromium


def test_a_value_between_two_points_is_on_the_line_between_them(arithmetic):
    """Mutants: the point before, the point after, the share the wrong way round."""
    grid = [[points, kl] for points in MANY for kl in (0, 0.4, points[1][0], 3.3, 9)]
    found = arithmetic(HackingBoard, "at", grid)
    for (points, kl), ours in zip(grid, found, strict=True):
        kls, *columns = zip(*points, strict=True)
        assert ours == pytest.approx([np.interp(kl, kls, column) for column in columns])


def test_the_best_stop_is_that_of_the_package(arithmetic):
    """Mutants: the last of equals, the highest proxy."""
    found = arithmetic(HackingBoard, "bestStop", [[points] for points in MANY])
    assert found == [
        best_stop([gold for _, _, gold in points], patience=len(points)) for points in MANY
    ]


def test_the_packages_curves_are_shown_as_they_are(show):
    world = trick_world(0, num_answers=4_000)
    budgets = (0, 0.5, 1, 2, 4)
    points = over_optimised(world, world.proxies_MN[0], budgets)
    rounded = [[kl, proxy, gold] for kl, (_, proxy, gold) in zip(budgets, points, strict=True)]
    page = show(HackingBoard([{"name": "one", "runs": [rounded]}], budget=2.0))
    assert f"proxy {points[3].proxy:.2f}, gold {points[3].gold:.2f}" in said(page)


# --- the page


def test_the_sentence_follows_every_control(show):
    page = show(hacking_board())
    assert said(page) == (
        "With 1 nat by “one judge”: proxy 1.00, gold 0.80. "
        "Gold is highest at 1 nat, 0.80: this is the best stop."
    )
    enter(page, "budget of KL, in nats", "3")
    assert said(page) == (
        "With 3 nats by “one judge”: proxy 3.00, gold 0.20. Gold is highest at 1 nat, 0.80: "
        "pushing on has cost 0.60, while the proxy rose by 2.00."
    )
    assert "gold 0.20" in page.get_by_role("img").get_attribute("aria-label")
    enter(page, "budget of KL, in nats", "0.5")
    assert "gold 0.60. Gold is highest at 1 nat, 0.80: there is more to gain." in said(page)
    enter(page, "seed", "1")
    assert "proxy 0.60, gold 0.50" in said(page)
    page.get_by_label("score", exact=True).select_option("five judges")
    assert "Gold does not turn as far as this run goes." in said(page)


def test_all_seeds_are_drawn_when_asked(show):
    page = show(hacking_board())
    curves = page.locator(".lc-stage polyline.lc-1, .lc-stage polyline.lc-2")
    assert curves.count() == 2
    page.get_by_label("all seeds").check()
    assert curves.count() == 6


def test_a_budget_beyond_the_runs_is_refused_in_words(show):
    page = show(hacking_board())
    enter(page, "budget of KL, in nats", "9")
    assert value(page, "budget of KL, in nats") == "4"
    assert "9 is not possible (from 0 to 4)" in noted(page)
    page.locator(".lc-table > summary").click()
    assert table(page)[2] == ["1", "1.00", "0.80", "yes"]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[0, 1, 1]], "2 to 40 points"),
        ([[0, 1, 1], [1, 2]], "2 to 40 points of KL, proxy and gold"),
        ([[0, 1, 1], [1, math.nan, 1]], "all numbers are finite"),
        ([[0.5, 1, 1], [1, 2, 1]], "the KL increases from 0"),
        ([[0, 1, 1], [0, 2, 1]], "the KL increases from 0"),
        ([[0, 1, 1], [101, 2, 1]], "to at most 100"),
    ],
)
def test_what_points_it_refuses(points, message):
    with pytest.raises(ValueError, match=message):
        HackingBoard([{"name": "x", "runs": [points]}])


def test_what_the_widget_refuses():
    first, second = hacking_scores()
    with pytest.raises(ValueError, match="1 to 6 scores, not 0"):
        HackingBoard([])
    with pytest.raises(ValueError, match=r"has no \['runs'\]"):
        HackingBoard([{"name": "x"}])
    with pytest.raises(ValueError, match="a name of its own"):
        HackingBoard([first, second | {"name": first["name"]}])
    with pytest.raises(ValueError, match="1 to 8 seeds, not 0"):
        HackingBoard([{"name": "x", "runs": []}])
    with pytest.raises(ValueError, match="names have 1 to 30"):
        HackingBoard([first | {"name": ""}])
    with pytest.raises(ValueError, match="the same number of seeds"):
        HackingBoard([first, second | {"runs": second["runs"][:1]}])
