"""context_parallel: attention round a ring of ranks equals dense attention in one process.

How far two ways to compute attention may be apart, entry by entry and to first order in the unit
roundoff u, with K channels, S keys and n parts.  P are the weights.

A score is off by (K + 2) u sum|q k| / sqrt(K).  A weight is off by the factor 1 + e at most, where
e is twice the largest such error of its query (that of the score, and that of the log-sum-exp),
plus (S + 8 n + 8) u for the sums and at most 8 roundings in each merge.  With a = sum|dO v| of a
query and a key, b = sum P a of a query, and N = T H / G queries that read one key or value head:

    out  (e + S u) sum P |v|
    dq   sum P (a + b) |k| (2 e + (K + 2 S + 8) u) / sqrt(K)
    dk   sum P (a + b) |q| (2 e + (K + S + N + 8) u) / sqrt(K)
    dv   sum P |dO| (e + N u)

Both ways are off by that much at most.  The reference is in float64.
"""

import math
from functools import lru_cache

import numpy as np
import programs_context_parallel as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parallel_kit import equal, error

from llmcourse.base import checks
from llmcourse.model import attention
from llmcourse.parallel import context_parallel as cp
from llmcourse.parallel import world

WORLDS = (1, 2, 3, 4)
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24}


# Layouts
worlds = st.integers(1, 6)
layouts = st.sampled_from(cp.LAYOUTS)


@given(worlds, layouts, st.integers(1, 5))
def test_every_position_has_one_rank(size, layout, length):
    whole = 2 * size * length
    held = [cp.positions(whole, index, size, layout) for index in range(size)]
    assert torch.cat(held).sort().values.tolist() == list(range(whole))
    for positions in held:
        assert positions.dtype == torch.int64
        assert len(positions) == whole // size
        assert (positions.diff() > 0).all()


@given(worlds, layouts, st.integers(1, 3), st.sampled_from([0, 1, 2, -1]))
def test_shares_join_to_the_whole(size, layout, length, dim):
    shape = [3, 5, 4]
    shape[dim] = 2 * size * length
    whole = torch.arange(math.prod(shape)).view(shape)
    shares = [cp.share(whole, index, size, layout, dim=dim) for index in range(size)]
    assert torch.equal(cp.join(shares, layout, dim=dim), whole)
    if size > 1:
        assert not torch.equal(torch.cat(shares[::-1], dim), whole)


def test_zigzag_by_hand():
    assert cp.positions(16, 1, 4).tolist() == [2, 3, 12, 13]
    assert cp.positions(16, 1, 4, "blocks").tolist() == [4, 5, 6, 7]
    assert cp.share(torch.arange(8).view(1, 8), 0, 2).tolist() == [[0, 1, 6, 7]]


@given(worlds, layouts, st.integers(1, 4))
def test_pairs_are_those_that_a_loop_counts(size, layout, length):
    whole = 2 * size * length
    table = cp.work_pairs(whole, size, layout)
    held = [cp.positions(whole, index, size, layout) for index in range(size)]
    for rank, queries in enumerate(held):
        for step in range(size):
            assert table[rank, step] == (held[(rank - step) % size] <= queries.unsqueeze(-1)).sum()
    assert table.sum() == whole * (whole + 1) // 2


@pytest.mark.parametrize("size", [2, 3, 4, 8, 512])
def test_zigzag_is_balanced_and_blocks_are_not(size):
    whole = 2 * size * 12
    zigzag, blocks = (cp.work_pairs(whole, size, layout) for layout in cp.LAYOUTS)
    assert (zigzag == zigzag[0]).all()  # in every step, not only in all
    by_rank = blocks.sum(1)
    assert (by_rank.diff() > 0).all()
    c = whole // size
    assert by_rank[0] == c * (c + 1) // 2
    assert by_rank[-1] == (size - 1) * c * c + c * (c + 1) // 2
    # The slowest rank of each step sets the pace: nearly twice as long for many ranks.
    pace = blocks.amax(0).sum() / zigzag.amax(0).sum()
    assert pace == pytest.approx(2 - 1 / size, rel=0.03)


# Merging
def parts_of(scores_BHtS, v_BHSK, ends):
    found = []
    for start, end in zip([0, *ends], [*ends, scores_BHtS.shape[-1]], strict=True):
        scores = scores_BHtS[..., start:end]
        out = scores.softmax(-1).nan_to_num() @ v_BHSK[..., start:end, :]
        found.append(cp.Partial(out.transpose(1, 2), scores.logsumexp(-1)))
    return found


