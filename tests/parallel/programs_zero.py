"""What ranks run in the tests of ZeRO, and what it is compared with in one process."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from parallel_kit import patched
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from llmcourse import optim
from llmcourse.backward.recompute import recompute, recomputed
from llmcourse.loss import cross_entropy
from llmcourse.model import Transformer, tiny, tiny_moe, without
from llmcourse.parallel import collectives, zero
from llmcourse.parallel.data_parallel import BucketedDDP
from llmcourse.parallel.zero import bucket, flat_layout, unit

OPTIMIZERS = {
    "ours": (optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "torch": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"lr": 1e-1, "momentum": 0.9}),
    "muon": (optim.Muon, {"lr": 1e-2, "num_steps": 2}),
}


class Unused(Transformer):
    """With a parameter that no loss reaches."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.unused = nn.Parameter(torch.ones(5))


class Again(nn.Module):
    """A block that backward computes again, which calls it from outside."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **settings: Any) -> Tensor:
        return recompute(self.block, *args, **settings)


def _again(model: Transformer) -> Transformer:
    model.blocks = nn.ModuleList(map(Again, model.blocks))
    return model


def _frozen(model: Transformer) -> Transformer:
    """Freeze the embedding, a whole block, and a part of the other."""
    for part in (model.embedding, model.blocks[0], model.blocks[1].attention):
        part.requires_grad_(False)
    return model


MODELS = {
    "tied": lambda g: Transformer(tiny(), generator=g),
    "untied": lambda g: Transformer(replace(tiny(), tied_head=False), generator=g),
    "mixture": lambda g: Transformer(tiny_moe(), generator=g),
    "without": lambda g: without(Transformer(tiny(), generator=g), "residual"),
    "unused": lambda g: Unused(tiny(), generator=g),
    "again": lambda g: _again(Transformer(tiny(), generator=g)),
    "frozen": lambda g: _frozen(Transformer(tiny(), generator=g)),
}


def made(name: str, seed: int = 0) -> Transformer:
    return MODELS[name](torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, step: int, rank: int, micro: int = 0) -> Tensor:
    """Return the loss of a model on a batch that is another one for every step, rank and micro."""
    g = torch.Generator().manual_seed(10_000 * step + 100 * rank + micro)
    ids, targets = (torch.randint(0, 300, (2, 7), generator=g) for _ in range(2))
    return cross_entropy(model(ids), targets)


def groups_of(model: nn.Module, optimizer: str) -> list[dict]:
    """Return parameter groups: two, and for Muon the matrices alone."""
    groups = optim.decay_groups(model, weight_decay=0.1)
    if optimizer == "muon":
        return [{"params": [p for p in model.parameters() if p.ndim == 2]}]
    if optimizer == "sgd":
        for group in groups:
            group["lr"] = 0.1 if group.pop("weight_decay") else 0.05
    return groups


class Trace(NamedTuple):
    parameters: list[dict[str, Any]]  # of the whole module, by name, after each step
    optimizer: dict[str, Any]  # state of the optimizer of whole parameters, at the end
    norms: list[float]  # of the gradient before clipping, by step
    before: Any  # the parameters before anything was done, as this rank had them
    sizes: Any = None  # sum over the ranks of the magnitudes of gradients, at the last step


def alone(name, num_ranks, steps=3, *, optimizer="ours", num_micro=1, clip=None, start=None):
    """Train in one process, adding up the gradients of all ranks' batches in the ranks' order."""
    model = made(name)
    optimizer_class, settings = OPTIMIZERS[optimizer]
    chosen = optimizer_class(groups_of(model, optimizer), **settings)
    if start is not None:
        model.load_state_dict(tensors(start.parameters[-1]), strict=False)
        chosen.load_state_dict(tensors(start.optimizer))
    params = list(model.parameters())
    before = nn.utils.parameters_to_vector(params).detach()
    parameters, norms, sizes = [], [], None
    for step in range(steps):
        by_rank = []
        for rank in range(num_ranks):
            for p in params:
                p.grad = torch.zeros_like(p)
            for micro in range(num_micro):
                loss_of(model, step, rank, micro).backward()
            by_rank.append([p.grad for p in params])
        for p, *mine in zip(params, *by_rank, strict=True):
            p.grad = sum(mine[1:], start=mine[0]) / num_ranks
        sizes = [sum(g.abs() for g in mine) for mine in zip(*by_rank, strict=True)]
        if clip is not None:
            norms.append(optim.clip_by_global_norm(params, clip))
        chosen.step()
        parameters.append(full_parameters(model))
    return Trace(parameters, chosen.state_dict(), norms, before, sizes)


def follow(
    rank,
    name: str,
    stage: int,
    steps: int = 3,
    *,
    optimizer: str = "ours",
    num_micro: int = 1,
    keep: bool = False,  # full gradients are added up by `no_sync`, else reduced batch by batch
    clip: float | None = None,
    again: str | None = None,  # is computed again in backward
    between: str | None = None,  # happens before each step, one of `BETWEEN`
    start: Trace | None = None,
    **settings: Any,
) -> Trace:
    """Train as `alone` does; each rank has its own batches, and parameters of its own at first."""
    nothing = contextlib.nullcontext()
    model = made(name, seed=rank.index)
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    if start is not None:
        model.load_state_dict(tensors(start.parameters[-1]), strict=False)
    run, chosen = wrapped(model, rank.axis("dp"), stage, optimizer=optimizer, **settings)
    synced = run if stage == 3 else chosen
    if start is not None and stage == 3:
        run.load_full_optimizer_state(chosen, tensors(start.optimizer))
    elif start is not None:
        chosen.load_full_state_dict(tensors(start.optimizer))
    parameters, norms = [], []
    for step in range(steps):
        if between is not None:
            BETWEEN[between](run)
            chosen.zero_grad()
        for micro in range(num_micro):
            last = micro == num_micro - 1
            with (
                recomputed(model, again) if again else nothing,
                synced.no_sync() if keep and not last else nothing,
            ):
                loss_of(run, step, rank.index, micro).backward()
            if stage < 3 and (last or not keep):
                chosen.sync()
        if clip is not None:
            norms.append(synced.clip_grad_norm(clip))
        chosen.step()
        chosen.zero_grad()
        parameters.append(full_parameters(run))
    state = run.full_optimizer_state(chosen) if stage == 3 else chosen.full_state_dict()
    return Trace(parameters, state, norms, before)


def scheduled(rank, steps: int = 6) -> tuple[list[float], np.ndarray]:
    """Train under two schedules of torch's; return the rates and the weights."""
    w = nn.Parameter(torch.linspace(-1, 1, 7))
    chosen = optim.AdamW([w], 0.1)
    if rank is not None:
        chosen = zero.ZeroOptimizer([w], optim.AdamW, rank.axis("dp"), lr=0.1)
    schedules = torch.optim.lr_scheduler
    linear = schedules.LinearLR(chosen, start_factor=0.25, total_iters=3)
    plateau = schedules.ReduceLROnPlateau(chosen, factor=0.5, patience=0)

    def closure() -> Tensor:
        chosen.zero_grad()
        loss = w.square().sum()
        loss.backward()
        if rank is not None:
            chosen.sync()
        return loss

    rates = []
    for step in range(steps):
        chosen.step(closure)
        rates.append(chosen.param_groups[0]["lr"])
        linear.step()
        plateau.step(step)  # as if the loss grew
        if step == 2 and rank is not None:  # which makes new groups
            chosen.load_full_state_dict(chosen.full_state_dict())
    return rates, w.detach()


