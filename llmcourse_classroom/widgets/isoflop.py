"""A widget about scaling laws: the valley of the loss over sizes at one amount of compute."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Named
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.laws import ParametricLaw

LONGEST_NAME = 24
DIGITS = 10
"""Of a number that travels to the page."""
LOWEST, HIGHEST = 9, 27
"""The compute that can be chosen, as powers of ten."""
Run = Sequence[int | float | bool]


class IsoflopValley(Widget):
    """Which size is best for an amount of compute, by one of several laws.

    Args:
        laws: of each law its name, the law, the least and the most compute of the runs that it was
            fitted to, in FLOPs, and runs to show: (N, D, loss, whether the fit did not see it).
        state: law: the name of one.  budget: log10 of the compute in FLOPs, from 9 to 27; where a
            newly chosen law has no runs within five powers of ten, it moves to their middle.  off:
            a size to look at, as a multiple of the best one, from 0.05 to 20.

    Raises:
        ValueError: if there is no law, a name is doubled or too long, or a run is something else.
    """

    script = "isoflop_valley.js"
    alt = (
        "A valley: the loss over the size of a model, when each size is trained with the same "
        "compute.  Beside it the valleys of a tenth and of ten times the compute.  Below, the best "
        "number of tokens for each parameter over all amounts of compute."
    )

    laws = traitlets.List().tag(sync=True)
    law = Named().tag(sync=True)
    budget = Limited(13, low=LOWEST, high=HIGHEST, step=0.1, label="compute C, power of ten")
    off = Limited(1, low=0.05, high=20, step=0.01, label="size, times the best")

    def __init__(
        self,
        laws: Iterable[tuple[str, ParametricLaw, int | float, int | float, Iterable[Run]]],
        **state: Any,
    ) -> None:
        rows = [
            [
                name,
                [_number(getattr(law, part)) for part in ("E", "A", "B", "alpha", "beta")],
                [_power(low), _power(high)],
                [_run(run) for run in runs],
            ]
            for name, law, low, high, runs in laws
        ]
        names = [row[0] for row in rows]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"laws have names of their own, unlike {names}")
        if not all(1 <= len(name) <= LONGEST_NAME for name in names):
            raise ValueError(f"names have 1 to {LONGEST_NAME} characters, unlike {names}")
        if any(low > high for _, _, (low, high), _ in rows):
            raise ValueError("the least compute of a law's runs is above the most")
        low, high = rows[0][2]
        given = {"law": names[0], "budget": round((low + high) / 2, 1)} | state
        super().__init__(laws=rows, bounds={"law": names}, **given)


def _number(value: int | float) -> float:
    """Return a number for the page."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"numbers of laws and runs are finite and 0 or greater, not {value}")
    return float(f"{value:.{DIGITS}g}")


def _power(flop: int | float) -> float:
    """Return the compute as a power of ten."""
    if not 10**LOWEST <= flop <= 10**HIGHEST:
        raise ValueError(f"compute is from 1e{LOWEST} to 1e{HIGHEST} FLOPs, not {flop}")
    return round(math.log10(flop), 2)


def _run(run: Run) -> list[float | bool]:
    """Return a run for the page."""
    if len(run) != 4:
        raise ValueError(f"a run is (N, D, loss, held out), unlike {tuple(run)}")
    return [*(_number(value) for value in run[:3]), bool(run[3])]
