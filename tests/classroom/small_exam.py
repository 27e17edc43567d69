"""A small exercise notebook with two questions, its hidden tests, and submissions of it."""

import json
from dataclasses import dataclass

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TOPIC = "90_small"
POINTS = {"90.1": 2.0, "90.2": 3.0}
FULL = (2.0, 3.0)
TEXT = """\
## 90.{n} {title}

**Difficulty** 1 of 5 · **Minutes** 5 · **Trains** {title}
"""
ADD = "def add_all(numbers):\n    return sum(numbers)"
DOUBLE = "def double(x):\n    return 2 * x"
STUB = "def add_all(numbers):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
CHECK_1 = 'with Check("90.1", points=2) as t:\n    t.equal(add_all([1, 2]), 3, "not the sum")'
CHECK_2 = (
    'with Check("90.2", points=3) as t:\n'
    '    t.equal(double(torch.ones(2)), torch.full((2,), 2.0), "not twice")'
)
SETUP = "import torch\n\nfrom llmcourse_classroom.exercises import Check"
HIDDEN = """\
import torch


def check_1(t, call, rng):
    for size in (0, 1, 5):
        numbers = [rng.randrange(100) for _ in range(size)]
        t.equal(call("add_all", numbers), sum(numbers), "the sum is another one")
    t(call("add_all", [1, 2]) == 3, "1 and 2 are 3")


def check_2(t, call, rng):
    x = torch.tensor([rng.random() for _ in range(4)], dtype=torch.float64)
    t.close(call("double", x), x + x, "twice is the sum with itself")
"""


def answer_cell(n, source):
    marks = {"grade": False, "locked": False, "solution": True, "grade_id": f"90-{n}-answer"}
    return new_code_cell(source, metadata={"nbgrader": marks | {"schema_version": 3}})


def check_cell(n, source):
    marks = {"grade": True, "locked": True, "solution": False, "grade_id": f"90-{n}-check"}
    marks |= {"schema_version": 3, "points": POINTS[f"90.{n}"]}
    return new_code_cell(source, metadata={"nbgrader": marks})


def cells(add=ADD, double=DOUBLE, extra=(), check_1=CHECK_1, check_2=CHECK_2):
    """Return the cells of a submission; `extra` stand behind the first answer."""
    return [
        new_code_cell(SETUP),
        new_markdown_cell(TEXT.format(n=1, title="add")),
        answer_cell(1, add),
        *[new_code_cell(source) for source in extra],
        check_cell(1, check_1),
        new_markdown_cell(TEXT.format(n=2, title="double")),
        answer_cell(2, double),
        check_cell(2, check_2),
    ]


def notebook(content=None, **settings):
    return new_notebook(
        cells=cells(**settings) if content is None else content,
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}},
    )


def text(**settings):
    return nbformat.writes(notebook(**settings))


def write_exam(folder):
    """Write the learner's notebook and its hidden tests; return the notebook's path."""
    (folder / "hidden").mkdir(parents=True)
    (folder / "hidden" / f"{TOPIC}.py").write_text(HIDDEN)
    path = folder / f"{TOPIC}.ipynb"
    path.write_text(text(add=STUB))
    return path


@dataclass(frozen=True)
class Submission:
    """What is submitted, and the score that it deserves."""

    content: object
    """Text or bytes of the file, or a function that makes it at a path."""
    scores: tuple[float, float] = FULL
    problem: str | tuple[str, ...] = ()
    """What the report must say about it, if anything."""
    namespaces_only: bool = False
    """Limits alone cannot hold it."""


def of(scores=FULL, problem=(), namespaces_only=False, **settings):
    return Submission(text(**settings), scores, problem, namespaces_only)


def edited(change, scores=FULL, problem=()):
    """Return a submission whose notebook, as JSON, was changed by hand."""
    document = json.loads(text())
    change(document)
    return Submission(json.dumps(document), scores, problem)
