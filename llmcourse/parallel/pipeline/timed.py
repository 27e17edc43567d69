"""An action of a schedule, and when it ran."""

from fractions import Fraction
from typing import NamedTuple

from llmcourse.parallel.pipeline.schedules import Action

Exact = int | Fraction
Units = Exact | float


class Timed(NamedTuple):
    """One action, and from when to when it ran."""

    action: Action
    start: Units
    """In units of `simulate`, or seconds on the clock that all ranks of a machine share."""
    end: Units
