"""What ranks run in the tests of tensor parallelism, and what it is compared with."""

import contextlib
import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from parallel_kit import gradients_of, patched, weights_of
from torch import Tensor, nn

from llmcourse import optim
from llmcourse.backward.recompute import recomputed
from llmcourse.loss import IGNORE_INDEX, cross_entropy
from llmcourse.model import ModelConfig, Transformer
from llmcourse.model.attention import document_mask
from llmcourse.parallel import tensor_parallel as tp
from llmcourse.parallel.tensor_parallel import layers, loss, nodes, sharding, table
from llmcourse.parallel.world import MismatchError

BATCH, TIME = 3, 12
"""Sequences and positions; the width is 10, so that no two sizes of an activation are equal."""

HEADS = {"num_heads": 12, "num_kv_heads": 12, "head_size": 4}
EVEN = ModelConfig(num_layers=2, width=10, hidden=36, vocab_size=48, context_length=24, **HEADS)
CONFIGS = {
    "tied": EVEN,
    "untied": replace(EVEN, tied_head=False, num_heads=24, qk_norm=True),
    "two kv heads": replace(EVEN, num_kv_heads=2, qk_norm=True),
    "one kv head": replace(EVEN, num_kv_heads=1, tied_head=False),
}
"""Cut by 1, 2, 3 and 4; the last two by copying key/value heads (two of them by 1, 2 and 4)."""

LONGEST_SUM = 96
"""Terms of the longest sum of a step: a token's heads side by side, where there are 24."""

ADAM_EPS = 1e-2
"""Of AdamW: an error of a gradient moves a weight by at most about lr / eps times it, per step."""


def copied(name: str) -> bool:
    """Whether key/value heads are copied where there are fewer than ranks."""
    return "kv head" in name


def sharded(model: Transformer, name: str, axis, *, sequence_parallel: bool = False):
    return tp.shard(model, axis, sequence_parallel=sequence_parallel, replicate_kv=copied(name))


