"""The file of a checkpoint: its layout, writing it, and finding out whether it is intact.

A checkpoint is one file, step_00000300.ckpt: a header of 52 bytes, then what `torch.save` writes::

    offset  bytes  what (little-endian)
         0      8  magic, the ASCII letters LLMCHKPT
         8      4  version of this layout, 1
        12      8  number of bytes after the header
        20     32  SHA-256 of the bytes after the header
        52         the payload: tensors and plain data, never code
"""

import hashlib
import os
import pickle
import struct
from pathlib import Path
from typing import Any, BinaryIO

import torch

MAGIC = b"LLMCHKPT"
VERSION = 1
LAYOUT = struct.Struct("<8sIQ32s")


def write_payload(file: BinaryIO, content: dict[str, Any]) -> None:
    """Write a payload, then its header: length and hash are known only at the end.

    Args:
        file: open for writing, at its beginning.
        content: tensors and plain data.

    Raises:
        OSError: if the file cannot be written.
    """
    file.write(bytes(LAYOUT.size))
    hashing = _HashingFile(file)
    try:
        torch.save(content, hashing)
    except RuntimeError:
        if hashing.error is None:
            raise
    if hashing.error is not None:
        raise hashing.error
    file.seek(0)
    file.write(LAYOUT.pack(MAGIC, VERSION, hashing.num_bytes, hashing.digest.digest()))


class _HashingFile:
    """Passes bytes on to a file and hashes them, so that no second copy is held in memory.

    torch turns an error in `write` into a RuntimeError about its own position; the true one is
    kept here.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.num_bytes = 0
        self.error: OSError | None = None

    def write(self, part: Any) -> int:
        try:
            self.file.write(part)
        except OSError as error:
            self.error = self.error or error
            raise
        self.digest.update(part)
        size = memoryview(part).nbytes
        self.num_bytes += size
        return size

    def flush(self) -> None:
        self.file.flush()


def verify(file: BinaryIO, path: Path) -> None:
    """Read the whole file and compare it with what its header promises.

    Args:
        file: open for reading, at its beginning.
        path: for the message.

    Raises:
        ValueError: if it is not as it was written.
    """
    raw = file.read(LAYOUT.size)
    if len(raw) < LAYOUT.size or not raw.startswith(MAGIC):
        raise ValueError(f"{path} is no checkpoint: it does not start with a checkpoint's header")
    _, version, num_bytes, sha256 = LAYOUT.unpack(raw)
    if version != VERSION:
        raise ValueError(f"{path} has layout version {version}; this code reads {VERSION}")
    actual = os.fstat(file.fileno()).st_size - LAYOUT.size
    if actual != num_bytes:
        raise ValueError(f"{path} is cut short or added to: {actual} bytes of {num_bytes}")
    if hashlib.file_digest(file, "sha256").digest() != sha256:
        raise ValueError(f"{path} is damaged: its content does not match its hash")


def read_payload(path: Path) -> Any:
    """Verify a file and return what it holds, on the CPU; no code in it can run.

    Raises:
        ValueError: if the file is damaged, or holds something else than tensors and plain data.
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        verify(file, path)
        file.seek(LAYOUT.size)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{path} holds something else than tensors and plain data: {reason}"
            ) from error
