"""A checkpoint in several files, one per rank, that any other number of ranks can read.

Every tensor counts as flat.  A rank writes the pieces that it keeps; a piece is a range of entries
of one tensor.  When all files are there, one rank writes the index, which names every file with its
hash: without an index a folder is no checkpoint, so that one which was cut short is never taken for
a whole one::

    step_00000300.shards/
        rank_00000_of_00004.ckpt  ...     pieces, written by the ranks at the same time
        index.ckpt                        shapes, hashes and all that is not cut; written last
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Shaped
from torch import Tensor

from llmcourse.base import files
from llmcourse.checkpoint.payload_file import LAYOUT, read_payload, verify, write_payload
from llmcourse.checkpoint.state import check_plain

INDEX = "index.ckpt"


class ShardRange(NamedTuple):
    """A range of entries of a flat tensor."""

    first: int
    values: Shaped[Tensor, " N"]

    @property
    def last(self) -> int:
        """One past its last entry."""
        return self.first + self.values.numel()


def shard_path(folder: Path, rank: int, num_ranks: int) -> Path:
    """Return the file of a rank."""
    return folder / f"rank_{rank:05d}_of_{num_ranks:05d}.ckpt"


def write_shard(
    folder: str | Path, pieces: Mapping[str, ShardRange], *, rank: int, num_ranks: int
) -> Path:
    """Write what one rank keeps; return its file.

    Args:
        folder: of this checkpoint alone.
        pieces: by the name of the tensor; empty ones may be left out.
        rank: from 0.
        num_ranks: how many write.

    Raises:
        ValueError: if rank is not below num_ranks, or a piece is not flat.
        OSError: if the file cannot be written.
    """
    if not 0 <= rank < num_ranks:
        raise ValueError(f"rank must be from 0 to {num_ranks - 1}, got {rank}")
    for name, piece in pieces.items():
        if piece.values.ndim != 1 or piece.first < 0:
            raise ValueError(f"{name}: a piece is flat and begins at 0 or later, got {piece}")
    path = shard_path(Path(folder), rank, num_ranks)
    content = {name: {"first": p.first, "values": p.values.clone()} for name, p in pieces.items()}
    with files.write_atomically(path) as file:
        write_payload(file, content)
    return path


def write_index(
    folder: str | Path,
    shapes: Mapping[str, tuple[int, ...]],
    content: Mapping[str, Any],
    *,
    num_ranks: int,
) -> Path:
    """Declare a checkpoint whole: all files are there, and every entry stands in one of them.

    Call it on one rank, when all have returned from `write_shard`.

    Args:
        folder: of this checkpoint.
        shapes: of the whole tensors, by name.
        content: what is not cut: step, settings, generators, position in the data.
        num_ranks: how many have written.

    Raises:
        ValueError: if a file is missing or damaged, or entries of a tensor are missing or doubled.
        TypeError: if content holds anything but tensors and plain data.
        OSError: if the file cannot be written.
    """
    folder = Path(folder)
    check_plain(dict(content), "")
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in shapes}
    hashes = {}
    for rank in range(num_ranks):
        path = shard_path(folder, rank, num_ranks)
        for name, piece in _pieces(path).items():
            if name not in found:
                raise ValueError(f"{path.name} holds {name!r}, which has no shape in the index")
            found[name].append((piece.first, piece.last))
        hashes[path.name] = _hash_in_header(path)
    for name, ranges in found.items():
        _require_cover(name, sorted(r for r in ranges if r[0] < r[1]), math.prod(shapes[name]))
    return seal(folder, shapes, hashes, content)


def seal(
    folder: Path,
    shapes: Mapping[str, tuple[int, ...]],
    hashes: Mapping[str, str],
    content: Mapping[str, Any],
) -> Path:
    """Write the index, which declares a checkpoint whole; arguments as in `read_index`."""
    index = {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "hashes": dict(hashes),
        "content": dict(content),
    }
    with files.write_atomically(folder / INDEX) as file:
        write_payload(file, index)
    return folder / INDEX


def write_parts(
    folder: str | Path,
    pieces: Mapping[str, ShardRange],
    shapes: Mapping[str, tuple[int, ...]],
    content: Mapping[str, Any],
    *,
    rank: int,
    num_ranks: int,
    timeout_s: int | float = 60,
) -> Path:
    """Be one of the ranks that write a checkpoint; the first waits for the others' files.

    The ranks meet in the folder alone, new and the same on all of them, so that each may do this in
    a thread.  The content is the first rank's, which waits for `timeout_s`; the other arguments are
    those of `write_shard` and `write_index`.

    Raises:
        TimeoutError: if another rank's file does not come.
        ValueError, TypeError, OSError: as `write_shard` and `write_index` do.
    """
    write_shard(folder, pieces, rank=rank, num_ranks=num_ranks)
    if rank == 0:
        for other in range(1, num_ranks):
            wait_for(shard_path(Path(folder), other, num_ranks), timeout_s, other)
        write_index(folder, shapes, content, num_ranks=num_ranks)
    return Path(folder)


def sealed_index(folder: str | Path) -> dict[str, Any]:
    """Return the index of a folder in which all named files are; errors as in `read_index`."""
    folder = Path(folder)
    if not (folder / INDEX).exists():
        raise ValueError(
            f"{folder} is no whole checkpoint: it has no {INDEX}, which is written last; "
            "take an earlier one"
        )
    index = read_payload(folder / INDEX)
    if not isinstance(index, dict) or index.keys() != {"shapes", "hashes", "content"}:
        raise ValueError(f"{folder / INDEX} is another kind of file, and no index")
    _require_index(folder, **index)
    return index


def _require_index(folder: Path, *, shapes: Any, hashes: Any, content: Any) -> None:
    """Raise ValueError for an index that no writer of ours makes."""
    parts = {"shapes": shapes, "hashes": hashes, "content": content}
    if odd := [name for name, part in parts.items() if not isinstance(part, dict)]:
        raise ValueError(f"{folder / INDEX}: {odd[0]} is no dict")
    for name, shape in shapes.items():
        is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not isinstance(name, str) or not is_shape or math.prod(filter(None, shape)) >= 2**60:
            raise ValueError(f"{folder / INDEX}: {name!r} has no shape that a tensor can have")
    num_bytes = 0
    for name in hashes:
        if not isinstance(name, str) or Path(name).name != name or (folder / name).is_symlink():
            raise ValueError(f"{folder / INDEX} names {name!r}, which is no file of the folder")
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is not whole any more: {name} is missing")
        num_bytes += (folder / name).stat().st_size
    if sum(map(math.prod, shapes.values())) > num_bytes:
        raise ValueError(f"{folder / INDEX} names more entries than its files have bytes")


def wait_for(path: Path, timeout_s: int | float, rank: int) -> None:
    """Wait until another rank's file is there.

    Raises:
        TimeoutError: if it does not come.
    """
    began = time.monotonic()
    while not path.exists():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"{path} did not come in {timeout_s} s: rank {rank} has failed")
        time.sleep(0.005)


def read_index(folder: str | Path) -> dict[str, Any]:
    """Return the index of a whole checkpoint: "shapes", "hashes" and "content".

    Raises:
        ValueError: if the folder holds no whole checkpoint, or files of another one.
    """
    folder, index = Path(folder), sealed_index(folder)
    for name, wanted in index["hashes"].items():
        if _hash_in_header(folder / name) != wanted:
            raise ValueError(f"{folder / name} is not the file that the index was written for")
    return index


def read_pieces(
    folder: str | Path, wanted: Mapping[str, tuple[int, int]] | None = None
) -> dict[str, Tensor]:
    """Return ranges of tensors, whoever wrote them; whole tensors in their shapes for None.

    Args:
        folder: of a whole checkpoint.
        wanted: by name, from which entry to which of the flat tensor.

    Raises:
        ValueError: if the checkpoint is not whole or damaged, or a range is outside its tensor.
    """
    index = read_index(folder)
    shapes = {name: tuple(shape) for name, shape in index["shapes"].items()}
    ranges = wanted or {name: (0, math.prod(shape)) for name, shape in shapes.items()}
    for name, (first, last) in ranges.items():
        size = math.prod(shapes[name]) if name in shapes else -1
        if not 0 <= first <= last <= size:
            raise ValueError(f"{name}: there are no entries {first} to {last} in the checkpoint")
    found: dict[str, Tensor] = {}
    held: dict[str, list[tuple[int, int]]] = {name: [] for name in ranges}
    for file in index["hashes"]:
        for name, piece in _pieces(Path(folder) / file).items():
            if name not in shapes:
                raise ValueError(f"{file} holds {name!r}, which has no shape in the index")
            if name in ranges:
                first, last = ranges[name]
                held[name].append((piece.first, piece.last))
                row = found.setdefault(name, piece.values.new_empty(last - first))
                low, high = max(first, piece.first), min(last, piece.last)
                if low < high:
                    row[low - first : high - first] = piece.values[
                        low - piece.first : high - piece.first
                    ]
    for name, parts in held.items():
        _require_cover(name, sorted(p for p in parts if p[0] < p[1]), math.prod(shapes[name]))
    return found if wanted else {name: row.view(shapes[name]) for name, row in found.items()}


def read_tensors(folder: str | Path) -> dict[str, Tensor]:
    """Return all tensors, whole; errors as in `read_pieces`."""
    return read_pieces(folder)


def verify_all(folder: Path) -> None:
    """Read every file and compare it with what the index promises.

    Raises:
        ValueError: if the checkpoint is not whole, or not as it was written.
    """
    for name in read_index(folder)["hashes"]:
        verify(folder / name)


def _pieces(path: Path) -> dict[str, ShardRange]:
    """Read a rank's file, every byte of it checked."""
    try:
        content = read_payload(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path.name} is missing: not every rank has written") from error
    try:
        pieces = {
            name: ShardRange(piece["first"], piece["values"]) for name, piece in content.items()
        }
        is_odd = any(type(p.first) is not int or p.first < 0 for p in pieces.values())
        is_odd |= any(p.values.ndim != 1 for p in pieces.values())
    except (AttributeError, LookupError, TypeError):
        is_odd = True
    if is_odd:
        raise ValueError(f"{path} holds something else than pieces of tensors")
    return pieces


def _hash_in_header(path: Path) -> str:
    """Return the hash that a file's header promises."""
    with path.open("rb") as file:
        raw = file.read(LAYOUT.size)
    return LAYOUT.unpack(raw)[-1].hex() if len(raw) == LAYOUT.size else ""


def _require_cover(name: str, ranges: list[tuple[int, int]], size: int) -> None:
    """Raise ValueError unless ranges in order follow each other from 0 to the end."""
    end = 0
    for first, last in ranges:
        if first != end:
            what = "missing" if first > end else "in two files"
            raise ValueError(f"{name}: entries {min(first, end)} to {max(first, end)} are {what}")
        end = last
    if end != size:
        raise ValueError(f"{name}: the files hold {end} entries of {size}")
