"""collectives: equal to a loop over the ranks and to gloo's own, byte for byte as the formulas say.

A sum of n numbers takes n - 1 additions, each off by at most u times its result.  So in whatever
order they are made, every entry is within g (|x_0| + ... + |x_{n-1}|) of the exact sum, where
g = (n-1) u / (1 - (n-1) u) and u = 2^-24, 2^-53 and 2^-8 for float32, float64 and bfloat16.
"""

import functools
import math
import re

import numpy as np
import programs_collectives as programs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse.parallel import collectives, world
from llmcourse.parallel.collectives.passes import pieces
from llmcourse.parallel.world.worker import plain
from llmcourse_labs.scale import arithmetic

WORLDS = [1, 2, 3, 4, 5]
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8}
IN_ORDER = ("naive", "ordered")
EVEN = ("all_reduce_ring", "all_reduce_ordered", "reduce_scatter", "all_gather", "all_to_all")


def parts_of(num_ranks, shape, dtype, **settings):
    return [programs.values(i, shape, dtype, **settings) for i in range(num_ranks)]


def loop(parts):
    return functools.reduce(torch.add, parts[1:], parts[0].clone())


def is_sum(found, parts):
    """Whether an array is the sum of the parts, as exactly as any order of additions makes it."""
    if not parts[0].is_floating_point():
        return np.array_equal(found, plain(loop(parts)))
    n, u = len(parts) - 1, ROUNDING[parts[0].dtype]
    exact = torch.stack(parts).double()
    # The exact sum is itself made in float64: that counts as one rounding more.
    bound = (n * u / (1 - n * u) + n * 2.0**-53) * exact.abs().sum(0)
    return found.shape == exact.shape[1:] and bool(
        (torch.from_numpy(found).double() - exact.sum(0)).abs().le(bound).all()
    )


def is_sum_in_order(found, parts):
    """Whether an array is, bit for bit, what a loop over the ranks makes."""
    expected = plain(loop(parts))
    return found.dtype == expected.dtype and np.array_equal(found, expected)


@given(length=st.integers(0, 10_000), parts=st.integers(1, 50))
def test_chunks_are_nearly_equal(length, parts):
    sizes = collectives.chunk_sizes(length, parts)
    assert sizes == [len(part) for part in np.array_split(range(length), parts)]
    assert sum(sizes) == length
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("num_ranks", WORLDS)
@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS)
def test_all_reduce_is_the_sum(pools, num_ranks, algorithm):
    found = pools(num_ranks).run(programs.all_reduces, algorithm)
    check = is_sum_in_order if algorithm in IN_ORDER else is_sum
    for (length, dtype), sums in [(key, [f[key] for f in found]) for key in found[0]]:
        parts = parts_of(num_ranks, (length,), dtype)
        assert all(np.array_equal(sums[0], s) for s in sums), f"ranks differ: {length} {dtype}"
        assert check(sums[0], parts), f"{length} {dtype}"


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_other_orders_round_differently(pools, algorithm):
    """At 4 ranks neither ring nor tree is the loop, bit for bit, so that bound is needed."""
    found = pools(4).run(programs.all_reduces, algorithm)[0]
    for dtype in ROUNDING:
        assert not is_sum_in_order(found[10_007, dtype], parts_of(4, (10_007,), dtype))


@settings(max_examples=40)
@given(
    num_ranks=st.integers(2, 4),
    algorithm=st.sampled_from(sorted(collectives.ALGORITHMS)),
    shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    dtype=st.sampled_from(programs.DTYPES),
    seed=st.integers(1, 1000),
)
def test_all_reduce_of_any_shape(pools, *, num_ranks, algorithm, shape, dtype, seed):
    found = pools(num_ranks).run(programs.reduced, algorithm, shape, dtype, seed)
    parts = parts_of(num_ranks, shape, dtype, seed=seed)
    check = is_sum_in_order if algorithm in IN_ORDER else is_sum
    assert all(check(x, parts) for x in found)


