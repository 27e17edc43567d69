"""Read a submitted file, which may be anything, and take from it the cells that are to be run.

Taught in: chapters/00_how_to_use.ipynb
"""

import ast
import codecs
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from llmcourse.grading.exercise import ExerciseError

MOST_FILE_BYTES = 16 * 2**20
MOST_CELLS = 2_000
MOST_CHECK_CHARACTERS = 50_000
INSTALL_CELL = "install"
KEPT = ("cell_type", "source", "input", "id", "language", "collapsed")
OLD_FORM = 3
"""In this form of notebooks, cells stood on worksheets."""


@dataclass(frozen=True)
class Cell:
    """A cell of code: its source, and the marks that nbgrader gave it."""

    source: str
    id: str
    grade_id: str
    is_check: bool


def cells_of(path: Path) -> list[Cell]:
    """Return the cells of code of a submission.

    Raises:
        ExerciseError: if the file is no notebook that can be run; the message says why.
    """
    if path.is_symlink() or not path.is_file():
        raise ExerciseError("there is no notebook, or it is not a file of its own")
    if not (size := path.stat().st_size):
        raise ExerciseError("the file is empty")
    if size > MOST_FILE_BYTES:
        raise ExerciseError(f"the file has {size:,} bytes, more than {MOST_FILE_BYTES:,}")
    try:
        return _cells(_bare(json.loads(_text(path.read_bytes()))))
    except ExerciseError:
        raise
    except Exception as error:  # what was submitted may break the reader anywhere
        raise ExerciseError(f"it is not a notebook: {type(error).__name__}") from None


def _text(content: bytes) -> str:
    """Return a file's text, whatever editor has written it."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if content.startswith(marks) else "utf-8-sig")


def _bare(document: Any) -> dict[str, Any]:
    """Return a notebook without outputs and attachments, which can be large and are not read."""
    if not isinstance(document, dict) or "nbformat" not in document:
        raise ExerciseError("it is not a notebook: it lacks a notebook's head")
    old = document["nbformat"] <= OLD_FORM
    cells = document["worksheets"][0]["cells"] if old else document["cells"]
    if len(cells) > MOST_CELLS:
        raise ExerciseError(f"it has {len(cells):,} cells, more than {MOST_CELLS:,}")
    kernel = (document.get("metadata") or {}).get("kernelspec") or {}
    language = str(kernel.get("language") or "python").lower()
    if language not in ("python", "python3"):
        raise ExerciseError(f"its language is {language[:40]}, not Python")
    bare = [_bare_cell(cell, old) for cell in cells]
    head = {"nbformat": document["nbformat"], "nbformat_minor": document.get("nbformat_minor", 0)}
    if old:
        return {**head, "metadata": {}, "worksheets": [{"cells": bare, "metadata": {}}]}
    return {**head, "metadata": {}, "cells": bare}


def _bare_cell(cell: dict[str, Any], old: bool) -> dict[str, Any]:
    bare = {name: cell[name] for name in KEPT if name in cell}
    if not isinstance(bare.get("source", bare.get("input")), str | list):
        raise ExerciseError("it is not a notebook: a cell's source is no text")
    marks = (cell.get("metadata") or {}).get("nbgrader") or {}
    bare["metadata"] = {"nbgrader": {k: marks[k] for k in ("grade", "grade_id") if k in marks}}
    if cell.get("cell_type") == "code":
        bare["outputs"] = []
        bare["prompt_number" if old else "execution_count"] = None
    return bare


def _cells(document: dict[str, Any]) -> list[Cell]:
    """Return the cells of code of a notebook of any form, through the library that knows them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.reads(json.dumps(document), as_version=4)
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            marks = cell.metadata.get("nbgrader", {})
            name = str(marks.get("grade_id", ""))[:100]
            source = cell.source.replace("\r\n", "\n")
            found.append(Cell(source, str(cell.get("id")), name, marks.get("grade") is True))
    return found


def to_run(cell: Cell) -> str:
    """Return what of a cell is to be run: not the installation, and no checks."""
    if cell.id == INSTALL_CELL:
        return ""
    if "Check(" not in cell.source and not cell.is_check:
        return cell.source
    return _without_checks(cell.source)


def _without_checks(source: str) -> str:
    """Return a cell without its checks: nothing if it only checks, all of it if it has none.

    What a learner has written into a cell of checks counts like any other code.
    """
    if len(source) > MOST_CHECK_CHARACTERS:
        return source
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    checks = [statement for statement in body if _is_check(statement)]
    lines = source.split("\n")
    for check in checks:
        lines[check.lineno - 1 : check.end_lineno] = [""] * (check.end_lineno - check.lineno + 1)
    return source if not checks else "\n".join(lines).strip("\n")


def _is_check(statement: ast.stmt) -> bool:
    """Say whether a statement is a block `with Check(...)`."""
    if not isinstance(statement, ast.With):
        return False
    call = statement.items[0].context_expr
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Check"
