"""A widget about overlap: buckets of gradients that are summed while backward goes on.

Taught in: chapters/23_data_parallel.ipynb
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import traitlets

from llmcourse.model import PRESETS, ModelConfig
from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel import cut_buckets
from llmcourse.viz.state import Choice, Limited, Whole
from llmcourse.viz.widget import Widget

LABELS = {"stories": "the stories model", "llama3_8b": "Llama 3 8B, cut over 8 GPUs"}
CUT = {"stories": 1, "llama3_8b": 8}
STARTS: dict[str, dict[str, int | float]] = {
    "stories": {
        "bucket_mb": 0.1,
        "num_ranks": 2,
        "latency_us": 1_000,
        "gigabytes_per_s": 0.04,
        "backward_ms": 60,
    },
    "llama3_8b": {
        "bucket_mb": 25,
        "num_ranks": 64,
        "latency_us": 10,
        "gigabytes_per_s": 50,
        "backward_ms": 360,
    },
}
"""Where the controls stand at first, by preset."""


class BucketTimes(NamedTuple):
    """When a bucket is full, and when its all-reduce begins and ends; since backward began."""

    ready_s: float
    start_s: float
    end_s: float


def gradient_tensors(config: ModelConfig, *, cut: int = 1) -> list[tuple[int, float]]:
    """Return bytes of every float32 gradient, and the share of backward after which it is there.

    In the order of buckets: from the last parameter to the first.  Time is counted in the products
    with matrices alone, the head first.  A tied embedding gets its gradient from the head, too,
    and is complete at the very end.

    Args:
        config: shape of the model.
        cut: over how many GPUs every matrix is cut evenly; norms are on each of them.
    """
    width, hidden = config.width, config.hidden
    q, kv = (width * n * config.head_size for n in (config.num_heads, config.num_kv_heads))
    feed_forward = [hidden * width] * 3
    layer = [*feed_forward, width, q, kv, kv, q, width]
    vocabulary = config.vocab_size * width
    head = [] if config.tied_head else [vocabulary]
    counts = [*head, width, *layer * config.num_layers, vocabulary]
    work = [0 if n == width else n for n in counts]
    work[-1] = 0  # the embedding looks rows up
    before = vocabulary if config.tied_head else 0
    total = before + sum(work)
    shares = [(before + done) / total for done in accumulate(work)]
    return [
        (4 * (n if n == width else n // cut), share)
        for n, share in zip(counts, shares, strict=True)
    ]


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

    One link, one bucket after the other:  start_k = max(ready_k, end_(k-1)).

    Args:
        buckets: bytes, and share of backward that has passed when it is full, in order.
        backward_s: how long backward takes.
        num_ranks: that sum; this and the next two as in `collectives.seconds`.
        latency_s: of a message.
        bytes_per_s: of a link.
        overlap: whether full buckets leave during backward, or all of them after it.
    """
    times: list[BucketTimes] = []
    link = {"latency_s": latency_s, "bytes_per_s": bytes_per_s}
    for num_bytes, share in buckets:
        ready = backward_s * (share if overlap else 1)
        start = max(ready, times[-1].end_s if times else 0.0)
        seconds = collectives.seconds("all_reduce_ring", num_bytes, num_ranks, **link)
        times.append(BucketTimes(ready, start, start + seconds))
    return times


def exposed_s(times: Sequence[BucketTimes], *, backward_s: float | int) -> float:
    """Return the seconds that a step waits for the sums after backward has ended."""
    return max(0.0, times[-1].end_s - backward_s)


class BucketTimeline(Widget):
    """Backward, and beside it the link: which bucket travels when, and how long a step waits.

    Args:
        preset: "stories" or "llama3_8b"; it sets where the other controls stand at first.
        state: bucket_mb (gradients in a bucket, at most), num_ranks, latency_us (of a message),
            gigabytes_per_s (of a link), backward_ms, overlap.
    """

    script = "bucket_timeline.js"
    alt = (
        "Backward as a bar over time, and below it the link, on which buckets of gradients are "
        "summed one after the other while backward goes on.  What is left when backward ends is "
        "exposed: small buckets pay the latency often, and one large bucket waits for the end."
    )

    preset = Choice(tuple(LABELS))
    presets = traitlets.Dict().tag(sync=True)
    bucket_mb = Limited(0.1, low=0.001, high=4_000, step=0.001, label="bucket, MB")
    num_ranks = Whole(2, low=2, high=16_384, step=1, label="ranks")
    latency_us = Limited(1_000, low=0.1, high=10_000, step=0.1, label="latency of a message, µs")
    gigabytes_per_s = Limited(
        0.04, low=0.001, high=1_000, step=0.001, label="bandwidth of a link, GB/s"
    )
    backward_ms = Limited(60, low=1, high=10_000, step=1, label="backward, ms")
    overlap = traitlets.Bool(True).tag(sync=True)

    def __init__(self, preset: str = "stories", **state: Any) -> None:
        if preset not in LABELS:
            raise ValueError(f"preset must be one of {', '.join(LABELS)}, got {preset!r}")
        presets = {
            name: {
                "label": LABELS[name],
                "start": STARTS[name],
                "tensors": gradient_tensors(PRESETS[name](), cut=CUT[name]),
            }
            for name in LABELS
        }
        super().__init__(preset=preset, presets=presets, **{**STARTS[preset], **state})

    def times(self) -> list[BucketTimes]:
        """Return when every bucket travels, as the page shows it."""
        tensors = self.presets[self.preset]["tensors"]
        return bucket_times(
            full_buckets(tensors, round(1e6 * self.bucket_mb)),
            backward_s=1e-3 * self.backward_ms,
            num_ranks=self.num_ranks,
            latency_s=1e-6 * self.latency_us,
            bytes_per_s=1e9 * self.gigabytes_per_s,
            overlap=self.overlap,
        )

    def exposed(self) -> float:
        """Return the exposed seconds, as the page shows them."""
        return exposed_s(self.times(), backward_s=1e-3 * self.backward_ms)
