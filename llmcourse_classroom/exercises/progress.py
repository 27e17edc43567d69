"""What a learner has passed so far: kept by every check, shown as a table, carried elsewhere.

    llmcourse progress                  the table, and what to do next
    llmcourse progress export FILE      a copy, for another machine
    llmcourse progress import FILE      takes the further of both, each question
    llmcourse progress summary FILE     what the book's map of chapters loads

The file is ~/.llmcourse/progress.json; the environment variable LLMCOURSE_PROGRESS names another,
and "off" keeps none:

    {"format": 1, "questions": {"05.1": {"state": "PASS", "points": 2, "tries": 3,
     "passed": "2026-11-21T09:30:00Z", "last": "2026-11-21T09:41:07Z"}}}

Every change holds a lock, so that two notebooks lose nothing to each other, and replaces the whole
file at once, so that a crash leaves the old or the new one.
"""

import argparse
import functools
import itertools
import json
import math
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import filelock

from llmcourse.base import files
from llmcourse.base.command_line import ended
from llmcourse_classroom.exercises.result import Result, State

FORMAT = 1
LOCK_S = 5.0
"""Seconds to wait for a lock that another process holds."""
VARIABLE = "LLMCOURSE_PROGRESS"

_ORDER = [State.NOT_ANSWERED, State.NOT_YET, State.PASS]
_NAMES = {"state", "points", "tries", "passed", "last"}
Questions = dict[str, dict[str, Any]]
"""What is known of each question, by its number."""


class DamagedError(ValueError):
    """A file does not hold progress; the message says why."""


def _path() -> Path | None:
    """Return the file that progress is kept in, or None if it is switched off."""
    named = os.environ.get(VARIABLE) or "~/.llmcourse/progress.json"
    return None if named.lower() == "off" else Path(named).expanduser()


# --- the file


def read(path: Path | None) -> Questions:
    """Return the questions of a file; none if there is no such file.

    Raises:
        DamagedError: if it does not hold progress.
        OSError: if it cannot be read.
        ValueError: if a newer version of the package wrote it.
    """
    if path is None or not path.exists():
        return {}
    content = path.read_bytes()
    try:
        given = json.loads(content)
        newer = given["format"] > FORMAT
        questions = {} if newer else {n: _entry(n, e) for n, e in given["questions"].items()}
    except Exception as error:  # what is in a file may break its reader anywhere
        why = f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path} does not hold progress ({why})") from None
    if newer:
        raise ValueError(f"{path} has format {given['format']}, not {FORMAT}: upgrade llmcourse")
    return questions


