"""recompute: the same gradients to the last bit, the same random numbers, fewer bytes."""

import pytest
import torch

from llmcourse import loss
from llmcourse.backward.recompute import _Cheap, recompute, recomputed, saved_bytes
from llmcourse.base import runtime
from llmcourse.model import Transformer, tiny, tiny_moe
from llmcourse.model.decoder import RMSNorm


@pytest.fixture
def decoder():
    return Transformer(tiny(), generator=runtime.generator(0))


@pytest.fixture
def batch():
    g = runtime.generator(1)
    return tuple(torch.randint(0, 300, (3, 16), generator=g) for _ in range(2))


def gradients(decoder, batch):
    value = loss.cross_entropy(decoder(batch[0]), batch[1])
    return [value.detach(), *torch.autograd.grad(value, list(decoder.parameters()))]


@pytest.mark.parametrize("policy", ["block", "attention", "cheap"])
def test_gradients_are_the_same_to_the_last_bit(policy, decoder, batch):
    plain = gradients(decoder, batch)
    with recomputed(decoder, policy):
        again = gradients(decoder, batch)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(again, plain, strict=True))
    with recomputed(decoder, policy):
        loss.cross_entropy(decoder(batch[0]), batch[1]).backward()
    for p, theirs in zip(decoder.parameters(), plain[1:], strict=True):
        assert torch.equal(p.grad, theirs)


def test_cheap_parts_are_made_once_for_all_who_want_them(decoder, batch, monkeypatch):
    calls, forward = [], RMSNorm.forward
    monkeypatch.setattr(RMSNorm, "forward", lambda norm, x: calls.append(norm) or forward(norm, x))
    with recomputed(decoder, "cheap"):
        loss.cross_entropy(decoder(batch[0]), batch[1]).backward()
    # q, k and v want the output of one norm, gate and up that of the other.
    norms = [n for b in decoder.blocks for n in (b.attention_norm, b.feed_forward_norm)]
    assert [sum(norm is n for norm in calls) for n in norms] == [2] * len(norms)
    assert "forward" not in vars(norms[0])
    assert "gated" not in vars(decoder.blocks[0].feed_forward)


def test_a_second_backward_pass_makes_the_cheap_parts_again(decoder, batch):
    with recomputed(decoder, "cheap"):
        value = loss.cross_entropy(decoder(batch[0]), batch[1])
    weights = list(decoder.parameters())
    first, second = (torch.autograd.grad(value, weights, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_tensor_in_the_memory_of_a_cheap_one_that_is_gone_is_kept_itself():
    cheap = _Cheap()
    gone, other = cheap.noting(torch.neg)(torch.ones(3)), torch.zeros(3)
    entry = cheap.made.pop(id(gone.untyped_storage()))
    assert isinstance(cheap.pack(gone), torch.Tensor)
    cheap.made[id(other.untyped_storage())] = entry
    del gone
    assert cheap.pack(other) is other


def test_a_mixture_has_no_cheap_parts_and_the_model_is_as_before_after_the_context(decoder, batch):
    experts = Transformer(tiny_moe(), generator=runtime.generator(0))
    with pytest.raises(ValueError, match="not experts"), recomputed(experts, "cheap"):
        pass
    with pytest.raises(Exception, match="policy"), recomputed(decoder, "all"):
        pass
    before = decoder(batch[0])
    with pytest.raises(ZeroDivisionError), recomputed(decoder, "block"):
        raise ZeroDivisionError
    assert all("forward" not in vars(block) for block in decoder.blocks)
    assert torch.equal(decoder(batch[0]), before)


def test_the_function_runs_twice_with_the_autocast_of_the_first(generator):
    runs = []

    def fn(x):
        runs.append(torch.is_grad_enabled())
        return (x * x).exp()

    x = torch.ones(3, requires_grad=True)
    y = recompute(fn, x)
    assert runs == [True]
    y.sum().backward()
    assert runs == [True, True]
    assert torch.equal(x.grad, 2 * torch.ones(3).exp())
    w = torch.randn(8, 8, generator=generator, requires_grad=True)
    x = torch.randn(4, 8, generator=generator, requires_grad=True)

    def fn(x):
        return (x @ w).tanh() @ w

    found = []
    for run in (fn, lambda x: recompute(fn, x)):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        assert y.dtype == torch.bfloat16
        found.append(torch.autograd.grad(y.float().square().sum(), (x, w)))  # outside of it
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


def noisy(x, generator):
    kept = (torch.rand(x.shape) < 0.5) & (torch.rand(x.shape, generator=generator) < 0.8)
    return (x * kept).square()


def test_the_second_run_draws_the_same_numbers_unless_a_generator_is_forgotten():
    found = []
    for run in (noisy, lambda x, g: recompute(noisy, x, g, generators=[g])):
        torch.manual_seed(0)
        g = runtime.generator(5)
        x = torch.arange(1.0, 21.0, requires_grad=True)
        y = run(x, g)
        between = torch.rand(3)  # drawn between forward and backward
        y.sum().backward()
        found.append((y.detach(), x.grad, between, torch.rand(2), torch.rand(2, generator=g)))
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)
    g = runtime.generator(5)
    x = torch.arange(1.0, 21.0, requires_grad=True)
    y = recompute(noisy, x, g)  # the generator is not named
    y.sum().backward()
    assert not torch.equal(x.grad, 2 * y.detach() / x.detach())


def chained(turns, x):
    for _ in range(next(turns)):
        x = x.exp()
    return x


CHANGES_ITS_MIND = {
    "the first run saved 1 tensors, the second 2": chained,
    "or of other shapes": lambda turns, x: x.sum(0).expand(next(turns), 3).exp(),
}


@pytest.mark.parametrize("message", CHANGES_ITS_MIND)
def test_a_function_that_changes_its_mind_or_its_argument_is_refused(message):
    turns, x = iter([1, 2]), torch.ones(4, 3, requires_grad=True)
    y = recompute(lambda x: CHANGES_ITS_MIND[message](turns, x), x)
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward()
    given = x * 2
    y = recompute(torch.exp, given)
    given.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_saved_bytes_by_hand_fall_with_what_is_forgotten(decoder, batch):
    plain = saved_bytes(decoder, batch)
    with recomputed(decoder, "block"):
        blocks = saved_bytes(decoder, batch)
    with recomputed(decoder, "attention"):
        attention = saved_bytes(decoder, batch)
    assert sum(blocks.values()) < sum(attention.values()) < sum(plain.values())
    # A block keeps its input, (3, 16, 32) numbers of 4 bytes; the attention alone the same.
    of_blocks = {name: size for name, size in blocks.items() if name.startswith("blocks")}
    assert of_blocks == {"blocks.0": 6_144, "blocks.1": 6_144}
    assert attention["blocks.0.feed_forward"] == plain["blocks.0.feed_forward"]
    assert attention["blocks.0.attention"] == 6_144
    assert plain["blocks.0.attention"] > 3 * 6_144
    # A linear layer saves its input, RMSNorm its input and one number per token.
    tokens, width, hidden = 3 * 16, 32, 64
    assert plain["blocks.1.feed_forward_norm"] == 4 * tokens * (width + 1)
    # Its input (the norm's output), gate, up and their product.
    assert plain["blocks.1.feed_forward"] == 4 * tokens * (width + 3 * hidden)
    # Per token the probabilities; the target as int64 and whether it counts.
    assert plain["loss"] == tokens * (4 * 300 + 8 + 1)
