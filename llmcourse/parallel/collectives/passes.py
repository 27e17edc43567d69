"""How chunks travel: round the ring, or straight from every rank to every other.

Every receive is posted before its message sets out.  Then nobody waits for somebody who waits:
what all sides have posted cannot deadlock, and a sender need not wait.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llmcourse.parallel.world import Axis

PIECE_BYTES = 16 << 20
"""Large tensors are summed in pieces of this size at most, which is the memory that the sum needs.

Memory of that size is taken from the heap and used again; larger blocks come fresh from the system
at every call, and at 64 MB that made a ring take up to twice as long.
"""


class RingStep(NamedTuple):
    """What a rank does with one chunk that comes round the ring, before it passes it on."""

    buffer: Tensor
    """Where the chunk is received."""
    mine: Tensor | None
    """What to add to it; None leaves it as it came."""
    into: Tensor
    """Where the sum goes; this is what is passed on."""


def pieces(
    chunks: Sequence[Tensor], into: Tensor, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Cut every chunk, and the place for one, into as many parts: yield the k-th parts of all.

    An entry stays in the chunk that it is in, so neither bytes sent nor the order of additions
    depend on the size of a piece.
    """
    num_bytes = sum(chunk.numel() * chunk.element_size() for chunk in chunks)
    number = max(1, -(-num_bytes // piece_bytes))
    cut = zip(*(chunk.tensor_split(number) for chunk in chunks), strict=True)
    for parts, place in zip(cut, into.tensor_split(number), strict=True):
        yield list(parts), place


def reduce_scatter_steps(chunks: Sequence[Tensor], axis: Axis, into: Tensor) -> list[RingStep]:
    """Return the n - 1 steps that reduce-scatter the chunks, the sum of this rank's one `into`.

    The sum of chunk c sets out as that of rank c + 1 alone and passes every other rank, which adds
    its own, until it arrives at rank c.  `into` may be this rank's chunk itself.
    """
    n, r = axis.size, axis.index
    passing = [chunks[(r - step - 2) % n] for step in range(n - 1)]  # its own comes last
    buffers = [torch.empty_like(mine) for mine in passing]
    steps = [RingStep(buffer, mine, buffer) for buffer, mine in zip(buffers, passing, strict=True)]
    return [*steps[:-1], *(step._replace(into=into) for step in steps[-1:])]


def all_gather_steps(chunks: Sequence[Tensor], axis: Axis) -> list[RingStep]:
    """Return the n - 1 steps that fill in all chunks but this rank's own, which is there."""
    n, r = axis.size, axis.index
    passing = [chunks[(r - step - 1) % n] for step in range(n - 1)]
    return [RingStep(chunk, None, chunk) for chunk in passing]


def run_ring(first: Tensor, steps: Sequence[RingStep], axis: Axis) -> None:
    """Send a chunk to the next rank, then receive and pass on what comes; the last chunk stays.

    There are n - 1 steps for one time round, or twice as many.  The buffers of the second time must
    be free when the first time but for its last step is over.
    """
    if not steps:  # one rank
        return
    after, before = (axis.index + 1) % axis.size, (axis.index - 1) % axis.size
    round_, last = axis.size - 1, len(steps) - 1
    arrivals = [axis.post_receive(step.buffer, before) for step in steps[:round_]]
    departures = [axis.post_send(first, after)]
    for k, (buffer, mine, into) in enumerate(steps):
        if k == round_ - 1:
            departures.pop(0)()  # `first` is a buffer of the second time round
            arrivals += [axis.post_receive(step.buffer, before) for step in steps[round_:]]
        arrivals[k]()
        if mine is not None:
            torch.add(buffer, mine, out=into)
        if k < last:
            departures.append(axis.post_send(into, after))
    for gone in departures:
        gone()


def exchange_all(sent: Sequence[Tensor], received: Sequence[Tensor], axis: Axis) -> None:
    """Send one tensor to every other rank and receive one from each, all at once."""
    others = [(axis.index + k) % axis.size for k in range(1, axis.size)]
    waits = [axis.post_receive(received[other], other) for other in others]
    waits += [axis.post_send(sent[other], other) for other in others]
    for wait in waits:
        wait()


def sum_in_order(chunks: Sequence[Tensor], axis: Axis, into: Tensor) -> None:
    """Write the sum of this rank's chunk `into` a tensor, added in the order of ranks.

    Every rank sends every chunk straight to the rank that sums it.  `into` may be this rank's
    chunk itself.
    """
    mine = chunks[axis.index]
    parts = [mine if rank == axis.index else torch.empty_like(mine) for rank in range(axis.size)]
    exchange_all(chunks, parts, axis)
    total, last = parts[0], axis.size - 1
    for rank, part in enumerate(parts[1:], start=1):
        # What was received may be overwritten; this rank's own chunk is needed until it is added.
        free = part if total is mine else total
        total = torch.add(total, part, out=into if rank == last else free)
    if last == 0:
        into.copy_(mine)
