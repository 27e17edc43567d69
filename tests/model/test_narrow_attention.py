"""In bf16 and fp16, sums of attention are made in float32: as near to float64 as torch's kernel."""

import pytest
import torch

from llmcourse import loss
from llmcourse.model import attention
from llmcourse_labs import study

NARROW = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""The rounding of a number."""
FORMS = {
    "attention": attention.attention,
    "tiled": attention.attention_tiled,
    "flash": attention.attention_flash,
    "sdpa": attention.attention_sdpa,
}


def peaked(dtype):
    """Queries and keys whose scores are large, values, and a gradient of the output."""
    g = torch.Generator().manual_seed(0)
    shapes = ((5, 2, 33, 4, 16), (5, 2, 33, 2, 16), (1, 2, 33, 2, 16), (1, 2, 33, 4, 16))
    return [(scale * torch.randn(shape, generator=g)).to(dtype) for scale, *shape in shapes]


def with_gradients(form, given, dtype):
    *inputs, dout = (x.to(dtype) for x in given)
    leaves = [x.requires_grad_() for x in inputs]
    out = form(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, dout)]


def worst(found, reference):
    """Largest difference of each, relative to the largest entry of its reference."""
    return max(
        float((x.double() - y).abs().max() / y.abs().max())
        for x, y in zip(found, reference, strict=True)
    )


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_off_by_roundings_of_what_it_is_given(form, dtype):
    """Three of them: of the inputs' products, of the output that backward reads, of the result."""
    given = peaked(dtype)
    reference = with_gradients(attention.attention, given, torch.float64)
    found = with_gradients(FORMS[form], given, dtype)
    assert all(x.dtype == dtype for x in found)
    assert worst(found, reference) < 3 * NARROW[dtype]


def test_scores_in_few_bits_would_be_noticed():
    given = peaked(torch.bfloat16)
    reference = with_gradients(attention.attention, given, torch.float64)

    def in_few_bits(q, k, v):
        scores = torch.einsum("bthk,bshk->bhts", q, attention.repeat_kv(k, 4)) / 4
        scores = scores.masked_fill(~attention.causal_mask(33, 33), float("-inf"))
        return torch.einsum("bhts,bshk->bthk", scores.softmax(-1), attention.repeat_kv(v, 4))

    found = with_gradients(in_few_bits, given, torch.bfloat16)
    assert worst(found, reference) > 8 * NARROW[torch.bfloat16]


@pytest.mark.parametrize("dtype", NARROW)
def test_the_pair_of_attention_is_as_near(dtype):
    *given, dout = peaked(dtype)
    reference = with_gradients(attention.attention, [*given, dout], torch.float64)
    out, saved = attention.attention_forward(*given)
    found = [out, *attention.attention_backward(dout, saved)]
    assert all(x.dtype == dtype for x in found)
    assert worst(found, reference) < 3 * NARROW[dtype]


@pytest.mark.parametrize("form", ["attention", "tiled", "flash"])
def test_autocast_does_not_narrow_the_sums(form):
    given = peaked(torch.bfloat16)[:3]
    with torch.autocast("cpu", torch.bfloat16):
        found = FORMS[form](*given)
    assert torch.equal(found, FORMS[form](*given))


@pytest.mark.parametrize("dtype", NARROW)
def test_latent_attention_is_as_near_in_both_forms(dtype):
    g = torch.Generator().manual_seed(1)
    shapes = ((2, 9, 4, 8), (2, 9, 4, 6), (2, 9, 10), (2, 9, 6), (4, 8, 10), (4, 7, 10))
    q, p, c, r, u, w = ((2 * torch.randn(s, generator=g)).to(dtype) for s in shapes)
    wide = [x.double() for x in (q, p, c, r, u, w)]
    reference = study.latent_attention(*wide[:2], study.LatentCache(*wide[2:4]), *wide[4:])
    for form in (study.latent_attention, study.latent_attention_absorbed):
        found = form(q, p, study.LatentCache(c, r), u, w)
        assert found.dtype == dtype
        assert worst([found], [reference]) < NARROW[dtype]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("turn", [attention.rope_halves, attention.rope_adjacent])
def test_a_rotation_keeps_the_dtype_and_is_rounded_once(turn, dtype):
    x = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(2)).to(dtype)
    rotations = attention.rope_rotations(8, 5)
    assert torch.equal(turn(x, rotations), turn(x.float(), rotations).to(dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_log_sum_exp_is_that_of_float64(dtype):
    logits = (4 * torch.randn(7, 5_000, generator=torch.Generator().manual_seed(3))).to(dtype)
    expected = logits.double().logsumexp(-1)
    torch.testing.assert_close(loss.logsumexp(logits).double(), expected, rtol=1e-6, atol=0)
    one, other = (loss.logsumexp_part(part) for part in logits.split(3_000, dim=-1))
    merged = loss.merge_parts(one, other)
    found = merged.max_N + merged.sum_N.log()
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
