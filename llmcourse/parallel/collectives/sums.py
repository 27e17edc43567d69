"""All-reduce, four times: the sum of every rank's tensor, on every rank.

Taught in: chapters/22_collectives.ipynb
"""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives.chunks import (
    chunk_sizes,
    gather_round_ring,
    sum_in_order,
    sum_round_ring,
)
from llmcourse.parallel.collectives.trees import alike, broadcast, flattened, reduce
from llmcourse.parallel.world import Axis


def all_reduce_naive(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: everything to rank 0, which adds in order and sends the sum to each."""
    with axis.collective("all_reduce_naive", alike(x)), flattened(x) as flat:
        if axis.index == 0:
            received = torch.empty_like(flat)
            for other in range(1, axis.size):
                flat += axis.receive(received, other)
            for other in range(1, axis.size):
                axis.send(flat, other)
        else:
            axis.send(flat, 0)
            axis.receive(flat, 0)
    return x


def all_reduce_tree(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: a reduce to rank 0 and a broadcast, each over a binomial tree."""
    with axis.collective("all_reduce_tree", alike(x)):
        return broadcast(reduce(x, axis), axis)


def all_reduce_ring(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks: a reduce-scatter and an all-gather, both round a ring."""
    with axis.collective("all_reduce_ring", alike(x)), flattened(x) as flat:
        chunks = flat.split(chunk_sizes(len(flat), axis.size))
        sum_round_ring(chunks, axis, chunks[axis.index])
        gather_round_ring(chunks, axis)
    return x


def all_reduce_ordered(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Sum over all ranks, every entry in the order of ranks 0, 1, ..., n-1."""
    with axis.collective("all_reduce_ordered", alike(x)), flattened(x) as flat:
        chunks = flat.split(chunk_sizes(len(flat), axis.size))
        sum_in_order(chunks, axis, chunks[axis.index])
        gather_round_ring(chunks, axis)
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
    """Sum over all ranks, in place, by one of `ALGORITHMS`; return `x`.

    Raises:
        ValueError: if there is no such algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    return ALGORITHMS[algorithm](x, axis)
