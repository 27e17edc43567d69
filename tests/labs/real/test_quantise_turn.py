"""turn: a turned decoder computes the same, and none of its matrices lies on a grid."""

from dataclasses import replace

import pytest
import torch

from llmcourse.base import runtime
from llmcourse.model import Transformer, tiny
from llmcourse_labs.real.quantise import Grid, nearest, round_decoder
from llmcourse_labs.real.quantise.turn import turned

IDS = torch.arange(40).view(2, 20) * 7


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("tied_head", [True, False])
def test_a_turned_decoder_computes_the_same_off_every_grid(qk_norm, tied_head):
    """Mutants: a writer that is not turned, a gain that is left out or stays in its norm, too."""
    config = replace(tiny(), qk_norm=qk_norm, tied_head=tied_head)
    decoder = Transformer(config, generator=runtime.generator(0)).requires_grad_(False)
    decoder = round_decoder(decoder, Grid(4)).decoder
    for name, weight in decoder.named_parameters():
        if name.endswith("gain"):
            weight.uniform_(0.5, 2, generator=runtime.generator(0))
    before = decoder.state_dict()
    other = turned(decoder)
    assert torch.allclose(other(IDS), decoder(IDS), atol=1e-5)
    assert all(torch.equal(before[name], kept) for name, kept in decoder.state_dict().items())
    for name in ("attention.w_q", "attention.w_o", "feed_forward.w_up", "feed_forward.w_down"):
        weights = [m.get_parameter(f"blocks.1.{name}") for m in (decoder, other)]
        errors = [(nearest(w, Grid(4)).weights() - w).norm() / w.norm() for w in weights]
        assert errors[0] < 1e-3
        assert errors[1] > 0.04


def test_no_mixture_is_turned():
    config = replace(tiny(), num_experts=2, experts_per_token=1)
    with pytest.raises(ValueError, match="turning is for dense models"):
        turned(Transformer(config, generator=runtime.generator(0)))
