"""ZeRO's formulas, its layouts, and stages 1 and 2 in real processes."""

import itertools

import numpy as np
import programs_zero as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from llmcourse import optim
from llmcourse.parallel import world, zero
from llmcourse.parallel.world.worker import plain
from llmcourse.parallel.zero.layout import end_to_end, undivided
from llmcourse.parallel.zero.states import Place, cut_states

STAGES = (1, 2)
equal, assert_follows = programs.equal, programs.assert_follows


@pytest.fixture(scope="module")
def run():
    """Run a function on 1 to 4 ranks; a single one is this process, which checks annotations."""
    pools = {}

    def run(num_ranks, fn, *args, **settings):
        if num_ranks == 1:
            return [plain(fn(world.Rank(0, {"dp": 1}, messages=[]), *args, **settings))]
        if num_ranks not in pools:
            pools[num_ranks] = world.Pool(num_ranks, timeout_s=30)
        return pools[num_ranks].run(fn, *args, **settings)

    yield run
    for pool in pools.values():
        pool.close()


# Formulas


TABLE_1 = {  # GB per device at stages 1, 2, 3, by parameters and devices
    7.5e9: {
        1: (120, 120, 120),
        4: (52.5, 41.3, 30),
        16: (35.6, 21.6, 7.5),
        64: (31.4, 16.6, 1.88),
        256: (30.4, 15.4, 0.47),
        1024: (30.1, 15.1, 0.12),
    },
    128e9: {
        1: (2048, 2048, 2048),
        4: (896, 704, 512),
        16: (608, 368, 128),
        64: (536, 284, 32),
        256: (518, 263, 8),
        1024: (513, 257, 2),
    },
    1e12: {
        1: (16000, 16000, 16000),
        4: (7000, 5500, 4000),
        16: (4750, 2875, 1000),
        64: (4187, 2218, 250),
        256: (4046, 2054, 62.5),
        1024: (4011, 2013, 15.6),
    },
}
"""Rajbhandari et al. 2020, table 1; some cells are rounded, some cut off."""


def test_the_54_cells_of_the_zero_table():
    cells = [
        (num_parameters, num_ranks, stage, gb)
        for num_parameters, column in TABLE_1.items()
        for num_ranks, row in column.items()
        for stage, gb in enumerate(row, start=1)
    ]
    assert len(cells) == 54
    for num_parameters, num_ranks, stage, gb in cells:
        found = zero.memory_bytes(int(num_parameters), num_ranks, stage) / 1e9
        digits = len(str(gb).partition(".")[2])
        # Cut off or rounded: less than one unit of the last digit shown away.
        assert abs(found - gb) < 10.0**-digits, (num_parameters, num_ranks, stage)


def test_plain_data_parallelism_has_everything_everywhere():
    assert zero.memory_bytes(10, 64, 0) == 160
    assert zero.memory_bytes(10, 3, 1) == 40 + 12 * 4  # the fullest rank has ceil(10 / 3)


def test_traffic_is_2_2_2_and_3_times_the_parameters():
    shares = [zero.traffic_bytes(6400, 64, stage) / (2 * 6400) / (63 / 64) for stage in zero.STAGES]
    assert shares == [2, 2, 2, 3]
    assert zero.traffic_bytes(6400, 1, 3) == 0


@pytest.mark.parametrize("function", [zero.memory_bytes, zero.traffic_bytes])
def test_formulas_refuse_what_cannot_be(function):
    for arguments in ((-1, 2, 1), (1, 0, 1), (1, 2, 4)):
        with pytest.raises(ValueError, match=r"num_(parameters|ranks) must|stage must"):
            function(*arguments)


# Layouts

shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(torch.Size), min_size=1, max_size=6)


@given(shapes, st.integers(1, 5))
def test_pieces_of_all_ranks_are_the_tensors(sizes, num_ranks):
    check_pieces(sizes, num_ranks)


