"""Execute the chapters that changed, once, as tests; then build the pages from that execution.

    python tools/build_book.py                  what `make book` does
    python tools/build_book.py --execute-only   stop after the notebooks

The cache of executed notebooks belongs to one state of the package's code, the pinned requirements
and Python.  Jupyter Book itself looks at the code cells alone, and would show new code beside old
output.  Comments and docstrings do not count.  Two of these processes wait for each other.
"""

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml
from filelock import FileLock
from jupyter_cache import get_cache

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
CACHE = BUILD / ".jupyter_cache"
INDEX = BUILD / "html" / "index.html"
PAGE_KEY = BUILD / "page_key"
PAGE_SOURCES = ("book", "chapters", "exercises", "llmcourse", "tools")
PAGE_FILES = ("_config.yml", "_toc.yml", "requirements.txt")
LEFT_BEHIND = {"__pycache__", ".ipynb_checkpoints"}


def content_of(path: Path) -> bytes:
    """Return what is in a file."""
    return path.read_bytes()


def meaning_of(path: Path) -> bytes:
    """Return what a file does: of Python code, neither comments nor layout nor docstrings."""
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


def digest(paths: Iterable[Path], content: Callable[[Path], bytes] = content_of) -> str:
    """Return the SHA-256 of the names and contents of files, and of Python's version."""
    sha = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in sorted(paths):
        found = content(path)
        sha.update(f"{path.relative_to(ROOT).as_posix()}\0{len(found)}\0".encode() + found)
    return sha.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """Return the files below a folder, without what Python and Jupyter leave behind."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_BEHIND & set(path.parts) and path.suffix != ".pyc"
    ]


def execution_key() -> str:
    """Return what outputs depend on besides the cells: the package and the pinned versions."""
    return digest([*files_of(ROOT / "llmcourse"), ROOT / "requirements.txt"], meaning_of)


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


def uncached(notebooks: list[Path]) -> list[Path]:
    """Return the notebooks whose present cells have no passing execution in the cache."""
    cache = get_cache(str(CACHE))
    missing = []
    for notebook in notebooks:
        try:
            cache.match_cache_file(str(notebook))
        except KeyError:
            missing.append(notebook)
    return missing


def not_executed(notebooks: list[Path]) -> list[Path]:
    """Return the notebooks to execute; empty the cache if it is of another state of the package."""
    if read_or_empty(CACHE / "key") != (key := execution_key()):
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        (CACHE / "key").write_text(key)
    return uncached(notebooks)


def read_or_empty(path: Path) -> str:
    """Return the text of a file, or nothing when there is none."""
    return path.read_text() if path.exists() else ""


def is_current() -> bool:
    """Say whether the built pages are those of the present sources."""
    return (
        INDEX.exists()
        and read_or_empty(PAGE_KEY) == page_key()
        and read_or_empty(CACHE / "key") == execution_key()
        and not uncached(all_notebooks())
    )


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment that notebooks and pages are made in, whoever's account it is.

    One thread per process, no progress bars in the outputs, the kernel of this environment, and
    nobody's IPython profile.  What notebooks write goes to scratch; what is worth keeping between
    runs, such as matplotlib's list of fonts, goes to _build.
    """
    binaries = Path(sys.executable).parent
    return os.environ | {
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
        "TMPDIR": str(scratch),
    }


def execute(notebooks: list[Path], env: Mapping[str, str]) -> int:
    """Run notebooks under nbval, two at a time, into the cache; return pytest's exit code."""
    names = [str(path.relative_to(ROOT)) for path in notebooks]
    print(f"executing {len(names)} of {len(all_notebooks())} notebooks", flush=True)
    # The first import on a machine lists its fonts, and would say so in a page.
    fonts = [sys.executable, "-c", "import matplotlib.font_manager"]
    subprocess.run(fonts, env=env, check=True, stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q", "-ra"]
    command += ["-p", "tools.nbval_cache", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "300"]
    command += ["-n", "2", "--dist", "loadfile", *names]
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
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def make_book(*, execute_only: bool = False) -> int:
    """Do what is not done yet; return an exit code."""
    missing = not_executed(all_notebooks())
    with tempfile.TemporaryDirectory(prefix="llmcourse-", ignore_cleanup_errors=True) as scratch:
        env = environment(Path(scratch))
        if missing and execute(missing, env):
            print("a chapter failed: the book was not built", file=sys.stderr)
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
