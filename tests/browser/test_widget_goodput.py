"""The widget of chapter 31: the page counts as the package, and every control obeys."""

import itertools
import math

import pytest
import torch
import traitlets

from llmcourse.course.widgets.goodput import GoodputPlanner
from llmcourse.scale import cluster
from llmcourse.scale.cluster.failures import DAY_S, time_shares
from tests.browser.kit import enter, noted, pictured, said, table, value

SAVES = (0.1, 5, 30, 60, 3_600)
MTBFS = (3.6, 900, 11_135.0, 4.1e6, 3.6e9)
PAIRS = list(itertools.product(SAVES, MTBFS))
CASES = list(itertools.product((10, 334.5, 3_600, 604_800), SAVES, (0, 300, 7_200), MTBFS))


def settings(case):
    interval_s, save_s, restart_s, mtbf_s = case
    return {"interval_s": interval_s, "save_s": save_s, "restart_s": restart_s, "mtbf_s": mtbf_s}


def mtbf_s(made):
    """The mean time between failures of the whole cluster."""
    return 3_600 * made.gpu_mtbf_h / made.gpus


# --- the arithmetic


def test_the_share_is_the_packages(arithmetic):
    got = arithmetic(GoodputPlanner, "expectedShare", [list(case) for case in CASES])
    want = [cluster.expected_share(**settings(case)) for case in CASES]
    assert got == pytest.approx(want, rel=1e-9, abs=1e-300)
    assert sum(share > 0.01 for share in want) > 50


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("youngInterval", cluster.young_interval),
        ("dalyInterval", cluster.daly_interval),
        ("bestInterval", cluster.best_interval),
    ],
)
def test_the_intervals_are_the_packages(arithmetic, name, function):
    got = arithmetic(GoodputPlanner, name, [list(pair) for pair in PAIRS])
    assert got == pytest.approx([function(*pair) for pair in PAIRS], rel=1e-8)


def test_the_cluster_fails_as_often_as_python_says(arithmetic):
    made = [GoodputPlanner(gpus=n, gpu_mtbf_h=h) for n in (1, 3, 16_384) for h in (1_000, 50_677)]
    got = arithmetic(GoodputPlanner, "clusterMtbf", [[one.gpus, one.gpu_mtbf_h] for one in made])
    assert got == pytest.approx([mtbf_s(one) for one in made], rel=1e-12)


def test_where_the_time_goes_is_what_python_says(arithmetic):
    got = arithmetic(GoodputPlanner, "timeShares", [list(case) for case in CASES])
    for parts, case in zip(got, CASES, strict=True):
        want = list(time_shares(**settings(case)).values())
        assert parts == pytest.approx(want, rel=1e-9, abs=1e-14)
        assert sum(parts) == pytest.approx(1, abs=1e-12)
        assert min(parts) >= 0


@pytest.mark.parametrize(
    ("interval_s", "save_s", "restart_s"), [(600, 30, 300), (3_000, 0, 0), (200, 100, 5_000)]
)
def test_where_the_time_goes_is_what_a_simulation_says(interval_s, save_s, restart_s):
    times = {"interval_s": interval_s, "save_s": save_s, "restart_s": restart_s, "mtbf_s": 3_000}
    g = torch.Generator().manual_seed(31)
    runs = [cluster.simulate(200 * DAY_S, cluster.Faults(**times), generator=g) for _ in range(12)]
    fields = {"trained": 0, "lost": 1, "saving": 2, "restarting": 3}
    for name, want in time_shares(**times).items():
        found = [run[fields[name]] / sum(run[:5]) for run in runs]
        mean = sum(found) / len(found)
        spread = math.sqrt(sum((one - mean) ** 2 for one in found) / 11 / 12)
        assert spread < 0.01
        assert abs(mean - want) <= 5 * spread + 1e-12


