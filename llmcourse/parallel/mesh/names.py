"""The axes of a mesh, and what a setting says of them."""

from typing import Literal

AXES = ("dp", "pp", "cp", "ep", "tp")
"""Data, pipeline, context, expert and tensor parallel: the order of ranks, the last one fastest."""

Pipeline = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]
"""The order in which a stage runs its micro-batches forward and backward."""


def parse(text: str) -> dict[str, int]:
    """Read the sizes of a mesh, such as dp=2,tp=2.

    Raises:
        ValueError: if an axis is unknown or named twice, or a size is no number of 1 or more.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if name not in AXES:
            raise ValueError(
                f"mesh has an axis {name!r}: write it as dp=2,tp=2 with axes of {', '.join(AXES)}"
            )
        if name in found:
            raise ValueError(f"mesh names the axis {name} twice: {text}")
        if not size.isdecimal() or int(size) < 1:
            raise ValueError(f"mesh gives {name} the size {size!r}: a size is 1, 2, 3, ...")
        found[name] = int(size)
    return found
