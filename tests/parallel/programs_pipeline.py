"""What ranks run in the tests of pipelines, and what it is compared with in one process."""

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed import pipelining

from llmcourse import optim
from llmcourse.loss import IGNORE_INDEX, cross_entropy
from llmcourse.model import ModelConfig, Transformer, auxiliary_loss
from llmcourse.model.attention import document_mask
from llmcourse.parallel import pipeline
from llmcourse.parallel.pipeline import MicroBatch, Schedule, Stage, execute, mail

CONFIG = ModelConfig(
    num_layers=8,
    width=12,
    num_heads=3,
    num_kv_heads=1,
    head_size=4,
    hidden=20,
    vocab_size=37,
    context_length=9,
    tied_head=False,
)
"""Eight layers, so that four ranks can have two stages each."""

MODELS = {
    "untied": CONFIG,
    "tied": replace(CONFIG, tied_head=True),
    "uneven": replace(CONFIG, num_layers=7),
    "mixture": replace(
        CONFIG, num_layers=4, num_experts=4, experts_per_token=2, balance_weight=0.3
    ),
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


def sizes(name: str, m: int, dtype: str) -> Tensor:
    """Return the sum of the magnitudes of all gradients that the embedding of a tied model gets."""
    model = made(name, dtype)
    model.config = replace(model.config, tied_head=False)
    model.head = nn.Parameter(model.embedding.detach().clone())
    micro, total = batches(0, m), torch.zeros_like(model.embedding)
    loss_of = loss_over(micro)
    for each in micro:
        loss = loss_of(model(each.inputs), each)
        first, last = torch.autograd.grad(loss, [model.embedding, model.head])
        total = total + first.abs() + last.abs()
    return total.detach()


class Trace(NamedTuple):
    """What training leaves, after every step."""

    gradients: list[dict[str, Any]]
    weights: list[dict[str, Any]]
    losses: list[Any]
    extra: list[Any]


def _adamw(parameters: list[nn.Parameter]) -> optim.AdamW:
    return optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)


def alone(
    name: str,
    m: int,
    *,
    dtype: str = "float32",
    steps: int = 3,
    packed: bool = False,
    autocast: torch.dtype | None = None,
    split_embedding: bool = False,
) -> Trace:
    """Train in one process, adding up the gradients of the micro-batches in their order.

    With `split_embedding`, a tied head has a matrix of its own, whose gradient is added to the
    embedding's at the end of a step.
    """
    model = made(name, dtype)
    if split_embedding:
        model.config = replace(model.config, tied_head=False)
        model.head = nn.Parameter(model.embedding.detach().clone())
    trained = [p for n, p in model.named_parameters() if not (split_embedding and n == "head")]
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
        if split_embedding:
            model.embedding.grad = model.embedding.grad + model.head.grad
        _note(trace, dict(model.named_parameters()), losses, extras)
        optimizer.step()
        optimizer.zero_grad()
        if split_embedding:
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
    makers = {
        "dualpipe_v": pipeline.dualpipe_v,
        "gpipe": pipeline.gpipe,
        "1f1b": pipeline.one_f_one_b,
        "zero_bubble": pipeline.zero_bubble,
    }
    return makers[name](p, m)


def stages_for(schedule: Schedule, model: Transformer, rank: int) -> list[Stage]:
    """Return the stages that a schedule gives to a rank."""
    p, v = schedule.num_ranks, schedule.num_chunks
    return pipeline.cut(model, p, rank, v, v_shape=schedule.v_shape)


def written(*rows: str) -> Schedule:
    """Return a schedule of 4 micro-batches that is written out."""
    return Schedule(
        name="own",
        num_ranks=len(rows),
        num_micro_batches=4,
        actions=tuple(map(pipeline.actions_of, rows)),
    )


def follow(
    rank,
    name: str,
    schedule: Schedule,
    *,
    dtype: str = "float32",
    steps: int = 3,
    packed: bool = False,
    autocast: torch.dtype | None = None,
    mutant: str | None = None,
) -> Trace:
    """Train as `alone` does, this rank with its stages alone."""
    axis = rank.axis("pp")
    stages = stages_for(schedule, made(name, dtype), axis.index)
    parameters = {n: w for each in stages for n, w in each.named_parameters()}
    optimizer, trace = _adamw(list(parameters.values())), Trace([], [], [], [])
    m = schedule.num_micro_batches
    with MUTANTS[mutant]() if mutant else contextlib.nullcontext():
        for step in range(steps):
            micro = batches(step, m, packed=packed)
            if mutant == "settings stay on the first rank" and axis.index:
                micro = [each._replace(settings={"routings": []}) for each in micro]
            run = pipeline.run_schedule(
                schedule,
                stages,
                axis,
                micro,
                loss_over(micro),
                extra_loss_of=_share_of(m),
                autocast=autocast,
            )
            pipeline.sync_tied(stages, axis)
            _note(trace, parameters, run.losses.tolist(), run.extra_losses.tolist())
            optimizer.step()
            optimizer.zero_grad()
            trace.weights.append({n: w.detach().clone() for n, w in parameters.items()})
    return trace


