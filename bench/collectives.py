"""All-reduce from send and receive alone, against gloo's own: MB/s in 2 and 4 processes."""

import statistics
import time

import torch
import torch.distributed as dist

from bench.timing import row
from llmcourse.parallel import collectives, world

SIZES = [1 << k for k in range(10, 27, 2)]  # 1 kB to 64 MB
QUICK_SIZES = [1 << 10, 1 << 20, 1 << 24]


def gloo(x: torch.Tensor, axis: world.Axis) -> torch.Tensor:
    """Sum over all ranks by gloo's own all-reduce, which is written in C++."""
    dist.all_reduce(x, group=axis.group)
    return x


def unchecked_ring(x: torch.Tensor, axis: world.Axis) -> torch.Tensor:
    """Sum round the ring as gloo does it: without asking first whether all call the same."""
    axis.check_calls = False
    collectives.all_reduce_ring(x, axis)
    axis.check_calls = True
    return x


SIDES = {
    "gloo": gloo,
    "ring": unchecked_ring,
    "ring that compares calls first": collectives.all_reduce_ring,
    "ordered": collectives.all_reduce_ordered,
    "tree": collectives.all_reduce_tree,
    "naive": collectives.all_reduce_naive,
}


def timed(
    rank: world.Rank, names: list[str], num_bytes: int, repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of every call of every side, A B A B ..., after a warm-up."""
    axis, x = rank.world, torch.zeros(num_bytes // 4)
    seconds = {name: [] for name in names}
    for turn in range(1 + repeats):
        for name in names:
            dist.barrier()
            started = time.perf_counter()
            SIDES[name](x, axis)
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def rates(pool: world.Pool, num_bytes: int, repeats: int) -> dict[str, float]:
    """Return MB/s of the tensor, by side; at 1 MiB of all sides."""
    names = list(SIDES)[: None if num_bytes == 1 << 20 else 3]
    by_rank = pool.run(timed, names, num_bytes, repeats)
    # A call takes as long as its slowest rank.
    seconds = {name: statistics.median(map(max, *(r[name] for r in by_rank))) for name in names}
    return {name: num_bytes / 1e6 / s for name, s in seconds.items()}


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    found = []
    for num_ranks in (2, 4):
        with world.Pool(num_ranks) as pool:
            for num_bytes in QUICK_SIZES if quick else SIZES:
                repeats = 5 if quick else 31 if num_bytes < 1 << 24 else 9
                sides = rates(pool, num_bytes, repeats)
                gloos = sides.pop("gloo")
                for name, rate in sides.items():
                    what = f"all-reduce of {num_bytes >> 10:,} KiB, {num_ranks} ranks, {name}"
                    aim = "at least 0.7" if name == "ring" and num_bytes >= 1 << 20 else ""
                    found.append(row(what, rate, gloos, "gloo", "MB/s", aim=aim))
    return found
