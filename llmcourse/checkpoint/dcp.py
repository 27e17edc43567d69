"""A checkpoint by torch's Distributed Checkpoint, for runs on torch's own engine.

Every rank writes its parts of tensors that may be sharded in any way, and any other number of ranks
reads what it needs.  An index of our own stands beside torch's files and is written last: it holds
what is not a tensor, as plain data, and the SHA-256 of every file::

    step_00000300.dcp/
        __0_0.distcp  __1_0.distcp  ...   torch's files, one or more per rank
        .metadata                         where in them each part of a tensor is
        index.ckpt                        shapes, hashes and all that is no tensor

Taught in: chapters/30_checkpoints.ipynb
"""

import hashlib
import importlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from llmcourse import runtime
from llmcourse.checkpoint.payload_file import read_payload, write_payload
from llmcourse.checkpoint.shards import INDEX
from llmcourse.checkpoint.state import check_plain

METADATA = ".metadata"


def write_tensors(
    folder: str | Path, tensors: Mapping[str, Tensor], *, rank: int
) -> dict[str, str]:
    """Write this rank's parts of tensors; to be called on every rank of the process group.

    Args:
        folder: of this checkpoint alone.
        tensors: by name, whole ones or DTensors.
        rank: of this process.

    Returns:
        The SHA-256 of every file that this rank has written, by name.

    Raises:
        OSError: if a file cannot be written.
    """
    torch_checkpoint = _torch_checkpoint()
    folder = Path(folder)
    try:
        torch_checkpoint.save(dict(tensors), checkpoint_id=folder)
    except torch_checkpoint.CheckpointException as error:
        raise _plainest(error) from error
    mine = [*folder.glob(f"__{rank}_*"), *([folder / METADATA] if rank == 0 else [])]
    return {path.name: _sha256(path) for path in mine}


def write_index(
    folder: str | Path,
    shapes: Mapping[str, tuple[int, ...]],
    hashes: Mapping[str, str],
    content: Mapping[str, Any],
) -> Path:
    """Declare a checkpoint whole, on one rank, when all have written.

    Args:
        folder: of this checkpoint.
        shapes: of the whole tensors, by name.
        hashes: of all ranks' files, by name.
        content: what is no tensor.

    Raises:
        TypeError: if content holds anything but tensors and plain data.
        OSError: if the file cannot be written.
    """
    check_plain(dict(content), "")
    path = Path(folder) / INDEX
    index = {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "hashes": dict(hashes),
        "content": dict(content),
    }
    with runtime.write_atomically(path) as file:
        write_payload(file, index)
    return path


def read_index(folder: str | Path) -> dict[str, Any]:
    """Return the index of a whole checkpoint: "shapes", "hashes" and "content".

    Raises:
        ValueError: if the folder holds no whole checkpoint.
    """
    folder = Path(folder)
    if not (folder / INDEX).exists():
        raise ValueError(
            f"{folder} is no whole checkpoint: it has no {INDEX}, which is written last; "
            "take an earlier one"
        )
    index = read_payload(folder / INDEX)
    for name in index["hashes"]:
        if not (folder / name).exists():
            raise ValueError(f"{folder} is not whole any more: {name} is missing")
    return index


def verify_all(folder: Path) -> None:
    """Read every file and compare it with what the index promises.

    Raises:
        ValueError: if the checkpoint is not whole, or not as it was written.
    """
    for name, sha256 in read_index(folder)["hashes"].items():
        if _sha256(folder / name) != sha256:
            raise ValueError(f"{folder / name} is damaged: its content does not match its hash")


def read_tensors(folder: str | Path) -> dict[str, Tensor]:
    """Return all tensors, whole, in this process alone.

    Raises:
        ValueError: if the checkpoint is not whole, or not as it was written.
    """
    torch_checkpoint = _torch_checkpoint()
    folder = Path(folder)
    verify_all(folder)
    described = torch_checkpoint.FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in described.items()
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single process")  # as is meant
        torch_checkpoint.load(tensors, checkpoint_id=folder, no_dist=True)
    return tensors


def read_into(folder: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, DTensors too, with what stands under their names; on every rank of the group.

    The files are taken to be intact: call `verify_all` before, on one rank.
    """
    _torch_checkpoint().load(dict(tensors), checkpoint_id=Path(folder))


def _torch_checkpoint() -> ModuleType:
    """Import torch's module when it is wanted: it takes half as long as torch itself."""
    return importlib.import_module("torch.distributed.checkpoint")


def _plainest(error: Any) -> BaseException:
    """Return the first rank's own error in place of torch's report of all of them."""
    causes = [wrapped[0] for wrapped in error.failures.values()]
    return next((cause for cause in causes if isinstance(cause, OSError)), error)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
