"""Tensor parallelism: its table and rules, and a cut model in real processes."""

from dataclasses import replace

import numpy as np
import programs_tensor_parallel as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from llmcourse.loss import token_losses
from llmcourse.model import Transformer, tiny
from llmcourse.parallel import tensor_parallel as tp
from llmcourse.parallel.world.worker import plain
from llmcourse_labs.scale import arithmetic

NAMES = list(programs.CONFIGS)
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


@pytest.fixture(scope="module")
def alone():
    """Return the trace of one process, computed once."""
    found = {}

    def alone(*args):
        if args not in found:
            found[args] = plain(programs.alone(*args))
        return found[args]

    return alone


@pytest.fixture(scope="module")
def followed(run):
    """Return the traces of ranks that train a cut model in float64, run once."""
    found = {}

    def followed(name, size, sequence_parallel):
        key = name, size, sequence_parallel
        if key not in found:
            settings = {"sequence_parallel": sequence_parallel, "replicate_kv": copied(name)}
            found[key] = run(size, programs.follow, name, **settings)
        return found[key]

    return followed


def bound_of(dtype: str) -> float:
    """Return how far two orders of summation may differ, relative to a result's largest entry.

    A sum of n terms errs by at most (n-1) u sum|terms|, u half of eps; two orders of the same
    terms differ by at most twice that, (n-1) eps sum|terms|.  Roundings have either sign, so that
    sqrt(n) in place of n - 1 is what they come to; and so have the terms, so that sum|terms| is
    about sqrt(n) times their sum.  Together: n eps.
    """
    return programs.LONGEST_SUM * torch.finfo(getattr(torch, dtype)).eps


def error(ours, theirs) -> float:
    """Return the largest difference relative to the reference's largest entry."""
    theirs = np.asarray(theirs)
    scale = np.abs(theirs).max()
    assert scale > 0, "the reference is all zero"
    assert np.shape(ours) == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max() / scale)


def copied(name: str) -> bool:
    return "kv head" in name


def joined(traces, field: str, name: str) -> dict[str, Tensor]:
    """Put parameters or gradients of all ranks together."""
    config, first = programs.CONFIGS[name], getattr(traces[0], field)
    return {
        parameter: tp.join(
            parameter,
            [torch.from_numpy(getattr(t, field)[parameter]) for t in traces],
            config,
            replicate_kv=copied(name),
        )
        for parameter in first
    }


def assert_follows(traces, expected, name, dtype="float64"):
    """Assert that the ranks, together, have the loss, gradients and weights of one process."""
    bound = bound_of(dtype)
    logits = np.concatenate([t.logits for t in traces], axis=-1)
    assert error(logits, expected.logits) <= bound
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
        assert difference <= weight_bound(expected, dtype), parameter


def weight_bound(expected, dtype: str) -> float:
    """Return how far weights may be apart after the steps of AdamW.

    A step divides by sqrt(v) + eps, so that an error of a gradient moves a weight by about lr / eps
    times it, at most.
    """
    largest = max(np.abs(g).max() for g in expected.gradients.values())
    steps = programs.STEPS * programs.LEARNING_RATE / programs.ADAM_EPS
    bound = steps * bound_of(dtype) * largest
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
def test_ranks_follow_one_process(followed, alone, name, size, sequence_parallel):
    assert_follows(followed(name, size, sequence_parallel), alone(name), name)


@pytest.mark.parametrize(
    ("name", "size", "sequence_parallel"), [("untied", 3, True), ("one kv head", 4, False)]
)
def test_so_they_do_in_float32(run, alone, name, size, sequence_parallel):
    settings = {"sequence_parallel": sequence_parallel, "replicate_kv": copied(name)}
    traces = run(size, programs.follow, name, "float32", **settings)
    assert_follows(traces, alone(name, "float32"), name, "float32")


