"""loss: equal to torch's cross-entropy, stable, and true to one normaliser."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import Largest, awkward

from llmcourse import loss
from llmcourse.base import checks


def batch(generator, *, B=3, T=4, V=7, dtype=torch.float64):
    logits = awkward(B, T, V, generator=generator, dtype=dtype)
    targets = torch.randint(0, V, (B, T), generator=generator)
    targets[0, 1] = loss.IGNORE_INDEX
    return logits, targets


def test_equals_torch(generator):
    logits, targets = batch(generator)
    logits.requires_grad_()
    theirs = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    ours = loss.cross_entropy(logits, targets)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-13)
    (wanted,), (found,) = (torch.autograd.grad(value, logits) for value in (theirs, ours))
    assert checks.relative_error(found, wanted) < 1e-13
    assert torch.equal(found[0, 1], torch.zeros(7, dtype=torch.float64))


def reference_losses(logits, targets, counted):
    picked = -logits.log_softmax(-1).gather(-1, targets.where(counted, 0).unsqueeze(-1)).squeeze(-1)
    return picked.where(counted, 0.0), None


MUTANTS = {
    "forgets to subtract the target": lambda d, s, dl: s.probabilities_NV * dl.unsqueeze(-1),
    "lets masked rows through": lambda d, s, dl: d + s.probabilities_NV * (~s.counted_N)[:, None],
    "forgets the incoming gradient": lambda d, s, dl: d / dl.unsqueeze(-1),
    "returns zero": lambda d, s, dl: d * 0,
}


def pair_inputs(generator):
    return {
        "logits": awkward(5, 7, generator=generator),
        "targets": torch.tensor([3, 0, 6, 2, 2]),
        "counted": torch.tensor([True, True, False, True, True]),
    }


def both(*arguments):
    with torch.no_grad():
        saved = loss.token_losses_forward(*arguments)[1]
    return reference_losses(*arguments)[0], saved


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_backward_matches_autograd_and_the_check_notices_a_broken_one(mutant, generator):
    def broken(dy, saved):
        return (MUTANTS[mutant](*loss.token_losses_backward(dy, saved), saved, dy),)

    backward = broken if mutant else loss.token_losses_backward
    report = checks.check_backward(both, backward, pair_inputs(generator), generator=generator)
    assert report.ok == (mutant is None), report


def test_a_mask_is_an_ignored_target_and_micro_batches_add_up_by_the_global_normaliser(generator):
    logits, targets = batch(generator)
    mask = torch.rand(targets.shape, generator=generator) < 0.6
    masked = loss.cross_entropy(logits, targets, mask_BT=mask)
    ignored = loss.cross_entropy(logits, targets.where(mask, loss.IGNORE_INDEX))
    assert masked.item() == ignored.item()
    assert masked.item() != loss.cross_entropy(logits, targets).item()
    targets[2, :3] = loss.IGNORE_INDEX  # a short part
    whole = loss.cross_entropy(logits, targets).item()
    total = int(loss.counted_tokens(targets).sum())
    parts, means = (
        sum(loss.cross_entropy(logits[b], targets[b], **settings).item() for b in range(3))
        for settings in ({"num_tokens": total}, {})
    )
    assert parts == pytest.approx(whole, rel=1e-13)
    assert means / 3 != pytest.approx(whole, rel=1e-3)
    empty = torch.full_like(targets, loss.IGNORE_INDEX)
    assert loss.cross_entropy(logits, empty, num_tokens=5).item() == 0.0


def test_the_worked_step_large_logits_and_equal_ones_that_cost_the_logarithm():
    logits = torch.tensor([[0.15, 0.10, 0.05, 0.20, 0.50]]).log().requires_grad_()
    value = loss.cross_entropy(logits, torch.tensor([3]))
    value.backward()
    assert value.item() == pytest.approx(1.6094, abs=5e-5)
    wanted = torch.tensor([[0.15, 0.10, 0.05, -0.80, 0.50]])
    torch.testing.assert_close(logits.grad, wanted, rtol=1e-5, atol=1e-6)
    for size in (65, 50_257, 128_256):
        value = loss.cross_entropy(torch.zeros(2, size), torch.tensor([0, size - 1]))
        assert value.item() == pytest.approx(math.log(size), rel=1e-6)
    logits = torch.tensor([[1000.0, 999.0, -1000.0]])
    assert math.isinf(loss.logsumexp_naive(logits).item())
    assert loss.logsumexp(logits).item() == pytest.approx(1000 + math.log(1 + math.exp(-1)))
    assert loss.cross_entropy(logits, torch.tensor([1])).item() == pytest.approx(1.3132617)


@given(cut=st.integers(1, 6), seed=st.integers(0, 1000))
def test_slices_of_the_vocabulary_merge_in_any_order(cut, seed):
    logits = 30 * torch.randn(4, 7, generator=torch.Generator().manual_seed(seed)).double()
    left, right = loss.logsumexp_part(logits[:, :cut]), loss.logsumexp_part(logits[:, cut:])
    for merged in (loss.merge_parts(left, right), loss.merge_parts(right, left)):
        value = merged.max_N + merged.sum_N.log()
        torch.testing.assert_close(value, logits.logsumexp(-1), rtol=1e-13, atol=1e-13)


def test_units():
    assert loss.perplexity(math.log(50)) == pytest.approx(50)
    # 8 bits per byte is no model at all: ln 256 nats for every one-byte token.
    assert loss.bits_per_byte(math.log(256), num_tokens=3, num_bytes=3) == pytest.approx(8)
    assert loss.bits_per_byte(2 * math.log(2), num_tokens=10, num_bytes=40) == pytest.approx(0.5)


def chunk_inputs(generator):
    x = awkward(5, 4, generator=generator, dtype=torch.float64) / 3
    w = awkward(7, 4, generator=generator, dtype=torch.float64) / 3
    return x, w, torch.tensor([6, 0, loss.IGNORE_INDEX, 3, 3])


def checked(backward, x, w, targets, generator, **settings):
    forward = lambda x, w: loss.chunked_forward(x, w, targets, **settings)  # noqa: E731
    return checks.check_backward(forward, backward, {"x": x, "w": w}, generator=generator)


@pytest.mark.parametrize("num_chunks", [1, 2, 3, 7])
def test_the_chunked_pair_equals_autograd(num_chunks, generator):
    x, w, targets = chunk_inputs(generator)
    report = checked(loss.chunked_backward, x, w, targets, generator, num_chunks=num_chunks)
    assert report.ok, report
    value, _ = loss.chunked_forward(x, w, targets, num_chunks=num_chunks, num_tokens=9)
    plain = loss.cross_entropy(x @ w.T, targets, num_tokens=9)
    assert value.item() == pytest.approx(plain.item(), rel=1e-12)
    ours = loss.cross_entropy_chunked(x, w, targets, num_chunks=num_chunks)
    assert ours.item() == pytest.approx(F.cross_entropy(x @ w.T, targets).item(), rel=1e-12)


def without_the_target(dloss, saved):
    """A mutant: the probabilities alone."""
    p = (saved.x_ND @ saved.w_VD.T).softmax(-1) * saved.counted_N.unsqueeze(-1)
    dlogits = p * dloss / saved.num_tokens
    return dlogits @ saved.w_VD, dlogits.T @ saved.x_ND


def masked_rows_too(dloss, saved):
    """A mutant: rows that nobody asked about learn as well."""
    return loss.chunked_backward(dloss, saved._replace(counted_N=torch.ones(5, dtype=torch.bool)))


@pytest.mark.parametrize("mutant", [without_the_target, masked_rows_too])
def test_the_check_notices_a_broken_chunked_backward(mutant, generator):
    assert not checked(mutant, *chunk_inputs(generator), generator, num_chunks=2).ok


def test_no_tensor_of_the_chunked_pair_holds_all_logits(generator):
    x, w = torch.randn(64, 2, generator=generator), torch.randn(96, 2, generator=generator)
    with Largest() as largest:
        _, saved = loss.chunked_forward(x, w, torch.arange(64), num_chunks=8)
        loss.chunked_backward(torch.tensor(1.0), saved)
    assert largest.found == 64 * 12
    assert sum(t.numel() for t in saved if isinstance(t, torch.Tensor)) < 64 * 12
