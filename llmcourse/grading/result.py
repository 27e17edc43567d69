"""What a check found: lines, their state, and the points.

Taught in: chapters/00_how_to_use.ipynb
"""

import enum
from dataclasses import dataclass, field


class State(enum.StrEnum):
    """How far an answer is."""

    PASS = "PASS"
    NOT_YET = "NOT YET"
    NOT_ANSWERED = "not answered yet"


@dataclass(frozen=True)
class Line:
    """One thing that was looked at: whether it holds, what that means, and the difference."""

    state: State
    meaning: str
    detail: str = ""
    right: str = ""
    """What holds, when it does."""


@dataclass
class Result:
    """What a check found."""

    question: str
    points: int | float
    lines: list[Line] = field(default_factory=list)

    @property
    def state(self) -> State:
        """PASS if there are lines and all pass; not answered yet if the answer is a stub."""
        states = {line.state for line in self.lines}
        if State.NOT_ANSWERED in states or not states:
            return State.NOT_ANSWERED
        return State.NOT_YET if State.NOT_YET in states else State.PASS

    @property
    def score(self) -> int | float:
        """All of the points, or none."""
        return self.points if self.state is State.PASS else 0.0
