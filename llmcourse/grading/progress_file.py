"""The file of a learner's progress: what it holds, and changing it without ever losing any of it.

    {"format": 1, "questions": {"05.1": {"state": "PASS", "points": 2, "tries": 3,
     "passed": "2026-11-21T09:30:00Z", "last": "2026-11-21T09:41:07Z"}}}

Every change holds a lock, so that two notebooks lose nothing to each other, and replaces the whole
file at once, so that a crash leaves the old or the new one.

Taught in: chapters/00_how_to_use.ipynb
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import filelock

from llmcourse import runtime
from llmcourse.grading.result import State

FORMAT = 1
LOCK_S = 5.0
"""Seconds to wait for a lock that another process holds."""
MOST_BYTES = 4_000_000
MOST_POINTS = 1e6

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NUMBER = re.compile(r"[0-9]{2}\.[1-9][0-9]?")
_ORDER = (State.NOT_ANSWERED, State.NOT_YET, State.PASS)
_OTHERS = {
    "chapters": "it is a summary for the book's map, which does not hold the questions",
    "progress": "it was exported by the book's map of chapters: import it there",
}


class ProgressError(ValueError):
    """A file does not hold progress; the message says why."""


class NewerFormatError(ProgressError):
    """A file was written by a newer version of the package."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known of one question."""

    state: State
    """The best so far: what was passed once stays passed."""
    points: int | float
    """What the question is worth; more than 0."""
    tries: int
    """Runs of the check with an answer; a stub that is still empty is no try."""
    passed: str | None
    """When it was passed first, such as 2026-11-21T09:30:00Z."""
    last: str
    """When its check was run last."""

    def __post_init__(self) -> None:
        if broken := broken_rule(vars(self)):
            raise ValueError(broken)

    def then(self, state: State, points: int | float, when: str) -> "Entry":
        """Return the entry after one more run of the check."""
        passed = self.passed or (when if state is State.PASS else None)
        tries = self.tries + (state is not State.NOT_ANSWERED)
        best = max(self.state, state, key=_ORDER.index)
        return Entry(state=best, points=points, tries=tries, passed=passed, last=when)

    def merged(self, other: "Entry") -> "Entry":
        """Return what two files together know: the better state, the greater number of tries."""
        times = [time for time in (self.passed, other.passed) if time is not None]
        return Entry(
            state=max(self.state, other.state, key=_ORDER.index),
            points=max(self.points, other.points),
            tries=max(self.tries, other.tries),
            passed=min(times, default=None),
            last=max(self.last, other.last),
        )


Questions = dict[str, Entry]
NAMES = frozenset(field.name for field in fields(Entry))


def first(state: State, points: int | float, when: str) -> Entry:
    """Return the entry of a question after the first run of its check."""
    none = Entry(state=State.NOT_ANSWERED, points=points, tries=0, passed=None, last=when)
    return none.then(state, points, when)


def broken_rule(entry: Mapping[str, Any]) -> str:
    """Return the first rule that an entry breaks, whatever it holds, or nothing."""
    state, points, tries = entry["state"], entry["points"], entry["tries"]
    rules = (
        (lambda: state in list(State), f"state must be one of {[str(each) for each in State]}"),
        (lambda: type(points) in (int, float) and 0 < points <= MOST_POINTS,
         f"points must be above 0, and at most {MOST_POINTS:,.0f}"),
        (lambda: type(tries) is int and tries >= 0, "tries must be a whole number from 0"),
        (lambda: _is_time(entry["last"]), "last must be a time such as 2026-11-21T09:30:00Z"),
        (lambda: (tries == 0) == (state == State.NOT_ANSWERED), "tries do not go with the state"),
        (lambda: _is_time(entry["passed"]) if state == State.PASS else entry["passed"] is None,
         "passed must be a time when the state is PASS, and null otherwise"),
    )  # fmt: skip
    return next((rule for holds, rule in rules if not holds()), "")


