"""Stage 3 in real processes: any module, sharded, is the module."""

import numpy as np
import programs_sharded
import programs_zero as programs
import pytest
import torch
from torch import nn

from llmcourse.model.decoder import Block
from llmcourse.parallel import world, zero
from llmcourse.parallel.world.worker import plain
from llmcourse.parallel.zero.unit import tensors_in

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


# Training


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["tied", "untied", "odd", "recurrent"])
def test_stage_3_follows_one_process_bit_by_bit(run, num_ranks, name):
    expected = programs.alone(name, num_ranks)
    assert_follows(run(num_ranks, programs.follow, name, 3), expected)


@pytest.mark.parametrize("name", ["tied", "odd"])
def test_so_it_does_as_one_unit(run, name):
    expected = programs.alone(name, 3)
    assert_follows(run(3, programs.follow, name, 3, units=None), expected)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "rmsprop", "adagrad"])
def test_so_it_does_with_any_optimizer_of_single_entries(run, optimizer):
    expected = programs.alone("odd", 3, optimizer=optimizer)
    assert_follows(run(3, programs.follow, "odd", 3, optimizer=optimizer), expected)


@pytest.mark.parametrize("again", ["block", "attention"])
def test_so_it_does_when_blocks_are_computed_again(run, again):
    expected = programs.alone("tied", 2)
    assert_follows(run(2, programs.follow, "tied", 3, again=again), expected)


def test_whole_gradients_of_several_batches_are_added_up_and_reduced_once(run):
    expected = programs.alone("tied", 3, num_micro=3)
    traces = run(3, programs.follow, "tied", 3, num_micro=3, keep=True)
    assert_follows(traces, expected)


def test_pieces_of_gradients_of_several_batches_are_added_up(run):
    """The sum has another order: over ranks first, then over batches."""
    expected = programs.alone("tied", 3, 1, num_micro=3, optimizer="sgd")
    traces = run(3, programs.follow, "tied", 3, 1, num_micro=3, optimizer="sgd")
    assert_close_gradients(traces, expected, num_terms=9)
    mutant = "gradients are overwritten"
    traces = run(3, programs.follow, "tied", 3, 1, num_micro=3, optimizer="sgd", mutant=mutant)
    with pytest.raises(AssertionError):
        assert_close_gradients(traces, expected, num_terms=9)


def assert_close_gradients(traces, expected, *, num_terms):
    """Assert that two sums of so many terms, whatever their order, differ by rounding alone.

    Each errs by at most (n-1) u sum|terms|, u half of eps, to first order; dividing adds u.  The
    terms themselves are larger than their sums over batches, of which `sizes` is made, where they
    cancel: 8 times, here, at most.
    """
    u = torch.finfo(torch.float32).eps / 2
    model = programs.made("tied")
    sizes = dict(zip(model.parameters(), expected.sizes, strict=True))
    numbered = [p for group in programs.groups_of(model, "sgd") for p in group["params"]]
    for trace in traces:
        for number, p in enumerate(numbered):
            ours = torch.from_numpy(trace.optimizer["state"][number]["momentum_buffer"])
            theirs = expected.optimizer["state"][number]["momentum_buffer"]
            largest = 8 * sizes[p].max() / len(traces)
            assert float((ours - theirs).abs().max()) <= 2 * num_terms * u * largest, number


# torch's own


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_torchs_fully_shard_ends_up_in_the_same_place(run, num_ranks):
    for name in ("tied", "untied"):
        ours = run(num_ranks, programs.follow, name, 3, optimizer="adamw", ordered=False)[0]
        theirs = run(num_ranks, programs.torchs, name, "fsdp2")[0]
        for step, parameters in enumerate(theirs):
            for key, p in parameters.items():
                # Adam divides by the size of the gradient, so that a rounding error of a gradient
                # near 0 moves a weight by up to a few lr (here 1e-2) times its relative error.
                atol = 0 if num_ranks == 2 else 2e-6
                assert np.abs(ours.parameters[step][key] - p).max() <= atol, (name, step, key)


# Precision


@pytest.mark.parametrize("make", ["narrow_tree", "narrow_decoder"])
def test_low_precision_computes_as_a_low_precision_module(run, make):
    """Gathered in bf16, reduced in float32, updated in float32: so does one process by hand."""
    for trace, expected in run(2, programs_sharded.in_bf16, getattr(programs_sharded, make)):
        assert equal(trace, expected)


def test_low_precision_keeps_the_given_dtypes(run):
    dtypes = run(2, programs_sharded.dtypes)[0]
    assert dtypes == {
        "parameter": "torch.float32",
        "gradient": "torch.float32",
        "inside": "torch.bfloat16",
        "given": "torch.bfloat16",
        "ids": "torch.int64",
        "result": "torch.bfloat16",
    }