def made(name: str, seed: int = 0) -> Transformer:
    """Return a model whose gains are not 1 and whose weights are not small."""
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(CONFIGS[name])
    with torch.no_grad():
        for parameter_name, p in model.named_parameters():
            p.normal_(0.0, 0.3, generator=generator)
            if parameter_name.endswith("gain"):
                p.add_(1.0)
    return model.double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return ids and targets, some of them ignored, other ones at every step."""
    generator = torch.Generator().manual_seed(step)
    ids, targets = torch.randint(0, EVEN.vocab_size, (2, BATCH, TIME), generator=generator)
    targets[0, :4] = IGNORE_INDEX
    targets[2, 7] = IGNORE_INDEX
    return ids, targets


class Trace(NamedTuple):
    losses: list[float]
    logits: Any  # at the first step
    before: dict[str, Any]  # parameters, by name
    unsynced: dict[str, Any]  # gradients of the first step, before they are summed
    gradients: dict[str, Any]  # of the first step
    parameters: dict[str, Any]  # after the last step


LEARNING_RATE, STEPS = 1e-2, 3


def alone(name: str, steps: int = STEPS) -> Trace:
    return trained(made(name), steps, cross_entropy, lambda: None)


def follow(rank, name: str, *, sequence_parallel: bool, steps: int = STEPS) -> Trace:
    axis = rank.axis("dp")
    model = sharded(made(name), name, axis, sequence_parallel=sequence_parallel)

    def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
        return tp.cross_entropy(logits, targets, axis)

    return trained(model, steps, loss_of, lambda: sharding.sync(model, axis))


def trained(model, steps, loss_of, sync) -> Trace:
    before = weights_of(model)
    losses = []
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1, eps=ADAM_EPS)
    for step in range(steps):
        ids, targets = batch(step)
        logits = model(ids)
        value = loss_of(logits, targets)
        value.backward()
        if step == 0:
            unsynced, first = gradients_of(model), logits.detach().clone()
        sync()
        if step == 0:
            gradients = gradients_of(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    return Trace(losses, first, before, unsynced, gradients, weights_of(model))


# What is asked of a model beside training
def asked_in_every_way(model: Transformer, *, sequence_parallel: bool) -> dict[str, Tensor]:
    left_out = ["cached"] * sequence_parallel
    return {how: ask(model, batch(0)[0]) for how, ask in WAYS.items() if how not in left_out}


def logits_of(rank, name: str, *, sequence_parallel: bool) -> dict[str, Tensor]:
    model = sharded(made(name), name, rank.axis("dp"), sequence_parallel=sequence_parallel)
    with torch.no_grad():
        return asked_in_every_way(model, sequence_parallel=sequence_parallel)


def packed(model: Transformer, ids_BT: Tensor) -> Tensor:
    """Ask for several documents in a row."""
    documents_BT = torch.tensor([[0] * 5 + [1] * 7, [0] * 12, [0] * 3 + [1] * 3 + [2] * 6])
    positions_BT = torch.tensor([[*range(5), *range(7)], [*range(12)], [0, 1, 2] * 2 + [*range(6)]])
    return model(ids_BT, positions_BT=positions_BT, mask=document_mask(documents_BT))


def by_parts(model: Transformer, ids_BT: Tensor) -> Tensor:
    """Call the parts one at a time, as stages of a pipeline do."""
    x = model.look_up(ids_BT, model.embedding)
    rotations_TJ2 = model.rotations_of(ids_BT.shape[1])
    for block in model.blocks:
        x = block(x, rotations_TJ2)
    return model.project(model.norm(x), model.head_weight)


def cached(model: Transformer, ids_BT: Tensor) -> Tensor:
    cache = model.new_cache(len(ids_BT))
    parts = [model(part, cache=cache) for part in ids_BT.split([5, *[1] * 7], dim=1)]
    return torch.cat(parts, dim=1)


WAYS = {
    "forward": lambda model, ids_BT: model(ids_BT),
    "packed": packed,
    "by parts": by_parts,
    "cached": cached,
    "copied": lambda model, ids_BT: copy.deepcopy(model)(ids_BT),
}


class Part(nn.Module):
    """Some blocks of a model, under the names that they have in it."""

    def __init__(self, model: Transformer, layers_held: list[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in layers_held})


def synced_by_parts(rank, name: str) -> list[dict[str, Tensor]]:
    """Sum the gradients of each layer on its own, and those of a copy at once; return both."""
    axis = rank.axis("dp")
    found = []
    for parts in (False, True):
        model = sharded(made(name), name, axis)
        ids, targets = batch(0)
        with recomputed(model, "block") if parts else contextlib.nullcontext():
            tp.cross_entropy(model(ids), targets, axis).backward()
        for part in [Part(model, [i]) for i in range(2)] if parts else [model]:
            tp.sync(part, axis)
        found.append(gradients_of(model))
    return found


def refused(rank) -> dict[str, str]:
    """Return what is said of a start from other weights, of time, ids and targets out of range."""
    axis = rank.axis("dp")
    found = {}
    with contextlib.suppress(MismatchError):
        tp.shard(made("tied", seed=rank.index), axis)
        found["weights"] = "not noticed"
    model = tp.shard(made("tied"), axis, sequence_parallel=True)
    ids, targets = batch(0)
    calls = {
        "time": lambda: model(ids[:, :7]),
        "id": lambda: model(ids + 48),
        "target": lambda: tp.token_losses(model(ids), targets + 48, axis),
        "nothing": lambda: tp.cross_entropy(model(ids), targets * 0 + IGNORE_INDEX, axis),
        "again": lambda: tp.shard(model, axis),
        "number": lambda: tp.cross_entropy(model(ids), targets, axis, num_tokens=0),
        "whole": lambda: tp.sync(made("tied"), axis),
    }
    for what, call in calls.items():
        try:
            call()
        except (ValueError, IndexError) as error:
            found[what] = str(error)
    return found


def sent(rank, name: str, *, sequence_parallel: bool) -> int:
    """Return the bytes that this rank sends in one step, which the log of messages tells of."""
    axis = rank.axis("dp")
    model = sharded(made(name), name, axis, sequence_parallel=sequence_parallel)
    before = axis.sent_bytes
    ids, targets = batch(0)
    tp.cross_entropy(model(ids), targets, axis).backward()
    tp.sync(model, axis)
    return axis.sent_bytes - before


def losses_of(rank, dtype: str) -> dict[str, Tensor]:
    """Return the loss of every token, and the gradient of its logits under random weights."""
    axis = rank.axis("dp")
    logits, targets, weights = loss_inputs(getattr(torch, dtype))
    logits = logits.chunk(axis.size, dim=-1)[axis.index].clone().requires_grad_()
    losses = tp.token_losses(logits, targets, axis)
    (losses * weights).sum().backward()
    return {"losses": losses.detach(), "dlogits": logits.grad}


def loss_inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits whose largest would overflow exp in float32, targets, and weights."""
    generator = torch.Generator().manual_seed(3)
    logits = 30 * torch.randn(BATCH, TIME, 48, generator=generator, dtype=torch.float64)
    weights = torch.randn(BATCH, TIME, generator=generator, dtype=torch.float64)
    return logits.to(dtype), batch(1)[1], weights.to(dtype)


def largest(rank, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank.index)
    return tp.all_reduce_max(torch.randn(length, generator=generator), rank.axis("dp"))