@pytest.mark.parametrize("num_ranks", WORLDS)
@pytest.mark.parametrize("ordered", [False, True])
def test_reduce_scatter_leaves_each_rank_its_chunk(pools, num_ranks, ordered):
    found = pools(num_ranks).run(programs.scattered, ordered)
    check = is_sum_in_order if ordered else is_sum
    for (length, dtype), first in found[0].items():
        sizes = collectives.chunk_sizes(length, num_ranks)
        parts = [p.split(sizes) for p in parts_of(num_ranks, (length,), dtype)]
        for index in range(num_ranks):
            chunk, kept = found[index][length, dtype]
            assert kept, "the input was changed"
            assert check(chunk, [p[index] for p in parts]), f"{index} {length} {dtype}"
        assert first[0].size == sizes[0]


def test_large_tensors_go_in_pieces(pools):
    num_ranks, piece_bytes = 3, 1 << 14
    length = piece_bytes // 4 + 5  # two pieces, and no chunk or piece is even
    found = pools(num_ranks).run(programs.large, length, piece_bytes)
    parts = parts_of(num_ranks, (length,), torch.float32)
    chunks = [p.split(collectives.chunk_sizes(length, num_ranks)) for p in parts]
    for index, (sums, sent) in enumerate(found):
        mine = [c[index] for c in chunks]
        assert is_sum(sums["ring"], parts)
        assert is_sum_in_order(sums["ordered"], parts)
        assert is_sum(sums[False], mine)
        assert is_sum_in_order(sums[True], mine)
        assert sent == [
            arithmetic.sent_bytes(name, 4 * length, num_ranks, index=index, element_bytes=4)
            for name in ["all_reduce_ring", "all_reduce_ordered"] + 2 * ["reduce_scatter"]
        ]


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5), piece_bytes=st.integers(1, 200))
def test_pieces_join_to_the_chunks(sizes, piece_bytes):
    chunks = torch.arange(float(sum(sizes))).split(sizes)
    found = list(pieces(chunks, chunks[0].clone(), piece_bytes=piece_bytes))
    assert len(found) == max(1, math.ceil(4 * sum(sizes) / piece_bytes))
    for k, chunk in enumerate(chunks):
        assert torch.equal(torch.cat([parts[k] for parts, _ in found]), chunk)
    assert torch.equal(torch.cat([into for _, into in found]), chunks[0])
    assert all(into.shape == parts[0].shape for parts, into in found)


@pytest.mark.parametrize("num_ranks", WORLDS)
def test_all_gather_joins_uneven_chunks(pools, num_ranks):
    for rank in pools(num_ranks).run(programs.gathered):
        for (length, dtype), whole in rank.items():
            assert np.array_equal(whole, plain(programs.values(99, (length, 2), dtype)))


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", programs.DTYPES)
def test_the_same_as_gloo(pools, num_ranks, dtype):
    for rank in pools(num_ranks).run(programs.like_gloo, dtype):
        assert len(rank) == 9
        for name, (ours, theirs) in rank.items():
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs), name


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
def test_all_to_all_of_uneven_chunks(pools, num_ranks, rest):
    for to, rank in enumerate(pools(num_ranks).run(programs.parcels, rest)):
        received, sent, copied = rank
        for source, chunk in enumerate(received):
            length = programs.parcel(source, to)
            assert np.array_equal(chunk, programs.values(length, (length, *rest)).numpy())
        others = [k for k in range(num_ranks) if k != to]
        size = 4 * math.prod(rest) * sum(programs.parcel(to, k) for k in others)
        assert sent == size
        assert copied


