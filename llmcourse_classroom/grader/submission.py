"""One submission: read what may be anything, run it shut off, and ask the hidden tests."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.exercises.exercise import ExerciseError, Question
from llmcourse_classroom.exercises.result import Line, Result, State
from llmcourse_classroom.grader import forbidden as forbidden_names
from llmcourse_classroom.grader import hidden, reader
from llmcourse_classroom.grader.reader import Cell
from llmcourse_classroom.grader.session import EndedError, Session
from llmcourse_labs.sandbox import sandbox

MOST_PROBLEMS = 20
_FORBID = "__import__('llmcourse_classroom.grader.forbidden', fromlist=['']).forbid({names})"


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
    notebook: Path
    """Where the questions are from."""
    given: str
    given_names: frozenset[str]
    """What it gives beside the questions (`exercise.given`)."""
    forbidden: tuple[str, ...] = ()
    """Functions of the package that no cell may call."""

    @property
    def points(self) -> float:
        """The points of all questions."""
        return float(sum(question.points for question in self.questions))


def exam(notebook: Path, folder: Path, *, seed: int = 0, forbidden: Sequence[str] = ()) -> Exam:
    """Return what submissions of a notebook are graded by.

    Args:
        notebook: the learner's version, or that with the solutions.
        folder: holds the hidden tests, NN_topic.py.
        seed: of the hidden tests' inputs.
        forbidden: functions of the package that no cell may call, with their modules.

    Raises:
        FileNotFoundError: if it has no hidden tests.
        ValueError: if it is not one of exercises, or a question has no hidden test, or something
            forbidden is no function of the package.
    """
    cells = exercise.read(notebook)
    questions = tuple(exercise.questions(cells))
    tests = hidden.load(path := folder / f"{notebook.stem}.py")
    for question in questions:
        hidden.tests_of(tests, question.number)
    given = exercise.given(cells)
    named = forbidden_names.checked_names(forbidden)
    sha = hashlib.sha256(f"{seed} {named}\0".encode())
    for content in (notebook.read_bytes(), path.read_bytes()):
        sha.update(hashlib.sha256(content).digest())
    return Exam(notebook.stem, questions, tests, seed, sha.hexdigest(), notebook, *given, named)


def _oddities(cells: Sequence[Cell], topic: str) -> list[str]:
    """Return what is odd about the marked cells of a notebook, a sentence each."""
    marked = [cell.grade_id for cell in cells if cell.grade_id]
    chapters = sorted({name[:2] for name in marked if name.endswith("-answer")})
    found = []
    if not chapters:
        found.append("no cell is marked as an answer: is this the right notebook?")
    elif topic[:2] not in chapters:
        found.append(f"this is the notebook of chapter {chapters[0]}, not of {topic[:2]}")
    found += [
        f"the answer {cell.grade_id} is a cell of {cell.kind}, not of code: nothing in it is run"
        for cell in cells
        if cell.kind != "code"
    ]
    if len(set(marked)) != len(marked):
        found.append("some marked cells are there twice: the last definition counts")
    return found


class _Learner:
    """The functions of one submission, in a process that is started again when it ends.

    What goes wrong with its cells is added to the problems, a sentence each.
    """

    def __init__(
        self, cells: Sequence[str], exam: Exam, place: sandbox.Place, problems: list[str]
    ) -> None:
        self._cells = dict(enumerate(cells, start=1))
        self._exam, self._place, self._problems = exam, place, problems
        self._deadline = time.monotonic() + place.limits.submission_s
        self._session: Session | None = None

    def __call__(self, name: str, *arguments: Any, **settings: Any) -> Any:
        """Call a function of the submission, as `Session.call`."""
        return self.ready().call(name, *arguments, **settings)

    @property
    def processor_s(self) -> float:
        """Processor time of the last call."""
        return self.ready().processor_s

    def ready(self) -> Session:
        """Return a process in which the cells have been run."""
        # This ends: a start that fails takes a cell away, or is due to the deadline.
        while self._session is None or self._session.ended:
            self._session = Session(
                self._place,
                deadline=self._deadline,
                given=self._exam.given,
                given_names=self._exam.given_names,
            )
            self._session.__enter__()
            self._run_cells(self._session)
        return self._session

    def _run_cells(self, session: Session) -> None:
        """Run all cells; one that ends the process is left out from then on."""
        if self._exam.forbidden:
            session.run_cell(_FORBID.format(names=self._exam.forbidden))
        for number, source in list(self._cells.items()):
            try:
                error = session.run_cell(source)
            except EndedError as ended:
                self._problems.append(f"cell {number}: {ended}")
                del self._cells[number]
                return
            told = f"cell {number}: {error}"
            if error and told not in self._problems:
                self._problems.append(told)

    def close(self) -> str:
        """End the process; return the end of what it printed."""
        if self._session is None:
            return ""
        self._session.close()
        return self._session.printed()


def grade(
    path: Path,
    exam: Exam,
    place: sandbox.Place,
    *,
    lost: Mapping[str, str] | None = None,
    begin: Callable[[str], object] = str,
) -> dict[str, Any]:
    """Grade one submission; whatever it is, return a report and leave nothing behind.

    Args:
        path: of the submission.
        exam: what it is graded by.
        place: where it runs.
        lost: questions whose hidden tests are not to be run, with the reason.
        begin: called with each question before its hidden tests are run.

    Returns:
        A dictionary for JSON, with score, points, the questions' checks, problems and seconds.
    """
    began = time.monotonic()
    problems: list[str] = []
    results = [Result(question.number, question.points) for question in exam.questions]
    printed = ""
    try:
        found = reader.cells_of(path)
        problems += _oddities(found, exam.topic)
        cells = [source for cell in found if (source := reader.to_run(cell)).strip()]
        learner = _Learner(cells, exam, place, problems)
        try:
            with contextlib.suppress(EndedError):  # each question says it
                learner.ready()
            results = []
            for q in exam.questions:
                begin(q.number)
                results.append(_result(q, exam, learner, lost or {}))
        finally:
            printed = learner.close()
    except ExerciseError as error:
        problems.append(str(error))
    questions = [_question(q, result) for q, result in zip(exam.questions, results, strict=True)]
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [f"and {len(problems) - MOST_PROBLEMS} more"]
    return {
        "score": sum(question["score"] for question in questions),
        "points": exam.points,
        "questions": questions,
        "problems": [clean(problem) for problem in problems],
        "printed": clean(printed),
        "seconds": round(time.monotonic() - began, 2),
    }


def _result(question: Question, exam: Exam, learner: _Learner, lost: Mapping[str, str]) -> Result:
    """Run the hidden tests of a question, if they have not failed already."""
    number, points = question.number, question.points
    if why := lost.get(number):
        told = f"the hidden tests could not work with what your functions return: {why}"
        return Result(number, points, [Line(State.NOT_YET, told)])
    return hidden.run(exam.tests, number, points, learner, seed=exam.seed)


def _question(question: Question, result: Result) -> dict[str, Any]:
    return {
        "question": question.number,
        "title": question.title,
        "state": str(result.state),
        "score": float(result.score),
        "points": float(question.points),
        "checks": [
            {name: clean(str(getattr(line, name))) for name in ("state", "meaning", "detail")}
            for line in result.lines or [Line(State.NOT_ANSWERED, "it was not run")]
        ],
    }


def clean(text: str) -> str:
    """Return a learner's text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
