"""The widget of chapter 50: its chances are the package's, and it shows what is recorded."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from llmcourse_classroom.look import THEMES, hues
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets import pass_at_k
from llmcourse_classroom.widgets.pass_at_k import TEST_SEED, PassAtK
from llmcourse_labs.tuning import votes
from llmcourse_labs.tuning.arithmetic import make_sums
from tests.browser.hands import choose, enter, keys, later, place, stop_time
from tests.browser.kit import holds, look, pictured, said, table, value
from tests.browser.twins import compared, twin
from tools.runs import reasoning_runs

MOST = 1_024
DRAWS = np.random.default_rng(50)
BEFORE = [0.3, 0.02, 0.9, 0.45, 0.002, 0.6, 0.2, 0.1]
WORSE = [0.6 * p for p in BEFORE]
RIGHT = [0.7, 0.004, 0.95, 0.9, 0.0, 0.8, 0.03, 0.01]
"""Better with one draw or two, and worse with more."""
AGAIN = [0.008, 0.67, 0.1, 0.02, 1.0, 0.29, 0.023, 0.5]
"""Better with one draw, and with 58 or more."""
ORDER = np.argsort(BEFORE)


def run(p, *, last="100"):
    return {"steps": {"20": {"p": [0.5] * len(p)}, last: {"p": p}, "9": {"p": [0.4] * len(p)}}}


@pytest.fixture
def board(monkeypatch):
    """A widget of a record of these rewards, without others and without some seeds."""
    rewards = {
        "right": {"10": run(WORSE), "2": run(RIGHT)},
        "coin": {"0": run(WORSE, last="60")},
        "anywhere": {"0": run(WORSE) | {"start": {"p": WORSE}}},
        "brevity": {"1": run(BEFORE)},
    }

    def make(policy=rewards, **state):
        found = {"start": {"": {"0": {"p": BEFORE}}}, "policy": policy}
        monkeypatch.setattr(pass_at_k, "recorded_runs", lambda name: found)
        return PassAtK(**state)

    return make


# --- arithmetic


def one_of(k, p):
    return 1 - (1 - p) ** k


def pass_of(k, p):
    return float(np.mean(one_of(k, np.array(p))))


def counts(k, p):
    once, among = ((one_of(draws, np.array(p)) > 0.5).sum() for draws in (1, k))
    return {"once": int(once), "rescued": int(among - once), "left": int(len(p) - among)}


def lead(first, second, most):
    gaps = [pass_of(k, second) - pass_of(k, first) for k in range(1, most + 1)]
    told = [(k, np.sign(gap)) for k, gap in enumerate(gaps, start=1) if abs(gap) >= 1e-9]
    changes = [k for (_, old), (k, new) in pairwise(told) if old != new]
    return {"from": int(told[0][1]) if told else 0, "changes": changes}


def beside(k, way):
    powers = [2**n for n in range(-1, 12)]
    return min(n for n in powers if n > k) if way > 0 else max(n for n in powers if n < k)


SOME = [[*DRAWS.random(n) ** 3, *ends] for n, ends in ((5, ()), (8, (0, 1)), (1, (0.5,)), (64, ()))]
GRID = [(k, p) for k in (1, 2, 7, 64, MOST) for p in SOME]
PAIRS = [(BEFORE, RIGHT), (BEFORE, AGAIN), (RIGHT, BEFORE), (AGAIN, RIGHT), (RIGHT, RIGHT)]
PAIRS.append((BEFORE, [p + 1e-11 for p in BEFORE]))

test_chances_are_those_of_numpy = compared(
    PassAtK,
    twin("oneOf", [(k, p) for k, ps in GRID for p in ps], one_of, rel=1e-9, abs=1e-12),
    twin("passAt", GRID, pass_of, rel=1e-9),
    twin("counts", [*GRID, (2, [1 - math.sqrt(0.5) - 1e-9])], counts),
    twin("lead", [(*pair, 200) for pair in PAIRS], lead),
    twin("powerBeside", [(k, way) for k in range(1, MOST + 1) for way in (1, -1)], beside),
    twin(
        "of100",
        {0: "0", 0.001: "fewer than 1", 0.834: "83", 0.836: "84", 0.996: "more than 99", 1: "100"},
    ),
)
"""Mutants: p^k; the first sum alone; rescued with one draw, too; ties that change the lead."""


def test_the_mean_is_the_package_s(arithmetic):
    """Mutant: 1 - (1 - p) ** k, which loses a chance that is small beside 1."""
    pass_here = arithmetic(PassAtK, "passAt", [[k, p] for k, p in GRID])
    there = [votes.pass_at(k, torch.tensor(p, dtype=torch.float64)) for k, p in GRID]
    assert pass_here == pytest.approx(there, rel=1e-12)
    assert arithmetic(PassAtK, "oneOf", [[3, 1e-20]]) == pytest.approx([3e-20], rel=1e-12, abs=0)


# --- what is recorded


def test_it_holds_what_is_recorded_with_the_sums_that_were_asked():
    """Mutants: another seed of the sums; chances that are not in the order of the sums."""
    found, widget = recorded_runs("reasoning"), PassAtK()
    start = found["start"][""]["0"]
    assert reasoning_runs.TEST_SEED == TEST_SEED
    sums = [q.prompt for q in make_sums(reasoning_runs.TESTS, seed=TEST_SEED, held_out=True)]
    assert [*start["answers"]] == sums[: len(start["answers"])]
    assert widget.before == sorted(start["p"])
    rows = {name: row["0"] for name, row in found["policy"].items() if "start" not in row["0"]}
    assert [one["name"] for one in widget.policies] == [*rows]
    for one in widget.policies:
        last = [*rows[one["name"]]["steps"].values()][-1]["p"]
        shown = zip(widget.before, one["p"], (f"{each} = " for each in widget.sums), strict=True)
        assert sorted(shown) == sorted(zip(start["p"], last, sums, strict=True))
    for k, right in start["pass"].items():
        assert pass_of(int(k), widget.before) == pytest.approx(right, abs=1e-3)


def test_any_rewards_and_seeds(board):
    """Mutants: seed 0 is a must; seeds, or steps, in the order of texts; another start is shown."""
    widget = board()
    assert [one["name"] for one in widget.policies] == ["right", "coin", "brevity"]
    assert widget.policies[2]["told"] == "after rewards: brevity"
    assert widget.policies[0]["p"] == [RIGHT[i] for i in ORDER]
    assert widget.steps == ["100", "60"]
    assert (widget.policy, widget.k) == ("right", 8)


def test_no_reward_is_recorded_yet(show, board):
    """Mutant: the first reward is a must."""
    page = show(board({}), says=["right one before (pass@8: ", "Of the 8 sums, 6 get"])
    assert page.locator("[data-key^='curve']").count() == 1
    assert page.get_by_label("the model").locator("option").all_text_contents() == ["before"]
    assert len(table(page, "Draw by draw")[0]) == 2


# --- the page


def test_what_it_says_is_counted(show, board):
    """Mutants: before and after swapped; the leader by the last draw; no plural; counts at k=1."""
    first, other = pass_of(8, BEFORE), pass_of(8, RIGHT)
    page = show(board(), says=[f"{first:.3f} and {other:.3f}", "With 8 draws, 69 of 100 sums"])
    holds(said(page), "69 of 100 sums have a right one before, 54 after rewards for right answers")
    holds(said(page), "The trained model is ahead with up to 2 draws, the model before from 3 on.")
    holds(said(page), "Of the 8 sums, 4 get", "none of them only", "4 do not (before, 2 did not)")
    choose(page, "the model", "coin", "60 after a coin's rewards (pass@8: 0.688 and 0.602)")
    holds(said(page), "The model before is ahead at any number of draws up to 1,024")
    choose(page, "the model", "brevity", "after rewards: brevity", "Both are equal")
    choose(page, "the model", "before", f"right one before (pass@8: {first:.3f}). Of the 8 sums")
    assert "ahead" not in said(page)
    enter(page, "draws, k", "1", "With 1 draw, 32 of 100 sums", "2 get", "not; 6 do not.")
    enter(page, "draws, k", "1024", "With 1,024 draws", "All 8 sums get", "6 of them only")


def test_a_lead_that_changes_twice(show, board):
    """Mutants: 'up to 1 draw'; later changes are not told."""
    page = show(board({"right": {"0": run(AGAIN)}}), says=["model is ahead with 1 draw, the"])
    holds(said(page), "the model before from 2 on; the lead changes again at 58.")


def test_curves_and_marks_are_where_numpy_has_them(show, board):
    """Mutants: a straight axis of draws; the axis turned; the marks at one draw."""
    page = show(board(k=16))
    for name, p in (("before", BEFORE), ("after", RIGHT)):
        line = page.locator(f"[data-key='curve {name}'] polyline").get_attribute("points")
        xs, ys = np.array([point.split(",") for point in line.split()], dtype=float).T
        ks = MOST ** (np.arange(len(xs)) / (len(xs) - 1))
        assert np.ptp(np.diff(xs)) < 0.05  # equal factors are equally far
        height = np.array([pass_of(k, p) for k in ks])
        slope, foot = np.polyfit(height, ys, 1)
        assert slope < -100
        assert np.abs(slope * height + foot - ys).max() < 0.02
        x, y = place_of(page, f"mark {name}")
        assert y == pytest.approx(slope * pass_of(16, p) + foot, abs=0.02)
        assert x == pytest.approx(xs[0] + 0.4 * (xs[-1] - xs[0]), abs=0.02)  # 16 of 1,024
    holds(pictured(page), f"now at {pass_of(16, BEFORE):.3f}", f"now at {pass_of(16, RIGHT):.3f}")
    holds(pictured(page), "8 columns", f"to {pass_of(1024, BEFORE):.3f} with 1,024")


def place_of(page, key):
    moved = page.locator(f"[data-key='{key}']").get_attribute("transform")
    return [float(part) for part in moved.removeprefix("translate(").rstrip(")").split()]


COLUMNS = """all => all.map((one) => [one.firstChild.textContent, [...one.children].slice(1)
  .map((rect) => ["x", "y", "height"].map((name) => Number(rect.getAttribute(name))))])"""


def test_columns_are_filled_as_far_as_a_right_one_is_likely(show, board):
    """Mutants: filled from above; sorted by after; stairs of the chosen model; no further draws."""
    page = show(board())
    columns = page.locator("[data-key^='sum ']").evaluate_all(COLUMNS)
    top, tall = columns[0][1][0][1:]
    stairs = page.locator("[data-key=stairs] polyline").get_attribute("points").split()
    steps = [float(point.split(",")[1]) for point in stairs[::2]]
    assert [column[1][0][0] for column in columns] == sorted(column[1][0][0] for column in columns)
    for at, (name, (_, among, alone)), step in zip(ORDER, columns, steps, strict=True):
        p, likely = RIGHT[at], one_of(8, RIGHT[at])
        filled = [(top + tall - y) / tall for y in (among[1], alone[1], step)]
        assert filled == pytest.approx([likely, p, one_of(8, BEFORE[at])], abs=1e-3)
        assert among[1] + among[2] == pytest.approx(alone[1])
        holds(name, f"{p:.3f} with one draw", f"{likely:.3f} with 8")
    choose(page, "the model", "before")
    assert page.locator("[data-key=stairs]").count() == 0


def test_arrow_keys_double_and_halve(show, board):
    """Mutants: the slider's own steps, which leave a 1 where it is; no end."""
    page = show(board(k=1))
    slider = "draws, k"
    keys(page, slider, "ArrowRight", "With 2 draws", values={slider: "2"})
    keys(page, slider, "ArrowUp ArrowUp ArrowUp", values={slider: "16"})
    keys(page, slider, "ArrowLeft", values={slider: "8"})
    keys(page, slider, "End ArrowRight", values={slider: "1024"})
    keys(page, slider, "Home ArrowDown", values={slider: "1"})
    enter(page, slider, "5000", used="1024", note=["from 1 to 1,024"])
    enter(page, slider, "100", "With 100 draws", used="100")
    keys(page, slider, "ArrowRight", values={slider: "128"})