@pytest.mark.parametrize("mutant", ["a remainder is left out", "the next rank's pieces"])
def test_wrong_pieces_are_noticed(mutant):
    sizes = [torch.Size([3, 5]), torch.Size([2])]
    check_pieces(sizes, 3)
    with programs.MUTANTS[mutant](), pytest.raises(AssertionError):
        check_pieces(sizes, 3)


def check_pieces(sizes, num_ranks):
    """Check that chunks and pieces are disjoint, complete and where the row has them."""
    for lay in (end_to_end, undivided):
        layout = lay(sizes, num_ranks)
        assert layout.chunk(num_ranks - 1)[1] == layout.length
        by_rank = [layout.pieces(rank) for rank in range(num_ranks)]
        for index, shape in enumerate(sizes):
            entries = [i for pieces in by_rank for i in range(*pieces[index])]
            assert sorted(entries) == list(range(shape.numel()))
        tensors = [torch.randn(shape) for shape in sizes]
        row = layout.join(tensors, like=torch.empty(0))
        assert equal(layout.cut(row), tensors)
        for rank in range(num_ranks):
            first, last = layout.chunk(rank)
            parts = [t.flatten()[a:b] for t, (a, b) in zip(tensors, by_rank[rank], strict=True)]
            assert last - first >= sum(map(len, parts))
            if lay is end_to_end:
                assert torch.equal(row[first:last], torch.cat(parts))


@given(shapes, st.integers(1, 5))
def test_undivided_tensors_are_on_one_rank_and_spread_evenly(sizes, num_ranks):
    layout = undivided(sizes, num_ranks)
    filled = []
    for rank in range(num_ranks):
        pieces = layout.pieces(rank)
        lengths = [last - first for first, last in pieces]
        assert all(n in (0, s.numel()) for n, s in zip(lengths, sizes, strict=True))
        filled.append(sum(lengths))
    assert max(filled) - min(filled) <= max(s.numel() for s in sizes)
    assert layout.length == num_ranks * max(filled)


def test_a_state_is_cut_where_the_parameter_is():
    place = Place(torch.Size([2, 3]), [(0, 4), (4, 6)])
    state = {0: {"mean": torch.arange(6.0).view(2, 3), "step": torch.tensor(7.0), "rows": [1]}}
    cut = cut_states(state, {0: place}, 1)
    assert equal(
        cut, {0: {"mean": torch.tensor([4.0, 5.0]), "step": state[0]["step"], "rows": [1]}}
    )


# Training


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["tied", "odd"])
def test_a_stage_follows_one_process_bit_by_bit(run, num_ranks, stage, name):
    expected = programs.alone(name, num_ranks)
    assert_follows(run(num_ranks, programs.follow, name, stage), expected)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("bucket_bytes", [None, 100, 20_000])
def test_so_it_does_in_buckets_with_several_batches_and_clipping(run, stage, bucket_bytes):
    expected = programs.alone("untied", 2, num_micro=2)
    settings = {"bucket_bytes": bucket_bytes, "num_micro": 2, "keep": True}
    assert_follows(run(2, programs.follow, "untied", stage, **settings), expected)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "rmsprop", "adagrad"])
