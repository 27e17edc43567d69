"""A contiguous part of a decoder, which keeps the names that its parameters have in the whole.

Shape suffixes:  B batch, T time, D width, V vocabulary, S key time.
"""

from collections.abc import Sequence
from itertools import pairwise
from types import MethodType
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from llmcourse.base.arguments import require_each
from llmcourse.model import Transformer
from llmcourse.model.decoder import HoldsRotations
from llmcourse.model.moe import Routing
from llmcourse.parallel.pipeline.schedules import stage_at
from llmcourse.parallel.world import Axis


def stages_of(num_layers: int, num_ranks: int, num_chunks: int = 1) -> list[range]:
    """Return the layers of every stage, in the order of the model.

    Where layers cannot be shared out evenly, the earlier stages have one more: the last stage has
    the head to compute besides.

    Args:
        num_layers: L.
        num_ranks: p, 1 or more.
        num_chunks: v, stages per rank, 1 or more.

    Raises:
        ValueError: if a number is below 1, or there are more stages than layers.
    """
    require_each({"num_ranks": num_ranks, "num_chunks": num_chunks}, least=1)
    num_stages = num_ranks * num_chunks
    if num_stages > num_layers:
        fewer = {"num_ranks": num_layers // num_chunks, "num_chunks": num_layers // num_ranks}
        nearest = " or ".join(f"{name} = {number}" for name, number in fewer.items() if number)
        nearest = nearest or f"{num_layers} stages"
        raise ValueError(
            f"num_ranks = {num_ranks} times num_chunks = {num_chunks} is {num_stages} stages, "
            f"more than the {num_layers} layers; nearest: {nearest}"
        )
    share, more = divmod(num_layers, num_stages)
    starts = [stage * share + min(stage, more) for stage in range(num_stages + 1)]
    return [range(first, last) for first, last in pairwise(starts)]


class Stage(HoldsRotations):
    """Some layers of a `Transformer`; the first stage looks ids up, the last gives logits.

    It takes over the modules and parameters of the model, under their names in the model, and the
    forms that the model uses to look up, to project and to rotate.  With a tied head the first and
    the last stage both have the embedding: see `sync_tied`.

    Args:
        model: the whole decoder; not changed, and not kept.
        layers: which blocks.
    """

    def __init__(self, model: Transformer, layers: range) -> None:
        super().__init__()
        self.config, self.layers = model.config, layers
        self.is_first, self.is_last = layers.start == 0, layers.stop == len(model.blocks)
        if self.is_first or (self.is_last and self.config.tied_head):
            self.embedding = model.embedding
        self.blocks = nn.ModuleDict({str(layer): model.blocks[layer] for layer in layers})
        self.norm = model.norm if self.is_last else None
        if self.is_last and not self.config.tied_head:
            self.head = model.head
        self.look_up, self.project = model.look_up, model.project
        self.register_buffer("rotations_TJ2", model.rotations_TJ2, persistent=False)
        # A form that was put in its place is taken as it is; the class's own reads the buffer.
        own = MethodType(type(model).rotations_of, self)
        self.rotations_of = vars(model).get("rotations_of", own)

    @property
    def copied(self) -> frozenset[str]:
        """Names of parameters that are copies: of an earlier stage's, which counts in norms."""
        tied = self.config.tied_head and self.is_last and not self.is_first
        return frozenset({"embedding"} if tied else ())

    def forward(
        self,
        x: Int[Tensor, "B T"] | Float[Tensor, "B t D"],
        *,
        num_tokens: int | None = None,
        positions_BT: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "*masked T S"] | None = None,
        routings: list[Routing] | None = None,
    ) -> Float[Tensor, "B _ _"]:
        """Return activations (B, T, D), or logits from the last stage.

        The first stage takes token ids (B, T), any other activations (B, T, D), and the number of
        tokens of the whole sequence if they hold a part of it; the rest as in `Transformer`.
        """
        rotations_TJ2 = self.rotations_of(num_tokens or x.shape[1], positions_BT)
        if self.is_first:
            x = self.look_up(x, self.embedding)
        for block in self.blocks.values():
            x = block(x, rotations_TJ2, mask=mask, routings=routings)
        if self.norm is None:  # the last stage has it
            return x
        weight = self.embedding if self.config.tied_head else self.head
        return self.project(self.norm(x), weight)


def cut(
    model: Transformer, num_ranks: int, rank: int, num_chunks: int = 1, *, v_shape: bool = False
) -> list[Stage]:
    """Return the stages of one rank, by chunk; which they are, `stage_at` says.

    Let go of the model afterwards, so that the memory of the other stages is free.

    Raises:
        ValueError: if there are more stages than layers, or no such rank.
    """
    if not 0 <= rank < num_ranks:
        raise ValueError(f"ranks are 0 to {num_ranks - 1}, got {rank}")
    layers = stages_of(len(model.blocks), num_ranks, num_chunks)
    mine = [stage_at(rank, chunk, num_ranks, v_shape=v_shape) for chunk in range(num_chunks)]
    return [Stage(model, layers[stage]) for stage in mine]


@torch.no_grad()
def sync_tied(stages: Sequence[Any], axis: Axis) -> None:
    """Add up the two gradients of a tied embedding, on the ranks of the first and last stage.

    Both ranks add the same two numbers, so they go on with the same bits.  Every rank of the axis
    has to call this, after `run_schedule`.  Nothing happens without a tied head, nor where one rank
    has both stages: there they share one parameter, and its gradient is the sum.

    Args:
        stages: of this rank, by chunk.
        axis: the pipeline.
    """
    if axis.size == 1 or not stages[0].config.tied_head:
        return
    with axis.collective("sync_tied"):
        if stages[0].is_first == stages[-1].is_last:
            return
        p = stages[0 if axis.index == 0 else -1].embedding
        mine = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
        other = axis.size - 1 - axis.index
        p.grad = mine + axis.exchange(mine, other, torch.empty_like(mine), other)