def wrapped(model, axis, stage, *, optimizer="ours", **settings):
    """Return a model and its optimizer, one of them sharded; sums are in the order of ranks."""
    groups = groups_of(model, optimizer)
    optimizer_class, its = OPTIMIZERS[optimizer]
    if stage == 3:
        blocks = model.blocks if isinstance(model, Transformer) else []
        units = [block.block if isinstance(block, Again) else block for block in blocks]
        settings = {"ordered": True, "units": units, **settings}
        return zero.FullyShardedModel(model, axis, **settings), optimizer_class(groups, **its)
    settings = {"ordered": True, "stage": stage, **its, **settings}
    return model, zero.ZeroOptimizer(groups, optimizer_class, axis, **settings)


def _read_gathered(run: zero.FullyShardedModel) -> None:
    """Run and read the model as one process has it, in the middle of training."""
    full = run.full_state_dict()
    shapes = {n: p.shape for n, p in run.module.named_parameters()}
    name = "blocks.0.feed_forward.w_up"
    with run.gathered() as module, torch.no_grad():
        for _ in range(2):
            loss = loss_of(module, 100, 0)
            assert torch.equal(module.blocks[0].feed_forward.w_up, full[name])
    single = made("tied")
    single.load_state_dict(full)
    assert torch.equal(loss, loss_of(single, 100, 0))
    assert shapes == {n: p.shape for n, p in run.module.named_parameters()}
    assert module.blocks[0].feed_forward.w_up is dict(module.named_parameters())[name]


def _fail(*_: Any) -> None:
    raise ArithmeticError


@contextlib.contextmanager
def _failing(run: nn.Module) -> Iterator[None]:
    """Let something fail with other weights than those to come: nothing may keep them."""
    shards = [p.detach() for p in run.parameters()]
    before = [x.clone() for x in shards]
    for x in shards:
        x.mul_(2)
    with contextlib.suppress(ArithmeticError):
        yield
    for x, value in zip(shards, before, strict=True):
        x.copy_(value)


