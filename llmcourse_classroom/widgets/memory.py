"""A widget about what the layers keep for backward: live memory, and what to compute again."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse.model import PRESETS
from llmcourse_classroom.state import Choice, Limited, Whole, one_of
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.cost.activations import GPT3, extra_share, layer_costs, live_bytes
from llmcourse_labs.scale.cost.model import MENU

LABELS = {
    "llama3_8b": "Llama 3 8B",
    "llama3_70b": "Llama 3 70B",
    "llama3_405b": "Llama 3.1 405B",
    "gpt3": "GPT-3, attention written out",
}


class MemoryTimeline(Widget):
    """Live memory through one step, a choice for each layer what to compute again, and a target.

    Args:
        preset: one of llama3_8b, llama3_70b, llama3_405b, gpt3.
        choices: what each layer computes again, 2 to 12 of "nothing", "cheap", "attention" and
            "block".
        state: context_length (tokens of the one sequence), target (the peak to stay below, in per
            cent of the peak with nothing forgotten), moment (from 0 to twice the layers, plus 1).
    """

    script = "memory_timeline.js"
    alt = (
        "Live memory rises layer by layer through the forward pass and falls through the backward "
        "pass.  A layer that recomputes its insides keeps its input alone, and has them back for a "
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
        presets = {name: _described(name) for name in LABELS}
        super().__init__(preset=preset, presets=presets, choices=list(choices), **state)

    @traitlets.validate("choices")
    def _can_be(self, proposal: dict[str, Any]) -> list[str]:
        given = list(proposal["value"])
        if not 2 <= len(given) <= 12:
            raise traitlets.TraitError(
                f"choices must be 2 to 12, one for a layer, got {len(given)}"
            )
        return [one_of("a choice", choice, MENU) for choice in given]

    def live(self) -> list[int]:
        """Return the live bytes at every moment, as the page shows them."""
        return live_bytes(layer_costs(self.preset, self.context_length)["kept"], self.choices)

    def extra(self) -> float:
        """Return the FLOPs that are computed again, as a share of a step's."""
        return extra_share(layer_costs(self.preset, self.context_length)["again"], self.choices)


def _described(name: str) -> dict[str, Any]:
    if name == "gpt3":
        return {"label": LABELS[name], **GPT3}
    config = PRESETS[name]()
    kept = ("width", "hidden", "num_heads", "num_kv_heads", "head_size")
    return {"label": LABELS[name], **{field: getattr(config, field) for field in kept}}
