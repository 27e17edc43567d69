"""Run a schedule: every rank does its own actions, in the order in which they are written.

The gradients of a rank's parameters add up in `.grad` in the order of its backward actions, so that
they are those of one process that takes the micro-batches one after the other, bit for bit.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from llmcourse.model import ModelConfig
from llmcourse.parallel import collectives
from llmcourse.parallel.pipeline.later import WeightQueue, deferred_weight_grads
from llmcourse.parallel.pipeline.mail import P2P
from llmcourse.parallel.pipeline.schedules import Action, Schedule
from llmcourse.parallel.pipeline.timed import Timed
from llmcourse.parallel.pipeline.validity import needs, validate
from llmcourse.parallel.world import Axis


class MicroBatch(NamedTuple):
    """A part of the batch; every rank has it, for the shape of the inputs and for the settings."""

    inputs: Any
    """What the first stage takes: token ids (B, T)."""
    targets: Any
    """What `loss_of` compares the last stage's output with."""
    settings: Mapping[str, Any] | None = None
    """Passed to every stage by name, such as positions_BT and mask."""


class PipelineRun(NamedTuple):
    """What one run of a schedule gives, besides the gradients."""

    losses: Tensor
    """Of every micro-batch, float64, the same on every rank."""
    extra_losses: Tensor
    """Likewise, the sum over all stages; 0 where there is none."""
    timed: tuple[Timed, ...]
    """What this rank did, in seconds of time.monotonic, without the time it waited."""
    peak_live: int
    """Most micro-batches that this rank held at once, each chunk for itself."""


class _Held(NamedTuple):
    """What a chunk keeps of a micro-batch from forward to the end of backward."""

    x: Tensor | None
    """The activations that came in; None on the first stage."""
    roots: tuple[Tensor, ...]
    """Where backward begins: what was sent on, or the loss; and the extra loss."""
    queue: WeightQueue | None = None
    """Between I and W."""


LossOf = Callable[[Tensor, MicroBatch], Tensor]
ExtraLossOf = Callable[[nn.Module, MicroBatch], Tensor | None]


class Losses(NamedTuple):
    """What is to become small."""

    of_output: LossOf
    of_stage: ExtraLossOf | None


def run_schedule(
    schedule: Schedule,
    stages: Sequence[nn.Module],
    axis: Axis,
    micro_batches: Sequence[MicroBatch],
    loss_of: LossOf,
    *,
    extra_loss_of: ExtraLossOf | None = None,
    shape_of: Callable[[MicroBatch], Sequence[int]] | None = None,
    dtype: torch.dtype | None = None,
    autocast: torch.dtype | None = None,
) -> PipelineRun:
    """Add the gradients of a batch to the `.grad` of this rank's stages.

    loss = sum over micro-batches of loss_of(output of the last stage, micro-batch)

    Nothing is divided: a mean over the batch is a matter of `loss_of` (see `num_tokens` of
    `cross_entropy`).  With a tied head, `sync_tied` comes next.

    Args:
        schedule: what every rank does; the same on all ranks.
        stages: this rank's, by chunk; called with ids or activations and the settings of the
            micro-batch.
        axis: the pipeline; rank i of it does row i of the schedule.
        micro_batches: m of them, on every rank.
        loss_of: gives a scalar, on the last stage.
        extra_loss_of: gives a scalar of this stage or None, such as its share of the balance loss
            of experts; called after every forward, and added to the loss.
        shape_of: shape of the activations between stages; None is (B, T, D) of ids (B, T).
        dtype: of activations between stages; None is that of the first parameter here, which has
            to be the same on all ranks.
        autocast: dtype in which stages compute forward, such as torch.bfloat16; None is as given.

    Raises:
        ValueError: before anything is sent, if the schedule cannot be run or does not fit axis,
            stages or micro-batches; later, if a stage gives activations of another shape or dtype.
    """
    _check_fit(schedule, stages, axis, micro_batches)
    if shape_of is None:
        width = cast(ModelConfig, stages[0].config).width  # nn.Module hides its type
        shapes = [(*each.inputs.shape, width) for each in micro_batches]
    else:
        shapes = [tuple(shape_of(each)) for each in micro_batches]
    like = next(stages[0].parameters()).detach()
    like = like.new_empty(0, dtype=dtype or like.dtype)
    mail = P2P(schedule, axis, shapes, like=like)
    losses = Losses(loss_of, extra_loss_of)
    worker = _Worker(schedule, stages, micro_batches, losses, mail=mail, autocast=autocast)
    for action in schedule.actions[axis.index]:
        worker.do(action)
    worker.mail.finish()
    # Every entry is one rank's own, and the others add 0 to it.
    table = collectives.all_reduce(worker.table, axis)
    return PipelineRun(table[-1], table[:-1].sum(0), tuple(worker.timed), worker.peak_live)


