"""Pipelines in real processes: the gradients of one process, whatever the schedule."""

import itertools
from functools import lru_cache

import numpy as np
import programs_pipeline as programs
import pytest
import torch

from llmcourse.parallel import pipeline, world
from llmcourse.parallel.world.worker import plain
from llmcourse_labs.scale import arithmetic

AXIS = "pp"
CHUNKS = {"gpipe": 1, "1f1b": 1, "zero_bubble": 1, "interleaved": 2}
"""Every schedule for training, and the chunks that it is tried with."""
EVERY = (*CHUNKS, "dualpipe_v")


@lru_cache
def alone(name, m, **settings):
    return plain(programs.alone(name, m, **settings))


def some(name, p, m=4):
    if name == "own":  # rank 1 wants messages in another order than rank 0 sends them
        return programs.written("F0 F1 F2 F3 B0 B1 B2 B3", "F1 F0 B0 F3 F2 B1 B2 B3")
    m = 2 * p if name in ("interleaved", "dualpipe_v") else m
    return programs.schedule_named(name, p, m, CHUNKS.get(name, 2))


def assert_follows(traces, expected):
    """Check that every rank has the bits of one process, and all ranks together everything."""
    for step, gradients in enumerate(expected.gradients):
        assert all(np.abs(g).max() > 1e-4 for g in gradients.values())
        there = set()
        for rank, trace in enumerate(traces):
            assert trace.losses[step] == expected.losses[step], (rank, step)
            for kind in ("gradients", "weights"):
                for name, value in getattr(trace, kind)[step].items():
                    wanted = getattr(expected, kind)[step][name]
                    assert np.array_equal(value, wanted), (kind, rank, step, name)
                    there.add(name)
        assert there == set(gradients)


@pytest.mark.parametrize(
    ("p", "dtype"), [(1, "float32"), (2, "float64"), (3, "float32"), (4, "float64")]
)
def test_every_schedule_is_one_process_bit_by_bit(run, p, dtype):
    settings = {"dtype": dtype, "steps": 3 if p > 1 else 1}
    schedules = [some(name, p) for name in (CHUNKS if p % 2 else EVERY)]
    by_rank = run(p, programs.follow_all, "untied", schedules, **settings)
    for schedule, *traces in zip(schedules, *by_rank, strict=True):
        assert_follows(traces, alone("untied", schedule.num_micro_batches, **settings))


def test_so_it_is_with_fewer_micro_batches_than_ranks_and_layers_that_do_not_divide(run):
    schedules = [programs.schedule_named(n, 3, 2) for n in ("gpipe", "1f1b", "zero_bubble")]
    by_rank = run(3, programs.follow_all, "uneven", schedules)
    for traces in zip(*by_rank, strict=True):
        assert_follows(traces, alone("uneven", 2))


@pytest.mark.parametrize(
    ("schedules", "settings"),
    [
        (CHUNKS, {"packed": True}),
        (CHUNKS, {"autocast": torch.bfloat16}),
        (["zero_bubble"], {"dtype": "bfloat16"}),  # weights and messages
        (["own"], {}),
    ],
    ids=["packed documents", "autocast", "bf16", "messages that come in another order"],
)
def test_so_it_is_with(run, schedules, settings):
    schedules, settings = [some(name, 2) for name in schedules], {"steps": 2, **settings}
    by_rank = run(2, programs.follow_all, "untied", schedules, **settings)
    expected = alone("untied", 4, **settings)
    assert len(settings) == 1 or expected.losses != alone("untied", 4, steps=2).losses
    for traces in zip(*by_rank, strict=True):
        assert_follows(traces, expected)


# A tied head
@pytest.mark.parametrize(("p", "dtype"), [(2, "float64"), (4, "float32")])
def test_a_tied_head_adds_the_gradients_of_both_ends(run, p, dtype):
    """The sum is head + look-up, each over all micro-batches: bit for bit, over three steps."""
    schedules = [some(name, p) for name in CHUNKS]
    by_rank = run(p, programs.follow_all, "tied", schedules, dtype=dtype)
    for schedule, *traces in zip(schedules, *by_rank, strict=True):
        twin = alone("tied", schedule.num_micro_batches, dtype=dtype, split=True)
        for each in (*twin.gradients, *twin.weights):
            each.pop("head", None)
        assert_follows(traces, twin)


