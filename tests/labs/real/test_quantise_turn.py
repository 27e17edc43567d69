"""turn: shuffled and turned decoders compute the same, and none of their matrices is on a grid."""

from dataclasses import replace

import pytest
import torch

from llmcourse.base import runtime
from llmcourse.model import Transformer, tiny
from llmcourse_labs.real.quantise import Grid, nearest, round_decoder
from llmcourse_labs.real.quantise.turn import shuffled, turned

IDS = torch.arange(40).view(2, 20) * 7
SHAPE = replace(tiny(), width=64, head_size=16)
MATRICES = ("attention.w_q", "attention.w_o", "feed_forward.w_up", "feed_forward.w_down")


@pytest.mark.parametrize("other", [shuffled, turned])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("tied_head", [True, False])
def test_another_decoder_computes_the_same_off_every_grid(other, qk_norm, tied_head):
    """Mutants: a writer that stays, a gain left out, or left where it is, too; rows of w_v."""
    config = replace(SHAPE, qk_norm=qk_norm, tied_head=tied_head)
    decoder = Transformer(config, generator=runtime.generator(0)).requires_grad_(False)
    decoder = round_decoder(decoder, Grid(4, 8)).decoder
    for name, weight in decoder.named_parameters():
        if name.endswith("gain"):
            weight.uniform_(0.5, 2, generator=runtime.generator(len(name)))
    before = {name: weight.clone() for name, weight in decoder.state_dict().items()}
    made = other(decoder)
    assert torch.allclose(made(IDS), decoder(IDS), atol=1e-5)
    assert all(torch.equal(before[name], kept) for name, kept in decoder.state_dict().items())
    for name in MATRICES:
        weights = [m.get_parameter(f"blocks.1.{name}") for m in (decoder, made)]
        errors = [(nearest(w, Grid(4, 8)).weights() - w).norm() / w.norm() for w in weights]
        assert errors[0] < 1e-3
        assert errors[1] > 0.04


@pytest.mark.parametrize("other", [shuffled, turned])
def test_no_mixture_is_shuffled_or_turned(other):
    config = replace(tiny(), num_experts=2, experts_per_token=1)
    with pytest.raises(ValueError, match="this is for dense models"):
        other(Transformer(config, generator=runtime.generator(0)))
