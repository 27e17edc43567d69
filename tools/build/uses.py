"""What an executed notebook depends on: the modules and files that it used, and a key of them.

Written down by tools/build/noting while it runs.  An execution holds as long as its key is the same.
"""

import ast
import functools
import hashlib
import importlib.util
import sys
from pathlib import Path

PACKAGES = ("llmcourse", "llmcourse_labs", "llmcourse_classroom")
PINS = "requirements.txt"
LEFT_BEHIND = {"__pycache__", ".ipynb_checkpoints"}
ABSENT = b"absent"

Uses = dict[str, list[str]]
"""Relative paths or dotted names, by kind: `name`, `file`, `folder`."""


def meaning_of(path: Path) -> bytes:
    """Return what a file does: of Python code, neither comments nor layout nor docstrings."""
    stat = path.stat()
    return _meaning_of(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _meaning_of(path: Path, _mtime: int, _size: int) -> bytes:
    if path.suffix != ".py":
        return path.read_bytes()
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # A text that stands alone does nothing; this holds for those under a field, too.
            node.body = [statement for statement in body if not _is_text(statement)]
    return ast.dump(tree).encode()


def _is_text(statement: ast.AST) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Expr) and isinstance(getattr(value, "value", None), str)


def python_of(source: str) -> str:
    """Blank out IPython's magics and shell lines, so that the rest parses."""
    if source.lstrip().startswith("%%"):
        return ""
    lines = source.split("\n")
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def read(notes: Path) -> Uses:
    """Return what was noted, each kind sorted."""
    found: dict[str, set[str]] = {"name": set(), "file": {PINS}, "folder": set()}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        kind, _, what = line.partition(" ")
        found[kind].add(what)
    return {kind: sorted(what) for kind, what in found.items()}


def module_path(name: str, root: Path) -> Path | None:
    """Return the file that Python would load for a dotted name, or nothing."""
    path = root.joinpath(*name.split("."))
    candidates = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _state(kind: str, what: str, root: Path) -> bytes:
    if kind == "name" and what.partition(".")[0] not in PACKAGES:  # carries weights
        return ABSENT if importlib.util.find_spec(what) is None else b"installed"
    if kind == "name":
        path = module_path(what, root)
        return ABSENT if path is None else path.name.encode() + b"\0" + meaning_of(path)
    path = root / what
    if kind == "file":  # read as text: a page may show it, comments and all
        return path.read_bytes() if path.is_file() else ABSENT
    if not path.is_dir():
        return ABSENT
    return "\0".join(sorted({entry.name for entry in path.iterdir()} - LEFT_BEHIND)).encode()


def key(uses: Uses, root: Path) -> str:
    """Return the SHA-256 of the present state of all that was used, and of Python's version."""
    sha = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for kind, whats in sorted(uses.items()):
        for what in whats:
            state = _state(kind, what, root)
            sha.update(f"{kind} {what}\0{len(state)}\0".encode() + state)
    return sha.hexdigest()


def paths(uses: Uses, root: Path) -> list[Path]:
    """Return the files that were used and are there."""
    modules = [module_path(name, root) for name in uses["name"]]
    files = [root / name for name in uses["file"]]
    return [path for path in (*modules, *files) if path is not None and path.is_file()]
