"""The scheduler: every GPU-second accounted for, and held against queueing theory and chapter 31.

Mutants that these tests reject: work since the checkpoint that counts as kept, a restart that costs
nothing, a whole job that starts on fewer nodes, backfill that delays the first in the queue or
looks at the free nodes alone, preemption of equals, a topology that takes the emptiest rack first,
nodes given one by one that are counted as idle.
"""

import math
import statistics
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse_labs.scale.cluster import Faults, simulate
from llmcourse_labs.scale.scheduler import (
    STATES,
    Failure,
    Fleet,
    Job,
    Policy,
    after_failure,
    erlang_c,
    mean_wait_s,
    node_seconds,
    random_jobs,
    schedule,
)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def job(name, nodes, duration_s, arrival_s=0, **more):
    return Job(name=name, nodes=nodes, duration_s=duration_s, arrival_s=arrival_s, **more)


def row(nodes, **more):
    return Fleet(racks=1, nodes_per_rack=nodes, gpus_per_node=1, **more)


def starts(result):
    return {name: record.started_s for name, record in result.jobs.items()}


def ends(result):
    return {name: record.finished_s for name, record in result.jobs.items()}


def on_node(result, node):
    return [(s.start_s, s.end_s, s.state, s.job) for s in result.segments if s.node == node]


ONE = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 6),
        "duration_s": st.integers(1, 60),
        "arrival_s": st.integers(0, 80),
        "priority": st.integers(0, 2),
        "checkpoint_s": st.none() | st.integers(1, 20),
        "restart_s": st.integers(0, 9),
    }
)
JOBS = st.lists(ONE, min_size=1, max_size=9).map(
    lambda found: [Job(name=f"{i}", **each) for i, each in enumerate(found)]
)
POLICIES = st.one_of(
    st.builds(Policy, backfill=st.booleans(), topology=st.booleans(), preemption=st.booleans()),
    st.just(Policy(placement="one_by_one")),
)


def account_is_whole(result):
    """Every node does one thing at a time, from 0 to the end, and the sums are those of time."""
    for node in range(result.fleet.nodes):
        at = 0
        for start, end, state, _ in on_node(result, node):
            assert start == at < end
            assert state in STATES
            at = end
        assert at == result.end_s
    assert sum(result.gpu_seconds().values()) == result.fleet.gpus * result.end_s


@settings(max_examples=120, deadline=None)
@given(JOBS, POLICIES, st.integers(1, 400), st.integers(0, 30), st.integers(0, 2**30))
def test_every_gpu_second_is_accounted_for(jobs, policy, until_s, repair_s, seed):
    fleet = Fleet(racks=3, nodes_per_rack=2, gpus_per_node=4, mtbf_s=90, repair_s=repair_s)
    result = schedule(jobs, fleet, policy, until_s=until_s, generator=generator(seed))
    account_is_whole(result)
    for one in jobs:
        record = result.jobs[one.name]
        mine = [s for s in result.segments if s.job == one.name]
        worked = sum(s.end_s - s.start_s for s in mine if s.state == "working")
        if record.finished_s is not None:  # kept work is the job, whatever happened on the way
            assert worked == one.nodes * one.duration_s
        assert worked <= one.nodes * one.duration_s
        assert record.waited_s >= 0
        # Whenever it works, it works on all its nodes.
        for moment in {s.start_s for s in mine if s.state == "working"}:
            there = [s for s in mine if s.start_s <= moment < s.end_s and s.state == "working"]
            assert len(there) == one.nodes


@settings(max_examples=60, deadline=None)
@given(JOBS, st.booleans(), st.booleans())
def test_gangs_on_nodes_that_hold_all_end(jobs, backfill, preemption):
    fleet = Fleet(racks=3, nodes_per_rack=2)
    result = schedule(jobs, fleet, Policy(backfill=backfill, preemption=preemption))
    account_is_whole(result)
    assert not result.unfinished
    assert result.gpu_seconds()["down"] == 0
    if not preemption:
        assert result.gpu_seconds()["lost"] == result.gpu_seconds()["restarting"] == 0


