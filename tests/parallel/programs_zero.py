"""What ranks run in the tests of ZeRO, and what it is compared with in one process."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from llmcourse import optim
from llmcourse.loss import cross_entropy
from llmcourse.model import Transformer, tiny
from llmcourse.model.decoder import Block
from llmcourse.parallel import collectives, zero
from llmcourse.parallel.data_parallel import BucketedDDP
from llmcourse.parallel.zero import bucket, layout, row, sharded, unit
from llmcourse.recompute import recomputed

OPTIMIZERS = {
    "ours": (optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"lr": 1e-1, "momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
    "muon": (torch.optim.Muon, {"lr": 1e-2}),
}


class Cell(nn.Module):
    """A unit that returns more than a tensor."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(given, width)

    def forward(self, x: Tensor, *, shift: Tensor | None = None) -> tuple[Tensor, dict]:
        y = self.linear(x).tanh()
        return (y if shift is None else y + shift), {"sum": y.sum(), "name": "cell"}


class Outer(nn.Module):
    """A unit with a unit inside, a frozen matrix after that, and a second dtype."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Cell(width, width)
        self.frozen = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.gain = nn.Parameter(torch.randn(width, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.inner(x, shift=x)
        return (y @ self.frozen).sigmoid() * self.gain.float()


class Odd(nn.Module):
    """Everything that makes sharding hard, in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Cell(5, 7)
        self.twice = Cell(7, 7)
        self.outer = Outer(7)
        self.norm = nn.BatchNorm1d(7)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.randn(3))
        self.empty = nn.Parameter(torch.randn(0, 3))
        self.tied = nn.Linear(7, 7, bias=False)
        self.tied.weight = self.outer.inner.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        y, more = self.first(x)
        y, _ = self.twice(y)
        y, _ = self.twice(y)
        y = self.tied(self.norm(self.outer(y)))
        return (y * self.scale).square().mean() + 0.01 * more["sum"]


class Recurrent(nn.Module):
    """torch's own layers, which keep their parameters in ways of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x[None])
        return self.parametrized(self.encoder(y)).square().mean()


MODELS = {
    "tied": lambda: Transformer(tiny(), generator=torch.default_generator),
    "untied": lambda: Transformer(
        replace(tiny(), tied_head=False), generator=torch.default_generator
    ),
    "odd": Odd,
    "recurrent": Recurrent,
    "linear": lambda: nn.Linear(7, 5),
}
UNITS = {
    "tied": Block,
    "untied": Block,
    "odd": (Cell, Outer),
    "recurrent": (nn.LSTM, nn.TransformerEncoderLayer),
    "linear": None,
}


def made(name: str, seed: int = 0) -> nn.Module:
    """Return a model, the same for a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MODELS[name]()


def loss_of(model: nn.Module, name: str, step: int, rank: int, micro: int = 0) -> Tensor:
    """Return the loss of a model on a batch that is another one for every step, rank and micro."""
    g = torch.Generator().manual_seed(10_000 * step + 100 * rank + micro)
    if name in ("tied", "untied"):
        ids, targets = (torch.randint(0, 300, (2, 7), generator=g) for _ in range(2))
        return cross_entropy(model(ids), targets)
    out = model(torch.randn(4, 7 if name == "linear" else 5, generator=g))
    return out.square().mean() if name == "linear" else out


def groups_of(model: nn.Module, optimizer: str) -> list[dict]:
    """Return parameter groups: two, and for Muon the matrices alone."""
    groups = optim.decay_groups(model, weight_decay=0.1)
    if optimizer == "muon":
        return [{"params": [p for p in model.parameters() if p.ndim == 2 and p.numel()]}]
    for group in groups if optimizer not in ("ours", "adamw") else ():
        group["lr"] = 0.1 if group.pop("weight_decay") else 0.05
    return groups


class Trace(NamedTuple):
    """What a training run leaves."""

    parameters: list[dict[str, Any]]
    """Of the whole module, by name, after each step."""
    optimizer: dict[str, Any]
    """State of the optimizer of whole parameters, at the end."""
    norms: list[float]
    """Of the gradient before clipping, by step."""
    before: Any
    """The parameters before anything was done, as this rank had them."""
    sizes: Any = None
    """Sum over the ranks of the magnitudes of their gradients, by parameter, at the last step."""


