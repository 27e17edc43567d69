"""Mutants: typical wrong answers, each with the message that a check must give for it.

A file exercises/mutants/NN_topic.diff holds cells (a .diff, as an edit is no Python, and editors
colour what goes and what comes).  A mutant is an edit of its question's solution:

    # %% 05.1 greatest_first
    # says: you joined the pair that ...
      counts = Counter(pairs)
    - best = max(counts, key=lambda pair: (counts[pair], pair))
    + best = max(counts)

    - return best, new
    + return new, best

Lines after `- ` go, lines after `+ ` come, lines after two spaces stay and tell where.  Between two
edits, apart by an empty line, everything of the solution stays.  The lines of an edit that go or
stay must occur together in the solution, exactly once; empty lines do not count.

A mutant that shares little with the solution is the whole cell, as plain Python.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CELL = re.compile(r"^# %% ", flags=re.MULTILINE)
_HEAD = re.compile(r"([0-9]{2}\.[1-9]) (\w+)\n((?:# .+\n)+)")
_GOES, _COMES, _STAYS = _MARKS = ("- ", "+ ", "  ")


@dataclass(frozen=True)
class Mutant:
    """One typical wrong answer."""

    question: str
    name: str
    says: str
    """The message that the check must give."""
    source: str
    """Of the answer cell, after the edit."""


def read(path: Path, solutions: Mapping[str, str]) -> list[Mutant]:
    """Return the mutants of a file.

    Args:
        path: of the file.
        solutions: by question, such as "05.1", the source of the answer cell.

    Raises:
        ValueError: if a cell lacks its question, its name or its message, if there is no such
            question, or if an edit does not fit the solution.
    """
    found = []
    for cell in _CELL.split(path.read_text(encoding="utf8"))[1:]:
        head = _HEAD.match(cell)
        comment = " ".join(line[2:] for line in head[3].strip().split("\n")) if head else ""
        if not comment.startswith("says: "):
            raise ValueError(f"{path.name}: a mutant begins '# %% NN.n name' and '# says: ...'")
        question, name = head[1], head[2]
        if question not in solutions:
            raise ValueError(f"{path.name}: {name} belongs to {question}, which has no solution")
        source = cell[head.end() :].strip("\n")
        if source.startswith(_MARKS):
            try:
                source = edited(solutions[question], source)
            except ValueError as error:
                raise ValueError(f"{path.name}: {question} {name}: {error}") from None
        found.append(Mutant(question, name, comment.removeprefix("says: "), source + "\n"))
    return found


def edited(source: str, edits: str) -> str:
    """Return a source after edits, without empty lines.

    Raises:
        ValueError: if the lines of an edit are not in the source, or not only once, or stand
            before those of the edit above.
    """
    lines = [line for line in source.split("\n") if line.strip()]
    new, done = [], 0
    for edit in re.split(r"\n\n+", edits):
        marked = [(line[:2], line[2:]) for line in edit.split("\n")]
        for mark, line in marked:
            if mark not in _MARKS:
                raise ValueError(f"begin a line with '- ', '+ ' or two spaces: {mark + line!r}")
        place = _place_of([line for mark, line in marked if mark != _COMES], lines)
        if place < done:
            raise ValueError(f"in the solution this stands before the edit above it:\n{edit}")
        new += lines[done:place] + [line for mark, line in marked if mark != _GOES]
        done = place + sum(mark != _COMES for mark, _ in marked)
    return "\n".join(new + lines[done:])


def _place_of(old: list[str], lines: list[str]) -> int:
    """Return the only place at which old lines stand among lines."""
    if not old:
        raise ValueError("an edit of new lines alone: name a line beside which they come")
    for line in old:
        if line not in lines:
            raise ValueError(f"this line is not in the solution: {line!r}")
    places = [i for i in range(len(lines)) if lines[i : i + len(old)] == old]
    if len(places) != 1:
        wrong = "are in the solution more than once" if places else "do not follow each other there"
        raise ValueError(f"these lines {wrong}:\n" + "\n".join(old))
    return places[0]
