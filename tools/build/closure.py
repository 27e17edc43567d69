"""Which files of the repository a file depends on: what it imports, names, or lies beside.

Read from the source, without running it, and rather too much than too little:

* an import of a module, or of a name that a package fetches lazily, leads to that module alone;
  a package that is used in any other way leads to all its modules;
* a text that holds code, or a dotted name such as "llmcourse.train", counts as an import;
* a text in `tests`, `tools` or `book` that is a path or a folder of the repository leads to all
  files there, and to what these import;
* a module of the packages leads to the data files beside it;
* `plugin(group, name)` leads to all that the packages offer in that group.
"""

import ast
import functools
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.build import uses
from tools.build.uses import python_of

ROOT = Path(os.environ.get("LLMCOURSE_ROOT") or Path(__file__).resolve().parents[2])
IMPORTED_FROM = (ROOT, ROOT / "book" / "_ext")
DOTTED = re.compile(r"\b(?:llmcourse\w*|tests|tools|bench)(?:\.\w+)+")
FROM_PACKAGE = re.compile(r"from (llmcourse\w*) import ([\w, ]+)")
LEFT_OUT = {"_build", "__pycache__", ".ipynb_checkpoints", ".git", ".venv"}
CODE = (".py", ".ipynb")
OWN = ("closure.py", "unchanged.py")
"""These look at all files, and make no difference to a test."""


