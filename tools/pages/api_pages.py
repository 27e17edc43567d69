"""Write the pages of the three packages, book/api/**/*.md: one per room, with its public names.

python tools/pages/api_pages.py [--check]

Public is what the `__init__` of a folder exports; of a folder that exports nothing, what its
modules define.  Sphinx fills the pages from the docstrings when the book is built.
"""

import argparse
import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "book" / "api"
PACKAGES = {"llmcourse": "", "llmcourse_labs": "labs", "llmcourse_classroom": "classroom"}
"""The folder of each package's pages, below `PAGES`."""
ABOUT = {
    "llmcourse": "The package: the seven phases, their step, and the whole in one file.",
    "llmcourse_labs": "What is done with it: experiments, costs, fine-tuning, evaluation, export.",
    "llmcourse_classroom": "What shows and grades the course.",
}
INDEX = """# The packages

One installation brings three packages. `llmcourse` is what the chapters run on; the laboratories \
use it, the classroom shows both, and nothing imports upward. These pages are made from the \
docstrings of what each folder exports; `[source]` beside a name shows its code.
"""
PART = """
## {package}

{about}

| room | what it holds |
|---|---|
{rows}

Its floors, from the ground up; a module imports from lower floors only, so that each can be read \
with what stands below it:

{floors}
"""


def tree_of(path: Path) -> ast.Module:
    """Return the code of a module."""
    return ast.parse(path.read_text(encoding="utf8"))


def summary(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(tree_of(path)) or "").split("\n")[0]


def exports(init: Path) -> dict[str, list[str]]:
    """Return what the `__init__` of a folder exports, by module."""
    found: dict[str, list[str]] = {}
    for node in tree_of(init).body:
        for inner in node.body if isinstance(node, ast.If) else ():
            if isinstance(inner, ast.ImportFrom) and inner.module:
                found.setdefault(inner.module, []).extend(alias.name for alias in inner.names)
    return {module: sorted(names) for module, names in sorted(found.items())}


def defined(path: Path) -> list[str]:
    """Return the functions and classes of a module without an underscore."""
    kinds = ast.FunctionDef | ast.ClassDef
    body = tree_of(path).body
    return [node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"]


def dotted(path: Path) -> str:
    """Return the name of a module or package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def public(init: Path) -> dict[str, list[str]]:
    """Return the public names of a folder and of the folders in it, by module."""
    found = exports(init)
    if not found:
        own = [path for path in sorted(init.parent.glob("*.py")) if path.stem[:2] != "__"]
        found = {dotted(path): names for path in own if (names := defined(path))}
    for inner in sorted(init.parent.glob("*/__init__.py")):
        if inner.parent.name == "checks":  # of exercises, which have pages
            continue
        for module, names in public(inner).items():
            found[module] = sorted({*found.get(module, ()), *names})
    return dict(sorted(found.items()))


def rooms(package: str) -> dict[str, Path]:
    """Return the modules and folders directly below a package that have a page, by name."""
    folder = ROOT / package
    found = {path.stem: path for path in folder.glob("*.py") if path.stem[:2] != "__"}
    found.pop("commands", None)
    found |= {path.parent.name: path for path in folder.glob("*/__init__.py")}
    return dict(sorted(found.items()))


def automodule(name: str, members: str | None) -> str:
    """Return the block that Sphinx replaces by a module's documentation."""
    options = "" if members is None else f"   :members:{members}\n   :show-inheritance:\n"
    return f"```{{eval-rst}}\n.. automodule:: {name}\n{options}```\n"


def page(name: str, path: Path) -> str:
    """Return the page of a module, or of a folder with a section for each of its modules."""
    if path.stem != "__init__":
        return f"# {name}\n\n{automodule(dotted(path), '')}"
    blocks = [f"# {name}\n", automodule(dotted(path), None)]
    for module, names in public(path).items():
        title = module.partition(".")[2]
        blocks += [f"## {title}\n", automodule(module, f" {', '.join(names)}")]
    return "\n".join(blocks)


def floors(package: str) -> str:
    """Return the floors of a package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c.get("containers") == [package])
    here = {**rooms(package)}
    said = []
    for number, layer in enumerate(reversed(layers), start=1):
        names = [name.strip() for name in layer.split("|")]
        linked = (f"[{n}]({address(package, n)}.md)" if n in here else n for n in names)
        said.append(f"{number}. " + ", ".join(linked))
    return "\n".join(said)


def address(package: str, name: str) -> str:
    """Return where the page of a room is, below `PAGES`."""
    return "/".join(filter(None, (PACKAGES[package], name)))


def index() -> str:
    """Return the page that lists the rooms of all packages, and their floors."""
    parts = [INDEX]
    for package, about in ABOUT.items():
        rows = "\n".join(
            f"| [{name}]({address(package, name)}.md) | {summary(path)} |"
            for name, path in rooms(package).items()
        )
        parts.append(PART.format(package=package, about=about, rows=rows, floors=floors(package)))
    return "".join(parts)


def pages() -> dict[str, str]:
    """Return the content of every page, by its address below `PAGES`."""
    found = {"index": index()}
    for package in PACKAGES:
        for name, path in rooms(package).items():
            found[address(package, name)] = page(name, path)
    return found


def there() -> dict[str, Path]:
    """Return the pages that lie there, by address."""
    return {
        path.relative_to(PAGES).with_suffix("").as_posix(): path for path in PAGES.rglob("*.md")
    }


def stale() -> list[str]:
    """Return the pages that are missing, superfluous or differ from what would be written."""
    found = {name: path.read_text(encoding="utf8") for name, path in there().items()}
    wanted = pages()
    return sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))


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
    for name, path in there().items():
        if name not in wanted:
            path.unlink()
    for name in stale():
        path = PAGES / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[name], encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
