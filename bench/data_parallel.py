"""Data parallelism: a step of the `stories` preset on two ranks, beside torch's own DDP.

The ranks take turns between the sides, step by step, and wait for each other before each.  The
rows of ZeRO are in `bench.zero`, which uses `step_seconds` in the same way.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.timing import row
from llmcourse import loss, optim
from llmcourse.model import Transformer, stories
from llmcourse.parallel import world
from llmcourse.parallel.data_parallel import BucketedDDP, NaiveDDP

NUM_RANKS, BATCH, LENGTH = 2, 12, 96


def step_seconds(
    axis: world.Axis, sides: dict[str, Callable[[], object]], *, repeats: int, warm_up: int = 2
) -> dict[str, list[float]]:
    """Return the seconds of every step of every side on this rank, the sides in turn."""
    seconds = {name: [] for name in sides}
    for turn in range(warm_up + repeats):
        for name, step in sides.items():
            axis.barrier()
            started = time.perf_counter()
            step()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def slowest(by_rank: list[dict[str, list[float]]]) -> dict[str, float]:
    """Return the median over steps of the slowest rank's seconds."""
    return {
        name: statistics.median(map(max, zip(*(found[name] for found in by_rank), strict=True)))
        for name in by_rank[0]
    }


def trainer(wrap: Callable[[nn.Module], nn.Module], index: int) -> Callable[[], None]:
    """Return a training step of a model of its own."""
    config = stories()
    model = wrap(Transformer(config, generator=torch.Generator().manual_seed(0)))
    optimizer = optim.AdamW(optim.decay_groups(model, weight_decay=0.1), lr=1e-3)
    g = torch.Generator().manual_seed(1 + index)
    ids, targets = (
        torch.randint(0, config.vocab_size, (BATCH, LENGTH), generator=g) for _ in range(2)
    )

    def step() -> None:
        loss.cross_entropy(model(ids), targets).backward()
        if not isinstance(model, DistributedDataParallel):
            model.sync()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def compare(rank: world.Rank, repeats: int) -> dict[str, list[float]]:
    """Time one rank's steps with every wrapper."""
    axis = rank.axis("dp")
    wrappers = {
        "torch": DistributedDataParallel,
        "bucketed": lambda m: BucketedDDP(m, axis),
        "in sync": lambda m: BucketedDDP(m, axis, overlap=False),
        "naive": lambda m: NaiveDDP(m, axis),
    }
    sides = {name: trainer(wrap, rank.index) for name, wrap in wrappers.items()}
    return step_seconds(axis, sides, repeats=repeats)


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    seconds = slowest(world.run(compare, NUM_RANKS, 15 if quick else 60))
    rates = {name: NUM_RANKS * BATCH * LENGTH / s for name, s in seconds.items()}
    named = {
        "bucketed": ("BucketedDDP, 2 ranks", "at least 0.91"),
        "in sync": ("BucketedDDP without overlap, 2 ranks", ""),
        "naive": ("NaiveDDP, 2 ranks", ""),
    }
    return [
        row(what, rates[name], rates["torch"], "torch's DDP", "tokens/s", aim=aim)
        for name, (what, aim) in named.items()
    ]
