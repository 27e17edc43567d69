"""Execute the chapters that changed, once, as tests; then build the pages from that execution.

    python -m tools.build.build_book                  what `make book` does
    python -m tools.build.build_book --execute-only   stop after the notebooks

An execution holds for its cells and for the modules and files that its kernel used (tools/build/uses.py).
Jupyter Book itself looks at the code cells alone, and would show new code beside old output.
Two of these processes wait for each other.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from filelock import FileLock
from jupyter_cache import get_cache
from jupyter_cache.cache.db import NbCacheRecord

from tools.build import by_code, spent, uses
from tools.pages import fonts  # noqa: F401 - what an execution belongs to

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "_build"
CACHE = BUILD / ".jupyter_cache"
INDEX = BUILD / "html" / "index.html"
PAGE_KEY = BUILD / "page_key"
PAGE_SOURCES = ("book", "chapters", "exercises", *uses.PACKAGES, "tools")
PAGE_FILES = ("_config.yml", "_toc.yml", "requirements.txt")
NOTING = ROOT / "tools" / "build" / "noting"


def digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files, and of Python's version."""
    sha = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in sorted(paths):
        found = path.read_bytes()
        sha.update(f"{path.relative_to(ROOT).as_posix()}\0{len(found)}\0".encode() + found)
    return sha.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """Return the files below a folder, without what Python and Jupyter leave behind."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not uses.LEFT_BEHIND & set(path.parts) and path.suffix != ".pyc"
    ]


def page_key() -> str:
    """Return what the pages depend on."""
    folders = [path for name in PAGE_SOURCES for path in files_of(ROOT / name)]
    return digest([*folders, *(ROOT / name for name in PAGE_FILES)])


def documents() -> list[str]:
    """Return the documents of the table of contents, in its order, without their suffix."""
    found = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            found.extend(node[key] for key in ("root", "file") if key in node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf8")))
    return found


def pages() -> list[Path]:
    """Return the notebooks of the table of contents, in its order."""
    paths = [ROOT / f"{name}.ipynb" for name in documents()]
    return [path for path in paths if path.exists()]


def chapters() -> list[Path]:
    """Return the chapters of the table of contents, in its order."""
    return [path for path in pages() if path.parent.name == "chapters"]


def all_notebooks() -> list[Path]:
    """Return every notebook that is executed: the pages, and the exercises with solutions."""
    return [*pages(), *sorted((ROOT / "exercises" / "solutions").glob("*.ipynb"))]


def execution(notebook: Path) -> NbCacheRecord | None:
    """Return the cached execution of a notebook's cells, if what it used is as it was."""
    try:
        record = get_cache(str(CACHE)).match_cache_file(str(notebook))
    except KeyError:
        return None
    used = record.data.get("uses")
    return record if used and uses.key(used, ROOT) == record.data["key"] else None


def not_executed(notebooks: list[Path]) -> list[Path]:
    """Return the notebooks whose present cells have no execution that holds."""
    return [notebook for notebook in notebooks if execution(notebook) is None]


def forget(notebooks: list[Path]) -> None:
    """Remove executions from the cache, so that Jupyter Book cannot show them."""
    cache = get_cache(str(CACHE))
    for notebook in notebooks:
        with contextlib.suppress(KeyError):
            cache.remove_cache(cache.match_cache_file(str(notebook)).pk)


def read_or_empty(path: Path) -> str:
    """Return the text of a file, or nothing when there is none."""
    return path.read_text() if path.exists() else ""


def is_built() -> bool:
    """Say whether the pages were built from the present sources."""
    return INDEX.exists() and read_or_empty(PAGE_KEY) == page_key()


def is_current() -> bool:
    """Say whether they were, and show executions that still hold; this takes ten seconds."""
    return is_built() and not not_executed(all_notebooks())


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment that notebooks and pages are made in, whoever's account it is.

    One thread per process, no progress bars in the outputs, the kernel of this environment, and
    nobody's IPython profile.  What notebooks write goes to scratch; what is worth keeping between
    runs, such as matplotlib's list of fonts, goes to _build.
    """
    binaries = Path(sys.executable).parent
    path = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(NOTING), *([path] if path else [])]),
        "LLMCOURSE_ROOT": str(ROOT),
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "LLMCOURSE_PROGRESS": "off",
        "JUPYTER_PATH": "",
        "JUPYTER_RUNTIME_DIR": str(scratch / "jupyter"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "MPLCONFIGDIR": str(BUILD / ".matplotlib"),
        "MATPLOTLIBRC": str(ROOT / "tools" / "pages" / "matplotlibrc"),
        "TMPDIR": str(scratch),
    }


def execute(notebooks: list[Path], env: Mapping[str, str]) -> int:
    """Run notebooks under nbval, two at a time, into the cache; return pytest's exit code."""
    names = [str(path.relative_to(ROOT)) for path in notebooks]
    print(f"executing {len(names)} of {len(all_notebooks())} notebooks", flush=True)
    env = {**env, "SOURCE_DATE_EPOCH": "0"}  # the date in every SVG; Sphinx would take it, too
    # The first import on a machine lists its fonts, and would say so in a page.
    fonts.tell_matplotlib(env)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q", "-ra"]
    command += ["-p", "tools.build.nbval_cache", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "300"]
    command += ["-n", "2", "--dist", "loadfile", *names]
    with spent.noted("notebooks"):
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def build(env: Mapping[str, str]) -> int:
    """Build all pages; any warning is an error.

    Always from nothing: Sphinx would not repeat the warnings of pages that it has read before, nor
    mend a page of source code that a new link points into, nor remove a page that is gone.
    """
    for name in (".doctrees", "html", "jupyter_execute"):
        shutil.rmtree(BUILD / name, ignore_errors=True)
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", ".", "-W", "--keep-going", "-n"]
    with spent.noted("pages"):
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def make_book(*, execute_only: bool = False) -> int:
    """Do what is not done yet; return an exit code."""
    missing = not_executed(all_notebooks())
    with tempfile.TemporaryDirectory(prefix="llmcourse-", ignore_cleanup_errors=True) as scratch:
        env = environment(Path(scratch))
        forget(missing)
        if missing and execute(missing, env):
            print("a chapter failed: the book was not built", file=sys.stderr)
            return 1
        if lost := not_executed(missing):
            names = ", ".join(str(path.relative_to(ROOT)) for path in lost)
            print(
                f"no execution to show of {names}: a cell was skipped, a widget has no form for "
                "pages, or a file changed meanwhile",
                file=sys.stderr,
            )
            return 1
        if execute_only:
            return 0
        if not is_current():
            PAGE_KEY.unlink(missing_ok=True)
            key = page_key()
            if build(env):
                print("the book has warnings or errors: see above", file=sys.stderr)
                return 1
            PAGE_KEY.write_text(key)
    print(f"the book is {INDEX}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Read the options, wait for a build that is under way, and build."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--execute-only", action="store_true", help="stop after the notebooks")
    options = parser.parse_args(arguments)
    try:
        BUILD.mkdir(exist_ok=True)
        (BUILD / ".lock").touch()
    except OSError as error:
        print(
            f"the book is built in {BUILD}, which cannot be written: {error.strerror}",
            file=sys.stderr,
        )
        return 2
    with FileLock(BUILD / ".lock"):
        return make_book(execute_only=options.execute_only)


if __name__ == "__main__":
    sys.exit(main())
