"""Torch's .metadata, read so that nothing in it can run.

The file is a pickle, and a pickle is a program: it may name any function of any module and call it.
Here a name that torch writes becomes a note, an object of our own that keeps what it is given and
does nothing, and any other name is refused.  Then torch's descriptions are made anew from the
notes, each field checked against the files that lie there.

Source: https://docs.python.org/3/library/pickle.html, "Restricting Globals"
"""

import importlib
import io
import math
import pickle
import pickletools
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from llmcourse.checkpoint.payload_file import BROKEN, require_shallow

NAME = ".metadata"
_DESCRIBED = "torch.distributed.checkpoint.metadata"


class _Note:
    """Keeps what a pickle gives to one of torch's classes."""

    state: Any = None

    def __init__(self, *_arguments: object) -> None:
        """Take what the class would be called with, which is of no use here."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Metadata(_Note): ...


class _Tensor(_Note): ...


class _Chunk(_Note): ...


class _Index(_Note): ...


class _Place(_Note): ...


_ALLOWED: dict[tuple[str, str], Any] = {
    (_DESCRIBED, "Metadata"): _Metadata,
    (_DESCRIBED, "TensorStorageMetadata"): _Tensor,
    (_DESCRIBED, "ChunkStorageMetadata"): _Chunk,
    (_DESCRIBED, "MetadataIndex"): _Index,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Place,
    (_DESCRIBED, "TensorProperties"): _Note,
    (_DESCRIBED, "_MEM_FORMAT_ENCODING"): _Note,
    (_DESCRIBED, "StorageMeta"): _Note,
    ("torch.serialization", "_get_layout"): _Note,
    ("pathlib", "PosixPath"): _Note,
    ("pathlib", "WindowsPath"): _Note,
    ("torch", "Size"): torch.Size,
    **{
        ("torch", name): it
        for name, it in vars(torch).items()
        if isinstance(it, torch.dtype) and not name.startswith("q")  # those that need a scale
    },
}
"""What each name stands for; BytesStorageMetadata is not here: what is no tensor is in our index"""


class _Notes(pickle.Unpickler):
    """Reads a pickle as notes."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for; torch's own would be imported, and then called."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise ValueError(f"it names {module}.{name}, which describes no tensor") from None


class StorageInfo(NamedTuple):
    """Where a part of a tensor is, as torch's reader wants to know it."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: None = None


def read_metadata(folder: Path, files: Collection[str]) -> Any:
    """Return torch's `Metadata` of a folder; no code in it can run.

    Args:
        folder: of the checkpoint.
        files: the names that it may point to.

    Raises:
        ValueError: if it is not as torch writes it, or does not fit the files.
        OSError: if a file cannot be read.
    """
    raw = (folder / NAME).read_bytes()
    try:
        _require_plain(raw)
        note = _state(_Notes(io.BytesIO(raw)).load(), _Metadata)
        places = _places(note["storage_data"], {n: (folder / n).stat().st_size for n in files})
        return _described(note["state_dict_metadata"], places)
    except BROKEN as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{folder / NAME} is not as torch writes it: {reason}") from error


def _require_plain(raw: bytes) -> None:
    """Raise ValueError for what would go past `find_class`, or fill memory with an empty memo."""
    for operation, argument, _ in pickletools.genops(raw):
        if operation.name.startswith("EXT"):
            raise ValueError("it names something by the number of an extension")
        if "PUT" in operation.name and (argument is None or argument > len(raw)):
            raise ValueError(f"it counts {argument} objects in {len(raw)} bytes")
    require_shallow(raw)


def _places(saved: Any, sizes: dict[str, int]) -> dict[tuple, StorageInfo]:
    """Return where the parts are, by tensor and offset."""
    found = {}
    for index, place in saved.items():
        name, offset = (_state(index, _Index).get(key) for key in ("fqn", "offset"))
        about = _state(place, _Place)
        if about.get("transform_descriptors"):
            raise ValueError("it was written with an extension, which this code does not read")
        path = _exactly(str, about["relative_path"])
        if path not in sizes:
            raise ValueError(f"it points to {path!r}, which is no file of this checkpoint")
        first, length = _exactly(int, about["offset"]), _exactly(int, about["length"])
        if not 0 <= first < first + length <= sizes[path]:
            raise ValueError(f"it points to bytes {first} to {first + length} of {path}")
        found[_exactly(str, name), _sides(offset)] = StorageInfo(path, first, length)
    if sum(place.length for place in found.values()) > sum(sizes.values()):
        raise ValueError("its parts overlap in the files")
    return found


def _described(saved: Any, places: dict[tuple, StorageInfo]) -> Any:
    """Return torch's description of tensors, made anew."""
    torchs = importlib.import_module(_DESCRIBED)
    tensors, storage = {}, {}
    for name, tensor in saved.items():
        about = _state(tensor, _Tensor)
        dtype = _exactly(torch.dtype, _state(about["properties"], _Note)[0])
        size, boxes = _sides(about["size"]), []
        for number, chunk in enumerate(about["chunks"]):
            box = _state(chunk, _Chunk)
            offsets, sides = _sides(box["offsets"]), _sides(box["sizes"])
            place = places[_exactly(str, name), offsets]
            if math.prod(sides) * dtype.itemsize > place.length:
                raise ValueError(f"{name!r} has more entries than its file has bytes for")
            storage[torchs.MetadataIndex(name, offsets, number)] = place
            boxes.append(torchs.ChunkStorageMetadata(offsets, sides))
        _require_tiles(name, size, boxes)
        properties = torchs.TensorProperties(dtype=dtype)
        tensors[name] = torchs.TensorStorageMetadata(properties, size, boxes)
    return torchs.Metadata(tensors, storage_data=storage)


def _require_tiles(name: str, size: torch.Size, boxes: list[Any]) -> None:
    """Raise ValueError unless boxes fill a tensor, none over another."""
    for box in boxes:
        ends = [a + n for a, n in zip(box.offsets, box.sizes, strict=True)]
        if any(end > side for end, side in zip(ends, size, strict=True)):
            raise ValueError(f"a part of {name!r} is outside of it")
    if sum(math.prod(box.sizes) for box in boxes) != math.prod(size):
        raise ValueError(f"the parts of {name!r} do not make up its shape")
    if len(boxes) > 1:
        filled = torch.zeros(size, dtype=torch.bool)
        for box in boxes:
            where = zip(box.offsets, box.sizes, strict=True)
            filled[tuple(slice(first, first + n) for first, n in where)] = True
        if not filled.all():
            raise ValueError(f"the parts of {name!r} overlap")


_Kind = TypeVar("_Kind")


def _exactly(kind: type[_Kind], value: object) -> _Kind:
    """Return a value that is of a type, and of no other."""
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} is expected where a {type(value).__name__} stands")
    return value


def _state(note: object, kind: type[_Note]) -> Any:
    """Return what a pickle gave to one of torch's classes."""
    return _exactly(kind, note).state


def _sides(value: object) -> torch.Size:
    """Return a shape, or an offset, without negative numbers."""
    sides = _exactly(torch.Size, value)
    if any(side < 0 for side in sides):
        raise ValueError(f"a shape has a negative side: {tuple(sides)}")
    return sides
