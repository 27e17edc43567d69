"""A folder that a command fills, by one process at a time, and that the same command completes.

What the work depends on is written down first and last.  So a call that was cut short is taken up
by an equal one, a folder that is complete is read, and another one's is refused.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmcourse.base import files
from llmcourse.base.lock import holds, locked

UNFINISHED = "unfinished"
"""How far the work is, until it is done: a line of JSON, and what a command puts behind it."""

MADE_FROM = "made_from"
"""Under which a record says what the work depends on."""


class Resumable:
    """A folder between the first call for it and the one that completes it.

    Args:
        folder: new or empty, or of an equal call.
        made_from: all that the result depends on, as plain data; only an equal call may go on.
        record: name of the file that is written last.
        verb: what is done, such as "prepared".
    """

    def __init__(
        self, folder: Path, made_from: Mapping[str, Any], *, record: str, verb: str
    ) -> None:
        self.folder, self.record, self.verb = folder, folder / record, verb
        self.made_from = json.loads(json.dumps(made_from))  # as it will be read
        self.unfinished = folder / UNFINISHED

    def __str__(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def at(self, folder: Path) -> "Resumable":
        """Return the same under another name of the folder, for a process that works elsewhere."""
        record, verb = self.record.name, self.verb
        return Resumable(folder, self.made_from, record=record, verb=verb)

    @contextlib.contextmanager
    def alone(self) -> Iterator[dict[str, Any] | None]:
        """Keep other processes out, and take back a new folder into which nothing was written.

        Yields:
            What the record says of a folder that is complete; None if there is something to do.

        Raises:
            ValueError: if another process writes there, or the folder holds something else.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file: name a new folder")
        if holds(self.folder):
            raise ValueError(f"{self.folder} is in use by another call in this process")
        is_new = not self.folder.exists()
        with locked(self.folder):
            try:
                yield self._done()
            finally:
                (self.folder / files.LOCK).unlink(missing_ok=True)
                if is_new and not any(self.folder.iterdir()):
                    self.folder.rmdir()

    def _done(self) -> dict[str, Any] | None:
        for path in (self.record, self.unfinished):
            if not path.exists():
                continue
            found, _ = read_record(path)
            if found.get(MADE_FROM) != self.made_from:
                raise ValueError(
                    f"{self.folder} was {self.verb} from other files or with other settings: "
                    "choose another folder, or remove this one"
                )
            return found if path == self.record else None
        if others := {path.name for path in self.folder.iterdir()} - {files.LOCK}:
            raise ValueError(
                f"{self.folder} holds something else, {min(others)}: choose another folder"
            )
        return None

    def save(self, state: Mapping[str, Any] | None = None, *payload: Any) -> None:
        """Write how far the work is: a state as plain data, and bytes; from here on it is ours."""
        write_record(self.unfinished, {MADE_FROM: self.made_from, **(state or {})}, *payload)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write, last of all, what there is now."""
        write_record(self.record, {**result, MADE_FROM: self.made_from}, indent=1)
        self.unfinished.unlink()


def read_record(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the record in a file, and the bytes behind its first line, if it is one line.

    Raises:
        ValueError: if it is no record.
    """
    content = path.read_bytes()
    line, _, payload = content.partition(b"\n") if path.name == UNFINISHED else (content, b"", b"")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds no record")
    return found, payload


def write_record(
    path: Path, record: Mapping[str, Any], *payload: Any, indent: int | None = None
) -> None:
    """Write a record, whole or not at all, and bytes behind it."""
    with files.write_atomically(path) as file:
        file.write(json.dumps(record, indent=indent).encode() + b"\n")
        for each in payload:
            file.write(each)