@pytest.mark.parametrize(("p", "dtype"), [(1, "float32"), (3, "float64")])
def test_a_tied_head_differs_from_one_process_by_roundings_alone(run, p, dtype):
    """One process adds head and look-up of each micro-batch first: 2 m terms in another order.

    A sum of n terms in any order errs by at most (n-1) u sum|g|, u half of eps, to first order, and
    two orders differ by twice that.
    """
    schedules = [some(name, p) for name in EVERY]
    by_rank = run(p, programs.follow_all, "tied", schedules, dtype=dtype, steps=1)
    for schedule, *traces in zip(schedules, *by_rank, strict=True):
        m = schedule.num_micro_batches
        expected, sizes = alone("tied", m, dtype=dtype, steps=1), programs.sizes("tied", m, dtype)
        terms = 2 * (2 * m - 1) * torch.finfo(getattr(torch, dtype)).eps / 2
        bound = terms / (1 - terms) * sizes.numpy()
        for trace in traces:
            for name, gradient in trace.gradients[0].items():
                wanted = expected.gradients[0][name]
                if name != "embedding":
                    assert np.array_equal(gradient, wanted), name
                elif p == 1 and schedule.name in ("gpipe", "1f1b"):
                    assert np.array_equal(gradient, wanted)
                else:
                    assert (np.abs(gradient - wanted) <= bound).all()
                    assert (np.abs(wanted) > bound).mean() > 0.9  # so 0 would not pass


# Stages
@pytest.mark.parametrize("name", ["tied", "untied", "uneven", "mixture"])
def test_stages_have_the_parameters_of_the_model_under_their_names(name):
    model = programs.made(name)
    whole, p = dict(model.named_parameters()), 3
    stages = [stage for rank in range(p) for stage in pipeline.cut(model, p, rank)]
    names = [n for stage in stages for n, _ in stage.named_parameters() if n not in stage.copied]
    assert sorted(names) == sorted(whole)
    assert [sorted(stage.copied) for stage in stages] == [[], [], ["embedding"] * (name == "tied")]
    for stage in stages:
        assert all(w is whole[n] for n, w in stage.named_parameters())
    assert not any("rotations" in key for stage in stages for key in stage.state_dict())
    with pytest.raises(ValueError, match="ranks are 0 to 2, got 3"):
        pipeline.cut(model, p, 3)


