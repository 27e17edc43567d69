"""A widget about what operations are bound by: a roofline with a model's operations on it."""

from dataclasses import asdict
from typing import Any

import traitlets

from llmcourse.model import ModelConfig, llama3_8b, llama3_70b, stories
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cost
from llmcourse_labs.scale.roofline.operations import PER_NUMBER

SHAPES = {"stories": stories, "Llama 3 8B": llama3_8b, "Llama 3 70B": llama3_70b}
TRAINING, DECODING = "a training step", "decoding one token"
SIZES = ("num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden", "vocab_size")


class RooflineBoard(Widget):
    """The roofline of an accelerator, and where the operations of a step lie under it.

    Args:
        state: gpu (a name in `cost.HARDWARE`), shape ("stories", "Llama 3 8B" or "Llama 3 70B"),
            work ("a training step" or "decoding one token"), batch (sequences at once), length
            (tokens of each, or in the cache of each).
    """

    script = "roofline_board.js"
    alt = (
        "A roofline on logarithmic axes: attainable TFLOP/s against FLOPs per byte, a slope that "
        "meets a flat roof.  On it the operations of a model as circles, as large as the share of "
        "time that they take: products far to the right in training, and far to the left in "
        "decoding; norms, gates and AdamW on the slope.  In training, the sum of the gradients is "
        "on a second, dashed slope, that of the network."
    )

    gpu = Choice(tuple(cost.HARDWARE), default="H100")
    shape = Choice(tuple(SHAPES), default="Llama 3 8B")
    work = Choice((DECODING, TRAINING))
    batch = Whole(8, low=1, high=4_096, step=1, label="sequences at once")
    length = Whole(1_024, low=1, high=131_072, step=1, label="tokens of each")
    hardware = traitlets.Dict().tag(sync=True)
    shapes = traitlets.Dict().tag(sync=True)
    per_number = traitlets.Dict().tag(sync=True)
    """FLOPs and least numbers moved, for each number that passes, by phase and operation."""

    def __init__(self, **state: Any) -> None:
        hardware = {
            name: {
                "name": part.name,
                "peak": part.dense_bf16_flop_per_s,
                "bandwidth": part.memory_bytes_per_s,
                "memory": part.memory_bytes,
                "network": part.network_bytes_per_s,
            }
            for name, part in cost.HARDWARE.items()
        }
        shapes = {name: sizes_of(made()) for name, made in SHAPES.items()}
        super().__init__(hardware=hardware, shapes=shapes, per_number=moved(), **state)


def sizes_of(config: ModelConfig) -> dict[str, int]:
    """Return the numbers of a shape that the page needs."""
    fields = asdict(config)
    return {name: fields[name] for name in SIZES} | {"parameters": cost.num_parameters(config)}


def moved() -> dict[str, dict[str, list[int]]]:
    """Return of every operation that is no product its FLOPs and the numbers that it moves."""
    return {
        phase: {name: list(numbers[:2]) for name, numbers in rows.items()}
        for phase, rows in PER_NUMBER.items()
    }
