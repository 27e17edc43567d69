"""A widget about a mixture of three sources: the losses that a law predicts for it."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Named
from llmcourse_classroom.widget import Widget

MEAN = "mean of all"
"""The target that counts every source alike."""
LONGEST_NAME = 14
DIGITS = 8
"""Of a number that travels to the page: k may be a billionth where t is large."""


class MixtureTriangle(Widget):
    """A mixture is a point in a triangle, coloured by the loss that a mixing law predicts there.

    Args:
        sources: names of the three sources, of 14 characters at most.
        law: for each source c, k and three t: loss_i = c_i + k_i exp(sum_j t_ij r_j), in nats per
            token, for shares r.
        measured: finished runs, each the three shares of its mixture and the three losses.
        state: first, second: shares of two sources, the third has the rest; a change of one takes
            from the other what the sum has above 1.  target: the source whose loss the triangle
            shows, or "mean of all".

    Raises:
        ValueError: if the sources are not three, or a row is something else.
    """

    script = "mixture_triangle.js"
    alt = (
        "A triangle with a source at each corner.  Every point is a mixture, and contours join "
        "mixtures with the same predicted loss.  Below, the predicted loss on each source for the "
        "chosen mixture."
    )

    sources = traitlets.List(traitlets.Unicode()).tag(sync=True)
    law = traitlets.List().tag(sync=True)
    measured = traitlets.List().tag(sync=True)
    first = Limited(0.34, low=0, high=1, step=0.01, label="share of the first source")
    second = Limited(0.33, low=0, high=1, step=0.01, label="share of the second source")
    target = Named().tag(sync=True)

    def __init__(
        self,
        sources: Sequence[str],
        law: Iterable[tuple[int | float, int | float, Sequence[int | float]]],
        measured: Iterable[Sequence[Sequence[int | float]]] = (),
        **state: Any,
    ) -> None:
        names = [*sources, MEAN]
        if len(names) != 4 or len(set(names)) < 4:
            raise ValueError(f"a triangle has three sources of different names, not {sources}")
        if not all(1 <= len(name) <= LONGEST_NAME for name in sources):
            raise ValueError(f"names have 1 to {LONGEST_NAME} characters, unlike {sources}")
        rows = [[_number(c), _number(k), _three(t)] for c, k, t in law]
        if len(rows) != 3:
            raise ValueError(f"the law has a row for each of three sources, not {len(rows)}")
        runs = [[_three(shares), _three(losses)] for shares, losses in measured]
        for shares, _ in runs:
            if min(shares) < 0 or abs(sum(shares) - 1) > 1e-3:
                raise ValueError(f"shares are 0 or more and add to 1, unlike {shares}")
        super().__init__(
            sources=list(sources),
            law=rows,
            measured=runs,
            bounds={"target": names},
            **({"target": MEAN} | state),
        )

    @traitlets.observe("first", "second")
    def _add_to_one(self, change: dict[str, Any]) -> None:
        other = "second" if change["name"] == "first" else "first"
        rest = round(1 - change["new"], 4)
        if getattr(self, other) > rest:
            setattr(self, other, rest)


def _number(value: int | float) -> float:
    """Return a number for the page."""
    if not math.isfinite(value):
        raise ValueError(f"shares, losses and the numbers of a law are finite, not {value}")
    return float(f"{value:.{DIGITS}g}")


def _three(values: Sequence[int | float]) -> list[float]:
    """Return a number for each source."""
    if len(values) != 3:
        raise ValueError(f"there is a number for each of three sources, unlike {values}")
    return [_number(value) for value in values]
