"""What ranks run in the tests of pipelines, and what it is compared with in one process."""

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import torch
from parallel_kit import patched
from torch import Tensor, nn

from llmcourse import optim
from llmcourse.loss import IGNORE_INDEX, cross_entropy
from llmcourse.model import ModelConfig, Transformer, auxiliary_loss
from llmcourse.model.attention import document_mask
from llmcourse.parallel import pipeline
from llmcourse.parallel.pipeline import MicroBatch, Schedule, Stage, execute, mail

HEADS = {"num_heads": 3, "num_kv_heads": 1, "head_size": 4, "tied_head": False}
CONFIG = ModelConfig(num_layers=8, width=12, hidden=20, vocab_size=37, context_length=9, **HEADS)
"""Eight layers, so that four ranks can have two stages each."""

EXPERTS = {"num_experts": 4, "experts_per_token": 2, "balance_weight": 0.3}
MODELS = {
    "untied": CONFIG,
    "tied": replace(CONFIG, tied_head=True),
    "uneven": replace(CONFIG, num_layers=7),
    "mixture": replace(CONFIG, num_layers=4, **EXPERTS),
}


def made(name: str, dtype: str = "float32") -> Transformer:
    """Return a model with gains that are not 1 and gradients that are not tiny."""
    g = torch.Generator().manual_seed(1)
    model = Transformer(MODELS[name], generator=g)
    model = model.to(getattr(torch, dtype))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g, dtype=torch.float64).to(p.dtype))
    return model


def batches(step: int, m: int, *, packed: bool = False) -> list[MicroBatch]:
    """Return micro-batches in which some targets are masked, another number in each."""
    g = torch.Generator().manual_seed(step)
    found = []
    for k in range(m):
        ids, targets = (torch.randint(0, 37, (2, 5), generator=g) for _ in range(2))
        targets[0, : k % 4] = IGNORE_INDEX
        settings = {}
        if packed:
            documents = torch.tensor([[0, 0, 0, 1, 1], [0] * 5])
            positions = torch.tensor([[0, 1, 2, 0, 1], list(range(5))])
            settings = {"positions_BT": positions, "mask": document_mask(documents)}
        found.append(MicroBatch(ids, targets, {**settings, "routings": []}))
    return found


def loss_over(micro: Sequence[MicroBatch]) -> Callable[[Tensor, MicroBatch], Tensor]:
    """Return the loss of a micro-batch, divided by the tokens that count in all of them."""
    num_tokens = sum(int((each.targets != IGNORE_INDEX).sum()) for each in micro)
    return lambda logits, each: cross_entropy(logits, each.targets, num_tokens=num_tokens)


def untie(model: Transformer) -> None:
    model.config = replace(model.config, tied_head=False)
    model.head = nn.Parameter(model.embedding.detach().clone())


def sizes(name: str, m: int, dtype: str) -> Tensor:
    """Return the sum of the magnitudes of all gradients that the embedding of a tied model gets."""
    model = made(name, dtype)
    untie(model)
    micro, total = batches(0, m), torch.zeros_like(model.embedding)
    loss_of = loss_over(micro)
    for each in micro:
        loss = loss_of(model(each.inputs), each)
        first, last = torch.autograd.grad(loss, [model.embedding, model.head])
        total = total + first.abs() + last.abs()
    return total.detach()


class Trace(NamedTuple):
    gradients: list[dict[str, Any]]
    weights: list[dict[str, Any]]
    losses: list[Any]
    extra: list[Any]


def _adamw(parameters: list[nn.Parameter]) -> optim.AdamW:
    return optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)


def alone(name, m, *, dtype="float32", steps=3, packed=False, autocast=None, split=False) -> Trace:
    """Train in one process, adding up the gradients of the micro-batches in their order.

    With `split`, a tied head has a matrix of its own, whose gradient is added to the
    embedding's at the end of a step.
    """
    model = made(name, dtype)
    if split:
        untie(model)
    trained = [p for n, p in model.named_parameters() if not (split and n == "head")]
    optimizer, trace = _adamw(trained), Trace([], [], [], [])
    for step in range(steps):
        micro = batches(step, m, packed=packed)
        loss_of, losses, extras = loss_over(micro), [], []
        for each in micro:
            with torch.autocast("cpu", autocast, enabled=autocast is not None):
                routings = []
                logits = model(each.inputs, **{**each.settings, "routings": routings})
            loss, extra = loss_of(logits, each), auxiliary_loss(routings, model.config)
            losses.append(loss.item())
            extras.append(0.0 if extra is None else extra.item() / m)
            (loss if extra is None else loss + extra / m).backward()
        if split:
            model.embedding.grad = model.embedding.grad + model.head.grad
        _note(trace, dict(model.named_parameters()), losses, extras)
        optimizer.step()
        optimizer.zero_grad()
        if split:
            with torch.no_grad():
                model.head.copy_(model.embedding)
            model.head.grad = None
        trace.weights.append({n: p.detach().clone() for n, p in model.named_parameters()})
    return trace


