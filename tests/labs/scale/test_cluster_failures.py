"""cluster.failures: formulas against brute force, a simulation, and the published run."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from llmcourse_labs.scale import cluster
from llmcourse_labs.scale.cluster import Faults, simulate
from llmcourse_labs.scale.cluster.failures import DAY_S, LLAMA3_DAYS, LLAMA3_GPUS

COUNTED = sum(cause.count for cause in cluster.LLAMA3_INTERRUPTIONS)


def test_the_published_run_fails_every_three_hours():
    mtbf_s = cluster.mean_time_between(COUNTED, LLAMA3_DAYS * DAY_S)
    assert (round(mtbf_s / 3600, 2), round(mtbf_s * LLAMA3_GPUS / 3600, -2)) == (3.09, 50_700)
    assert round(mtbf_s * LLAMA3_GPUS / DAY_S / 365.25, 1) == 5.8
    assert [round(cluster.young_interval(s, mtbf_s)) for s in (5, 30, 60)] == [334, 817, 1_156]
    assert round(cluster.seconds_for_share(0.1, 466 / LLAMA3_DAYS) / 60, 1) == 16.7


@given(save_s=st.floats(0.1, 1e4), restart_s=st.floats(0, 1e4), mtbf_s=st.floats(100, 1e6))
def test_the_best_interval_is_that_of_a_search(save_s, restart_s, mtbf_s):
    settings = {"save_s": save_s, "restart_s": restart_s, "mtbf_s": mtbf_s}
    found = cluster.best_interval(save_s, mtbf_s)
    best = cluster.expected_share(found, **settings)
    assume(best > 1e-100)
    grid = [found * 10 ** (e / 200) for e in range(-400, 401)]
    shares = [cluster.expected_share(x, **settings) for x in grid]
    assert max(shares) <= best * (1 + 1e-9)
    assert shares[0] < best > shares[-1]


@given(ratio=st.floats(1e-6, 1e-3))
def test_the_estimates_are_near_where_saves_are_short(ratio):
    best = cluster.best_interval(ratio, 1.0)
    assert cluster.young_interval(ratio, 1.0) == pytest.approx(best, rel=1.5 * math.sqrt(ratio))
    assert cluster.daly_interval(ratio, 1.0) == pytest.approx(best, rel=0.1 * ratio + 1e-7)


def test_dalys_estimate_is_nearer_where_saves_are_long_and_without_failures_saves_are_all():
    best = cluster.best_interval(0.3, 1.0)
    young, daly = (f(0.3, 1.0) - best for f in (cluster.young_interval, cluster.daly_interval))
    assert abs(daly) < 0.1 * abs(young)
    assert cluster.daly_interval(2.0, 1.0) == cluster.daly_interval(50.0, 1.0) == 1.0
    share = cluster.expected_share(90, save_s=10, restart_s=1_000, mtbf_s=1e12)
    assert share == pytest.approx(0.9, rel=1e-8)
    tiny = cluster.expected_share(1e5, save_s=10, restart_s=0, mtbf_s=100)
    assert 0 < tiny < 1e-300 or tiny == 0


@pytest.mark.parametrize(
    ("interval_s", "save_s", "restart_s"), [(600, 30, 300), (3_000, 0, 0), (200, 100, 5_000)]
)
def test_the_simulation_agrees_with_the_formula(interval_s, save_s, restart_s):
    faults = Faults(interval_s=interval_s, save_s=save_s, restart_s=restart_s, mtbf_s=3_000)
    g = torch.Generator().manual_seed(0)
    runs = [simulate(200 * DAY_S, faults, generator=g).share for _ in range(8)]
    mean = sum(runs) / len(runs)
    spread = math.sqrt(sum((r - mean) ** 2 for r in runs) / 7 / 8)
    expected = cluster.expected_share(interval_s, save_s=save_s, restart_s=restart_s, mtbf_s=3_000)
    assert 0 < spread < 0.01
    assert abs(mean - expected) < 5 * spread


@given(
    interval_s=st.floats(1, 1e4),
    save_s=st.floats(0, 1e3),
    restart_s=st.floats(0, 1e4),
    spares=st.none() | st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_every_second_is_accounted_for(spares, seed, **times):
    faults = Faults(mtbf_s=2_000, spares=spares, repair_s=0 if spares is None else 9_000, **times)
    found = simulate(DAY_S, faults, generator=torch.Generator().manual_seed(seed))
    assert sum(found[:5]) == pytest.approx(DAY_S, rel=1e-9)
    assert min(found) >= 0


def test_a_lone_node_waits_for_its_own_repair():
    faults = Faults(interval_s=1e9, save_s=0, restart_s=0, mtbf_s=1_000, spares=0, repair_s=3_000)
    found = simulate(1e7, faults, generator=torch.Generator().manual_seed(0))
    assert found.waiting_s / found.num_failures == pytest.approx(3_000, rel=1e-2)
    assert found.lost_s / found.num_failures == pytest.approx(1_000, rel=0.1)