def _entry(number: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of one question, unless it is not what a check has kept."""
    passed = entry["passed"]
    if not (
        re.fullmatch(r"[0-9]{2}\.[1-9][0-9]?", number)
        and entry.keys() == _NAMES
        and entry["state"] in _ORDER
        and 0 < entry["points"] < math.inf
        and type(entry["tries"]) is int
        and isinstance(entry["last"], str)
        and (isinstance(passed, str) if entry["state"] == State.PASS else passed is None)
    ):
        raise ValueError(f"question {number[:20]} has an entry that no check has made")
    return entry


def _update(path: Path, change: Callable[[Questions], Questions]) -> str:
    """Change a file as one step; return a sentence if it was damaged and is kept aside."""
    path = path.resolve()  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_S):
        said = ""
        try:
            questions = read(path)
        except DamagedError as error:
            names = (path.with_name(f"{path.name}.broken-{n}") for n in itertools.count(1))
            aside = path.rename(next(name for name in names if not name.exists()))
            said, questions = f"{error}; it is kept as {aside}", {}
        _write(path, change(questions))
    return said


def _write(path: Path, questions: Questions) -> None:
    inside = {number: _entry(number, questions[number]) for number in sorted(questions, key=_place)}
    with files.write_atomically(path) as file:
        file.write(json.dumps({"format": FORMAT, "questions": inside}, indent=1).encode() + b"\n")


def _place(number: str) -> list[int]:
    """Return what sorts questions as the book does: 05.2 before 05.10."""
    return [int(part) for part in number.split(".")]


def record(result: Result) -> None:
    """Keep the result of a check.

    It never raises, since a notebook must go on, and says once what it could not keep, and why.
    """
    try:
        path = _path()
        said = "" if path is None else _update(path, lambda before: _after(before, result))
    except (OSError, ValueError, RuntimeError) as error:
        said = f"your progress is not kept: {error}; mend that, or set {VARIABLE} to another file"
    if said:
        _say_once(said)


@functools.cache
def _say_once(sentence: str) -> None:
    """Print a sentence, the first time in this process."""
    print(sentence)


def _after(before: Questions, result: Result) -> Questions:
    """Return the questions after one more run of a check; what was passed once stays passed."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    old = before.get(result.question, {"state": State.NOT_ANSWERED, "tries": 0, "passed": None})
    entry = {
        "state": max(old["state"], result.state, key=_ORDER.index),
        "points": result.points,
        "tries": old["tries"] + (result.state is not State.NOT_ANSWERED),
        "passed": old["passed"] or (now if result.state is State.PASS else None),
        "last": now,
    }
    return before | {result.question: entry}


def _joined(mine: Questions, theirs: Questions) -> Questions:
    """Return the questions of both, and of each question the entry that is further."""
    both = [*mine.items(), *theirs.items()]
    both.sort(key=lambda item: (_ORDER.index(item[1]["state"]), item[1]["tries"], item[1]["last"]))
    return dict(both)


# --- looking


def catalogue() -> list[dict[str, Any]]:
    """Return number, title, trains, difficulty, minutes, points and notebook of all questions."""
    text = (
        resources.files("llmcourse_classroom.exercises")
        .joinpath("catalogue.json")
        .read_text("utf8")
    )
    return sorted(json.loads(text)["questions"], key=lambda question: _place(question["number"]))


def _passed(known: Questions) -> Callable[[dict[str, Any]], bool]:
    """Return what says whether a question of the catalogue has been passed."""
    return lambda question: known.get(question["number"], {}).get("state") == State.PASS


def summary(known: Questions | None = None) -> dict[str, Any]:
    """Return how many questions and points of each chapter are passed, as `read` finds them.

    ``{"format": 1, "chapters": {"05": {"passed": 2, "of": 4, "points": 3, "of_points": 6}}}``
    """
    is_passed = _passed(read(_path()) if known is None else known)
    chapters: dict[str, dict[str, int | float]] = {}
    for question in catalogue():
        none = {"passed": 0, "of": 0, "points": 0, "of_points": 0}
        sums, passed = chapters.setdefault(question["number"][:2], none), is_passed(question)
        sums["of"] += 1
        sums["of_points"] += question["points"]
        sums["passed"] += passed
        sums["points"] += question["points"] * passed
    return {"format": FORMAT, "chapters": chapters}


def table(known: Questions) -> str:
    """Return the progress as text: by chapter, by question, and what to do next."""
    left = list(itertools.filterfalse(_passed(known), catalogue()))
    lines = [f"chapter  {'passed':10}  {'points':10}  minutes left"]
    for chapter, sums in summary(known)["chapters"].items():
        passed = f"{sums['passed']} of {sums['of']}"
        points = f"{sums['points']:g} of {sums['of_points']:g}"
        minutes = sum(q["minutes"] for q in left if q["number"].startswith(chapter))
        lines.append(f"{chapter:7}  {passed:10}  {points:10}  {minutes:12}")
    lines.append("")
    for question in catalogue():
        entry = known.get(question["number"], {"state": State.NOT_ANSWERED, "tries": 0})
        count = entry["tries"]
        tries = f"{count} {'try' if count == 1 else 'tries'}" if count else ""
        lines.append(f"{question['number']:5}  {entry['state']:16}  {tries:9}  {question['title']}")
    if others := sorted(known.keys() - {q["number"] for q in catalogue()}, key=_place):
        lines.append(f"of another edition, kept: {', '.join(others)}")
    if not left:
        return "\n".join([*lines, "", "next: nothing, every question is passed"])
    # The first chapter's easiest.
    q = min(left, key=lambda q: (q["number"][:2], q["difficulty"], _place(q["number"])))
    effort = f"difficulty {q['difficulty']} of 5, {q['minutes']} minutes"
    lines += ["", f"next: {q['number']} {q['title']}, {effort}", f"      trains {q['trains']}"]
    return "\n".join([*lines, f"      open exercises/{q['notebook']}.ipynb"])


def main(arguments: list[str] | None = None) -> int:
    """Show, export, import or sum up the progress; return an exit code."""
    name, about = "llmcourse progress", __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("command", nargs="?", choices=["export", "import", "summary"])
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if (options.command is None) != (options.file is None):
        parser.error("export, import and summary need a FILE")
    return ended(name, lambda: print(_done(options.command, options.file)), told=(RuntimeError,))


def _done(command: str | None, file: Path | None) -> str:
    """Carry out a command; return what to say about it."""
    path = _path()
    if path is None:
        raise ValueError(f"none is kept, since {VARIABLE} is off: unset it, or name a file")
    if file is None:
        text = table(read(path))
        return text if path.exists() else f"{text}\n\nThere is no progress in {path} yet."
    if file.exists() != (command == "import"):
        raise ValueError(f"{file} is {'there already' if file.exists() else 'not there'}")
    if command == "import":
        theirs = read(file)
        said = _update(path, lambda mine: _joined(mine, theirs))
        return f"{said}\n{path} now has what {file} has".lstrip()
    if command == "export":
        _write(file, read(path))
        return f"{file} has a copy of {path}; import it on the other machine"
    with files.write_atomically(file) as out:
        out.write(json.dumps(summary()).encode())
    return f"{file} can be loaded in the map of chapters"
