"""Saving: one complete, atomic, checksummed file."""

from pathlib import Path
from typing import Any

import torch

from llmcourse.base import files, runtime
from llmcourse.base.arguments import require_each
from llmcourse.checkpoint.folder import checkpoint_path, prune, remove_leftovers
from llmcourse.checkpoint.payload_file import write_payload
from llmcourse.checkpoint.state import Stateful, check_plain, checked, code_version, state_of

_FILES = {".bin", ".ckpt", ".dcp", ".npz", ".pkl", ".pt", ".pth", ".safetensors", ".shards", ".zip"}
"""Endings of names that are taken for a file, or for a checkpoint of another form."""


def save(path_or_folder: str | Path, *, keep_last: int | None = None, **parts: Any) -> Path:
    """Write a checkpoint; return its file.

    The file appears under its name only when all of it is on disk, so a crash or a full disk at
    any moment leaves the checkpoints that were there.  Python's, NumPy's and torch's global
    generators are saved as well.

    Args:
        path_or_folder: a folder, for step_NNNNNNNN.ckpt in it, or a file that ends with .ckpt.
            `load` takes either.
        keep_last: number of checkpoints to keep in the folder, this one and earlier ones; None
            keeps all.  Later ones, of a run that was taken back, are not touched.
        parts: of the run, see `content_of_run`: step and model at least.

    Raises:
        ValueError: if step or keep_last is outside its range, or a name that is taken for a file,
            such as x.pt, does not end with .ckpt.
        TypeError: if a state holds anything but tensors and plain data.
        OSError: if the file cannot be written.
    """
    return write(path_or_folder, content_of_run(**parts), keep_last=keep_last)


def content_of_run(
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

    Args:
        step: steps done, 0 or greater.
        model: as all that follow, something with `state_dict()`, or a state itself.
        optimizer: its moments matter as much as the weights.
        schedule: of the learning rate.
        data: position in the data, such as `Batches`.
        generators: every generator that the run draws from, by name.
        config: settings of the run, plain data.

    Raises:
        ValueError, TypeError: as `save` does.
    """
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
    checked(content)
    return content


def write(
    path_or_folder: str | Path, content: dict[str, Any], *, keep_last: int | None = None
) -> Path:
    """Write what was gathered as one file; arguments, result and errors as in `save`."""
    require_each({"keep_last": keep_last}, least=1)
    path, step = Path(path_or_folder), content["step"]
    if path.suffix != ".ckpt":
        if path.suffix.lower() in _FILES and not path.is_dir():
            raise ValueError(
                f"{path} looks like a file, which needs the ending .ckpt: pass "
                f"{path.with_suffix('.ckpt')}, or {path.with_suffix('')} for a folder"
            )
        path = checkpoint_path(path, step)
    remove_leftovers(path.parent)
    with files.write_atomically(path) as file:
        write_payload(file, content)
    if keep_last is not None:
        prune(path, step, keep_last)
    return path
