"""A small exercise notebook with two questions, its hidden tests, and submissions of it."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser

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
CHECK_2 = 'with Check("90.2", points=3) as t:\n    t.equal(double(1), 2, "not twice")'
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


class Reader(HTMLParser):
    """Collects texts and tags of a page, as a screen reader meets them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def marked(n, source, points=None):
    kind = "check" if points else "answer"
    marks = dict.fromkeys(("grade", "locked"), bool(points)) | {"solution": not points}
    marks |= {"grade_id": f"90-{n}-{kind}", "schema_version": 3}
    marks |= {"points": points} if points else {}
    return new_code_cell(source, metadata={"nbgrader": marks})


def cells(add=ADD, double=DOUBLE, extra=(), check_1=CHECK_1, check_2=CHECK_2):
    return [
        new_code_cell("import torch\n\nfrom llmcourse_classroom.exercises import Check"),
        new_markdown_cell(TEXT.format(n=1, title="add")),
        marked(1, add),
        *[new_code_cell(source) for source in extra],
        marked(1, check_1, POINTS["90.1"]),
        new_markdown_cell(TEXT.format(n=2, title="double")),
        marked(2, double),
        marked(2, check_2, POINTS["90.2"]),
    ]


def notebook(content=None, **settings):
    return new_notebook(
        cells=cells(**settings) if content is None else content,
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}},
    )


def text(**settings):
    return nbformat.writes(notebook(**settings))


def write_exam(folder):
    (folder / "hidden").mkdir(parents=True)
    (folder / "hidden" / f"{TOPIC}.py").write_text(HIDDEN)
    path = folder / f"{TOPIC}.ipynb"
    path.write_text(text(add=STUB))
    return path


@dataclass(frozen=True)
class Submission:
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
    document = json.loads(text())
    change(document)
    return Submission(json.dumps(document), scores, problem)