class _Worker:
    """One rank in the middle of a schedule."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[nn.Module],
        micro_batches: Sequence[MicroBatch],
        losses: Losses,
        *,
        mail: P2P,
        autocast: torch.dtype | None,
    ) -> None:
        self.schedule, self.stages, self.micro_batches = schedule, stages, micro_batches
        self.losses, self.mail, self.autocast = losses, mail, autocast
        self.rank, self.device = mail.axis.index, mail.like.device
        self.held: dict[tuple[int, int], _Held] = {}
        self.peak_live = 0
        self.timed: list[Timed] = []
        # Extra losses by stage, and the losses below them.
        self.table = torch.zeros(
            schedule.num_stages + 1, len(micro_batches), dtype=torch.float64, device=self.device
        )

    def do(self, action: Action) -> None:
        """Wait for what an action needs, do it, note how long it took, and send what it gives."""
        needed = needs(self.schedule, self.rank, action)
        given = None if needed is None else self.mail.receive(needed)
        part = {"F": self.forward, "B": self.backward, "I": self.first_half, "W": self.second_half}
        start = time.monotonic()
        result = part[action.kind](action, given)
        self.timed.append(Timed(action, start, time.monotonic()))
        if result is not None:
            self.mail.send(action, result)

    def forward(self, action: Action, x: Tensor | None) -> Tensor | None:
        """Run a chunk forward; return what the next stage takes."""
        stage = self.schedule.stage(self.rank, action)
        batch, module = self.micro_batches[action.micro_batch], self.stages[action.chunk]
        if x is not None:
            x.requires_grad_()
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            y = module(batch.inputs if x is None else x, **(batch.settings or {}))
        is_last = stage == self.schedule.num_stages - 1
        if is_last:
            y = self.losses.of_output(y, batch)
            self.table[-1, action.micro_batch] = y.detach()
        else:
            self._check_message(y, action)
        extra = self.losses.of_stage(module, batch) if self.losses.of_stage else None
        if extra is not None:
            self.table[stage, action.micro_batch] = extra.detach()
        self.held[action[1:]] = _Held(x, (y,) if extra is None else (y, extra))
        self.peak_live = max(self.peak_live, len(self.held))
        return None if is_last else y.detach()

    def backward(self, action: Action, dy: Tensor | None) -> Tensor | None:
        """Run a chunk backward; return the gradient that the stage before takes."""
        return _backward(self.held.pop(action[1:]), dy)

    def first_half(self, action: Action, dy: Tensor | None) -> Tensor | None:
        """Run a chunk backward without the gradients of its matrices."""
        held = self.held[action[1:]]
        with deferred_weight_grads() as queue:
            dx = _backward(held, dy)
        self.held[action[1:]] = _Held(None, (), queue)  # what the graph kept is free
        return dx

    def second_half(self, action: Action, _: Tensor | None) -> None:
        """Compute the gradients of the matrices."""
        queue = self.held.pop(action[1:]).queue
        assert queue is not None  # I has left it
        queue.run()

    def _check_message(self, y: Tensor, action: Action) -> None:
        wanted, dtype = self.mail.shapes[action.micro_batch], self.mail.like.dtype
        if y.shape != wanted or y.dtype != dtype:
            raise ValueError(
                f"{action} on rank {self.rank} gives activations {tuple(y.shape)} of {y.dtype}, "
                f"where {wanted} of {dtype} are expected: set shape_of and dtype"
            )


def _backward(held: _Held, dy: Tensor | None) -> Tensor | None:
    """Let autograd go back through a chunk; return the gradient of what came in."""
    # What the chunk returned is the first root and has dy; an extra loss is its own beginning.
    gradients = [dy, None][: len(held.roots)]
    pairs = [each for each in zip(held.roots, gradients, strict=True) if each[0].requires_grad]
    if pairs:  # else the chunk is frozen, and so is all before it
        roots, dys = zip(*pairs, strict=True)
        torch.autograd.backward(roots, dys)
    if held.x is None:
        return None
    return torch.zeros_like(held.x) if held.x.grad is None else held.x.grad


def _check_fit(
    schedule: Schedule,
    stages: Sequence[nn.Module],
    axis: Axis,
    micro_batches: Sequence[MicroBatch],
) -> None:
    given = {
        "ranks along the axis": (axis.size, schedule.num_ranks),
        "stages on this rank": (len(stages), schedule.num_chunks),
        "micro-batches": (len(micro_batches), schedule.num_micro_batches),
    }
    for name, (found, wanted) in given.items():
        if found != wanted:
            raise ValueError(f"the schedule {schedule.name} is for {wanted} {name}, got {found}")
    validate(schedule)
