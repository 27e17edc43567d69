"""Rules that every chapter keeps, checked without running it; `--strip` mends what can be mended.

python tools/check_notebooks.py [--strip] [NOTEBOOK ...]
"""

import argparse
import ast
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
HEADINGS = (
    "You need",
    "You will be able to",
    "Predict",
    "At scale",
    "Exercises",
    "Questions",
    "Take away",
    "Where popular accounts go wrong",
    "Further reading",
)
NETWORK = {"requests", "urllib", "socket", "http", "httpx", "aiohttp", "ftplib"}
TOP_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def public_names() -> set[str]:
    """Return every public function and class of the package: a chapter must not define these."""
    package = importlib.import_module("llmcourse")
    names = set()
    for module in pkgutil.walk_packages(package.__path__, "llmcourse."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            own = getattr(value, "__module__", "").startswith("llmcourse")
            if own and callable(value) and not name.startswith("_"):
                names.add(name)
    return names


def stripped(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Remove outputs, counts and editor metadata."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        kept = {key: cell.metadata[key] for key in ("tags", "mystnb") if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
    notebook.metadata = nbformat.from_dict(TOP_METADATA)
    return notebook


def written(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook's file content in the one form that is committed."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def python_of(source: str) -> str:
    """Blank out IPython's magics, so that the rest parses."""
    return "\n".join("" if line.lstrip().startswith("%") else line for line in source.split("\n"))


def problems(path: Path, names: set[str]) -> Iterator[str]:
    """Yield what is wrong with a chapter, a line each."""
    text = path.read_text(encoding="utf8")
    notebook = nbformat.reads(text, as_version=4)
    if text != written(stripped(nbformat.reads(text, as_version=4))):
        yield "is not stripped: run make format"
    yield from prose_problems(path, notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if code and "set_up(" not in code[0].source and "set_num_threads(1)" not in code[0].source:
        yield "its first code cell does not call runtime.set_up()"
    for cell in code:
        for problem in code_problems(cell, names):
            yield f"cell {cell.get('id')}: {problem}"


def prose_problems(path: Path, notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield what is wrong with the title, the skeleton and the order of the sections."""
    number = path.stem[:2]
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith(f"# {number} "):
        yield f"its first cell is not a title '# {number} ...'"
    if "**Minutes**" not in first.source:
        yield "its first cell does not say the minutes"
    if "```{phases}" not in first.source:
        yield "its first cell has no phase strip"
    prose = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    found = re.findall(r"^## (.+)$", prose, flags=re.MULTILINE)
    places = [found.index(heading) if heading in found else None for heading in HEADINGS]
    for heading, place in zip(HEADINGS, places, strict=True):
        if place is None:
            yield f"has no section '{heading}'"
    known = [place for place in places if place is not None]
    if known != sorted(known):
        yield f"its sections are not in the order {', '.join(HEADINGS)}"


def code_problems(cell: nbformat.NotebookNode, names: set[str]) -> Iterator[str]:
    """Yield what is wrong with a code cell."""
    source = cell.source
    if re.search(r"^\s*[!%]\s*(pip|conda)\b", source, flags=re.MULTILINE):
        yield "installs packages"
    if re.search(r"""["'](/[A-Za-z]|[A-Za-z]:\\|~/)""", source):
        yield "has an absolute path"
    try:
        tree = ast.parse(python_of(source))
    except SyntaxError as error:
        yield f"does not parse: {error.msg}"
        return
    for node in ast.walk(tree):
        yield from _import_problems(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            yield f"defines {node.name}, which the package has"
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
            yield "asserts a constant"
    if "plt." in source and ("plt.subplots" in source or "plt.figure" in source):
        yield from _figure_problems(cell, tree)


def _import_problems(node: ast.AST) -> Iterator[str]:
    """Yield imports of what a chapter must not use."""
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    for module in modules:
        if module.split(".")[0] in NETWORK:
            yield f"imports {module}: chapters do not use the network"
        if module.startswith("tqdm.auto") or module.startswith("tqdm.notebook"):
            yield f"imports {module}: it puts widgets into the page"


def _figure_problems(cell: nbformat.NotebookNode, tree: ast.Module) -> Iterator[str]:
    """Yield what is missing from a cell that draws."""
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if "plt.show()" not in calls:
        yield "draws without plt.show()"
    settings = cell.metadata.get("mystnb", {})
    if len(settings.get("image", {}).get("alt", "")) < 30:
        yield "draws without an alt text that describes the figure"
    if not settings.get("figure", {}).get("caption"):
        yield "draws without a caption"


def main(arguments: list[str] | None = None) -> int:
    """Check, or strip, the named notebooks or all of them; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--strip", action="store_true", help="rewrite notebooks without outputs")
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted((ROOT / "chapters").glob("*.ipynb"))
    if options.strip:
        for path in paths:
            path.write_text(written(stripped(nbformat.read(path, as_version=4))), encoding="utf8")
        return 0
    names = public_names()
    found = [f"{path.name} {problem}" for path in paths for problem in problems(path, names)]
    print("\n".join(found) or f"{len(paths)} notebooks keep the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
