"""A widget about the backward pass: one block of a Llama as boxes to tap."""

from typing import Any

import traitlets

from llmcourse.model import ModelConfig
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget

BOXES = (
    "attention_norm",
    "query",
    "key",
    "value",
    "rope",
    "attention",
    "output",
    "first_sum",
    "feed_forward_norm",
    "gate",
    "up",
    "silu",
    "down",
    "second_sum",
)
"""The boxes of a block, in the order of the forward pass."""

SHAPE = ("width", "num_heads", "num_kv_heads", "head_size", "hidden")
MOST_TOKENS = 1_048_576


class BlockTapper(Widget):
    """One block of a Llama: what each box computes in both directions, and what it keeps between.

    Args:
        config: the shape of the model; one block of it is shown.
        state: `box` (one of `BOXES`), `going` ("forward" or "backward"), `tokens`, `batch`, `keeps`
            ("log-sum-exp" or "all weights") and `number` ("bf16" or "float32"), at first.

    Raises:
        TypeError: if the config is no `ModelConfig`, or a name of the state is unknown.
        ValueError: if its blocks have experts, or normalise queries and keys.
    """

    script = "block_tapper.js"
    alt = (
        "The block of a Llama as boxes: for each its formula forward and backward, its shapes, "
        "and the bytes that it keeps for the backward pass."
    )

    shape = traitlets.Dict().tag(sync=True)
    box = Choice(BOXES, default="attention")
    going = Choice(("forward", "backward"))
    keeps = Choice(("log-sum-exp", "all weights"))
    number = Choice(("bf16", "float32"))
    tokens = Whole(8_192, low=1, high=MOST_TOKENS, step=1, label="tokens T of a sequence")
    batch = Whole(1, low=1, high=4_096, step=1, label="sequences B")

    def __init__(self, config: ModelConfig, **state: Any) -> None:
        if not isinstance(config, ModelConfig):
            raise TypeError(f"config must be a ModelConfig, such as llama3_8b(), not {config!r}")
        if config.qk_norm or config.num_experts:
            raise ValueError("the block shown is a dense one without qk_norm: give such a shape")
        shape = {name: getattr(config, name) for name in SHAPE}
        super().__init__(shape=shape, **({"tokens": config.context_length} | state))