def test_low_precision_halves_what_is_sent(run):
    full = sum(found for found, _ in run(2, programs.sent, "linear", 3))
    settings = {"compute_dtype": torch.bfloat16}
    half = sum(found for found, _ in run(2, programs.sent, "linear", 3, **settings))
    mixed = run(2, programs.sent, "linear", 3, reduce_dtype=torch.float32, **settings)
    assert half == full / 2
    assert sum(found for found, _ in mixed) == full * 2 / 3


# Memory


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_only_a_few_units_are_whole_at_a_time(run, num_ranks):
    most, unit_bytes, num_units = run(num_ranks, programs.peak, 3)[0]
    shard_bytes = num_units * unit_bytes / num_ranks  # of gradients
    # The unit, what comes in of it, its gradients, and those end to end; and activations.
    bound = shard_bytes + 4.5 * unit_bytes
    assert most < bound
    if num_ranks == 4:
        assert bound < num_units * unit_bytes  # which the gradients alone would take
    broken, *_ = run(num_ranks, programs.peak, 3, mutant="never freed")[0]
    assert broken > bound


# Uses that come up once in a while


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("name", programs_sharded.CASES)
def test_it_does_what_the_module_does(run, num_ranks, name):
    for found in run(num_ranks, programs_sharded.unusual, name):
        assert equal(found["results"][1], found["results"][0])
        for kind in ("gradients", "parameters"):
            for key, (expected, ours) in found[kind].items():
                assert equal(ours, expected), (kind, key)
        assert not any(found["gathered"])
        assert not any(found["bytes"])


def test_states_of_the_whole_are_those_of_the_module(run):
    for ours, theirs, pieces in run(3, programs_sharded.states):
        assert equal(ours, theirs)
        assert pieces != list(theirs)
    with pytest.raises(ValueError, match=r"lacks \['weight'\].*\['w'\]"):
        sharded_linear().load_full_state_dict({"w": torch.zeros(2, 3), "bias": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"weight has shape \(2, 3\), got \(3, 2\)"):
        sharded_linear().load_full_state_dict({"weight": torch.zeros(3, 2), "bias": torch.zeros(2)})


def test_an_optimizer_of_other_parameters_is_refused():
    other = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1)
    with pytest.raises(ValueError, match="not of this model"):
        sharded_linear().full_optimizer_state(other)


# What it refuses


def sharded_linear(**settings):
    """Return a sharded module on one rank."""
    axis = world.Rank(0, {"dp": 1}, messages=[]).axis("dp")
    return zero.FullyShardedModel(nn.Linear(3, 2), axis, **settings)


def test_it_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="no module of"):
        sharded_linear(units=Block)
    with pytest.raises(ValueError, match="not part of"):
        sharded_linear(units=[nn.Linear(2, 2)])
    axis = world.Rank(0, {"dp": 1}, messages=[]).axis("dp")
    with pytest.raises(ValueError, match="no parameters"):
        zero.FullyShardedModel(nn.Tanh(), axis)
    with pytest.raises(ValueError, match="max_norm"):
        sharded_linear().clip_grad_norm(-1)


def test_a_result_that_may_hide_tensors_is_refused():
    class Hiding(nn.Linear):
        def forward(self, x):
            return iter([super().forward(x)])

    axis = world.Rank(0, {"dp": 1}, messages=[]).axis("dp")
    with pytest.raises(TypeError, match="list_iterator"):
        zero.FullyShardedModel(Hiding(3, 2), axis)(torch.zeros(1, 3))


def test_tensors_are_found_wherever_results_have_them():
    a, b, c = torch.zeros(1), torch.ones(1), torch.ones(2)
    found = list(tensors_in([a, {"x": (b, None, "y")}, programs_sharded.Pair(c, 1)], strict=True))
    assert [x is y for x, y in zip(found, [a, b, c], strict=True)] == [True] * 3
    assert list(tensors_in([iter([]), 3])) == []


def test_parameters_are_out_of_reach_outside_a_forward_pass(run):
    messages = run(2, programs_sharded.read_at_rest)
    assert all("mat1 and mat2" in each or "size mismatch" in each for each in messages)


# Mutants


@pytest.mark.parametrize(
    ("mutant", "settings"),
    [
        ("no broadcast", {}),
        ("gradients stay local", {}),
        ("never freed", {}),
        ("gradients are reduced again", {}),
        (None, {"average": False, "optimizer": "sgd"}),
    ],
)
def test_a_broken_stage_does_not_follow(run, mutant, settings):
    expected = programs.alone("tied", 3, optimizer=settings.get("optimizer", "ours"))
    traces = run(3, programs.follow, "tied", 3, mutant=mutant, **settings)
    with pytest.raises(AssertionError):
        assert_follows(traces, expected)


def test_what_is_not_gathered_for_backward_is_noticed(run):
    with pytest.raises(world.RankError):  # an error of torch's, or a crash
        run(2, programs.follow, "recurrent", 3, mutant="not gathered for backward")


def test_a_tied_parameter_with_one_place_is_noticed(run):
    with pytest.raises(world.RankError, match=r"shape|size"):
        run(2, programs.follow, "odd", 3, mutant="a tied parameter has one place")
