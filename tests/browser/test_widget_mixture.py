"""The triangle of chapter 07: the page predicts as the formula does, and every control obeys."""

import itertools
import math
import random

import pytest

from llmcourse_classroom.widgets.mixture import MEAN, MixtureTriangle
from tests.browser.hands import choose, drag, enter, middle
from tests.browser.kit import holds, numbers, pictured, said, table
from tests.browser.registry import MIXING_LAW, measured_mixtures, mixture_triangle
from tests.browser.twins import agrees

WHOLE_PERCENTS = [
    (a / 100, b / 100, (100 - a - b) / 100) for a in range(101) for b in range(101 - a)
]
CORNERS = [[150.0, 24.0], [20.0, 249.0], [280.0, 249.0]]


def predicted(shares):
    return [
        c + k * math.exp(sum(x * r for x, r in zip(t, shares, strict=True)))
        for c, k, t in MIXING_LAW
    ]


def weighted(weights, shares):
    return sum(w * x for w, x in zip(weights, predicted(shares), strict=True))


def is_chosen(page, *percents):
    assert numbers(said(page))[:3] == list(percents)


def test_losses_are_those_of_the_formula(arithmetic):
    some = [[MIXING_LAW, shares] for shares in random.Random(7).sample(WHOLE_PERCENTS, 200)]
    agrees(arithmetic, MixtureTriangle, "losses", some, lambda _, r: predicted(r), rel=1e-13)


@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0.2, 0.3, 0.5), (1 / 3, 1 / 3, 1 / 3)])
def test_no_mixture_of_whole_percents_is_better_than_the_best(arithmetic, weights):
    found = arithmetic(MixtureTriangle, "best", [[MIXING_LAW, weights]])[0]
    assert tuple(found) in WHOLE_PERCENTS
    least = min(weighted(weights, shares) for shares in WHOLE_PERCENTS)
    assert weighted(weights, found) == pytest.approx(least, rel=1e-13)


def test_every_mixture_is_found_again_at_its_place(arithmetic):
    places = arithmetic(MixtureTriangle, "place", [[shares, CORNERS] for shares in WHOLE_PERCENTS])
    for shares, place in zip(WHOLE_PERCENTS, places, strict=True):
        there = zip(shares, CORNERS, strict=True)
        x, y = map(sum, zip(*[(r * cx, r * cy) for r, (cx, cy) in there], strict=True))
        assert place == pytest.approx([x, y], abs=1e-9)
    back = arithmetic(MixtureTriangle, "mixtureAt", [[place, CORNERS] for place in places])
    assert [tuple(shares) for shares in back] == WHOLE_PERCENTS


def test_a_press_anywhere_is_a_mixture_of_whole_percents(arithmetic):
    draws = random.Random(8)
    places = [[draws.uniform(-100, 400), draws.uniform(-100, 400)] for _ in range(2_000)]
    places += [[150, -90], [150, 999]]
    found = arithmetic(MixtureTriangle, "mixtureAt", [[place, CORNERS] for place in places])
    assert {tuple(shares) for shares in found} <= set(WHOLE_PERCENTS)
    assert found[-2:] == [[1, 0, 0], [0, 0.5, 0.5]]
    # On an edge, two shares are rounded up at once.
    halves = [[[2 * x + 1, 0], [[0, 0], [200, 0], [0, 200]]] for x in range(100)]
    found = arithmetic(MixtureTriangle, "mixtureAt", halves)
    assert {tuple(shares) for shares in found} <= {(a, b, 0) for a, b, _ in WHOLE_PERCENTS}
    assert {sum(shares) for shares in found} == {1}


def test_a_run_is_near_up_to_two_percent_and_the_nearest_is_taken(arithmetic):
    runs = measured_mixtures()
    given = [(0.98, 0.01, 0.01), (0.97, 0.02, 0.01), (0.52, 0.18, 0.3), (0.5, 0.2, 0.3)]
    given.append((0.2, 0.23, 0.57))
    close = [[[0.5, 0.2, 0.3], [1, 1, 1]], [[0.51, 0.2, 0.29], [2, 2, 2]]]
    cases = [[runs, shares] for shares in given]
    cases += [[close, shares] for shares in ((0.51, 0.2, 0.29), (0.5, 0.21, 0.29))]
    got = arithmetic(MixtureTriangle, "nearest", [*cases, [[], given[0]]])
    assert got == [runs[0], None, runs[1], runs[1], None, close[1], close[0], None]


def area(points):
    turned = points[1:] + points[:1]
    return abs(sum(x * b - a * y for (x, y), (a, b) in zip(points, turned, strict=True)))


def test_what_is_below_a_level_is_cut_off_where_the_level_is(arithmetic):
    # The value is the height, so that the share below it is known: that of similar triangles.
    for corners in itertools.permutations([[0, 0, 0], [4, 0, 0], [1, 3, 3]]):
        for level in (0.75, 1.5, 2.9):
            got = arithmetic(MixtureTriangle, "below", [[corners, level]])[0]
            assert [y for _, y in got["cut"]] == pytest.approx([level, level], rel=1e-12)
            assert all(y <= level + 1e-12 for _, y in got["outline"])
            assert area(got["outline"]) == pytest.approx(12 * (1 - (1 - level / 3) ** 2), rel=1e-12)
    whole, nothing = arithmetic(MixtureTriangle, "below", [[corners, 3], [corners, -1]])
    assert sorted(whole["outline"]) == sorted([x, y] for x, y, _ in corners)
    assert whole["cut"] == nothing["outline"] == nothing["cut"] == []


