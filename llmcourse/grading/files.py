"""Files that are whole or not there.

Taught in: chapters/00_how_to_use.ipynb
"""

import os
import tempfile
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder, and those above it.

    Raises:
        ValueError: if it cannot be made; the message says what to do.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be made ({error.strerror}): name another one") from None


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or all of the new one.

    Raises:
        OSError: if it cannot be written; what was there before is still there.
    """
    descriptor, name = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
