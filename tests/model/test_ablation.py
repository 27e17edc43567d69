"""model: what looks inside a model, and models without one of their parts."""

import math

import pytest
import torch
import torch.nn.functional as F

from llmcourse import model, train
from llmcourse.base import checks, runtime
from llmcourse.model import PARTS, Transformer, attention, ops, tiny, without
from llmcourse_labs import study


@pytest.fixture
def decoder():
    """Weights large enough that every part matters, gains that are not 1."""
    built = Transformer(tiny(), generator=runtime.generator(0))
    g = runtime.generator(1)
    with torch.no_grad():
        for name, p in built.named_parameters():
            if name.endswith("gain"):
                p.add_(0.3 * torch.randn(p.shape, generator=g))
            else:
                p.mul_(8)
    return built


@pytest.fixture
def ids():
    return torch.randint(0, 300, (2, 9), generator=runtime.generator(2))


def by_hand(decoder, ids, part):
    """The whole forward pass written out once more, with the part left out."""

    def norm(x, gain):
        return x if part == "norm" else F.rms_norm(x, (32,), gain, 1e-5)

    def attend(block, x):
        if part == "attention":
            return torch.zeros_like(x)
        q, k, v = ((x @ w.T).unflatten(-1, (-1, 8)) for w in (block.w_q, block.w_k, block.w_v))
        if part != "position":
            rotations = attention.rope_rotations(8, 9)
            q, k = (attention.rope_adjacent(y, rotations) for y in (q, k))
        return attention.attention(q, k, v).flatten(-2) @ block.w_o.T

    def feed(block, x):
        if part == "feed_forward":
            return torch.zeros_like(x)
        curve = F.relu if part == "silu" else F.silu
        up = x @ block.w_up.T
        hidden = F.silu(up) if part == "gate" else curve(x @ block.w_gate.T) * up
        return hidden @ block.w_down.T

    x = decoder.embedding[ids]
    for block in decoder.blocks:
        kept = 0 if part == "residual" else 1
        x = kept * x + attend(block.attention, norm(x, block.attention_norm.gain))
        x = kept * x + feed(block.feed_forward, norm(x, block.feed_forward_norm.gain))
    return norm(x, decoder.norm.gain) @ decoder.embedding.T


@pytest.mark.parametrize("part", PARTS)
def test_the_part_is_gone_and_nothing_else(part, decoder, ids):
    ours, expected = without(decoder, part)(ids), by_hand(decoder, ids, part)
    assert checks.relative_error(ours, expected) < 1e-5
    assert checks.relative_error(decoder(ids), by_hand(decoder, ids, None)) < 1e-5
    for other in (None, *PARTS):
        if other != part:
            assert checks.relative_error(ours, by_hand(decoder, ids, other)) > 1e-3


GONE = {"norm": "gain", "gate": "w_gate"}
GONE |= {part: f"{part}.w" for part in ("attention", "feed_forward")}
"""What the names of weights hold that go with a part."""


@pytest.mark.parametrize("part", PARTS)
def test_every_weight_that_stays_is_the_same_and_learns(part, decoder, ids):
    ablated, whole = without(decoder, part), dict(decoder.named_parameters())
    gone = GONE.get(part, "nothing")
    assert {name for name, _ in ablated.named_parameters()} == {n for n in whole if gone not in n}
    for name, p in ablated.named_parameters():
        assert torch.equal(p, whole[name])
        assert p is not whole[name]
    ablated(ids).square().sum().backward()
    unused = {"attention": "attention_norm", "feed_forward": "feed_forward_norm"}.get(part, "none")
    for name, p in ablated.named_parameters():
        if unused not in name:
            assert p.grad.abs().max() > 0, name


def test_the_model_itself_stays_as_it_is(decoder, ids):
    before = decoder(ids)
    for part in PARTS:
        without(decoder, part)
    assert torch.equal(decoder(ids), before)
    with pytest.raises(ValueError, match=r"part must be one of norm, .*, got 'head'"):
        without(decoder, "head")
    with pytest.raises(ValueError, match="'silu' takes a whole model, and this one lacks a part"):
        without(without(decoder, "gate"), "silu")


@pytest.mark.parametrize("part", PARTS)
def test_an_ablated_model_generates_with_its_cache(part, decoder, ids):
    ablated = without(decoder, part)
    how = {"max_new_tokens": 30, "top_k": 20}
    texts = [
        model.generate(ablated, ids, generator=runtime.generator(3), use_cache=use_cache, **how)
        for use_cache in (True, False)
    ]
    assert torch.equal(*texts)


def test_a_run_can_be_made_without_a_part(tmp_path):
    config = train.PRESETS["tiny"]().replace(steps=2, warmup_steps=1, without="gate")
    run = train.start(config, tmp_path / "run")
    assert not any("w_gate" in name for name, _ in run.model.named_parameters())
    train.fit(run)
    resumed = train.resume(tmp_path / "run", steps=2)
    assert resumed.config.without == "gate"
    for ours, theirs in zip(resumed.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_maps_are_the_weights_of_every_head(decoder, ids):
    maps = study.attention_maps(decoder, ids)
    assert maps.shape == (2, 2, 4, 9, 9)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 4, 9))
    assert maps.triu(1).abs().max() == 0
    # The first layer, by hand.
    block = decoder.blocks[0]
    x = F.rms_norm(decoder.embedding[ids], (32,), block.attention_norm.gain, 1e-5)
    rotations = attention.rope_rotations(8, 9)
    q, k = (
        attention.rope_adjacent((x @ w.T).unflatten(-1, (-1, 8)), rotations)
        for w in (block.attention.w_q, block.attention.w_k)
    )
    for head in range(4):
        scores = q[:, :, head] @ k[:, :, head // 2].mT / math.sqrt(8)
        scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))
        torch.testing.assert_close(maps[0, :, head], scores.softmax(-1))


def test_residual_sizes_are_those_of_the_stream(decoder, ids):
    sizes = study.residual_rms(decoder, ids)
    x = decoder.embedding[ids]
    expected = [x.square().mean().sqrt()]
    for block in decoder.blocks:
        x = block(x, decoder.rotations_TJ2[:9])
        expected.append(x.square().mean().sqrt())
    torch.testing.assert_close(sizes, torch.stack(expected))
    assert len(sizes) == 3


def test_hidden_units_are_what_w_down_reads_and_looking_leaves_no_hook_behind(decoder, ids):
    hidden = study.hidden_units(decoder, ids)
    assert hidden.shape == (2, 2, 9, 64)
    block = decoder.blocks[1]
    inputs = []
    hook = block.feed_forward.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    decoder(ids)
    hook.remove()
    part = block.feed_forward
    torch.testing.assert_close(
        hidden[1] @ part.w_down.T, ops.swiglu(inputs[0], part.w_gate, part.w_up, part.w_down)
    )
    assert study.hidden_units(without(decoder, "silu"), ids).eq(0).float().mean() > 0.2
    assert study.hidden_units(decoder, ids).eq(0).float().mean() == 0
    with pytest.raises(ValueError, match="this model has none, or experts"):
        study.hidden_units(without(decoder, "feed_forward"), ids)
    study.attention_maps(decoder, ids)
    study.residual_rms(decoder, ids)
    study.hidden_units(decoder, ids)
    with pytest.raises(ValueError, match="do not fit into the context"):
        study.residual_rms(decoder, ids.repeat(1, 10))
    assert not any(module._forward_hooks for module in decoder.modules())
