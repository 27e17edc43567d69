"""Collectives of chunks: reduce-scatter, all-gather and all-to-all.

Round the ring, every rank sends to the next one and receives from the one before it, in n - 1
steps.  No rank sends more than another, and no chunk is sent further than it has to be.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives.passes import (
    all_gather_steps,
    exchange_all,
    pieces,
    reduce_scatter_steps,
    run_ring,
    sum_in_order,
)
from llmcourse.parallel.legal import chunk_sizes
from llmcourse.parallel.world import Axis


def reduce_scatter(
    x_N: Shaped[Tensor, " N ..."], axis: Axis, *, ordered: bool = False
) -> Shaped[Tensor, " n ..."]:
    """Sum the tensors of all ranks, and leave every rank one chunk of the sum.

    y_r = sum over ranks of chunk r.  A rank sends all chunks but its own: (n-1)/n of its bytes.

    Args:
        x_N: same shape and dtype on every rank; cut along the first dim by `chunk_sizes`; kept.
        axis: the ranks.
        ordered: whether entries are added in the order of ranks, whatever their number; else in
            the order of the ring, from the next rank round to this one.

    Returns:
        This rank's chunk of the sum, a new tensor.

    Source:
        Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    x = x_N.detach().contiguous()
    with axis.collective("reduce_scatter", f"{x.dtype} {list(x.shape)} ordered={ordered}"):
        chunks = x.split(chunk_sizes(len(x), axis.size))
        into = torch.empty_like(chunks[axis.index])
        for parts, place in pieces(chunks, into):
            if ordered or axis.size == 1:
                sum_in_order(parts, axis, place)
            else:
                run_ring(parts[axis.index - 1], reduce_scatter_steps(parts, axis, place), axis)
    return into


def all_gather(
    chunk: Shaped[Tensor, " n ..."], axis: Axis, *, length: int | None = None
) -> Shaped[Tensor, " N ..."]:
    """Join the chunks of all ranks, on every rank, in the order of ranks.

    A rank sends every chunk once, all but that of the next rank: (n-1)/n of the whole.

    Args:
        chunk: of this rank.
        axis: the ranks.
        length: of the whole along the first dim, whose chunks are cut by `chunk_sizes`; None where
            all chunks have the same length.

    Returns:
        The whole, a new tensor.

    Raises:
        ValueError: if the chunk is not as long as `chunk_sizes` says.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (allgather, ring),
        https://doi.org/10.1177/1094342005051521
    """
    sizes = chunk_sizes(len(chunk) * axis.size if length is None else length, axis.size)
    if len(chunk) != sizes[axis.index]:
        raise ValueError(
            f"of {length} rows, rank {axis.index} of {axis.size} holds {sizes[axis.index]}, "
            f"got {len(chunk)}: cut by chunk_sizes"
        )
    rest = chunk.shape[1:]
    with axis.collective("all_gather", f"{chunk.dtype} {[sum(sizes), *rest]}"):
        whole = chunk.detach().new_empty(sum(sizes), *rest)
        chunks = whole.split(sizes)
        chunks[axis.index].copy_(chunk.detach())
        run_ring(chunks[axis.index], all_gather_steps(chunks, axis), axis)
    return whole


def all_to_all(
    chunks: Sequence[Shaped[Tensor, " _ ..."]], axis: Axis, *, lengths: Sequence[int]
) -> list[Shaped[Tensor, " _ ..."]]:
    """Send chunk s to rank s, and receive one chunk from every rank.

    A rank sends all its chunks but the one for itself, in n - 1 steps: at step k to the rank k
    places on, while it receives from the rank k places back.

    Args:
        chunks: one for each rank of the axis; they may differ in length, not in the other dims.
        axis: the ranks.
        lengths: of the chunks to be received, by rank.

    Returns:
        The chunks received, by rank; this rank's own is a copy.

    Raises:
        ValueError: if there are not as many chunks, or lengths, as ranks, or if chunks differ in
            dtype or in another dim than the first.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (all-to-all, pairwise exchange),
        https://doi.org/10.1177/1094342005051521
    """
    for what, given in (("chunks", chunks), ("lengths", lengths)):
        if len(given) != axis.size:
            raise ValueError(f"{what} must be {axis.size}, one for each rank, got {len(given)}")
    kinds = {(c.dtype, tuple(c.shape[1:])) for c in chunks}
    if len(kinds) > 1:
        raise ValueError(f"chunks must agree in dtype and in all dims but the first, got {kinds}")
    sent = [c.detach().contiguous() for c in chunks]
    rest = tuple(sent[0].shape[1:])
    with axis.collective("all_to_all", f"{sent[0].dtype} {rest}"):
        received = [sent[0].new_empty(length, *rest) for length in lengths]
        received[axis.index].copy_(sent[axis.index])
        exchange_all(sent, received, axis)
    return received
