"""ZeRO: a step of the `stories` preset on two ranks, beside torch's own FSDP2 and ZeRO stage 1.

All sides use torch's fused AdamW, which treats shards and whole parameters alike.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from bench.data_parallel import BATCH, LENGTH, NUM_RANKS, slowest, step_seconds
from bench.timing import row
from llmcourse import loss, optim
from llmcourse.model import Transformer, stories
from llmcourse.parallel import world, zero

ADAMW = {"lr": 1e-3, "weight_decay": 0.1, "fused": True}


def new_model() -> Transformer:
    """Return the `stories` model, alike on every rank."""
    return Transformer(stories(), generator=torch.Generator().manual_seed(0))


def stepper(
    model: nn.Module, optimizer: object, index: int, sync: Callable[[], object] = lambda: None
) -> Callable[[], None]:
    """Return a training step."""
    g = torch.Generator().manual_seed(1 + index)
    ids, targets = (
        torch.randint(0, stories().vocab_size, (BATCH, LENGTH), generator=g) for _ in range(2)
    )

    def step() -> None:
        loss.cross_entropy(model(ids), targets).backward()
        sync()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ours(axis: world.Axis, stage: int, *, check: bool = True) -> Callable[[], None]:
    """Return a step of one of our stages."""
    model = new_model()
    axis = axis.channel(stage + 4 * check)  # so that only this side's calls are unchecked
    axis.check_calls = check
    groups = optim.decay_groups(model, weight_decay=0.1)
    if stage == 3:
        sharded = zero.FullyShardedModel(model, axis, units=list(model.blocks))
        return stepper(sharded, torch.optim.AdamW(groups, **ADAMW), axis.index)
    optimizer = zero.ZeroOptimizer(groups, torch.optim.AdamW, axis, stage=stage, **ADAMW)
    return stepper(model, optimizer, axis.index, optimizer.sync)


def fsdp2(axis: world.Axis, *, free_root: bool) -> Callable[[], None]:
    """Return a step of torch's fully_shard; by default it keeps the root unit after forward."""
    model, mesh = new_model(), init_device_mesh("cpu", (axis.size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=True if free_root else None)
    groups = optim.decay_groups(model, weight_decay=0.1)
    return stepper(model, torch.optim.AdamW(groups, **ADAMW), axis.index)


def zero1(axis: world.Axis) -> Callable[[], None]:
    """Return a step of torch's DDP with its ZeroRedundancyOptimizer."""
    model = DistributedDataParallel(new_model())
    first, second = optim.decay_groups(model.module, weight_decay=0.1)
    settings = {**ADAMW, "weight_decay": first.pop("weight_decay")}
    optimizer = ZeroRedundancyOptimizer(first["params"], torch.optim.AdamW, **settings)
    optimizer.add_param_group(second)
    return stepper(model, optimizer, axis.index)


def compare(rank: world.Rank, repeats: int) -> dict[str, list[float]]:
    """Time one rank's steps of every side."""
    axis = rank.axis("dp")
    sides = {
        "FSDP2": fsdp2(axis, free_root=True),
        "FSDP2, root kept": fsdp2(axis, free_root=False),
        "stage 3": ours(axis, 3, check=False),
        "stage 3 that compares calls first": ours(axis, 3),
        "torch's stage 1": zero1(axis),
        "stage 1": ours(axis, 1, check=False),
        "stage 2": ours(axis, 2, check=False),
    }
    return step_seconds(axis, sides, repeats=repeats)


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark: rates, so that 0.91 is a step time of 1.1 times."""
    with world.Pool(NUM_RANKS) as pool:
        seconds = slowest(pool.run(compare, 5 if quick else 41))
    tokens = NUM_RANKS * BATCH * LENGTH
    rates = {name: tokens / s for name, s in seconds.items()}
    pairs = [
        ("stage 3", "FSDP2", "at least 0.91"),
        ("stage 3", "FSDP2, root kept", ""),
        ("stage 3 that compares calls first", "FSDP2", ""),
        ("stage 1", "torch's stage 1", ""),
        ("stage 2", "torch's stage 1", ""),
    ]
    return [
        row(f"ZeRO step, 2 ranks, {a}", rates[a], rates[b], b, "tokens/s", aim=aim)
        for a, b, aim in pairs
    ]
