"""Tensor parallelism: its table and rules, and a cut model in real processes."""

import functools

import numpy as np
import programs_tensor_parallel as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parallel_kit import error
from programs_tensor_parallel import copied
from torch import Tensor

from llmcourse.loss import token_losses
from llmcourse.model import Transformer
from llmcourse.parallel import tensor_parallel as tp
from llmcourse.parallel.world.worker import plain

CASES = [
    ("tied", 1, False),
    ("untied", 1, True),
    ("tied", 2, True),
    ("untied", 2, False),
    ("two kv heads", 2, True),
    ("one kv head", 2, False),
    ("tied", 3, False),
    ("untied", 3, True),
    ("one kv head", 3, True),  # two heads are neither cut by 3 nor copied 1.5 times
    ("tied", 4, True),
    ("untied", 4, False),
    ("two kv heads", 4, False),
    ("one kv head", 4, True),
]
"""Shape, ranks, and whether time is cut: every pair of two of them."""


@functools.cache
def alone(*args):
    return plain(programs.alone(*args))


@pytest.fixture(scope="module")
def followed(run):
    found = {}

    def followed(*case):
        if case not in found:
            name, size, cut_time = case
            found[case] = run(size, programs.follow, name, sequence_parallel=cut_time)
        return found[case]

    return followed


def bound_of(dtype: str) -> float:
    """Return how far two orders of summation may differ, relative to a result's largest entry.

    A sum of n terms errs by at most (n-1) u sum|terms|, u half of eps; two orders of the same
    terms differ by at most twice that, (n-1) eps sum|terms|.  Roundings have either sign, so that
    sqrt(n) in place of n - 1 is what they come to; and so have the terms, so that sum|terms| is
    about sqrt(n) times their sum.  Together: n eps.
    """
    return programs.LONGEST_SUM * torch.finfo(getattr(torch, dtype)).eps


def joined(traces, field: str, name: str) -> dict[str, Tensor]:
    config, first = programs.CONFIGS[name], getattr(traces[0], field)
    parts = {n: [torch.from_numpy(getattr(t, field)[n]) for t in traces] for n in first}
    return {n: tp.join(n, parts[n], config, replicate_kv=copied(name)) for n in first}


def assert_follows(traces, expected, name):
    bound = bound_of("float64")
    assert error(np.concatenate([t.logits for t in traces], axis=-1), expected.logits) <= bound
    for trace in traces:
        assert error(trace.losses[0], expected.losses[0]) <= bound
        assert trace.losses == traces[0].losses
    assert_alike(traces, name)
    gradients = joined(traces, "gradients", name)
    assert gradients.keys() == expected.gradients.keys()
    for parameter, ours in gradients.items():
        assert error(ours, expected.gradients[parameter]) <= bound, parameter
    for parameter, ours in joined(traces, "parameters", name).items():
        difference = np.abs(ours.numpy() - expected.parameters[parameter]).max()
        assert difference <= weight_bound(expected), parameter


def weight_bound(expected) -> float:
    """Return how far weights may be apart after the steps of AdamW.

    A step divides by sqrt(v) + eps, so that an error of a gradient moves a weight by about lr / eps
    times it, at most.
    """
    largest = max(np.abs(g).max() for g in expected.gradients.values())
    steps = programs.STEPS * programs.LEARNING_RATE / programs.ADAM_EPS
    bound = steps * bound_of("float64") * largest
    assert bound < 1e-2 * steps * programs.ADAM_EPS, "a weight could stay where it was"
    return bound


