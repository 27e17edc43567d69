"""Write the tables of the syllabi into book/instructors.md, with their minutes and points.

python -m tools.pages.syllabi [--check]

Minutes of reading are those that chapters state, the others and the points those of exercises.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

from llmcourse_classroom.exercises import exercise, progress

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS, PAGE = ROOT / "chapters", ROOT / "book" / "instructors.md"


class Part(NamedTuple):
    """One row of a syllabus."""

    what: str
    chapters: str
    exercises: str
    """Numbers such as 05.1, or 05 for all of a chapter."""


SYLLABI = {
    "One day": [
        Part("A run from start to end", "01", "01.1 01.2"),
        Part("One step with a pencil", "02", "02.1"),
        Part("From counting pairs to a Transformer", "04", "04.4"),
        Part("Attention: the part that reads", "11", "11.1"),
        Part("The loss: how wrong it was", "16", "16.1"),
    ],
    "Four weeks": [
        Part(
            "The map; a model from counts",
            "00 01 02 03 04",
            "01.3 01.4 02.2 02.4 03.4 04.1 04.3",
        ),
        Part(
            "Tokens, the model, the loss",
            "05 10 11 12 13 16",
            "05.1 05.2 10.3 10.4 11.1 11.2 12.3 13.1 13.2 16.1",
        ),
        Part(
            "Gradients and steps",
            "17 18 19 25 26",
            "17.1 17.2 18.2 19.1 19.4 25.1 25.4 26.1 26.4 26.5 26.6",
        ),
        Part(
            "How much, how long, and what then",
            "32 33 34 40 41 43",
            "32.1 33.5 34.1 40.2 41.2 43.1",
        ),
    ],
    "Twelve weeks": [
        Part("The map", "00 01 02 03", "00 01 02 03"),
        Part("A model from counts; tokens; the blueprint", "04 05 10", "04 05 10"),
        Part("Inside the model, and its loss", "11 12 13 16", "11 12 13 16"),
        Part("What is predicted; the backward pass", "17 18 19", "17 18 19"),
        Part("The optimizer; the batch, and the epochs", "25 26 32 33", "25 26 32 33"),
        Part("Scaling laws; after pre-training", "34 40 41 43", "34 40 41 43"),
        Part("Real data", "06 07 08 09", "06 07 08 09"),
        Part("Many processors", "22 23 24", "22 23 24"),
        Part(
            "The model itself cut up; what it keeps",
            "14 15 20 21",
            "14.1 14.2 14.3 15.1 15.3 20 21.1 21.4",
        ),
        Part("Few bits, and what goes wrong", "27 28 29 30", "27 28 29.1 29.2 30.1 30.2"),
        Part("Failures, cost, long texts, hardware", "31 35 36 37", "31 35 36 37"),
        Part(
            "A cluster; tests to be trusted; the capstone",
            "38 39 42 44 45",
            "38.1 38.5 39.2 39.5 42.1 42.4 44.1 44.4 45",
        ),
    ],
    "The third lap": [
        Part("A real model, opened", "46", "46"),
        Part("The same model in few bits", "47", "47"),
        Part("The same model for many users", "48", "48"),
        Part("The same model, tuned", "49", "49"),
        Part("The same model, taught by a checker", "50", "50"),
    ],
}


class Sums(NamedTuple):
    """What a row, or a whole syllabus, asks for."""

    reading: int
    """Minutes."""
    solving: int
    """Minutes."""
    points: float


def minutes_of(number: str) -> int:
    """Return the minutes that a chapter states."""
    titles = [exercise.read(p).cells[0].source for p in CHAPTERS.glob(f"{number}_*.ipynb")]
    return sum(int(re.search(r"\*\*Minutes\*\* (\d+)", title)[1]) for title in titles)


def questions_of(exercises: str) -> list[dict]:
    """Return the questions that some numbers name."""
    wanted = tuple(f"{number}." for number in exercises.split())
    return [q for q in progress.catalogue() if f"{q['number']}.".startswith(wanted)]


def sums_of(part: Part) -> Sums:
    """Return what one row asks for."""
    questions = questions_of(part.exercises)
    minutes, points = (sum(q[of] for q in questions) for of in ("minutes", "points"))
    return Sums(sum(map(minutes_of, part.chapters.split())), minutes, points)


def table(name: str) -> str:
    """Return the table of a syllabus."""
    unit = "part" if name == "One day" else "week"
    lines = [
        f"| {unit} | what | chapters | exercises | reading, min | solving, min | points |",
        "|---:|---|---|---|---:|---:|---:|",
    ]
    total = Sums(0, 0, 0)
    for number, part in enumerate(SYLLABI[name], start=1):
        own = sums_of(part)
        total = Sums(*map(sum, zip(total, own, strict=True)))
        cells = (part.what, *(", ".join(words.split()) for words in part[1:]))
        sums = f"{own.reading} | {own.solving} | {own.points:g}"
        lines.append(f"| {number} | {' | '.join(cells)} | {sums} |")
    lines.append(f"| | all | | | {total.reading:,} | {total.solving:,} | {total.points:g} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with its tables, each behind the comment that names it."""
    for name in SYLLABI:
        text = re.sub(rf"(<!-- {name} -->\n)(?:\|.*\n)*", rf"\g<1>{table(name)}\n", text)
    return text


def main(arguments: list[str] | None = None) -> int:
    """Write the tables, or say whether they are stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    options = parser.parse_args(arguments)
    old = PAGE.read_text(encoding="utf8")
    if not options.check:
        PAGE.write_text(page(old), encoding="utf8")
        return 0
    fresh = old == page(old)
    print("the syllabi are " + ("fresh" if fresh else "stale: run make format"))
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
