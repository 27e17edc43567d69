"""Where shards lie when parameters are laid end to end and the row is cut into chunks."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives import chunk_sizes
from llmcourse.parallel.zero.states import ShardPlacement


class FlatLayout:
    """Tensors end to end in one flat row, which is cut into a chunk for each rank.

    Chunks are as long as `chunk_sizes` says, so one may end in the middle of a tensor.

    Args:
        shapes: of the tensors.
        num_ranks: how many chunks.
    """

    def __init__(self, shapes: Sequence[torch.Size], num_ranks: int) -> None:
        self.shapes, self.num_ranks = list(shapes), num_ranks
        *self._starts, self.length = accumulate((s.numel() for s in shapes), initial=0)
        self._ends = [0, *accumulate(chunk_sizes(self.length, num_ranks))]  # of the chunks

    def chunk(self, rank: int) -> tuple[int, int]:
        """Return the bounds of a rank's chunk in the row."""
        return self._ends[rank], self._ends[rank + 1]

    def shards(self, rank: int) -> list[tuple[int, int]]:
        """Return, for each tensor, the bounds within it of the shard that a rank's chunk holds."""
        low, high = self.chunk(rank)
        found = []
        for shape, start in zip(self.shapes, self._starts, strict=True):
            first = min(max(low - start, 0), shape.numel())
            found.append((first, max(first, min(high - start, shape.numel()))))
        return found

    def places(self) -> list[ShardPlacement]:
        """Return, for each tensor, its shape and the shards of all ranks."""
        by_tensor = zip(*(self.shards(rank) for rank in range(self.num_ranks)), strict=True)
        return [ShardPlacement(s, list(b)) for s, b in zip(self.shapes, by_tensor, strict=True)]

    def views(self, flat: Shaped[Tensor, " N"]) -> list[Shaped[Tensor, "..."]]:
        """Return every tensor as a view of the row."""
        parts = flat.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def check_parameters(params: Mapping[Any, Tensor]) -> None:
    """Raise ValueError for parameters, by name or number, that cannot be sharded together.

    They are none, or one is there twice, not contiguous or of a second dtype.
    """
    if not params:
        raise ValueError("there is no parameter to shard: none, or all are frozen")
    seen: dict[Tensor, Any] = {}
    for name, p in params.items():
        if p in seen:
            raise ValueError(f"parameter {name} is {seen[p]} again: give every parameter once")
        seen[p] = name
        if not p.is_contiguous():
            raise ValueError(f"parameter {name} is not contiguous, but shards are cut from memory")
    dtypes = {p.dtype for p in params.values()}
    if len(dtypes) > 1:
        raise ValueError(f"parameters must be of one dtype, got {dtypes}: cast the model to one")
