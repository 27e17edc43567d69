"""One folder, one process: a lock that is gone as soon as its process is, however that ends."""

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from llmcourse.base.files import LOCK

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What a file system says that has none."""

_held: dict[Path, int] = {}
"""Folders that this process holds, and how many times."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(folder: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder; a process may ask for it again and again.

    The file stays, and says who holds it, or held it last.  The system keeps the lock, and takes it
    back when the process ends: nothing is left behind.  On NFS it holds between machines from
    version 4 on.  There the lock of a machine that is gone is kept until its lease ends, 90 s as a
    rule.

    Args:
        folder: made if missing.
        wait_s: how long to wait for somebody who may be about to end.

    Raises:
        ValueError: if another process holds it, with its name.
        OSError: if the file cannot be made.
    """
    folder = folder.resolve()
    if _held.get(folder):
        _held[folder] += 1
        try:
            yield
        finally:
            _held[folder] -= 1
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:  # another one's words are not lost by opening
        _take(file, folder, wait_s)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        _held[folder] = 1
        try:
            yield
        finally:
            del _held[folder]


def holds(folder: Path) -> bool:
    """Whether this process keeps others out of a folder."""
    return bool(_held.get(folder.resolve()))


def _take(file: IO[str], folder: Path, wait_s: float) -> None:
    """Lock a file, or say who holds it; a file system without locks protects nobody."""
    limit = time.monotonic() + wait_s
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _WITHOUT_LOCKS:
                log.warning("%s: %s; nobody else must write there", file.name, error.strerror)
                return
            if not isinstance(error, BlockingIOError | PermissionError):
                raise
            if time.monotonic() < limit:
                time.sleep(0.5)
                continue
            file.seek(0)
            holder = " ".join(file.read(200).split()) or "another process"
            raise ValueError(
                f"{folder} is in use by {holder}: wait for its end, or end it first"
            ) from error
        return