def test_so_it_does_with_any_optimizer_of_single_entries(run, optimizer):
    expected = programs.alone("recurrent", 3, optimizer=optimizer)
    for stage in STAGES:
        traces = run(3, programs.follow, "recurrent", stage, optimizer=optimizer)
        assert_follows(traces, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_so_it_does_with_an_optimizer_of_whole_matrices(run, stage):
    expected = programs.alone("untied", 3, optimizer="muon")
    settings = {"optimizer": "muon", "whole": True}
    assert_follows(run(3, programs.follow, "untied", stage, **settings), expected)


def test_cut_matrices_are_refused_by_an_optimizer_of_whole_ones(run):
    assert all("2D" in each for each in run(3, programs.cut_matrices))


def test_stage_1_takes_gradients_that_are_averaged_already(run):
    expected = programs.alone("odd", 3)
    assert_follows(run(3, programs.follow, "odd", 1, synced=True), expected)


def test_every_stage_is_data_parallelism_bit_by_bit(run):
    for name in ("tied", "untied"):
        plain_optimizer, sharded_optimizer = (
            run(3, programs.with_ddp, name, sharded_optimizer=sharded)[0]
            for sharded in (False, True)
        )
        assert equal(plain_optimizer, sharded_optimizer)
        for stage in (1, 2, 3):
            assert equal(run(3, programs.follow, name, stage)[0].parameters, plain_optimizer)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_ranks_are_bitwise_one_process_in_any_order_of_sums(run, stage):
    expected = programs.alone("tied", 2)
    assert_follows(run(2, programs.follow, "tied", stage, ordered=False), expected)


@pytest.mark.parametrize("num_ranks", [3, 4])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_ring_rounds_otherwise_within_its_bound(run, num_ranks, stage):
    """A sum of n terms in any order errs by at most (n-1) u sum|g|, u half of eps, to first order.

    Two orders differ by twice that, and dividing by n rounds each once more.  With one step of SGD
    the momentum is the gradient itself.
    """
    expected = programs.alone("tied", num_ranks, 1, optimizer="sgd")
    traces = run(num_ranks, programs.follow, "tied", stage, 1, optimizer="sgd", ordered=False)
    u = torch.finfo(torch.float32).eps / 2
    model = programs.made("tied")
    sizes = dict(zip(model.parameters(), expected.sizes, strict=True))
    numbered = [p for group in programs.groups_of(model, "sgd") for p in group["params"]]
    terms = 2 * (num_ranks - 1) + 2
    for trace in traces:
        for number, p in enumerate(numbered):
            ours = torch.from_numpy(trace.optimizer["state"][number]["momentum_buffer"])
            theirs = expected.optimizer["state"][number]["momentum_buffer"]
            bound = terms * u / (1 - terms * u) * sizes[p] / num_ranks
            assert bool(((ours - theirs).abs() <= bound).all()), number


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_torchs_own_ddp_and_zero_end_up_in_the_same_place(run, num_ranks):
    ours = run(num_ranks, programs.follow, "tied", 1, optimizer="adamw", ordered=False)[0]
    for kind in ("ddp", "zero1"):
        theirs = run(num_ranks, programs.torchs, "tied", kind)[0]
        for step, parameters in enumerate(theirs):
            for name, p in parameters.items():
                # Adam divides by the size of the gradient, so that a rounding error of a gradient
                # near 0 moves a weight by up to a few lr (here 1e-2) times its relative error.
                atol = 0 if num_ranks == 2 else 2e-6
                error = np.abs(ours.parameters[step][name] - p).max()
                assert error <= atol, (kind, step, name)


# Clipping


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("clip", [0.05, 1e3])
def test_clipping_over_shards_is_clipping_of_the_whole(run, stage, clip):
    for num_ranks in (1, 3):
        expected = programs.alone("untied", num_ranks, clip=clip)
        traces = run(num_ranks, programs.follow, "untied", stage, clip=clip)
        for trace in traces:
            assert trace.norms == pytest.approx(expected.norms, rel=1e-6)
            assert trace.norms == traces[0].norms
            for step, parameters in enumerate(expected.parameters):
                for name, p in parameters.items():
                    # The norm is summed in another order: 1e-6 of it, that is of each gradient.
                    error = np.abs(trace.parameters[step][name] - p.numpy()).max(initial=0)
                    assert error <= (1e-6 if clip < 1 else 0), (step, name)
    assert (expected.norms[0] > clip) == (clip < 1)


def test_a_rank_without_a_shard_takes_part_in_clipping(run):
    """Muon is given the matrix alone, undivided: three of four ranks have nothing."""
    model, total = programs.made("linear"), 0
    for rank in range(4):
        # The optimizer does not have the bias, so every rank has its own.
        model.bias = programs.made("linear", seed=rank).bias
        total = total + programs.loss_of(model, "linear", 0, rank)
    total.backward()
    expected = float(model.weight.grad.norm()) / 4
    settings = {"optimizer": "muon", "whole": True, "clip": 0.01}
    for trace in run(4, programs.follow, "linear", 2, 1, **settings):
        assert trace.norms == pytest.approx([expected], rel=1e-6)


# What it saves and what it costs


@pytest.mark.parametrize("num_ranks", [1, 3, 4])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_memory_is_that_of_the_formula(run, num_ranks, stage):
    measured = run(num_ranks, programs.kept, stage)
    num_parameters = measured[0][1]
    settings = {"parameter_bytes": 4, "gradient_bytes": 4, "optimizer_bytes": 8}
    # Two groups (matrices and biases), each cut by itself: a rounding up for each.
    matrices, biases = 5 * 13 * 13, 5 * 13
    assert matrices + biases == num_parameters
    parts = [num_parameters] if stage == 3 else [matrices, biases]
    expected = sum(zero.memory_bytes(p, num_ranks, stage, **settings) for p in parts)
    assert measured[0][0] == expected
    assert all(found <= expected for found, _ in measured)


@pytest.mark.parametrize("stage", STAGES)
def test_so_it_is_with_bf16_and_copies_in_float32(run, stage):
    measured = run(3, programs.kept, stage, "bfloat16", master_dtype=torch.float32)
    # Stage 2 adds gradients of shards up in float32.
    settings = {"gradient_bytes": {1: 2, 2: 4}[stage]}
    expected = sum(zero.memory_bytes(p, 3, stage, **settings) for p in (5 * 13 * 13, 5 * 13))
    assert measured[0][0] == expected


def test_buckets_keep_stage_2_from_ever_having_all_gradients(run):
    most, unit_bytes, num_units = run(4, programs.peak, 2)[0]
    assert most > num_units * unit_bytes
    most, unit_bytes, num_units = run(4, programs.peak, 2, bucket_bytes=unit_bytes)[0]
    # Its shard of the gradients; a bucket's gradients, the same end to end, and messages.
    assert most < num_units * unit_bytes / 4 + 5 * unit_bytes < num_units * unit_bytes


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bytes_sent_are_those_of_the_formula(run, num_ranks, stage):
    for name in ("tied", "untied"):
        measured = run(num_ranks, programs.sent, name, stage)
        num_parameters = measured[0][1]
        settings = {"parameter_bytes": 4, "gradient_bytes": 4}
        expected = zero.traffic_bytes(num_parameters, num_ranks, stage, **settings)
        assert sum(found for found, _ in measured) == pytest.approx(num_ranks * expected, rel=0)
        # A rank sends more than another by an entry per collective, at most.
        each = [found for found, _ in measured]
        assert max(each) - min(each) <= 4 * 3 * 3


# States


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations((1, 2, 3), 2)))
def test_a_run_goes_on_in_any_other_layout(run, before, after):
    first = run(2, programs.follow, "odd", before, 2)[0]
    expected = programs.alone("odd", 3, 2, start=first)
    traces = run(3, programs.follow, "odd", after, 2, start=first)
    for trace in traces:
        assert equal(trace.parameters, expected.parameters)
        assert equal(trace.optimizer["state"], expected.optimizer["state"])


