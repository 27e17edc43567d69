"""data_parallel: the same training as in one process and as with torch's own, whatever the module.

A rank's sum over n ranks is made of n - 1 additions, each off by at most u times its result, and
one division.  So every entry of a mean is within n u / (1 - n u) * (|g_0| + ... + |g_{n-1}|) / n of
the exact one, in whatever order the ranks were added; u is 2^-24 for float32.
"""

import itertools
from functools import lru_cache

import numpy as np
import programs_data_parallel as programs
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from llmcourse.parallel import world
from llmcourse.parallel.data_parallel import BucketedDDP, NaiveDDP, broadcast_tensors, cut_buckets
from llmcourse.parallel.world.worker import plain
from llmcourse_labs.scale import arithmetic

WRAPPERS = {
    "naive": ("naive", {}),
    "overlapping": ("bucketed", {"bucket_bytes": 20_000}),
    "in sync": ("bucketed", {"bucket_bytes": 20_000, "overlap": False}),
}


def differing(found, expected, parts=("grads", "state", "after", "moments")):
    """Names of all tensors that are not the same to the last bit, or None on one side only."""
    names = []
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for part in set(parts) & theirs.keys():
            for name in ours[part].keys() | theirs[part].keys():
                x, y = ours[part].get(name), plain(theirs[part].get(name))
                if (x is None) != (y is None) or (x is not None and bits(x) != bits(y)):
                    names.append(f"step {step}, {part} {name}")
    return names


def bits(x):
    x = np.asarray(x)
    return x.dtype, x.shape, x.tobytes()


in_one_process = lru_cache(programs.in_one_process)


def gradients_by_rank(results, step):
    for name in results[0][step]["grads"]:
        yield (
            name,
            [found[step]["local"][name] for found in results],
            [found[step]["grads"][name] for found in results],
        )


# The same training.
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_two_ranks_are_bitwise_equal_to_accumulation(pools, wrapper):
    name, options = WRAPPERS[wrapper]
    results = pools(2).run(programs.train, "llama", name, **options)
    expected = in_one_process("llama", 2)
    first, second = (found[0]["before"] for found in results)
    assert bits(first["model.embedding"]) != bits(second["model.embedding"])  # different before
    for found in results:
        assert differing(found, expected) == []
    for _, (a, b), _ in gradients_by_rank(results, 0):
        assert a is None or bits(a) != bits(b)


@pytest.mark.parametrize(
    ("kind", "num_ranks"), [("llama", 1), ("awkward", 2), ("llama", 3), ("awkward", 4)]
)
def test_ordered_sums_are_bitwise_equal_to_accumulation(pools, kind, num_ranks):
    given = {"all_reduce": "ordered"}
    results = pools(num_ranks).run(programs.train, kind, "bucketed", bucket_bytes=20_000, **given)
    results += pools(num_ranks).run(programs.train, kind, "naive", **given)
    expected = in_one_process(kind, num_ranks)
    for found in results:
        assert differing(found, expected) == []


def within_bound(mean, parts):
    """Whether every entry of a float32 mean is as near to the exact one as derived above."""
    parts = np.stack(parts).astype(np.float64)
    off = len(parts) * 2.0**-24
    # The exact mean is known to 2^-53, the last factor.
    bound = off / (1 - off) * np.abs(parts).mean(0) * (1 + 1e-7)
    return bool((np.abs(mean.astype(np.float64) - parts.mean(0)) <= bound).all())


def test_ring_is_within_the_derived_bound_of_the_exact_mean(pools):
    results = pools(3).run(programs.train, "llama", "bucketed", bucket_bytes=20_000)
    for step in range(3):
        for name, local, synced in gradients_by_rank(results, step):
            assert within_bound(synced[0], local), name
    for found in results[1:]:
        assert differing(found, results[0]) == []


def test_bound_notices_one_wrong_digit():
    parts = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    mean = (parts[0] + parts[1] + parts[2]) / np.float32(3)
    assert within_bound(mean, parts)
    assert not within_bound(mean * np.float32(1 + 2**-20), parts)


