"""A widget that stops a training step after its backward pass, to look at the gradients."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse import train
from llmcourse.model import ModelConfig
from llmcourse_classroom.state import Limited, Named, Whole
from llmcourse_classroom.widgets.live import LiveRun


class LiveGradient(LiveRun):
    """A Llama that trains in the page, stopped between backward and the optimizer.

    The gradient of any weight matrix is a picture, a cell for each weight.  One weight is nudged by
    epsilon both ways, and (loss(w + epsilon) - loss(w - epsilon)) / (2 epsilon) stands beside its
    gradient.

    Args:
        config: shape of the model and settings of the run.
        merges: of the tokenizer, see `LiveRun`.
        floor: the entropy of the stories in these tokens, in nats per token.
        state: weight (such as "blocks.0.attention.w_q"), row, column, nudge (epsilon), step.

    Raises:
        ValueError: as `LiveRun`, or if the model has no such weight.
    """

    script = "live_gradient.js"
    alt = (
        "A small Llama that you train in your own browser, stopped after a backward pass: the "
        "gradient of any of its weight matrices as a picture, and one gradient beside what the "
        "loss does when its weight is nudged."
    )

    weights = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of all weights."""
    weight = Named().tag(sync=True)
    row = Whole(0, low=0, high=4_095, step=1, label="row")
    column = Whole(0, low=0, high=4_095, step=1, label="column")
    nudge = Limited(0.01, low=1e-4, high=1.0, step=1e-4, label="nudge")

    def __init__(
        self,
        config: train.TrainConfig,
        merges: Sequence[tuple[bytes, bytes]],
        *,
        floor: float,
        **state: Any,
    ) -> None:
        shapes = shapes_of(config.model)
        bounds = {
            "weight": list(shapes),
            "row": max(rows for rows, _ in shapes.values()) - 1,
            "column": max(columns for _, columns in shapes.values()) - 1,
        }
        given = {"weights": list(shapes), "weight": "blocks.0.attention.w_q", **state}
        super().__init__(config, merges, floor=floor, show=(), bounds=bounds, **given)


def shapes_of(model: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return rows and columns of every weight, by its name in `llmcourse.model`."""
    queries, keys = model.num_heads * model.head_size, model.num_kv_heads * model.head_size
    block = {
        "attention_norm.gain": (1, model.width),
        "attention.w_q": (queries, model.width),
        "attention.w_k": (keys, model.width),
        "attention.w_v": (keys, model.width),
        "attention.w_o": (model.width, queries),
        "feed_forward_norm.gain": (1, model.width),
        "feed_forward.w_gate": (model.hidden, model.width),
        "feed_forward.w_up": (model.hidden, model.width),
        "feed_forward.w_down": (model.width, model.hidden),
    }
    blocks = {
        f"blocks.{layer}.{name}": shape
        for layer in range(model.num_layers)
        for name, shape in block.items()
    }
    return {
        "embedding": (model.vocab_size, model.width),
        **blocks,
        "norm.gain": (1, model.width),
    }