def assert_alike(traces, name):
    """Assert that what several ranks hold is bitwise the same on them, and slices are not."""
    config, size = programs.CONFIGS[name], len(traces)
    each = max(1, size // config.num_kv_heads)
    for parameter in traces[0].parameters:
        style = tp.style_of(parameter)
        for field in ("before", "gradients", "parameters"):
            held = [getattr(t, field)[parameter].tobytes() for t in traces]
            if style.dim is None:
                assert len(set(held)) == 1, (parameter, field)
            elif style.partial == "where copied":
                assert held == [held[i // each * each] for i in range(size)], (parameter, field)
                assert len(set(held)) == size // each
            else:
                assert len(set(held)) == size, (parameter, field)


# Training
@pytest.mark.parametrize(("name", "size", "sequence_parallel"), CASES)
def test_ranks_follow_one_process(followed, name, size, sequence_parallel):
    assert_follows(followed(name, size, sequence_parallel), alone(name), name)


@pytest.mark.parametrize(("name", "size", "sequence_parallel"), [c for c in CASES if c[1] > 1])
def test_the_table_says_whose_gradients_are_partial(followed, name, size, sequence_parallel):
    """Before `sync`, a rank has its slice of the gradient exactly where nothing is to be summed."""
    config, expected = programs.CONFIGS[name], alone(name).gradients
    keep = {"replicate_kv": copied(name)}
    for index, trace in enumerate(followed(name, size, sequence_parallel)):
        for parameter, gradient in trace.unsynced.items():
            whole = expected[parameter]
            part = tp.slice_of(parameter, whole.shape, config, index, size, **keep)
            wanted = whole if part is None else whole.take(range(*part[1:]), axis=part[0])
            settings = {"sequence_parallel": sequence_parallel, **keep}
            summed = tp.summed_over(parameter, config, size, **settings)
            assert (error(gradient, wanted) > 1e-2) == (summed is not None), (parameter, summed)


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        ("f and g are swapped", ("untied", 2, False)),
        ("parts are not summed", ("tied", 3, False)),
        ("gradients of inputs are not summed", ("untied", 2, False)),
        ("g sums its gradient too", ("tied", 2, False)),
        ("time is gathered, its gradient not summed", ("untied", 3, True)),
        ("time is cut, its parts not summed", ("untied", 2, True)),
        ("the largest logit is this rank's", ("tied", 2, False)),
        ("exponentials are not summed", ("tied", 2, False)),
        ("targets are counted from the rank's first", ("untied", 2, True)),
        ("every rank adds a target", ("tied", 3, False)),
        ("ids are counted from the rank's first", ("untied", 2, False)),
        ("every rank adds a row", ("tied", 2, True)),
        ("ignored targets are learned", ("tied", 2, False)),
        ("copies of heads are not summed", ("one kv head", 2, False)),
        ("copies of heads are not summed", ("two kv heads", 4, False)),
        ("gains of heads are not summed", ("untied", 2, False)),
        ("gains of tokens are not summed", ("tied", 2, True)),
        ("gains of tokens are always summed", ("tied", 2, False)),
        ("gradients are summed twice", ("tied", 2, True)),
        ("the next rank's slices", ("tied", 3, False)),
    ],
)
def test_a_broken_cut_does_not_follow(run, mutant, case):
    name, size, cut_time = case
    settings = {"steps": 1, "sequence_parallel": cut_time}
    traces = run(size, programs.follow, name, mutant=mutant, **settings)
    with pytest.raises(AssertionError):
        assert_follows(traces, alone(name, 1), name)


# Other ways to ask a cut model
@pytest.mark.parametrize(("name", "size"), [("untied", 1), ("tied", 3), ("two kv heads", 4)])
def test_every_way_to_ask_gives_the_logits_of_one_process(run, name, size):
    with torch.no_grad():
        expected = programs.asked_in_every_way(programs.made(name), sequence_parallel=False)
    for sequence_parallel in (False, True):
        ranks = run(size, programs.logits_of, name, sequence_parallel=sequence_parallel)
        # A single token has no stretch for each rank.
        assert ranks[0].keys() == expected.keys() - ({"cached"} if sequence_parallel else set())
        for how in ranks[0]:
            logits = np.concatenate([parts[how] for parts in ranks], axis=-1)
            assert error(logits, expected[how]) <= bound_of("float64"), how


def test_parts_of_a_model_are_synced_by_themselves(run):
    for whole, by_parts in run(4, programs.synced_by_parts, "two kv heads"):
        assert whole.keys() == by_parts.keys()
        for name, gradient in whole.items():
            assert np.array_equal(gradient, by_parts[name]), name


# The loss
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_loss_of_cut_logits_is_that_of_whole_ones(run, size, dtype):
    logits, targets, weights = programs.loss_inputs(getattr(torch, dtype))
    logits.requires_grad_()
    expected = token_losses(logits, targets)
    (expected * weights).sum().backward()
    assert expected.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    ranks = run(size, programs.losses_of, dtype)
    ours = np.concatenate([r["dlogits"] for r in ranks], axis=-1)
    # Gradients of logits in bf16 are rounded to bf16, each once: half of its eps, on both sides.
    theirs = logits.grad.float() if dtype == "bfloat16" else logits.grad
    assert error(ours, theirs) <= bound_of(dtype)
    for rank in ranks:
        wide = "float64" if dtype == "float64" else "float32"
        assert error(rank["losses"], expected.detach()) <= bound_of(wide)
        assert np.all((rank["losses"] == 0) == (expected == 0).numpy())
        assert rank["losses"].tobytes() == ranks[0]["losses"].tobytes()


@pytest.mark.parametrize("length", [0, 1, 7, 12])
def test_the_largest_of_all_ranks(run, length):
    ranks = [torch.randn(length, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    expected = torch.stack(ranks).amax(0).numpy()
    for found in run(3, programs.largest, length):
        assert np.array_equal(found, expected)


# torch's own
def test_torchs_parallelize_module_computes_the_same(run):
    pairs = zip(run(3, programs.our_mlp), run(3, programs.torchs_mlp), strict=True)
    for mine, other in pairs:
        for a, b in zip(mine, other, strict=True):
            assert error(a, b) <= bound_of("float64")


# Messages
def test_the_log_names_what_each_message_is_for(run):
    results = run(4, programs.sent, "two kv heads", sequence_parallel=True)
    names = [m.name for m in results.messages if m.rank == 1]
    forward = ["gather_time forward", "scatter_time forward"]
    backward = ["scatter_time backward", "gather_time backward"]
    expected = ["shard", "scatter_time forward", *forward * 4, "gather_time forward"]
    expected += ["all_reduce_max", "all_reduce_sum_and_target", "gather_time backward"]
    expected += [*backward * 4, "scatter_time backward"]
    assert names == [*expected, "all_reduce_replicated", "all_reduce_kv_copies"]
    assert sum(m.num_bytes for m in results.messages) == sum(results)
    results = run(2, programs.sent, "tied", sequence_parallel=False)
    names = [m.name for m in results.messages if m.rank == 0]
    loss = ["all_reduce_max", "all_reduce_sum_and_target"]
    assert names == ["shard", *["g forward"] * 5, *loss, *["f backward"] * 5]


# The table and the rules
def test_the_table_knows_every_parameter():
    for config in programs.CONFIGS.values():
        for name, p in Transformer(config).named_parameters():
            assert (tp.style_of(name).dim is None) == (p.ndim == 1)
    assert tp.style_of("blocks.0.attention.q_norm.gain").partial == "always"
    assert tp.style_of("blocks.11.attention_norm.gain").partial == "where time is cut"


@given(st.sampled_from(CASES), st.integers(0, 2**31))
def test_slices_of_all_ranks_are_the_whole(case, seed):
    name, size, _ = case
    config, settings = programs.CONFIGS[name], {"replicate_kv": copied(name)}
    generator = torch.Generator().manual_seed(seed)
    for parameter, p in Transformer(config, generator=generator).named_parameters():
        parts = []
        for index in range(size):
            part = tp.slice_of(parameter, p.shape, config, index, size, **settings)
            parts.append(p if part is None else p.narrow(part[0], part[1], part[2] - part[1]))
        assert len({part.shape for part in parts}) == 1
        assert torch.equal(tp.join(parameter, parts, config, **settings), p)
