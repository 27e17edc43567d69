"""Read a submitted file, which may be anything, and take from it the cells that are to be run."""

import ast
import codecs
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcourse_classroom.exercises.exercise import ExerciseError

MOST_FILE_BYTES = 16 * 2**20
MOST_CELLS = 2_000
MOST_CHECK_CHARACTERS = 50_000
INSTALL_CELL = "install"
FORM = 4  # of notebooks, since 2015


@dataclass(frozen=True)
class Cell:
    """A cell: its source, and the marks that nbgrader gave it."""

    source: str
    id: str
    grade_id: str
    is_check: bool
    kind: str = "code"


def cells_of(path: Path) -> list[Cell]:
    """Return the cells of code of a submission, and those with marks that should be.

    Raises:
        ExerciseError: if the file is no notebook that can be run; the message says why.
    """
    try:
        content = _content(path)
    except FileNotFoundError:
        raise ExerciseError("there is no notebook") from None
    except OSError as error:
        raise ExerciseError(f"the file cannot be read: {error.strerror}") from None
    try:
        return _cells(json.loads(_text(content)))
    except ExerciseError:
        raise
    except Exception as error:  # what was submitted may break the reader anywhere
        raise ExerciseError(f"it is not a notebook: {type(error).__name__}") from None


def _content(path: Path) -> bytes:
    """Return a file's bytes, unless it is none, empty or too large."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise ExerciseError("it is not a file of its own")
    if not (size := found.st_size):
        raise ExerciseError("the file is empty")
    if size > MOST_FILE_BYTES:
        raise ExerciseError(f"the file has {size:,} bytes, more than {MOST_FILE_BYTES:,}")
    return path.read_bytes()


def _text(content: bytes) -> str:
    """Return a file's text, whatever editor has written it."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if content.startswith(marks) else "utf-8-sig")


def _cells(document: Any) -> list[Cell]:
    """Return the cells of a notebook; its outputs and attachments are not looked at."""
    if not isinstance(document, dict) or document.get("nbformat") != FORM:
        raise ExerciseError(f"it is not a notebook: it lacks the head of one of form {FORM}")
    if len(document["cells"]) > MOST_CELLS:
        raise ExerciseError(f"it has {len(document['cells']):,} cells, more than {MOST_CELLS:,}")
    kernel = (document.get("metadata") or {}).get("kernelspec") or {}
    language = str(kernel.get("language") or "python").lower()
    if language not in ("python", "python3"):
        raise ExerciseError(f"its language is {language[:40]}, not Python")
    cells = map(_cell, document["cells"])
    return [cell for cell in cells if cell.kind == "code" or cell.grade_id.endswith("-answer")]


def _cell(cell: dict[str, Any]) -> Cell:
    source = cell["source"]
    if not isinstance(source, str | list):
        raise ExerciseError("it is not a notebook: a cell's source is no text")
    marks = (cell.get("metadata") or {}).get("nbgrader") or {}
    name = str(marks.get("grade_id", ""))[:100]
    source = "".join(source).replace("\r\n", "\n")
    kind = str(cell["cell_type"])[:20]
    return Cell(source, str(cell.get("id")), name, marks.get("grade") is True, kind)


def to_run(cell: Cell) -> str:
    """Return what of a cell is to be run: not the installation, and no checks."""
    if cell.id == INSTALL_CELL or cell.kind != "code":
        return ""
    source, checks = cell.source, cell.is_check or "heck(" in cell.source
    if not checks or len(source) > MOST_CHECK_CHARACTERS:
        return source
    # What a learner has written into a cell of checks counts like any other code.
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    lines, checks = source.split("\n"), [statement for statement in body if _is_check(statement)]
    for check in checks:
        lines[check.lineno - 1 : check.end_lineno] = [""] * (check.end_lineno - check.lineno + 1)
    return source if not checks else "\n".join(lines).strip("\n")


def _is_check(statement: ast.stmt) -> bool:
    """Say whether a statement is `check("NN.n")`, or a block `with Check(...)`."""
    if isinstance(statement, ast.With):
        call = statement.items[0].context_expr
        return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Check"
    return re.fullmatch(r"check\('[0-9]{2}\.[0-9]+'\)", ast.unparse(statement)) is not None