def alone(
    name: str,
    num_ranks: int,
    steps: int = 3,
    *,
    optimizer: str = "ours",
    num_micro: int = 1,
    clip: float | None = None,
    start: Trace | None = None,
) -> Trace:
    """Train in one process, adding up the gradients of all ranks' batches in the ranks' order."""
    model = made(name)
    optimizer_class, settings = OPTIMIZERS[optimizer]
    chosen = optimizer_class(groups_of(model, optimizer), **settings)
    if start is not None:
        model.load_state_dict(tensors(start.parameters[-1]), strict=False)
        chosen.load_state_dict(tensors(start.optimizer))
    trained = [p for p in model.parameters() if p.requires_grad]
    before = nn.utils.parameters_to_vector(trained).detach()
    parameters, norms, sizes = [], [], None
    for step in range(steps):
        by_rank = []
        for rank in range(num_ranks):
            for p in trained:
                p.grad = torch.zeros_like(p)
            for micro in range(num_micro):
                loss_of(model, name, step, rank, micro).backward()
            by_rank.append([p.grad for p in trained])
        for p, *mine in zip(trained, *by_rank, strict=True):
            p.grad = sum(mine[1:], start=mine[0]) / num_ranks
        sizes = [sum(g.abs() for g in mine) for mine in zip(*by_rank, strict=True)]
        if clip is not None:
            norms.append(optim.clip_by_global_norm(trained, clip))
        chosen.step()
        parameters.append(whole_parameters(model))
    return Trace(parameters, chosen.state_dict(), norms, before, sizes)


def follow(
    rank,
    name: str,
    stage: int,
    steps: int = 3,
    *,
    optimizer: str = "ours",
    num_micro: int = 1,
    clip: float | None = None,
    synced: bool = False,
    keep: bool = False,
    again: str | None = None,
    start: Trace | None = None,
    mutant: str | None = None,
    **settings: Any,
) -> Trace:
    """Train as `alone` does, with one of the stages, each rank on its own batches.

    Args:
        rank: given by the world; each begins with parameters of its own.
        name: of the model.
        stage: 1, 2 or 3.
        steps: how many.
        optimizer: by name.
        num_micro: batches per step.
        clip: largest norm of the gradient.
        synced: average whole gradients by an all-reduce instead of `sync`, as data parallelism.
        keep: whether to add up whole gradients before they are reduced, by `no_sync`.
        again: what to compute again in backward.
        start: where to go on from.
        mutant: what to break.
        settings: of ZeroOptimizer or FullyShardedModel.
    """
    with MUTANTS[mutant]() if mutant else contextlib.nullcontext():
        model = made(name, seed=rank.index)
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        settings = {"units": UNITS[name], "optimizer": optimizer, **settings}
        run, chosen, synchronised = wrapped(model, rank.axis("dp"), stage, **settings)
        if start is not None:
            load(run, chosen, start)
        parameters, norms = [], []
        for step in range(steps):
            for micro in range(num_micro):
                unsynced = keep and micro < num_micro - 1
                nothing = contextlib.nullcontext()
                with (
                    recomputed(model, again) if again else nothing,
                    synchronised.no_sync() if unsynced else nothing,
                ):
                    loss_of(run, name, step, rank.index, micro).backward()
            if synced:
                average_whole(model, rank.axis("dp"))
            elif stage < 3:
                synchronised.sync()
            if clip is not None:
                norms.append(synchronised.clip_grad_norm(clip))
            chosen.step()
            chosen.zero_grad()
            parameters.append(whole_parameters(run))
        return Trace(parameters, optimizer_state(run, chosen), norms, before)


def wrapped(model, axis, stage, *, units=None, optimizer="ours", **settings):
    """Return a model, its optimizer, and whichever of the two synchronises gradients."""
    groups = groups_of(model, optimizer)
    optimizer_class, its = OPTIMIZERS[optimizer]
    if stage == 3:
        run = zero.FullyShardedModel(model, axis, **{"ordered": True, "units": units, **settings})
        return run, optimizer_class(groups, **its), run
    settings = {"ordered": True, "stage": stage, **its, **settings}
    chosen = zero.ZeroOptimizer(groups, optimizer_class, axis, **settings)
    return model, chosen, chosen


def with_ddp(rank, name: str, *, sharded_optimizer: bool, steps: int = 3) -> list[dict[str, Any]]:
    """Train with data parallelism, the optimizer whole or of stage 1; return the parameters."""
    model = made(name, seed=rank.index)
    axis = rank.axis("dp")
    run = BucketedDDP(model, axis, bucket_bytes=10_000, all_reduce=collectives.all_reduce_ordered)
    optimizer_class, settings = OPTIMIZERS["ours"]
    groups = groups_of(model, "ours")
    if sharded_optimizer:
        chosen = zero.ZeroOptimizer(groups, optimizer_class, axis, **settings)
    else:
        chosen = optimizer_class(groups, **settings)
    parameters = []
    for step in range(steps):
        loss_of(run, name, step, rank.index).backward()
        run.sync()
        chosen.step()
        chosen.zero_grad()
        parameters.append(whole_parameters(model))
    return parameters