@given(
    st.integers(0, 1000),
    st.sampled_from([0.1, 3.0, 3e4]),  # of which exp is too large for float64
    st.lists(st.integers(1, 8), unique=True, min_size=1, max_size=3).map(sorted),
    st.permutations(range(4)),
)
def test_parts_merge_to_the_whole_in_any_order(seed, scale, ends, order):
    g = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(2, 3, 5, 9, generator=g, dtype=torch.float64)
    scores[torch.rand(scores.shape, generator=g) < 0.5] = -math.inf
    scores[:, :, 2] = -math.inf  # sees nothing at all
    v = torch.randn(2, 3, 9, 4, generator=g, dtype=torch.float64)
    (whole,) = parts_of(scores, v, [])
    parts = parts_of(scores, v, ends)
    total = cp.empty_partial(whole.out_BtHK)
    for i in order:
        total = cp.merge(total, parts[i]) if i < len(parts) else total
    # A weight is exp of a difference of log-sum-exps, whose size counts.
    bound = 16 * 2.0**-53 * (1 + float(scores[scores > -math.inf].abs().max()))
    assert checks.relative_error(total.out_BtHK, whole.out_BtHK) <= bound
    assert torch.equal(total.logsumexp_BHt > -math.inf, (scores > -math.inf).any(-1))
    assert not total.out_BtHK[:, 2].any()
    one, other = parts[:2]
    assert all(map(torch.equal, cp.merge(one, other), cp.merge(other, one)))


# Attention
def bounds_of(given, mask, num_ranks, dtype):
    """Return how far each entry may be from the reference: see the head of this file."""
    q, k, v, dout = (x.detach().double().abs() for x in given)
    num_kv_heads, size, u = k.shape[2], k.shape[3], ROUNDING[dtype]
    (num_keys, num_heads), scale = q.shape[1:3], size**-0.5
    num_sharing = num_keys * num_heads // num_kv_heads
    weights = attention.attention_weights(*(x.detach().double() for x in given[:2]), mask=mask)
    k, v = (attention.repeat_kv(x, num_heads) for x in (k, v))
    rounding = (size + 2) * u * scale * torch.einsum("bthk,bshk->bhts", q, k)
    e = 2 * rounding.where(weights > 0, 0.0).amax(-1, keepdim=True)
    e += (num_keys + 8 * num_ranks + 8) * u
    a = torch.einsum("bthk,bshk->bhts", dout, v)
    dscores = weights * (a + (weights * a).sum(-1, keepdim=True)) * scale
    out = torch.einsum("bhts,bshk->bthk", weights * (e + num_keys * u), v)
    dq = dscores * (2 * e + (size + 2 * num_keys + 8) * u)
    dk = dscores * (2 * e + (size + num_keys + num_sharing + 8) * u)
    bounds = (
        out,
        torch.einsum("bhts,bshk->bthk", dq, k),
        attention.sum_over_group(torch.einsum("bhts,bthk->bshk", dk, q), num_kv_heads),
        attention.sum_over_group(
            torch.einsum("bhts,bthk->bshk", weights * (e + num_sharing * u), dout), num_kv_heads
        ),
    )
    return [2 * bound for bound in bounds]


@lru_cache
def reference(num_kv_heads, mask_kind, dtype, num_ranks):
    given, mask = programs.inputs(num_kv_heads, dtype), programs.mask_of(mask_kind)
    return programs.dense(given, mask), bounds_of(given, mask, num_ranks, dtype)


def assert_attends(found, layout, num_kv_heads, mask_kind, dtype):
    """Check what all ranks have against one process; return the largest error."""
    expected, bounds = reference(num_kv_heads, mask_kind, dtype, len(found))
    ours = programs.joined(found, layout)
    for name, mine, theirs, bound in zip(ours._fields, ours, expected, bounds, strict=True):
        assert mine.dtype == programs.DTYPES[dtype]
        assert theirs.abs().max() > 0
        # The bound is of use: far below the size of what is compared.
        assert bound.max() < {"float64": 1e-11, "float32": 5e-3}[dtype] * theirs.abs().max()
        assert ((mine.double() - theirs).abs() <= bound).all(), name
    return max(map(error, ours, expected))


KINDS = ((1, "float64"), (2, "float64"), (4, "float64"), (2, "float32"))


