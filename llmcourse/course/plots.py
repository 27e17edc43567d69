"""Figures that more than one chapter draws."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from llmcourse.parallel.world import Message

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
"""Told apart without colour, too."""


def timeline(messages: Sequence[Message], ax: Axes | None = None) -> Axes:
    """Draw what the ranks did together: one row for each rank, one bar for each collective.

    Args:
        messages: from `Results.messages`.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if there is no message.
    """
    if not messages:
        raise ValueError("there are no messages to draw: no collective was called")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 0.8 + 0.5 * (1 + max(m.rank for m in messages))))
    kinds = list(dict.fromkeys(f"{m.name}, {m.axis}" for m in messages))
    first = min(m.start_s for m in messages)
    for number, kind in enumerate(kinds):
        of_kind = [m for m in messages if f"{m.name}, {m.axis}" == kind]
        ax.barh(
            [m.rank for m in of_kind],
            [1e3 * (m.end_s - m.start_s) for m in of_kind],
            left=[1e3 * (m.start_s - first) for m in of_kind],
            height=0.6,
            color=f"C{number % 10}",
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            label=kind,
        )
    ax.set_yticks(sorted({m.rank for m in messages}))
    ax.invert_yaxis()
    ax.set_xlabel("time, ms")
    ax.set_ylabel("rank")
    ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.3), ncols=3)
    return ax