def cut_matrices(rank) -> str:
    """Give pieces of matrices to an optimizer that wants matrices; return what it says."""
    try:
        wrapped(made("untied"), rank.axis("dp"), 1, optimizer="muon")
    except ValueError as error:
        return str(error)
    return "no error"


def average_whole(model: nn.Module, axis) -> None:
    """Average whole gradients, as data parallelism does."""
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            collectives.all_reduce_ordered(p.grad, axis).div_(axis.size)


def optimizer_state(run: nn.Module, chosen: Any) -> dict[str, Any]:
    """Return the state of the optimizer of whole parameters."""
    if isinstance(run, zero.FullyShardedModel):
        return run.full_optimizer_state(chosen)
    return chosen.full_state_dict()


def load(run: nn.Module, chosen: Any, start: Trace) -> None:
    """Take over parameters and optimizer state."""
    parameters, state = tensors(start.parameters[-1]), tensors(start.optimizer)
    if isinstance(run, zero.FullyShardedModel):
        run.load_full_state_dict({**run.full_state_dict(), **parameters})
        run.load_full_optimizer_state(chosen, state)
    else:
        run.load_state_dict(parameters, strict=False)
        chosen.load_full_state_dict(state)


def tensors(x: Any) -> Any:
    """Return what came back from a rank as tensors again."""
    if isinstance(x, dict):
        return {key: tensors(value) for key, value in x.items()}
    if isinstance(x, list):
        return [tensors(value) for value in x]
    return torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x


def whole_parameters(run: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all parameters by the names of the original module."""
    if isinstance(run, zero.FullyShardedModel):
        names = dict(run.module.named_parameters(remove_duplicate=False))
        return {n: x for n, x in run.full_state_dict().items() if n in names}
    names = run.named_parameters(remove_duplicate=False)
    return {name: p.detach().clone() for name, p in names}


def torchs(rank, name: str, kind: str, steps: int = 3) -> list[dict[str, Any]]:
    """Train with torch's own DDP, ZeRO stage 1 or FSDP2; return the parameters after each step."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - slow import
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    model = made(name)
    groups = groups_of(model, "adamw")
    optimizer_class, settings = OPTIMIZERS["adamw"]
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (rank.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        run = fully_shard(model, mesh=mesh)
        groups = groups_of(model, "adamw")
    else:
        run = nn.parallel.DistributedDataParallel(model)
    if kind == "zero1":
        chosen = ZeroRedundancyOptimizer(
            groups[0]["params"], optimizer_class, lr=settings["lr"], weight_decay=0.1
        )
        chosen.add_param_group(groups[1])
    else:
        chosen = optimizer_class(groups, **settings)
    parameters = []
    for step in range(steps):
        loss_of(run, name, step, rank.index).backward()
        chosen.step()
        chosen.zero_grad()
        whole = {n: p.full_tensor() if kind == "fsdp2" else p for n, p in model.named_parameters()}
        parameters.append({n: p.detach().clone() for n, p in whole.items()})
    return parameters


def sent(rank, name: str, stage: int, **settings: Any) -> tuple[int, int]:
    """Return the bytes that a rank sends in its second step, and the number of parameters."""
    axis, model = rank.axis("dp"), made(name)
    num_parameters = sum(p.numel() for p in model.parameters())
    run, chosen, _ = wrapped(model, axis, stage, units=UNITS[name], **settings)
    for step in range(2):
        before = axis.sent_bytes
        loss_of(run, name, step, rank.index).backward()
        if stage < 3:
            chosen.sync()
        chosen.step()
        chosen.zero_grad()
    return axis.sent_bytes - before, num_parameters


def kept(
    rank, stage: int, dtype: str = "float32", mutant: str | None = None, **settings: Any
) -> tuple[int, int]:
    """Return the bytes of all tensors there are after `sync` of a second step, and parameters."""
    before = live_bytes()
    with MUTANTS[mutant]() if mutant else contextlib.nullcontext():
        layers = (layer for _ in range(5) for layer in (nn.Linear(13, 13), nn.Tanh()))
        model = nn.Sequential(*layers).to(getattr(torch, dtype))
        num_parameters = sum(p.numel() for p in model.parameters())
        run, chosen, _ = wrapped(model, rank.axis("dp"), stage, **settings)
        for step in range(2):
            chosen.zero_grad()
            run(torch.ones(2, 13, dtype=getattr(torch, dtype))).square().mean().backward()
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


def peak(rank, stage: int, mutant: str | None = None, **settings: Any) -> tuple[int, int, int]:
    """Return the most bytes of a second forward and backward, above what was there before.

    And the bytes of a unit and their number.
    """
    with MUTANTS[mutant]() if mutant else contextlib.nullcontext():
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16)))
        unit_bytes = sum(p.nbytes for p in model[0].parameters())
        units = nn.Linear if stage == 3 else None
        run, chosen, _ = wrapped(model, rank.axis("dp"), stage, units=units, **settings)
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