def test_levels_are_round_few_and_mostly_among_the_lower_values(arithmetic):
    steep = [3 + 5 * (i / 1_000) ** 12 for i in range(1_000)]
    even = [3 + i / 1_000 for i in range(1_000)]
    far, near = arithmetic(MixtureTriangle, "levelsOf", [[steep], [even]])
    for levels, values in ((far, steep), (near, even)):
        assert levels == sorted(set(levels))
        assert min(values) <= levels[0]
        assert levels[-1] <= max(values)
        assert 5 <= len(levels) <= 14
        assert all(level == round(level, 2) for level in levels)
    assert sum(level <= steep[800] for level in far) >= 4
    assert max(far) >= 6


def test_the_mixture_in_words_and_the_handle_by_keys_and_by_hand(show):
    page = show(mixture_triangle(first=0.5, second=0.2))
    stories, code, prose = (f"{loss:.2f}" for loss in predicted((0.5, 0.2, 0.3)))
    words = "50 % stories, 20 % code, 30 % prose"
    holds(
        said(page), f"{words}: ", f" {stories} on stories", f" {code} on code", f" {prose} on prose"
    )
    mean = sum(predicted((0.5, 0.2, 0.3))) / 3
    holds(said(page), f"mean of all, is {mean:.2f} nats", f"A run with {words} measured 3.22")
    holds(pictured(page), "3 measured mixtures", f"chosen one at {words}")
    holds(pictured(page, 1), f"stories: {stories} predicted, 2.51 measured; code: ")
    assert table(page)[1] == [words, "2.51", stories, "3.41", code, "3.75", prose]
    enter(page, "share of stories", "0.4")  # away from all runs nothing is said of them
    assert "measured" not in said(page)
    assert "measured" not in pictured(page, 1)
    enter(page, "share of stories", "0.5")
    handle = page.get_by_role("slider", name="mixture in the picture")
    handle.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    is_chosen(page, 52, 21, 27)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageDown")
    is_chosen(page, 42, 20, 38)
    box, corner = handle.bounding_box(), page.locator(".lc-stage > svg").first.bounding_box()
    left, low = corner["x"] - box["x"] + 2, corner["y"] - box["y"] + corner["height"] - 2
    drag(page, handle, middle(handle), (left, low))
    is_chosen(page, 0, 100, 0)


def test_one_share_takes_from_the_other_what_is_too_much(show):
    page = show(mixture_triangle(first=0.5, second=0.4))
    enter(page, "share of stories", "0.8", values={"share of code": "0.2"})
    is_chosen(page, 80, 20, 0)
    enter(page, "share of code", "0.9", values={"share of stories": "0.1"})
    enter(page, "share of code", "7", note=["7 is not possible"])
    is_chosen(page, 0, 100, 0)
    made = mixture_triangle(first=0.2, second=0.7)
    assert (made.first, made.second, made.target) == (0.2, 0.7, MEAN)
    made.first = 0.45
    assert (made.first, made.second) == (0.45, 0.55)
    made.second = 0.9
    assert (made.first, made.second) == (0.1, 0.9)


@pytest.mark.parametrize("target", ["code", MEAN])
def test_the_button_goes_to_the_best_mixture_for_the_target(show, target):
    page = show(mixture_triangle())
    choose(page, "loss to make small", target)
    assert "has less" not in said(page)
    page.get_by_role("button", name="Best").click()
    weights = [1 / 3] * 3 if target == MEAN else [0, 1, 0]
    best = min(WHOLE_PERCENTS, key=lambda shares: weighted(weights, shares))
    is_chosen(page, *(round(100 * share) for share in best))
    holds(said(page), f"{target}, is {weighted(weights, best):.2f} nats", "no mixture")


def test_the_contours_are_those_of_the_target(show):
    page = show(mixture_triangle())
    paths = page.locator(".lc-stage > svg").first.locator("path")
    drawn = []
    for target in ("stories", "code", "prose", "stories"):
        choose(page, "loss to make small", target)
        place = ("stories", "code", "prose").index(target)
        corners = [predicted([float(i == j) for j in range(3)])[place] for i in range(3)]
        holds(pictured(page), f"the loss for {target} from ", f" to {max(corners):.2f} nats")
        drawn.append(paths.evaluate_all("all => all.map((one) => one.getAttribute('d'))"))
    assert drawn[0] == drawn[3]
    assert drawn[0] != drawn[1] != drawn[2]


@pytest.mark.parametrize("width", [760, 360])
def test_the_point_is_dragged(show, width):
    page = show(mixture_triangle(), width=width)
    picture = page.locator(".lc-stage > svg").first
    box = picture.bounding_box()
    centre, low = box["width"] / 2, box["height"] - 24
    drag(page, picture, (centre, low - 60), (centre, low + 20))
    is_chosen(page, 0, 50, 50)
    drag(page, picture, (centre, low - 60), (centre, low + 20), (centre, -5))
    is_chosen(page, 100, 0, 0)
    page.mouse.move(box["x"] + centre, box["y"] + low)
    is_chosen(page, 100, 0, 0)


def test_a_tiny_k_with_a_large_t_is_not_rounded_away(show):
    law = [(0.762, 0.0033007, (0.0, 7.5403, 7.4496)), (3.7, 2.397112e-7, (17.2293, 0, 16.5796))]
    law.append((4.1316, 1.17566777e-10, (24.882446, 22.955433, 0.0)))
    page = show(MixtureTriangle(["a", "b", "c"], law, first=1, second=0))
    c, k, t = law[2]
    holds(said(page), f"{c + k * math.exp(t[0]):.2f} on c")