def _fail_in_forward(run: nn.Module) -> None:
    with run.module.blocks[1].feed_forward.register_forward_hook(_fail), _failing(run):
        loss_of(run, 100, 0)


def _fail_in_backward(run: nn.Module) -> None:
    def when_it_returns(module: nn.Module, given: tuple, out: Tensor) -> None:
        out.register_hook(_fail)

    with run.module.blocks[0].feed_forward.register_forward_hook(when_it_returns), _failing(run):
        loss_of(run, 100, 0).backward()


BETWEEN = {
    "evaluation": torch.no_grad()(lambda run: loss_of(run, 100, 0)),
    "gathered": _read_gathered,
    "an error in forward": _fail_in_forward,
    "an error in backward": _fail_in_backward,
}
"""What may happen between two steps and must leave no trace."""


def with_ddp(rank, name: str, steps: int = 3) -> list[dict[str, Any]]:
    model = made(name, seed=rank.index)
    axis = rank.axis("dp")
    run = BucketedDDP(model, axis, bucket_bytes=10_000, all_reduce=collectives.all_reduce_ordered)
    optimizer_class, settings = OPTIMIZERS["ours"]
    chosen = optimizer_class(groups_of(model, "ours"), **settings)
    parameters = []
    for step in range(steps):
        loss_of(run, step, rank.index).backward()
        run.sync()
        chosen.step()
        chosen.zero_grad()
        parameters.append(full_parameters(model))
    return parameters


def torchs(rank, name: str, kind: str, steps: int = 3) -> list[dict[str, Any]]:
    """Train with torch's own ZeRO stage 1 or FSDP2; return the parameters after each step."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - slow import
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    model = made(name)
    optimizer_class, settings = OPTIMIZERS["torch"]
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (rank.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        run = fully_shard(model, mesh=mesh)
        chosen = optimizer_class(groups_of(model, "torch"), **settings)
    else:
        run = nn.parallel.DistributedDataParallel(model)
        first, second = groups_of(model, "torch")
        chosen = ZeroRedundancyOptimizer(first["params"], optimizer_class, **settings)
        chosen.add_param_group(second)
    parameters = []
    for step in range(steps):
        loss_of(run, step, rank.index).backward()
        chosen.step()
        chosen.zero_grad()
        full = {n: p.full_tensor() if kind == "fsdp2" else p for n, p in model.named_parameters()}
        parameters.append({n: p.detach().clone() for n, p in full.items()})
    return parameters


def step_of_two_numbers(rank) -> tuple[int, Tensor, float, Tensor]:
    """Train two numbers at stage 1; return shards, full gradient, norm and the new numbers."""
    w = nn.Parameter(torch.tensor([3.0, 4.0]))
    chosen = zero.ZeroOptimizer([w], torch.optim.SGD, rank.axis("dp"), lr=1.0)
    w.grad = (rank.index + 1) * w.detach()
    chosen.sync()
    gradient, num_shards = w.grad.clone(), len(chosen.shards_with_gradients())
    norm = chosen.clip_grad_norm(2.5)
    chosen.step()
    return num_shards, gradient, norm, w.detach()


def with_frozen_ones(rank, stage: int) -> tuple[list[Tensor], dict]:
    """Train numbers of which some are frozen, in two groups; return them, and the state.

    Without a rank the optimizer is torch's own.
    """
    g = torch.Generator().manual_seed(0 if rank is None else rank.index)
    w = [nn.Parameter(torch.randn(n, generator=g)) for n in (5, 3, 4, 7)]
    for frozen in (w[1], w[3]):
        frozen.requires_grad_(False)
    groups = [{"params": w[:3]}, {"params": w[3:], "lr": 0.5}]
    chosen, settings = torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}
    if rank is None:
        optimizer = chosen(groups, **settings)
    else:
        optimizer = zero.ZeroOptimizer(groups, chosen, rank.axis("dp"), stage=stage, **settings)
    for _ in range(3):
        sum((x * x).sum() for x in w).backward()
        if rank is not None:
            optimizer.sync()
        optimizer.step()
        optimizer.zero_grad()
    state = optimizer.state_dict() if rank is None else optimizer.full_state_dict()
    return [x.detach() for x in w], state


def cut_matrices(rank) -> None:
    wrapped(made("untied"), rank.axis("dp"), 1, optimizer="muon")


def sent(rank, name: str, stage: int, **settings: Any) -> tuple[int, int]:
    """Return the bytes that a rank sends in its second step, and the number of parameters."""
    axis, model = rank.axis("dp"), made(name)
    num_parameters = sum(p.numel() for p in model.parameters())
    run, chosen = wrapped(model, axis, stage, **settings)
    for step in range(2):
        before = axis.sent_bytes
        loss_of(run, step, rank.index).backward()
        if stage < 3:
            chosen.sync()
        chosen.step()
        chosen.zero_grad()
    return axis.sent_bytes - before, num_parameters


def kept(rank, stage: int, **settings: Any) -> tuple[int, int]:
    """Return the bytes of all tensors there are after `sync` of a second step, and parameters."""
    before = live_bytes()
    model = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(13, 13), nn.Tanh())))
    num_parameters = sum(p.numel() for p in model.parameters())
    run, chosen = wrapped(model, rank.axis("dp"), stage, **settings)
    for step in range(2):
        chosen.zero_grad()
        run(torch.ones(2, 13)).square().mean().backward()
        if stage < 3:
            chosen.sync()
        if step == 0:
            chosen.step()
    return live_bytes() - before, num_parameters


def live_bytes() -> int:
    """Return the bytes of the storages of all tensors that Python knows, gradients included."""
    gc.collect()
    found = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    found += [x.grad for x in found if x.is_leaf and x.grad is not None]
    # Counts of steps, single numbers, are not what the formulas are about; nor are sparse tensors,
    # which another test may have left and which have no storage.
    dense = [x for x in found if x.ndim and x.layout is torch.strided]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in dense}
    return sum(storage.nbytes() for storage in storages.values())


def peak(rank, stage: int, **settings: Any) -> tuple[int, int, int]:
    """Return the most bytes that a second step adds, the bytes of a unit, and their number."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16)))
    unit_bytes = sum(p.nbytes for p in model[0].parameters())
    settings |= {"units": list(model)} if stage == 3 else {}
    run, chosen = wrapped(model, rank.axis("dp"), stage, **settings)
    x = torch.ones(1, 64)
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            run(x).square().mean().backward()
            if stage < 3:
                chosen.sync()
        chosen.zero_grad()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most, unit_bytes, len(model)