def _share_of(m: int) -> Callable[[nn.Module, MicroBatch], Tensor | None]:
    """Return what a stage adds to the loss of a micro-batch."""

    def share(each: nn.Module, batch: MicroBatch) -> Tensor | None:
        loss = auxiliary_loss(batch.settings["routings"], each.config)
        batch.settings["routings"].clear()
        return None if loss is None else loss / m

    return share


def follow_all(rank, name: str, schedules: list[Schedule], **settings: Any) -> list[Trace]:
    """Train with one schedule after the other, from the same start."""
    return [follow(rank, name, schedule, **settings) for schedule in schedules]


def reversed_order(schedule: Schedule) -> Schedule:
    """Return a schedule, just as valid, that takes the micro-batches from the last to the first."""
    last = schedule.num_micro_batches - 1
    rows = tuple(
        tuple(a._replace(micro_batch=last - a.micro_batch) for a in row) for row in schedule.actions
    )
    return replace(schedule, actions=rows)


# Faults that the comparison has to notice


@contextlib.contextmanager
def _not_divided() -> Iterator[None]:
    """Every gradient is that of a sum, where the loss that is shown is a mean."""
    backward = execute._backward

    def tripled(held: Any, dy: Tensor | None) -> Tensor | None:
        if dy is None:
            held = held._replace(roots=(held.roots[0] * 3, *held.roots[1:]))
        return backward(held, dy)

    with mock.patch.object(execute, "_backward", tripled):
        yield


@contextlib.contextmanager
def _last_one_dropped() -> Iterator[None]:
    """The gradients of the last micro-batch are computed, sent, and not added."""
    do = execute._Worker.do

    def forgetful(self: Any, action: pipeline.Action) -> None:
        weights = [w for each in self.stages for w in each.parameters()]
        before = [None if w.grad is None else w.grad.clone() for w in weights]
        do(self, action)
        if action.kind != "F" and action.micro_batch == len(self.micro_batches) - 1:
            for w, gradient in zip(weights, before, strict=True):
                w.grad = gradient

    with mock.patch.object(execute._Worker, "do", forgetful):
        yield


@contextlib.contextmanager
def _stale(kinds: str) -> Iterator[None]:
    """Every message is the one that came before it; the first one is right."""
    receive = mail.P2P.receive

    def late(self: mail.P2P, sender: Any) -> Tensor:
        x = receive(self, sender)
        if sender.action.kind not in kinds:
            return x
        kept = self.__dict__.setdefault("stale", {})
        old = kept.get(sender.action.chunk, x)
        kept[sender.action.chunk] = x.clone()
        return old

    with mock.patch.object(mail.P2P, "receive", late):
        yield


@contextlib.contextmanager
def _first_come() -> Iterator[None]:
    """What comes next from a rank is taken for what is wanted."""

    def hasty(self: mail.P2P, sender: Any) -> Tensor:
        self._next(sender.rank)
        return self._arrived.pop(next(reversed(self._arrived)))

    with mock.patch.object(mail.P2P, "receive", hasty):
        yield


LOSSES = execute.Losses
MUTANTS = {
    "not divided": _not_divided,
    "last micro-batch dropped": _last_one_dropped,
    "stale activations": lambda: _stale("F"),
    "stale gradients": lambda: _stale("BI"),
    "whatever comes next": _first_come,
    "no gradients of weights": lambda: mock.patch.object(
        execute._Worker, "second_half", lambda self, action, _: self.held.pop(action[1:]) and None
    ),
    "tied gradients not summed": lambda: mock.patch.object(pipeline, "sync_tied"),
    "no balance loss": lambda: mock.patch.object(
        execute, "Losses", lambda of_output, _: LOSSES(of_output, None)
    ),
    "settings stay on the first rank": contextlib.nullcontext,
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
    axis = rank.axis("pp")
    stages = stages_for(schedule, made(name), axis.index)
    do, peaks = execute._Worker.do, [0]
    queues: Any = weakref.WeakKeyDictionary()
    Token.alive.clear()

    def watched(self: Any, action: pipeline.Action) -> None:
        def pack(x: Tensor) -> Any:
            return x if x.is_leaf and x.requires_grad else Token(x, action[1:])

        hooks = torch.autograd.graph.saved_tensors_hooks(
            pack, lambda kept: kept.x if isinstance(kept, Token) else kept
        )
        with hooks:
            do(self, action)
        for label, each in self.held.items():
            if each.queue is not None:
                queues.setdefault(each.queue, label)
        waiting = {label for queue, label in queues.items() if len(queue)}
        peaks.append(len(waiting | {label for _, label in Token.alive}))

    micro = batches(0, schedule.num_micro_batches)
    with mock.patch.object(execute._Worker, "do", watched):
        run = pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro))
    return run.peak_live, max(peaks)


