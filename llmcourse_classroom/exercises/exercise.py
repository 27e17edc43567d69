"""The notebook of a chapter's exercises: its questions, and the learner's version of it.

The notebook with the solutions is the source of the learner's.  Its cells carry nbgrader's
metadata, a question being three cells in a row: a text, an answer (a solution between two markers)
and the line that calls its check.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from llmcourse_classroom.notebooks import nbformat

_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"
_STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
"""What stands for a solution in the learner's notebook: nbgrader's own words."""

_IMPORTS = (ast.Import, ast.ImportFrom)
_HEADING = re.compile(r"^## ([0-9]{2})\.([1-9]) (.+)$", flags=re.MULTILINE)
_FACTS = re.compile(
    r"^\*\*Difficulty\*\* ([1-5]) of 5 · \*\*Minutes\*\* ([0-9]+) · \*\*Trains\*\* (.+)$",
    flags=re.MULTILINE,
)


class ExerciseError(ValueError):
    """A notebook is not one of exercises, or not in its form."""


@dataclass(frozen=True)
class Question:
    """One question of an exercise notebook."""

    number: str
    """Chapter and number, such as "05.1"."""
    title: str
    difficulty: int
    minutes: int
    trains: str
    points: float
    answer: str
    """Source of the answer cell."""

    @property
    def key(self) -> str:
        """The question's number as it stands in nbgrader's names: 05-1."""
        return self.number.replace(".", "-")


def read(path: Path) -> nbformat.NotebookNode:
    """Return the notebook of a file.

    Raises:
        ExerciseError: if the file is no notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        raise ExerciseError(f"{path.name} is not a notebook: {type(error).__name__}") from None


def grade_id(cell: nbformat.NotebookNode) -> str:
    """Return nbgrader's name of a cell, or nothing."""
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def questions(notebook: nbformat.NotebookNode) -> list[Question]:
    """Return the questions of an exercise notebook, with the solutions if it has them.

    Raises:
        ExerciseError: if a question's text lacks its facts, its answer or its check.
    """
    cells = {grade_id(cell): cell for cell in notebook.cells if grade_id(cell)}
    found = []
    for text in notebook.cells:
        match = _HEADING.search(text.source) if text.cell_type == "markdown" else None
        if match is None:
            continue
        number, facts = f"{match[1]}.{match[2]}", _FACTS.search(text.source)
        key = number.replace(".", "-")
        if facts is None:
            raise ExerciseError(f"question {number} does not state its facts: {_FACTS.pattern}")
        answer, check = cells.get(f"{key}-answer"), cells.get(f"{key}-check")
        if answer is None or check is None:
            raise ExerciseError(f"question {number} has no cell {key}-answer or -check")
        found.append(
            Question(
                number=number, title=match[3].strip(), difficulty=int(facts[1]),
                minutes=int(facts[2]), trains=facts[3].strip(), answer=answer.source,
                points=float(check.metadata["nbgrader"]["points"]),
            )
        )  # fmt: skip
    if not found:
        raise ExerciseError("the notebook has no question '## NN.n Title'")
    return found


def without_solution(source: str) -> str:
    """Return an answer cell with the stub in place of what stands between the markers.

    Raises:
        ExerciseError: if the markers are not a pair.
    """
    lines, kept, inside = source.split("\n"), [], False
    for line in lines:
        mark = line.strip()
        if mark == (_END if inside else _BEGIN):
            if not inside:
                indent = line[: len(line) - len(line.lstrip())]
                kept += [indent + stub for stub in _STUB]
            inside = not inside
        elif mark in (_BEGIN, _END):
            raise ExerciseError(f"'{mark}' where it has no partner")
        elif not inside:
            kept.append(line)
    if inside:
        raise ExerciseError(f"'{_BEGIN}' without '{_END}'")
    return "\n".join(kept)


def learners(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the learner's version of a notebook with solutions."""
    copy = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.source = without_solution(cell.source)
            cell.outputs, cell.execution_count = [], None
    return copy


def given(notebook: nbformat.NotebookNode) -> tuple[str, frozenset[str]]:
    """Return what a notebook gives beside its questions: imports, functions and classes.

    Returns:
        The source, and the names of the functions without a stub, which answer cells give.
    """
    parts: list[str] = []
    names: set[str] = set()
    for cell in learners(notebook).cells:
        answer = grade_id(cell).endswith("-answer")
        if cell.cell_type != "code" or (grade_id(cell) and not answer):
            continue
        try:
            body = ast.parse(cell.source).body
        except SyntaxError:  # such as %pip
            continue
        kinds = (ast.FunctionDef,) if answer else (*_IMPORTS, ast.FunctionDef, ast.ClassDef)
        found = {part: ast.unparse(part) for part in body if isinstance(part, kinds)}
        whole = {part: text for part, text in found.items() if _STUB[-1] not in text}
        if answer and len(whole) == len(found):
            continue  # without a stub, all of the cell is an answer
        parts += whole.values()
        names |= {part.name for part in whole if answer and isinstance(part, ast.FunctionDef)}
    return "\n\n\n".join(parts), frozenset(names)


def solution_of(source: str) -> str:
    """Return an answer cell as it is published: the solution without the markers."""
    return "\n".join(line for line in source.split("\n") if line.strip() not in (_BEGIN, _END))
