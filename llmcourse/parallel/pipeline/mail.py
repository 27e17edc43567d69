"""Activations and gradients on their way from rank to rank.

A send is posted and never waited for; a receive waits.  Between two ranks messages arrive in the
order in which they were sent, which need not be the order in which they are wanted: every rank
knows the whole schedule, so it knows what comes next, and puts aside what it wants later.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llmcourse.parallel.pipeline.schedules import Action, Schedule
from llmcourse.parallel.pipeline.validity import ScheduleSlot, needs
from llmcourse.parallel.world import Axis
from llmcourse.parallel.world.rank import Wait


class PendingRecv(NamedTuple):
    """A message that another rank sends here."""

    sender: ScheduleSlot
    number: int
    """Of the action that sends it, among those of its rank."""


class PendingSend(NamedTuple):
    """A message that was posted, and is kept until it was taken."""

    number: int
    """Of the action that takes it, among those of its rank."""
    x: Tensor
    wait: Wait


class P2P:
    """What one rank sends and receives during one run of a schedule.

    Args:
        schedule: a valid one.
        axis: the pipeline.
        shapes: of the activations of every micro-batch.
        like: a tensor of the dtype and on the device of all messages.
    """

    def __init__(
        self, schedule: Schedule, axis: Axis, shapes: Sequence[tuple[int, ...]], *, like: Tensor
    ) -> None:
        self.axis, self.shapes, self.like = axis, shapes, like
        self._takers: dict[Action, tuple[ScheduleSlot, int]] = {}
        self._coming: dict[int, deque[PendingRecv]] = {}
        for rank, row in enumerate(schedule.actions):
            for index, action in enumerate(row):
                sender = needs(schedule, rank, action)
                if sender is not None and sender.rank == axis.index:
                    self._takers[sender.action] = ScheduleSlot(rank, action), index
        for rank, row in enumerate(schedule.actions):
            if rank != axis.index:
                self._coming[rank] = deque(self._from(schedule, rank, row))
        self._arrived: dict[ScheduleSlot, Tensor] = {}
        self._sent: dict[int, list[PendingSend]] = {rank: [] for rank in self._coming}
        self._posted: dict[int, tuple[Tensor, Wait]] = {}
        for rank in self._coming:
            self._post(rank)

    def send(self, action: Action, x: Tensor) -> None:
        """Send the result of an action to the rank that needs it, if one does."""
        if action not in self._takers:
            return
        taker, index = self._takers[action]
        if taker.rank == self.axis.index:
            self._arrived[ScheduleSlot(taker.rank, action)] = x
            return
        x = x.contiguous()
        wait = self.axis.post_send(x, taker.rank)
        self._sent[taker.rank].append(PendingSend(index, x, wait))

    def receive(self, sender: ScheduleSlot) -> Tensor:
        """Wait for the result of another rank's action, and return it."""
        while sender not in self._arrived:
            self._next(sender.rank)
        return self._arrived.pop(sender)

    def finish(self) -> None:
        """Wait until all that was sent was received."""
        for messages in self._sent.values():
            for each in messages:
                each.wait()
            messages.clear()

    def _from(self, schedule: Schedule, rank: int, row: tuple[Action, ...]) -> list[PendingRecv]:
        """Return what a rank sends here, in its order."""
        here = schedule.actions[self.axis.index]
        wanted = {needs(schedule, self.axis.index, action) for action in here}
        places = [
            PendingRecv(ScheduleSlot(rank, action), index) for index, action in enumerate(row)
        ]
        return [each for each in places if each.sender in wanted]

    def _post(self, rank: int) -> None:
        """Make room for the next message of a rank, so that it can come while we compute."""
        if not self._coming[rank]:
            return
        shape = self.shapes[self._coming[rank][0].sender.action.micro_batch]
        x = torch.empty(shape, dtype=self.like.dtype, device=self.like.device)
        self._posted[rank] = x, self.axis.post_receive(x, rank)

    def _next(self, rank: int) -> None:
        """Wait for the next message of a rank, whatever it is."""
        x, wait = self._posted.pop(rank)
        wait()
        came = self._coming[rank].popleft()
        self._arrived[came.sender] = x
        self._post(rank)
        # When it sent this, it had taken all that its actions up to this one needed of us: those
        # messages have left, and their memory is free.
        for each in self._sent[rank]:
            if each.number <= came.number:
                each.wait()
        self._sent[rank] = [each for each in self._sent[rank] if each.number > came.number]
