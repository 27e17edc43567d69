"""A decoder of other weights that computes the same, and lies on no grid any more.

* `shuffled`: channels have no order.  Numbered anew, neighbours come from many old blocks, and a
  block holds weights of many grids.
* `turned`: the residual stream is turned by an orthogonal Q.  What reads the stream turns it back,
  what writes to it turns, too; a norm's gain goes into the matrices that read the norm:

      x' = x Q,   norm(x') = norm(x) Q,   W_read' = W_read diag(gain) Q,   W_write' = Q^T W_write

  Each new weight is a sum over a whole row or column of old ones.

Shape suffixes:  D width, F rows of a matrix or hidden units, K head size, N columns of all heads.

Source:
    Ashkboos et al. 2024 (QuaRot), https://arxiv.org/abs/2404.00456
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer

READERS = {"attention": ("w_q", "w_k", "w_v"), "feed_forward": ("w_gate", "w_up")}
"""Matrices that read the residual stream, by part of a block."""
WRITERS = {"attention": "w_o", "feed_forward": "w_down"}
"""Matrices that write to it."""


@torch.no_grad()
def shuffled(decoder: Transformer, seed: int = 0) -> Transformer:
    """Return a decoder whose channels are numbered anew: residual, hidden, and those of values.

    Args:
        decoder: a dense one; stays as it is.
        seed: of the order.

    Raises:
        ValueError: if the decoder is a mixture of experts.
    """
    config, new = decoder.config, _state(decoder)
    drawn = torch.Generator().manual_seed(seed)
    stream_D = torch.randperm(config.width, generator=drawn)
    for name in {"embedding", "head", "norm.gain"} & new.keys():
        new[name] = new[name][..., stream_D]
    for layer in range(config.num_layers):
        hidden_F = torch.randperm(config.hidden, generator=drawn)
        value_K = torch.randperm(config.head_size, generator=drawn)
        heads = torch.arange(config.num_heads) * config.head_size
        heads_N = (heads[:, None] + value_K).flatten()
        inner = {"attention": heads_N, "feed_forward": hidden_F}
        for part, writer in WRITERS.items():
            of = f"blocks.{layer}.{part}"
            new[f"{of}_norm.gain"] = new[f"{of}_norm.gain"][stream_D]
            for name in READERS[part]:
                new[f"{of}.{name}"] = new[f"{of}.{name}"][:, stream_D]
            new[f"{of}.{writer}"] = new[f"{of}.{writer}"][stream_D][:, inner[part]]
        for name, rows in (
            ("attention.w_v", heads_N[: config.num_kv_heads * config.head_size]),
            ("feed_forward.w_gate", hidden_F),
            ("feed_forward.w_up", hidden_F),
        ):
            new[f"blocks.{layer}.{name}"] = new[f"blocks.{layer}.{name}"][rows]
    return _made(config, new)


@torch.no_grad()
def turned(decoder: Transformer, seed: int = 0) -> Transformer:
    """Return a decoder whose residual stream is turned by a matrix that is drawn.

    Args:
        decoder: a dense one; stays as it is.
        seed: of the draw.

    Raises:
        ValueError: if the decoder is a mixture of experts.
    """
    config, new = decoder.config, _state(decoder)
    drawn = torch.Generator().manual_seed(seed)
    q_DD = torch.linalg.qr(
        torch.randn(config.width, config.width, dtype=torch.float64, generator=drawn)
    )[0]

    def reads(w_FD: Float[Tensor, "F D"], gain_D: Float[Tensor, " D"]) -> Float[Tensor, "F D"]:
        return (w_FD * gain_D.double()) @ q_DD

    for layer in range(config.num_layers):
        for part, writer in WRITERS.items():
            of = f"blocks.{layer}.{part}"
            gain_D = new[f"{of}_norm.gain"]
            new[f"{of}_norm.gain"] = torch.ones_like(gain_D)
            for name in READERS[part]:
                new[f"{of}.{name}"] = reads(new[f"{of}.{name}"], gain_D)
            new[f"{of}.{writer}"] = q_DD.T @ new[f"{of}.{writer}"].double()
    new["head"] = reads(decoder.head_weight, new["norm.gain"])
    new["norm.gain"] = torch.ones_like(new["norm.gain"])
    new["embedding"] = new["embedding"].double() @ q_DD
    return _made(replace(config, tied_head=False), new)


def _state(decoder: Transformer) -> dict[str, Tensor]:
    """Return the weights of a decoder that is not a mixture."""
    if decoder.config.num_experts:
        raise ValueError("this is for dense models, and this one has experts: leave it out")
    return dict(decoder.state_dict())


def _made(config: ModelConfig, state: dict[str, Tensor]) -> Transformer:
    """Return a decoder of these weights."""
    made = Transformer(config).eval().requires_grad_(False)
    made.load_state_dict(state)
    return made
