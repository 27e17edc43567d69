"""Mutants: typical wrong answers, each with the message that a check must give for it.

A file exercises/mutants/NN_topic.py holds cells of Python:

    # %% 05.1 greatest_first
    # says: you joined the pair that ...
    def first_merge(text): ...

Each cell stands in place of the answer cell of its question.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_CELL = re.compile(r"^# %% ", flags=re.MULTILINE)
_HEAD = re.compile(r"([0-9]{2}\.[1-9]) (\w+)\n((?:# .+\n)+)")


@dataclass(frozen=True)
class Mutant:
    """One typical wrong answer."""

    question: str
    name: str
    says: str
    """The message that the check must give."""
    source: str


def read(path: Path) -> list[Mutant]:
    """Return the mutants of a file.

    Raises:
        ValueError: if a cell lacks its question, its name or its message.
    """
    found = []
    for cell in _CELL.split(path.read_text(encoding="utf8"))[1:]:
        head = _HEAD.match(cell)
        comment = " ".join(line[2:] for line in head[3].strip().split("\n")) if head else ""
        if not comment.startswith("says: "):
            raise ValueError(f"{path.name}: a mutant begins '# %% NN.n name' and '# says: ...'")
        source = cell[head.end() :].strip("\n") + "\n"
        found.append(Mutant(head[1], head[2], comment.removeprefix("says: "), source))
    return found