# torch's own tensor parallelism
def mlp_inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = [(BATCH, TIME, 10), (36, 10), (36,), (10, 36), (10,), (BATCH, TIME, 10)]
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def our_mlp(rank) -> list[Tensor]:
    axis = rank.axis("dp")
    x, w_up, b_up, w_down, b_down, dy = mlp_inputs()
    mine = [x, w_up.chunk(axis.size)[axis.index], b_up.chunk(axis.size)[axis.index]]
    mine += [w_down.chunk(axis.size, dim=1)[axis.index], b_down]
    mine = [t.clone().requires_grad_() for t in mine]
    up = F.linear(layers.enter_tp(mine[0], axis), mine[1], mine[2])
    y = layers.leave_tp(F.linear(up.relu(), mine[3]), axis) + mine[4]
    (y * dy).sum().backward()
    return [y.detach(), *(t.grad for t in mine)]


def torchs_mlp(rank) -> list[Tensor]:
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415 - slow, and for one test
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    x, *weights, dy = mlp_inputs()
    model = nn.Sequential(nn.Linear(10, 36), nn.ReLU(), nn.Linear(36, 10)).double()
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights, strict=True):
            p.copy_(w)
    mesh = torch.distributed.init_device_mesh("cpu", (rank.size,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x.requires_grad_()
    y = model(x)
    (y * dy).sum().backward()
    return [y.detach(), x.grad, *(p.grad.to_local() for p in model.parameters())]


# Mutants
def _own_stretch(x_BTD, axis, name):
    return x_BTD.chunk(axis.size, dim=1)[axis.index].contiguous()


def _from_zero(ids, num_rows, axis):
    return ids.clamp(0, num_rows - 1), (ids >= 0) & (ids < num_rows)


def _all_mine(ids, num_rows, axis):
    return OWN_ROWS(ids, num_rows, axis)[0], torch.ones_like(ids, dtype=torch.bool)


def _never(kind):
    """Return a table in which one kind of gradient is taken to be complete."""

    def summed_over(name, *args, **settings):
        style = table.style_of(name)
        return None if style.partial == kind else table.summed_over(name, *args, **settings)

    return summed_over


def _sums_all_gains(name, *args, **settings):
    return "axis" if name.endswith("gain") else table.summed_over(name, *args, **settings)


def _next_slice(name, shape, config, index, size, **settings):
    return table.slice_of(name, shape, config, (index + 1) % size, size, **settings)


def _ignored_too(dlosses_N, saved):
    return LOSS_BACKWARD(dlosses_N, saved._replace(counted_N=torch.ones_like(saved.counted_N)))


OWN_ROWS, SYNC, LOSS_BACKWARD = layers.own_rows, sharding.sync, loss.token_losses_backward
MUTANTS = {
    "f and g are swapped": patched(layers, f=nodes.g, g=nodes.f),
    "parts are not summed": patched(layers, g=lambda x, axis: x),
    "gradients of inputs are not summed": patched(layers, f=lambda x, axis: x),
    "g sums its gradient too": patched(
        layers, g=nodes._node("g", nodes.reduce_from_tp, nodes.reduce_from_tp)
    ),
    "time is gathered, its gradient not summed": patched(
        layers, gather_time=nodes._node("gather", nodes.gather_sequence, _own_stretch)
    ),
    "time is cut, its parts not summed": patched(
        layers, scatter_time=nodes._node("scatter", _own_stretch, nodes.gather_sequence)
    ),
    "the largest logit is this rank's": patched(loss, all_reduce_max=lambda x, axis: x),
    "exponentials are not summed": patched(loss, reduce_from_tp=lambda x, axis, name: x),
    "targets are counted from the rank's first": patched(loss, own_rows=_from_zero),
    "every rank adds a target": patched(loss, own_rows=_all_mine),
    "ids are counted from the rank's first": patched(layers, own_rows=_from_zero),
    "every rank adds a row": patched(layers, own_rows=_all_mine),
    "ignored targets are learned": patched(
        loss, _token_losses=loss.differentiable(loss.token_losses_forward, _ignored_too)
    ),
    "copies of heads are not summed": patched(sharding, summed_over=_never("where copied")),
    "gains of heads are not summed": patched(sharding, summed_over=_never("always")),
    "gains of tokens are not summed": patched(sharding, summed_over=_never("where time is cut")),
    "gains of tokens are always summed": patched(sharding, summed_over=_sums_all_gains),
    "gradients are summed twice": patched(sharding, sync=lambda *x: [SYNC(*x), SYNC(*x)]),
    "the next rank's slices": patched(sharding, slice_of=_next_slice),
}
