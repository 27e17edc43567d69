"""A widget about what the layers keep for backward: live memory, and what to compute again.

Taught in: chapters/20_activation_memory.ipynb
"""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse import cost
from llmcourse.cost import FORGOTTEN
from llmcourse.model import PRESETS
from llmcourse.viz.state import Choice, Limited, Whole
from llmcourse.viz.widget import Widget

GPT3 = {"width": 12_288, "num_heads": 96}
LABELS = {
    "llama3_8b": "Llama 3 8B",
    "llama3_70b": "Llama 3 70B",
    "llama3_405b": "Llama 3.1 405B",
    "gpt3": "GPT-3, attention written out",
}


def layer_costs(preset: str, context_length: int) -> dict[str, dict[str, int | float]]:
    """Return bytes kept and forward FLOPs of one layer and one sequence, by what is forgotten.

    GPT-3 keeps h (34 + 5 a s / h) a token, h 34 without the core of attention, and 2 h without the
    block; its attention is the core alone, without the projections.

    Args:
        preset: one of `LABELS`.
        context_length: tokens of the sequence.

    Returns:
        "kept" in bytes, and "again" in FLOPs of one layer, by what is forgotten.

    Source:
        Korthikanti et al. 2022, table 2, https://arxiv.org/abs/2205.05198
    """
    if preset == "gpt3":
        width, pairs = GPT3["width"], GPT3["num_heads"] * context_length
        kept = {"nothing": 34 * width + 5 * pairs, "attention": 34 * width, "block": 2 * width}
        attention = 4 * context_length * width
        again = {"nothing": 0, "attention": attention, "block": 24 * width**2 + attention}
    else:
        config = PRESETS[preset]()
        kept = {choice: cost.kept_bytes(config, choice) for choice in FORGOTTEN}
        flop = cost.forward_flop_by_part(config, context_length=context_length)
        attention = (flop["projections"] + flop["attention pairs"]) / config.num_layers
        whole = attention + flop["feed_forward"] / config.num_layers
        again = {"nothing": 0, "attention": attention, "block": whole}
    return {
        "kept": {choice: context_length * size for choice, size in kept.items()},
        "again": {choice: context_length * size for choice, size in again.items()},
    }


def live_bytes(kept: dict[str, int], choices: Sequence[str]) -> list[int]:
    """Return the bytes that live at every moment: forward through the layers, and backward.

    After forward through layer i live the kept bytes of layers 1 to i.  While backward is in layer
    i, those of the layers before it, and all that layer i keeps when nothing is forgotten.

    Args:
        kept: bytes of one layer by what is forgotten.
        choices: what each layer forgets.

    Returns:
        One number for the start, one for each layer forward, one for each layer backward, and 0.
    """
    sums = [0]
    for choice in choices:
        sums.append(sums[-1] + kept[choice])
    return [*sums, *(before + kept["nothing"] for before in reversed(sums[:-1])), 0]


def extra_share(again: dict[str, int | float], choices: Sequence[str]) -> float:
    """Return the FLOPs computed again as a share of a step's, which are three forward passes."""
    return sum(again[choice] for choice in choices) / (3 * len(choices) * again["block"])


class MemoryTimeline(Widget):
    """Live memory through one step, a choice for each layer what to compute again, and a target.

    Args:
        preset: one of llama3_8b, llama3_70b, llama3_405b, gpt3.
        choices: what each layer forgets, 2 to 12 of "nothing", "attention" and "block".
        state: context_length (tokens of the one sequence), target (the peak to stay below, in per
            cent of the peak with nothing forgotten), moment (from 0 to twice the layers, plus 1).
    """

    script = "memory_timeline.js"
    alt = (
        "Live memory rises layer by layer through the forward pass and falls through the backward "
        "pass.  A layer that forgets its insides keeps its input alone, and has them back for a "
        "moment when backward reaches it."
    )

    preset = Choice(tuple(LABELS), default="llama3_70b")
    presets = traitlets.Dict().tag(sync=True)
    choices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    context_length = Whole(8_192, low=256, high=131_072, step=256, label="tokens")
    target = Limited(60, low=5, high=100, step=1, label="target, % of the full peak")
    moment = Whole(0, low=0, high=25, step=1, label="moment")

    def __init__(
        self, preset: str = "llama3_70b", choices: Sequence[str] = ("nothing",) * 8, **state: Any
    ) -> None:
        if preset not in LABELS:
            raise ValueError(f"preset must be one of {', '.join(LABELS)}, got {preset!r}")
        presets = {name: _described(name) for name in LABELS}
        super().__init__(preset=preset, presets=presets, choices=list(choices), **state)

    @traitlets.validate("choices")
    def _can_be(self, proposal: dict[str, Any]) -> list[str]:
        """Reject what is no choice, and too few or too many layers."""
        given = list(proposal["value"])
        if not 2 <= len(given) <= 12:
            raise traitlets.TraitError(
                f"choices must be 2 to 12, one for a layer, got {len(given)}"
            )
        for choice in given:
            if choice not in FORGOTTEN:
                known = ", ".join(FORGOTTEN)
                raise traitlets.TraitError(f"a choice must be one of {known}, got {choice!r}")
        return given

    def live(self) -> list[int]:
        """Return the live bytes at every moment, as the page shows them."""
        return live_bytes(layer_costs(self.preset, self.context_length)["kept"], self.choices)

    def extra(self) -> float:
        """Return the FLOPs that are computed again, as a share of a step's."""
        return extra_share(layer_costs(self.preset, self.context_length)["again"], self.choices)


def _described(name: str) -> dict[str, Any]:
    """Return what the page needs to know of a preset."""
    if name == "gpt3":
        return {"label": LABELS[name], **GPT3}
    config = PRESETS[name]()
    kept = ("width", "hidden", "num_heads", "num_kv_heads", "head_size")
    return {"label": LABELS[name], **{field: getattr(config, field) for field in kept}}
