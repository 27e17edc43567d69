"""What a rank knows: who it is, where it stands on the mesh, and how to reach its neighbours.

A mesh lays the ranks out on named axes, the last of them fastest: with {"dp": 2, "tp": 3}, rank 4
stands at dp 1, tp 1.  A collective runs along one axis, among the ranks that differ on it alone.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from llmcourse.parallel.world.errors import MismatchError
from llmcourse.parallel.world.stack_dump import StackDump

CALL_BYTES = 256
"""Size of the note about a call that neighbours exchange before it."""


Wait = Callable[[], object]
"""Returns when a message has left, or has arrived; to be called once."""


@dataclass(frozen=True)
class Message:
    """One collective, as one rank saw it."""

    rank: int
    name: str
    """Of the collective, such as all_reduce_ring."""
    axis: str
    num_bytes: int
    """Sent by this rank."""
    start_s: float
    """Since the run began; the clock is the same on all ranks of a machine."""
    end_s: float


class Axis:
    """The ranks along one axis of the mesh, seen from one of them.

    Sending and receiving count ranks along the axis, from 0 to size - 1.

    Args:
        name: the axis.
        ranks: their numbers in the world, in the order of the axis.
        rank: this rank's number in the world.
        group: torch's group of these ranks, for torch's own collectives.
        messages: where the log goes.
        stack_dump: where this rank notes what it is doing.
        channel: messages of one channel never meet those of another.
    """

    def __init__(
        self,
        name: str,
        ranks: tuple[int, ...],
        rank: int,
        *,
        group: dist.ProcessGroup | None,
        messages: list[Message],
        stack_dump: StackDump | None = None,
        channel: int = 0,
    ) -> None:
        self.name = name
        self.ranks = ranks
        self.size = len(ranks)
        self.index = ranks.index(rank)
        self.group = group
        self.messages = messages
        self.check_calls = True
        """Whether neighbours compare what they are about to do, before every collective."""
        self.sent_bytes = 0
        """By this rank along this axis, since the start."""
        self._whereabouts = stack_dump
        self._tag = 2 * channel
        self._inside = False

    @classmethod
    def of(cls, group: dist.ProcessGroup | None = None, *, name: str = "dp") -> "Axis":
        """Return the axis over the ranks of one of torch's groups, which stand in its order.

        For a program that has started its ranks by other means, such as torchrun.  Notes and
        messages go through torch's default group, on the CPU, and have its timeout.

        Args:
            group: torch's; None is all ranks.
            name: of the axis, for the log and for messages of errors.

        Raises:
            ValueError: if torch has no group yet, this rank is not in it, or it cannot send tensors
                that are on the CPU.
        """
        if not dist.is_initialized():
            raise ValueError(
                "there is no process group: call torch.distributed.init_process_group('gloo') first"
            )
        if dist.get_rank(group) < 0:
            raise ValueError(
                f"rank {dist.get_rank()} is not in the group: make no axis of it there"
            )
        for each in (group, None):
            if "gloo" not in dist.get_backend_config(each):
                raise ValueError(
                    f"messages need gloo, and a group's backend is {dist.get_backend_config(each)}:"
                    " make it with init_process_group('cpu:gloo,cuda:nccl')"
                )
        ranks = tuple(dist.get_process_group_ranks(group))
        return cls(name, ranks, dist.get_rank(), group=group, messages=[])

    def channel(self, number: int) -> "Axis":
        """Return the same axis with a channel of its own, for use by another thread."""
        return self._over(self.ranks, number)

    def block(self, size: int) -> "Axis":
        """Return the part with this rank of an axis cut into blocks of so many neighbours.

        It counts its bytes by itself, and takes messages, no `tell`.
        """
        first = self.index // size * size
        return self._over(self.ranks[first : first + size], self._tag // 2)

    def _over(self, ranks: tuple[int, ...], channel: int) -> "Axis":
        settings: dict[str, Any] = {"messages": self.messages, "stack_dump": self._whereabouts}
        rank, group = self.ranks[self.index], self.group
        here = Axis(self.name, ranks, rank, group=group, channel=channel, **settings)
        here.check_calls = self.check_calls
        return here

    def send(self, x: Tensor, to: int) -> None:
        """Send a tensor, and wait until it was received.

        Two ranks that both send before they receive wait for ever: use `exchange`.
        """
        self._count(x)
        if x.numel():
            dist.send(x.contiguous(), self.ranks[to], tag=self._tag)

    def receive(self, x: Tensor, source: int) -> Tensor:
        """Wait for a tensor of this shape and dtype; it is written into `x`, which is returned."""
        if x.numel():
            dist.recv(x, self.ranks[source], tag=self._tag)
        return x

    def exchange(self, out: Tensor, to: int, into: Tensor, source: int) -> Tensor:
        """Send one tensor and receive another at the same time; return what was received.

        Every rank of the axis may do this at once, which no order of `send` and `receive` allows on
        a ring.
        """
        self._count(out)
        self._exchange(out, to, into, source, self._tag)
        return into

    def post_send(self, x: Tensor, to: int) -> Wait:
        """Begin to send a contiguous tensor, which must not change until the wait is over."""
        self._count(x)
        return self._post(dist.isend, x, to, self._tag)

    def post_receive(self, x: Tensor, source: int) -> Wait:
        """Make room for a tensor of this shape and dtype, which is there when the wait is over.

        Messages from one rank arrive in the order in which they were sent.
        """
        return self._post(dist.irecv, x, source, self._tag)

    def barrier(self) -> None:
        """Wait until every rank of the axis has come here."""
        note = torch.zeros(1)
        with self.collective("barrier"):
            # After k rounds a rank has heard, directly or not, of 2^k others.
            for distance in (1 << k for k in range((self.size - 1).bit_length())):
                to, source = self.index + distance, self.index - distance
                self.exchange(note, to % self.size, torch.empty(1), source % self.size)

    def all_gather_object(self, mine: Any) -> list[Any]:
        """Return what every rank of the axis has to tell, by rank; bytes are not counted."""
        told = [mine] * self.size
        if self.size > 1:
            with self.collective("all_gather_object"):
                dist.all_gather_object(told, mine, group=self.group)
        return told

    @contextlib.contextmanager
    def collective(self, name: str, alike: str = "") -> Iterator[None]:
        """Log what happens inside as one collective; one that is called by another is part of it.

        Args:
            name: of the collective.
            alike: what has to be the same on every rank, in words, such as the dtype.

        Raises:
            MismatchError: if a neighbour is about to do something else.
        """
        if self._inside:
            yield
            return
        self._inside, sent, start = True, self.sent_bytes, time.monotonic()
        if self._whereabouts is not None:
            self._whereabouts.write(f"{name} over {self.name} {alike}")
        try:
            if self.check_calls and self.size > 1:
                self._compare(f"{name} {alike}".strip() + f" over {self.name}")
            yield
            end, num_bytes = time.monotonic(), self.sent_bytes - sent
            rank = self.ranks[self.index]
            self.messages.append(Message(rank, name, self.name, num_bytes, start, end))
            if self._whereabouts is not None:
                self._whereabouts.write(f"after {name} over {self.name}")
        finally:
            self._inside = False

    def _compare(self, call: str) -> None:
        """Tell the next rank what is about to happen, and compare with the one before."""
        mine, other = torch.zeros(CALL_BYTES, dtype=torch.uint8), None
        text = call.encode()[:CALL_BYTES]
        mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        source = (self.index - 1) % self.size
        other = self._exchange(
            mine, (self.index + 1) % self.size, torch.empty_like(mine), source, self._tag + 1
        )
        if not torch.equal(mine, other):
            theirs = bytes(other.tolist()).rstrip(b"\0").decode(errors="replace")
            raise MismatchError(
                f"rank {self.ranks[self.index]} calls {call}, rank {self.ranks[source]} calls "
                f"{theirs}: all ranks of an axis have to call the same collectives in one order"
            )

    def _exchange(self, out: Tensor, to: int, into: Tensor, source: int, tag: int) -> Tensor:
        sent = self._post(dist.isend, out.contiguous(), to, tag)
        received = self._post(dist.irecv, into, source, tag)
        sent()
        received()
        return into

    def _post(self, do: Callable[..., dist.Work | None], x: Tensor, rank: int, tag: int) -> Wait:
        if not x.numel():
            return _no_wait
        work = do(x, self.ranks[rank], tag=tag)
        assert work is not None  # torch has none for a rank outside the group
        return work.wait

    def _count(self, x: Tensor) -> None:
        self.sent_bytes += x.numel() * x.element_size()


def _no_wait() -> None:
    """Return at once: an empty tensor is not sent."""


class Rank:
    """One process among several; it is handed to the function that they all run.

    Args:
        index: its number, from 0.
        mesh: sizes of the named axes; their product is the number of ranks.
        messages: where the log goes.
        stack_dump: where it notes what it is doing.
    """

    def __init__(
        self,
        index: int,
        mesh: Mapping[str, int],
        *,
        messages: list[Message],
        stack_dump: StackDump | None = None,
    ) -> None:
        self.index = index
        self.mesh = dict(mesh)
        self.size = math.prod(mesh.values())
        self.messages = messages
        settings: dict[str, Any] = {"messages": messages, "stack_dump": stack_dump}
        self.world = Axis("world", tuple(range(self.size)), index, group=None, **settings)
        self._axes = {
            name: Axis(name, ranks, index, group=group, **settings)
            for name in self.mesh
            for ranks, group in [_group_along(name, self.mesh, index)]
        }

    def __repr__(self) -> str:
        return f"Rank({self.index} of {self.size}, {self.place})"

    @property
    def place(self) -> dict[str, int]:
        """Where it stands on every axis."""
        return {name: axis.index for name, axis in self._axes.items()}

    def axis(self, name: str) -> Axis:
        """Return an axis of the mesh by its name.

        Raises:
            ValueError: if the mesh has no such axis.
        """
        if name not in self._axes:
            raise ValueError(f"the mesh has the axes {', '.join(self._axes)}, not {name!r}")
        return self._axes[name]


def place_of(rank: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return where a rank stands on every axis of a mesh, the last axis fastest."""
    place = {}
    for name, size in reversed([*mesh.items()]):
        rank, place[name] = divmod(rank, size)
    return {name: place[name] for name in mesh}


def _group_along(
    name: str, mesh: Mapping[str, int], index: int
) -> tuple[tuple[int, ...], dist.ProcessGroup | None]:
    """Return the ranks along an axis through `index`, and torch's group of them.

    torch wants every rank to make every group, also those that it is not in.
    """
    others: dict[tuple, list[int]] = {}
    for rank in range(math.prod(mesh.values())):
        place = place_of(rank, mesh)
        del place[name]
        others.setdefault(tuple(place.values()), []).append(rank)
    if len(others) == 1:
        return tuple(*others.values()), None  # the whole world, which has a group already
    found = None
    for ranks in others.values():
        group = dist.new_group(ranks, backend="gloo")
        if index in ranks:
            found = tuple(ranks), group
    assert found is not None  # `others` has every rank
    return found
