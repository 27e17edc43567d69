"""A decoder of other weights that computes the same: off any grid, and without large channels.

The residual stream is turned by an orthogonal Q.  What reads it turns it back, what writes to it
turns, too; a norm's gain goes into the matrices that read the norm:

    x' = x Q,   norm(x') = norm(x) Q,   W_read' = W_read diag(gain) Q,   W_write' = Q^T W_write

Each new weight is a sum over a whole row or column of old ones, and lies on no grid of theirs.

Shape suffixes:  D width, F rows of a matrix.

Source:
    Ashkboos et al. 2024 (QuaRot), https://arxiv.org/abs/2404.00456
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.model.decoder import Transformer


@torch.no_grad()
def turned(decoder: Transformer, seed: int = 0) -> Transformer:
    """Return a decoder whose residual stream is turned by a matrix that is drawn.

    Args:
        decoder: a dense one; stays as it is.
        seed: of the draw.

    Raises:
        ValueError: if the decoder is a mixture of experts.
    """
    config = decoder.config
    if config.num_experts:
        raise ValueError("turning is for dense models, and this one has experts: leave it out")
    drawn = torch.Generator().manual_seed(seed)
    q_DD = torch.linalg.qr(
        torch.randn(config.width, config.width, dtype=torch.float64, generator=drawn)
    )[0]

    def reads(w_FD: Float[Tensor, "F D"], gain_D: Float[Tensor, " D"]) -> Float[Tensor, "F D"]:
        return (w_FD * gain_D.double()) @ q_DD

    old = decoder.state_dict()
    new = dict(old)
    for layer in range(config.num_layers):
        of = f"blocks.{layer}."
        for part, readers, writer in (
            ("attention", ("w_q", "w_k", "w_v"), "w_o"),
            ("feed_forward", ("w_gate", "w_up"), "w_down"),
        ):
            gain_D = old[f"{of}{part}_norm.gain"]
            new[f"{of}{part}_norm.gain"] = torch.ones_like(gain_D)
            for name in readers:
                new[f"{of}{part}.{name}"] = reads(old[f"{of}{part}.{name}"], gain_D)
            new[f"{of}{part}.{writer}"] = q_DD.T @ old[f"{of}{part}.{writer}"].double()
    new["embedding"] = decoder.embedding.double() @ q_DD
    new["head"] = reads(decoder.head_weight, old["norm.gain"])
    new["norm.gain"] = torch.ones_like(old["norm.gain"])
    made = Transformer(replace(config, tied_head=False)).eval().requires_grad_(False)
    made.load_state_dict(new)
    return made
