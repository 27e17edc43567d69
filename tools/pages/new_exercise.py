"""The empty form of a question: three cells, a check, a hidden test and three mutants.

`python -m tools.pages.exercises --new 26` calls this.  The gates reject the form until it is
filled in: its solution raises, and its mutants edit lines that no solution has.
"""

from pathlib import Path

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.notebooks import nbformat
from llmcourse_classroom.widgets.course import curriculum
from tools.check.check_notebooks import written

MOST = 7
"""Questions of a notebook; the tests want three at least."""

_TEXT = """## {number} Title

**Difficulty** 2 of 5 · **Minutes** 15 · **Trains** what one can do afterwards

Write `answer(values)`. ...

<details><summary>Hint 1</summary>

What to look at first.

</details>

<details><summary>Hint 2</summary>

How it goes on.

</details>"""
_ANSWER = '''def answer(values):
    """Return what is asked for.

    Args:
        values: list of numbers.

    Returns:
        a number.
    """
    ### BEGIN SOLUTION
    raise NotImplementedError
    ### END SOLUTION'''
_CHECK = '''

def check_{nth}(t, answer):
    """{number} Title"""
    t.equal(answer([1, 2]), 3, "what it means when this fails", "what holds when it passes")
    t.equal(answer([]), 0, "what it means when this fails", "what holds when it passes")
'''
_HIDDEN = '''

def check_{nth}(t, call, rng):
    """Inputs of all kinds."""
    for length in (0, 1, rng.randrange(2, 9)):
        values = [rng.randrange(-9, 10) for _ in range(length)]
        t.equal(call("answer", values), sum(values), f"{{length}} values")
'''
_MUTANT = """
# %% {number} mistake_{nth}
# says: what it means when this fails
-     a line of the solution
+     what is wrong in its place
"""
_SETUP = """from llmcourse.base import runtime
from llmcourse_classroom.exercises import check

runtime.set_up(num_threads=1, seed=0)"""
_HEAD = """# {chapter} Exercises: {title}

These go with [chapter {chapter}](../chapters/{topic}.ipynb). Write each answer where its cell \
says so, run it, and then run the check below it. The check says what holds, and what a mistake \
means."""


def add_question(chapter: str, root: Path) -> list[Path]:
    """Add the empty form of a question to a chapter's exercises, which it begins if need be.

    Args:
        chapter: its number, such as "26".
        root: of the repository.

    Returns:
        The files to fill in: the notebook with solutions, the checks, hidden tests, mutants.

    Raises:
        ValueError: if there is no such chapter, it is not written yet, or it has seven questions.
    """
    chapters = {each["number"]: each for each in curriculum()}
    if chapter not in chapters:
        raise ValueError(f"there is no chapter {chapter!r}: give two digits, such as 26")
    title, topic = chapters[chapter]["title"], f"{chapter}_{chapters[chapter]['slug']}"
    if not (root / "chapters" / f"{topic}.ipynb").exists():
        raise ValueError(f"there is no chapters/{topic}.ipynb yet: write it before its questions")
    folder = root / "exercises"
    notebook_file = folder / "solutions" / f"{topic}.ipynb"
    if notebook_file.exists():
        notebook = exercise.read(notebook_file)
        nth = len(exercise.questions(notebook)) + 1
    else:
        notebook, nth = _begun(chapter, title, topic), 1
    if nth > MOST:
        raise ValueError(f"chapter {chapter} has {nth - 1} questions, at most {MOST}: replace one")
    number, key = f"{chapter}.{nth}", f"{chapter}-{nth}"
    notebook.cells += [
        _markdown(f"q{key}", _TEXT.format(number=number)),
        _code(f"q{key}-answer", _ANSWER, _marks(f"{key}-answer", solution=True)),
        _code(f"q{key}-check", f'check("{number}")', _marks(f"{key}-check", points=2)),
    ]
    mutants = "".join(_MUTANT.format(number=number, nth=each) for each in (1, 2, 3))
    checks = root / "llmcourse_classroom" / "exercises" / "checks" / f"c{topic}.py"
    hidden, wrong = folder / "hidden" / f"{topic}.py", folder / "mutants" / f"{topic}.diff"
    notebook_file.write_text(written(notebook), encoding="utf8")
    names = {"number": number, "nth": nth}
    _append(checks, f'"""Checks of exercises {chapter}: {title}."""\n', _CHECK.format(**names))
    _append(hidden, f'"""Hidden tests of chapter {chapter}."""\n', _HIDDEN.format(**names))
    what = f"# Typical wrong answers to the exercises of chapter {chapter}"
    _append(wrong, f"{what}, and what the checks say to them.\n", mutants)
    return [notebook_file, checks, hidden, wrong]


def _begun(chapter: str, title: str, topic: str) -> nbformat.NotebookNode:
    """Return a notebook of exercises without a question."""
    notebook = nbformat.from_dict({"metadata": {}, "nbformat": 4, "nbformat_minor": 5, "cells": []})
    head = _HEAD.format(chapter=chapter, title=title, topic=topic)
    notebook.cells = [_markdown("title", head), _code("setup", _SETUP, {})]
    return notebook


def _append(path: Path, head: str, text: str) -> None:
    """Add text to a file, which it begins with a head."""
    before = path.read_text(encoding="utf8") if path.exists() else head
    path.write_text(before + text, encoding="utf8")


def _marks(name: str, *, solution: bool = False, points: int | None = None) -> dict:
    """Return nbgrader's metadata of an answer or, with points, of a check."""
    graded = points is not None
    marks = {"grade": graded, "grade_id": name, "locked": graded, "schema_version": 3}
    marks |= {"solution": solution, "task": False}
    return {"nbgrader": marks | ({"points": points} if graded else {})}


def _markdown(name: str, source: str) -> nbformat.NotebookNode:
    """Return a cell of text."""
    cell = {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}
    return nbformat.from_dict(cell)


def _code(name: str, source: str, metadata: dict) -> nbformat.NotebookNode:
    """Return a cell of code."""
    cell = {"cell_type": "code", "id": name, "metadata": metadata, "source": source}
    return nbformat.from_dict(cell | {"execution_count": None, "outputs": []})
