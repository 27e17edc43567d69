"""Models with one part removed, to see what the part was for.

The decoder knows nothing of this: a part is removed by putting another module in its place, after
the whole model was built.  Every weight that stays is therefore the same number as before.

Shape suffixes:  B batch, T time, D width, F hidden, J channel pairs of RoPE.
"""

import copy
from collections.abc import Iterable
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.model.decoder import Block, FeedForward, Transformer
from llmcourse.model.moe import Routing
from llmcourse.model.ops import linear

Part = Literal["norm", "position", "gate", "silu", "residual", "attention", "feed_forward"]
"""What can be removed from a model."""

PARTS: tuple[Part, ...] = get_args(Part)
"""Every part by its name."""


def without(model: Transformer, part: Part | str) -> Transformer:
    """Return a copy of a model with one part removed and every other weight the same.

    ================  ======================================================================
    part              what the copy does
    ================  ======================================================================
    ``norm``          every RMSNorm passes its input on; the gains are gone
    ``position``      no query or key is rotated
    ``gate``          the feed-forward network is W_down silu(W_up x); W_gate is gone
    ``silu``          its gate is relu where it was silu
    ``residual``      a block returns what its parts compute, without adding it to its input
    ``attention``     no token reads from another: attention adds 0, and its weights are gone
    ``feed_forward``  the feed-forward network adds 0, and its weights are gone
    ================  ======================================================================

    Args:
        model: the whole model; it stays as it is.
        part: what to remove, one of `PARTS`.

    Raises:
        ValueError: if there is no such part, or the gate or silu is asked for of a mixture, or
            of a model whose feed-forward network was replaced before.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    if part in ("gate", "silu") and model.config.num_experts:
        raise ValueError(
            f"without {part!r} is for a dense model, this one is a mixture of experts: choose "
            "another part, or set num_experts to 0"
        )
    model = copy.deepcopy(model)
    if part == "position":
        no_turn_2 = model.rotations_TJ2.new_tensor([1.0, 0.0])
        model.rotations_TJ2 = no_turn_2.expand_as(model.rotations_TJ2).clone()
    elif part == "residual":
        blocks = cast("Iterable[Block]", model.blocks)
        model.blocks = nn.ModuleList(BlockWithoutResidual(block) for block in blocks)
    else:
        for parent in (model, *model.blocks):
            for name, module in list(parent.named_children()):
                replacement = _replacement(part, name, module)
                if replacement is not None:
                    setattr(parent, name, replacement)
    return model


def _replacement(part: Part, name: str, module: nn.Module) -> nn.Module | None:
    """Return what stands in for a module of the model, or None where it stays."""
    if part == "norm" and name in ("norm", "attention_norm", "feed_forward_norm"):
        return nn.Identity()
    if part == name:
        return ZeroBranch()
    if name == "feed_forward" and part in ("gate", "silu"):
        if not isinstance(module, FeedForward):
            raise ValueError(f"without {part!r} takes a whole model, and this one lacks a part")
        return UngatedFeedForward(module) if part == "gate" else ReluFeedForward(module)
    return None


class ZeroBranch(nn.Module):
    """Stands in for attention or the feed-forward network: adds 0 to the residual stream."""

    def forward(self, x_BTD: Float[Tensor, "B T D"], *_: Any, **__: Any) -> Float[Tensor, "B T D"]:
        """Return 0 for every token."""
        return torch.zeros_like(x_BTD)


class UngatedFeedForward(nn.Module):
    """Two matrices and a curve between them:  y = W_down silu(W_up x)."""

    def __init__(self, gated: FeedForward) -> None:
        super().__init__()
        self.w_up, self.w_down = gated.w_up, gated.w_down

    def hidden(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        """Return the hidden units of every token: what w_down reads."""
        return F.silu(linear(x_BTD, self.w_up))

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Transform every token by itself."""
        return linear(self.hidden(x_BTD), self.w_down)


class ReluFeedForward(nn.Module):
    """A gate that is shut for good below zero:  y = W_down (relu(W_gate x) * W_up x).

    Source:
        Shazeer 2020, equation 5 (ReGLU), https://arxiv.org/abs/2002.05202
    """

    def __init__(self, gated: FeedForward) -> None:
        super().__init__()
        self.w_gate, self.w_up, self.w_down = gated.w_gate, gated.w_up, gated.w_down

    def hidden(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        """Return the hidden units of every token: what w_down reads."""
        return F.relu(linear(x_BTD, self.w_gate)) * linear(x_BTD, self.w_up)

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Transform every token by itself."""
        return linear(self.hidden(x_BTD), self.w_down)


class BlockWithoutResidual(Block):
    """A block whose parts replace their input instead of adding to it."""

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)  # the parts are there already
        self.attention_norm, self.attention = block.attention_norm, block.attention
        self.feed_forward_norm, self.feed_forward = block.feed_forward_norm, block.feed_forward

    def forward(
        self,
        x_BTD: Float[Tensor, "B T D"],
        *positions: Any,
        routings: list[Routing] | None = None,
        **settings: Any,
    ) -> Float[Tensor, "B T D"]:
        """Return what the two parts of the layer make of the input."""
        x_BTD = self.attention(self.attention_norm(x_BTD), *positions, **settings)
        return self.transform(x_BTD, routings)
