"""weights: ratios, ranks and spectra with known answers; the line between checkpoints; pruning."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.study import weights


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_singular_values(s, rows=7, columns=5, seed=0):
    u = torch.linalg.qr(randn(rows, len(s), seed=seed).double())[0]
    v = torch.linalg.qr(randn(columns, len(s), seed=seed + 1).double())[0]
    return u @ torch.diag(torch.tensor(s, dtype=torch.float64)) @ v.T


def test_update_ratios_by_hand():
    before = {"a": torch.tensor([3.0, 4.0]), "b": torch.zeros(2), "c": torch.zeros(1)}
    after = {"a": torch.tensor([3.0, 4.5]), "b": torch.tensor([0.0, 1.0]), "c": torch.zeros(1)}
    assert weights.update_ratios(before, after) == {"a": 0.1, "b": math.inf, "c": 0.0}
    assert weights.changes(before, after)["a"].tolist() == [0.0, 0.5]


@given(k=st.integers(1, 5), size=st.floats(1e-3, 1e3))
def test_equal_singular_values_count_each(k, size):
    w = with_singular_values([size] * k)
    assert weights.effective_rank(w) == pytest.approx(k, rel=1e-9)
    assert weights.rank_for(w, 1.0) == k
    assert weights.spectrum(w)[:k].tolist() == pytest.approx([size] * k, rel=1e-9)


def test_ranks_by_hand():
    w = with_singular_values([3.0, 1.0])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert weights.effective_rank(w) == pytest.approx(math.exp(entropy))
    assert [weights.rank_for(w, share) for share in (0.5, 0.9, 0.91, 1.0)] == [1, 1, 2, 2]
    assert weights.effective_rank(torch.zeros(3, 2)) == 0


@pytest.mark.parametrize("rank", [0, 1, 2, 5, 9])
def test_the_nearest_matrix_of_a_rank_misses_the_rest_of_the_spectrum(rank):
    w = randn(7, 5).double()
    near = weights.low_rank(w, rank)
    missing = weights.spectrum(w)[rank:].square().sum().sqrt()
    assert torch.linalg.matrix_rank(near) == min(rank, 5)
    torch.testing.assert_close(torch.linalg.matrix_norm(w - near), missing, rtol=1e-9, atol=1e-12)


def test_the_line_between_two_checkpoints():
    before = {"a": randn(3), "count": torch.tensor(4)}
    after = {"a": randn(3, seed=1), "count": torch.tensor(6)}
    for t, wanted in ((0, before), (1, after)):
        found = weights.interpolate(before, after, t)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        found["a"].zero_()
        assert wanted["a"].abs().sum() > 0  # a copy
    quarter = weights.interpolate(before, after, 0.25)
    torch.testing.assert_close(quarter["a"], 0.75 * before["a"] + 0.25 * after["a"])
    assert quarter["count"] == 4
    beyond = weights.interpolate(before, after, 1.5)
    torch.testing.assert_close(beyond["a"], 1.5 * after["a"] - 0.5 * before["a"])


def test_pruning_takes_what_was_asked_for():
    w = torch.tensor([[3.0, -1.0], [0.5, -4.0]])
    assert weights.prune(w, 0.5).tolist() == [[3.0, 0.0], [0.0, -4.0]]
    assert weights.prune(w, 0.25, by="largest").tolist() == [[3.0, -1.0], [0.5, 0.0]]
    assert weights.prune(w, 1.0).tolist() == [[0, 0], [0, 0]]
    assert torch.equal(weights.prune(w, 0.0), w)
    g = torch.Generator().manual_seed(0)
    assert (weights.prune(randn(40, 50), 0.1, by="random", generator=g) == 0).sum() == 200
    with pytest.raises(Exception, match="by"):
        weights.prune(w, 0.5, by="middle")


@given(share=st.floats(0, 1), seed=st.integers(0, 99))
def test_the_smallest_entries_go_first(share, seed):
    w = randn(6, 7, seed=seed)
    pruned = weights.prune(w, share)
    gone, left = w[pruned == 0].abs(), pruned[pruned != 0].abs()
    assert len(gone) == round(share * 42)
    if len(gone) and len(left):
        assert gone.max() <= left.min()