def test_a_press_on_the_curves_takes_k_there(show, board):
    """Mutants: a straight axis; columns take it, too."""
    page = show(board(k=1))
    start = place(page, "k")
    choose(page, "the model", "coin")
    enter(page, "draws, k", "1024", used="1024")
    end = place(page, "k")
    page.mouse.click((start[0] + end[0]) / 2, start[1])
    assert value(page, "draws, k") == "32"
    page.mouse.move(start[0], start[1])
    page.mouse.down()
    page.mouse.move(start[0] + 0.3 * (end[0] - start[0]), start[1])
    page.mouse.up()
    assert value(page, "draws, k") == "8"
    page.mouse.click(*place(page, "sum 4"))
    assert value(page, "draws, k") == "8"


def test_tables_have_every_number(show, board):
    """Mutants: the chosen k is missing; rows of the record's order; one table for both."""
    page = show(board(k=5))
    rows = table(page, "Draw by draw")
    assert [row[0] for row in rows] == ["1", "2", "4", "5", *(f"{2**n:,}" for n in range(3, 11))]
    for row in rows:
        k = int(row[0].replace(",", ""))
        assert row[1:] == [f"{pass_of(k, p):.3f}" for p in (BEFORE, RIGHT, WORSE, BEFORE)]
    rows = table(page, "Sum by sum")
    for row, name, at in zip(rows, board().sums, ORDER, strict=True):
        chances = [one_of(k, p[at]) for p in (BEFORE, RIGHT) for k in (1, 5)]
        assert row == [name, *(f"{p:.3f}" for p in chances)]


