"""attention: both backward passes against autograd in float64, and against named mutants."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward, small_config

from llmcourse import loss
from llmcourse.backward.recompute import saved_bytes
from llmcourse.base import checks
from llmcourse.base.runtime import generator as new_generator
from llmcourse.model import Transformer, attention
from llmcourse.model.attention import backward, flash


def qkv(seed, *, T=7, S=7, H=4, G=2, K=6, B=2):
    g = torch.Generator().manual_seed(seed)
    sizes = {"q": (B, T, H, K), "k": (B, S, G, K), "v": (B, S, G, K)}
    return {n: awkward(*size, generator=g, dtype=torch.float64) / 2 for n, size in sizes.items()}


def flash_pair(tile, mask=None):
    return (
        lambda q, k, v: flash.flash_forward(q, k, v, mask, tile),
        lambda dy, saved: flash.flash_backward(dy, saved, mask, tile),
    )


def naive_pair(mask=None):
    return lambda q, k, v: backward.attention_forward(q, k, v, mask), backward.attention_backward


@given(
    seed=st.integers(0, 9),
    T=st.integers(1, 8),
    cached=st.integers(0, 3),
    G=st.sampled_from([1, 2, 4]),
    tile=st.integers(1, 9),
)
def test_both_equal_autograd_for_every_shape(seed, T, cached, G, tile):
    inputs = qkv(seed, T=T, S=T + cached, G=G)
    if T + cached == 1:
        return  # one key: queries and keys get no gradient, see below
    for pair in (naive_pair(), flash_pair(tile)):
        report = checks.check_backward(*pair, inputs, generator=new_generator(seed))
        assert report.ok, report


def test_flash_keeps_one_number_per_query_and_with_one_key_only_the_value_learns():
    inputs = list(qkv(0, T=1, S=1).values())
    for forward, back in (naive_pair(), flash_pair(3)):
        out, saved = forward(*inputs)
        dq, dk, dv = back(torch.ones_like(out), saved)
        assert dq.abs().max() < 1e-12
        assert dk.abs().max() < 1e-12
        torch.testing.assert_close(dv, torch.full_like(dv, 2.0))  # two query heads read it
    inputs = [x.requires_grad_() for x in qkv(0, T=8, S=8).values()]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = attention.FlashAttention.apply(*inputs)
    own = {x.data_ptr() for x in (*inputs, out)}
    assert [tuple(x.shape) for x in kept if x.data_ptr() not in own] == [(2 * 4, 8)]


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [5, 5, 6, 6, 6, 6, 6]])
MASKS = {
    "everything": torch.ones(7, 7, dtype=torch.bool),
    "a window": attention.sliding_window_mask(7, 7, 3),
    "documents": attention.document_mask(DOCUMENTS),
    "a masked row": attention.causal_mask(7, 7).index_fill(0, torch.tensor(3), False),
}


@pytest.mark.parametrize("mask", MASKS)
def test_both_equal_autograd_under_a_mask(mask, generator):
    for pair in (naive_pair(MASKS[mask]), flash_pair(3, MASKS[mask])):
        report = checks.check_backward(*pair, qkv(1), generator=generator)
        assert report.ok, report


def broken(change):
    """A naive backward with one thing wrong."""

    def back(dout, saved):
        q, k, v, weights = saved
        H, G, scale = q.shape[2], k.shape[2], q.shape[-1] ** -0.5
        dv = torch.einsum("bhts,bthk->bshk", weights, dout)
        dweights = torch.einsum("bthk,bshk->bhts", dout, attention.repeat_kv(v, H))
        inner = (dweights * weights).sum(-1, keepdim=True)
        inner = {"a wrong sign": -inner, "no softmax term": 0 * inner}.get(change, inner)
        dscores = (dweights - inner) * weights * (1 if change == "no 1/sqrt(K)" else scale)
        if change == "a forgotten mask":
            dscores = (dweights - inner) * weights.clamp(min=0.01) * scale
        dq = torch.einsum("bhts,bshk->bthk", dscores, attention.repeat_kv(k, H))
        sides = dscores.mT if change == "a missing transpose" else dscores
        dk = torch.einsum("bhts,bthk->bshk", sides, q)
        if change == "a dropped sum over the group":
            return dq, dk[:, :, :: H // G], dv[:, :, :: H // G]
        return dq, backward.sum_over_group(dk, G), backward.sum_over_group(dv, G)

    return back


CHANGES = ("a wrong sign", "no softmax term", "no 1/sqrt(K)", "a forgotten mask")
CHANGES += ("a missing transpose", "a dropped sum over the group")


@pytest.mark.parametrize("change", [None, *CHANGES])
def test_the_check_rejects_each_mutant(change, generator):
    pair = backward.attention_forward, broken(change)
    assert checks.check_backward(*pair, qkv(2), generator=generator).ok == (change is None)


@pytest.mark.parametrize("mask", [None, MASKS["everything"], MASKS["documents"]])
def test_flash_attention_is_a_node_of_autograds_graph(mask, generator):
    ours = [x.requires_grad_() for x in qkv(3).values()]
    dy = torch.randn(2, 7, 4, 6, generator=generator, dtype=torch.float64)
    out = attention.FlashAttention.apply(*ours, mask, 3)
    gradients = torch.autograd.grad(out, ours, dy)
    reference = attention.attention_sdpa(*ours, mask=mask)
    assert checks.relative_error(out, reference) < 1e-12
    for mine, theirs in zip(gradients, torch.autograd.grad(reference, ours, dy), strict=True):
        assert checks.relative_error(mine, theirs) < 1e-11


def test_a_model_trains_with_flash_attention_as_with_torchs():
    config = small_config()
    g = new_generator(0)
    ids, targets = (torch.randint(0, 17, (3, 7), generator=g) for _ in range(2))
    mask = attention.document_mask(torch.tensor([[0, 0, 1, 1, 1, 2, 2]] * 3))
    found = []
    for form in (attention.attention_sdpa, attention.attention_flash):
        decoder = Transformer(config, generator=new_generator(1))
        decoder.attend_with(form)
        optimizer = torch.optim.SGD(decoder.parameters(), lr=10.0)
        for allowed in (None, mask):
            value = loss.cross_entropy(decoder(ids, mask=allowed), targets)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        found.append((value.item(), [p.detach() for p in decoder.parameters()], decoder))
    (theirs, reference, _), (ours, weights, flash_model) = found
    assert ours == pytest.approx(theirs, rel=1e-6)
    for mine, other in zip(weights, reference, strict=True):
        assert checks.relative_error(mine, other) < 1e-5
    kept = sum(saved_bytes(flash_model, (ids, targets)).values())
    flash_model.attend_with(attention.attention)
    # Written out, every layer keeps its weights, (B, H, T, T) numbers, at least.
    assert sum(saved_bytes(flash_model, (ids, targets)).values()) > kept + 2 * 3 * 4 * 7 * 7 * 4
