"""The list of all questions, which comes with the package.

    {"format": 1, "questions": [{"number": "05.1", "title": "One merge", "trains": "...",
     "difficulty": 2, "minutes": 15, "points": 2, "notebook": "05_tokens"}]}

`make exercises` writes it from the notebooks with the solutions.

Taught in: chapters/00_how_to_use.ipynb
"""

import json
from dataclasses import dataclass, fields
from importlib import resources

from llmcourse.grading.progress_file import order

NAME = "catalogue.json"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What the list says of one question."""

    number: str
    """Chapter and number, such as "05.1"."""
    title: str
    trains: str
    difficulty: int
    """From 1 to 5."""
    minutes: int
    points: int | float
    notebook: str
    """Such as 05_tokens."""

    @property
    def chapter(self) -> str:
        """The number of the chapter, such as "05"."""
        return self.number.split(".")[0]


def loads(text: str) -> tuple[Listed, ...]:
    """Return the questions of a catalogue, in the order of the book.

    Raises:
        ValueError: if it is none.
    """
    try:
        given = json.loads(text)
        listed = [Listed(**question) for question in given["questions"]]
    except (ValueError, TypeError, KeyError) as error:
        names = ", ".join(field.name for field in fields(Listed))
        raise ValueError(
            f"{NAME} is no list of questions with {names} ({error}): run make exercises"
        ) from None
    if len({question.number for question in listed}) != len(listed):
        raise ValueError(f"{NAME} has a question twice: run make exercises")
    return tuple(sorted(listed, key=lambda question: order(question.number)))


def questions() -> tuple[Listed, ...]:
    """Return all questions of the course, in the order of the book.

    Raises:
        ValueError: if the package has come without its list.
    """
    path = resources.files("llmcourse.grading").joinpath(NAME)
    if not path.is_file():
        raise ValueError(f"this installation lacks its list of questions, {NAME}: install it again")
    return loads(path.read_text(encoding="utf8"))
