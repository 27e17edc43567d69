"""A widget about quantisation: a row of real weights in few bits, and what the model then says."""

from typing import Any

import traitlets

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Choice, Named, Whole
from llmcourse_classroom.widget import Widget

CANDIDATES = 5
"""Likeliest tokens of a setting."""
BLOCKS = ("16", "32", "64", "whole row")
"""Weights that share a scale."""
LEVELS = ("scale and minimum", "scale alone")
"""What they share."""
SEEN = 64
"""Weights of the row in the picture."""


def setting_name(bits: int = 0, block: str = "", levels: str = "") -> str:
    """Return what a setting is called in the record; without bits, that of no rounding."""
    return f"{bits} bits, {block}, {levels}" if bits else "not rounded"


class FewBitsBoard(Widget):
    """A row of SmolLM2's weights on the levels of a few bits.

    Levels, error and bytes are computed in the page, next tokens are recorded for every setting.

    Args:
        state: weights (of one of the recorded models), bits, block and levels (one of BLOCKS and
            LEVELS), reads (a recorded prompt), part (64 weights of the row, from 1; those with the
            largest if not given).
    """

    script = "few_bits_board.js"
    alt = (
        "A stretch of a row of SmolLM2's weights, each a ring, with the levels that a few bits "
        "leave to its block, and a mark where it is rounded to.  Beside them the error, the bytes "
        "of a weight, and the five likeliest next tokens of a prompt when all matrices of the "
        "model's blocks are rounded so."
    )

    recorded = traitlets.Dict().tag(sync=True)
    """By weights: `row`, and `next` by setting."""
    prompts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    weights = Named().tag(sync=True)
    bits = Whole(4, low=2, high=8, step=1, label="bits a weight")
    block = Choice(BLOCKS, default="32")
    levels = Choice(LEVELS)
    reads = Named().tag(sync=True)
    part = Whole(1, low=1, high=99, step=1, label="part of the row")

    def __init__(self, **state: Any) -> None:
        found = recorded_runs("few_bits_board")
        models, prompts = found["settings"]["models"], found["settings"]["prompts"]
        recorded = {
            name: {
                "row": found["rows"][name]["0"],
                "next": {setting: of["0"] for setting, of in found[name].items()},
            }
            for name in models
        }
        sizes = [abs(x) for x in recorded[models[0]]["row"]["weights"]]
        largest = 1 + sizes.index(max(sizes)) // SEEN
        super().__init__(
            recorded=recorded,
            prompts=prompts,
            bounds={"weights": models, "reads": prompts, "part": len(sizes) // SEEN},
            **({"weights": models[0], "reads": prompts[0], "part": largest} | state),
        )
