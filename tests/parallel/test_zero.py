"""ZeRO's formulas, its layout, and its stages in real processes against one process."""

import functools
import itertools

import numpy as np
import programs_zero as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parallel_kit import axis, equal
from torch import nn

from llmcourse import optim
from llmcourse.parallel import world, zero
from llmcourse.parallel.zero.states import ShardPlacement, cut_states
from llmcourse_labs.scale import arithmetic

STAGES = (1, 2, 3)
FLOAT32 = {"parameter_bytes": 4, "gradient_bytes": 4}
alone = functools.cache(programs.alone)


def assert_follows(traces, expected):
    assert all(np.any(t.before != traces[0].before) for t in traces[1:])
    for trace in traces:
        assert equal(trace.parameters, expected.parameters)
        assert equal(trace.optimizer, expected.optimizer)


# Formulas
TABLE_1 = {  # GB per device: stages 1, 2, 3 of 7.5, 128 and 1000 billion parameters, by devices
    1: (120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000),
    4: (52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000),
    16: (35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000),
    64: (31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250),
    256: (30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5),
    1024: (30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6),
}
"""Rajbhandari et al. 2020, table 1; some cells are rounded, some cut off."""


def test_the_54_cells_of_the_zero_table_and_its_traffic():
    columns = list(itertools.product((7_500_000_000, 128 * 10**9, 10**12), STAGES))
    for num_ranks, row in TABLE_1.items():
        for (num_parameters, stage), gb in zip(columns, row, strict=True):
            found = arithmetic.memory_bytes(num_parameters, num_ranks, stage) / 1e9
            digits = len(str(gb).partition(".")[2])
            # Cut off or rounded: less than one unit of the last digit shown away.
            assert abs(found - gb) < 10.0**-digits, (num_parameters, num_ranks, stage)
    assert arithmetic.memory_bytes(10, 64, 0) == 160
    assert arithmetic.memory_bytes(10, 3, 1) == 40 + 12 * 4  # the fullest rank has ceil(10 / 3)
    shares = [
        arithmetic.traffic_bytes(6400, 64, stage) / (2 * 6400) / (63 / 64)
        for stage in arithmetic.STAGES
    ]
    assert (shares, arithmetic.traffic_bytes(6400, 1, 3)) == ([2, 2, 2, 3], 0)


# The layout
shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(torch.Size), min_size=1, max_size=6)


@given(shapes, st.integers(1, 5))
def test_shards_of_all_ranks_are_the_tensors(sizes, num_ranks):
    check_shards(sizes, num_ranks)


@pytest.mark.parametrize("mutant", ["a remainder is left out", "the next rank's shards"])
def test_wrong_shards_are_noticed(mutant):
    sizes = [torch.Size([3, 5]), torch.Size([2])]
    check_shards(sizes, 3)
    with programs.MUTANTS[mutant](), pytest.raises(AssertionError):
        check_shards(sizes, 3)


def check_shards(sizes, num_ranks):
    """Check that chunks and shards are disjoint, complete and where the row has them."""
    layout = zero.FlatLayout(sizes, num_ranks)
    assert layout.chunk(num_ranks - 1)[1] == layout.length
    by_rank = [layout.shards(rank) for rank in range(num_ranks)]
    for index, shape in enumerate(sizes):
        entries = [i for shards in by_rank for i in range(*shards[index])]
        assert sorted(entries) == list(range(shape.numel()))
    tensors = [torch.randn(shape) for shape in sizes]
    flat = torch.cat([t.flatten() for t in tensors])
    assert equal(layout.views(flat), tensors)
    for rank, shards in enumerate(by_rank):
        first, last = layout.chunk(rank)
        parts = [t.flatten()[a:b] for t, (a, b) in zip(tensors, shards, strict=True)]
        assert torch.equal(flat[first:last], torch.cat(parts))


def test_a_state_is_cut_where_the_parameter_is():
    place = ShardPlacement(torch.Size([2, 3]), [(0, 4), (4, 6)])
    state = {0: {"mean": torch.arange(6.0).view(2, 3), "step": torch.tensor(7.0), "rows": [1]}}
    found = cut_states(state, {0: place}, 1)
    assert equal(found, {0: state[0] | {"mean": torch.tensor([4.0, 5.0])}})


# Training
@pytest.mark.parametrize(
    ("num_ranks", "name"),
    [
        *itertools.product((1, 2, 3, 4), ["tied"]),
        *itertools.product([3], ["untied", "mixture", "without", "unused"]),
    ],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_follows_one_process_bit_by_bit(run, num_ranks, name, stage):
    assert_follows(run(num_ranks, programs.follow, name, stage), alone(name, num_ranks))


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        *itertools.product((1, 2), ({}, {"bucket_bytes": 20_000})),
        (2, {"bucket_bytes": 100}),
        *itertools.product([3], ({}, {"units": []})),
    ],
)
def test_so_it_does_however_cut_when_full_gradients_are_added_up(run, stage, settings):
    expected = alone("unused", 2, num_micro=2)
    traces = run(2, programs.follow, "unused", stage, num_micro=2, keep=True, **settings)
    assert_follows(traces, expected)


