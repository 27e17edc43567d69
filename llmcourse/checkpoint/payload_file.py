"""The file of a checkpoint: its layout, writing it, and finding out whether it is intact.

A checkpoint is one file, step_00000300.ckpt: a header of 52 bytes, then what `torch.save` writes::

    offset  bytes  what (little-endian)
         0      8  magic, the ASCII letters LLMCHKPT
         8      4  version of this layout, 2
        12      8  number of bytes after the header
        20     32  SHA-256 of the SHA-256s of the bytes after the header, in pieces of 4 MiB
        52         the payload: tensors and plain data, never code

In version 1 the hash is that of all the bytes at once, which one thread must go through.
"""

import hashlib
import os
import pickle
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from llmcourse.checkpoint.state import check_plain

MAGIC = b"LLMCHKPT"
VERSION = 2
LAYOUT = struct.Struct("<8sIQ32s")
PIECE_BYTES = 2**22
_READ_BYTES = 2**18
_SMALL_BYTES = 2**16
"""Less than this is hashed at once: to hand it to a thread would take longer."""


def write_payload(file: BinaryIO, content: dict[str, Any]) -> None:
    """Write a payload, then its header: length and hash are known only at the end.

    Args:
        file: open for writing, at its beginning.
        content: tensors and plain data.

    Raises:
        OSError: if the file cannot be written.
    """
    file.write(bytes(LAYOUT.size))
    with ThreadPoolExecutor(1) as thread:
        hashing = _HashingFile(file, thread)
        try:
            torch.save(content, cast("IO[bytes]", hashing))  # which writes, and is asked no more
        except RuntimeError:
            if hashing.error is None:
                raise
    if hashing.error is not None:
        raise hashing.error
    file.seek(0)
    sha256 = hashlib.sha256(b"".join(digest.digest() for digest in hashing.digests)).digest()
    file.write(LAYOUT.pack(MAGIC, VERSION, hashing.num_bytes, sha256))


class _HashingFile:
    """Passes bytes on to a file while a thread hashes them: no second copy is held in memory.

    torch turns an error in `write` into a RuntimeError about its own position; the true one is
    kept here.
    """

    def __init__(self, file: BinaryIO, thread: ThreadPoolExecutor) -> None:
        self.file, self.thread = file, thread
        self.digests: list[Any] = []
        """Of the pieces so far; the last may go on."""
        self.num_bytes = 0
        self.error: OSError | None = None

    def write(self, part: Any) -> int:
        view = memoryview(part).cast("B")
        if view.nbytes < _SMALL_BYTES:
            self._write(part)
            self._hash(view)
            return view.nbytes
        hashed = self.thread.submit(self._hash, view)
        try:
            self._write(part)
        finally:
            hashed.result()  # torch lends this memory until we return
        return view.nbytes

    def _write(self, part: Any) -> None:
        try:
            self.file.write(part)
        except OSError as error:
            self.error = self.error or error
            raise

    def _hash(self, view: memoryview) -> None:
        while view.nbytes:
            if self.num_bytes % PIECE_BYTES == 0:
                self.digests.append(hashlib.sha256())
            piece = view[: PIECE_BYTES - self.num_bytes % PIECE_BYTES]
            self.digests[-1].update(piece)
            self.num_bytes += piece.nbytes
            view = view[piece.nbytes :]

    def flush(self) -> None:
        self.file.flush()


def verify(path: Path, meanwhile: Callable[[BinaryIO], Any] = lambda _file: None) -> Any:
    """Read a whole file and compare it with what its header promises.

    Args:
        path: of the file.
        meanwhile: what to do with it while threads hash, after the header; an error of this does
            not count if the file is damaged.

    Returns:
        What `meanwhile` returns.

    Raises:
        ValueError: if it is not as it was written.
        OSError: if it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no checkpoint: it is no file")  # a pipe would never end
    with path.open("rb") as file:
        raw = file.read(LAYOUT.size)
        if len(raw) < LAYOUT.size or not raw.startswith(MAGIC):
            raise ValueError(f"{path} is no checkpoint: it does not start with its header")
        _, version, num_bytes, sha256 = LAYOUT.unpack(raw)
        if version not in (1, VERSION):
            raise ValueError(f"{path} has layout version {version}; this code reads 1 and 2")
        actual = os.fstat(file.fileno()).st_size - LAYOUT.size
        if actual != num_bytes:
            raise ValueError(f"{path} is cut short or added to: {actual} bytes of {num_bytes}")
        piece = PIECE_BYTES if version == VERSION else max(num_bytes, 1)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
            hashes = threads.map(
                lambda first: _hash_of(file, first, min(piece, num_bytes - first)),
                range(0, num_bytes, piece),
            )
            try:
                return meanwhile(file)
            finally:
                found = b"".join(hashes)
                if (found if version == 1 else hashlib.sha256(found).digest()) != sha256:
                    raise ValueError(f"{path} is damaged: its content does not match its hash")


def _hash_of(file: BinaryIO, first: int, num_bytes: int) -> bytes:
    """Return the hash of a piece of a payload; the file's own position stays where it is."""
    digest, start = hashlib.sha256(), LAYOUT.size + first
    for done in range(0, num_bytes, _READ_BYTES):
        length = min(_READ_BYTES, num_bytes - done)
        digest.update(os.pread(file.fileno(), length, start + done))
    return digest.digest()


BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)
"""What reading a pickle that is none of ours can end in."""


def read_payload(path: Path) -> Any:
    """Verify a file and return what it holds, on the CPU; no code in it can run.

    Raises:
        ValueError: if the file is damaged, or holds something else than tensors and plain data.
        OSError: if the file cannot be read.
    """
    return verify(path, lambda file: _content(file, path))


DEEPEST = 50
"""Containers inside each other that a pickle may have: a tuple of a hundred thousand, as a key of a
dictionary, would end the process."""


_FILLING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
"""Operations that put something into a container which is there."""


def require_shallow(raw: bytes) -> None:
    """Raise ValueError for a pickle with deep containers, without making any of them."""
    depths: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    for operation, argument, _ in pickletools.genops(raw):
        name = operation.name
        if name == "MARK":
            marks.append(len(depths))
        elif "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if argument is None else int(argument)] = depths[-1]
        elif "GET" in name:
            depths.append(memo[int(argument or 0)])
        else:
            # What is taken from the stack, with all behind the last mark where there is one.
            taken = [kind.name for kind in operation.stack_before]
            first = marks.pop() if "mark" in taken else len(depths)
            first -= sum(kind not in ("mark", "stackslice") for kind in taken)
            inside = first + (name in _FILLING)
            depth = 1 + max(depths[inside:], default=-1)
            depth = max([depth, *depths[first:inside]])
            del depths[first:]
            depths += [depth] * len(operation.stack_after)
            if depth > DEEPEST:
                raise ValueError(f"it has more than {DEEPEST} containers inside each other")


def _require_plain_archive(file: BinaryIO) -> None:
    """Raise ValueError for a payload whose pickle has another form than those of `torch.save`."""
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not the archive that torch.save writes")
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(".pkl"):
                require_shallow(archive.read(entry))


def _content(file: BinaryIO, path: Path) -> Any:
    """Return what a payload holds."""
    try:
        _require_plain_archive(file)
        file.seek(LAYOUT.size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about a pickle that is none of its own
            content = torch.load(file, map_location="cpu", weights_only=True)
        check_plain(content, "")
        return content
    except BROKEN as error:
        reason = " ".join(str(error).split()[:30])
        raise ValueError(
            f"{path} holds something else than tensors and plain data: {reason}"
        ) from error
