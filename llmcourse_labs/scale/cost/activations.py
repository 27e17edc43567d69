"""Bytes that live through a step, and FLOPs done again, by what each layer forgets."""

from collections.abc import Sequence

from llmcourse.model import PRESETS
from llmcourse_labs.scale.cost.model import MENU, forward_flop_by_part, kept_bytes

GPT3 = {"width": 12_288, "num_heads": 96}
"""Shape of the largest, 175 B parameters, whose attention is written out."""


def layer_costs(preset: str, context_length: int) -> dict[str, dict[str, int | float]]:
    """Return bytes kept and forward FLOPs of one layer and one sequence, by what is forgotten.

    Args:
        preset: "gpt3", or one of `model.PRESETS`.
        context_length: tokens of the sequence.

    Returns:
        "kept" in bytes, and "again" in FLOPs of one layer, by what is forgotten.
    """
    if preset == "gpt3":
        return gpt_layer_costs(**GPT3, context_length=context_length)
    config = PRESETS[preset]()
    kept = {choice: kept_bytes(config, choice) for choice in MENU}
    flop = forward_flop_by_part(config, context_length=context_length)
    attention = (flop["projections"] + flop["attention pairs"]) / config.num_layers
    whole = attention + flop["feed_forward"] / config.num_layers
    again = {"nothing": 0, "attention": attention, "block": whole, "cheap": 0}
    return _of_sequence(kept, again, context_length)


def gpt_layer_costs(
    *, width: int, num_heads: int, context_length: int
) -> dict[str, dict[str, int | float]]:
    """Return the same of a layer of a GPT, whose attention is written out.

    With width h, a heads and s tokens it keeps, in bytes for each token::

        nothing forgotten    h (34 + 5 a s / h)
        attention            34 h     the core alone, without the projections
        block                2 h
        cheap                h (22 + 5 a s / h)     outputs of the norms and of GELU

    Args:
        width: h.
        num_heads: a.
        context_length: s, tokens of the sequence.

    Source:
        Korthikanti et al. 2022, table 2, https://arxiv.org/abs/2205.05198
    """
    kept = {
        "nothing": 34 * width + 5 * num_heads * context_length,
        "attention": 34 * width,
        "block": 2 * width,
        "cheap": 22 * width + 5 * num_heads * context_length,
    }
    attention = 4 * context_length * width
    block = 24 * width**2 + attention
    again = {"nothing": 0, "attention": attention, "block": block, "cheap": 0}
    return _of_sequence(kept, again, context_length)


def _of_sequence(kept: dict, again: dict, num_tokens: int) -> dict[str, dict[str, int | float]]:
    return {
        "kept": {choice: num_tokens * size for choice, size in kept.items()},
        "again": {choice: num_tokens * size for choice, size in again.items()},
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