def _local_chunk(x: Tensor, axis, *, ordered: bool = False) -> Tensor:
    return x.split(collectives.chunk_sizes(len(x), axis.size))[axis.index].clone()


def _patched(*changes: tuple[Any, str, Any]):
    """Return what patches the given attributes, when called."""

    @contextlib.contextmanager
    def patches() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for target, name, value in changes:
                stack.enter_context(mock.patch.object(target, name, value))
            yield

    return patches


def _overwriting_reduce(self) -> None:
    for p in self.params:
        p.grad = None
    FLAT_ROW_REDUCE(self)


def _repeating_reduce(self) -> None:
    gradient = self.row.grad
    FLAT_ROW_REDUCE(self)
    self.row.grad = gradient


def _floor_chunk(self, rank: int) -> tuple[int, int]:
    size = self.length // self.num_ranks
    return rank * size, (rank + 1) * size


def _next_pieces(self, rank: int) -> list[tuple[int, int]]:
    return LAYOUT_PIECES(self, (rank + 1) % self.num_ranks)


def _untied_slots(module: nn.Module, roots: list) -> list[dict]:
    first, *others = OWNED_SLOTS(module, roots)
    return [{p: places[:1] for p, places in first.items()}, *others]


def _keeping_reduce(self, *, keep_whole: bool, **settings: Any) -> None:
    whole = [p.grad for p in self.params.values()]
    BUCKET_REDUCE(self, keep_whole=keep_whole, **settings)
    self.whole = whole


FLAT_ROW_REDUCE = row.FlatRow.reduce
BUCKET_REDUCE = bucket.Bucket.reduce
LAYOUT_PIECES = layout.Layout.pieces
OWNED_SLOTS = sharded._owned_slots

MUTANTS = {
    "no broadcast": _patched(
        (bucket, "broadcast", lambda x, axis: x), (row, "broadcast", lambda x, axis: x)
    ),
    "gradients stay local": _patched(
        (bucket, "reduce_scatter", _local_chunk), (row, "reduce_scatter", _local_chunk)
    ),
    "parameters are not gathered after the step": _patched(
        (bucket.Bucket, "gather", lambda self: None)
    ),
    "a remainder is left out": _patched((layout.Layout, "chunk", _floor_chunk)),
    "the next rank's pieces": _patched((layout.Layout, "pieces", _next_pieces)),
    "norm of this rank's shards alone": _patched((bucket, "all_reduce_ordered", lambda x, axis: x)),
    "whole gradients are kept": _patched((bucket.Bucket, "reduce", _keeping_reduce)),
    "never freed": _patched((row.FlatRow, "free", lambda self: None)),
    "not gathered for backward": _patched(
        (unit.Unit, "_before_backward", lambda self, call, has_end, _: None)
    ),
    "gradients are overwritten": _patched((row.FlatRow, "reduce", _overwriting_reduce)),
    "gradients are reduced again": _patched((row.FlatRow, "reduce", _repeating_reduce)),
    "a tied parameter has one place": _patched((sharded, "_owned_slots", _untied_slots)),
}
"""What the comparisons have to notice."""


def with_copies(rank, steps: int, start: dict | None) -> dict:
    """Train a bf16 model with copies in float32; return its parameters and the full state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(7, 5).bfloat16()
    chosen = zero.ZeroOptimizer(
        model.parameters(),
        optim.AdamW,
        rank.axis("dp"),
        lr=1e-3,
        stage=2,
        master_dtype=torch.float32,
    )
    if start is not None:
        model.load_state_dict({n: x.bfloat16() for n, x in tensors(start["model"]).items()})
        chosen.load_full_state_dict(tensors(start["optimizer"]))
    for _ in range(steps):
        model(torch.ones(3, 7).bfloat16()).square().mean().backward()
        chosen.sync()
        chosen.step()
        chosen.zero_grad()
    return {"model": dict(model.state_dict()), "optimizer": chosen.full_state_dict()}


def equal(ours, theirs):
    """Whether two trees of arrays, tensors and numbers are bitwise equal."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list | tuple):
        pairs = zip(ours, theirs, strict=True)
        return len(ours) == len(theirs) and all(equal(a, b) for a, b in pairs)
    if isinstance(theirs, torch.Tensor | np.ndarray):
        a, b = np.asarray(ours), np.asarray(theirs)
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return ours == theirs


def assert_follows(traces, expected):
    """Assert that every rank has the parameters, at every step, and the state of one process."""
    assert all(np.any(t.before != traces[0].before) for t in traces[1:])
    for trace in traces:
        assert equal(trace.parameters, expected.parameters)
        assert equal(trace.optimizer["state"], expected.optimizer["state"])
        assert equal(trace.optimizer["param_groups"], expected.optimizer["param_groups"])
