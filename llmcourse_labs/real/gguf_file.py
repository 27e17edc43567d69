"""A GGUF file: everything about a model in one file, read without running anything from it.

The format, version 3, all numbers with their lowest byte first::

    "GGUF"  version  number of tensors  number of keys
    every key:     name, type, value             numbers, texts, lists of them
    every tensor:  name, its dimensions with the fastest first, kind, offset of its data
    the data, each tensor at a multiple of general.alignment

A file comes from others: each length is held against what is left of the file before anything is
made of it, and a list may have `MOST_VALUES` values.  The data stays on disk, mapped into memory.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from llmcourse_labs.real.gguf_blocks import KINDS, dequantised

VERSIONS = (2, 3)
"""Which differ in nothing but that 3 may have the highest byte first; such files are refused."""

ALIGNMENT = 32
"""Of data, in bytes, where the file names none."""

NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
"""By type of a value: how it is packed."""

TEXT, LIST = 8, 9
"""The types of values that have a length."""

MOST_VALUES, DEEPEST, MOST_DIMENSIONS = 2**24, 4, 4
"""Values of all lists together, lists within lists, dimensions of a tensor."""

_NOT_READ = {
    6: "Q5_0",
    7: "Q5_1",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    13: "Q5_K",
    15: "Q8_K",
    39: "MXFP4",
}
"""Kinds that are met, and that nothing here reads."""


class TensorInfo(NamedTuple):
    """Where the numbers of a tensor are, and what they are."""

    shape: tuple[int, ...]
    """In torch's order, rows first."""
    kind: str
    """One of `gguf_blocks.KINDS`."""
    offset: int
    """Of its first byte in the file."""
    num_bytes: int
    """Of its data."""


