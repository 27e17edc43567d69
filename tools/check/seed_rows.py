"""List the rows of the source texts and where the course treats each.

python -m tools.check.seed_rows [--check]

The rows stand in book/data/seed_rows.json, one for each subject of the texts that the course was
planned from: the chapters that it asks for, the cells that teach it (chapter#cell), exercises,
widgets of these chapters, and tests.  Each of these has to speak of the row: some of its words are
there.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "book" / "data" / "seed_rows.json"
CATALOGUE = ROOT / "llmcourse_classroom" / "exercises" / "catalogue.json"
ANY = ("all", "app. A")
"""Rows that hold for the whole book."""


def rows() -> list[dict]:
    """Return the rows in their order."""
    return json.loads(ROWS.read_text(encoding="utf8"))


def numbers(chapters: str) -> set[str]:
    """Return the numbers in a row's chapters: {"09", "36"} for "09, 36", all of "05-07"."""
    if chapters in ANY:
        return set()
    found = set()
    for part in chapters.split(", "):
        first, _, last = part.partition("-")
        found |= {f"{number:02d}" for number in range(int(first), int(last or first) + 1)}
    return found


@cache
def exercises() -> set[str]:
    """Return the numbers of all exercises."""
    catalogue = json.loads(CATALOGUE.read_text(encoding="utf8"))
    return {question["number"] for question in catalogue["questions"]}


@cache
def cells(chapter: str) -> dict[str, str]:
    """Return the source of each cell of a chapter by its id; none if there is no such chapter."""
    path = ROOT / "chapters" / f"{chapter}.ipynb"
    if not path.exists():
        return {}
    return {
        cell["id"]: "".join(cell["source"])
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]
    }


@cache
def exercise(number: str) -> str:
    """Return the text and the answer of an exercise."""
    (path,) = (ROOT / "exercises" / "solutions").glob(f"{number[:2]}_*.ipynb")
    begins = f"q{number.replace('.', '-')}"
    found = json.loads(path.read_text(encoding="utf8"))["cells"]
    return "\n".join("".join(c["source"]) for c in found if c["id"].startswith(begins))


@cache
def widget_text(name: str) -> str:
    """Return the module that defines a widget."""
    folder = ROOT / "llmcourse_classroom" / "widgets"
    texts = [path.read_text(encoding="utf8") for path in folder.rglob("*.py")]
    return next((text for text in texts if f"class {name}(" in text), "")


@cache
def tests(path: str) -> dict[str, str]:
    """Return the tests in a file with what they and its docstring say; none if there is no file."""
    file = ROOT / path
    if not file.exists():
        return {}
    text = file.read_text(encoding="utf8")
    tree = ast.parse(text)
    about = ast.get_docstring(tree) or ""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: f"{about}\n{ast.get_source_segment(text, node)}" for node in found}


def silent(row: dict) -> Iterator[str]:
    """Yield what a row names that has none of its words."""
    texts = {place: cells(place.split("#")[0]).get(place.split("#")[1]) for place in row["places"]}
    named = [number for number in row.get("exercises", []) if number in exercises()]
    texts |= {number: exercise(number) for number in named}
    texts |= {name: widget_text(name) for name in row.get("widgets", [])}
    for test in row.get("tests", []):
        path, _, name = test.partition("::")
        texts[test] = tests(path).get(name)
    said = re.compile(row["words"], re.IGNORECASE)
    yield from (name for name, text in texts.items() if text and not said.search(text))


def problems(row: dict) -> Iterator[str]:
    """Say what a row names that is not there, and what it lacks."""
    places = [place.split("#") for place in row.get("places", [])]
    chapters = {chapter for chapter, _ in places}
    if not places:
        yield "has no place"
    missing = numbers(row["chapters"]) - {chapter[:2] for chapter in chapters}
    if missing:
        yield f"has no cell of chapter {', '.join(sorted(missing))}"
    for chapter, cell in places:
        if cell not in cells(chapter):
            yield f"there is no cell {cell} in {chapter}"
    if bool(row.get("exercises")) == bool(row.get("reason")):
        yield "needs exercises, or the reason for having none"
    for number in row.get("exercises", []):
        if number not in exercises():
            yield f"there is no exercise {number}"
        if number[:2] not in {chapter[:2] for chapter in chapters}:
            yield f"exercise {number} is of none of its chapters"
    for widget in row.get("widgets", []):
        used = re.compile(rf"\b{widget}[.(]")
        if not any(used.search(source) for each in chapters for source in cells(each).values()):
            yield f"none of its chapters shows the widget {widget}"
    for test in row.get("tests", []):
        path, _, name = test.partition("::")
        if name not in tests(path):
            yield f"there is no test {test}"
    yield from (f"{name} says nothing of {row['words']}" for name in silent(row))


def table() -> str:
    """Return all rows as a table in Markdown."""
    head = "| row | subject | cells | exercises | widgets | tests |"
    lines = [head, "|---:|---|---|---|---|---|"]
    for row in rows():
        parts = ("places", "exercises", "widgets", "tests")
        named = [", ".join(row.get(part, [])) for part in parts]
        named[1] = named[1] or f"none: {row.get('reason')}"
        lines.append(f"| {row['row']} | {row['name']} | {' | '.join(named)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or what is wrong with it; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="print what is wrong instead")
    if not parser.parse_args(arguments).check:
        print(table())
        return 0
    found = [f"row {row['row']} {problem}" for row in rows() for problem in problems(row)]
    print("\n".join(found) or "every row has its places")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
