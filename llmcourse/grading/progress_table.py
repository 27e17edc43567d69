"""A learner's progress as text and in numbers: by chapter, by question, and what comes next.

Taught in: chapters/00_how_to_use.ipynb
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from llmcourse.grading.catalogue import Listed
from llmcourse.grading.progress_file import Questions, order
from llmcourse.grading.result import State

SUMMARY_FORMAT = 1


def summary(known: Questions, listed: Sequence[Listed]) -> dict[str, Any]:
    """Return how many questions and points of each chapter are passed."""
    chapters = {}
    for chapter, those in _by_chapter(listed):
        passed = [question for question in those if is_passed(known, question)]
        chapters[chapter] = {
            "passed": len(passed),
            "of": len(those),
            "points": sum(question.points for question in passed),
            "of_points": sum(question.points for question in those),
        }
    return {"format": SUMMARY_FORMAT, "chapters": chapters}


def _by_chapter(listed: Sequence[Listed]) -> Iterator[tuple[str, list[Listed]]]:
    for chapter, those in groupby(listed, key=lambda question: question.chapter):
        yield chapter, list(those)


def is_passed(known: Questions, question: Listed) -> bool:
    """Say whether a question has been passed."""
    return question.number in known and known[question.number].state is State.PASS


def next_question(known: Questions, listed: Sequence[Listed]) -> Listed | None:
    """Return the question to go on with: the first chapter's easiest that is not passed."""
    left = [question for question in listed if not is_passed(known, question)]
    return min(left, key=lambda q: (q.chapter, q.difficulty, order(q.number)), default=None)


def aligned(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows of cells as lines whose columns stand under each other.

    Args:
        rows: all of one length.
        right: the columns that are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(known: Questions, listed: Sequence[Listed]) -> str:
    """Return the progress as text: by chapter, by question, and what to do next."""
    rows = [("chapter", "passed", "points", "minutes left")]
    of_chapters = summary(known, listed)["chapters"]
    total = {name: sum(c[name] for c in of_chapters.values())
             for name in ("passed", "of", "points", "of_points")}  # fmt: skip
    for chapter, sums in [*of_chapters.items(), ("all", total)]:
        left = [q for q in listed if chapter in (q.chapter, "all") and not is_passed(known, q)]
        rows.append((
            chapter, f"{sums['passed']} of {sums['of']}",
            f"{sums['points']:g} of {sums['of_points']:g}", str(sum(q.minutes for q in left)),
        ))  # fmt: skip
    lines = [*aligned(rows, right=frozenset({3})), ""]
    lines += aligned([_row(known, question) for question in listed]) if listed else []
    if others := sorted(set(known) - {q.number for q in listed}, key=order):
        lines.append(f"of another edition, kept: {', '.join(others)}")
    return "\n".join([*lines, "", *_next_lines(next_question(known, listed))])


def _row(known: Questions, question: Listed) -> tuple[str, ...]:
    entry = known.get(question.number)
    tries = entry.tries if entry else 0
    return (
        question.number,
        str(entry.state if entry else State.NOT_ANSWERED),
        f"{tries} {'try' if tries == 1 else 'tries'}" if tries else "",
        question.title,
    )


def _next_lines(question: Listed | None) -> list[str]:
    if question is None:
        return ["next: nothing, every question is passed"]
    effort = f"difficulty {question.difficulty} of 5, {question.minutes} minutes"
    return [
        f"next: {question.number} {question.title}, {effort}",
        f"      trains {question.trains}",
        f"      open exercises/{question.notebook}.ipynb",
    ]
