"""A widget about ZeRO: what each GPU keeps and sends, by stage and number of ranks."""

from typing import Any

import traitlets

from llmcourse.model import PRESETS
from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cost

LABELS = {
    "llama3_8b": "Llama 3 8B",
    "llama3_70b": "Llama 3 70B",
    "llama3_405b": "Llama 3.1 405B",
}


class ZeroBars(Widget):
    """Bars of weights, gradient and optimizer state on each GPU, and of what it sends in a step.

    Args:
        preset: one of llama3_8b, llama3_70b, llama3_405b.
        state: ranks (replicas that share by ZeRO), stage (0 to 3; 0 is plain data parallelism),
            model_parallel (GPUs over which one replica is divided beforehand), memory_gb (of a
            GPU), link_gb_per_s (of its link), zoom (whether the bars end at the memory of a GPU),
            moment (of the step that is drawn on four ranks).
    """

    script = "zero_bars.js"
    alt = (
        "Four bars, one for each stage of ZeRO, of what a GPU keeps: weights, gradient and "
        "optimizer state, beside its memory.  Each stage divides one more of the three by the "
        "number of ranks.  A step plays on four ranks: at stage 3 the parts of a layer's weights "
        "are gathered before it and freed after it.  Below, what a GPU sends in a step: twice the "
        "parameters, at stage 3 three times."
    )

    preset = Choice(tuple(LABELS), default="llama3_70b")
    presets = traitlets.Dict().tag(sync=True)
    ranks = Whole(64, low=1, high=16_384, step=1, label="ranks")
    stage = Whole(0, low=0, high=3, step=1, label="stage")
    model_parallel = Whole(1, low=1, high=1_024, step=1, label="GPUs for one replica")
    memory_gb = Limited(80, low=1, high=1_000, step=1, label="memory of a GPU, GB")
    link_gb_per_s = Limited(50, low=0.1, high=1_000, step=0.1, label="link, GB/s")
    zoom = traitlets.Bool(False).tag(sync=True)
    moment = Whole(0, low=0, high=16, step=1, label="moment of a step")

    def __init__(self, preset: str = "llama3_70b", **state: Any) -> None:
        presets = {
            name: {"label": text, "parameters": cost.num_parameters(PRESETS[name]())}
            for name, text in LABELS.items()
        }
        super().__init__(preset=preset, presets=presets, **state)