def test_copies_are_part_of_the_state(run):
    expected = run(2, programs.with_copies, 4, None)[0]
    half = run(2, programs.with_copies, 2, None)[0]
    resumed = run(2, programs.with_copies, 2, half)[0]
    assert equal(resumed, expected)
    del half["optimizer"]["state"][0]["master"]
    assert not equal(run(2, programs.with_copies, 2, half)[0], expected)


# What it refuses


def alone_axis():
    """Return an axis of one rank, in this process."""
    return world.Axis("dp", (0,), 0, group=None, messages=[])


def optimizer_of(params, **settings):
    """Return a ZeRO optimizer on one rank."""
    return zero.ZeroOptimizer(params, optim.AdamW, alone_axis(), lr=1e-2, **settings)


def test_it_refuses_what_it_cannot_do():
    w = nn.Parameter(torch.randn(3, 4))
    for settings, message in (
        ({"stage": 3}, "FullyShardedModel"),
        ({"bucket_bytes": 0}, "bucket_bytes must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            optimizer_of([w], **settings)
    with pytest.raises(ValueError, match="no parameter"):
        optimizer_of([])
    with pytest.raises(ValueError, match="twice"):
        optimizer_of([{"params": [w]}, {"params": w}])
    with pytest.raises(ValueError, match="not contiguous"):
        optimizer_of([nn.Parameter(torch.randn(3, 4).T)])
    with pytest.raises(ValueError, match="set_to_none"):
        optimizer_of([w]).zero_grad(set_to_none=False)
    with pytest.raises(ValueError, match="max_norm"):
        optimizer_of([w]).clip_grad_norm(0)


def test_calls_in_the_wrong_order_are_noticed():
    w = nn.Parameter(torch.randn(3, 4))
    w.grad = torch.ones(3, 4)
    chosen = optimizer_of([w], stage=2)
    with pytest.raises(RuntimeError, match="sync"):
        chosen.step()
    chosen = optimizer_of([w], stage=1)
    chosen.sync()
    with pytest.raises(RuntimeError, match="twice"):
        chosen.sync()
    chosen.zero_grad()
    chosen.sync()
    assert w.grad.count_nonzero() == 0


def test_a_state_with_other_groups_is_refused():
    w, v = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2))
    chosen, other = optimizer_of([w]), optimizer_of([w, v])
    with pytest.raises(ValueError, match=r"\[1\] parameters.*\[2\]"):
        chosen.load_full_state_dict(other.full_state_dict())