@pytest.mark.parametrize(("name", "size", "sequence_parallel"), [c for c in CASES if c[1] > 1])
def test_the_table_says_whose_gradients_are_partial(followed, alone, name, size, sequence_parallel):
    """Before `sync`, a rank has its slice of the gradient exactly where nothing is to be summed."""
    settings = {"sequence_parallel": sequence_parallel, "replicate_kv": copied(name)}
    config, expected = programs.CONFIGS[name], alone(name).gradients
    for index, trace in enumerate(followed(name, size, sequence_parallel)):
        for parameter, gradient in trace.unsynced.items():
            whole, keep = expected[parameter], {"replicate_kv": copied(name)}
            part = tp.slice_of(parameter, whole.shape, config, index, size, **keep)
            wanted = whole if part is None else whole.take(range(*part[1:]), axis=part[0])
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
def test_a_broken_cut_does_not_follow(run, alone, mutant, case):
    name, size, sequence_parallel = case
    settings = {"sequence_parallel": sequence_parallel, "replicate_kv": copied(name)}
    expected = alone(name, "float64", 1)
    traces = run(size, programs.follow, name, steps=1, mutant=mutant, **settings)
    with pytest.raises(AssertionError):
        assert_follows(traces, expected, name)


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


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_every_entry_is_counted_once(run, alone, sequence_parallel):
    for name, size in (("two kv heads", 4), ("untied", 3)):
        expected = sum(np.square(g).sum() for g in alone(name).gradients.values())
        shares = run(size, programs.squares, name, sequence_parallel=sequence_parallel)
        assert sum(shares) == pytest.approx(expected, rel=2 * bound_of("float64"))


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
    assert error(ours, logits.grad.float() if dtype == "bfloat16" else logits.grad) <= bound_of(
        dtype
    )
    for rank in ranks:
        wide = "float64" if dtype == "float64" else "float32"
        assert error(rank["losses"], expected.detach()) <= bound_of(wide)
        assert np.all((rank["losses"] == 0) == (expected == 0).numpy())
        assert rank["losses"].tobytes() == ranks[0]["losses"].tobytes()


@pytest.mark.parametrize(
    "mutant",
    [
        "the largest logit is this rank's",
        "exponentials are not summed",
        "targets are counted from the rank's first",
        "every rank adds a target",
        "ignored targets are learned",
    ],
)
def test_a_broken_loss_is_noticed(run, mutant):
    logits, targets, weights = programs.loss_inputs(torch.float64)
    logits.requires_grad_()
    (token_losses(logits, targets) * weights).sum().backward()
    ranks = run(2, programs.losses_of, "float64", mutant=mutant)
    ours = np.concatenate([r["dlogits"] for r in ranks], axis=-1)
    assert not error(ours, logits.grad) <= bound_of("float64")


