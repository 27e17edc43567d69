"""Checkpoints that can be trusted: complete, atomic, checksummed, and checked before they are used.

A checkpoint is one file, step_00000300.ckpt: a header of 52 bytes, then what `torch.save` writes.

    offset  bytes  what (little-endian)
         0      8  magic, the ASCII letters LLMCHKPT
         8      4  version of this layout, 1
        12      8  number of bytes after the header
        20     32  SHA-256 of the bytes after the header
        52         the payload: tensors and plain data, never code

One process at a time writes into a folder.

Taught in: chapters/30_checkpoints.ipynb
"""

import contextlib
import functools
import hashlib
import logging
import pickle
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch

from llmcourse import __version__, runtime

MAGIC = b"LLMCHKPT"
VERSION = 1
LAYOUT = struct.Struct("<8sIQ32s")
NAME = re.compile(r"step_(\d{8,})\.ckpt")
# What torch.load accepts with weights_only=True, exact types: a subclass would be pickled by name.
CONTAINERS = (dict, OrderedDict, Counter, list, tuple, set)
PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.Size, torch.dtype, torch.device)
log = logging.getLogger(__name__)


class Stateful(Protocol):
    """Anything that can say where it stands and be put there: model, optimizer, data, schedule."""

    def state_dict(self) -> Any:
        """Return the state as tensors and plain data."""

    def load_state_dict(self, state: Any) -> Any:
        """Take a state back."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that the next step depends on."""

    step: int
    """Steps done."""
    model: dict[str, Any]
    """Weights by name."""
    optimizer: dict[str, Any] | None
    """Moments, step counts and settings per group."""
    schedule: dict[str, Any] | None
    """State of the learning-rate schedule, or its settings if it is a function of the step."""
    data: dict[str, Any] | None
    """Position in the order of batches."""
    generators: dict[str, torch.Tensor]
    """State of every named generator."""
    global_rng: dict[str, Any]
    """State of Python's, NumPy's and torch's own generators."""
    config: dict[str, Any] | None
    """Settings of the run."""
    code: dict[str, str]
    """Version of the package, and a hash of its sources."""


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
    if step < 0:
        raise ValueError(f"step must be 0 or greater, got {step}")
    if keep_last is not None and keep_last < 1:
        raise ValueError(f"keep_last must be 1 or greater, or None for all, got {keep_last}")
    path = Path(path_or_folder)
    if path.suffix != ".ckpt":
        path = checkpoint_path(path, step)
    content = {
        "step": step,
        "model": _state(model),
        "optimizer": _state(optimizer),
        "schedule": _state(schedule),
        "data": _state(data),
        "generators": {name: g.get_state() for name, g in (generators or {}).items()},
        "global_rng": runtime.global_rng_state(),
        "config": config,
        "code": code_version(),
    }
    _check_plain(content, "")
    _remove_leftovers(path.parent)
    with runtime.write_atomically(path) as file:
        _write(file, content)
    if keep_last is not None:
        earlier = [p for p in list_checkpoints(path.parent) if _step_of(p) <= step]
        for old in earlier[:-keep_last]:
            old.unlink()
    return path


def _state(thing: Stateful | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the state of something, or the state that was given."""
    return thing if thing is None or isinstance(thing, Mapping) else thing.state_dict()


def _check_plain(value: Any, name: str) -> None:
    """Raise TypeError for what could be saved but not be loaded again, naming where it is."""
    if type(value) in PLAIN or isinstance(value, torch.Tensor):
        return
    if type(value) not in CONTAINERS:
        raise TypeError(
            f"{name} is a {type(value).__name__}; a checkpoint holds tensors, numbers, strings, "
            "lists, tuples and dicts: convert it first"
        )
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        _check_plain(item, f"{name}[{key!r}]" if name else str(key))


def _write(file: BinaryIO, content: dict[str, Any]) -> None:
    """Write payload, then header: length and hash are known only at the end."""
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


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint, every byte of it checked, onto the CPU; no code in it can run.

    Raises:
        ValueError: if the file is damaged, or is no checkpoint of this layout.
        OSError: if the file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: pass a file of it, such as latest({str(path)!r})")
    with path.open("rb") as file:
        _verify(file, path)
        file.seek(LAYOUT.size)
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{path} holds something else than tensors and plain data: {reason}"
            ) from error
    expected = {field.name for field in fields(Checkpoint)}
    if not isinstance(content, dict) or content.keys() != expected:
        raise ValueError(f"{path} is no training checkpoint: it needs {sorted(expected)}")
    return Checkpoint(**content)


def _verify(file: BinaryIO, path: Path) -> None:
    """Raise ValueError unless the whole file is as it was written."""
    raw = file.read(LAYOUT.size)
    if len(raw) < LAYOUT.size or not raw.startswith(MAGIC):
        raise ValueError(f"{path} is no checkpoint: it does not start with a checkpoint's header")
    _, version, num_bytes, sha256 = LAYOUT.unpack(raw)
    if version != VERSION:
        raise ValueError(f"{path} has layout version {version}; this code reads {VERSION}")
    actual = path.stat().st_size - LAYOUT.size
    if actual != num_bytes:
        raise ValueError(f"{path} is cut short: {actual} bytes of {num_bytes} are there")
    if hashlib.file_digest(file, "sha256").digest() != sha256:
        raise ValueError(f"{path} is damaged: its content does not match its hash")


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
                _verify(file, path)
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


@functools.cache
def code_version() -> dict[str, str]:
    """Return the version of the package, and one hash of all its source files."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda p: p.relative_to(package).as_posix()):
        digest.update(f"{path.relative_to(package).as_posix()} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return {"version": __version__, "source_sha256": digest.hexdigest()}