def _note(trace: Trace, parameters: dict[str, nn.Parameter], losses: Any, extras: Any) -> None:
    trace.gradients.append(
        {n: p.new_zeros(()) if p.grad is None else p.grad.clone() for n, p in parameters.items()}
    )
    trace.losses.append(losses)
    trace.extra.append(extras)


def schedule_named(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """Return a schedule, with fewer micro-batches than ranks, too."""
    if name == "interleaved":
        return pipeline.interleaved(p, m, v)
    return getattr(pipeline, "one_f_one_b" if name == "1f1b" else name)(p, m)


def stages_for(schedule: Schedule, model: Transformer, rank: int) -> list[Stage]:
    p, v = schedule.num_ranks, schedule.num_chunks
    return pipeline.cut(model, p, rank, v, v_shape=schedule.v_shape)


def written(*rows: str, m: int = 4, v: int = 1) -> Schedule:
    actions = tuple(map(pipeline.actions_of, rows))
    sizes = {"num_ranks": len(rows), "num_micro_batches": m, "num_chunks": v}
    return Schedule(name="own", actions=actions, **sizes)


def follow(rank, name, schedule, *, dtype="float32", steps=3, packed=False, autocast=None) -> Trace:
    """Train as `alone` does, this rank with its stages alone."""
    axis = rank.axis("pp")
    stages = stages_for(schedule, made(name, dtype), axis.index)
    parameters = {n: w for each in stages for n, w in each.named_parameters()}
    optimizer, trace = _adamw(list(parameters.values())), Trace([], [], [], [])
    m = schedule.num_micro_batches
    settings = {"extra_loss_of": _share_of(m), "autocast": autocast}
    for step in range(steps):
        micro = settings_for(batches(step, m, packed=packed), axis)
        run = pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro), **settings)
        pipeline.sync_tied(stages, axis)
        _note(trace, parameters, run.losses.tolist(), run.extra_losses.tolist())
        optimizer.step()
        optimizer.zero_grad()
        trace.weights.append({n: w.detach().clone() for n, w in parameters.items()})
    return trace


def settings_for(micro: list[MicroBatch], axis) -> list[MicroBatch]:
    """Return what a rank needs of micro-batches: all of it."""
    return micro


def _share_of(m: int) -> Callable[[nn.Module, MicroBatch], Tensor | None]:
    def share(each: nn.Module, batch: MicroBatch) -> Tensor | None:
        loss = auxiliary_loss(batch.settings["routings"], each.config)
        batch.settings["routings"].clear()
        return None if loss is None else loss / m

    return share


def follow_all(rank, name: str, schedules: list[Schedule], **settings: Any) -> list[Trace]:
    return [follow(rank, name, schedule, **settings) for schedule in schedules]


def reversed_order(schedule: Schedule) -> Schedule:
    """Return a schedule, just as valid, that takes the micro-batches from the last to the first."""
    last = schedule.num_micro_batches - 1

    def reverse(row: tuple) -> tuple:
        return tuple(action._replace(micro_batch=last - action.micro_batch) for action in row)

    return replace(schedule, actions=tuple(map(reverse, schedule.actions)))


# Faults that the comparison has to notice
def _tripled(held: Any, dy: Tensor | None) -> Tensor | None:
    """Every gradient is that of a sum, where the loss that is shown is a mean."""
    if dy is None:
        held = held._replace(roots=(held.roots[0] * 3, *held.roots[1:]))
    return BACKWARD(held, dy)


def _without_the_last_one(self: Any, action: pipeline.Action) -> None:
    """The gradients of the last micro-batch are computed, sent, and not added."""
    weights = [w for each in self.stages for w in each.parameters()]
    before = [None if w.grad is None else w.grad.clone() for w in weights]
    DO(self, action)
    if action.kind != "F" and action.micro_batch == len(self.micro_batches) - 1:
        for w, gradient in zip(weights, before, strict=True):
            w.grad = gradient


def _stale(kinds: str) -> Callable[[Any, Any], Tensor]:
    """Every message is the one that came before it; the first one is right."""

    def late(self: mail.P2P, sender: Any) -> Tensor:
        x = RECEIVE(self, sender)
        if sender.action.kind not in kinds:
            return x
        kept = self.__dict__.setdefault("stale", {})
        old = kept.get(sender.action.chunk, x)
        kept[sender.action.chunk] = x.clone()
        return old

    return late


def _first_come(self: mail.P2P, sender: Any) -> Tensor:
    """What comes next from a rank is taken for what is wanted."""
    self._next(sender.rank)
    return self._arrived.pop(next(reversed(self._arrived)))


def _on_the_first(micro: list[MicroBatch], axis) -> list[MicroBatch]:
    return [each._replace(settings={"routings": []}) for each in micro] if axis.index else micro


