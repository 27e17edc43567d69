"""Figures that more than one chapter draws."""

from collections.abc import Collection, Sequence
from math import log
from statistics import mean

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import offset_copy

from llmcourse.parallel.world import Message
from llmcourse_classroom import look
from llmcourse_classroom.recorded import recorded_runs

concept = look.concept
"""The colour of what has one in all figures and widgets, such as the query."""
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
"""Told apart without colour, too."""


def timeline(messages: Sequence[Message], ax: Axes | None = None) -> Axes:
    """Draw what the ranks did together: one row for each rank, one bar for each collective.

    Above stands the name of each kind of collective, joined to its first bar; the name of the axis
    as well, where there are several.

    Args:
        messages: from `Results.messages`.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if there is no message.
    """
    if not messages:
        raise ValueError("there are no messages to draw: no collective was called")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.8, 0.8 + 0.5 * (1 + max(m.rank for m in messages))))
    first = min(m.start_s for m in messages)
    one_axis = len({m.axis for m in messages}) == 1
    kinds: dict[tuple[str, str], list[Message]] = {}
    for m in sorted(messages, key=lambda m: (m.rank, m.start_s)):
        kinds.setdefault((m.name, m.axis), []).append(m)
    # The later a kind begins, the lower stands its name: its line crosses no other name.
    in_time = sorted(kinds.items(), key=lambda item: item[1][0].start_s)
    for number, (kind, of_kind) in enumerate(in_time):
        bars = ax.barh(
            [m.rank for m in of_kind],
            [1e3 * (m.end_s - m.start_s) for m in of_kind],
            left=[1e3 * (m.start_s - first) for m in of_kind],
            height=0.6,
            color=f"C{number % 10}",
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            label=kind[0] if one_axis else ", ".join(kind),
        )
        lift = 4 + 14 * (len(kinds) - 1 - number)
        ax.annotate(
            bars.get_label(),
            (bars[0].get_x(), of_kind[0].rank - 0.3),
            xytext=(bars[0].get_x(), 1),
            textcoords=offset_copy(ax.get_xaxis_transform(), ax.figure, y=lift, units="points"),
            color=f"C{number % 10}",
            fontsize=10,
            arrowprops={"arrowstyle": "-", "color": f"C{number % 10}", "relpos": (0, 0)},
        )
    ax.set_yticks(sorted({m.rank for m in messages}))
    ax.invert_yaxis()
    ax.set_xlabel("time, ms")
    ax.set_ylabel("rank")
    return ax


LOSS_FLOOR = 0.3830
"""The entropy of the generated stories in nats per token of chapter 04's tokenizer."""
LossRow = tuple[str, float, float]
"""A model's name, its mean loss over seeds, and half the distance between the extreme seeds."""


def loss_rows(names: Collection[str] | None = None) -> list[LossRow]:
    """Return the recorded losses of the course's models, in the order in which they are met.

    They are in nats per token, on stories that no model has read (`losses.json`).

    Args:
        names: which models; None for all.

    Raises:
        ValueError: if there is no such model.
    """
    recorded = recorded_runs("losses")["runs"]
    for name in names or ():
        if name not in recorded:
            raise ValueError(f"no loss is recorded for {name!r}; there are {', '.join(recorded)}")
    return [
        (name, mean(losses), (max(losses) - min(losses)) / 2)
        for name, losses in recorded.items()
        if names is None or name in names
    ]


def loss_axis(
    rows: Sequence[LossRow],
    *,
    new: Collection[str] = (),
    floor: float = LOSS_FLOOR,
    vocab_size: int = 768,
    ax: Axes | None = None,
) -> Axes:
    """Draw the axis of losses: where each model ends, from knowing nothing down to the entropy.

    Args:
        rows: the models, one line each, in this order.
        new: names of those that this page adds; they are filled and bold.
        floor: the entropy of the text, in nats per token: no model can be below it.
        vocab_size: V; a model that knows nothing is at ln V.
        ax: where to draw; None makes a new figure.

    Raises:
        ValueError: if there is no row, or a name in `new` is not among them.
    """
    names = [name for name, _, _ in rows]
    if not rows:
        raise ValueError("there are no losses to draw")
    if strange := sorted(set(new) - set(names)):
        raise ValueError(f"new names {strange} are not among the rows {names}")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.8, 1.2 + 0.32 * len(rows)), layout="constrained")
    # The two ends: the entropy, below which nothing is, and what it costs to know nothing.
    for value, style, label in (
        (floor, "--", "floor"),
        (log(vocab_size), ":", f"ln {vocab_size} ="),
    ):
        ax.axvline(value, color="0.4", ls=style, lw=1)
        ax.annotate(
            f"{label} {value:.2f}",
            (value, 1),
            xytext=(0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize="small",
        )
    # The models; hollow are those that the reader has met before.
    for place, (name, loss, spread) in enumerate(rows):
        ax.errorbar(
            loss,
            place,
            xerr=spread,
            fmt="o",
            color="C0",
            mfc="C0" if name in new else "white",
            capsize=3,
            label=name,
        )
        # A spread that would be written as 0.00 is left out.
        around = f" ± {spread:.2f}" if spread >= 0.005 else ""
        ax.annotate(
            f"{loss:.2f}{around}",
            (loss + spread, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    ax.set_yticks(range(len(rows)), names)
    for tick in ax.get_yticklabels():
        tick.set_fontweight("bold" if tick.get_text() in new else "normal")
    ax.grid(axis="y", color="0.9", lw=0.8)
    ax.set(xlabel="loss on new stories (nats per token)", xlim=(0, log(vocab_size) + 0.6))
    # Downwards, so that the first row is on top.
    ax.set_ylim(len(rows) - 0.5, -0.6)
    return ax


def name_lines(ax: Axes, *, size: float = 10) -> None:
    """Write the name of each line at its right end, in the line's colour, in place of a legend.

    The end is the last point in sight.  Names that would cover each other move apart.  Call it
    last: it measures on the axes as they are.

    Args:
        ax: where the lines are; those without a label get no name.
        size: of the letters, in points.

    Raises:
        ValueError: if no line has a label, or a line that has one is out of sight.
    """
    named = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    if not named:
        raise ValueError("no line has a label: give label= to plot")
    ax.figure.draw_without_rendering()  # the layout, and so the axes' place, is final
    box = ax.bbox.padded(1)
    ends = []
    for line in named:
        points = line.get_transform().transform(np.column_stack(line.get_data()).astype(float))
        shown = [(x, y) for x, y in points if box.contains(x, y)]
        if not shown:
            raise ValueError(f"no point of the line {line.get_label()!r} is in sight")
        ends.append((*shown[-1], line))
    ends.sort(key=lambda end: end[1])
    # Names a line of text apart, each as near to its line as the others let it: the isotonic
    # regression of the heights, less what is taken by the names below.
    steps = 1.25 * size * ax.figure.dpi / 72 * np.arange(len(ends))
    free = np.array([height for _, height, _ in ends]) - steps
    n = len(free)
    for i, (x, height, line) in enumerate(ends):
        placed = max(min(free[a:b].mean() for b in range(i + 1, n + 1)) for a in range(i + 1))
        ax.annotate(
            str(line.get_label()),
            ax.transData.inverted().transform((x, height)),
            xytext=(6, 72 / ax.figure.dpi * (placed + steps[i] - height)),
            textcoords="offset points",
            va="center",
            fontsize=size,
            color=line.get_color(),
            annotation_clip=False,
        )
