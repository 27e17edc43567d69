"""A part of a model that is made by itself has weights, or says that it has none."""

from dataclasses import replace

import pytest
import torch

from llmcourse.model import Attention, Block, FeedForward, tiny, tiny_moe
from llmcourse.model.attention import rope_rotations
from llmcourse.model.moe import MixtureOfExperts
from llmcourse.model.moe.experts import Experts, SharedExperts
from llmcourse.model.moe.layer import Router

DEEP = replace(tiny(), num_layers=8, qk_norm=True)
PARTS = {
    "attention": lambda **g: Attention(DEEP, **g),
    "feed forward": lambda **g: FeedForward(DEEP, **g),
    "block": lambda **g: Block(DEEP, **g),
    "block of experts": lambda **g: Block(replace(tiny_moe(), num_layers=8), **g),
    "mixture": lambda **g: MixtureOfExperts(
        width=48, hidden=64, num_experts=4, experts_per_token=2, num_shared=1, **g
    ),
    "router": lambda **g: Router(4, 500, 2, **g),
    "experts": lambda **g: Experts(4, 48, 64, **g),
    "shared experts": lambda **g: SharedExperts(2, 48, 64, **g),
}
each_part = pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)


@each_part
def test_it_cannot_be_made_without_a_word_about_its_weights(make):
    with pytest.raises(TypeError, match="generator"):
        make()


@each_part
def test_its_weights_are_those_of_a_model(make):
    part = make(generator=torch.Generator().manual_seed(0))
    again = make(generator=torch.Generator().manual_seed(0))
    deep = hasattr(part, "attention") or isinstance(part, Attention | FeedForward)
    for (name, w), other in zip(part.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(w, other)
        if name.endswith("gain"):
            assert w.eq(1).all()
            continue
        expected = 0.02 / 4 if deep and name.endswith(("w_o", "w_down")) else 0.02
        assert w.std().item() == pytest.approx(expected, rel=0.15)


def test_a_block_alone_computes_finite_numbers():
    block = Block(DEEP, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 5, DEEP.width, generator=torch.Generator().manual_seed(1))
    y = block(x, rope_rotations(DEEP.head_size, 5))
    assert y.isfinite().all()
    assert 0 < (y - x).abs().max() < 1
