"""Saving and loading: complete, atomic, checksummed files in a folder.

One process at a time writes into a folder.

Taught in: chapters/30_checkpoints.ipynb
"""

import contextlib
import logging
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from llmcourse import runtime
from llmcourse.checkpoint.payload_file import read_payload, verify, write_payload
from llmcourse.checkpoint.state import (
    Checkpoint,
    Stateful,
    check_plain,
    code_version,
    state_of,
)

NAME = re.compile(r"step_(\d{8,})\.ckpt")
log = logging.getLogger(__name__)


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Return the path of a step's checkpoint; names sort like steps up to 99,999,999."""
    return Path(folder) / f"step_{step:08d}.ckpt"


def save(
    path_or_folder: str | Path,
    *,
    step: int,
    model: Stateful | dict[str, Any],
    optimizer: Stateful | dict[str, Any] | None = None,
    schedule: Stateful | dict[str, Any] | None = None,
    data: Stateful | dict[str, Any] | None = None,
    generators: dict[str, torch.Generator] | None = None,
    config: dict[str, Any] | None = None,
    keep_last: int | None = None,
) -> Path:
    """Write a checkpoint; return its file.

    The file appears under its name only when all of it is on disk, so a crash or a full disk at
    any moment leaves the checkpoints that were there.  Python's, NumPy's and torch's global
    generators are saved as well.

    Args:
        path_or_folder: a folder, for step_NNNNNNNN.ckpt in it, or a file that ends with .ckpt.
        step: steps done, 0 or greater.
        model: as all that follow, something with `state_dict()`, or a state itself.
        optimizer: its moments matter as much as the weights.
        schedule: of the learning rate.
        data: position in the data, such as `Batches`.
        generators: every generator that the run draws from, by name.
        config: settings of the run, plain data.
        keep_last: number of checkpoints to keep in the folder, this one and earlier ones; None
            keeps all.  Later ones, of a run that was taken back, are not touched.

    Raises:
        ValueError: if step or keep_last is outside its range.
        TypeError: if a state holds anything but tensors and plain data.
        OSError: if the file cannot be written.
    """
    content = gathered(
        step=step,
        model=model,
        optimizer=optimizer,
        schedule=schedule,
        data=data,
        generators=generators,
        config=config,
    )
    return write(path_or_folder, content, keep_last=keep_last)


def gathered(
    *,
    step: int,
    model: Stateful | dict[str, Any],
    optimizer: Stateful | dict[str, Any] | None = None,
    schedule: Stateful | dict[str, Any] | None = None,
    data: Stateful | dict[str, Any] | None = None,
    generators: dict[str, torch.Generator] | None = None,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a checkpoint of this moment holds; its tensors are still those of the run.

    Arguments and errors as in `save`.
    """
    if step < 0:
        raise ValueError(f"step must be 0 or greater, got {step}")
    content = {
        "step": step,
        "model": state_of(model),
        "optimizer": state_of(optimizer),
        "schedule": state_of(schedule),
        "data": state_of(data),
        "generators": {name: g.get_state() for name, g in (generators or {}).items()},
        "global_rng": runtime.global_rng_state(),
        "config": config,
        "code": code_version(),
    }
    check_plain(content, "")
    return content


def write(
    path_or_folder: str | Path, content: dict[str, Any], *, keep_last: int | None = None
) -> Path:
    """Write what was gathered as one file; arguments, result and errors as in `save`."""
    if keep_last is not None and keep_last < 1:
        raise ValueError(f"keep_last must be 1 or greater, or None for all, got {keep_last}")
    path, step = Path(path_or_folder), content["step"]
    if path.suffix != ".ckpt":
        path = checkpoint_path(path, step)
    _remove_leftovers(path.parent)
    with runtime.write_atomically(path) as file:
        write_payload(file, content)
    if keep_last is not None:
        earlier = [p for p in list_checkpoints(path.parent) if _step_of(p) <= step]
        for old in earlier[:-keep_last]:
            old.unlink()
    return path


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint, every byte of it checked, onto the CPU; no code in it can run.

    Raises:
        ValueError: if the file is damaged, or is no checkpoint of this layout.
        OSError: if the file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: pass a file of it, such as latest({str(path)!r})")
    content = read_payload(path)
    expected = {field.name for field in fields(Checkpoint)}
    if not isinstance(content, dict) or content.keys() != expected:
        raise ValueError(f"{path} is no training checkpoint: it needs {sorted(expected)}")
    return Checkpoint(**content)


def list_checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints of a folder, earliest step first, without looking into them."""
    found = (path for path in Path(folder).glob("step_*.ckpt") if NAME.fullmatch(path.name))
    return sorted(found, key=_step_of)


def latest(folder: str | Path) -> Path | None:
    """Return the newest intact checkpoint of a folder, or None.

    A damaged one is passed over, with a warning in the log that names it and the reason.
    """
    for path in reversed(list_checkpoints(folder)):
        try:
            with path.open("rb") as file:
                verify(file, path)
        except (ValueError, OSError) as error:
            log.warning("skipping %s: %s", path.name, error)
        else:
            return path
    return None


def _step_of(path: Path) -> int:
    """Return the step in a checkpoint's name, or -1 for a name of one's own."""
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of saves that were killed."""
    for path in folder.glob(".*.ckpt.*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()
