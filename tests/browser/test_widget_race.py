"""The race of chapter 25: its paths are those of the package's optimizers, and it obeys."""

import itertools
import math
import re

import pytest
import torch

from llmcourse import optim
from llmcourse_classroom.widgets.race import DECAYS, SURFACES, OptimizerRace
from tests.browser.hands import choose, enter, keys, press, to_the_end
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees, each

KINDS = ("sgd", "momentum", "rmsprop", "adam")
BASE = {"surface": "bowl", "angle": 45, "stretch": 50, "start_x": -2.0, "start_y": 1.0}
BASE |= {"beta1": 0.9, "beta2": 0.95, "decay": 0, "decay_kind": DECAYS[0]}


def height(settings, place):
    x, y = place
    steep = settings["stretch"]
    if settings["surface"] == "valley":
        return ((1 - x) ** 2 + steep * (y - x**2 / 2) ** 2) / 2
    angle = math.radians(settings["angle"]) if settings["surface"] == "rotated bowl" else 0
    u = math.cos(angle) * x + math.sin(angle) * y
    v = math.cos(angle) * y - math.sin(angle) * x
    return (u**2 + steep * v**2) / 2


def optimizer(kind, place, rate, settings):
    betas = (settings["beta1"], settings["beta2"])
    if kind == "adam":
        coupled = settings["decay_kind"] == "in the gradient (Adam)"
        made = optim.Adam if coupled else optim.AdamW
        return made([place], lr=rate, betas=betas, weight_decay=settings["decay"])
    if kind == "rmsprop":
        return optim.RMSProp([place], lr=rate, alpha=betas[1])
    return optim.SGD([place], lr=rate, momentum=betas[0] if kind == "momentum" else 0)


def walked(kind, rate, settings, steps):
    angle = math.radians(settings["angle"]) if settings["surface"] == "rotated bowl" else 0
    u, v = settings["start_x"], settings["start_y"]
    start = [math.cos(angle) * u - math.sin(angle) * v, math.sin(angle) * u + math.cos(angle) * v]
    place = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    taker, points = optimizer(kind, place, rate, settings), [place.tolist()]
    for _ in range(steps):
        taker.zero_grad()
        height(settings, place).backward()
        taker.step()
        points.append(place.tolist())
        if max(abs(p) for p in points[-1]) >= 1e6:
            break
    return points


def grid():
    for surface, kind, rate in itertools.product(SURFACES, KINDS, (0.004, 0.03, 0.5)):
        yield [kind, rate, BASE | {"surface": surface, "angle": 30}, 30]
        yield [kind, rate, BASE | {"surface": surface, "beta1": 0.0, "beta2": 0.5}, 12]
    for surface, how, decay in itertools.product(SURFACES, DECAYS, (0.3, 2)):
        yield ["adam", 0.1, BASE | {"surface": surface, "decay": decay, "decay_kind": how}, 40]


def test_walks_as_the_optimizers_of_the_package(arithmetic):
    near = {"rel": 1e-8, "abs": 1e-10}  # rounding grows along a path that runs away or swings
    paths = agrees(arithmetic, OptimizerRace, "walk", grid(), walked, **near)
    assert any(len(path) <= case[-1] for path, case in zip(paths, grid(), strict=True))


def test_contours_are_of_one_height(arithmetic):
    surfaces = [BASE | {"surface": surface, "angle": 30} for surface in SURFACES]
    given = itertools.product(surfaces, (0.05, 6, 70))
    for (one, level), points in each(arithmetic, OptimizerRace, "contour", given):
        if one["surface"] != "valley" or level < 1:
            assert points[0] == pytest.approx(points[-1], abs=1e-6)
        heights = [height(one, point) for point in points]
        assert heights == pytest.approx([level] * len(points), rel=1e-9)


def test_arrival_is_the_first_step_after_which_none_is_outside(arithmetic):
    back_out = [[2, 0], [0.05, 0], [0.5, 0]]
    paths = [[*back_out, [0.09, 0], [0, 0.1]], back_out, [[0, 0]], [[0.08, 0.08]]]
    got = arithmetic(OptimizerRace, "arrival", [[BASE, path] for path in paths])
    assert got == [3, None, 0, None]


