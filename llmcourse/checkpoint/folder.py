"""A folder of checkpoints: which are there, which is the newest intact one, which may go.

A checkpoint is a file, step_00000300.ckpt, or a folder of files that several ranks have written,
step_00000300.shards or step_00000300.dcp, in which index.ckpt is written last.  A folder is never
written twice: when a run saves the same step again, the next one is step_00000300.1.shards.

One run at a time writes into a folder.
"""

import contextlib
import logging
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from llmcourse.base.plugins import plugin
from llmcourse.checkpoint import shards
from llmcourse.checkpoint.flat import assembled
from llmcourse.checkpoint.payload_file import read_payload, verify
from llmcourse.checkpoint.state import Checkpoint, checked

NAME = re.compile(r"step_(\d{8,})(?:\.(\d+))?\.(ckpt|shards|dcp)")
log = logging.getLogger(__name__)


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Return the path of a step's checkpoint; names sort like steps up to 99,999,999."""
    return Path(folder) / f"step_{step:08d}.ckpt"


def next_try(folder: str | Path, step: int) -> int:
    """Return how often this step has been saved in parts: the number of the next `parts_path`."""
    tries = [_parsed(path) for path in list_checkpoints(folder)]
    return max((each.number for each in tries if each.step == step), default=-1) + 1


def parts_path(folder: str | Path, step: int, number: int, kind: str) -> Path:
    """Return the path of a checkpoint in parts.

    Args:
        folder: of the checkpoints.
        step: steps done.
        number: of the try, from 0.
        kind: "shards" or "dcp".
    """
    return Path(folder) / f"step_{step:08d}{f'.{number}' if number else ''}.{kind}"


def list_checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints of a folder, earliest step first, without looking into them."""
    found = (path for path in Path(folder).glob("step_*") if NAME.fullmatch(path.name))
    return sorted(found, key=lambda path: (*_parsed(path), path.suffix))


def latest(folder: str | Path) -> Path | None:
    """Return the newest intact checkpoint of a folder, or None.

    A damaged one is passed over, with a warning in the log that names it and the reason.
    """
    for path in reversed(list_checkpoints(folder)):
        try:
            _verify(path)
        except (ValueError, OSError) as error:
            log.warning("skipping %s: %s", path.name, error)
        else:
            return path
    return None


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint, every byte of it checked, onto the CPU; no code in it can run.

    One that several ranks have written is put together: the result is that of one process.

    Args:
        path: of a checkpoint, or of a folder of them, for its newest intact one.

    Raises:
        ValueError: if it is damaged, not whole, or no checkpoint of this layout.
        OSError: if it cannot be read.
    """
    path = Path(path)
    if path.is_dir() and not NAME.fullmatch(path.name):
        newest = latest(path)
        if newest is None:
            raise ValueError(f"{path} is a folder without an intact checkpoint")
        path = newest
    if path.is_dir():
        return _load_parts(path)
    content = read_payload(path)
    try:
        return checked(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def prune(newest: Path, step: int, keep_last: int) -> None:
    """Remove old checkpoints, and folders that saves which were killed have left.

    Args:
        newest: just written.
        step: of it; later ones, of a run that was taken back, are not touched.
        keep_last: how many to keep, this one included.

    Raises:
        OSError: if something cannot be removed.
    """
    whole = []
    for path in list_checkpoints(newest.parent):
        same, is_half = _parsed(path).step == step, not (path / shards.INDEX).exists()
        if path.is_dir() and path != newest and _parsed(path).step <= step and (same or is_half):
            _remove(path)
        elif _parsed(path).step <= step:
            whole.append(path)
    for old in whole[:-keep_last]:
        _remove(old)


def remove_later(folder: str | Path, step: int) -> None:
    """Remove the checkpoints of later steps, which a run that was taken back will make again.

    Raises:
        OSError: if something cannot be removed.
    """
    for path in list_checkpoints(folder):
        if _parsed(path).step > step:
            _remove(path)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of saves that were killed."""
    for path in folder.glob(".*.ckpt.*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


class _Parsed(NamedTuple):
    """What a checkpoint's name says."""

    step: int
    number: int
    """Of the attempt to save this step, from 0."""


def _parsed(path: Path) -> _Parsed:
    """Take a name apart; one of the user's own counts as earlier than all."""
    match = NAME.fullmatch(path.name)
    return _Parsed(int(match[1]), int(match[2] or 0)) if match else _Parsed(-1, 0)


def _load_parts(path: Path) -> Checkpoint:
    """Read a checkpoint of several files."""
    kind = _kind(path)
    tensors, content = kind.read_tensors(path), kind.read_index(path)["content"]
    try:
        return checked(assembled(tensors, content))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: its index does not fit its tensors: {error}") from error


def _verify(path: Path) -> None:
    """Raise ValueError unless every byte is as it was written."""
    if path.suffix == ".ckpt":
        verify(path)
    else:
        _kind(path).verify_all(path)


def _kind(path: Path) -> ModuleType:
    """Return the module that reads a folder of several files, by the end of its name."""
    return shards if path.suffix == ".shards" else plugin("checkpoints", path.suffix[1:])


def _remove(path: Path) -> None:
    """Remove a file, or a folder beginning with what makes it whole."""
    if path.is_dir() and not path.is_symlink():
        (path / shards.INDEX).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()
