"""Bytes that live through a step, and FLOPs done again, by what each layer forgets."""

from collections.abc import Sequence

from llmcourse.model import PRESETS
from llmcourse.scale.cost.model import FORGOTTEN, forward_flop_by_part, kept_bytes

GPT3 = {"width": 12_288, "num_heads": 96}
"""Shape of the largest, 175 B parameters, whose attention is written out."""


def layer_costs(preset: str, context_length: int) -> dict[str, dict[str, int | float]]:
    """Return bytes kept and forward FLOPs of one layer and one sequence, by what is forgotten.

    GPT-3 keeps h (34 + 5 a s / h) a token, h 34 without the core of attention, and 2 h without the
    block; its attention is the core alone, without the projections.

    Args:
        preset: "gpt3", or one of `model.PRESETS`.
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
        kept = {choice: kept_bytes(config, choice) for choice in FORGOTTEN}
        flop = forward_flop_by_part(config, context_length=context_length)
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
