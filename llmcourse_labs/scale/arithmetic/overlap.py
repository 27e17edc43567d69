"""When buckets of gradients travel while backward goes on, and how long a step waits for them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from llmcourse.model import ModelConfig, whole_shapes
from llmcourse.parallel.data_parallel.buckets import cut_buckets
from llmcourse_labs.scale import arithmetic


class BucketTimes(NamedTuple):
    """When a bucket is full, and when its all-reduce begins and ends; since backward began."""

    ready_s: float
    start_s: float
    end_s: float


def gradient_tensors(config: ModelConfig, *, cut: int = 1) -> list[tuple[int, float]]:
    """Return bytes of every float32 gradient, and the share of backward after which it is there.

    In the order of backward: the head, then from the last layer to the first.  Time is counted in
    the products with matrices alone.  A tied embedding gets its gradient from the head, too, and is
    complete at the very end.

    Args:
        config: shape of a dense model.
        cut: over how many GPUs every matrix is cut evenly; norms are on each of them.
    """
    backwards = reversed(whole_shapes(config).items())
    shapes = sorted(backwards, key=lambda named: named[0] != "head")
    is_norm = [len(shape) == 1 for _, shape in shapes]
    counts = [shape.numel() for _, shape in shapes]
    work = [0 if norm else n for n, norm in zip(counts, is_norm, strict=True)]
    work[-1] = 0  # the embedding looks rows up
    before = counts[-1] if config.tied_head else 0
    total = before + sum(work)
    shares = [(before + done) / total for done in accumulate(work)]
    sizes = [4 * (n if norm else n // cut) for n, norm in zip(counts, is_norm, strict=True)]
    return list(zip(sizes, shares, strict=True))


def full_buckets(
    tensors: Sequence[tuple[int, float]], bucket_bytes: int
) -> list[tuple[int, float]]:
    """Return bytes of every bucket, and which share of backward has passed when it is full.

    Args:
        tensors: from `gradient_tensors`.
        bucket_bytes: as for `BucketedDDP`.
    """
    held = [torch.empty(size, dtype=torch.uint8, device="meta") for size, _ in tensors]
    shares = {id(x): share for x, (_, share) in zip(held, tensors, strict=True)}
    return [
        (sum(x.nbytes for x in bucket), max(shares[id(x)] for x in bucket))
        for bucket in cut_buckets(held, bucket_bytes)
    ]


def bucket_times(
    buckets: Sequence[tuple[int, float]],
    *,
    backward_s: float | int,
    num_ranks: int,
    latency_s: float | int,
    bytes_per_s: float | int,
    overlap: bool = True,
) -> list[BucketTimes]:
    """Return when each bucket is full, and when its ring all-reduce begins and ends.

    One link, one bucket after the other:  start_k = max(ready_k, end_(k-1)).  Buckets are those of
    `full_buckets`, the link and the ranks those of `collectives.seconds`; without overlap all
    buckets leave after backward.
    """
    times: list[BucketTimes] = []
    link = {"latency_s": latency_s, "bytes_per_s": bytes_per_s}
    for num_bytes, share in buckets:
        ready = backward_s * (share if overlap else 1)
        start = max(ready, times[-1].end_s if times else 0.0)
        seconds = arithmetic.seconds("all_reduce_ring", num_bytes, num_ranks, **link)
        times.append(BucketTimes(ready, start, start + seconds))
    return times


def exposed_s(times: Sequence[BucketTimes], *, backward_s: float | int) -> float:
    """Return the seconds that a step waits for the sums after backward has ended."""
    return max(0.0, times[-1].end_s - backward_s)
