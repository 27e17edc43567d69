"""The pages of exercises: the learner's notebook, and folds with code and solution of each check.

What is inserted is text alone: the cells of code, and with them the cached execution, stay.
"""

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import nbformat

from llmcourse_classroom.exercises import exercise

FOLDER = "exercises/"
CHECKS = "llmcourse_classroom/exercises/checks"
BLOCK = """\
````{{dropdown}} What the check of {number} looks at
```python
{check}
```
````
````{{dropdown}} Solution of {number}
```python
{solution}
```
````"""
DOWNLOAD = """\
{{download}}`The notebook with all solutions <solutions/{topic}.ipynb>` is for afterwards. \
Solutions below are folded: try first."""


def checks_of(path: Path) -> dict[str, str]:
    """Return the code of each check in a module of them, by the number of its question."""
    text = path.read_text(encoding="utf8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {
        ast.get_docstring(node).split()[0]: ast.get_source_segment(text, node)
        for node in functions
        if node.name.startswith("check_")
    }


def with_solutions(
    text: str, solved: nbformat.NotebookNode, topic: str, checks: Mapping[str, str]
) -> str:
    """Return a learner's notebook with two folds after each check: its code, and a solution."""
    notebook = nbformat.reads(text, as_version=4)
    by_check = {f"{q.key}-check": q for q in exercise.questions(solved)}
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        question = by_check.get(exercise.grade_id(cell))
        if question is not None:
            solution = exercise.solution_of(question.answer)
            check = checks[question.number]
            block = BLOCK.format(number=question.number, check=check, solution=solution)
            cells.append(nbformat.v4.new_markdown_cell(block, id=f"solution-{question.key}"))
    cells.insert(1, nbformat.v4.new_markdown_cell(DOWNLOAD.format(topic=topic), id="download"))
    notebook.cells = cells
    return json.dumps(notebook)


def insert(app, document: str, source: list[str]) -> None:
    if not document.startswith(FOLDER):
        return
    topic = document.removeprefix(FOLDER)
    path = Path(app.srcdir, FOLDER, "solutions", f"{topic}.ipynb")
    checks = Path(app.srcdir, CHECKS, f"c{topic}.py")
    source[0] = with_solutions(source[0], exercise.read(path), topic, checks_of(checks))
    app.env.note_dependency(str(path))
    app.env.note_dependency(str(checks))


def setup(app):
    app.connect("source-read", insert)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
