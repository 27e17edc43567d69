"""stability: spikes told from scatter, the way back, the first bad number, and scores held."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import loss, model, optim
from llmcourse.base import runtime
from llmcourse.optim.stability import SpikeDetector, first_bad, qk_clip, soft_cap
from llmcourse_labs import study
from llmcourse_labs.study.skip_and_rewind import SkipAndRewind


def noisy(n, seed=0, level=3.0, spread=0.05, slope=0.0):
    g = torch.Generator().manual_seed(seed)
    return (level - slope * torch.arange(n) + spread * torch.randn(n, generator=g)).tolist()


@given(seed=st.integers(0, 10_000), at=st.integers(20, 199), height=st.floats(1.5, 50))
def test_a_spike_is_seen_and_not_remembered(seed, at, height):
    """And what scatters and descends is none."""
    detector = SpikeDetector(window=20, factor=10.0)
    assert {detector.look(v) for v in noisy(200, seed, slope=0.01)} == {"fine"}
    values = noisy(200, seed)
    values[at] += height
    detector = SpikeDetector(window=20, factor=10.0)
    verdicts = [detector.look(v) for v in values]
    assert [i for i, verdict in enumerate(verdicts) if verdict == "spike"] == [at]
    assert values[at] not in detector.values


def test_the_limit_is_the_formula_and_a_long_spike_stays_one():
    detector = SpikeDetector(window=5, factor=2.0, least_rise=0.5)  # which is less
    assert detector.limit == math.inf
    for value in (1.0, 2.0, 4.0, 3.0, 100.0):
        detector.look(value)
    assert detector.limit == pytest.approx(3.0 + 2.0 * 1.4826 * 1.0)  # |v - 3|: 2 1 1 0 97
    calm = SpikeDetector(window=3, least_rise=0.25)
    for _ in range(3):
        calm.look(2.0)
    assert (calm.limit, calm.look(2.25)) == (2.25, "fine")
    assert calm.look(math.nextafter(2.25, 3)) == "spike"
    detector = SpikeDetector(window=5, least_rise=0.5)
    for value in (1.0, 1.1, 0.9, 1.0, 1.0):
        detector.look(value)
    assert [detector.look(9.0) for _ in range(20)] == ["spike"] * 20
    assert detector.look(1.2) == "fine"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_said_at_once_and_not_remembered(value):
    detector = SpikeDetector(window=3)
    assert detector.look(value) == "not finite"
    assert not detector.values


def test_the_state_of_the_older_snapshot_comes_back_exactly():
    wanted = {}
    g = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = optim.AdamW(layer.parameters(), lr=1e-2)
    guard = SkipAndRewind(layer, optimizer, every=4)
    for step, x in enumerate(torch.randn(11, 8, 3, generator=g)):
        guard.before(step)
        if step == 4:
            wanted["model"] = copy.deepcopy(layer.state_dict())
            wanted["optimizer"] = copy.deepcopy(optimizer.state_dict())
        layer(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(layer.weight, wanted["model"]["weight"])
    for _ in range(2):  # the same snapshot serves again
        assert guard.rewind(11) == 4
        assert torch.equal(layer.weight, wanted["model"]["weight"])
        ours = optimizer.state_dict()["state"]
        for index, state in wanted["optimizer"]["state"].items():
            assert ours[index]["step"] == state["step"] == 4
            assert torch.equal(ours[index]["mean_square"], state["mean_square"])
        layer.weight.grad, layer.bias.grad = torch.ones(1, 3), torch.ones(1)
        optimizer.step()
    assert guard.rewinds == [(11, 4), (11, 4)]


@pytest.fixture
def decoder():
    return model.Transformer(model.tiny(), generator=runtime.generator(0))


@pytest.fixture
def batch():
    g = runtime.generator(1)
    return tuple(torch.randint(0, 300, (2, 8), generator=g) for _ in range(2))


def watched(decoder, batch, **settings):
    with first_bad(decoder, **settings) as watch:
        loss.token_losses(decoder(batch[0]), batch[1]).mean().backward()
    return watch


def test_a_healthy_model_has_none_and_a_bad_weight_is_found_before_the_pass(decoder, batch):
    assert watched(decoder, batch).first is None
    assert not any(m._forward_hooks for m in decoder.modules())
    with torch.no_grad():
        decoder.blocks[1].attention.w_k[3, 2] = math.nan
    first = watched(decoder, batch).first
    assert (first.where, first.what) == ("blocks.1.attention.w_k", "weight")
    assert first.share == pytest.approx(1 / decoder.blocks[1].attention.w_k.numel())


class Breaks(torch.nn.Module):
    """Passes on, but spoils one number of its output, or of the gradient behind it."""

    def __init__(self, inner, forward):
        super().__init__()
        self.inner, self.spoils_forward = inner, forward

    def forward(self, *inputs, **settings):
        y = self.inner(*inputs, **settings)
        if self.spoils_forward:
            return y + torch.zeros_like(y).index_fill(-1, torch.tensor([0]), math.inf)
        y.register_hook(lambda g: g * math.nan)
        return y


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("part", ["attention", "feed_forward", "attention_norm"])
def test_the_innermost_bad_output_is_named(part, layer, decoder, batch):
    block = decoder.blocks[layer]
    setattr(block, part, Breaks(getattr(block, part), forward=True))
    watch = watched(decoder, batch)
    assert (watch.first.where, watch.first.what) == (f"blocks.{layer}.{part}", "output")
    assert len(watch.seen) > 3  # it spread
    assert not any(bad.where == f"blocks.{layer}.{part}.inner" for bad in watch.seen[:1])


def test_a_gradient_that_goes_bad_on_its_way_back_or_of_a_weight_alone_is_named(decoder, batch):
    decoder.blocks[0].feed_forward.w_up.register_hook(lambda g: g / 0)
    seen = watched(decoder, batch).seen
    told = [("blocks.0.feed_forward.w_up", "gradient of the weight")]
    assert [(bad.where, bad.what) for bad in seen] == told
    decoder.blocks[1].feed_forward = Breaks(decoder.blocks[1].feed_forward, forward=False)
    first = watched(decoder, batch).first
    assert first.what == "gradient of the output"
    assert first.where.startswith("blocks.1.feed_forward")
    assert first.share == 1.0


def test_too_large_counts_when_asked_for(decoder, batch):
    with torch.no_grad():
        decoder.blocks[1].feed_forward.w_down.mul_(1e6)
    assert watched(decoder, batch, largest=1e8).first is None
    first = watched(decoder, batch, largest=50.0).first
    assert (first.where, first.what) == ("blocks.1.feed_forward.w_down", "weight")
    with pytest.raises(ValueError, match="largest must be above 0"):
        watched(decoder, batch, largest=0)


def test_a_cap_bends_and_never_exceeds():
    x = torch.tensor([0.0, 5.0, -50.0, 500.0], dtype=torch.float64, requires_grad=True)
    bent = soft_cap(x, 50)
    by_hand = [0.0, 50 * math.tanh(0.1), -50 * math.tanh(1), 50 * math.tanh(10)]
    assert bent.tolist() == pytest.approx(by_hand, rel=1e-12)
    bent.sum().backward()
    assert x.grad.tolist() == pytest.approx([1 / math.cosh(v / 50) ** 2 for v in x.tolist()])


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_a_clipped_head_ends_at_tau_and_the_others_stay(num_kv_heads):
    shape = replace(model.tiny(), num_kv_heads=num_kv_heads)
    net = model.Transformer(shape, generator=runtime.generator(0))
    ids = torch.randint(0, 300, (3, 16), generator=runtime.generator(1))
    attention = net.blocks[0].attention
    with torch.no_grad():
        attention.w_q.view(4, 8, 32)[:3] *= torch.tensor([600.0, 300.0, 500.0])[:, None, None]
    before = study.largest_scores(net, ids)[0]
    first = copy.deepcopy(attention.state_dict())
    tau = before[0].item() / 4
    assert before[3] < tau < before[0]
    qk_clip(attention.w_q, attention.w_k, before, tau)
    assert torch.allclose(study.largest_scores(net, ids)[0], before.clamp(max=tau), rtol=1e-5)
    changed_q, changed_k = (
        (attention.get_parameter(name) != first[name]).view(-1, 8 * 32).any(1).tolist()
        for name in ("w_q", "w_k")
    )
    assert changed_q == (before > tau).tolist()
    assert changed_k == (changed_q if num_kv_heads == 4 else [False, False])
    if num_kv_heads == 4:
        assert torch.allclose(attention.w_k.view(4, -1)[0], first["w_k"].view(4, -1)[0] / 2)


def test_the_largest_scores_are_those_that_attention_sees():
    net = model.Transformer(model.tiny(), generator=runtime.generator(0))
    ids = torch.randint(0, 300, (3, 16), generator=runtime.generator(1))
    q_LBTHK, k_LBTGK = study.queries_and_keys(net, ids)
    scores_LBHTS = torch.einsum("lbthk,lbshk->lbhts", q_LBTHK, k_LBTGK.repeat_interleave(2, 3))
    allowed = [scores_LBHTS[..., t, s] for t in range(16) for s in range(t + 1)]
    expected = torch.stack(allowed).amax(0).amax(1) / math.sqrt(8)
    torch.testing.assert_close(study.largest_scores(net, ids), expected, rtol=1e-5, atol=0)