def test_the_band_ends_a_point_below_the_best(arithmetic):
    cases = [(s, r, m) for s in (0.1, 30, 600) for r in (0, 300) for m in (900, 11_135.0, 3.6e9)]
    ends = arithmetic(GoodputPlanner, "nearBest", [[*case, 0.01] for case in cases])
    for (save_s, restart_s, mtbf_s), (low, high) in zip(cases, ends, strict=True):
        rest = {"save_s": save_s, "restart_s": restart_s, "mtbf_s": mtbf_s}
        best = cluster.best_interval(save_s, mtbf_s)
        assert low < best < high
        least = cluster.expected_share(best, **rest) - 0.01
        for end in (low, high):
            assert cluster.expected_share(end, **rest) == pytest.approx(least, abs=1e-9)


def test_there_is_no_band_where_nothing_is_left(arithmetic):
    assert arithmetic(GoodputPlanner, "nearBest", [[3_600, 300, 900, 0.01]]) == [None]


# --- the page


def test_the_start_is_the_published_cluster_that_saves_too_rarely(show):
    page = show(GoodputPlanner())
    assert said(page).startswith(
        "A failure comes every 3 h 6 min. Saving every 1 h keeps 81.7 % of the time as training, "
        "as if "
    )
    assert "of 16,384 GPUs stood still. Too rarely:" in said(page)
    assert "Young's rule, √(2 · save · MTBF), says 13 min 37 s" in said(page)
    assert "now: every 1 h, 81.7 %; best: every 13 min" in pictured(page)
    scales = page.locator(".lc-stage svg").first.locator(".lc-axes").nth(1)
    times = ["10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "7 d"]
    assert scales.locator("text").all_text_contents() == times
    assert "now: training 81.7 %, saving 0.7 %" in pictured(page, 1)


@pytest.mark.parametrize(("save", "young"), [("5", 334), ("30", 817), ("60", 1_156)])
def test_youngs_interval_by_a_button(show, save, young):
    page = show(GoodputPlanner())
    enter(page, "seconds for a save", save)
    page.get_by_role("button", name="Young's interval").press("Enter")
    assert round(float(value(page, "seconds between saves"))) == young
    assert "As often as is best" in said(page)


def test_the_best_interval_by_a_button(show):
    made = GoodputPlanner(gpus=4_096, save_s=60)
    page = show(made)
    page.get_by_role("button", name="Best interval").click()
    assert float(value(page, "seconds between saves")) == pytest.approx(
        cluster.best_interval(60, mtbf_s(made)), rel=1e-3
    )
    assert "As often as is best" in said(page)


def test_the_interval_by_keyboard_moves_the_dot(show):
    page = show(GoodputPlanner())
    dot = page.locator(".lc-stage svg").first.locator("circle").first
    before = float(dot.get_attribute("cx"))
    slider = page.get_by_label("seconds between saves", exact=True)
    slider.focus()
    slider.press("End")
    assert float(dot.get_attribute("cx")) > before
    assert "Saving every 7 d" in said(page)
    slider.press("Home")
    assert float(dot.get_attribute("cx")) < before
    assert "Too often: " in said(page)
    assert "is spent on saves" in said(page)


def test_the_interval_by_a_press_on_the_curve(show):
    page = show(GoodputPlanner())
    box = page.locator(".lc-stage svg").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 120)
    middle = float(value(page, "seconds between saves"))
    assert 1_500 < middle < 5_000  # the middle of 10 s and 7 days, in powers of ten, is 2,459 s
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 120)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 120)
    page.mouse.up()
    assert float(value(page, "seconds between saves")) == 10
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 120)
    assert float(value(page, "seconds between saves")) == 10
    assert noted(page) == ""


def test_fewer_gpus_lose_less_and_the_published_ones_come_back(show):
    page = show(GoodputPlanner())
    enter(page, "GPUs", "8")
    enter(page, "MTBF of one GPU, hours", "8000")
    assert "A failure comes every 41 d 16 h." in said(page)
    page.get_by_role("button", name="The cluster of Llama 3").click()
    assert float(value(page, "GPUs")) == 16_384
    assert float(value(page, "MTBF of one GPU, hours")) == 50_677
    assert "A failure comes every 3 h 6 min." in said(page)


