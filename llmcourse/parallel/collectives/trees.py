"""Broadcast and reduce over a binomial tree: log2(n) rounds of the whole tensor.

In round k of a broadcast, the 2^k ranks that have the tensor send it to 2^k others; a reduce runs
the same messages backwards.
"""

import contextlib
from collections.abc import Iterator

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.world import Axis


def broadcast(x: Shaped[Tensor, "..."], axis: Axis, *, source: int = 0) -> Shaped[Tensor, "..."]:
    """Overwrite `x` on every rank with that of one rank, over a binomial tree.

    ceil(log2 n) rounds; a rank that is k places behind the source (round the axis) sends the whole
    tensor once for every power of two above k, as long as there is a rank there.

    Args:
        x: same shape and dtype on every rank; overwritten in place, except at the source.
        axis: the ranks.
        source: index along the axis of the rank to copy from.

    Returns:
        `x`.

    Raises:
        ValueError: if the axis has no rank `source`.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (broadcast, binomial tree),
        https://doi.org/10.1177/1094342005051521
    """
    _check_rank("source", source, axis)
    with axis.collective("broadcast", f"{signature(x)} from {source}"), flattened(x) as flat:
        place = (axis.index - source) % axis.size
        parent, children = tree_links(place, axis.size)
        if parent is not None:
            axis.receive(flat, (parent + source) % axis.size)
        for child in reversed(children):  # the largest subtree first: it needs the most rounds
            axis.send(flat, (child + source) % axis.size)
    return x


def reduce(x: Shaped[Tensor, "..."], axis: Axis, *, to: int = 0) -> Shaped[Tensor, "..."]:
    """Sum the tensors of all ranks into `x` of one rank, over a binomial tree.

    x_to = x_0 + x_1 + ... + x_{n-1}; ceil(log2 n) rounds; every rank but `to` sends once.

    Args:
        x: same shape and dtype on every rank; changed in place at `to`, and kept elsewhere.
        axis: the ranks.
        to: index along the axis of the rank that gets the sum.

    Returns:
        `x`: the sum at rank `to`, what it was on the other ranks.

    Raises:
        ValueError: if the axis has no rank `to`.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (reduce, binomial tree),
        https://doi.org/10.1177/1094342005051521
    """
    _check_rank("to", to, axis)
    with axis.collective("reduce", f"{signature(x)} to {to}"), flattened(x) as flat:
        place = (axis.index - to) % axis.size
        parent, children = tree_links(place, axis.size)
        total = flat
        for child in children:
            received = axis.receive(torch.empty_like(flat), (child + to) % axis.size)
            if parent is None:
                total.add_(received)
            else:  # `x` is not the place for part of a sum
                total = received.add_(total)
        if parent is not None:
            axis.send(total, (parent + to) % axis.size)
    return x


def tree_links(place: int, size: int) -> tuple[int | None, list[int]]:
    """Return the parent and the children of a place in the binomial tree with its root at 0.

    The parent of a place lacks its lowest set bit; the children add one bit below that.
    """
    lowest = place & -place if place else 1 << (size - 1).bit_length()
    parent = place - lowest if place else None
    children = [place + (1 << k) for k in range(lowest.bit_length() - 1)]
    return parent, [child for child in children if child < size]


def signature(x: Tensor) -> str:
    """Say what has to be the same on every rank."""
    return f"{x.dtype} {list(x.shape)}"


@contextlib.contextmanager
def flattened(x: Tensor) -> Iterator[Tensor]:
    """Give the entries of `x` as one row to change in place, outside of autograd."""
    x = x.detach()
    flat = x.reshape(-1)
    yield flat
    if not x.is_contiguous():  # then `flat` is a copy
        x.copy_(flat.view(x.shape))


def _check_rank(name: str, index: int, axis: Axis) -> None:
    if not 0 <= index < axis.size:
        raise ValueError(
            f"{name} must be an index along {axis.name}, 0 to {axis.size - 1}, got {index}"
        )