@pytest.mark.parametrize("kind", ["llama", "awkward", "normed"])
def test_two_ranks_are_bitwise_equal_to_torch(pools, kind):
    theirs = pools(2).run(programs.train, kind, "torch", find_unused_parameters=kind == "awkward")
    for wrapper, options in WRAPPERS.values():
        ours = pools(2).run(programs.train, kind, wrapper, **options)
        for mine, other in zip(ours, theirs, strict=True):
            assert differing(mine, other) == []


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_accumulation_is_synchronised_once(pools, wrapper):
    name, options = WRAPPERS[wrapper]
    settings = {"num_steps": 2, "all_reduce": "ordered", **options}
    once = pools(3).run(programs.train, "llama", name, **settings)
    results = pools(3).run(programs.train, "llama", name, num_micro=3, **settings)
    expected = in_one_process("llama", 3, num_micro=3, num_steps=2)
    for found in results:
        assert differing(found, expected) == []
    names, of_one = (
        [m.name for m in each.messages if m.name.startswith("all_reduce")]
        for each in (results, once)
    )
    assert names == of_one


@pytest.mark.parametrize("wrapper", ["naive", "bucketed"])
def test_sums_instead_of_means(pools, wrapper):
    results = pools(3).run(programs.train, "awkward", wrapper, average=False, all_reduce="ordered")
    expected = in_one_process("awkward", 3, average=False)
    for found in results:
        assert differing(found, expected) == []


# Parameters that a rank has no gradient for.
@pytest.mark.parametrize("branch", [(), (0,), (2,), (0, 1), (0, 1, 2)])
def test_branches_that_some_ranks_take(pools, branch):
    given = {"all_reduce": "ordered", "branch": branch}
    expected = in_one_process("awkward", 3, branch=branch)
    assert (expected[0]["grads"]["branch.weight"] is None) == (not branch)
    assert expected[0]["grads"]["never"] is expected[0]["grads"]["frozen.weight"] is None
    for wrapper, more in (("naive", {}), ("bucketed", {"bucket_bytes": 64})):
        for found in pools(3).run(programs.train, "awkward", wrapper, **given, **more):
            assert differing(found, expected) == []


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), num_ranks=st.integers(2, 3))
def test_whatever_is_used_where(pools, seed, num_ranks):
    parameters, uses, _ = programs.drawn(seed, num_ranks)
    for found in pools(num_ranks).run(programs.random_uses, seed):
        for step, grads in zip(uses, found, strict=True):
            for i, p in enumerate(parameters):
                parts = [factors[i] for factors in step if i in factors]
                if not parts:
                    assert grads[i] is None
                    continue
                total = torch.zeros_like(p)
                for part in parts:
                    total += part
                assert np.array_equal(grads[i], plain(total / num_ranks))


@pytest.mark.parametrize("wrapper", ["naive", "bucketed"])
def test_gradients_made_by_hand(pools, wrapper):
    for weight, bias in pools(2).run(programs.by_hand, wrapper):
        np.testing.assert_array_equal(weight, np.arange(6.0).reshape(2, 3) / 2)
        assert bias is None


# What is sent, and when.
@pytest.mark.parametrize(("num_ranks", "overlap"), [(2, True), (3, False), (4, True)])
def test_bytes_are_those_of_the_formula(pools, num_ranks, overlap):
    found = pools(num_ranks).run(programs.bytes_of_a_step, "llama", overlap, 20_000)
    num_parameters = len(programs.begin("llama", 0).model.state_dict())
    for index, rank in enumerate(found):
        expected = [
            arithmetic.sent_bytes("all_reduce_ring", n, num_ranks, index=index, element_bytes=size)
            for n, size in rank["buckets"]
        ]
        assert rank["logged"] == [("all_reduce_ring", n) for n in expected]
        assert rank["sent"] == sum(expected)
        # One mark for each parameter travels beside its gradient.
        assert sum(n for n, _ in rank["buckets"]) == rank["gradients"] + 4 * num_parameters
        assert len(rank["buckets"]) > 3
    mean = sum(rank["sent"] for rank in found) / num_ranks
    whole = found[0]["gradients"] + 4 * num_parameters
    assert mean == pytest.approx(2 * (num_ranks - 1) / num_ranks * whole, rel=1e-12)