def test_restarts_are_paid_for(show):
    page = show(GoodputPlanner(restart_s=0))
    assert "restarting 0.0 %" in pictured(page, 1)
    enter(page, "seconds to restart", "1800")
    parts = time_shares(3_600, save_s=30, restart_s=1_800, mtbf_s=mtbf_s(GoodputPlanner()))
    assert f"restarting {100 * parts['restarting']:.1f} %" in pictured(page, 1)


def test_a_kept_curve_stays_and_goes(show):
    page = show(GoodputPlanner())
    curves = page.locator(".lc-stage svg").first.locator("polyline[stroke-dasharray='7 4']")
    assert curves.count() == 0
    page.get_by_role("button", name="Keep this curve").click()
    before = curves.first.get_attribute("points")
    enter(page, "seconds for a save", "1")
    assert curves.first.get_attribute("points") == before
    assert "The kept curve, 16,384 GPUs, 30 s a save, 5 min a restart, reaches " in said(page)
    assert "; kept, best: every 13 min" in pictured(page)
    page.get_by_role("button", name="Drop the kept curve").press("Enter")
    assert curves.count() == 0
    assert "kept curve" not in said(page)


def test_where_nothing_is_left_it_says_so(show):
    page = show(GoodputPlanner(gpus=1_000_000, gpu_mtbf_h=1_000))
    assert "keeps 0.0 % of the time as training" in said(page)
    assert "failures come faster than a save and a restart" in said(page)
    assert "best: every 3.6 s, under 0.1 %, not shown" in pictured(page)
    assert "under 1 point worse: all" in pictured(page)


def test_the_table_has_the_numbers_of_the_package(show):
    made = GoodputPlanner(gpus=2_000, save_s=12, restart_s=90, interval_s=500)
    page = show(made)
    rows = table(page)
    rest = {"save_s": 12, "restart_s": 90, "mtbf_s": mtbf_s(made)}
    pair = (12, mtbf_s(made))
    marked = (
        500,
        cluster.best_interval(*pair),
        cluster.young_interval(*pair),
        cluster.daly_interval(*pair),
    )
    assert len(rows) == 11
    for row, interval_s in zip(rows, (*marked, 10, 60, 600, 3_600), strict=False):
        want = [f"{100 * share:.2f}" for share in time_shares(interval_s, **rest).values()]
        assert row[2:] == want
        assert float(row[1].replace(",", "")) == pytest.approx(interval_s, rel=1e-4)
    assert [row[0].split(",")[0] for row in rows[:5]] == ["now", "best", "Young", "Daly", "10 s"]


def test_an_interval_that_no_slider_has_is_clamped_and_said(show):
    page = show(GoodputPlanner())
    enter(page, "seconds for a save", "3600")
    enter(page, "GPUs", "1")
    page.get_by_role("button", name="Young's interval").click()
    assert "604,800 is used" in noted(page)


KEPT = {"gpus": 1_024, "gpu_mtbf_h": 50_677, "save_s": 59.9, "restart_s": 3_599}


# --- Python


@pytest.mark.parametrize("case", [(0, 30, 300, 900), (600, -1, 300, 900), (600, 30, -1, 900)])
def test_shares_of_impossible_times_are_refused(case):
    with pytest.raises(ValueError, match="must be"):
        time_shares(**settings(case))


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"gpus": 3}, "kept must have gpus, gpu_mtbf_h, save_s, restart_s"),
        (KEPT | {"save_s": 0}, "save_s of kept must be from"),
        (KEPT | {"gpus": "many"}, "gpus of kept must be from"),
    ],
)
def test_a_kept_curve_that_cannot_be_drawn_is_refused(kept, words):
    with pytest.raises(traitlets.TraitError, match=words):
        GoodputPlanner(kept=kept)
