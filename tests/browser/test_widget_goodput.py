"""The widget of chapter 31: the page counts as the package, and every control obeys."""

import itertools
import math

import pytest
import torch

from llmcourse_classroom.widgets.goodput import GoodputPlanner
from llmcourse_labs.scale import cluster
from llmcourse_labs.scale.cluster.failures import DAY_S, time_shares
from tests.browser.hands import by_key, enter, keys, press
from tests.browser.kit import holds, noted, per_cent, pictured, said, table, value
from tests.browser.twins import compared, each, twin

SAVES = (0.1, 5, 30, 60, 3_600)
MTBFS = (3.6, 900, 11_135.0, 4.1e6, 3.6e9)
PAIRS = list(itertools.product(SAVES, MTBFS))
CASES = list(itertools.product((10, 334.5, 3_600, 604_800), SAVES, (0, 300, 7_200), MTBFS))
CLUSTERS = list(itertools.product((1, 3, 16_384), (1_000, 50_677)))
NEAR, CLOSE = {"rel": 1e-9, "abs": 1e-14}, {"rel": 1e-9, "abs": 1e-300}


def settings(case):
    interval_s, save_s, restart_s, mtbf_s = case
    return {"interval_s": interval_s, "save_s": save_s, "restart_s": restart_s, "mtbf_s": mtbf_s}


def mtbf_s(made):
    return 3_600 * made.gpu_mtbf_h / made.gpus


test_the_page_reckons_as_the_package = compared(
    GoodputPlanner,
    twin("expectedShare", CASES, lambda *c: cluster.expected_share(**settings(c)), **CLOSE),
    twin("timeShares", CASES, lambda *c: [*time_shares(**settings(c)).values()], **NEAR),
    twin("youngInterval", PAIRS, cluster.young_interval, rel=1e-8),
    twin("dalyInterval", PAIRS, cluster.daly_interval, rel=1e-8),
    twin("bestInterval", PAIRS, cluster.best_interval, rel=1e-8),
    twin("clusterMtbf", CLUSTERS, lambda gpus, hours: 3_600 * hours / gpus, rel=1e-12),
)


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
    cases = itertools.product((0.1, 30, 600), (0, 300), (900, 11_135.0, 3.6e9), (0.01,))
    found = each(arithmetic, GoodputPlanner, "nearBest", cases)
    for (save_s, restart_s, mtbf_s, _), (low, high) in found:
        rest = {"save_s": save_s, "restart_s": restart_s, "mtbf_s": mtbf_s}
        best = cluster.best_interval(save_s, mtbf_s)
        assert low < best < high
        least = cluster.expected_share(best, **rest) - 0.01
        for end in (low, high):
            assert cluster.expected_share(end, **rest) == pytest.approx(least, abs=1e-9)
    # Where nothing is left there is no band.
    assert arithmetic(GoodputPlanner, "nearBest", [[3_600, 300, 900, 0.01]]) == [None]


HOW_OFTEN = "seconds between saves"