def test_one_by_one_waits_for_ever_where_a_gang_goes_on():
    two = [job("a", 3, 100), job("b", 3, 100)]
    stuck = schedule(two, row(4), Policy(placement="one_by_one"))
    assert (stuck.unfinished, stuck.end_s, stuck.goodput) == (["a", "b"], 0, 0)
    later = schedule(two, row(4), Policy(placement="one_by_one"), until_s=1_000)
    assert later.gpu_seconds() == dict.fromkeys(STATES, 0) | {"reserved": 4_000}
    assert [s.job for s in later.segments] == ["a", "b", "a", "b"]
    assert ends(schedule(two, row(4))) == {"a": 100, "b": 200}
    # Who comes first has all it wants first.
    apart = [job("a", 3, 100), job("b", 3, 100, 1)]
    assert ends(schedule(apart, row(4), Policy(placement="one_by_one"))) == {"a": 100, "b": 200}


QUEUE = [job("a", 3, 10), job("b", 4, 10, 1), job("c", 1, 9, 2), job("d", 1, 5, 2)]


def test_first_come_first_served_lets_nodes_wait_and_backfill_uses_them_without_delay():
    result = schedule(QUEUE, row(4))
    assert starts(result) == {"a": 0, "b": 10, "c": 20, "d": 20}
    assert result.gpu_seconds()["reserved"] == 9  # the fourth node, while b waits
    result = schedule(QUEUE, row(4), Policy(backfill=True))
    assert starts(result) == {"a": 0, "b": 10, "c": 20, "d": 2}
    short = schedule([*QUEUE[:2], job("c", 1, 8, 2), QUEUE[3]], row(4), Policy(backfill=True))
    assert starts(short) == {"a": 0, "b": 10, "c": 2, "d": 20}
    long = [job(name, 1, 50, 2) for name in "cde"]
    result = schedule([job("a", 3, 10), job("b", 4, 10, 1), *long], row(6), Policy(backfill=True))
    # At 10 b takes 4 of 6: two are left over, which c and d may keep; e would be a third.
    assert starts(result) == {"a": 0, "b": 10, "c": 2, "d": 2, "e": 20}


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_backfill_never_delays_the_first_in_the_queue(jobs):
    jobs = [replace(one, priority=0) for one in jobs]
    plain, filled = schedule(jobs, row(6)), schedule(jobs, row(6), Policy(backfill=True))
    # The first to wait at all starts exactly as early as without backfill.
    order = sorted(jobs, key=lambda one: one.arrival_s)
    waits = [one.name for one in order if plain.jobs[one.name].waited_s]
    for name in waits[:1]:
        assert starts(filled)[name] == starts(plain)[name]


def test_backfill_counts_on_repairs_and_preemption_takes_no_more_than_needed():
    fleet = row(4, failures=((0, 3),), repair_s=10)
    jobs = [job("a", 4, 5), job("b", 1, 11), job("c", 1, 10)]
    assert starts(schedule(jobs, fleet, Policy(backfill=True))) == {"a": 10, "b": 15, "c": 0}
    jobs = [
        job("old", 2, 100, 0, priority=1),
        job("late", 2, 100, 1, priority=1, checkpoint_s=10, restart_s=3),
        job("equal", 2, 100, 2, priority=5),
        job("high", 2, 10, 34, priority=5),
    ]
    result = schedule(jobs, row(6), Policy(preemption=True))
    assert ends(result) == {"old": 100, "late": 44 + 3 + 70, "equal": 102, "high": 44}
    assert [record.num_preemptions for record in result.jobs.values()] == [0, 1, 0, 0]
    assert result.jobs["late"].waited_s == 10
    spent = result.gpu_seconds()
    assert (spent["lost"], spent["restarting"]) == (2 * 3, 2 * 3)
    # Equals wait, and nobody is stopped in vain.
    alone = schedule([job("a", 2, 50), job("b", 2, 5, 1)], row(3), Policy(preemption=True))
    assert ends(alone) == {"a": 50, "b": 55}
    vain = [job("a", 2, 50), job("b", 4, 50, 0, priority=9), job("c", 5, 5, 1, priority=5)]
    assert schedule(vain, row(6), Policy(preemption=True)).jobs["a"].num_preemptions == 0