@pytest.mark.parametrize(("stage", "settings"), [(2, {"bucket_bytes": 20_000}), (2, {}), (3, {})])
def test_shards_of_gradients_of_several_batches_are_added_up(run, stage, settings):
    """The sum has another order: over ranks first, then over batches."""
    settings = {"num_micro": 3, "optimizer": "sgd", **settings}
    expected = alone("tied", 3, 1, num_micro=3, optimizer="sgd")
    assert_close_gradients(run(3, programs.follow, "tied", stage, 1, **settings), expected, 9, 8)
    if stage == 3:
        settings["mutant"] = "gradients are overwritten"
        traces = run(3, programs.follow, "tied", stage, 1, **settings)
        with pytest.raises(AssertionError):
            assert_close_gradients(traces, expected, 9, 8)


def test_a_model_with_frozen_parts_is_sharded_where_it_learns(run):
    assert_follows(run(3, programs.follow, "frozen", 3), alone("frozen", 3))
    learnt = programs.made("frozen").blocks[1].feed_forward.w_up.numel()
    sent, _ = run(2, programs.sent, "frozen", 3)[0]
    assert 0 < sent < 3 * 4 * 6 * learnt  # three times what learns, and nothing of the rest


@pytest.mark.parametrize("stage", [1, 2])
def test_frozen_parameters_among_those_of_an_optimizer_stay_whole(run, stage):
    """With the numbers that torch's own optimizer gives them, and rank 0's values."""
    values, state = programs.with_frozen_ones(None, stage)
    for found, full in run(3, programs.with_frozen_ones, stage):
        for x, y in zip(found, values, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
        assert np.array_equal(found[1], values[1])
        assert [g["params"] for g in full["param_groups"]] == [[0, 1, 2], [3]]
        assert list(full["state"]) == list(state["state"]) == [0, 2]


def test_every_stage_is_data_parallelism_bit_by_bit(run):
    expected = run(3, programs.with_ddp, "tied")[0]
    for stage in STAGES:
        assert equal(run(3, programs.follow, "tied", stage)[0].parameters, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_two_ranks_are_bitwise_one_process_in_any_order_of_sums(run, stage):
    assert_follows(run(2, programs.follow, "tied", stage, ordered=False), alone("tied", 2))


@pytest.mark.parametrize("stage", STAGES)
def test_a_ring_rounds_otherwise_within_its_bound(run, stage):
    """With one step of SGD the momentum is the gradient itself."""
    expected = alone("tied", 4, 1, optimizer="sgd")
    traces = run(4, programs.follow, "tied", stage, 1, optimizer="sgd", ordered=False)
    assert_close_gradients(traces, expected, 4)


def assert_close_gradients(traces, expected, num_terms, cancelled=None):
    """Assert that two sums of so many terms, whatever their order, differ by rounding alone.

    Each errs by at most (n-1) u sum|terms|, u half of eps, to first order; dividing adds u.  Terms
    that are batches of a rank are larger than their sum, of which `sizes` is made, where they
    cancel: so many times, at most, the largest of `sizes`.
    """
    u = torch.finfo(torch.float32).eps / 2
    model = programs.made("tied")
    sizes = dict(zip(model.parameters(), expected.sizes, strict=True))
    numbered = [p for group in programs.groups_of(model, "sgd") for p in group["params"]]
    for trace in traces:
        for number, p in enumerate(numbered):
            ours = torch.from_numpy(trace.optimizer["state"][number]["momentum_buffer"])
            theirs = expected.optimizer["state"][number]["momentum_buffer"]
            terms = cancelled * sizes[p].max() if cancelled else sizes[p]
            bound = 2 * num_terms * u / (1 - 2 * num_terms * u) * terms / len(traces)
            assert bool(((ours - theirs).abs() <= bound).all()), number


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize(("kind", "stage"), [("zero1", 1), ("fsdp2", 3)])
def test_torchs_own_end_up_in_the_same_place(run, num_ranks, kind, stage):
    settings = {"optimizer": "torch", "ordered": False}
    ours = run(num_ranks, programs.follow, "tied", stage, **settings)[0]
    theirs = run(num_ranks, programs.torchs, "tied", kind)[0]
    for step, parameters in enumerate(theirs):
        for name, p in parameters.items():
            # Adam divides by the size of the gradient, so that a rounding error of a gradient
            # near 0 moves a weight by up to a few lr (here 1e-2) times its relative error.
            atol = 0 if num_ranks == 2 else 2e-6
            assert np.abs(ours.parameters[step][name] - p).max() <= atol, (step, name)


def test_cut_matrices_are_refused_by_an_optimizer_of_whole_ones(run):
    with pytest.raises(world.RankError, match="matrices alone"):
        run(3, programs.cut_matrices)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tied", {"again": "block"}),
        ("tied", {"again": "attention"}),
        ("again", {}),  # backward calls the units
        *(("tied", {"between": what}) for what in programs.BETWEEN),
    ],
    ids=str,
)
def test_units_that_are_called_at_other_times_leave_no_trace(run, name, settings):
    assert_follows(run(2, programs.follow, name, 3, **settings), alone(name, 2))


