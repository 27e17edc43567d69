"""Parameters that are sharded together, for stages 1 and 2, and clipping over shards.

Taught in: chapters/24_zero.ipynb
"""

from collections.abc import Iterable, Mapping, Sequence

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
from llmcourse.parallel.zero.layout import end_to_end, undivided
from llmcourse.parallel.zero.states import Place

Numbered = tuple[int, Tensor]
"""A parameter and its number among all that the optimizer was given."""


class Bucket:
    """Parameters laid end to end, of which this rank updates one chunk.

    Args:
        params: by their numbers, all of one dtype.
        axis: the ranks.
        whole: divide no parameter.
        dtype: of copies to update; None updates the parameters' own memory.

    Raises:
        ValueError: if a parameter is not contiguous.
    """

    def __init__(
        self, params: Mapping[int, Tensor], axis: Axis, *, whole: bool, dtype: torch.dtype | None
    ) -> None:
        self.params, self.axis = dict(params), axis
        for number, p in self.params.items():
            if not p.is_contiguous():
                raise ValueError(
                    f"parameter {number}, of shape {tuple(p.shape)} and strides {p.stride()}, is "
                    "not contiguous: a shard has to be a stretch of its memory"
                )
        shapes = [p.shape for p in self.params.values()]
        self.layout = (undivided if whole else end_to_end)(shapes, axis.size)
        by_rank = [self.layout.pieces(rank) for rank in range(axis.size)]
        self.places = {
            number: Place(p.shape, [pieces[i] for pieces in by_rank])
            for i, (number, p) in enumerate(self.params.items())
        }
        self._broadcast()
        own = next(iter(self.params.values())).dtype
        self.has_copies = dtype not in (None, own)
        self.shards = {
            number: nn.Parameter(self._piece_of(number).to(dtype or own, copy=self.has_copies))
            for number in self.params
            if self._has_piece(number)
        }
        """This rank's, by number; parameters of which it has no piece are left out."""
        self._taken = False  # whether shards have their gradients, so that clipping is not undone
        self.expect()

    def expect(self) -> None:
        """Begin to wait for gradients."""
        self.reduced = False
        self._missing = set(self.params)

    def arrived(self, number: int) -> bool:
        """Note that a gradient is there; return whether it was the last."""
        self._missing.discard(number)
        return not self._missing

    def reduce(self, *, keep_whole: bool, average: bool, ordered: bool) -> None:
        """Sum gradients over the ranks, each rank its chunk.

        Args:
            keep_whole: write the result into the gradients; else add it to those of the shards,
                and forget the whole ones.
            average: divide by the number of ranks.
            ordered: add in the order of ranks.
        """
        params = list(self.params.values())
        row = self.layout.join([p.grad for p in params], like=params[0].detach())
        chunk = reduce_scatter(row, self.axis, ordered=ordered)
        if average:
            chunk.div_(self.axis.size)
        start, _ = self.layout.chunk(self.axis.index)
        for (number, p), at in zip(self.params.items(), self.layout.starts, strict=True):
            if keep_whole and p.grad is None:
                p.grad = torch.zeros_like(p)
            if self._has_piece(number):
                first, last = self.places[number].pieces[self.axis.index]
                piece = chunk[at + first - start : at + last - start]
                self._receive(number, piece, into_whole=keep_whole)
            if not keep_whole:
                p.grad = None
        self.reduced = True
        self._missing = set(self.params)
        self._taken = False

    def take_gradients(self) -> None:
        """Give every shard its piece of the whole gradient, at stage 1."""
        if self._taken:
            return
        for number, shard in self.shards.items():
            gradient = self.params[number].grad
            shard.grad = None
            if gradient is not None:
                shard.grad = self._cut(number, gradient).to(shard.dtype)
        self._taken = True

    def drop_gradients(self) -> None:
        """Leave the shards without a gradient."""
        for shard in self.shards.values():
            shard.grad = None
        self._taken = False

    @torch.no_grad()
    def gather(self) -> None:
        """Get the updated pieces of all ranks into the parameters."""
        params = list(self.params.values())
        start, end = self.layout.chunk(self.axis.index)
        chunk = params[0].new_zeros(end - start)
        for (number, _), at in zip(self.params.items(), self.layout.starts, strict=True):
            if self._has_piece(number):
                first, last = self.places[number].pieces[self.axis.index]
                chunk[at + first - start : at + last - start] = self.shards[number].flatten()
        row = all_gather(chunk, self.axis, length=self.layout.length)
        for p, view in zip(params, self.layout.cut(row), strict=True):
            p.copy_(view)

    @torch.no_grad()
    def refresh(self, masters: Mapping[int, Tensor]) -> None:
        """Set the copies anew: from whole ones where given, else from the parameters."""
        for number, shard in self.shards.items() if self.has_copies else ():
            shard.copy_(self._cut(number, masters.get(number, self.params[number].detach())))

    def _has_piece(self, number: int) -> bool:
        """Whether this rank has a piece of a parameter; an empty parameter is rank 0's."""
        first, last = self.places[number].pieces[self.axis.index]
        return last > first or (self.axis.index == 0 and self.params[number].numel() == 0)

    def _cut(self, number: int, whole: Tensor) -> Tensor:
        return self.places[number].cut(whole, self.axis.index)

    def _piece_of(self, number: int) -> Tensor:
        return self._cut(number, self.params[number].detach())

    def _receive(self, number: int, piece: Tensor, *, into_whole: bool) -> None:
        """Put this rank's piece of the summed gradient where it belongs."""
        if into_whole:
            p = self.params[number]
            p.grad = p.grad.contiguous()  # so that the piece is a view of it
            self._cut(number, p.grad).view(-1).copy_(piece)
            return
        shard = self.shards[number]
        piece = piece.view(shard.shape).to(shard.dtype)
        shard.grad = piece if shard.grad is None else shard.grad.add_(piece)

    @torch.no_grad()
    def _broadcast(self) -> None:
        """Begin with rank 0's parameters."""
        params = list(self.params.values())
        row = broadcast(self.layout.join(params, like=params[0].detach()), self.axis)
        for p, view in zip(params, self.layout.cut(row), strict=True):
            p.copy_(view)


def cut_into_buckets(params: Sequence[Numbered], num_bytes: int | None) -> list[list[Numbered]]:
    """Put parameters of one dtype together, in their order, in buckets of up to `num_bytes`.

    A parameter that is larger has a bucket of its own; None puts no limit.
    """
    buckets: dict[torch.dtype, list[list[Numbered]]] = {}
    filled: dict[torch.dtype, int] = {}
    for number, p in params:
        size = p.numel() * p.element_size()
        mine = buckets.setdefault(p.dtype, [])
        if not mine or (num_bytes is not None and filled[p.dtype] + size > num_bytes):
            mine.append([])
            filled[p.dtype] = 0
        mine[-1].append((number, p))
        filled[p.dtype] += size
    return [bucket for mine in buckets.values() for bucket in mine]


def clip_shards(shards: Iterable[Tensor], axis: Axis, max_norm: int | float) -> float:
    """Scale the gradients of shards so that their norm over all ranks is at most `max_norm`.

    Args:
        shards: this rank's; every entry is on one rank only.
        axis: the ranks.
        max_norm: largest allowed norm, positive.

    Returns:
        The norm before.

    Raises:
        ValueError: if max_norm is not positive.
    """
    none = torch.zeros(0)
    none.grad = torch.zeros(0)  # a rank without a shard takes part in the sum all the same
    return clip_by_global_norm(
        [*shards, none],
        max_norm,
        sum_over_shards=lambda total: all_reduce_ordered(total, axis),
    )
