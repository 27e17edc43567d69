"""Which tokens of a sequence a rank holds, and how much attention that makes it compute.

Blocks: rank i holds the i-th of n chunks.  A causal query reads all keys before it, so the last
rank has about 2n times the work of the first.  Zig-zag: of 2n chunks, rank i holds the i-th from
the front and the i-th from the back; the short rows of one make up for the long rows of the other.

Shape suffixes:  B batch, T time of the whole sequence, t time of this rank's tokens, R ranks.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.parallel.legal import multiples, nearest

Layout = Literal["zigzag", "blocks"]
"""How the tokens of a sequence are handed to the ranks."""

LAYOUTS: tuple[Layout, ...] = ("zigzag", "blocks")


def chunks_of(index: int, size: int, layout: Layout = "zigzag") -> tuple[int, ...]:
    """Return the chunks that a rank holds, in the order of the sequence.

    Args:
        index: of the rank along the axis, 0 to size - 1.
        size: number of ranks, 1 or more.
        layout: "zigzag" (2 size chunks, two for each rank) or "blocks" (size chunks).

    Raises:
        ValueError: if there is no such layout, or no such rank.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    require("size", size, least=1)
    if not 0 <= index < size:
        raise ValueError(f"index must be 0 to {size - 1}, got {index}")
    return (index, 2 * size - 1 - index) if layout == "zigzag" else (index,)


def check_length(context_length: int, size: int, layout: Layout = "zigzag") -> None:
    """Make sure that every rank gets the same number of tokens, in whole chunks.

    Raises:
        ValueError: if the length is not a positive multiple of the number of chunks.
    """
    num_chunks = size * len(chunks_of(0, size, layout))
    if context_length > 0 and context_length % num_chunks == 0:
        return
    raise ValueError(
        f"context_length must be a positive multiple of {num_chunks}, the chunks of the layout "
        f"{layout} for {size} ranks, got {context_length}; nearest: "
        f"{nearest(context_length, multiples(num_chunks, context_length))}"
    )


def positions(
    context_length: int, index: int, size: int, layout: Layout = "zigzag"
) -> Int[Tensor, " t"]:
    """Return the positions, in the whole sequence, of the tokens that a rank holds, ascending.

    Ranks and layout are those of `chunks_of`, errors its own and those of `check_length`.

    Source:
        Dubey et al. 2024 (Llama 3), section 3.3.2, for the zig-zag,
        https://arxiv.org/abs/2407.21783
    """
    check_length(context_length, size, layout)
    chunks = chunks_of(index, size, layout)
    length = context_length // (size * len(chunks))
    return torch.cat([torch.arange(chunk * length, (chunk + 1) * length) for chunk in chunks])


def share(
    whole: Shaped[Tensor, "..."], index: int, size: int, layout: Layout = "zigzag", *, dim: int = 1
) -> Shaped[Tensor, "..."]:
    """Return a rank's tokens of whole sequences: ids, targets, activations, or rows of a mask.

    Targets are shifted before they are shared: the token after the last one of a chunk is held by
    another rank.  The dim is that of time, -2 for queries of a mask; the rest is as in `positions`.
    """
    mine = positions(whole.shape[dim], index, size, layout)
    return whole.index_select(dim, mine.to(whole.device))


def join(
    shares: Sequence[Shaped[Tensor, "..."]], layout: Layout = "zigzag", *, dim: int = 1
) -> Shaped[Tensor, "..."]:
    """Put the shares of all ranks, in their order, together again: the inverse of `share`."""
    side_by_side = torch.cat(tuple(shares), dim)
    length, size = side_by_side.shape[dim], len(shares)
    held_T = torch.cat([positions(length, index, size, layout) for index in range(size)])
    return side_by_side.index_select(dim, held_T.argsort().to(side_by_side.device))


def work_pairs(context_length: int, size: int, layout: Layout = "zigzag") -> Int[Tensor, "R R"]:
    """Count the (query, key) pairs of causal attention that every rank computes.

    Returns:
        A table with a row for each rank and a column for each step of the ring.  In step s, rank
        r has the keys of rank r - s (round the ring).  A ring that waits for its slowest rank
        takes the sum of the largest entries of the columns.

    Raises:
        ValueError: if the length does not divide into chunks, see `check_length`.
    """
    check_length(context_length, size, layout)
    chunks = torch.tensor([chunks_of(index, size, layout) for index in range(size)])
    length = context_length // chunks.numel()
    ranks = torch.arange(size)
    owners_RR = (ranks.unsqueeze(1) - ranks) % size
    queries, keys = chunks.view(size, 1, -1, 1), chunks[owners_RR].unsqueeze(-2)
    whole, half = length * length, length * (length + 1) // 2
    return (whole * (keys < queries) + half * (keys == queries)).sum((-1, -2))
