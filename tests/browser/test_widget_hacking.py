"""The widget of chapter 42: the page reads curves as the package and plain Python do, and obeys."""

import random

import numpy as np
import pytest

from llmcourse_classroom.widgets import HackingBoard
from llmcourse_labs.tuning import best_stop
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, said, table
from tests.browser.registry import hacking_board
from tests.browser.twins import agrees, each

DRAWS = random.Random(42)


def drawn_points():
    kls = sorted({0.0, *(round(DRAWS.uniform(0, 7), 3) for _ in range(DRAWS.randint(1, 12)))})
    return [[kl, DRAWS.gauss(0, 1), DRAWS.choice([0.5, DRAWS.gauss(0, 1)])] for kl in kls]


MANY = [drawn_points() for _ in range(60)]


def test_a_value_between_two_points_is_on_the_line_between_them(arithmetic):
    """Mutants: the point before, the point after, the share the wrong way round."""
    grid = [[points, kl] for points in MANY for kl in (0, 0.4, points[1][0], 3.3, 9)]
    for (points, kl), ours in each(arithmetic, HackingBoard, "at", grid):
        kls, *columns = zip(*points, strict=True)
        assert ours == pytest.approx([np.interp(kl, kls, column) for column in columns])


def test_the_best_stop_is_that_of_the_package(arithmetic):
    """Mutants: the last of equals, the highest proxy."""

    def stop(points):
        return best_stop([gold for _, _, gold in points], patience=len(points))

    agrees(arithmetic, HackingBoard, "bestStop", [[points] for points in MANY], stop)


def test_the_sentence_follows_every_control(show):
    page = show(hacking_board())
    curves = page.locator(".lc-stage polyline.lc-1, .lc-stage polyline.lc-2")
    holds(said(page), "1 nat by “one judge”: proxy 1.00, gold 0.80")
    holds(said(page), "highest at 1 nat, 0.80", "the best stop")
    enter(page, "budget of KL, in nats", "3")
    holds(said(page), "3 nats by “one judge”: proxy 3.00, gold 0.20", "highest at 1 nat, 0.80")
    holds(said(page), "cost 0.60", "rose by 2.00")
    holds(page.get_by_role("img").get_attribute("aria-label"), "gold 0.20")
    enter(page, "budget of KL, in nats", "0.5")
    holds(said(page), "gold 0.60", "highest at 1 nat, 0.80", "more to gain")
    enter(page, "seed", "1", "proxy 0.60, gold 0.50")
    assert curves.count() == 2
    page.get_by_label("all seeds").check()
    assert curves.count() == 6
    enter(page, "seed", "0")
    assert table(page)[2] == ["1", "1.00", "0.80", "yes"]
    choose(page, "score", "five judges", "does not turn")