def _is_time(text: object) -> bool:
    if not (isinstance(text, str) and _TIME.fullmatch(text)):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def merged(mine: Questions, theirs: Questions) -> Questions:
    """Return the questions of both; merging is idempotent, and the order does not matter."""
    return {
        number: mine[number].merged(theirs[number])
        if number in mine and number in theirs
        else mine.get(number) or theirs[number]
        for number in sorted({*mine, *theirs}, key=order)
    }


def order(number: str) -> tuple[int, ...]:
    """Return what sorts questions as the book does: 05.2 before 05.10."""
    return tuple(map(int, number.split(".")))


def dumps(questions: Questions) -> str:
    """Return the content of a file."""
    inside = {number: asdict(questions[number]) for number in sorted(questions, key=order)}
    return json.dumps({"format": FORMAT, "questions": inside}, indent=1) + "\n"


def loads(content: bytes) -> Questions:
    """Return the questions in the content of a file.

    Raises:
        NewerFormatError: if a newer version of the package wrote it.
        ProgressError: if it is anything else that `dumps` did not write.
    """
    if len(content) > MOST_BYTES:
        raise ProgressError(f"it has {len(content):,} bytes, more than {MOST_BYTES:,}")
    try:
        given = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise ProgressError("it is not JSON" if content else "it is empty") from None
    if not isinstance(given, dict) or type(given.get("format")) is not int:
        raise ProgressError(_OTHERS["progress"] if _is_map(given) else "it is of another kind")
    if given["format"] > FORMAT:
        raise NewerFormatError(
            f"it has format {given['format']} and this version of llmcourse knows {FORMAT}: "
            "upgrade llmcourse"
        )
    if given.keys() != {"format", "questions"} or given["format"] != FORMAT:
        raise ProgressError(_OTHERS["chapters"] if "chapters" in given else "it is of another kind")
    if not isinstance(given["questions"], dict):
        raise ProgressError("its questions are no table")
    return {number: _entry(number, entry) for number, entry in given["questions"].items()}


def _is_map(given: object) -> bool:
    return isinstance(given, dict) and given.get("format") == "llmcourse-progress"


def _entry(number: str, given: Any) -> Entry:
    """Return the entry of one question in a file."""
    if not _NUMBER.fullmatch(number):
        raise ProgressError(f"{number[:20]!r} is no number of a question, such as 05.1")
    if not isinstance(given, dict) or given.keys() != NAMES:
        raise ProgressError(f"question {number} must have {sorted(NAMES)}, and nothing else")
    if broken := broken_rule(given):
        raise ProgressError(f"question {number}: {broken}")
    return Entry(**given | {"state": State(given["state"])})


def read(path: Path) -> Questions:
    """Return the questions of a file; none if there is no such file.

    Raises:
        OSError: if it cannot be read.
        ProgressError: if it does not hold progress.
    """
    if not path.exists():
        return {}
    if not path.is_file():
        raise OSError(None, "it is not a file", str(path))
    with path.open("rb") as file:
        return loads(file.read(MOST_BYTES + 1))


def update(path: Path, change: Callable[[Questions], Questions]) -> str:
    """Change the questions of a file, as one step that no other process sees half done.

    A file that does not hold progress is moved aside, never overwritten.

    Args:
        path: the file; it is made if it is not there.
        change: returns the new questions for those that are there.

    Returns:
        A sentence about the file that was moved aside, or nothing.

    Raises:
        OSError: if the file cannot be read or written, or another process keeps the lock; the file
            is as it was.
        NewerFormatError: if a newer version of the package wrote the file.
    """
    path = path.expanduser().resolve()  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_S):
        said = ""
        try:
            questions = read(path)
        except NewerFormatError as error:
            raise NewerFormatError(f"{path}: {error}") from None
        except ProgressError as error:
            said = f"{path} does not hold progress ({error}); it is kept as {_moved_aside(path)}"
            questions = {}
        content = dumps(change(questions)).encode()
        with runtime.write_atomically(path) as file:
            file.write(content)
    return said


def _moved_aside(path: Path) -> Path:
    """Rename a file to the first free name NAME.broken-N; the caller holds the lock."""
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    return path.rename(aside)
