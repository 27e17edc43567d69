"""What a check found: lines, their state, the points; and how it is shown, as text or as HTML."""

import enum
import html
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

# Words say the state; the border's colour only repeats it.  Text keeps the colour of its
# surroundings, so that it can be read on light and on dark.
_BORDERS = {"PASS": "#2a9d5c", "NOT YET": "#d97706", "not answered yet": "#8a8f98"}
_BOX = "border-left:4px solid {border};padding:.1em 0 .1em .8em;margin:.4em 0;line-height:1.45"
_LIST = "list-style:none;padding:0;margin:.2em 0"


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
    way_on: str = ""
    """What helps when it does not pass."""

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


def _heading(result: Result) -> str:
    """Return the first line: question, state and points."""
    points = f"{result.points:g} point{'' if result.points == 1 else 's'}"
    if result.state == "PASS":
        return f"{result.question} PASS, {points}"
    if result.state == "not answered yet":
        return f"{result.question} not answered yet, {points} to win"
    held = sum(line.state == "PASS" for line in result.lines)
    return f"{result.question} NOT YET, {held} of {len(result.lines)} checks hold"


def _told(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield state, meaning and detail of each line.

    One mistake often makes several lines fail, and the later ones then speak of mistakes that
    were not made: only the first says what it means.
    """
    first = next((line for line in result.lines if line.state is State.NOT_YET), None)
    for line in result.lines:
        later = line.state is State.NOT_YET and line is not first and line.right
        meaning = f"does not hold either: {line.right}" if later else line.meaning
        yield str(line.state), meaning, line.detail


def as_text(result: Result) -> str:
    """Return the result for a terminal, a line for each check."""
    lines = [_heading(result)]
    for state, meaning, detail in _told(result):
        lines += [f"  {state:<16} {meaning}"] + [f"  {'':<16} {detail}"] * bool(detail)
    return "\n".join([*lines, *_way_on(result)])


def _way_on(result: Result) -> list[str]:
    """Return the line below the others, where there is one."""
    return [result.way_on] if result.way_on and result.state is State.NOT_YET else []


def as_html(result: Result) -> str:
    """Return the result for a notebook or a page; a screen reader reads it as a status."""
    items = []
    for state, meaning, detail in _told(result):
        below = f"<br><code>{html.escape(detail)}</code>" if detail else ""
        text = f"<strong>{state}</strong> {html.escape(meaning)}{below}"
        items.append(f'<li style="margin:.15em 0">{text}</li>')
    below = "".join(f'<p style="margin:.2em 0">{html.escape(line)}</p>' for line in _way_on(result))
    box = _BOX.format(border=_BORDERS[result.state])
    return (
        f'<div class="llmcourse-check" role="status" style="{box}">'
        f"<strong>{html.escape(_heading(result))}</strong>"
        f'<ul style="{_LIST}">{"".join(items)}</ul>{below}</div>'
    )


def show(result: Result) -> None:
    """Show the result where the code runs: in a notebook as HTML and text, elsewhere as text."""
    # Where no notebook has imported IPython, there is none to show it in.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        print(as_text(result))
        return
    from IPython.display import display  # noqa: PLC0415  only inside a notebook

    display({"text/plain": as_text(result), "text/html": as_html(result)}, raw=True)