BACKWARD, DO = execute._backward, execute._Worker.do
LOSSES, RECEIVE = execute.Losses, mail.P2P.receive
MUTANTS = {
    "not divided": patched(execute, _backward=_tripled),
    "last micro-batch dropped": patched(execute._Worker, do=_without_the_last_one),
    "stale activations": patched(mail.P2P, receive=_stale("F")),
    "stale gradients": patched(mail.P2P, receive=_stale("BI")),
    "whatever comes next": patched(mail.P2P, receive=_first_come),
    "no gradients of weights": patched(
        execute._Worker, second_half=lambda self, action, _: self.held.pop(action[1:])
    ),
    "tied gradients not summed": patched(pipeline, sync_tied=lambda stages, axis: None),
    "no balance loss": patched(execute, Losses=lambda of_output, _: LOSSES(of_output, None)),
    "settings stay on the first rank": patched(sys.modules[__name__], settings_for=_on_the_first),
}


# What is held in memory
class Token:
    """Stands for a tensor that autograd saved, and says for which action."""

    alive: set = set()  # noqa: RUF012 - of one process, emptied before use

    def __init__(self, x: Tensor, label: tuple[int, int]) -> None:
        self.x, self.label = x, label
        self.alive.add((id(self), label))

    def __del__(self) -> None:
        self.alive.discard((id(self), self.label))


def held_for_ever(rank, name: str, schedule: Schedule) -> tuple[int, int]:
    """Measure an executor that never lets go of what autograd has saved."""
    kept = []

    def clinging(each: Any, dy: Tensor | None) -> Tensor | None:
        kept.append(each)
        torch.autograd.backward(each.roots, [dy] * len(each.roots), retain_graph=True)
        return None if each.x is None else each.x.grad

    with mock.patch.object(execute, "_backward", clinging):
        return held(rank, name, schedule)


def held(rank, name: str, schedule: Schedule) -> tuple[int, int]:
    """Return the peak that the executor counts, and that of the tensors that are really there.

    A micro-batch is there as long as autograd, or the queue between I and W, keeps one of them.
    """
    queues, peaks = weakref.WeakKeyDictionary(), [0]
    Token.alive.clear()

    def watched(self: Any, action: pipeline.Action) -> None:
        def pack(x: Tensor) -> Any:
            return x if x.is_leaf and x.requires_grad else Token(x, action[1:])

        def unpack(kept: Any) -> Tensor:
            return kept.x if isinstance(kept, Token) else kept

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            DO(self, action)
        for label, each in self.held.items():
            if each.queue is not None:
                queues.setdefault(each.queue, label)
        waiting = {label for queue, label in queues.items() if len(queue)}
        peaks.append(len(waiting | {label for _, label in Token.alive}))

    with mock.patch.object(execute._Worker, "do", watched):
        run = run_once(rank, schedule, stages_for(schedule, made(name), rank.axis("pp").index))
    return run.peak_live, max(peaks)


def outstanding(rank, schedule: Schedule) -> int:
    most, send = [0], mail.P2P.send

    def counted(self: mail.P2P, action: pipeline.Action, x: Tensor) -> None:
        send(self, action, x)
        most.append(sum(map(len, self._sent.values())))

    with mock.patch.object(mail.P2P, "send", counted):
        run_once(rank, schedule)
    return max(most)


# Whatever else is asked of the executor
def run_once(rank, schedule: Schedule, stages: Any = None, *, m: Any = None, **settings: Any):
    axis, m = rank.axis("pp"), m or schedule.num_micro_batches
    stages = stages or pipeline.cut(made("untied"), axis.size, axis.index)
    micro = batches(0, m)
    return pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro), **settings)


def timed(rank, schedule: Schedule) -> Any:
    return list(run_once(rank, schedule, stages_for(schedule, made("untied"), rank.index)).timed)


def odd_shape(each: MicroBatch) -> tuple[int, ...]:
    return (*each.inputs.shape, 13)


def refused(rank, schedule: Schedule, **settings: Any) -> tuple[str, int]:
    """Return why a run was refused, and how many bytes were sent until then."""
    before, said = rank.axis("pp").sent_bytes, ""
    try:
        run_once(rank, schedule, **settings)
    except ValueError as error:
        said = str(error)
    return said, rank.axis("pp").sent_bytes - before


def dies(rank, schedule: Schedule, who: int) -> None:
    stages = stages_for(schedule, made("untied"), rank.index)
    if rank.index == who:
        stages[0].register_forward_hook(lambda *_: os._exit(3))
    run_once(rank, schedule, stages)


def frozen(rank, schedule: Schedule) -> dict[str, Any]:
    stages = stages_for(schedule, made("untied"), rank.index)
    stages[0].requires_grad_(rank.index > 0)
    run_once(rank, schedule, stages)
    return {n: w.grad for n, w in stages[0].named_parameters()}