def test_stages_one_after_the_other_are_the_model_in_the_forms_that_it_was_given():
    model = programs.made("untied")
    (batch,) = programs.batches(0, 1, packed=True)
    for p, v in ((1, 1), (2, 1), (3, 1), (2, 2), (8, 1)):
        by_rank = [pipeline.cut(model, p, rank, v) for rank in range(p)]
        x = batch.inputs
        for number in range(p * v):
            x = by_rank[number % p][number // p](x, **batch.settings)
        assert torch.equal(x, model(batch.inputs, **batch.settings))
    model, called = programs.made("untied"), []

    def noted(name):
        form = getattr(model, name)
        return lambda *given: called.append((name, given[0])) or form(*given)

    for name in ("look_up", "project", "rotations_of"):
        setattr(model, name, noted(name))
    (batch,), (first,) = programs.batches(0, 1), pipeline.cut(model, 2, 0)
    (last,) = pipeline.cut(model, 2, 1)
    last(first(batch.inputs), num_tokens=5)
    assert [name for name, _ in called] == ["rotations_of", "look_up", "rotations_of", "project"]
    assert called[0][1] == called[2][1] == 5


# Experts
def test_every_stage_adds_its_share_of_the_balance_loss(run):
    for p, names in ((1, ["1f1b"]), (2, list(CHUNKS))):
        schedules = [some(name, p) for name in names]
        by_rank = run(p, programs.follow_all, "mixture", schedules, steps=2)
        for schedule, *traces in zip(schedules, *by_rank, strict=True):
            expected = alone("mixture", schedule.num_micro_batches, steps=2)
            assert min(min(step) for step in expected.extra) > 0.01
            assert_follows(traces, expected)
            for trace in traces:
                # Shares are added in another order than that of the layers.
                np.testing.assert_allclose(trace.extra, expected.extra, rtol=1e-6)


# Faults
@pytest.mark.parametrize(
    ("mutant", "model", "schedule"),
    [
        ("not divided", "untied", "1f1b"),
        ("last micro-batch dropped", "untied", "1f1b"),
        ("last micro-batch dropped", "untied", "zero_bubble"),
        ("stale activations", "untied", "gpipe"),
        ("stale gradients", "untied", "1f1b"),
        ("whatever comes next", "untied", "own"),
        ("no gradients of weights", "untied", "zero_bubble"),
        ("no balance loss", "mixture", "1f1b"),
        ("settings stay on the first rank", "untied", "1f1b"),
    ],
)
def test_a_fault_in_the_executor_is_noticed(run, mutant, model, schedule):
    settings = {"packed": mutant.startswith("settings"), "steps": 1}
    schedule = some(schedule, 2)
    traces = run(2, programs.follow, model, schedule, mutant=mutant, **settings)
    expected = alone(model, schedule.num_micro_batches, **settings)
    with pytest.raises((AssertionError, KeyError)):
        assert_follows(traces, expected)


def test_micro_batches_in_another_order_are_noticed(run):
    """In float32 a sum the other way round has other bits; the losses are the same."""
    for name in ("1f1b", "zero_bubble"):
        backwards = programs.reversed_order(some(name, 2, m=5))
        pipeline.validate(backwards)
        traces = run(2, programs.follow, "untied", backwards, steps=1)
        expected = alone("untied", 5, steps=1)
        assert all(trace.losses == expected.losses for trace in traces)
        with pytest.raises(AssertionError):
            assert_follows(traces, expected)


def test_tied_gradients_that_are_not_summed_are_noticed(run):
    schedule = some("1f1b", 2)
    traces = run(2, programs.follow, "tied", schedule, steps=1, mutant="tied gradients not summed")
    first, last = (trace.gradients[0]["embedding"] for trace in traces)
    assert not np.array_equal(first, last)
    whole = alone("tied", 4, steps=1).gradients[0]["embedding"]
    # What the bound above forgives is far smaller than either half.
    assert min(np.abs(first - whole).max(), np.abs(last - whole).max()) > 1e-3 * np.abs(whole).max()


# Memory and time
@pytest.mark.parametrize("p", [1, 3])
def test_what_is_held_is_the_formula(run, p):
    for name, v in CHUNKS.items():
        schedule = some(name, p, m=6)
        m = schedule.num_micro_batches
        found = run(p, programs.held, "untied", schedule)
        wanted = arithmetic.peak_micro_batches(name, p, m, v)
        assert [tuple(each) for each in found] == [(peak, peak) for peak in wanted], name
    found = run(p, programs.held, "untied", some("dualpipe_v", p))
    assert [tuple(each) for each in found] == [(2 * p + 1, 2 * p + 1)] * p


def test_memory_that_is_not_freed_is_noticed_and_messages_are_let_go_of(run):
    found = run(3, programs.held_for_ever, "untied", some("1f1b", 3, m=6))
    assert [tuple(each) for each in found] == [(3, 6), (2, 6), (1, 6)]
    # What comes back says what has arrived, so that m can grow and the memory does not.
    few, many = (run(3, programs.outstanding, pipeline.one_f_one_b(3, m)) for m in (6, 12))
    assert few == many
    assert max(few) <= 6
    assert run(3, programs.outstanding, pipeline.gpipe(3, 12))[0] == 12


@pytest.mark.parametrize("name", CHUNKS)
def test_the_time_stamps_are_a_run_of_the_schedule(run, name):
    schedule = some(name, 4)
    real = arithmetic.timeline_of(schedule, run(4, programs.timed, schedule))
    assert real.schedule.actions == schedule.actions
    ends = {(rank, timed.action): timed.end for rank, row in enumerate(real.rows) for timed in row}
    for rank, row in enumerate(real.rows):
        assert all(timed.start < timed.end for timed in row)
        for before, after in itertools.pairwise(row):
            assert before.end <= after.start
        for timed in row:
            needed = pipeline.needs(schedule, rank, timed.action)
            assert needed is None or ends[needed] <= timed.start  # one clock for all ranks
    assert min(timed.start for row in real.rows for timed in row) == 0
    m, v = schedule.num_micro_batches, schedule.num_chunks
    assert arithmetic.simulate(real.schedule).bubble == arithmetic.bubble_share(name, 4, m, v)


# What is refused, and what fails
def test_what_does_not_fit_is_refused_before_anything_is_sent(run):
    wrong = programs.replace(
        pipeline.gpipe(2, 2),
        actions=(pipeline.actions_of("F0 B0 F1 B1"), pipeline.actions_of("F1 B1 F0 B0")),
    )
    refusals = [
        (wrong, {}, "deadlock, rank 0 at action 1"),
        (pipeline.gpipe(3, 2), {}, "is for 3 ranks along the axis, got 2"),
        (pipeline.gpipe(2, 2), {"m": 3}, "is for 2 micro-batches, got 3"),
        (pipeline.interleaved(2, 2, 2), {}, "is for 2 stages on this rank, got 1"),
    ]
    for schedule, settings, message in refusals:
        for found, sent_bytes in run(2, programs.refused, schedule, **settings):
            assert message in found
            assert sent_bytes == 0


@pytest.mark.parametrize("settings", [{"dtype": torch.bfloat16}, {"shape_of": programs.odd_shape}])
def test_activations_of_another_dtype_or_shape_are_refused(settings):
    with pytest.raises(world.RankError, match=r"set shape_of and dtype"):
        world.run(programs.run_once, 2, pipeline.one_f_one_b(2, 2), mesh={"pp": 2}, **settings)


def test_a_rank_that_dies_is_named():
    with pytest.raises(world.RankError, match="rank 1"):
        world.run(programs.dies, 3, pipeline.one_f_one_b(3, 4), 1, mesh={"pp": 3})


def test_layers_that_do_not_learn_get_no_gradient(run):
    expected = alone("untied", 3, steps=1)
    for schedule in (pipeline.one_f_one_b(2, 3), pipeline.zero_bubble(2, 3)):
        first, last = run(2, programs.frozen, schedule)
        assert set(first.values()) == {None}
        assert last
        for name, gradient in last.items():
            assert np.array_equal(gradient, expected.gradients[0][name]), name