class GgufFile:
    """A GGUF file that was read up to its data, which is mapped into memory.

    The file must not be changed or shortened while it is in use.

    Args:
        path: of the file.

    Attributes:
        path: of the file.
        metadata: by key, as plain Python.
        tensors: by name, in the order of the file.

    Raises:
        ValueError: if it is no GGUF file, is cut off or damaged, contradicts itself, or has a kind
            of tensors that is not read here; one line with its name.
        OSError: if it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        size = self.path.stat().st_size
        if not self.path.is_file() or size < 24:
            raise ValueError(f"{self.path} is no GGUF file: it has {size} bytes")
        with self.path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        reader = _Reader(memoryview(self._map))
        try:
            num_tensors, num_keys = reader.start()
            self.metadata: dict[str, Any] = {}
            for _ in range(num_keys):
                reader.key_and_value(self.metadata)
            self.tensors: dict[str, TensorInfo] = {}
            for _ in range(num_tensors):
                reader.tensor_info(self.tensors)
            self.tensors = _placed(self.tensors, reader.place, size, self.metadata)
        except (ValueError, struct.error) as error:
            raise ValueError(f"{self.path} is no intact GGUF file: {error}") from error

    def read(self, name: str) -> Float[Tensor, "..."]:
        """Return a tensor, in float32, in memory of its own.

        Raises:
            KeyError: if the file has no such tensor.
        """
        shape, kind, offset, num_bytes = self.tensors[name]
        weights_NW = dequantised(self._blocks(name), kind)
        self._forget(offset, offset + num_bytes)
        return weights_NW.view(shape)

    def read_blocks(self, name: str) -> UInt8[Tensor, "F N B"]:
        """Return a matrix as the file has it: the bytes of each block, in memory of its own.

        Raises:
            KeyError: if the file has no such tensor.
        """
        shape, _, offset, num_bytes = self.tensors[name]
        blocks_NB = self._blocks(name).clone()
        self._forget(offset, offset + num_bytes)
        return blocks_NB.view(shape[0], -1, blocks_NB.shape[1])

    def _blocks(self, name: str) -> Tensor:
        """Return the blocks of a tensor where they lie in the file."""
        _, kind, offset, num_bytes = self.tensors[name]
        return self._bytes[offset : offset + num_bytes].view(-1, KINDS[kind].num_bytes)

    def _forget(self, start: int, end: int) -> None:
        """Give the memory of data that was read back to the system; it is still on disk."""
        size = mmap.PAGESIZE
        start, end = -(-start // size) * size, end // size * size
        if start < end and hasattr(self._map, "madvise"):  # Windows has no such call
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)


class _Reader:
    """Takes one value after another; each is held against what is left of the file."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer, self.place, self.num_values = buffer, 0, 0

    def start(self) -> tuple[int, int]:
        """Return how many tensors and how many keys follow."""
        if self.take(4) != b"GGUF":
            raise ValueError("it does not begin with the letters GGUF")
        version = self.number(4)
        if version & 0xFFFF == 0:
            raise ValueError("its numbers begin with their highest byte: convert it on its machine")
        if version not in VERSIONS:
            raise ValueError(f"it has version {version}, and versions {VERSIONS} are read")
        return self.number(10), self.number(10)

    def take(self, num_bytes: int) -> memoryview:
        """Return the next bytes."""
        end = self.place + num_bytes
        if end > len(self.buffer):
            left = len(self.buffer) - self.place
            raise ValueError(f"{num_bytes} bytes are wanted at {self.place}, and {left} are left")
        taken = self.buffer[self.place : end]
        self.place = end
        return taken

    def number(self, kind: int) -> Any:
        """Return the next number."""
        form = NUMBERS[kind]
        return form.unpack(self.take(form.size))[0]

    def text(self) -> str:
        """Return the next text."""
        return str(self.take(self.number(10)), "utf8")

    def key_and_value(self, metadata: dict[str, Any]) -> None:
        """Add what comes next to the metadata."""
        key = self.text()
        if key in metadata:
            raise ValueError(f"the key {_shown(key)} comes twice")
        try:
            metadata[key] = self.value(self.number(4))
        except ValueError as error:
            raise ValueError(f"key {_shown(key)}: {error}") from error

    def value(self, kind: int, depth: int = 0) -> Any:
        """Return the next value."""
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            return self.values(depth + 1)
        if kind not in NUMBERS:
            raise ValueError(f"there is no type {kind} of values")
        return self.number(kind)

    def values(self, depth: int) -> list[Any]:
        """Return the next list."""
        if depth > DEEPEST:
            raise ValueError(f"lists lie within lists more than {DEEPEST} deep")
        kind, count = self.number(4), self.number(10)
        self.num_values += count
        if self.num_values > MOST_VALUES:
            raise ValueError(f"its lists have {self.num_values} values, more than {MOST_VALUES}")
        if kind in NUMBERS:
            form = NUMBERS[kind]
            return list(struct.unpack(f"<{count}{form.format[1:]}", self.take(count * form.size)))
        return [self.value(kind, depth) for _ in range(count)]

    def tensor_info(self, tensors: dict[str, TensorInfo]) -> None:
        """Add what comes next to the tensors; their offsets are those within the data."""
        name = self.text()
        if name in tensors:
            raise ValueError(f"the tensor {_shown(name)} comes twice")
        num_dimensions = self.number(4)
        if not 1 <= num_dimensions <= MOST_DIMENSIONS:
            raise ValueError(f"tensor {_shown(name)} has {num_dimensions} dimensions, not 1 to 4")
        *shape, last = reversed([self.number(10) for _ in range(num_dimensions)])
        number, offset = self.number(4), self.number(10)
        kind = _NAMES.get(number)
        if kind is None:
            raise ValueError(
                f"tensor {_shown(name)} is of the kind {_NOT_READ.get(number, number)}, and only "
                f"{', '.join(KINDS)} are read here"
            )
        if min(*shape, last, last) < 1 or last % KINDS[kind].num_weights:
            raise ValueError(
                f"tensor {_shown(name)} of kind {kind} has the shape {(*shape, last)}: sizes are 1 "
                f"or more, and rows a multiple of {KINDS[kind].num_weights}"
            )
        num_blocks = math.prod(shape) * (last // KINDS[kind].num_weights)
        num_bytes = num_blocks * KINDS[kind].num_bytes
        tensors[name] = TensorInfo((*shape, last), kind, offset, num_bytes)


_NAMES = {kind.number: name for name, kind in KINDS.items()}


def _placed(
    tensors: dict[str, TensorInfo], end: int, size: int, metadata: dict[str, Any]
) -> dict[str, TensorInfo]:
    """Return the tensors with their offsets in the file, where data begins behind `end`.

    Raises:
        ValueError: if data is not aligned, or two tensors overlap, or one passes the file's end.
    """
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise ValueError(
            f"general.alignment must be a power of two, 8 or more, got {_shown(alignment)}"
        )
    start = -(-end // alignment) * alignment
    placed = {name: info._replace(offset=start + info.offset) for name, info in tensors.items()}
    end = start
    for name, info in sorted(placed.items(), key=lambda item: item[1].offset):
        if info.offset % alignment:
            raise ValueError(f"the data of {_shown(name)} is not at a multiple of {alignment}")
        if info.offset < end:
            raise ValueError(f"the data of {_shown(name)} overlaps that of another tensor")
        end = info.offset + info.num_bytes
        if end > size:
            raise ValueError(
                f"the data of {_shown(name)} ends at {end}, and the file at {size}: is it cut off?"
            )
    return placed


def _shown(value: Any) -> str:
    """Return a value of the file's as a part of a message: short, and in one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}..."