@pytest.mark.parametrize("enabled", [True, False])
def test_buckets_travel_during_backward(pools, enabled):
    for index, rank in enumerate(pools(2).run(programs.overlap, enabled)):
        assert rank["in time"] is enabled
        assert rank["num_buckets"] == 3
        assert rank["threads"] == ["gradient buckets" if enabled else "MainThread"] * 3
        before, after = rank["grads"]  # gradients change in sync alone
        assert all(np.array_equal(g, np.full(8, 1.0 + index)) for g in before)
        assert all(np.array_equal(g, np.full(8, 1.5)) for g in after)


def test_threads_end_with_their_owner_and_modules_and_passes_keep_apart(pools):
    for rank in pools(2).run(programs.ends_with_its_owner):
        names, hooks = rank["alive"]
        assert (names, hooks) == (["gradient buckets"], 20)
        assert rank["daemons"]
        assert rank["after"] == ([], 0)
    ranks = pools(2).run(programs.two_modules)
    for first, second in zip(*ranks, strict=True):
        assert all(bits(first[name]) == bits(second[name]) for name in first)
    first, second = pools(2).run(programs.two_forwards)
    assert all(bits(first[name]) == bits(second[name]) for name in first)


@pytest.mark.parametrize(("training", "local"), [(True, False), (True, True), (False, False)])
def test_buffers_are_those_of_rank_0(pools, training, local):
    first, second = pools(2).run(programs.buffers, training, local)
    assert bits(first["mine"]) != bits(second["mine"])  # different before
    assert bits(second["seen"]) == bits(first["mine"] if training and not local else second["mine"])
    assert bits(first["seen"]) == bits(first["mine"])


def test_broadcast_writes_what_differs_in_any_bit(pools):
    (first, by_0), (second, by_1) = pools(2).run(programs.broadcasts)
    assert [bits(x) for x in first] == [bits(x) for x in second]
    assert np.signbit(second[0][0])
    assert by_0[0] == by_0[1] == by_0[2]  # the source writes nothing
    assert by_1[0] < by_1[1] == by_1[2]  # and nobody what is there already, NaN or not


# Buckets.
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([2, 4, 8])), max_size=12),
    bucket_bytes=st.integers(1, 60),
)
@example(sizes=[(1, 4), (1, 4), (1, 4)], bucket_bytes=8)
def test_buckets_are_full_and_in_order(sizes, bucket_bytes):
    dtypes = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
    tensors = [torch.zeros(length, dtype=dtypes[size]) for length, size in sizes]
    place = {id(x): i for i, x in enumerate(tensors)}
    buckets = [[place[id(x)] for x in bucket] for bucket in cut_buckets(tensors, bucket_bytes)]
    assert sorted(itertools.chain(*buckets)) == list(range(len(tensors)))
    assert [bucket[-1] for bucket in buckets] == sorted(bucket[-1] for bucket in buckets)
    for dtype in dtypes.values():
        mine = [b for b in buckets if tensors[b[0]].dtype == dtype]
        assert [*itertools.chain(*mine)] == [i for i, x in enumerate(tensors) if x.dtype == dtype]
        num_bytes = [sum(tensors[i].nbytes for i in b) for b in mine]
        assert all(n <= bucket_bytes or len(b) == 1 for n, b in zip(num_bytes, mine, strict=True))
        for n, following in zip(num_bytes, mine[1:], strict=False):
            assert n + tensors[following[0]].nbytes > bucket_bytes


# What goes wrong.
@pytest.mark.parametrize(
    ("program", "told"),
    [
        (programs.different_modules, r"broadcast_tensors 2 tensors 6\d bytes"),
        (programs.one_rank_calls_something_else, "something else"),  # from the thread to sync
    ],
)
def test_ranks_that_disagree_are_told(program, told):
    with pytest.raises(world.RankError, match=told) as caught:
        world.run(program, 2, timeout_s=5)
    assert isinstance(caught.value.__cause__, world.MismatchError)


def backward(ddp, x=1.0):
    ddp(torch.full((2, 3), x)).sum().backward()


