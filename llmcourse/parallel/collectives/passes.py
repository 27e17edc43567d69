"""How chunks travel: round the ring, or straight from every rank to every other.

Every receive is posted before its message sets out.  Then nobody waits for somebody who waits:
what all sides have posted cannot deadlock, and a sender finds room at once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llmcourse.parallel.world import Axis

PIECE_BYTES = 16 << 20
"""Large tensors are summed in pieces of this size at most, which is what the sum needs room for.

Memory of that size is taken from the heap and used again; larger blocks come fresh from the system
at every call, and at 64 MB that made a ring take up to twice as long.
"""


class Leg(NamedTuple):
    """What a rank does with one chunk that comes round the ring, before it passes it on."""

    room: Tensor
    """Where the chunk is received."""
    mine: Tensor | None
    """What to add to it; None leaves it as it came."""
    into: Tensor
    """Where the sum goes; this is what is passed on."""


def pieces(
    chunks: Sequence[Tensor], into: Tensor, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Cut every chunk, and the room for one, into as many parts: yield the k-th parts of all.

    An entry stays in the chunk that it is in, so neither bytes sent nor the order of additions
    depend on the size of a piece.
    """
    num_bytes = sum(chunk.numel() * chunk.element_size() for chunk in chunks)
    number = max(1, -(-num_bytes // piece_bytes))
    cut = zip(*(chunk.tensor_split(number) for chunk in chunks), strict=True)
    for parts, room in zip(cut, into.tensor_split(number), strict=True):
        yield list(parts), room


def summing(chunks: Sequence[Tensor], axis: Axis, into: Tensor) -> list[Leg]:
    """Return the n - 1 legs that reduce-scatter the chunks, the sum of this rank's one `into`.

    The sum of chunk c sets out as that of rank c + 1 alone and passes every other rank, which adds
    its own, until it arrives at rank c.  `into` may be this rank's chunk itself.
    """
    n, r = axis.size, axis.index
    passing = [chunks[(r - step - 2) % n] for step in range(n - 1)]  # its own comes last
    rooms = [torch.empty_like(mine) for mine in passing]
    legs = [Leg(room, mine, room) for room, mine in zip(rooms, passing, strict=True)]
    return [*legs[:-1], *(leg._replace(into=into) for leg in legs[-1:])]


def gathering(chunks: Sequence[Tensor], axis: Axis) -> list[Leg]:
    """Return the n - 1 legs that fill in all chunks but this rank's own, which is there."""
    n, r = axis.size, axis.index
    passing = [chunks[(r - step - 1) % n] for step in range(n - 1)]
    return [Leg(chunk, None, chunk) for chunk in passing]


def pass_round(first: Tensor, legs: Sequence[Leg], axis: Axis) -> None:
    """Send a chunk to the next rank, then receive and pass on what comes; the last chunk stays.

    There are n - 1 legs for one time round, or twice as many.  The rooms of the second time must be
    free when the first time but for its last leg is over.
    """
    if not legs:  # one rank
        return
    after, before = (axis.index + 1) % axis.size, (axis.index - 1) % axis.size
    round_, last = axis.size - 1, len(legs) - 1
    arrivals = [axis.post_receive(leg.room, before) for leg in legs[:round_]]
    departures = [axis.post_send(first, after)]
    for step, (room, mine, into) in enumerate(legs):
        if step == round_ - 1:
            departures.pop(0)()  # `first` is a room of the second time round
            arrivals += [axis.post_receive(leg.room, before) for leg in legs[round_:]]
        arrivals[step]()
        if mine is not None:
            torch.add(room, mine, out=into)
        if step < last:
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
        room = part if total is mine else total
        total = torch.add(total, part, out=into if rank == last else room)
    if last == 0:
        into.copy_(mine)
