"""One submission: read what may be anything, run it shut off, and ask the hidden tests.

Taught in: chapters/00_how_to_use.ipynb
"""

import ast
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from llmcourse.grading import exercise, hidden, sandbox
from llmcourse.grading.exercise import ExerciseError, Question
from llmcourse.grading.result import Line, Result, State
from llmcourse.grading.session import EndedError, Session

MOST_FILE_BYTES = 8 * 2**20
MOST_CELLS = 2_000
MOST_STARTS = 4
"""A learner's process is started again after an answer has ended it, so often in all."""
INSTALL_CELL = "install"


@dataclass(frozen=True)
class Exam:
    """What submissions are graded by."""

    topic: str
    """Such as 05_tokens."""
    questions: tuple[Question, ...]
    tests: ModuleType
    seed: int
    fingerprint: str
    """Of everything that a score depends on, besides the submission."""

    @property
    def points(self) -> float:
        """The points of all questions."""
        return float(sum(question.points for question in self.questions))


def exam(notebook: Path, folder: Path, *, seed: int = 0) -> Exam:
    """Return what submissions of a notebook are graded by.

    Args:
        notebook: the learner's version, or that with the solutions.
        folder: holds the hidden tests, NN_topic.py.
        seed: of the hidden tests' inputs.

    Raises:
        ExerciseError: if the notebook is not one of exercises.
        FileNotFoundError: if it has no hidden tests.
        ValueError: if a question has none.
    """
    questions = tuple(exercise.questions(exercise.read(notebook)))
    path = folder / f"{notebook.stem}.py"
    tests = hidden.load(path)
    for question in questions:
        hidden.tests_of(tests, question.number)
    sha = hashlib.sha256(f"{seed}\0".encode())
    for content in (notebook.read_bytes(), path.read_bytes()):
        sha.update(hashlib.sha256(content).digest())
    return Exam(notebook.stem, questions, tests, seed, sha.hexdigest())


def cells_of(path: Path, topic: str) -> tuple[list[str], list[str]]:
    """Return the cells of a submission that are to be run, and what is odd about it.

    Checks are left out, whatever they have become: a score never depends on them.

    Raises:
        ExerciseError: if the file is no notebook that can be run; the message says why.
    """
    if path.is_symlink() or not path.is_file():
        raise ExerciseError("it is not a file of its own")
    if not (size := path.stat().st_size):
        raise ExerciseError("the file is empty")
    if size > MOST_FILE_BYTES:
        raise ExerciseError(f"the file has {size:,} bytes, more than {MOST_FILE_BYTES:,}")
    notebook = exercise.read(path)
    try:
        language = notebook.metadata.get("kernelspec", {}).get("language", "python")
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        names = [exercise.grade_id(cell) for cell in notebook.cells]
        kept = [str(cell.source) for cell in code if _is_to_run(cell)]
    except (AttributeError, TypeError, KeyError):
        raise ExerciseError("it is not a notebook: its cells have another form") from None
    if str(language).lower() not in ("python", "python3", ""):
        raise ExerciseError(f"its language is {str(language)[:40]}, not Python")
    if len(code) > MOST_CELLS:
        raise ExerciseError(f"it has {len(code):,} cells of code, more than {MOST_CELLS:,}")
    return kept, oddities(names, topic)


def _is_to_run(cell: Any) -> bool:
    """Say whether a cell is the learner's work: not the installation, not a check."""
    marked = cell.metadata.get("nbgrader", {}).get("grade") is True
    return not (marked or cell.get("id") == INSTALL_CELL or _only_checks(cell.source))


