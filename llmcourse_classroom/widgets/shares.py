"""A widget about where the parameters of a Llama are: the share of the feed-forward networks."""

from typing import Any

import traitlets

from llmcourse.model.config import PRESETS
from llmcourse_classroom.state import Named, Whole, one_of
from llmcourse_classroom.widget import Widget

FIELDS = ("width", "num_kv_heads", "hidden", "num_layers")
"""What a slider moves; the head size, the vocabulary and the tied head stay the preset's."""

RULES = {
    "stories": ("stories", 1.0, 32),
    "llama3_8b": ("Llama 3 8B", 1.3, 1_024),
    "llama3_70b": ("Llama 3 70B", 1.3, 4_096),
    "llama3_405b": ("Llama 3.1 405B", 1.2, 4_096),
}
"""The name of every preset, and the factor and the multiple of its hidden size.

Those of the Llamas are `ffn_dim_multiplier` and `multiple_of` in the `params.json` that Meta
releases with the weights.
"""


class ShareBar(Widget):
    """The parameters of a shape in one bar, and the feed-forward share against three wholes.

    Args:
        preset: a name in `RULES`; width, key/value heads, hidden size and layers start from it.

    Raises:
        ValueError: if there is no such preset.
    """

    script = "share_bar.js"
    alt = (
        "A bar of the parameters of a Llama: embedding, attention, feed-forward, norms and output "
        "head. The feed-forward part is most of it; its share depends on what it is counted "
        "against."
    )

    preset = Named().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    follow_rule = traitlets.Bool(True).tag(sync=True)
    width = Whole(8_192, low=2, high=32_768, step=1, label="width")
    num_kv_heads = Whole(8, low=1, high=256, step=1, label="key/value heads")
    hidden = Whole(28_672, low=1, high=262_144, step=1, label="hidden size")
    num_layers = Whole(80, low=1, high=256, step=1, label="layers")

    def __init__(self, preset: str = "llama3_70b", **state: Any) -> None:
        one_of("preset", preset, RULES)
        presets = {name: _described(name) for name in RULES}
        start = {name: presets[preset][name] for name in FIELDS}
        # Who gives a hidden size wants that one, not the rule's.
        start["follow_rule"] = "hidden" not in state
        bounds = {"preset": RULES}
        super().__init__(preset=preset, presets=presets, bounds=bounds, **(start | state))


def _described(name: str) -> dict[str, Any]:
    config = PRESETS[name]()
    label, factor, multiple = RULES[name]
    kept = ("head_size", "vocab_size", "tied_head")
    return {
        **{field: getattr(config, field) for field in (*FIELDS, *kept)},
        "label": label,
        "rule": {"factor": factor, "multiple": multiple},
    }
