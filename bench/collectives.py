"""All-reduce from send and receive alone, against gloo's own: MB/s in 2 and 4 processes."""

import statistics
import time

import torch
import torch.distributed as dist

from bench.timing import row
from llmcourse.parallel import collectives, world

SIZES = [1 << k for k in range(10, 27, 2)]  # 1 kB to 64 MB
QUICK_SIZES = [1 << 10, 1 << 20, 1 << 24]
REPEATS = 15


def gloo(x: torch.Tensor, axis: world.Axis) -> torch.Tensor:
    """Sum over all ranks by gloo's own all-reduce, which is written in C++."""
    dist.all_reduce(x, group=axis.group)
    return x


SIDES = {
    "gloo": gloo,
    "ring": collectives.all_reduce_ring,
    "ordered": collectives.all_reduce_ordered,
    "tree": collectives.all_reduce_tree,
    "naive": collectives.all_reduce_naive,
}


def timed(rank: world.Rank, num_bytes: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every call of every side, A B A B ..., after a warm-up."""
    axis, x = rank.world, torch.zeros(num_bytes // 4)
    seconds = {name: [] for name in SIDES}
    for turn in range(1 + repeats):
        for name, all_reduce in SIDES.items():
            dist.barrier()
            started = time.perf_counter()
            all_reduce(x, axis)
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    found = []
    for num_ranks in (2, 4):
        with world.Pool(num_ranks) as pool:
            for num_bytes in QUICK_SIZES if quick else SIZES:
                by_rank = pool.run(timed, num_bytes, 5 if quick else REPEATS)
                # A call takes as long as its slowest rank.
                rates = {
                    name: num_bytes / 1e6 / statistics.median(map(max, *(r[name] for r in by_rank)))
                    for name in SIDES
                }
                size = f"{num_bytes >> 10:,} KiB, {num_ranks} ranks"
                for name in SIDES if num_bytes == 1 << 20 else ("gloo", "ring"):
                    if name == "gloo":
                        continue
                    aim = "at least 0.7" if name == "ring" and num_bytes >= 1 << 20 else ""
                    what = f"all-reduce of {size}, {name}"
                    found.append(row(what, rates[name], rates["gloo"], "gloo", "MB/s", aim=aim))
    return found