def _only_checks(source: str) -> bool:
    """Say whether a cell does nothing but check, even if it has lost its marks."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [w.items[0].context_expr for w in body if isinstance(w, ast.With)]
    named = [isinstance(c, ast.Call) and ast.unparse(c.func) == "Check" for c in calls]
    return bool(body) and len(calls) == len(body) and all(named)


def oddities(names: Sequence[str], topic: str) -> list[str]:
    """Return what is odd about the marked cells of a notebook, a sentence each."""
    chapter = topic[:2]
    marked = [name for name in names if name]
    answers = [name for name in marked if name.endswith("-answer")]
    others = sorted({name[:2] for name in answers if not name.startswith(f"{chapter}-")})
    found = []
    if others and not any(name.startswith(f"{chapter}-") for name in answers):
        found.append(f"this is the notebook of chapter {others[0][:40]}, not of {chapter}")
    elif not answers:
        found.append("no cell is marked as an answer: is this the right notebook?")
    if len(set(marked)) != len(marked):
        found.append("some marked cells are there twice: the last definition counts")
    return found


class Learner:
    """The functions of one submission, in a process that is started again when it ends.

    Args:
        cells: sources to run, in order.
        open_session: starts a process.
        problems: what went wrong with the cells is added here, a sentence each.
    """

    def __init__(self, cells: Sequence[str], open_session: Any, problems: list[str]) -> None:
        self._cells = list(enumerate(cells, start=1))
        self._open, self._problems = open_session, problems
        self._session: Session | None = None
        self._starts = 0

    def call(self, name: str, *arguments: Any, **settings: Any) -> Any:
        """Call a function of the submission, as `Session.call`."""
        return self.ready().call(name, *arguments, **settings)

    def ready(self) -> Session:
        """Return a process in which the cells have been run."""
        while self._session is None or self._session.ended:
            if self._starts == MOST_STARTS:
                raise EndedError(f"it has been started {MOST_STARTS} times, which is the most")
            self._starts += 1
            self._session = self._open()
            self._session.__enter__()
            self._run_cells()
        return self._session

    def _run_cells(self) -> None:
        """Run all cells; one that ends the process is left out from then on."""
        for place, (number, source) in enumerate(self._cells):
            try:
                error = self._session.run_cell(source)
            except EndedError as ended:
                self._problems.append(f"cell {number}: {ended}")
                del self._cells[place]
                return
            if error and self._starts == 1:
                self._problems.append(f"cell {number}: {error}")

    def close(self) -> str:
        """End the process; return the end of what it printed."""
        if self._session is None:
            return ""
        self._session.close()
        return self._session.printed()


def grade(path: Path, exam: Exam, place: sandbox.Place) -> dict[str, Any]:
    """Grade one submission; whatever it is, return a report and leave nothing behind.

    Args:
        path: the submitted file.
        exam: what it is graded by.
        place: where it runs.

    Returns:
        A dictionary for JSON, with score, points, the questions' checks, problems and seconds.
    """
    began = time.monotonic()
    problems: list[str] = []
    results, printed = [], ""
    try:
        cells, odd = cells_of(path, exam.topic)
        problems += odd
        results, printed = _results(cells, exam, place, problems)
    except ExerciseError as error:
        problems.append(str(error))
    if not results:
        results = [Result(question.number, question.points) for question in exam.questions]
    questions = [_question(q, result) for q, result in zip(exam.questions, results, strict=True)]
    return {
        "score": sum(question["score"] for question in questions),
        "points": exam.points,
        "questions": questions,
        "problems": [clean(problem) for problem in problems],
        "printed": clean(printed),
        "seconds": round(time.monotonic() - began, 2),
    }


def _results(
    cells: Sequence[str], exam: Exam, place: sandbox.Place, problems: list[str]
) -> tuple[list[Result], str]:
    """Run the cells, then the hidden tests of each question."""
    deadline = time.monotonic() + place.limits.submission_s

    def open_session() -> Session:
        return Session(place, deadline=deadline)

    learner = Learner(cells, open_session, problems)
    try:
        learner.ready()
    except EndedError as ended:
        problems.append(str(ended))
    results = []
    try:
        for question in exam.questions:
            number, points = question.number, question.points
            results.append(hidden.run(exam.tests, number, points, learner.call, seed=exam.seed))
    finally:
        printed = learner.close()
    return results, printed


def _question(question: Question, result: Result) -> dict[str, Any]:
    lines: list[Line] = result.lines or [Line(State.NOT_ANSWERED, "it was not run")]
    return {
        "question": question.number,
        "title": question.title,
        "state": str(result.state),
        "score": float(result.score),
        "points": float(question.points),
        "checks": [
            {name: clean(str(getattr(line, name))) for name in ("state", "meaning", "detail")}
            for line in lines
        ],
    }


def clean(text: str) -> str:
    """Return a learner's text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
