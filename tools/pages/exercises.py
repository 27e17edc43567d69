"""Write the learners' notebooks, the lists of exercises and solutions, the catalogue.

python -m tools.pages.exercises [--check] [NN_topic ...]
python -m tools.pages.exercises --new NN

exercises/solutions/NN_topic.ipynb is the only source.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.notebooks import nbformat
from tools.check import check_notebooks
from tools.check.check_notebooks import stripped, written
from tools.pages import new_exercise, setup_cells

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "exercises"
SOLUTIONS = FOLDER / "solutions"
CATALOGUE = ROOT / "llmcourse_classroom" / "exercises" / "catalogue.json"
PAGE = ROOT / "book" / "solutions.md"
LISTED = "## By chapter\n"
"""Where the list of solutions begins on its page."""
KEPT = (*check_notebooks.KEPT, "nbgrader")
NBGRADER = ("grade", "grade_id", "locked", "points", "schema_version", "solution", "task")


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook in the form that is committed: stamped, without outputs or leftovers."""
    setup_cells.stamp(notebook)
    stripped(notebook, KEPT)
    for cell in notebook.cells:
        marks = cell.metadata.get("nbgrader", {})
        for name in set(marks) - set(NBGRADER):
            del marks[name]
        if "hide-input" in cell.metadata.get("tags", ()):
            cell.metadata |= check_notebooks.FOLDED
    return notebook


def sources() -> list[Path]:
    """Return the notebooks with solutions, in order."""
    return sorted(SOLUTIONS.glob("*.ipynb"))


def chapter_cell(path: Path) -> str:
    """Return the text with which a chapter names its exercises."""
    rows = [
        f"| {q.number} | {q.title} | {q.trains} | {q.difficulty} of 5 | {q.minutes} |"
        for q in exercise.questions(exercise.read(path))
    ]
    table = "\n".join(rows)
    return (
        "## Exercises\n\n"
        f"They are graded: run a cell, and it says what your answer means. "
        f"[Open the exercises of this chapter](../exercises/{path.name}). "
        "[How exercises work](../book/exercises.md) says how to start.\n\n"
        "| | exercise | what it trains | difficulty | minutes |\n|---|---|---|---|---:|\n"
        f"{table}"
    )


def files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield every file that is written for some notebooks with solutions, with its content."""
    for path in paths:
        source = tidy(exercise.read(path))
        yield path, written(source)
        yield FOLDER / path.name, written(exercise.learners(source))
        chapter = ROOT / "chapters" / path.name
        notebook = exercise.read(chapter)
        for cell in notebook.cells:
            if cell.get("id") == "exercise-list":
                cell.source = chapter_cell(path)
        yield chapter, written(notebook)


def all_files(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield every file that is written, with its content; the last two are of all notebooks."""
    yield from files(paths)
    yield CATALOGUE, catalogue()
    yield PAGE, solutions_page(PAGE.read_text(encoding="utf8"))


def solutions_page(text: str) -> str:
    """Return the page of solutions with its list, from what stands above it."""
    rows = []
    for path in sources():
        notebook = exercise.read(path)
        title = notebook.cells[0].source.split("\n")[0].removeprefix("# ")
        numbers = len(questions := exercise.questions(notebook))
        minutes, points = (sum(getattr(q, of) for q in questions) for of in ("minutes", "points"))
        page = f"[{title}](../exercises/{path.name})"
        solved = f"{{download}}`{path.stem} <../exercises/solutions/{path.name}>`"
        rows.append(f"| {page} | {numbers} | {minutes} | {points:g} | {solved} |\n")
    head = "| exercises | questions | minutes | points | all solutions |"
    line = "|---|---:|---:|---:|---|"
    return f"{text.partition(LISTED)[0]}{LISTED}\n{head}\n{line}\n{''.join(rows)}"


def catalogue() -> str:
    """Return what the package knows of all exercises, wherever it is installed."""
    listed = []
    for path in sources():
        for question in exercise.questions(exercise.read(path)):
            facts = ("number", "title", "trains", "difficulty", "minutes", "points")
            listed.append({name: getattr(question, name) for name in facts})
            listed[-1]["notebook"] = path.stem
    return json.dumps({"format": 1, "questions": listed}, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write what is stale, or say it; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--new", metavar="NN", help="add the empty form of a question to a chapter")
    parser.add_argument("topics", nargs="*", help="such as 05_tokens; all of them if none is named")
    options = parser.parse_args(arguments)
    if options.new:
        try:
            made = new_exercise.add_question(options.new, ROOT)
        except ValueError as error:
            parser.error(str(error))
        print("fill in, then make format:", *(path.relative_to(ROOT) for path in made), sep="\n  ")
        return 0
    stale = []
    paths = [SOLUTIONS / f"{topic}.ipynb" for topic in options.topics] or sources()
    for path, content in all_files(paths):
        if path.exists() and path.read_text(encoding="utf8") == content:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not options.check:
            path.write_text(content, encoding="utf8")
    if stale and options.check:
        print(f"stale: {', '.join(stale)}: run make exercises")
        return 1
    print("exercises are fresh" if not stale else f"wrote {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
