"""backprop: a whole Llama's gradients, and 50 steps of training, equal autograd's."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import small_config

from llmcourse import loss, optim
from llmcourse.backward import backprop
from llmcourse.backward.recompute import saved_bytes
from llmcourse.base import checks
from llmcourse.model import Transformer, stories, without
from llmcourse.model.attention import document_mask


def built(config, dtype=torch.float64):
    """A model in which every part matters: large weights, gains that are not 1."""
    decoder = Transformer(config, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in decoder.named_parameters():
            if name.endswith("gain"):
                p.add_(0.3 * torch.randn(p.shape, generator=g))
            else:
                p.mul_(10)
    if dtype == torch.float64:
        decoder.double()
    return decoder


def batch_of(config, seed, B=3, T=7):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (B, T), generator=g)
    return ids, torch.randint(0, config.vocab_size, (B, T), generator=g)


# The decoder's own layers are our pairs: a comparison with them would compare us with ourselves.
TORCHS_OWN = {
    "linear": F.linear,
    "rmsnorm": lambda x, gain, eps: F.rms_norm(x, gain.shape, gain, eps),
    "silu_gate": lambda gate, up: F.silu(gate) * up,
}


def torchs_loss(decoder, ids, targets, **settings):
    """The loss by torch's own layers alone, to be differentiated by torch's own backward passes."""
    with mock.patch.multiple("llmcourse.model.decoder", **TORCHS_OWN):
        logits = decoder(ids, **settings)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=loss.IGNORE_INDEX)


def autograd(decoder, ids, targets, **settings):
    value = torchs_loss(decoder, ids, targets, **settings)
    names, parameters = zip(*decoder.named_parameters(), strict=True)
    return value, dict(zip(names, torch.autograd.grad(value, parameters), strict=True))


def worst(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max(checks.relative_error(ours[name], theirs[name]) for name in theirs)


@given(
    kv_heads=st.sampled_from([1, 2, 4]),
    tied=st.booleans(),
    vocab_size=st.sampled_from([3, 17]),
    T=st.integers(2, 9),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gradients_equal_autograd(*, kv_heads, tied, vocab_size, T, masked, seed):
    config = small_config(num_kv_heads=kv_heads, tied_head=tied, vocab_size=vocab_size)
    decoder = built(config)
    ids, targets = batch_of(config, seed, T=T)
    # Where all tokens of a row are equal, so are their values: queries and keys get no gradient.
    ids[0, :2] = torch.tensor([0, 1])
    if masked:
        targets[1] = loss.IGNORE_INDEX  # a whole row that nobody is asked about
        targets[0, 0] = loss.IGNORE_INDEX
    value, theirs = autograd(decoder, ids, targets)
    ours, tape = backprop.forward(decoder, ids, targets)
    assert ours.item() == pytest.approx(value.item(), rel=1e-13)
    assert worst(backprop.backward(decoder, tape), theirs) < 1e-9


PACKED = {
    "mask": document_mask(torch.tensor([[0, 0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1, 1]])),
    "positions_BT": torch.tensor([[0, 1, 2, 0, 1, 2, 0], [0, 0, 1, 2, 3, 4, 5]]),
}


@pytest.mark.parametrize("name", PACKED)
def test_gradients_equal_autograd_over_packed_documents(name):
    decoder = built(small_config())
    ids, targets = batch_of(decoder.config, 5, B=2)
    _, theirs = autograd(decoder, ids, targets, **{name: PACKED[name]})
    _, tape = backprop.forward(decoder, ids, targets, **{name: PACKED[name]})
    assert worst(backprop.backward(decoder, tape), theirs) < 1e-9
    _, tape = backprop.forward(decoder, ids, targets)
    assert worst(backprop.backward(decoder, tape), theirs) > 1e-3


def tensors_of(tape):
    if isinstance(tape, torch.Tensor):
        yield tape
    elif isinstance(tape, tuple | list):
        for part in tape:
            yield from tensors_of(part)


def test_the_tape_holds_no_more_than_autograd_keeps():
    decoder = Transformer(stories(), generator=torch.Generator().manual_seed(0))
    batch = batch_of(decoder.config, 0, B=2, T=96)
    _, tape = backprop.forward(decoder, *batch)
    there = {x.untyped_storage().data_ptr() for x in (*decoder.parameters(), *decoder.buffers())}
    ours = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for x in tensors_of(tape)
        if x.untyped_storage().data_ptr() not in there
    }
    theirs = sum(saved_bytes(decoder, batch).values())
    assert 0.9 * theirs < sum(ours.values()) <= theirs


REFUSED = {
    part: (lambda part=part: without(built(small_config()), part), 5, "no backward pass here")
    for part in ("norm", "gate", "silu", "residual", "attention", "feed_forward")
} | {
    "norms of heads": (lambda: built(replace(small_config(), qk_norm=True)), 5, "qk_norm has no"),
    "ten tokens": (lambda: built(small_config()), 10, "10 tokens do not fit into the context of 9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_with_another_part_and_too_many_tokens_are_refused(case):
    make, T, message = REFUSED[case]
    decoder = make()
    with pytest.raises(ValueError, match=message):
        backprop.forward(decoder, *batch_of(decoder.config, 0, T=T))


def test_one_token_teaches_all_but_queries_and_keys():
    decoder = built(small_config())
    ids, targets = batch_of(decoder.config, 1, T=1)
    _, theirs = autograd(decoder, ids, targets)
    _, tape = backprop.forward(decoder, ids, targets)
    ours = backprop.backward(decoder, tape)
    for name, reference in theirs.items():
        if name.endswith(("w_q", "w_k")):
            assert ours[name].abs().max() < 1e-12
        else:
            assert checks.relative_error(ours[name], reference) < 1e-9


def fifty_steps(dtype):
    found = []
    for own in (False, True):
        decoder = built(small_config(), dtype)
        optimizer = optim.AdamW(optim.decay_groups(decoder, weight_decay=0.1), lr=1e-3)
        losses = []
        for step in range(50):
            ids, targets = batch_of(decoder.config, step % 3)
            if own:
                losses.append(backprop.step(decoder, optimizer, ids, targets))
                continue
            value = torchs_loss(decoder, ids, targets)
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(value.item())
        found.append((losses, {n: p.detach() for n, p in decoder.named_parameters()}))
    return found


BOUNDS = {torch.float64: (1e-10, 1e-10), torch.float32: (1e-5, 5e-3)}


@pytest.mark.parametrize("dtype", BOUNDS)
def test_fifty_steps_follow_autograd(dtype):
    loss_bound, weight_bound = BOUNDS[dtype]
    (theirs, reference), (ours, weights) = fifty_steps(dtype)
    assert ours == pytest.approx(theirs, rel=loss_bound)
    assert ours[-1] < ours[0]
    assert worst(weights, reference) < weight_bound


def test_the_step_needs_no_autograd_and_its_tape_of_the_model_serves_once():
    decoder = built(small_config())
    with torch.autograd.set_detect_anomaly(True):
        ids, targets = batch_of(decoder.config, 0)
        value, tape = backprop.forward(decoder, ids, targets)
    assert not value.requires_grad
    assert not any(p.grad is not None for p in decoder.parameters())
    assert not any(x.requires_grad for x in backprop.backward(decoder, tape).values())
    with pytest.raises(ValueError, match="used up by an earlier backward pass"):
        backprop.backward(decoder, tape)
    with pytest.raises(ValueError, match="every target is ignored"):
        backprop.forward(decoder, ids, torch.full_like(targets, loss.IGNORE_INDEX))
    logits = decoder(ids)
    _, tape = backprop.forward(decoder, ids, targets)
    torch.testing.assert_close(tape.losses.probabilities_NV, logits.softmax(-1).flatten(0, 1))
    assert len(tape.blocks) == 2
    assert "PairBackward" not in nodes_behind(torchs_loss(decoder, ids, targets))
    assert "PairBackward" in nodes_behind(loss.cross_entropy(decoder(ids), targets))


def nodes_behind(value):
    """The names of all backward functions that autograd would call."""
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [each for each, _ in node.next_functions if each is not None]
    return {node.name() for node in seen}