@pytest.mark.parametrize("overlap", [True, False])
def test_errors_of_the_thread_are_raised_by_sync(one_rank, overlap):
    tried = []

    def broken_link(x, _axis):
        tried.append(x)
        raise ConnectionError("the cable is out")

    settings = {"all_reduce": broken_link, "overlap": overlap, "bucket_bytes": 1}
    ddp = BucketedDDP(nn.Linear(3, 2), one_rank, **settings)
    backward(ddp)
    for _ in range(1 + overlap):
        with pytest.raises(ConnectionError, match="the cable is out"):
            ddp.sync()
    assert len(ddp.buckets) == 2
    assert len(tried) == 1  # the buckets after it stay here


@pytest.mark.parametrize("wrapper", [NaiveDDP, BucketedDDP])
def test_one_rank_alone(one_rank, wrapper):
    module = nn.Linear(3, 2)
    ddp = wrapper(module, one_rank)
    backward(ddp)
    gradient = module.weight.grad
    ddp.sync()
    assert module.weight.grad is gradient  # in place: whoever holds it sees the mean
    assert torch.equal(gradient, torch.full((2, 3), 2.0))
    assert one_rank.sent_bytes == 0
    with torch.no_grad():
        assert torch.equal(ddp(torch.ones(3)), module(torch.ones(3)))


def test_a_second_backward_pass_waits_for_sync_or_no_sync(one_rank):
    ddp = BucketedDDP(nn.Linear(3, 2), one_rank)
    backward(ddp)
    with pytest.raises(RuntimeError, match="put all but the last one into no_sync"):
        backward(ddp)
    ddp = BucketedDDP(nn.Linear(3, 2), one_rank, overlap=False)
    backward(ddp)
    backward(ddp)
    ddp.sync()
    assert torch.equal(ddp.module.weight.grad, torch.full((2, 3), 4.0))
    ddp = BucketedDDP(nn.Linear(3, 2), one_rank)
    with ddp.no_sync():
        backward(ddp)
        with ddp.no_sync():
            pass
        backward(ddp)  # still inside the outer one
        with pytest.raises(RuntimeError, match="after the context has ended"):
            ddp.sync()
    ddp.sync()
    assert torch.equal(ddp.module.weight.grad, torch.full((2, 3), 4.0))


@pytest.mark.parametrize("wrapper", [NaiveDDP, BucketedDDP])
def test_parameters_that_came_later_are_noticed(one_rank, wrapper):
    module = nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    ddp = wrapper(module, one_rank)
    module.bias.requires_grad_(True)
    with pytest.raises(RuntimeError, match="bias was added, replaced or unfrozen"):
        ddp.sync()
    ddp = wrapper(module, one_rank)
    module.weight = nn.Parameter(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="weight was added, replaced or unfrozen"):
        ddp.sync()


def test_nothing_to_broadcast(one_rank):
    broadcast_tensors([], one_rank)
    assert one_rank.messages == []


# What the check rejects.
@pytest.fixture(scope="module")
def by_torch(pools):
    """What torch's own wrapper makes of running means, of which one process has other ones."""
    return pools(2).run(programs.train, "normed", "torch")


def complaint(pool, mutant, by_torch):
    cases = {
        "llama": {"bucket_bytes": 20_000},
        "awkward": {"bucket_bytes": 64},
        "llama in micro-batches": {"num_micro": 2, "bucket_bytes": 20_000},
        "normed": {},
    }
    for case, options in cases.items():
        kind, micro = case.split()[0], {k: v for k, v in options.items() if k == "num_micro"}
        expected = by_torch if kind == "normed" else [in_one_process(kind, 2, **micro)] * 2
        try:
            results = pool.run(programs.train, kind, "bucketed", mutant=mutant, **options)
        except world.RankError as error:
            return f"{case}: {error}"
        for found, theirs in zip(results, expected, strict=True):
            if wrong := differing(found, theirs):
                return f"{case}: {wrong[0]}"
    return None


@pytest.mark.parametrize("mutant", [None, *programs.MUTANTS])
def test_check_rejects_a_wrapper_that(mutant, pools, by_torch):
    found = complaint(pools(2), mutant, by_torch)
    assert (found is None) == (mutant is None)
    if mutant and "order" in mutant:
        assert "same collectives in one order" in found