@pytest.mark.parametrize("layout", cp.LAYOUTS)
@pytest.mark.parametrize("num_ranks", WORLDS)
def test_the_ring_attends_as_one_process(run, num_ranks, layout):
    """Every mask, each with other heads; the next number of ranks has them in the next order.

    In float64 both agree far closer than the worst case: seen is below 2e-15 of the largest entry.
    Whatever the mask, the same bytes are sent.
    """
    first = num_ranks + cp.LAYOUTS.index(layout)
    for i, mask_kind in enumerate(programs.MASKS):
        num_kv_heads, dtype = KINDS[(first + i) % len(KINDS)]
        case = layout, num_kv_heads, mask_kind, dtype
        found = run(num_ranks, programs.attend, *case)
        closest = assert_attends(found, *case)
        assert dtype == "float32" or closest <= 1e-14
        sent = ring_bytes(num_ranks, num_kv_heads, programs.DTYPES[dtype].itemsize)
        assert {(x.forward_bytes, x.backward_bytes) for x in found} == {sent}


@pytest.mark.parametrize("kind", ["documents", "window", "blind"])
def test_a_mask_may_come_cut(run, kind):
    case = "zigzag", 2, kind, "float64"
    whole, cut = (run(3, programs.attend, *case, cut_mask=cut) for cut in (False, True))
    assert equal(whole, cut)


def test_a_row_that_sees_nothing_reads_nothing_and_one_rank_alone_is_flash(run):
    given = programs.inputs(2, "float64")
    mask = programs.mask_of("blind")
    ours = programs.joined(run(4, programs.attend, "zigzag", 2, "blind", "float64"), "zigzag")
    blind = ~mask.any(-1)
    assert blind.sum() == 3
    flash = attention.attention_flash(*given[:3], mask=mask)
    for x in (ours.out_BTHK, ours.dq_BTHK, flash):
        assert not x[:, blind].any()
        assert x[:, ~blind].any()
    # Here the annotations of shapes are executed, too.
    (found,) = run(1, programs.attend, "zigzag", 2, "causal", "float32")
    out, _ = attention.flash_forward(*programs.inputs(2, "float32")[:3], tile=4)
    assert np.array_equal(found.mine.out_BTHK, out)
    assert (found.forward_bytes, found.backward_bytes) == (0, 0)


# Bytes and work
def ring_bytes(num_ranks, num_kv_heads, element_bytes):
    """Bytes that a rank sends for one layer: in forward, and in backward.

    forward = (n - 1) * 2 B (T / n) G K * element; backward the same, and gradients of the same
    number of entries in 4 bytes at least.
    """
    entries = 2 * programs.BATCH * programs.TIME // num_ranks * num_kv_heads * programs.HEAD_SIZE
    forward = (num_ranks - 1) * entries * element_bytes
    return forward, forward + (num_ranks - 1) * entries * max(4, element_bytes)


@pytest.mark.parametrize("num_ranks", WORLDS)
def test_gradients_of_narrow_numbers_travel_wide(run, num_ranks):
    """The bytes of other dtypes are those of the formula where they attend, above."""
    for found in run(num_ranks, programs.attend, "zigzag", 4, "causal", "bfloat16"):
        assert (found.forward_bytes, found.backward_bytes) == ring_bytes(num_ranks, 4, 2)


def test_keys_in_the_future_are_not_computed(run):
    blocks, zigzag = (
        [found.num_pieces for found in run(4, programs.attend, layout, 2, "causal", "float32")]
        for layout in ("blocks", "zigzag")
    )
    assert (blocks, zigzag) == ([1, 2, 3, 4], [4, 4, 4, 4])


# The whole model
def errors_of(traces, expected):
    """Return how far ranks are from one process: losses, gradients, weights, at their largest."""
    losses, gradients, weights = [], [], []
    for trace in traces:
        losses += map(error, trace.losses, expected.losses)
        for mine, whole in zip(trace.gradients, expected.gradients, strict=True):
            gradients += [error(mine[name], whole[name]) for name in whole]
        weights += [error(trace.weights[name], x) for name, x in expected.weights.items()]
    return max(losses), max(gradients), max(weights)


def assert_trains(traces, expected):
    losses, gradients, weights = errors_of(traces, expected)
    assert losses <= 1e-13
    assert gradients <= 1e-11
    assert weights <= 1e-10


alone = lru_cache(programs.alone)


