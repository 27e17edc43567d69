"""Write a course folder for nbgrader: the notebooks with solutions, hidden tests put into them.

python -m tools.pages.nbgrader_course FOLDER [--hidden FOLDER] [--seed N]
"""

import argparse
import sys
from pathlib import Path

from nbformat import NotebookNode

from llmcourse_classroom.exercises import exercise
from tools.check.check_notebooks import written
from tools.pages import exercises

CONFIG = '''\
"""Settings of nbgrader for the course.  Run nbgrader in this folder."""

import os

# A check that does not pass then raises, which is what nbgrader looks for.
os.environ["LLMCOURSE_STRICT"] = "1"
os.environ["LLMCOURSE_PROGRESS"] = "off"

c = get_config()  # noqa: F821  nbgrader gives it
c.CourseDirectory.course_id = "llmcourse"
c.ExecutePreprocessor.timeout = 60
'''
HIDDEN_CELL = """\
{check}
### BEGIN HIDDEN TESTS
from llmcourse_classroom.grader import hidden as hidden_tests

hidden_tests.inline(
    {source!r},
    "{number}",
    points={points:g},
    names=globals(),
    seed={seed},
)
### END HIDDEN TESTS"""


def with_hidden_tests(notebook: NotebookNode, source: str, seed: int) -> NotebookNode:
    """Return a notebook with solutions, and the hidden tests at the end of each check."""
    found = {f"{q.key}-check": q for q in exercise.questions(notebook)}
    for cell in notebook.cells:
        question = found.get(exercise.grade_id(cell))
        if question is not None:
            cell.source = HIDDEN_CELL.format(
                check=cell.source,
                source=source,
                number=question.number,
                points=question.points,
                seed=seed,
            )
    return notebook


def main(arguments: list[str] | None = None) -> int:
    """Write the folder; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=Path, default=exercises.FOLDER / "hidden")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for path in exercises.sources():
        tests = (options.hidden / f"{path.stem}.py").read_text(encoding="utf8")
        notebook = with_hidden_tests(exercise.read(path), tests, options.seed)
        folder = options.folder / "source" / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).write_text(written(notebook), encoding="utf8")
    (options.folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf8")
    print(f"{options.folder}: {len(exercises.sources())} assignments; now run nbgrader there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
