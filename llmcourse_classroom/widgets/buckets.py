"""A widget about overlap: buckets of gradients that are summed while backward goes on."""

from typing import Any

import traitlets

from llmcourse.model import PRESETS
from llmcourse_classroom.state import Choice, Limited, Whole, one_of
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.arithmetic.overlap import gradient_tensors

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
        one_of("preset", preset, LABELS)
        presets = {
            name: {
                "label": LABELS[name],
                "start": STARTS[name],
                "tensors": gradient_tensors(PRESETS[name](), cut=CUT[name]),
            }
            for name in LABELS
        }
        super().__init__(preset=preset, presets=presets, **{**STARTS[preset], **state})