@pytest.mark.parametrize(
    ("num_ranks", "layout", "packed", "tied_head"),
    [  # every pair of two settings
        (1, "zigzag", True, False),
        (1, "blocks", False, True),
        (2, "zigzag", False, True),
        (2, "blocks", True, False),
        (3, "zigzag", True, True),
        (3, "blocks", False, False),
        (4, "zigzag", False, False),
        (4, "blocks", True, True),
    ],
)
def test_a_model_trains_as_in_one_process(run, num_ranks, layout, packed, tied_head):
    settings = {"packed": packed, "tied_head": tied_head}
    traces = run(num_ranks, programs.train, layout, **settings)
    assert_trains(traces, alone(**settings))
    assert all(equal(t.weights, traces[0].weights) for t in traces)
    assert all(equal(t.gradients, traces[0].gradients) for t in traces)
    for other in traces[1:]:  # each had a part of the gradient only
        assert not equal(other.local, traces[0].local)
    assert traces[0].ring_bytes == 2 * sum(ring_bytes(num_ranks, 2, 8))


def test_recomputed_in_backward_it_is_the_same(run):
    once, *again = (
        run(3, programs.train, "zigzag", packed=True, steps=2, again=policy)
        for policy in (None, "block", "attention")
    )
    for twice in again:
        for a, b in zip(once, twice, strict=True):
            assert equal(a._replace(ring_bytes=0), b._replace(ring_bytes=0))
            # The ring turns once more for every layer.
            assert b.ring_bytes - a.ring_bytes == 2 * ring_bytes(3, 2, 8)[0]


@pytest.mark.parametrize(("num_ranks", "layout"), [(2, "blocks"), (3, "zigzag")])
def test_under_autocast_it_is_as_good_as_one_process(run, num_ranks, layout):
    """Rounding to bf16 makes the error; the ring, which merges in float32, may not make it worse.

    Half as much again is left for errors that fall otherwise, entry by entry.
    """
    exact, theirs = (programs.narrow_alone(autocast=narrow) for narrow in (False, True))
    found = run(num_ranks, programs.narrow, layout)
    logits = cp.join([torch.as_tensor(x["logits"]) for x in found], layout)
    assert 0 < (logits - exact[0]).norm() <= 1.5 * (theirs[0] - exact[0]).norm()
    ours, theirs_flat, exact_flat = (
        torch.cat([torch.as_tensor(x[name]).flatten() for name in exact[1]])
        for x in (found[0]["gradients"], theirs[1], exact[1])
    )
    assert 0 < (ours - exact_flat).norm() <= 1.5 * (theirs_flat - exact_flat).norm()
    forward, backward = ring_bytes(num_ranks, 2, 2)
    for x in found:
        assert x["dtype"] == "torch.bfloat16"
        assert tuple(x["bytes"]) == (2 * forward, 2 * backward)


# Sums of gradients
@pytest.mark.parametrize("num_ranks", WORLDS)
def test_gradients_are_summed_in_the_order_of_ranks(run, num_ranks):
    found = run(num_ranks, programs.added_up)
    before = [rank[0] for rank in found]
    for _, after, frozen in found:
        assert frozen is None
        assert after[-1] is None
        for i, summed in enumerate(after[:-1]):
            present = [mine[i] for mine in before if mine[i] is not None]
            expected = present[0].copy()
            for x in present[1:]:
                expected = expected + x
            assert summed.dtype == expected.dtype
            assert np.array_equal(summed, expected)


def test_a_sum_in_another_order_is_noticed(run):
    found = run(4, programs.added_up, mutant="by a ring")
    before, after = zip(*(rank[:2] for rank in found), strict=True)
    expected = before[0][0] + before[1][0] + before[2][0] + before[3][0]
    assert not np.array_equal(after[0][0], expected)
    np.testing.assert_allclose(after[0][0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("length", "layout"), [(2, "zigzag"), (4, "blocks")])
def test_ranks_that_disagree_are_told_so(length, layout):
    with pytest.raises(world.RankError, match=r"ring_attention torch\.float32"):
        world.run(programs.attend_otherwise, 2, length, layout, timeout_s=60)


# Mutants
@pytest.mark.parametrize("mutant", programs.OF_ATTENTION)
def test_a_broken_ring_is_noticed(run, mutant):
    kind = "window" if mutant in programs.OF_MASKS else "causal"
    for mask_kind, dtype in ((kind, "float64"), ("blind", "float64"), ("documents", "float32")):
        case = "zigzag", 2, mask_kind, dtype
        found = run(3, programs.attend, *case, mutant=mutant)
        with pytest.raises(AssertionError):
            assert_attends(found, *case)


@pytest.mark.parametrize("mutant", programs.OF_TRAINING)
def test_a_broken_training_is_noticed(run, mutant):
    expected = alone(packed=False, tied_head=True)
    traces = run(3, programs.train, "zigzag", packed=False, mutant=mutant)
    with pytest.raises(AssertionError):
        assert_trains(traces, expected)
    assert min(errors_of(traces, expected)) > 1e-6