def test_both_themes_and_narrow(show, board):
    """Mutants: a colour that is not of the register; a label of 10 pixels; always side by side."""
    page = show(board(), width=360)
    for theme in THEMES:
        look(page, theme=theme, width=360)
        color = page.locator("[data-key='sum 7']").evaluate("one => getComputedStyle(one).color")
        hue = [int(hues(theme)[0][at : at + 2], 16) for at in (1, 3, 5)]
        assert color == f"rgb({', '.join(map(str, hue))})"
        sizes = page.locator(".lc svg text").evaluate_all(
            "all => all.map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"
        )
        assert min(sizes) >= 11
        assert place(page, "sum 0")[1] > place(page, "k")[1] + 100
    look(page, theme="light", width=760)
    assert abs(place(page, "sum 0")[1] - place(page, "k")[1]) < 5


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_mark_moves_to_its_place(show, page, board, motion):
    """Mutants: it is there at once; it moves where motion is not wanted."""
    page.emulate_media(reduced_motion=motion)
    show(board(), as_is=True)
    stop_time(page)
    enter(page, "draws, k", "512")
    later(page, 40)
    between = place(page, "mark after")
    later(page, 400)
    after = place(page, "mark after")
    assert (between[0] < after[0] - 1) == (motion == "no-preference")
