"""A widget about spikes: recorded runs with and without the precautions that keep a run calm."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget

MOST_PRECAUTIONS, MOST_STEPS = 5, 500
LEAST_STEPS = 5


class SpikeLab(Widget):
    """Precautions as boxes to tick; for every choice the run that was recorded with it.

    Args:
        precautions: names of up to five things that keep a run calm.
        runs: one for each choice of precautions that was recorded, all off among them.  Each has
            "on" (names), "losses" (of step 0, 1, ..., in nats per token) and "norms" (of the
            gradient at the same steps): 5 to 500 steps, as long as the run went.  A number that is
            not finite stays: the page says where it was.
        state: on (the precautions chosen at first), watch ("loss" or "gradient norm"), window,
            factor and least_rise (of the detector), step (that is read out), compare.

    Raises:
        ValueError: if precautions or runs are not as above; the message says which.
    """

    script = "spike_lab.js"
    alt = (
        "Loss and gradient norm of recorded runs.  The loss jumps in every run; the boxes, such as "
        "clipping, change what comes after the jump.  A dotted line is the limit of the "
        "detector, and triangles mark the steps that it calls spikes.  A small panel for each "
        "precaution has the loss around the spike without it and with it."
    )

    precautions = traitlets.List(traitlets.Unicode()).tag(sync=True)
    runs = traitlets.List(traitlets.Dict()).tag(sync=True)
    """On, losses and norms: to 4 digits, and None where not finite."""
    longest = traitlets.Int().tag(sync=True)
    on = traitlets.List(traitlets.Unicode()).tag(sync=True)
    watch = Choice(("loss", "gradient norm"))
    window = Whole(20, low=3, high=100, step=1, label="window, values")
    factor = Limited(8, low=1, high=30, step=0.5, label="factor, spreads")
    least_rise = Limited(0.1, low=0, high=5, step=0.05, label="least rise")
    step = Whole(0, low=0, high=MOST_STEPS - 1, step=1, label="step")
    compare = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self, precautions: Sequence[str], runs: Sequence[Mapping[str, Any]], **state: Any
    ) -> None:
        _check_precautions(precautions)
        for place, run in enumerate(runs):
            _check_run(place, run, precautions)
        _check_choices(runs)
        longest = max(len(run["losses"]) for run in runs)
        kept = [
            {
                "on": [name for name in precautions if name in run["on"]],
                "losses": _tidy(run["losses"]),
                "norms": _tidy(run["norms"]),
            }
            for run in runs
        ]
        given = {"precautions": list(precautions), "runs": kept, "longest": longest}
        super().__init__(bounds={"step": longest - 1}, **given, **state)

    @traitlets.validate("on")
    def _known(self, proposal: dict[str, Any]) -> list[str]:
        unknown = sorted(set(proposal["value"]) - set(self.precautions))
        if unknown:
            raise traitlets.TraitError(
                f"there is no precaution {unknown}; there are {self.precautions}"
            )
        return [name for name in self.precautions if name in proposal["value"]]


def _tidy(values: Sequence[Any]) -> list[float | None]:
    """Return the values to 4 digits, None where they are not finite."""
    return [float(f"{float(v):.4g}") if math.isfinite(v) else None for v in values]


def _check_precautions(precautions: Sequence[str]) -> None:
    if isinstance(precautions, str) or not 1 <= len(precautions) <= MOST_PRECAUTIONS:
        raise ValueError(
            f"precautions must be a list of 1 to {MOST_PRECAUTIONS} names, got {precautions!r}"
        )
    if len(set(precautions)) != len(precautions) or not all(precautions):
        raise ValueError(
            f"precautions must have different names, none empty, got {list(precautions)}"
        )


def _check_run(place: int, run: Mapping[str, Any], precautions: Sequence[str]) -> None:
    missing = [name for name in ("on", "losses", "norms") if name not in run]
    if missing:
        raise ValueError(f"run {place} has no {', '.join(missing)}")
    unknown = [name for name in run["on"] if name not in precautions]
    if isinstance(run["on"], str) or unknown:
        raise ValueError(
            f"run {place}: on must be a list of {list(precautions)}, got {run['on']!r}"
        )
    losses, norms = run["losses"], run["norms"]
    if len(losses) != len(norms) or not LEAST_STEPS <= len(losses) <= MOST_STEPS:
        raise ValueError(
            f"run {place}: give as many losses as norms, {LEAST_STEPS} to {MOST_STEPS}, "
            f"not {len(losses)} and {len(norms)}"
        )
    if not any(map(math.isfinite, losses)) or not any(map(math.isfinite, norms)):
        raise ValueError(f"run {place}: no loss, or no norm, is finite: nothing can be drawn")
    if any(value < 0 for value in norms):
        raise ValueError(f"run {place}: a norm is negative")


def _check_choices(runs: Sequence[Mapping[str, Any]]) -> None:
    choices = [frozenset(run["on"]) for run in runs]
    if frozenset() not in choices:
        raise ValueError('there must be a run with all precautions off: "on": []')
    twice = sorted({tuple(sorted(c)) for c in choices if choices.count(c) > 1})
    if twice:
        raise ValueError(f"more than one run has on {list(twice[0])}")
