"""What a learner has passed so far: kept by every check, shown as a table, carried elsewhere.

    python -m llmcourse.grading progress                  the table, and what to do next
    python -m llmcourse.grading progress export FILE      a copy, for another machine
    python -m llmcourse.grading progress import FILE      takes the better of both for each question
    python -m llmcourse.grading progress summary FILE     what the book's map of chapters loads

The file is ~/.llmcourse/progress.json; the environment variable LLMCOURSE_PROGRESS names another,
and "off" keeps none.

Taught in: chapters/00_how_to_use.ipynb
"""

import argparse
import functools
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock

from llmcourse import runtime
from llmcourse.grading import catalogue, progress_file, progress_table
from llmcourse.grading.progress_file import LOCK_S, ProgressError, Questions
from llmcourse.grading.result import Result

VARIABLE = "LLMCOURSE_PROGRESS"
OFF = "off"
ELSEWHERE = f"set {VARIABLE} to another file"
USAGE = 2


def default_path() -> Path | None:
    """Return the file that progress is kept in, or None if it is switched off.

    Raises:
        RuntimeError: if there is no home folder.
    """
    named = os.environ.get(VARIABLE, "")
    if named.lower() == OFF:
        return None
    return Path(named).expanduser() if named else Path.home() / ".llmcourse" / "progress.json"


# --- keeping


def record(result: Result) -> None:
    """Keep the result of a check.

    It never raises, since a notebook must go on, and says once what it could not keep, and why.
    """
    try:
        path = default_path()
        if path is None:
            return
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = progress_file.update(path, lambda before: with_result(before, result, when))
    except (OSError, ValueError, RuntimeError) as error:
        said = f"your progress is not kept: {reason(error)}; mend that, or {ELSEWHERE}"
    if said:
        _say_once(said)


@functools.cache
def _say_once(sentence: str) -> None:
    """Print a sentence, the first time in this process."""
    print(sentence)


def with_result(before: Questions, result: Result, when: str) -> Questions:
    """Return the questions after one more run of a check."""
    given = result.state, result.points, when
    known = before.get(result.question)
    after = known.then(*given) if known else progress_file.first(*given)
    return {**before, result.question: after}


def reason(error: Exception) -> str:
    """Return in one line why a file was not read or written."""
    if isinstance(error, filelock.Timeout):
        return f"another process has held {error.lock_file} for {LOCK_S:g} s: end it"
    if isinstance(error, OSError):
        why = str(error.strerror or error).removeprefix("cannot write: ")
        return f"{error.filename or 'the file'} cannot be read or written ({why})"
    return str(error)


# --- looking


def summary(path: Path | None = None) -> dict[str, Any]:
    """Return how many questions and points of each chapter are passed.

    Args:
        path: the file of progress; by default that of the checks.

    Returns:
        A dictionary such as
        ``{"format": 1, "chapters": {"05": {"passed": 2, "of": 4, "points": 3, "of_points": 6}}}``.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it does not hold progress.
    """
    path = default_path() if path is None else path
    return progress_table.summary(
        {} if path is None else progress_file.read(path), catalogue.questions()
    )


# --- commands


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("--file", type=Path, default=argparse.SUPPRESS, metavar="F",
                      help=f"the progress (~/.llmcourse/progress.json, or {VARIABLE})")  # fmt: skip
    made = argparse.ArgumentParser(
        prog="python -m llmcourse.grading progress", parents=[file],
        description="Show what you have passed and what is next, or carry it elsewhere.",
    )  # fmt: skip
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    for name, help_text in (
        ("export", "write a copy of the progress"),
        ("import", "take the better of both for each question"),
        ("summary", "write what the book's map of chapters loads"),
    ):
        command = commands.add_parser(name, help=help_text, parents=[file])
        command.add_argument("target", type=Path, metavar="FILE")
        if name != "import":
            command.add_argument("--force", action="store_true", help="replace FILE if it is there")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Show, export, import or sum up the progress; return an exit code."""
    options = parser().parse_args(arguments)
    actions = {None: _show, "export": _export, "import": _import, "summary": _write_summary}
    try:
        path = options.file if "file" in options else default_path()
        if path is None:
            raise ValueError(f"none is kept, since {VARIABLE} is off: unset it, or give --file F")
        print(actions[options.command](path, options))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"progress: {reason(error)}", file=sys.stderr)
        return USAGE
    return 0


def _known(path: Path) -> Questions:
    """Return the questions of the learner's file, or an error that names it."""
    try:
        return progress_file.read(path)
    except ProgressError as error:
        raise ProgressError(f"{path} does not hold progress: {error}") from None


def _show(path: Path, _options: argparse.Namespace) -> str:
    text = progress_table.table(_known(path), catalogue.questions())
    return text if path.exists() else f"{text}\n\nThere is no progress in {path} yet."


def _export(path: Path, options: argparse.Namespace) -> str:
    if not path.exists():
        raise ValueError(f"there is no progress in {path} yet: nothing is exported")
    known = _known(path)
    _write(options.target, progress_file.dumps(known), path, replace=options.force)
    return f"{options.target} has {_count(known)}; import it on the other machine"


def _import(path: Path, options: argparse.Namespace) -> str:
    if not options.target.exists():
        raise ValueError(f"there is no file {options.target}")
    try:
        theirs = progress_file.read(options.target)
    except ProgressError as error:
        raise ProgressError(
            f"{options.target} is not taken: {error}; nothing has changed"
        ) from None
    news: Questions = {}

    def change(mine: Questions) -> Questions:
        after = progress_file.merged(mine, theirs)
        news.update({n: entry for n, entry in after.items() if mine.get(n) != entry})
        return after

    said = progress_file.update(path, change)
    told = f"{options.target} has {_count(theirs)}; {len(news)} of them new or further than before"
    return f"{said}\n{told}" if said else told


def _write_summary(path: Path, options: argparse.Namespace) -> str:
    sums = progress_table.summary(_known(path), catalogue.questions())
    replace = options.force or _is_summary(options.target)
    _write(options.target, json.dumps(sums) + "\n", path, replace=replace)
    return f"{options.target} can be loaded in the map of chapters"


def _is_summary(path: Path) -> bool:
    """Say whether a file is a summary, which can be made again at any time."""
    try:
        return json.loads(path.read_bytes()).keys() == {"format", "chapters"}
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _write(target: Path, text: str, path: Path, *, replace: bool) -> None:
    if target.resolve() == path.resolve():
        raise ValueError(f"{target} is the progress itself: name another file")
    if target.exists() and not replace:
        raise ValueError(f"{target} is there already: name another file, or add --force")
    with runtime.write_atomically(target) as file:
        file.write(text.encode())


def _count(questions: Questions) -> str:
    return f"{len(questions)} question{'' if len(questions) == 1 else 's'}"
