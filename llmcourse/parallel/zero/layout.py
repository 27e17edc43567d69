"""Where the parts of several tensors lie when they are laid end to end and cut into chunks.

Taught in: chapters/24_zero.ipynb
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives import chunk_sizes


@dataclass(frozen=True)
class Layout:
    """Places of tensors in one flat row, which is cut into chunks by `chunk_sizes`."""

    shapes: tuple[torch.Size, ...]
    """Of the tensors."""
    starts: tuple[int, ...]
    """Where each of them begins in the row."""
    length: int
    """Of the row."""
    num_ranks: int
    """Chunks."""

    def chunk(self, rank: int) -> tuple[int, int]:
        """Return the bounds of a rank's chunk in the row."""
        sizes = chunk_sizes(self.length, self.num_ranks)
        start = sum(sizes[:rank])
        return start, start + sizes[rank]

    def pieces(self, rank: int) -> list[tuple[int, int]]:
        """Return, for each tensor, the bounds within it of the piece that a rank's chunk holds."""
        low, high = self.chunk(rank)
        found = []
        for shape, start in zip(self.shapes, self.starts, strict=True):
            first = min(max(low - start, 0), shape.numel())
            found.append((first, max(first, min(high - start, shape.numel()))))
        return found

    def join(
        self, tensors: Sequence[Shaped[Tensor, "..."] | None], like: Shaped[Tensor, "..."]
    ) -> Shaped[Tensor, " N"]:
        """Lay tensors end to end; None, and any room between them, is zero.

        Args:
            tensors: one for each shape.
            like: gives dtype and device.
        """
        row = (
            like.new_zeros(self.length) if self._has_gaps(tensors) else like.new_empty(self.length)
        )
        for view, tensor in zip(self.cut(row), tensors, strict=True):
            if tensor is not None:
                view.copy_(tensor)
        return row

    def cut(self, row: Shaped[Tensor, " N"]) -> list[Shaped[Tensor, "..."]]:
        """Return every tensor as a view of the row."""
        return [
            row[start : start + shape.numel()].view(shape)
            for shape, start in zip(self.shapes, self.starts, strict=True)
        ]

    def _has_gaps(self, tensors: Sequence[Tensor | None]) -> bool:
        return any(t is None for t in tensors) or self.length > sum(s.numel() for s in self.shapes)


def end_to_end(shapes: Sequence[torch.Size], num_ranks: int) -> Layout:
    """Lay tensors without a gap: a chunk may end in the middle of one."""
    ends = list(accumulate((shape.numel() for shape in shapes), initial=0))
    return Layout(tuple(shapes), tuple(ends[:-1]), ends[-1], num_ranks)


def undivided(shapes: Sequence[torch.Size], num_ranks: int) -> Layout:
    """Lay tensors so that none is divided: the largest first, each to the emptiest rank.

    All chunks are as long as the fullest one, so there may be room at their ends.
    """
    filled, places = [0] * num_ranks, {}
    for index in sorted(range(len(shapes)), key=lambda i: -shapes[i].numel()):
        rank = filled.index(min(filled))
        places[index] = rank, filled[rank]
        filled[rank] += shapes[index].numel()
    size = max(filled)
    starts = tuple(rank * size + offset for rank, offset in (places[i] for i in range(len(shapes))))
    return Layout(tuple(shapes), starts, size * num_ranks, num_ranks)