@pytest.mark.parametrize("num_ranks", WORLDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_bytes_are_those_of_the_formula(pools, num_ranks, dtype):
    for length in (0, 1, num_ranks - 1, 12 * num_ranks, 12 * num_ranks + 1):
        root = length % num_ranks
        found = pools(num_ranks).run(programs.every_call, length, dtype, root)
        size = dtype.itemsize
        for call in found[0][0]:
            name = call.split()[0]
            formula = functools.partial(
                arithmetic.sent_bytes, name, size * length, num_ranks, element_bytes=size
            )
            for index, (calls, num_messages) in enumerate(found):
                place = (index - root) % num_ranks if name in ("broadcast", "reduce") else index
                expected = formula(index=place)
                assert calls[call] == (expected, expected, name), f"{index} {length}"
                assert num_messages == len(calls), "one line in the log for each call"
            sent = sum(calls[call][0] for calls, _ in found)
            assert sent == pytest.approx(num_ranks * formula(), rel=1e-12)


@pytest.mark.parametrize("name", EVEN)
def test_formulas_where_chunks_are_even(name):
    for n in (1, 2, 3, 8, 512):
        expected = 5 * (n - 1) * (2 if name.startswith("all_reduce") else 1)
        assert arithmetic.sent_bytes(name, 5 * n, n) == pytest.approx(expected, rel=1e-12)
        assert {arithmetic.sent_bytes(name, 5 * n, n, index=i) for i in (0, n - 1)} == {expected}


@given(
    name=st.sampled_from([*EVEN, "broadcast", "reduce", "all_reduce_naive", "all_reduce_tree"]),
    length=st.integers(0, 1000),
    num_ranks=st.integers(1, 40),
    element_bytes=st.sampled_from([1, 2, 4, 12]),
)
def test_the_mean_is_that_of_all_ranks(name, length, num_ranks, element_bytes):
    args = name, length * element_bytes, num_ranks
    size = {"element_bytes": element_bytes}
    each = [arithmetic.sent_bytes(*args, index=i, **size) for i in range(num_ranks)]
    assert sum(each) / num_ranks == pytest.approx(arithmetic.sent_bytes(*args, **size), rel=1e-12)
    assert all(isinstance(k, int) and k % element_bytes == 0 for k in each)


def test_seconds_are_those_of_messages_in_a_row():
    """Against the messages counted one after another, each of them alpha + L / beta."""
    for n in (*range(1, 40), 512):
        rounds = math.ceil(math.log2(n))
        rows = {
            "broadcast": rounds * [1.0],
            "reduce": rounds * [1.0],
            "reduce_scatter": (n - 1) * [1 / n],
            "all_gather": (n - 1) * [1 / n],
            "all_to_all": (n - 1) * [1 / n],
            "all_reduce_naive": 2 * (n - 1) * [1.0],
            "all_reduce_tree": 2 * rounds * [1.0],
            "all_reduce_ring": 2 * (n - 1) * [1 / n],
            "all_reduce_ordered": 2 * (n - 1) * [1 / n],
        }
        for name, row in rows.items():
            found = arithmetic.seconds(name, 10**6, n, latency_s=1e-5, bytes_per_s=10**9)
            expected = sum(1e-5 + part * 10**6 / 10**9 for part in row)
            assert found == pytest.approx(expected, rel=1e-12), f"{name} {n}"


def test_tensors_that_are_not_a_row(pools):
    found = pools(3).run(programs.awkward_tensors)
    parts = parts_of(3, (4, 6), torch.float32)
    for index, rank in enumerate(found):
        assert rank["same"]
        assert rank["needs_grad"]
        assert is_sum(rank["column"], [p[:, 1:4:2] for p in parts])
        assert np.array_equal(rank["around"], parts[index][:, [0, 2, 4, 5]].numpy())
        assert np.array_equal(rank["transposed"], programs.values(0, (2, 3)).T.numpy())
        assert is_sum_in_order(rank["parameter"], parts_of(3, (3, 2), torch.float32))
        assert rank["scalar"] == 6
        rows = [p.split([2, 2, 1])[index] for p in parts_of(3, (5, 2, 3), torch.float32)]
        assert is_sum(rank["rows"], rows)
        rows = [p.T.split([2, 2, 1])[index] for p in parts_of(3, (2, 5), torch.float32)]
        assert is_sum(rank["rows of a view"], rows)


def test_axes_of_a_mesh_and_two_threads_on_channels_of_their_own(pools):
    found = pools(4, {"dp": 2, "tp": 2}).run(programs.along_axes)
    parts = parts_of(4, (7,), torch.float32)
    for index, rank in enumerate(found):
        dp, tp = divmod(index, 2)
        assert is_sum_in_order(rank["dp"], [parts[tp], parts[2 + tp]])
        assert is_sum_in_order(rank["tp"], [parts[2 * dp], parts[2 * dp + 1]])
        assert is_sum_in_order(rank["both"], [loop(parts[:2]), loop(parts[2:])])
        assert is_sum_in_order(rank["world"], parts)
        assert np.array_equal(rank["from dp 1"], parts[2 + tp].numpy())
        assert rank["logged"] == ["dp", "tp", "tp", "dp", "world", "dp"]
    for rank in pools(3).run(programs.two_threads):
        for found, length, seed in zip(rank, (1000, 997), (0, 100), strict=True):
            for k in range(20):
                parts = parts_of(3, (length,), torch.float32, seed=seed + k)
                assert is_sum_in_order(found[k], parts)


def test_ranks_that_disagree_are_told(pools):
    """Both of them, each time, so that neither waits for the other."""
    for index, told in enumerate(pools(2).run(programs.disagreements)):
        assert len(told) == 8
        for what, message in told.items():
            begins = rf"rank {index} calls .*, rank {1 - index} calls "
            assert re.match(begins, message), f"{what}: {message}"
    with pytest.raises(world.RankError, match=r"MismatchError: rank \d calls .*, rank \d calls"):
        world.run(programs.disagree, 2, "shape")


def test_one_rank_alone(one_rank):
    """Here the annotations of shapes are executed, too."""
    x = programs.values(0, (5, 2))
    for name in collectives.ALGORITHMS:
        y = x.clone()
        assert collectives.all_reduce(y, one_rank, algorithm=name) is y
        assert torch.equal(y, x)
    for ordered in (False, True):
        chunk = collectives.reduce_scatter(x, one_rank, ordered=ordered)
        assert torch.equal(chunk, x)
        assert chunk.data_ptr() != x.data_ptr()
    assert torch.equal(collectives.all_gather(x, one_rank), x)
    assert torch.equal(collectives.all_to_all([x], one_rank, lengths=[5])[0], x)
    assert (one_rank.sent_bytes, [m.name for m in one_rank.messages][-1]) == (0, "all_to_all")


@pytest.mark.parametrize("num_ranks", [3, 4])
@pytest.mark.parametrize("name", programs.MUTANTS)
def test_mutants_are_rejected(pools, num_ranks, name):
    check = is_sum_in_order if programs.MUTANTS[name][0] in IN_ORDER else is_sum
    parts = parts_of(num_ranks, (24 * num_ranks,), torch.float32)
    found = pools(num_ranks).run(programs.mutated, name, 24 * num_ranks)
    assert all(check(right, parts) for right, _ in found)
    assert not all(check(wrong, parts) for _, wrong in found)


@pytest.mark.parametrize("name", ["order of arrival", "sums in float64"])
def test_only_bits_tell_the_order(pools, name):
    """These are good sums: a check with a tolerance would let them pass."""
    parts = parts_of(3, (72,), torch.float32)
    assert all(is_sum(wrong, parts) for _, wrong in pools(3).run(programs.mutated, name, 72))


def test_needless_bytes_and_a_gather_in_the_wrong_order_are_noticed(pools):
    parts = [programs.whole_values(i, (24,)) for i in range(4)]
    for index, (x, sent) in enumerate(pools(4).run(programs.wasteful, 24)):
        assert is_sum_in_order(x, parts)
        assert sent > arithmetic.sent_bytes("all_reduce_ring", 96, 4, index=index, element_bytes=4)
    right = torch.cat(parts_of(3, (3,), torch.float32)).numpy()
    assert not any(np.array_equal(x, right) for x in pools(3).run(programs.rotated_gather))
