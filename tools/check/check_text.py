"""What can be counted in the text of a chapter: its length, its minutes, its boxes, its words.

python -m tools.check.check_text [NOTEBOOK ...]

A chapter may not exceed the limits; those that are still to be revised are warned.  Words in a
private sense, where the field has its own, and long sentences are warnings everywhere: a machine
finds them, and a reader decides.
"""

import argparse
import ast
import functools
import importlib
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from llmcourse_classroom.listing import listing
from llmcourse_classroom.notebooks import nbformat
from tools.build.uses import python_of
from tools.check.check_notebooks import ROOT

MAX_WORDS, MAX_LINES, MAX_BOXES = 2_500, 200, 2
MAX_SENTENCE = 40
WORDS_A_MINUTE, MINUTES_A_LINE = 150, 0.25
TOLERANCE = 0.2
"""So far may the stated minutes be from the counted ones, as a share."""
AFTER = ("Deeper", "Where popular accounts go wrong", "Further reading")
"""The sections that a reader may leave out."""
AROUND = ("You need", "You will be able to", "Exercises", "Quiz", "Take away")
"""The sections that are read with the main line, and are not counted as its length."""
PRIVATE = {
    r"forg[eo]t\w*": "recompute, discard",
    r"margins?": "precaution, slack",
    r"rooms?": "module, memory, space",
    r"legs?": "step, part",
    r"keen(?:ly)?": "attends to",
    r"dear(?:er|est|ly)?": "expensive",
}
"""Words that the course has used in senses of its own, and what the field says."""


class Counts(NamedTuple):
    """What one chapter's text amounts to."""

    words: int
    """Of prose, in the main line: formulas count as one word, tables and code as none."""
    lines: int
    """Of code in sight in the main line, empty ones aside."""
    boxes: int
    """Of popular accounts, on the whole page."""
    minutes: int
    """What the page states."""
    expected_minutes: float
    """What a newcomer takes to read all but what may be left out: prose, code and listings."""


def without(
    notebook: nbformat.NotebookNode, sections: Collection[str]
) -> list[nbformat.NotebookNode]:
    """Return the cells of a chapter, less those of some sections."""
    kept, inside = [], True
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            pieces = re.split(r"^(?=## )", cell.source, flags=re.MULTILINE)
            own = []
            for piece in pieces:
                if found := re.match(r"## (.+)", piece):
                    inside = found[1].strip() not in sections
                own += [piece] if inside else []
            if own:
                kept.append(nbformat.from_dict({**cell, "source": "".join(own)}))
        elif inside:
            kept.append(cell)
    return kept


def prose(cells: Collection[nbformat.NotebookNode]) -> str:
    """Return what is read word by word: no code, tables or headings; a formula is one word."""
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for pattern, instead in (
        (r"^(`{3,})(?:.|\n)*?^\1`*", ""),  # fences
        (r"\$\$(?:.|\n)*?\$\$", "(formula)"),
        (r"^ *\|.*$", ""),  # tables
        (r"^#.*$", ""),
        (r"\]\((?:[^()\s]|\([^()\s]*\))*\)", "]"),  # where links lead
        (r"\$[^$\n]+\$|`[^`\n]+`", "formula"),
        (r"<[^>\n]+>", ""),
    ):
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


def num_words(cells: Collection[nbformat.NotebookNode]) -> int:
    """Count the words of the prose."""
    return len(re.findall(r"\w[\w'’.,%-]*", prose(cells)))


def num_lines(cells: Collection[nbformat.NotebookNode]) -> int:
    """Count the lines of code in sight."""
    code = [cell for cell in cells if cell.cell_type == "code"]
    shown = [c.source for c in code if not c.metadata.get("jupyter", {}).get("source_hidden")]
    return sum(bool(line.strip()) for line in "\n".join(shown).split("\n"))


def num_listed(cells: Collection[nbformat.NotebookNode], notebook: nbformat.NotebookNode) -> int:
    """Count the lines of the package that cells show; the notebook's imports say which they are."""
    code = [cell for cell in cells if cell.cell_type == "code"]
    calls = [
        node
        for cell in code
        for node in ast.walk(ast.parse(python_of(cell.source)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "show"
    ]
    lines = 0
    for call in calls:
        how = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        first, *rest = ast.unparse(call.args[0]).split(".")
        thing = functools.reduce(getattr, rest, _imported(first, notebook))
        lines += sum(bool(line.strip()) for line in listing(thing, **how)[0].split("\n"))
    return lines


def _imported(name: str, notebook: nbformat.NotebookNode) -> Any:
    """Return what a name stands for by the imports of a notebook."""
    code = [python_of(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    for node in (node for each in code for node in ast.parse(each).body):
        if isinstance(node, ast.ImportFrom) and name in (a.asname or a.name for a in node.names):
            (source,) = (a.name for a in node.names if name == (a.asname or a.name))
            module = importlib.import_module(str(node.module))
            if not hasattr(module, source):
                importlib.import_module(f"{node.module}.{source}")
            return getattr(module, source)
    raise ValueError(f"the notebook shows {name} and does not import it")


def counts(notebook: nbformat.NotebookNode) -> Counts:
    """Count what a chapter's text amounts to."""
    main_line = without(notebook, (*AFTER, *AROUND))
    usual = without(notebook, AFTER)
    seen = num_lines(usual) + num_listed(usual, notebook)
    stated = re.search(r"\*\*Minutes\*\* (\d+)", notebook.cells[0].source)
    boxes = [
        re.findall(r"^> \*\*P(?:opular|ublished) ", c.source, re.MULTILINE) for c in notebook.cells
    ]
    return Counts(
        words=num_words(main_line),
        lines=num_lines(main_line),
        boxes=sum(map(len, boxes)),
        minutes=int(stated[1]) if stated else 0,
        expected_minutes=num_words(usual) / WORDS_A_MINUTE + seen * MINUTES_A_LINE,
    )


def problems(found: Counts) -> Iterator[str]:
    """Yield what exceeds a limit."""
    for value, limit, what in (
        (found.words, MAX_WORDS, "words in the main line"),
        (found.lines, MAX_LINES, "lines of code in sight in the main line"),
        (found.boxes, MAX_BOXES, "boxes of popular accounts"),
    ):
        if value > limit:
            yield f"has {value:,} {what}; at most {limit:,}: the rest belongs to Deeper"
    if abs(found.minutes - found.expected_minutes) > TOLERANCE * found.expected_minutes:
        yield f"says {found.minutes} minutes and takes {found.expected_minutes:.0f}"


def warnings(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield words in a private sense, and long sentences."""
    text = prose(notebook.cells)
    for pattern, better in PRIVATE.items():
        for found in re.finditer(rf"\b{pattern}\b", text):
            yield f"{found[0]!r}: in the sense of {better}? Then say that"
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\d+\. )", text):
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z*(])", " ".join(paragraph.split())):
            if (length := len(sentence.split())) > MAX_SENTENCE:
                yield f"a sentence of {length} words: {sentence[:60]}..."


def main(arguments: list[str] | None = None) -> int:
    """Check the named chapters, or all of them; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="print every warning")
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    wrong, warned = [], []
    for path in options.notebooks or sorted((ROOT / "chapters").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        wrong += [f"{path.name} {problem}" for problem in problems(counts(notebook))]
        warned += [f"{path.name} {warning}" for warning in warnings(notebook)]
    shown = [f"warning: {each}" for each in warned] if options.verbose else []
    print("\n".join([*wrong, *shown, f"{len(wrong)} faults and {len(warned)} warnings of texts"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