def test_state_bytes_and_groups_are_those_of_the_shard():
    w = nn.Parameter(torch.randn(3, 4))
    chosen = optimizer_of([w])
    w.grad = torch.ones(3, 4)
    assert chosen.state_bytes() == 0
    chosen.param_groups[0]["lr"] = 0.5
    before = w.detach().clone()
    chosen.step()
    assert chosen.state_bytes() == 2 * 4 * 12
    assert float((w.detach() - before).abs().mean()) > 0.4
    again = optimizer_of([w])
    again.load_state_dict(chosen.state_dict())
    assert equal(again.state_dict(), chosen.state_dict())


# Mutants


@pytest.mark.parametrize(
    ("mutant", "settings"),
    [
        ("no broadcast", {}),
        ("gradients stay local", {}),
        ("parameters are not gathered after the step", {}),
        (None, {"average": False, "optimizer": "sgd"}),
    ],
)
def test_a_broken_stage_does_not_follow(run, mutant, settings):
    expected = programs.alone("odd", 3, optimizer=settings.get("optimizer", "ours"))
    for stage in STAGES:
        traces = run(3, programs.follow, "odd", stage, mutant=mutant, **settings)
        with pytest.raises(AssertionError):
            assert_follows(traces, expected)


def test_a_norm_of_one_rank_is_noticed(run):
    expected = programs.alone("untied", 3, clip=0.05)
    mutant = "norm of this rank's shards alone"
    traces = run(3, programs.follow, "untied", 2, clip=0.05, mutant=mutant)
    assert traces[0].norms != pytest.approx(expected.norms, rel=1e-3)


def test_gradients_that_stay_are_noticed(run):
    honest, broken = (
        run(2, programs.kept, 2, mutant=mutant)[0][0]
        for mutant in (None, "whole gradients are kept")
    )
    assert broken > honest