def tensors(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: tensors(value) for key, value in x.items()}
    if isinstance(x, list):
        return [tensors(value) for value in x]
    return torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x


def full_parameters(run: nn.Module) -> dict[str, Tensor]:
    if isinstance(run, zero.FullyShardedModel):
        names = dict(run.module.named_parameters())
        return {name: x for name, x in run.full_state_dict().items() if name in names}
    return {name: p.detach().clone() for name, p in run.named_parameters()}


# What the comparisons have to notice
def _local_chunk(x: Tensor, axis, *, ordered: bool = False) -> Tensor:
    return x.split(collectives.chunk_sizes(len(x), axis.size))[axis.index].clone()


def _overwriting_reduce(self) -> None:
    for p in self.shards:
        p.grad = None
    UNIT_REDUCE(self)


def _repeating_reduce(self) -> None:
    gradient = self.flat.grad
    UNIT_REDUCE(self)
    self.flat.grad = gradient


def _floor_chunk(self, rank: int) -> tuple[int, int]:
    size = self.length // self.num_ranks
    return rank * size, (rank + 1) * size


def _keeping_reduce(self, **settings: Any) -> None:
    full = [p.grad for p in self.params.values()]
    BUCKET_REDUCE(self, **settings)
    self.full = full


UNIT_REDUCE = unit.Unit.reduce_scatter
BUCKET_REDUCE = bucket.Bucket.reduce_scatter
LAYOUT, SHARDS = flat_layout.FlatLayout, flat_layout.FlatLayout.shards

MUTANTS = {
    "no broadcast": patched(bucket, unit, broadcast=lambda x, axis: x),
    "gradients stay local": patched(bucket, unit, reduce_scatter=_local_chunk),
    "parameters are not gathered after the step": patched(bucket.Bucket, all_gather=lambda _: None),
    "a remainder is left out": patched(LAYOUT, chunk=_floor_chunk),
    "the next rank's shards": patched(
        LAYOUT, shards=lambda own, i: SHARDS(own, (i + 1) % own.num_ranks)
    ),
    "norm of this rank's shards alone": patched(bucket, all_reduce_ordered=lambda x, axis: x),
    "full gradients are kept": patched(bucket.Bucket, reduce_scatter=_keeping_reduce),
    "never freed": patched(unit.Unit, reshard=lambda self: None),
    "not gathered for backward": patched(unit.Unit, _before_backward=lambda self, _: None),
    "gradients are overwritten": patched(unit.Unit, reduce_scatter=_overwriting_reduce),
    "gradients are reduced again": patched(unit.Unit, reduce_scatter=_repeating_reduce),
}
