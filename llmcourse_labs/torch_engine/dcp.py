"""A checkpoint by torch's Distributed Checkpoint, for runs on torch's own engine.

Every rank writes its parts of tensors that may be sharded in any way, and any other number of ranks
reads what it needs.  An index of our own stands beside torch's files and is written last: it holds
what is not a tensor, as plain data, and the SHA-256 of every file::

    step_00000300.dcp/
        __0_0.distcp  __1_0.distcp  ...   torch's files, one or more per rank
        .metadata                         where in them each part of a tensor is
        hashes_00000.json  ...            SHA-256 of each rank's files
        index.ckpt                        shapes, hashes and all that is no tensor

Torch would read .metadata as a pickle, which can run code; `torch_metadata` reads it in its place.
"""

import contextlib
import hashlib
import importlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from llmcourse.base import files
from llmcourse.checkpoint.shards import seal, wait_for
from llmcourse.checkpoint.shards import sealed_index as read_index
from llmcourse.checkpoint.state import check_plain
from llmcourse_labs.torch_engine.torch_metadata import NAME as METADATA
from llmcourse_labs.torch_engine.torch_metadata import read_metadata


def begin_write(
    folder: str | Path,
    tensors: Mapping[str, Tensor],
    *,
    rank: int,
    background_group: dist.ProcessGroup | None = None,
) -> Callable[[], None]:
    """Begin to write this rank's parts of tensors; to be called on every rank.

    Args:
        folder: of this checkpoint alone.
        tensors: by name, whole ones or DTensors.
        rank: of this process.
        background_group: a gloo group of its own, over which the ranks agree from threads: the
            tensors may be changed as soon as this returns.  None writes at once.

    Returns:
        What waits for the write and notes the SHA-256 of this rank's files; it may be called from a
        thread, and raises OSError if a file cannot be written.

    Raises:
        OSError: if a file cannot be written.
    """
    torch_checkpoint, folder, named = _torch_checkpoint(), Path(folder), dict(tensors)
    future = None
    if background_group is None:
        with _plain_errors():
            torch_checkpoint.save(named, checkpoint_id=folder)
    else:
        future = torch_checkpoint.async_save(
            named, checkpoint_id=folder, process_group=background_group
        )

    def finish() -> None:
        if future is not None:
            with _plain_errors():
                future.result()
        mine = [*folder.glob(f"__{rank}_*"), *([folder / METADATA] if rank == 0 else [])]
        hashes = {path.name: _sha256(path) for path in mine}
        with files.write_atomically(_hashes_path(folder, rank)) as file:
            file.write(json.dumps(hashes).encode())

    return finish


def write_index(
    folder: str | Path,
    shapes: Mapping[str, tuple[int, ...]],
    content: Mapping[str, Any],
    *,
    num_ranks: int,
    timeout_s: int | float = 600,
) -> Path:
    """Declare a checkpoint whole, on the first rank, once every rank has noted its hashes.

    Args:
        folder: of this checkpoint.
        shapes: of the whole tensors, by name.
        content: what is no tensor.
        num_ranks: how many write.
        timeout_s: how long to wait for the others.

    Raises:
        TimeoutError: if a rank does not come to its end.
        TypeError: if content holds anything but tensors and plain data.
        OSError: if the file cannot be written.
    """
    check_plain(dict(content), "")
    folder = Path(folder)
    hashes: dict[str, str] = {}
    for rank in range(num_ranks):
        wait_for(_hashes_path(folder, rank), timeout_s, rank)
        hashes |= json.loads(_hashes_path(folder, rank).read_text())
    return seal(folder, shapes, hashes, content)


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
    verify_all(Path(folder))
    reader = _reader(Path(folder))
    tensors = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in reader.read_metadata().state_dict_metadata.items()
    }
    with warnings.catch_warnings(), _plain_errors():
        warnings.filterwarnings("ignore", message=".*single process")  # as is meant
        _torch_checkpoint().load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def read_into(folder: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, DTensors too, with what stands under their names; on every rank of the group.

    The files are taken to be intact: call `verify_all` before, on one rank.

    Raises:
        ValueError: if the checkpoint is not whole, or holds something else.
    """
    with _plain_errors():
        _torch_checkpoint().load(dict(tensors), storage_reader=_reader(Path(folder)))


def _reader(folder: Path) -> Any:
    """Return torch's reader of a folder, which is told the metadata and unpickles none."""
    index = read_index(folder)
    described = read_metadata(folder, index["hashes"])
    sizes = {name: list(about.size) for name, about in described.state_dict_metadata.items()}
    if sizes != index["shapes"]:
        raise ValueError(f"{folder}: the tensors of {METADATA} are not those of the index")
    reader = _torch_checkpoint().FileSystemReader(folder)
    reader.read_metadata = lambda: described
    return reader


def _torch_checkpoint() -> ModuleType:
    """Import torch's module when it is wanted: it takes half as long as torch itself."""
    return importlib.import_module("torch.distributed.checkpoint")


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise the first rank's own error in place of torch's report of all of them."""
    checkpoint_error = _torch_checkpoint().CheckpointException
    try:
        yield
    except checkpoint_error as error:
        causes = [wrapped[0] for wrapped in error.failures.values()]
        plain = next((cause for cause in causes if isinstance(cause, OSError)), None)
        if plain is None:
            reason = " ".join(str(causes[0]).split())[:200]
            raise ValueError(f"torch's Distributed Checkpoint fails: {reason}") from error
        raise plain from error


def _hashes_path(folder: Path, rank: int) -> Path:
    return folder / f"hashes_{rank:05d}.json"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