# Clipping
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("clip", [0.05, 1e3])
def test_clipping_over_shards_is_clipping_of_the_whole(run, stage, clip):
    expected = alone("untied", 3, clip=clip)
    for trace in (traces := run(3, programs.follow, "untied", stage, clip=clip)):
        assert trace.norms == pytest.approx(expected.norms, rel=1e-6)
        assert trace.norms == traces[0].norms
        for step, parameters in enumerate(expected.parameters):
            for name, p in parameters.items():
                # The norm is summed in another order: 1e-6 of it, that is of each gradient.
                error = np.abs(trace.parameters[step][name] - p.numpy()).max()
                assert error <= (1e-6 if clip < 1 else 0), (step, name)
    assert (expected.norms[0] > clip) == (clip < 1)


def test_a_rank_without_a_shard_takes_part_in_clipping_and_gathering(run):
    """The mean of the gradients is [6, 8], its norm 10; rank 2 of 3 has none of two numbers."""
    found = run(3, programs.step_of_two_numbers)
    assert [num_shards for num_shards, *_ in found] == [1, 1, 0]
    # Stage 1 writes the mean into the shard's stretch of the full gradient, and there alone.
    assert [gradient.tolist() for _, gradient, *_ in found] == [[6, 4], [6, 8], [9, 12]]
    for *_, norm, w in found:
        assert norm == pytest.approx(10.0)
        assert w == pytest.approx([1.5, 2.0])


# What it saves and what it costs
@pytest.mark.parametrize("num_ranks", [1, 3, 4])
@pytest.mark.parametrize("stage", STAGES)
def test_memory_is_that_of_the_formula(run, num_ranks, stage):
    measured = run(num_ranks, programs.kept, stage)
    # Two groups (matrices and biases), each cut by itself: a rounding up for each.
    matrices, biases = 5 * 13 * 13, 5 * 13
    assert matrices + biases == measured[0][1]
    parts = [matrices + biases] if stage == 3 else [matrices, biases]
    settings = {**FLOAT32, "optimizer_bytes": 8}
    expected = sum(arithmetic.memory_bytes(p, num_ranks, stage, **settings) for p in parts)
    assert measured[0][0] == expected
    assert all(found <= expected for found, _ in measured)


def test_stage_2_never_has_all_gradients_and_stage_3_only_a_few_units_in_full(run):
    honest, broken = (
        run(2, programs.kept, 2, mutant=mutant)[0][0]
        for mutant in (None, "full gradients are kept")
    )
    assert broken > honest
    most, unit_bytes, num_units = run(4, programs.peak, 2)[0]
    assert most > num_units * unit_bytes
    most, unit_bytes, num_units = run(4, programs.peak, 2, bucket_bytes=unit_bytes)[0]
    # Its shard of the gradients; a bucket's gradients, the same end to end, and messages.
    assert most < num_units * unit_bytes / 4 + 5 * unit_bytes < num_units * unit_bytes
    most, unit_bytes, num_units = run(4, programs.peak, 3)[0]
    # The shards of gradients; the unit, what comes in of it, its gradients, and activations.
    bound = num_units * unit_bytes / 4 + 4.5 * unit_bytes
    assert most < bound < num_units * unit_bytes  # which the gradients alone would take
    broken, *_ = run(4, programs.peak, 3, mutant="never freed")[0]
    assert broken > bound


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("stage", STAGES)
def test_bytes_sent_are_those_of_the_formula(run, num_ranks, stage):
    measured = run(num_ranks, programs.sent, "untied", stage)
    expected = arithmetic.traffic_bytes(measured[0][1], num_ranks, stage, **FLOAT32)
    each = [found for found, _ in measured]
    assert sum(each) == pytest.approx(num_ranks * expected, rel=0)
    # A rank sends more than another by an entry per collective, at most.
    assert max(each) - min(each) <= 4 * 3 * 3


