"""Files that are written whole or not at all."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

LOCK = "llmcourse.lock"
"""A file in a folder that one process alone writes into; a folder with it is one of ours."""


def refuse_others(
    folder: Path, is_ours: Callable[[Path], bool] = lambda folder: (folder / LOCK).exists()
) -> None:
    """Raise ValueError if a folder that is to be filled holds what somebody else has put there.

    Args:
        folder: to be filled; it need not be there, and may hold hidden files.
        is_ours: whether a folder that is not empty comes from an earlier call, as one with our
            lock does.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a new folder")
    found = folder.iterdir() if folder.exists() else ()
    names = sorted(path.name for path in found if not path.name.startswith("."))
    if names and not is_ours(folder):
        raise ValueError(f"{folder} holds something else, {names[0]}: choose another folder")


@contextlib.contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` only when it is complete and on disk.

    Write to a hidden temporary file beside it, fsync it, rename it over `path`, fsync the folder.
    A crash at any moment leaves the old file or the new one, never a half.  The temporary file of
    a process that was killed stays behind; its name is ".NAME.HEX.tmp".

    Args:
        path: the final file; missing folders above it are made.

    Yields:
        The temporary file, open for bytes.

    Raises:
        OSError: if the file cannot be written (disk full, no permission); `path` is as it was.

    Source:
        Pillai et al. 2014, "All file systems are not created equal", sections 2 and 4.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        _make_folders(path.parent)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _remove_quietly(temporary)
        if error.filename not in (None, str(temporary), str(path.parent)):
            raise  # the caller's own trouble with another file
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from error
    except BaseException:
        _remove_quietly(temporary)
        raise


def _remove_quietly(path: Path) -> None:
    """Remove a file if it can be removed; the error that is being handled matters more."""
    with contextlib.suppress(OSError):
        path.unlink()


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it; the name of each new one is brought to disk."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk; Windows has no such call and needs none."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
