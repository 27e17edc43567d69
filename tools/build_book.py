"""Execute the chapters that changed, once, as tests; then build the pages from that execution.

    python tools/build_book.py                  what `make book` does
    python tools/build_book.py --execute-only   stop after the notebooks

The cache of executed notebooks belongs to one state of the package and the pinned requirements.
Jupyter Book itself looks at the code cells alone, and would show new code beside old output.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml
from jupyter_cache import get_cache

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "_build"
CACHE = BUILD / ".jupyter_cache"
INDEX = BUILD / "html" / "index.html"
PAGE_SOURCES = ("book", "chapters", "exercises", "llmcourse", "tools")
PAGE_FILES = ("_config.yml", "_toc.yml", "requirements.txt")


def digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files."""
    sha = hashlib.sha256()
    for path in sorted(paths):
        sha.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def files_of(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the files below a folder, without what Python and Jupyter leave behind."""
    return [
        path
        for path in folder.rglob(pattern)
        if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    ]


def execution_key() -> str:
    """Return what outputs depend on besides the cells: the package and the pinned versions."""
    return digest([*files_of(ROOT / "llmcourse", "*.py"), ROOT / "requirements.txt"])


def page_key() -> str:
    """Return what the pages depend on."""
    folders = [path for name in PAGE_SOURCES for path in files_of(ROOT / name)]
    return digest([*folders, *(ROOT / name for name in PAGE_FILES)])


def chapters() -> list[Path]:
    """Return the notebooks of the table of contents, in its order."""
    found = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            name = node.get("file") or node.get("root")
            if name and (ROOT / f"{name}.ipynb").exists():
                found.append(ROOT / f"{name}.ipynb")
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(yaml.safe_load((ROOT / "_toc.yml").read_text()))
    return found


def not_executed(notebooks: list[Path]) -> list[Path]:
    """Return the notebooks whose present cells have no passing execution in the cache."""
    stamp = CACHE / "key"
    key = execution_key()
    if not stamp.exists() or stamp.read_text() != key:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        stamp.write_text(key)
    cache = get_cache(str(CACHE))
    missing = []
    for notebook in notebooks:
        try:
            cache.match_cache_file(str(notebook))
        except KeyError:
            missing.append(notebook)
    return missing


def execute(notebooks: list[Path]) -> int:
    """Run notebooks under nbval, two at a time, into the cache; return pytest's exit code."""
    names = [str(path.relative_to(ROOT)) for path in notebooks]
    print(f"executing {len(names)} of {len(chapters())} chapters: {', '.join(names)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q", "-ra"]
    command += ["-p", "tools.nbval_cache", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "300"]
    command += ["-n", "2", "--dist", "loadfile", *names]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def build() -> int:
    """Build the pages; any warning is an error."""
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", ".", "-W", "--keep-going", "-n"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Do what is not done yet; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--execute-only", action="store_true", help="stop after the notebooks")
    options = parser.parse_args()
    missing = not_executed(chapters())
    if missing and execute(missing):
        print("a chapter failed: the book was not built", file=sys.stderr)
        return 1
    if options.execute_only:
        return 0
    stamp = BUILD / "page_key"
    key = page_key()
    if missing or not INDEX.exists() or not stamp.exists() or stamp.read_text() != key:
        stamp.unlink(missing_ok=True)
        if build():
            print("the book has warnings or errors: see above", file=sys.stderr)
            return 1
        stamp.write_text(key)
    print(f"the book is {INDEX.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