def test_the_published_cluster_saves_too_rarely_and_buttons_give_better_intervals(show):
    page = show(GoodputPlanner())
    holds(said(page), "every 3 h 6 min", "every 1 h keeps 81.7 %", "of 16,384 GPUs", "Too rarely")
    holds(said(page), "√(2 · save · MTBF), says 13 min 37 s")
    holds(pictured(page), "every 1 h, 81.7 %", "best: every 13 min")
    scales = page.locator(".lc-stage svg").first.locator(".lc-axes").nth(1)
    times = ["10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "7 d"]
    assert scales.locator("text").all_text_contents() == times
    holds(pictured(page, 1), "training 81.7 %, saving 0.681 %")
    for save, young in (("5", 334), ("30", 817), ("60", 1_156)):
        enter(page, "seconds for a save", save)
        by_key(page, "Young's interval")
        assert round(float(value(page, HOW_OFTEN))) == young
        holds(said(page), "As often as is best")
    enter(page, HOW_OFTEN, "3600")
    enter(page, "GPUs", "4096")
    press(page, "Best interval")
    best = cluster.best_interval(60, mtbf_s(GoodputPlanner(gpus=4_096)))
    assert float(value(page, HOW_OFTEN)) == pytest.approx(best, rel=1e-3)
    holds(said(page), "As often as is best")
    enter(page, "seconds for a save", "3600")  # an interval that no slider has
    enter(page, "GPUs", "1")
    press(page, "Young's interval")
    holds(noted(page), "604,800 is used")


def test_the_interval_by_keyboard_and_by_a_press_on_the_curve_moves_the_dot(show):
    page = show(GoodputPlanner())
    dot = page.locator(".lc-stage svg").first.locator("circle").first
    before = float(dot.get_attribute("cx"))
    keys(page, HOW_OFTEN, "End", "every 7 d")
    assert float(dot.get_attribute("cx")) > before
    keys(page, HOW_OFTEN, "Home", "Too often", "spent on saves")
    assert float(dot.get_attribute("cx")) < before


def test_fewer_gpus_lose_less_restarts_are_paid_for_and_the_published_come_back(show):
    page = show(GoodputPlanner(restart_s=0))
    holds(pictured(page, 1), "restarting 0 %")
    enter(page, "seconds to restart", "1800")
    parts = time_shares(3_600, save_s=30, restart_s=1_800, mtbf_s=mtbf_s(GoodputPlanner()))
    holds(pictured(page, 1), f"restarting {per_cent(parts['restarting'])}")
    enter(page, "GPUs", "8")
    enter(page, "MTBF of one GPU, hours", "8000", "every 41 d 16 h")
    press(page, "The cluster of Llama 3", "every 3 h 6 min")
    assert float(value(page, "GPUs")) == 16_384
    assert float(value(page, "MTBF of one GPU, hours")) == 50_677


def test_a_kept_curve_stays_and_goes(show):
    page = show(GoodputPlanner())
    curves = page.locator(".lc-stage svg").first.locator("polyline[stroke-dasharray='7 4']")
    assert curves.count() == 0
    press(page, "Keep this curve")
    before = curves.first.get_attribute("points")
    enter(page, "seconds for a save", "1")
    assert curves.first.get_attribute("points") == before
    holds(said(page), "The kept curve", "16,384 GPUs, 30 s a save, 5 min a restart")
    holds(pictured(page), "kept, best: every 13 min")
    by_key(page, "Drop the kept curve")
    assert curves.count() == 0
    assert "kept curve" not in said(page)


def test_where_nothing_is_left_it_says_so(show):
    page = show(GoodputPlanner(gpus=1_000_000, gpu_mtbf_h=1_000))
    holds(said(page), "keeps 0 %", "faster than a save")
    holds(pictured(page), "best: every 3.6 s, under 0.1 %", "under 1 point worse: all")


def test_the_table_has_the_numbers_of_the_package(show):
    made = GoodputPlanner(gpus=2_000, save_s=12, restart_s=90, interval_s=500)
    rows = table(show(made))
    rest = {"save_s": 12, "restart_s": 90, "mtbf_s": mtbf_s(made)}
    rules = (cluster.best_interval, cluster.young_interval, cluster.daly_interval)
    marked = [500, *(rule(12, mtbf_s(made)) for rule in rules), 10, 60, 600, 3_600]
    assert len(rows) == 11
    for row, interval_s in zip(rows, marked, strict=False):
        want = [f"{100 * share:.2f}" for share in time_shares(interval_s, **rest).values()]
        assert row[2:] == want
        assert float(row[1].replace(",", "")) == pytest.approx(interval_s, rel=1e-4)
    assert [row[0].split(",")[0] for row in rows[:5]] == ["now", "best", "Young", "Daly", "10 s"]


@pytest.mark.parametrize("case", [(0, 30, 300, 900), (600, -1, 300, 900), (600, 30, -1, 900)])
def test_shares_of_impossible_times_are_refused(case):
    with pytest.raises(ValueError, match="must be"):
        time_shares(**settings(case))
