"""Write the pages of the package, book/api/*.md: one per module, from what is there.

python tools/api_pages.py [--check]

Sphinx fills the pages from the docstrings when the book is built.
"""

import argparse
import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "llmcourse"
PAGES = ROOT / "book" / "api"
INDEX = """# The package

`llmcourse` is what the chapters run on. Its modules stand on floors. A module imports from lower \
floors only, so that each can be read with what stands below it. These pages are made from the \
docstrings; `[source]` beside a name shows its code.

| module | what it holds |
|---|---|
{rows}

The floors, from the ground up:

{floors}
"""


def summary(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or "").split("\n")[0]


def has_public_names(path: Path) -> bool:
    """Say whether a module defines something that a page can show."""
    body = ast.parse(path.read_text(encoding="utf8")).body
    kinds = ast.FunctionDef | ast.ClassDef
    return any(isinstance(node, kinds) and not node.name.startswith("_") for node in body)


def modules() -> dict[str, Path]:
    """Return the modules and packages directly below llmcourse, by name."""
    found = {path.stem: path for path in PACKAGE.glob("*.py") if path.stem[:2] != "__"}
    found |= {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}
    return dict(sorted(found.items()))


def automodule(name: str, *, members: bool) -> str:
    """Return the block that Sphinx replaces by a module's documentation."""
    options = "   :members:\n   :show-inheritance:\n" if members else ""
    return f"```{{eval-rst}}\n.. automodule:: llmcourse.{name}\n{options}```\n"


def page(name: str, path: Path) -> str:
    """Return the page of a module, or of a package with a section for each of its modules."""
    if path.stem != "__init__":
        return f"# {name}\n\n{automodule(name, members=True)}"
    blocks = [f"# {name}\n", automodule(name, members=False)]
    for inner in sorted(path.parent.rglob("*.py")):
        generated = inner.parent.name == "checks"  # from notebooks, which have pages
        if not (generated or inner.stem.startswith("__")) and has_public_names(inner):
            dotted = ".".join(inner.relative_to(PACKAGE).with_suffix("").parts)
            blocks += [f"## {dotted}\n", automodule(dotted, members=True)]
    return "\n".join(blocks)


def index() -> str:
    """Return the page that lists the modules and their floors."""
    rows = [f"| [{name}]({name}.md) | {summary(path)} |" for name, path in modules().items()]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    floors = []
    for number, layer in enumerate(reversed(layers), start=1):
        names = [name.strip() for name in layer.split("|")]
        floors.append(f"{number}. " + ", ".join(f"[{name}]({name}.md)" for name in names))
    return INDEX.format(rows="\n".join(rows), floors="\n".join(floors))


def pages() -> dict[str, str]:
    """Return the content of every page, by its name."""
    return {"index": index()} | {name: page(name, path) for name, path in modules().items()}


def stale() -> list[str]:
    """Return the pages that are missing, superfluous or differ from what would be written."""
    there = {path.stem: path.read_text(encoding="utf8") for path in PAGES.glob("*.md")}
    wanted = pages()
    return sorted(n for n in there.keys() | wanted.keys() if there.get(n) != wanted.get(n))


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or say which are stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    options = parser.parse_args(arguments)
    if options.check:
        names = stale()
        print(f"stale: {', '.join(names)}: run make format" if names else "book/api is fresh")
        return 1 if names else 0
    wanted = pages()
    for path in PAGES.glob("*.md"):
        if path.stem not in wanted:
            path.unlink()
    for name in stale():
        (PAGES / f"{name}.md").write_text(wanted[name], encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