@pytest.mark.parametrize("surface", SURFACES)
def test_the_best_rate_is_best_of_all(arithmetic, surface):
    settings = BASE | {"surface": surface}
    (best,) = arithmetic(OptimizerRace, "bestRate", [["momentum", settings, 120]])
    lowest = [1, 0.5] if surface == "valley" else [0, 0]
    rates = [k * 10**-p for p in (4, 3, 2, 1) for k in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)]
    times, cases = {}, [["momentum", rate, settings, 120] for rate in rates]
    for (_, rate, *_), path in each(arithmetic, OptimizerRace, "walk", cases):
        there = [i for i, point in enumerate(path) if math.dist(point, lowest) > 0.1][-1] + 1
        times[round(rate, 6)] = there if there < len(path) else math.inf
    assert times[best] == min(times.values()) < math.inf


def test_the_race_upright(show):
    page = show(OptimizerRace(), says=["All start"])
    press(page, "Step", "After 1 step: ")
    keys(page, "steps taken", "ArrowRight", "After 2 steps: ")
    enter(page, "steps taken", "100")
    arrived = re.findall(r"(\w+) arrived at step (\d+)", said(page))
    assert arrived[:3] == [("momentum", "44"), ("Adam", "52"), ("RMSProp", "75")]
    holds(said(page), "SGD", "2 / 50 = 0.04")
    board = table(page, "Who has arrived")
    assert [row[:4] for row in board] == [
        ["SGD", "0.03", "99", "4"],
        ["momentum", "0.005", "44", "1"],
        ["RMSProp", "0.03", "75", "3"],
        ["Adam", "0.08", "52", "2"],
    ]
    assert table(page, "Where each one is")[-1][0] == "100"
    end = walked("sgd", 0.03, BASE, 100)[-1]
    assert float(board[0][4]) == pytest.approx(math.hypot(*end), rel=1e-3)
    to_the_end(page, "After 99 steps: ")  # when all have arrived
    press(page, "Reset", "All start")


def test_turned_by_45_degrees(show):
    page = show(OptimizerRace(steps=250))
    hidden = page.get_by_label("turned by, degrees", exact=True)
    assert not hidden.is_visible()
    choose(page, "surface", "rotated bowl", "All start")  # another surface is another race
    enter(page, "steps taken", "250")
    holds(said(page), "turning changes nothing", "RMSProp arrives at step 178 (upright: at 75)")
    holds(said(page), "Adam arrives at step 109 (upright: at 52)")
    assert hidden.is_visible()
    enter(page, "turned by, degrees", "0")
    assert "upright" not in said(page)


def test_best_rates_are_taken(show):
    page = show(OptimizerRace(surface="valley", steps=300, rmsprop=False, sgd=False))
    holds(said(page), "limit the rate")
    page.get_by_role("button", name="best rate").press("Enter")
    holds(said(page), "momentum arrived at step 60", "Adam arrived at step 69")
    assert value(page, "rate of Adam") == "0.5"


def test_what_runs_away_is_said_to(show):
    page = show(OptimizerRace(steps=300))
    enter(page, "rate of SGD", "0.05")
    for text in (said(page), pictured(page)):
        holds(text, "SGD has run away")
    holds(pictured(page, 1), "SGD runs away")
    assert table(page, "Who has arrived")[0][2] == "ran away"


def test_decay_pulls_adam_off_the_lowest_point_of_the_valley(show):
    page = show(OptimizerRace(surface="valley", steps=300, adam_rate=0.2, decay=1))
    holds(said(page), "AdamW is 0.")
    page.locator("summary", has_text="Start, memory").click()
    choose(page, "the decay is", DECAYS[1])
    assert "AdamW" not in said(page)
    holds(said(page), "Adam is 0.")


def test_toggles_by_keyboard_and_nobody_races(show):
    page = show(OptimizerRace(steps=5, momentum=False, rmsprop=False, adam=False))
    assert "momentum" not in pictured(page)
    keys(page, "momentum", "Space", picture=["momentum at"])
    for name in ("SGD", "momentum"):
        page.get_by_label(name, exact=True).uncheck()
    for text in (said(page).lower(), pictured(page)):
        holds(text, "nobody races")


def test_the_start_by_click_and_by_field(show):
    page = show(OptimizerRace(surface="rotated bowl", angle=90, steps=20))
    stage = page.locator(".lc-stage > svg").first
    box = stage.bounding_box()
    size = min(box["width"] - 44, box["height"] - 40)
    # x = 1, y = -2 in the picture: turned by 90 degrees, u = y and v = -x.
    stage.click(position={"x": 34 + size * 4 / 6, "y": 8 + size * 5 / 6})
    page.locator("summary", has_text="Start, memory").click()
    fields = ("start, along the flat direction", "start, along the steep one")
    assert [float(value(page, name)) for name in fields] == pytest.approx([-2, -1], abs=0.11)
    holds(said(page), "All start")
