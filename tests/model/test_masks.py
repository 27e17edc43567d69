"""attention: masks as data, in every form of attention, and judged by gradients, not by reading."""

import pytest
import torch
from edits import edited
from hypothesis import given
from hypothesis import strategies as st
from strategies import Largest, awkward

from llmcourse.base import checks
from llmcourse.model import attention

FORMS = {
    "written out": attention.attention,
    "sdpa": attention.attention_sdpa,
    "tiled": lambda q, k, v, mask=None: attention.attention_tiled(q, k, v, mask=mask, tile=3),
}


def qkv(seed, *, T=7, S=7, H=4, G=2, K=4, B=2, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return (
        awkward(B, T, H, K, generator=g, dtype=dtype) / 3,
        awkward(B, S, G, K, generator=g, dtype=dtype) / 3,
        awkward(B, S, G, K, generator=g, dtype=dtype),
    )


def reads(form, q, k, v, mask):
    """Which values each query depends on, found by differentiating its output: (B, T, S)."""
    v = v.clone().requires_grad_()
    out = form(q, k, v, mask=mask)
    found = torch.zeros(len(q), q.shape[1], v.shape[1], dtype=torch.bool)
    for t in range(q.shape[1]):
        (dv,) = torch.autograd.grad(out[:, t].sum(), v, retain_graph=True)
        found[:, t] = (dv != 0).flatten(2).any(-1)
    return found


@pytest.mark.parametrize("form", FORMS)
@given(window=st.integers(1, 9), cached=st.integers(0, 4))
def test_no_query_reads_beyond_its_window(form, window, cached):
    q, k, v = qkv(0, T=5, S=5 + cached)
    found = reads(FORMS[form], q, k, v, attention.sliding_window_mask(5, 5 + cached, window))
    for t in range(5):
        here = t + cached
        assert found[:, t].tolist() == [[here - window < s <= here for s in range(5 + cached)]] * 2


@pytest.mark.parametrize("form", FORMS)
@given(documents=st.lists(st.integers(-1, 2), min_size=14, max_size=14))
def test_no_query_reads_the_future_or_another_document(form, documents):
    rows = torch.tensor(documents).view(2, 7)
    found = reads(FORMS[form], *qkv(1), attention.document_mask(rows))
    for b in range(2):
        for t in range(7):
            expected = [s <= t and bool(rows[b, s] == rows[b, t]) for s in range(7)]
            assert found[b, t].tolist() == expected


@pytest.mark.parametrize("form", FORMS)
def test_no_mask_is_the_causal_one(form):
    q, k, v = qkv(2, T=4, S=7)
    assert torch.equal(FORMS[form](q, k, v), FORMS[form](q, k, v, mask=attention.causal_mask(4, 7)))
    assert reads(FORMS[form], q, k, v, None)[0].tolist() == attention.causal_mask(4, 7).tolist()


LEAKS = {
    "sees one ahead": lambda T: torch.ones(T, T, dtype=torch.bool).tril(1),
    "sees itself no more": lambda T: torch.ones(T, T, dtype=torch.bool).tril(-1),
    "turned round": lambda T: torch.ones(T, T, dtype=torch.bool).triu(),
    "no mask": lambda T: torch.ones(T, T, dtype=torch.bool),
    "one hole": lambda T: attention.causal_mask(T, T).index_put(
        (torch.tensor(0), torch.tensor(T - 1)), torch.tensor(True)
    ),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_the_gradient_notices_a_wrong_mask(leak):
    found = reads(attention.attention_sdpa, *qkv(3), LEAKS[leak](7))
    assert found[0].tolist() != attention.causal_mask(7, 7).tolist()


@given(
    seed=st.integers(0, 5),
    T=st.integers(1, 9),
    cached=st.integers(0, 5),
    G=st.sampled_from([1, 2, 4]),
    tile=st.integers(1, 20),
)
def test_tiled_equals_written_out(seed, T, cached, G, tile):
    q, k, v = qkv(seed, T=T, S=T + cached, G=G)
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(2, T, T + cached, generator=g) < 0.6  # rows that see nothing among them
    expected = attention.attention(q, k, v, mask=mask)
    ours = attention.attention_tiled(q, k, v, mask=mask, tile=tile)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_tiled_bears_scores_that_overflow_on_their_own():
    q, k, v = qkv(0)
    q *= 1e4
    expected = attention.attention(q, k, v)
    assert expected.isfinite().all()
    torch.testing.assert_close(attention.attention_tiled(q, k, v, tile=2), expected)


def test_tiled_never_holds_more_than_a_tile(monkeypatch):
    largest = []
    add = attention.tiled.online_softmax_add

    def spy(state, scores, values):
        largest.append(scores.shape[-2:])
        return add(state, scores, values)

    monkeypatch.setattr(attention.tiled, "online_softmax_add", spy)
    attention.attention_tiled(*qkv(0, T=17, S=17), tile=4)
    assert max(t for t, _ in largest) == max(s for _, s in largest) == 4
    assert len(largest) == 15  # of 5 x 5 tiles, those on and below the diagonal


def test_tiled_without_a_mask_makes_no_square_tensor():
    """Of 300 x 300 pairs nothing is ever there at once, not even as booleans."""
    q, k, v = qkv(0, T=300, S=300, H=1, G=1, K=2, B=1)
    with Largest() as largest:
        attention.attention_tiled(q, k, v, tile=16)
    assert largest.found == 600  # the queries themselves
    with largest:
        attention.attention(q, k, v)
    assert largest.found == 300 * 300


def test_the_comparison_notices_a_missing_rescale(monkeypatch):
    """Sums of different maxima are added as they are."""
    edits = (("sum_BHt * rescale_BHt", "sum_BHt"), (" * rescale_BHt.unsqueeze(-1)", ""))
    add = edited(attention.tiled.online_softmax_add, *edits)
    monkeypatch.setattr(attention.tiled, "online_softmax_add", add)
    q, k, v = qkv(0)
    wrong = attention.attention_tiled(q, k, v, tile=3)
    assert not torch.allclose(wrong, attention.attention(q, k, v), rtol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_query_that_sees_nothing_gives_zero_and_no_nan(form):
    q, k, v = (x.requires_grad_() for x in qkv(0))
    mask = attention.causal_mask(7, 7).clone()
    mask[3] = False
    out = FORMS[form](q, k, v, mask=mask)
    assert out[:, 3].abs().max() == 0
    assert out[:, 4].abs().min() > 0
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [5, 5, 6, 6, 6, 6, -1]])


@pytest.mark.parametrize("mask", [None, attention.document_mask(DOCUMENTS)], ids=["none", "mask"])
@pytest.mark.parametrize("form", FORMS)
def test_the_forms_have_the_same_gradients(form, mask, generator):
    inputs = [x.requires_grad_() for x in qkv(4)]
    dy = torch.randn(2, 7, 4, 4, generator=generator, dtype=torch.float64)
    expected = torch.autograd.grad(attention.attention(*inputs, mask=mask), inputs, dy)
    ours = torch.autograd.grad(FORMS[form](*inputs, mask=mask), inputs, dy)
    for mine, theirs in zip(ours, expected, strict=True):
        assert checks.relative_error(mine, theirs) < 1e-11


def test_weights_sum_to_one_and_are_those_of_the_output():
    q, k, v = qkv(6)
    weights = attention.attention_weights(q, k)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))
    out = torch.einsum("bhts,bshk->bthk", weights, attention.repeat_kv(v, 4))
    torch.testing.assert_close(out, attention.attention_sdpa(q, k, v))