@pytest.mark.parametrize("length", [0, 1, 7, 12])
def test_the_largest_of_all_ranks(run, length):
    ranks = [torch.randn(length, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    expected = torch.stack(ranks).amax(0).numpy()
    for found in run(3, programs.largest, length):
        assert np.array_equal(found, expected)


# torch's own


def test_torchs_parallelize_module_computes_the_same(run):
    pairs = [
        (programs.our_mlp, programs.torchs_mlp),
        (programs.our_vocabulary, programs.torchs_vocabulary),
    ]
    for ours, theirs in pairs:
        for mine, other in zip(run(3, ours), run(3, theirs), strict=True):
            for a, b in zip(mine, other, strict=True):
                assert error(a, b) <= bound_of("float64")


def test_an_mlp_whose_time_is_cut_computes_the_same(run):
    whole = [torch.from_numpy(t) for t in run(1, programs.our_mlp)[0]]
    cut = run(3, programs.our_mlp, sequence_parallel=True)
    for dim, index in ((1, 0), (1, 1), (0, 2), (0, 3), (1, 4)):
        parts = np.concatenate([rank[index] for rank in cut], axis=dim)
        assert error(parts, whole[index]) <= bound_of("float64")
    assert error(sum(rank[5] for rank in cut), whole[5]) <= bound_of("float64")
    broken = run(3, programs.our_mlp, mutant="parts are not summed")
    assert error(broken[0][0], whole[0]) > 1e-3


# Bytes


def expected_bytes(name: str, size: int, index: int, *, sequence_parallel: bool) -> int:
    """Return what a rank sends in one step, in float32.

    x = B T D numbers pass 4 L + 2 all-reduces: in each layer two forward (g) and two backward (f),
    the embedding one forward, the head one backward.  Where time is cut, each is a reduce-scatter
    and an all-gather.  The loss sends three numbers for every token.  `sync` sums what every rank
    has a part of: gains of heads, of tokens where time is cut, and copies of key/value heads.
    """
    config = programs.CONFIGS[name]
    num_tokens, width = programs.BATCH * programs.TIME, config.width

    def sent(collective, count, *, element=1, ranks=size, at=index):
        num_bytes = 4 * count * element
        settings = {"index": at, "element_bytes": 4 * element}
        return arithmetic.sent_bytes(collective, num_bytes, ranks, **settings)

    passes = 4 * config.num_layers + 2
    if sequence_parallel:
        row = {"element": programs.BATCH * width}
        activations = passes * (
            sent("reduce_scatter", programs.TIME, **row) + sent("all_gather", programs.TIME, **row)
        )
    else:
        activations = passes * sent("all_reduce_ordered", num_tokens * width)
    loss = sent("all_reduce_ordered", num_tokens) + sent("all_reduce_ordered", 2 * num_tokens)
    gains = 2 * config.num_layers * config.head_size if config.qk_norm else 0
    gains += (2 * config.num_layers + 1) * width if sequence_parallel else 0
    each = max(1, size // config.num_kv_heads)
    copies = 2 * config.num_layers * config.head_size * width if each > 1 else 0
    copied_bytes = sent("all_reduce_ordered", copies, ranks=each, at=index % each)
    return activations + loss + sent("all_reduce_ordered", gains) + copied_bytes


@pytest.mark.parametrize(("name", "size", "sequence_parallel"), CASES)
def test_bytes_sent_are_those_of_the_formula(run, name, size, sequence_parallel):
    settings = {"sequence_parallel": sequence_parallel, "replicate_kv": copied(name)}
    found = run(size, programs.sent, name, **settings)
    settings.pop("replicate_kv")
    assert found == [expected_bytes(name, size, i, **settings) for i in range(size)]
    assert (min(found) > 0) == (size > 1)


def test_the_log_names_what_each_message_is_for(run):
    settings = {"sequence_parallel": True, "replicate_kv": True}
    results = run(4, programs.sent, "two kv heads", **settings)
    names = [m.name for m in results.messages if m.rank == 1]
    forward = ["gather_time forward", "scatter_time forward"]
    backward = ["scatter_time backward", "gather_time backward"]
    expected = ["shard", "scatter_time forward", *forward * 4, "gather_time forward"]
    expected += ["all_reduce_max", "all_reduce_sum_and_target", "gather_time backward"]
    expected += [*backward * 4, "scatter_time backward"]
    assert names == [*expected, "all_reduce_replicated", "all_reduce_kv_copies"]
    assert sum(m.num_bytes for m in results.messages) == sum(results)
    results = run(2, programs.sent, "tied", sequence_parallel=False, replicate_kv=False)
    names = [m.name for m in results.messages if m.rank == 0]
    assert names == [
        *["shard", *["g forward"] * 5, "all_reduce_max", "all_reduce_sum_and_target"],
        *["f backward"] * 5,
    ]


# The table and the rules


def test_the_table_knows_every_parameter():
    for config in programs.CONFIGS.values():
        for name, p in Transformer(config).named_parameters():
            style = tp.style_of(name)
            assert (style.dim is None) == (p.ndim == 1)
    assert tp.style_of("blocks.0.attention.q_norm.gain").partial == "always"
    assert tp.style_of("blocks.11.attention_norm.gain").partial == "where time is cut"
    with pytest.raises(ValueError, match=r"blocks\.0\.router"):
        tp.style_of("blocks.0.router.w_router")
    with pytest.raises(ValueError, match="does not divide among 5"):
        tp.slice_of("embedding", (48, 10), programs.EVEN, 0, 5)
    with pytest.raises(ValueError, match="index must be from 0 to 2"):
        tp.slice_of("embedding", (48, 10), programs.EVEN, 3, 3)


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


def test_copies_go_to_the_ranks_whose_queries_read_them():
    config = replace(programs.EVEN, num_kv_heads=2)
    for index in range(4):
        kv = tp.slice_of("blocks.0.attention.w_k", (8, 10), config, index, 4, replicate_kv=True)
        _, start, stop = tp.slice_of("blocks.0.attention.w_q", (48, 10), config, index, 4)
        heads = {row // 4 // 6 for row in range(start, stop)}  # 6 query heads read a kv head
        assert heads == {kv[1] // 4}
        assert kv == (0, 4 * (index // 2), 4 * (index // 2) + 4)


@pytest.mark.parametrize(
    ("changes", "size", "settings", "message"),
    [
        ({}, 0, {}, "size must be 1 or more"),
        ({"num_heads": 7, "num_kv_heads": 7}, 4, {}, r"num_heads must be .*7 \(nearest: 4 or 8\)"),
        ({"hidden": 37}, 2, {}, r"hidden must be divisible, got 37 \(nearest: 36 or 38\)"),
        ({"vocab_size": 3}, 4, {}, r"vocab_size must be divisible, got 3 \(nearest: 4\)"),
        ({"num_kv_heads": 2}, 4, {}, r"nearest: 4\), or with replicate_kv=True 2 ranks hold each"),
        ({"num_kv_heads": 2}, 3, {}, r"num_kv_heads must be divisible, got 2 \(nearest: 3\)"),
        ({"num_kv_heads": 2}, 3, {"replicate_kv": True}, r"divide 3 \(nearest: 1 or 3\)"),
        ({"num_kv_heads": 3}, 4, {"replicate_kv": True}, r"divide 4 \(nearest: 2 or 4\)"),
        ({"context_length": 25}, 2, {"sequence_parallel": True}, r"context_length .*24 or 26"),
    ],
)
def test_a_shape_that_does_not_divide_is_refused(changes, size, settings, message):
    with pytest.raises(ValueError, match=message):
        tp.check_shape(replace(programs.EVEN, **changes), size, **settings)


def test_a_refusal_names_all_rules_at_once():
    config = replace(programs.EVEN, hidden=35, vocab_size=47)
    with pytest.raises(ValueError, match=r"among 2 tensor.*hidden.*; vocab_size"):
        tp.check_shape(config, 2)
    tp.check_shape(replace(programs.EVEN, context_length=25), 2)
    tp.check_shape(replace(programs.EVEN, num_kv_heads=2), 4, replicate_kv=True)
    tp.check_shape(tiny(), 2, sequence_parallel=True)


def test_a_model_with_experts_is_refused():
    config = replace(tiny(), num_experts=4, experts_per_token=2)
    with pytest.raises(ValueError, match="num_experts must be 0"):
        tp.check_shape(config, 2)


def test_what_a_cut_model_refuses(run):
    for said in run(2, programs.refused):
        assert "weights" not in said
        assert "7 positions do not divide into 2" in said["time"]
        assert "make it 6 or 8" in said["time"]
        assert "ids must be from 0 to 47, got" in said["id"]
        assert "outside the vocabulary [0, 48)" in said["target"]
        assert "num_tokens must be above 0, got 0" in said["nothing"]
        assert "num_tokens must be above 0, got 0" in said["number"]
        assert "cut already" in said["again"]
        assert "call shard first" in said["whole"]