def outstanding(rank, schedule: Schedule) -> int:
    """Return the most messages that were sent and kept at one time."""
    most, send = [0], mail.P2P.send

    def counted(self: mail.P2P, action: pipeline.Action, x: Tensor) -> None:
        send(self, action, x)
        most.append(sum(map(len, self._sent.values())))

    with mock.patch.object(mail.P2P, "send", counted):
        run_once(rank, schedule)
    return max(most)


# torch's own


class Plain(nn.Module):
    """A stage that takes what torch's executor passes on."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


def torchs(rank, kind: str, schedule: Schedule) -> tuple[dict[str, Any], Any]:
    """Return the gradients and losses of torch's own executor."""
    axis, v, m = rank.axis("pp"), schedule.num_chunks, schedule.num_micro_batches
    parts = stages_for(schedule, made("untied"), axis.index)
    micro = batches(0, m)
    numbers = [schedule.stage(axis.index, pipeline.Action("F", 0, chunk)) for chunk in range(v)]
    stages = [
        pipelining.PipelineStage(
            Plain(part), number, schedule.num_stages, torch.device("cpu"), group=axis.group
        )
        for number, part in zip(numbers, parts, strict=True)
    ]
    loss_of, losses = loss_over(micro), []
    made_by = getattr(pipelining.schedules, kind)(
        stages if v > 1 else stages[0],
        m,
        loss_fn=lambda logits, targets: loss_of(logits, MicroBatch(None, targets)),
        scale_grads=False,
    )
    ids = torch.cat([each.inputs for each in micro])
    targets = torch.cat([each.targets for each in micro])
    last = parts[-1].is_last
    made_by.step(
        *([ids] if axis.index == 0 else []),
        **({"target": targets, "losses": losses} if last else {}),
    )
    gradients = {n: w.grad for part in parts for n, w in part.named_parameters()}
    return gradients, [loss.item() for loss in losses]


# Whatever else is asked of the executor


def timed(rank, schedule: Schedule) -> Any:
    """Return what a rank did, and when."""
    stages = stages_for(schedule, made("untied"), rank.index)
    micro = batches(0, schedule.num_micro_batches)
    run = pipeline.run_schedule(schedule, stages, rank.axis("pp"), micro, loss_over(micro))
    return list(run.timed)


def wrong_shape(each: MicroBatch) -> tuple[int, ...]:
    """Return the shape of other activations than there are."""
    return (*each.inputs.shape, 13)


def run_once(rank, schedule: Schedule, **settings: Any) -> None:
    """Run a schedule."""
    axis = rank.axis("pp")
    stages = pipeline.cut(made("untied"), axis.size, axis.index)
    micro = batches(0, schedule.num_micro_batches)
    pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro), **settings)


def refused(rank, schedule: Schedule, **settings: Any) -> tuple[str, int]:
    """Return why a run was refused, and how many bytes were sent until then."""
    axis, m = rank.axis("pp"), settings.pop("m", schedule.num_micro_batches)
    before = axis.sent_bytes
    stages = pipeline.cut(made("untied"), axis.size, axis.index)
    try:
        pipeline.run_schedule(
            schedule, stages, axis, batches(0, m), loss_over(batches(0, m)), **settings
        )
    except ValueError as error:
        return str(error), axis.sent_bytes - before
    return "", axis.sent_bytes - before


def dies(rank, schedule: Schedule, who: int) -> None:
    """Run a schedule in which one rank ends in the middle."""
    axis = rank.axis("pp")
    stages = pipeline.cut(made("untied"), axis.size, axis.index)
    if axis.index == who:
        stages[0].register_forward_hook(lambda *_: os._exit(3))
    micro = batches(0, schedule.num_micro_batches)
    pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro))


def frozen(rank, schedule: Schedule) -> dict[str, Any]:
    """Return the gradients where the layers of the first rank do not learn."""
    axis = rank.axis("pp")
    stages = pipeline.cut(made("untied"), axis.size, axis.index)
    stages[0].requires_grad_(axis.index > 0)
    micro = batches(0, schedule.num_micro_batches)
    pipeline.run_schedule(schedule, stages, axis, micro, loss_over(micro))
    return {n: w.grad for n, w in stages[0].named_parameters()}
