"""All-reduce, four times: the sum of every rank's tensor, on every rank.

Each takes a tensor of the same shape and dtype on every rank, overwrites it with the sum, and
returns it.
"""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives.passes import (
    all_gather_steps,
    pieces,
    reduce_scatter_steps,
    run_ring,
    sum_in_order,
)
from llmcourse.parallel.collectives.trees import broadcast, flattened, reduce, signature
from llmcourse.parallel.legal import chunk_sizes
from llmcourse.parallel.world import Axis


def all_reduce_naive(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: everything goes to rank 0, which adds it up and sends the sum to each.

    In all, the ranks send as much as in a ring, but half of it passes out of one rank,
    (n-1) L bytes, and the other half into it.

    Every entry is summed in the order of ranks.
    """
    with axis.collective("all_reduce_naive", signature(x)), flattened(x) as flat:
        if axis.index == 0:
            received = torch.empty_like(flat)
            for other in range(1, axis.size):
                flat.add_(axis.receive(received, other))
            for other in range(1, axis.size):
                axis.send(flat, other)
        else:
            axis.send(flat, 0)
            axis.receive(flat, 0)
    return x


def all_reduce_tree(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: a reduce to rank 0 and a broadcast, each over a binomial tree.

    2 ceil(log2 n) rounds of L bytes: the fewest rounds, and so the choice for small tensors.  Every
    entry is summed pairwise, in the order of the tree.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (allreduce), https://doi.org/10.1177/1094342005051521
    """
    with axis.collective("all_reduce_tree", signature(x)):
        return broadcast(reduce(x, axis), axis)


def all_reduce_ring(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: a reduce-scatter and an all-gather, both round a ring.

    2 (n-1) steps, in each of which every rank sends and receives L/n bytes: 2 (n-1)/n L per rank,
    the least that any all-reduce can do.  The sum of chunk c is added in the order of ranks c + 1,
    c + 2, ..., c (round the ring), so that its last digits depend on where an entry stands.

    Source:
        Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    with axis.collective("all_reduce_ring", signature(x)), flattened(x) as flat:
        chunks = flat.split(chunk_sizes(len(flat), axis.size))
        for parts, into in pieces(chunks, chunks[axis.index]):
            steps = reduce_scatter_steps(parts, axis, into) + all_gather_steps(parts, axis)
            run_ring(parts[axis.index - 1], steps, axis)
    return x


def all_reduce_ordered(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks, every entry in the order of ranks: bitwise ((x_0 + x_1) + x_2) + ...

    Every rank sends chunk c straight to rank c, which waits for all of them before it adds: an
    all-to-all, then the all-gather of the ring, 2 (n-1)/n L bytes per rank.  It is the same as a
    loop over the ranks in one process, at any number of ranks and wherever an entry stands.
    """
    with axis.collective("all_reduce_ordered", signature(x)), flattened(x) as flat:
        chunks = flat.split(chunk_sizes(len(flat), axis.size))
        for parts, into in pieces(chunks, chunks[axis.index]):
            sum_in_order(parts, axis, into)
        run_ring(chunks[axis.index], all_gather_steps(chunks, axis), axis)
    return x


ALGORITHMS: dict[str, Callable[[Tensor, Axis], Tensor]] = {
    "naive": all_reduce_naive,
    "tree": all_reduce_tree,
    "ring": all_reduce_ring,
    "ordered": all_reduce_ordered,
}
"""The ways to sum over all ranks, by name."""


def all_reduce(
    x: Shaped[Tensor, "..."], axis: Axis, *, algorithm: str = "ring"
) -> Shaped[Tensor, "..."]:
    """Sum over all ranks, in place, by one of `ALGORITHMS`; ValueError if there is no such one."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    return ALGORITHMS[algorithm](x, axis)