def test_a_failed_node_stops_its_whole_job_which_goes_on_from_the_checkpoint_elsewhere():
    fleet = row(3, failures=((47, 1), (48, 1)), repair_s=100)
    result = schedule([job("a", 2, 60, checkpoint_s=20, restart_s=5)], fleet)
    assert on_node(result, 0) == [
        (0, 40, "working", "a"),
        (40, 47, "lost", "a"),
        (47, 52, "restarting", "a"),
        (52, 72, "working", "a"),
        (72, 147, "idle", None),
    ]
    assert on_node(result, 1)[2:] == [(47, 147, "down", None)]
    assert on_node(result, 2)[:2] == [(0, 47, "idle", None), (47, 52, "restarting", "a")]
    assert result.jobs["a"].num_failures == 1
    # Without a checkpoint all is lost; without a spare the other node waits.
    other = schedule([job("a", 3, 60)], replace(fleet, failures=((47, 1),)))
    assert (other.gpu_seconds()["lost"], other.gpu_seconds()["reserved"]) == (3 * 47, 2 * 100)
    assert ends(other) == {"a": 147 + 60}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 12))
def test_topology_finds_the_fewest_leaf_switches(busy, count):
    free = sorted(set(range(12)) - busy)
    if count > len(free):
        return
    # Nodes are made busy by failures.
    fleet = Fleet(racks=3, nodes_per_rack=4, failures=tuple((0, n) for n in busy), repair_s=50)
    result = schedule([job("a", count, 1, 1)], fleet, Policy(topology=True))
    choices = combinations(free, count)
    fewest = min(len({node // 4 for node in nodes}) for nodes in choices)
    assert result.jobs["a"].leaf_switches == (fewest,)


def test_topology_keeps_full_racks_for_those_who_need_them():
    fleet = Fleet(racks=2, nodes_per_rack=4)
    jobs = [job("a", 1, 1), job("b", 3, 9), job("c", 1, 30, 2), job("d", 4, 9, 6)]
    plain, aware = schedule(jobs, fleet), schedule(jobs, fleet, Policy(topology=True))
    assert (plain.jobs["d"].leaf_switches, aware.jobs["d"].leaf_switches) == ((2,), (1,))


@pytest.mark.parametrize(("a", "c"), [(0.5, 1), (2, 3), (17.5, 20)])
def test_erlang_c_is_the_sum_of_the_books(a, c):
    last = a**c / math.factorial(c) * c / (c - a)
    right = last / (sum(a**k / math.factorial(k) for k in range(c)) + last)
    assert erlang_c(a, c) == pytest.approx(right, rel=1e-12)


def interval(values):
    return statistics.mean(values), 3 * statistics.stdev(values) / len(values) ** 0.5


def test_jobs_of_one_node_wait_as_erlang_says():
    waits = []
    for seed in range(8):
        result = schedule(random_jobs(2_000, 100, 280, generator=generator(seed)), row(4))
        waits.append(statistics.mean(r.waited_s for r in list(result.jobs.values())[200:]))
    mean, wide = interval(waits)
    right = mean_wait_s(100, 280, 4)
    assert wide < right / 2
    assert abs(mean - right) < wide


@pytest.mark.parametrize(("spares", "repair_s"), [(2, 3_600), (0, 3_600)])
def test_one_job_with_failures_as_in_chapter_31(spares, repair_s):
    until_s, ours, theirs = 2_000_000, [], []
    fleet = row(8 + spares, mtbf_s=8 * 40_000, repair_s=repair_s)
    faults = Faults(
        interval_s=3_000, save_s=0, restart_s=600, mtbf_s=40_000, spares=spares, repair_s=repair_s
    )
    one = job("a", 8, 10 * until_s, checkpoint_s=3_000, restart_s=600)
    for seed in range(12):
        result = schedule([one], fleet, until_s=until_s, generator=generator(seed))
        ours.append(result.gpu_seconds()["working"] / (8 * until_s))
        theirs.append(simulate(until_s, faults, generator=generator(100 + seed)).share)
    (mean, wide), (other, wide_too) = interval(ours), interval(theirs)
    assert max(wide, wide_too) < 0.02
    assert abs(mean - other) < math.hypot(wide, wide_too)


TIMES = {"checkpoint_s": 20, "fails_s": 47, "restart_s": 5, "repair_s": 100, "until_s": 400}
FAILURE = Failure(replicas=3, replica_nodes=2, spares=1, **TIMES)


@settings(max_examples=80, deadline=None)
@given(
    answer=st.sampled_from(["spare", "wait"]),
    replicas=st.integers(1, 3),
    replica_nodes=st.integers(1, 3),
    checkpoint_s=st.integers(1, 30),
    fails_s=st.integers(1, 90),
    restart_s=st.integers(0, 20),
    repair_s=st.integers(1, 60),
    until_s=st.integers(91, 200),
)
def test_the_answers_are_what_the_scheduler_does(answer, **numbers):
    failure = Failure(spares=int(answer == "spare"), **numbers)
    nodes = failure.replicas * failure.replica_nodes
    fleet = row(nodes + failure.spares, failures=((failure.fails_s, 0),), repair_s=failure.repair_s)
    one = job("a", nodes, 10_000, checkpoint_s=failure.checkpoint_s, restart_s=failure.restart_s)
    found = schedule([one], fleet, until_s=failure.until_s).gpu_seconds()
    told = node_seconds(after_failure(failure, answer))
    assert told == {state: spent for state, spent in found.items() if spent}


def test_who_shrinks_works_on_and_joins_at_a_checkpoint():
    stretches = after_failure(FAILURE, "shrink")
    others = [(s.start_s, s.end_s, s.state) for s in stretches if s.group == "others"]
    # Back at 147; the first checkpoint from 52 on, every 20, is at 152.
    assert others == [
        (0, 40, "working"),
        (40, 47, "lost"),
        (47, 52, "restarting"),
        (52, 152, "working"),
        (152, 157, "restarting"),
        (157, 400, "working"),
    ]
    assert {(s.start_s, s.end_s) for s in stretches if s.state == "down"} == {(47, 147)}
    waits = [s for s in stretches if s.group in ("failed", "mates") and s.state == "reserved"]
    assert [(s.start_s, s.end_s) for s in waits] == [(147, 152), (47, 152)]


@pytest.mark.parametrize("answer", ["spare", "wait", "shrink"])
@pytest.mark.parametrize("until_s", [48, 50, 60, 149, 153, 400])
def test_the_answers_account_for_all_time(answer, until_s):
    failure = replace(FAILURE, until_s=until_s)
    assert sum(node_seconds(after_failure(failure, answer)).values()) == 7 * until_s


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: job("a", 0, 1), "nodes must be 1 or greater, got 0"),
        (lambda: job("a", 1, -5), "duration_s must be 1 or greater, got -5"),
        (lambda: job("a", 1, 1, -1), "arrival_s must be 0 or greater, got -1"),
        (lambda: job("a", 1, 1, checkpoint_s=0), "checkpoint_s must be 1 or greater, got 0"),
        (lambda: row(0), "nodes_per_rack must be 1 or greater, got 0"),
        (lambda: row(2, failures=((5, 2),)), r"a node from 0 to 1, got \(5, 2\)"),
        (lambda: row(2, repair_s=5), "repair_s has no effect when no node fails"),
        (lambda: Policy(placement="one_by_one", backfill=True), "no effect.* one_by_one: use gang"),
        (lambda: schedule([job("a", 5, 1)], row(4)), "'a' wants 5 nodes .*: the cluster has 4"),
        (lambda: schedule([job("a", 1, 1)] * 2, row(4)), "two jobs have the name 'a'"),
        (lambda: schedule([job("a", 1, 1)], row(4, mtbf_s=5)), "give until_s, generator"),
        (lambda: schedule([job("a", 1, 1)], row(4), until_s=0), "until_s must be 1 or greater"),
        (lambda: erlang_c(4, 4), "offered must be below 4, got 4"),
        (lambda: random_jobs(0, 1, 1, generator=generator(0)), "count must be 1 or greater"),
        (lambda: after_failure(FAILURE, "hope"), "answer must be one of spare, wait, shrink"),
        (lambda: after_failure(replace(FAILURE, spares=0), "spare"), "no spare to take"),
        (lambda: after_failure(replace(FAILURE, replicas=1), "shrink"), "cannot shrink to none"),
        (lambda: replace(FAILURE, fails_s=400), "fails_s must be below 400, got 400"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_rule(make, says):
    with pytest.raises(ValueError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