# States
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(STAGES, 2)))
def test_a_run_goes_on_in_any_other_layout(run, before, after):
    first = run(2, programs.follow, "tied", before, 2)[0]
    expected = programs.alone("tied", 3, 2, start=first)
    for trace in run(3, programs.follow, "tied", after, 2, start=first):
        assert equal(trace.parameters, expected.parameters)
        assert equal(trace.optimizer["state"], expected.optimizer["state"])


# What it refuses
def optimizer_of(params, **settings):
    return zero.ZeroOptimizer(params, optim.AdamW, axis(), lr=1e-2, **settings)


def sharded(module, **settings):
    return zero.FullyShardedModel(module, axis(), **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.requires_grad_(False), "all are frozen"),
        (lambda m: setattr(m[0], "bias", nn.Parameter(m[0].bias.double().detach())), "one dtype"),
        (lambda m: setattr(m[0], "weight", nn.Parameter(torch.zeros(2, 2).T)), "not contiguous"),
        (lambda m: setattr(m[1], "weight", m[0].weight), r"is (0|0.weight) again"),
        (lambda m: [module._parameters.clear() for module in m], "no parameter"),
    ],
    ids=["frozen", "second dtype", "strides", "shared", "none"],
)
def test_parameters_that_cannot_be_sharded_are_refused(change, message):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    change(model)
    with pytest.raises(ValueError, match=message):
        sharded(model, units=list(model))
    named = model.named_parameters(remove_duplicate=False)
    with pytest.raises(ValueError, match=message):
        optimizer_of([p for _, p in named])


def test_a_unit_that_returns_no_tensor_is_refused():
    class Listing(nn.Linear):
        def forward(self, x):
            return [super().forward(x)]

    with pytest.raises(TypeError, match="a Listing returned a list"):
        sharded(Listing(3, 2))(torch.zeros(1, 3))


@pytest.mark.parametrize("stage", [1, 2])
def test_calls_in_the_wrong_order_are_noticed(stage):
    w = nn.Parameter(torch.randn(3, 4))
    chosen = optimizer_of([w], stage=stage)
    w.grad = torch.ones(3, 4)
    for call in (chosen.step, chosen.shards_with_gradients):
        with pytest.raises(RuntimeError, match=r"call sync\(\) after"):
            call()
    chosen.sync()
    if stage == 1:
        with pytest.raises(RuntimeError, match="twice"):
            chosen.sync()
    else:  # which could add another batch, and has not
        w.grad = torch.ones(3, 4)
        with pytest.raises(RuntimeError, match=r"call sync\(\) after"):
            chosen.step()
    chosen.zero_grad()
    chosen.sync()
    assert next(iter(chosen.shards_with_gradients().values())).grad.count_nonzero() == 0


def test_it_is_an_optimizer_of_torchs():
    w = nn.Parameter(torch.randn(3, 4))
    chosen = optimizer_of([w])
    assert isinstance(chosen, torch.optim.Optimizer)
    assert chosen.defaults["lr"] == 1e-2
    w.grad = torch.ones(3, 4)
    chosen.sync()
    chosen.step()
    assert set(map(len, chosen.state.values())) == {3}  # a count and two moments
    chosen.zero_grad()
    assert w.grad is None


def test_schedulers_of_torch_and_closures_work_on_it(run):
    rates, weights = programs.scheduled(None)
    assert len(set(rates)) > 3
    for found_rates, found in run(2, programs.scheduled):
        assert found_rates == rates
        np.testing.assert_allclose(found, weights.numpy(), rtol=1e-6)


# Mutants
@pytest.mark.parametrize(
    ("stages", "mutant", "settings"),
    [
        (STAGES, "no broadcast", {}),
        (STAGES, "gradients stay local", {}),
        ((1, 2), "parameters are not gathered after the step", {}),
        ((1, 2), None, {"average": False, "optimizer": "sgd"}),
        ((3,), "never freed", {}),
        ((3,), "gradients are reduced again", {}),
    ],
)
def test_a_broken_stage_does_not_follow(run, stages, mutant, settings):
    expected = alone("tied", 3, optimizer=settings.get("optimizer", "ours"))
    for stage in stages:
        traces = run(3, programs.follow, "tied", stage, mutant=mutant, **settings)
        with pytest.raises(AssertionError):
            assert_follows(traces, expected)


def test_a_norm_of_one_rank_and_what_is_not_gathered_for_backward_are_noticed(run):
    expected = alone("untied", 3, clip=0.05)
    mutant = "norm of this rank's shards alone"
    traces = run(3, programs.follow, "untied", 2, clip=0.05, mutant=mutant)
    assert traces[0].norms != pytest.approx(expected.norms, rel=1e-3)
    with pytest.raises(world.RankError):  # an error of torch's, or a crash
        run(2, programs.follow, "tied", 3, mutant="not gathered for backward")
