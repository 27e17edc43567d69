"""Parameters that are sharded together, for stages 1 and 2, and clipping over shards."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from llmcourse.optim import clip_by_global_norm
from llmcourse.parallel.collectives import (
    all_gather,
    all_reduce_ordered,
    broadcast,
    reduce_scatter,
)
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.flat_layout import FlatLayout


class Bucket:
    """Parameters laid end to end, of which this rank updates one chunk.

    Every rank keeps the parameters in full; its shards are views of their memory.

    Args:
        params: by their numbers among all that the optimizer was given.
        axis: the ranks.
    """

    def __init__(self, params: Mapping[int, Tensor], axis: Axis) -> None:
        self.params, self.axis = dict(params), axis
        self.layout = FlatLayout([p.shape for p in self.params.values()], axis.size)
        self.places = dict(zip(self.params, self.layout.places(), strict=True))
        self.expect()
        # All ranks begin with rank 0's parameters.
        self._copy_from(broadcast(_flat([p.detach() for p in self.params.values()]), axis))
        self.shards: dict[int, nn.Parameter] = {}
        """This rank's, by number; parameters of which it has nothing are left out."""
        for number, place in self.places.items():
            shard = place.cut(self.params[number].detach(), axis.index)
            if shard.numel():
                self.shards[number] = nn.Parameter(shard)

    def expect(self) -> None:
        """Begin to wait for gradients."""
        self.is_reduced, self.missing = False, set(self.params)

    def has_gradients(self) -> bool:
        """Whether there are gradients in full."""
        return any(p.grad is not None for p in self.params.values())

    def reduce_scatter(self, *, keep_full: bool, average: bool, ordered: bool) -> None:
        """Sum gradients over the ranks, and give this rank's shards their part of the sum.

        Args:
            keep_full: write it into the full gradient, of which the shard's is a view; else add it
                to the shard's own, and free the full one.
            average: divide by the number of ranks.
            ordered: add in the order of ranks.
        """
        grads = {
            number: torch.zeros_like(p) if p.grad is None else p.grad
            for number, p in self.params.items()
        }
        flat = _flat(grads.values())
        chunk = reduce_scatter(flat, self.axis, ordered=ordered)
        if average:
            chunk.div_(self.axis.size)
        parts = chunk.split([shard.numel() for shard in self.shards.values()])
        for (number, shard), part in zip(self.shards.items(), parts, strict=True):
            if keep_full:
                first, last = self.places[number].pieces[self.axis.index]
                own = grads[number].view(-1)[first:last].copy_(part)
                shard.grad = own.view(shard.shape)
            elif shard.grad is None:
                shard.grad = part.view(shard.shape)
            else:
                shard.grad.view(-1).add_(part)
        for number, p in self.params.items():
            p.grad = grads[number] if keep_full else None
        self.expect()
        self.is_reduced = True

    def all_gather(self) -> None:
        """Get the updated shards of all ranks into the parameters."""
        none = next(iter(self.params.values())).new_zeros(0)  # for a rank without a shard
        chunk = _flat([none, *(shard.detach() for shard in self.shards.values())])
        self._copy_from(all_gather(chunk, self.axis, length=self.layout.length))

    def zero_grad(self) -> None:
        """Forget the gradients, those in full and those of shards."""
        for x in (*self.params.values(), *self.shards.values()):
            x.grad = None
        self.expect()

    @torch.no_grad()
    def _copy_from(self, flat: Tensor) -> None:
        """Set the parameters to the contents of a row."""
        for p, view in zip(self.params.values(), self.layout.views(flat), strict=True):
            p.copy_(view)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    """Lay tensors end to end."""
    return torch.cat([x.reshape(-1) for x in tensors])


def clip_shards(shards: Iterable[Tensor], axis: Axis, max_norm: int | float) -> float:
    """Scale the gradients of shards so that their norm over all ranks is at most `max_norm`.

    Every entry is on one rank only; what comes back is the norm before.
    """
    none = torch.zeros(0)
    none.grad = torch.zeros(0)  # a rank without a shard takes part in the sum all the same
    return clip_by_global_norm(
        [*shards, none],
        max_norm,
        sum_over_shards=lambda total: all_reduce_ordered(total, axis),
    )