def code_of(path: Path) -> str:
    """Return the Python code of a module or of a notebook's cells."""
    text = path.read_text(encoding="utf8")
    if path.suffix == ".py":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join(
        python_of("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"
    )


@functools.cache
def place_of(name: str) -> Path | None:
    """Return the file of a module, or the folder of a package without one, or nothing."""
    for root in IMPORTED_FROM:
        if path := uses.module_path(name, root):
            return path
        if (folder := root.joinpath(*name.split("."))).is_dir() and root == ROOT:
            return folder
    return None


@functools.cache
def lazy_names(package: str) -> dict[str, str]:
    """Return the modules that a package fetches its names from, by name."""
    path = place_of(package)
    if path is None or path.name != "__init__.py" or "TYPE_CHECKING" not in path.read_text("utf8"):
        return {}
    branches = [node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.If)]
    imports = [node for branch in branches for node in branch.body]
    return {
        alias.name: node.module
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def in_package(path: Path) -> bool:
    """Say whether a file belongs to one of the packages."""
    return any(path.is_relative_to(ROOT / name) for name in uses.PACKAGES)


@functools.cache
def entry_points() -> dict[str, list[str]]:
    """Return the modules that the packages offer to each other, by group."""
    path = ROOT / "pyproject.toml"
    project = tomllib.loads(path.read_text("utf8"))["project"] if path.exists() else {}
    return {
        group.removeprefix("llmcourse."): [point.partition(":")[0] for point in points.values()]
        for group, points in project.get("entry-points", {}).items()
    }


def parents(name: str) -> Iterator[str]:
    """Return a module and the packages that it is in, the outermost first."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _for_types(node: ast.AST) -> bool:
    """Say whether a statement is `if TYPE_CHECKING:`, which only type checkers read."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _imports(body: list[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Return the imports among statements and inside them."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not _for_types(node):
            for name in ("body", "orelse", "handlers", "finalbody", "cases"):
                yield from _imports(
                    inner if isinstance(inner := getattr(node, name, ()), list) else []
                )


class Uses(ast.NodeVisitor):
    """Collects the modules that some code asks for, as dotted names; `x.*` is all of package x."""

    def __init__(self, code: str, *, paths: bool):
        self.modules: set[str] = set()
        self.files: set[Path] = set()
        self._paths = paths
        self._bound: dict[str, str] = {}
        tree = ast.parse(code)
        for node in _imports(tree.body):
            self._import(node)
        self.visit(tree)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.modules.update(parents(alias.name))
                self._bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
            return
        for alias in node.names:
            found = self._reach(node.module or "", alias.name)
            if found is not None:
                self._bound[alias.asname or alias.name] = found

    def _reach(self, module: str, name: str) -> str | None:
        """Ask for a name of a module; return the dotted name if it is a module itself."""
        self.modules.update(parents(module))
        if name == "*":
            self.modules.add(f"{module}.*")
        elif home := lazy_names(module).get(name):
            self.modules.update(parents(home))
        elif place_of(inner := f"{module}.{name}"):
            self.modules.add(inner)
            return inner
        return None

    def visit_If(self, node: ast.If) -> None:
        """Leave out what only type checkers read."""
        if not _for_types(node):
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Follow a chain such as `llmcourse.optim.AdamW` as far as it is made of modules."""
        chain: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            chain.append(at.attr)
            at = at.value
        if not isinstance(at, ast.Name) or at.id not in self._bound:
            self.generic_visit(node)
            return
        module: str | None = self._bound[at.id]
        while chain and module is not None:
            module = self._reach(module, chain.pop())
        if module is not None:
            self.modules.add(f"{module}.*")

    def visit_Name(self, node: ast.Name) -> None:
        """A package that stands for itself may be asked for anything."""
        if node.id in self._bound:
            self.modules.add(f"{self._bound[node.id]}.*")

    def visit_Call(self, node: ast.Call) -> None:
        """`plugin("stages", name)` asks for what the packages offer in that group."""
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        first = node.args[0] if node.args else None
        if called == "plugin" and isinstance(first, ast.Constant):
            for module in entry_points().get(str(first.value), ()):
                self.modules.update(parents(module))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave docstrings out."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Look for code, dotted names and paths in a text."""
        if not isinstance(node.value, str):
            return
        text = node.value
        try:
            inner = Uses(python_of(text), paths=self._paths) if "import " in text else None
        except (SyntaxError, ValueError):
            inner = None
            for package, names in FROM_PACKAGE.findall(text):
                for name in re.findall(r"\w+", names):
                    self._dotted(f"{package}.{name}")
        if inner is not None:
            self.modules |= inner.modules
            self.files |= inner.files
            return
        for name in DOTTED.findall(text):
            self._dotted(name)
        if self._paths and text and len(text) < 200 and "\n" not in text and text[0] not in "./":
            path = ROOT / text
            if path.exists() and path != ROOT:
                self.files.add(path)

    def _dotted(self, name: str) -> None:
        known = [each for each in parents(name) if place_of(each)]
        if not known:
            return
        self.modules.update(known)
        rest = name.removeprefix(known[-1]).strip(".")
        if home := lazy_names(known[-1]).get(rest.partition(".")[0]):
            self.modules.update(parents(home))
        else:
            self.modules.add(f"{known[-1]}.*")


@functools.cache
def files_below(path: Path) -> tuple[Path, ...]:
    """Return a file, or all files of a folder, without what programs leave behind."""
    found = path.rglob("*") if path.is_dir() else [path]
    return tuple(
        each
        for each in found
        if each.is_file() and not LEFT_OUT & set(each.relative_to(ROOT).parts)
    )


def _files_of(module: str) -> Iterator[Path]:
    """Return the files that a dotted name leads to."""
    if module.endswith(".*"):
        package = module.removesuffix(".*")
        for home in set(lazy_names(package).values()):
            yield from filter(None, map(place_of, parents(home)))
        place = place_of(package)
        folder = place.parent if place and place.name == "__init__.py" else place
        if folder and folder.is_dir() and not lazy_names(package):
            yield from folder.rglob("*.py")
        return
    place = place_of(module)
    if place is None or place.is_dir():
        return
    yield place
    if place.name == "__init__.py" and (main := place.with_name("__main__.py")).exists():
        yield from [main] if module not in uses.PACKAGES else []
    if in_package(place):
        for beside in place.parent.iterdir():
            if beside.is_dir() and not list(beside.glob("*.py")):
                yield from files_below(beside)
            elif beside.is_file() and beside.suffix not in (".py", ".pyc"):
                yield beside


@functools.cache
def _used(path: Path) -> tuple[frozenset[Path], frozenset[Path]]:
    """Return the files that a file leads to by its imports, and those that it names."""
    found: set[Path] = set()
    if path.suffix not in CODE:
        return frozenset(), frozenset()
    named = path.name not in OWN and not in_package(path)
    try:
        used = Uses(code_of(path), paths=named)
    except (SyntaxError, ValueError, KeyError):  # no code: a test's example of a broken file
        return frozenset(), frozenset()
    for module in used.modules:
        found.update(_files_of(module))
    if path.is_relative_to(ROOT / "tests"):
        for folder in path.relative_to(ROOT).parents:
            if (conftest := ROOT / folder / "conftest.py").exists():
                found.add(conftest)
    return frozenset(found), frozenset(each for name in used.files for each in files_below(name))


def direct(path: Path, *, paths: bool = True) -> frozenset[Path]:
    """Return the files that a file leads to in one step."""
    imported, named = _used(path)
    return imported | named if paths else imported


_PATHS: list[Path] = []
_NUMBERS: dict[Path, int] = {}


def _bit(path: Path) -> int:
    """Return the bit of a file in a set of files, which is an integer: sets of paths are slow."""
    if path not in _NUMBERS:
        _NUMBERS[path] = len(_PATHS)
        _PATHS.append(path)
    return 1 << _NUMBERS[path]


def _members(bits: int) -> Iterator[Path]:
    while bits:
        lowest = bits & -bits
        yield _PATHS[lowest.bit_length() - 1]
        bits ^= lowest


@functools.cache
def _direct(path: Path, paths: bool) -> int:
    return sum(map(_bit, direct(path, paths=paths)))


def closure(starts: Iterable[Path], *, paths: bool = True) -> set[Path]:
    """Return all files that some files depend on, themselves included.

    Args:
        starts: files of the repository.
        paths: follow folders and files that are named in texts, too.
    """
    found, new = 0, sum(map(_bit, set(starts)))
    while new:
        found |= new
        for path in _members(new):
            new |= _direct(path, paths)
        new &= ~found
    return set(_members(found))


@functools.cache
def _content(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"absent").digest()


def key(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files."""
    sha = hashlib.sha256()
    for path in sorted(files, key=str):
        sha.update(str(path).encode() + b"\0" + _content(path))
    return sha.hexdigest()


def forget() -> None:
    """Read all files anew, from now on."""
    for remembered in (place_of, lazy_names, files_below, _used, _direct, _content, entry_points):
        remembered.cache_clear()
