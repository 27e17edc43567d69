"""Widgets about a model: the cost of its shape, and what its logits become."""

import base64
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import traitlets

from llmcourse import train
from llmcourse.model import ModelConfig
from llmcourse.model.config import PRESETS
from llmcourse_classroom.state import Limited, Named, Whole, one_of
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cost

FIXED = ("rope_theta", "rope_scaling", "norm_eps", "qk_norm")
"""What changes parameters and work hardly or not at all, and has no slider."""

OF_A_MIXTURE = ("num_experts", "experts_per_token", "balance_weight", "capacity_factor")
"""What only a mixture of experts has: these widgets show dense models."""

SHAPE = tuple(f.name for f in fields(ModelConfig) if f.name not in (*FIXED, *OF_A_MIXTURE))
CACHE_BYTES = 2
MOST_TOKENS = 2_048
"""Six contexts of so many tokens stay below 60 kB in a page."""

DENSE = {name: make for name, make in PRESETS.items() if not make().num_experts}
SHAPES = {**DENSE, "sotu": lambda: train.PRESETS["sotu"]().model}
"""Every shape to choose: the dense presets of models, and that of the run on the addresses."""


def _count(label: str, high: int, step: int = 1) -> Whole:
    return Whole(step, low=step, high=high, step=step, label=label)


class ConfigExplorer(Widget):
    """Parameters, FLOPs and memory of a shape, by part.

    Args:
        preset: a name in `SHAPES`; a shape of one's own starts from it.

    Raises:
        ValueError: if there is no such preset.
    """

    script = "config_explorer.js"
    alt = (
        "A Llama drawn to scale, areas for parameters and rows for layers, and bars of its FLOPs "
        "and bytes by part, for a shape to choose."
    )

    preset = traitlets.Unicode().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    bytes = traitlets.Dict().tag(sync=True)
    cache_bytes = traitlets.Int(CACHE_BYTES).tag(sync=True)
    tied_head = traitlets.Bool(False).tag(sync=True)
    num_layers = _count("layers", 256)
    width = _count("width", 65_536)
    num_heads = _count("query heads", 256)
    num_kv_heads = _count("key/value heads", 256)
    head_size = _count("head size", 512, step=2)  # RoPE turns pairs of channels
    hidden = _count("hidden width", 262_144)
    vocab_size = _count("vocabulary", 1_000_000)
    context_length = _count("context", 1_048_576)

    def __init__(self, preset: str = "llama3_8b", **state: Any) -> None:
        one_of("preset", preset, SHAPES)
        shapes = {name: shape_of(make()) for name, make in SHAPES.items()}
        held = asdict(cost.MIXED_TRAINING)
        super().__init__(preset=preset, presets=shapes, bytes=held, **(shapes[preset] | state))


def shape_of(config: ModelConfig) -> dict[str, int | bool]:
    """Return what the widget shows of a shape."""
    return {name: getattr(config, name) for name in SHAPE}


class SamplingBoard(Widget):
    """Temperature, top-k and top-p over real logits, with tokens drawn from them.

    Args:
        contexts: what each row of logits follows, all different.
        logits: (contexts, vocabulary).
        tokens: the text of every token.

    Raises:
        ValueError: if the shapes do not fit, or the vocabulary is above 2,048.
    """

    script = "sampling_board.js"
    alt = (
        "The fifteen likeliest next tokens and all others as bars, for a temperature, top-k and "
        "top-p to choose."
    )

    contexts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    logits = traitlets.List(traitlets.Unicode()).tag(sync=True)
    quantum = traitlets.Float().tag(sync=True)
    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    context = Named().tag(sync=True)
    temperature = Limited(1.0, low=0.05, high=3, step=0.01, label="temperature")
    top_k = Whole(MOST_TOKENS, low=1, high=MOST_TOKENS, step=1, label="top-k")
    top_p = Limited(1.0, low=0.01, high=1, step=0.01, label="top-p")
    draws = Whole(0, low=0, high=200, step=1, label="tokens drawn")

    def __init__(
        self, contexts: Sequence[str], logits: np.ndarray, tokens: Sequence[str], **state: Any
    ) -> None:
        scores = np.asarray(logits, dtype=np.float64)
        if scores.shape != (len(contexts), len(tokens)) or not contexts:
            raise ValueError(
                f"logits must be {len(contexts)} contexts x {len(tokens)} tokens, "
                f"not {scores.shape}"
            )
        if len(tokens) > MOST_TOKENS or len(set(contexts)) != len(contexts):
            raise ValueError(f"at most {MOST_TOKENS} tokens, and contexts that all differ")
        if not np.isfinite(scores).all():
            raise ValueError("logits must be finite")
        quantum = float(np.abs(scores).max()) / 32_767 or 1.0
        rows = np.round(scores / quantum).astype("<i2")
        texts = [base64.b64encode(row.tobytes()).decode("ascii") for row in rows]
        super().__init__(
            contexts=list(contexts),
            logits=texts,
            quantum=quantum,
            tokens=list(tokens),
            bounds={"context": contexts, "top_k": len(tokens)},
            **({"context": contexts[0], "top_k": len(tokens)} | state),
        )
