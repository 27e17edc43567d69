"""What a checkpoint holds: the whole state of a run, as tensors and plain data."""

import functools
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, runtime_checkable

import torch

from llmcourse import __version__
from llmcourse.base.arguments import require

# What torch.load accepts with weights_only=True, exact types: a subclass would be pickled by name.
_CONTAINERS = (dict, OrderedDict, Counter, list, tuple, set)
_PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.Size, torch.dtype, torch.device)


@runtime_checkable
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


def state_of(thing: Stateful | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the state of something, or the state itself that was given."""
    return thing if thing is None or isinstance(thing, Mapping) else thing.state_dict()


_KINDS: dict[str, tuple[type, ...]] = {
    "step": (int,),
    "model": (dict,),
    "optimizer": (dict, NoneType),
    "schedule": (dict, NoneType),
    "data": (dict, NoneType),
    "generators": (dict,),
    "global_rng": (dict,),
    "config": (dict, NoneType),
    "code": (dict,),
}
"""What each field is."""


def checked(content: Any) -> Checkpoint:
    """Return a checkpoint of its fields by name, which may come from a file.

    Raises:
        ValueError: naming the first field that is missing, or not what a run writes there.
    """
    expected = {field.name for field in fields(Checkpoint)}
    if not isinstance(content, dict) or content.keys() != expected:
        raise ValueError(f"it is no training checkpoint, which needs {sorted(expected)}")
    for name, kinds in _KINDS.items():
        value = content[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"{name} must be a {kinds[0].__name__}, not a {type(value).__name__}")
    require("step", content["step"], least=0)
    if not all(isinstance(name, str) for name in content["model"]):
        raise ValueError("model has a weight whose name is no string")
    for name, state in content["generators"].items():
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
            raise ValueError(f"generators: {name!r} holds no state of a generator")
    return Checkpoint(**content)


def check_plain(value: Any, name: str) -> None:
    """Look for what could be saved but not be loaded again.

    Raises:
        TypeError: naming where it is and what.
    """
    if type(value) in _PLAIN:
        return
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            raise TypeError(f"{name} is a tensor that is not dense, or without content")
        return
    if type(value) not in _CONTAINERS:
        raise TypeError(
            f"{name} is a {type(value).__name__}; a checkpoint holds tensors, numbers, strings, "
            "lists, tuples and dicts: convert it first"
        )
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        check_plain(item, f"{name}[{key!r}]" if name else str(key))


@functools.cache
def code_version() -> dict[str, str]:
    """Return the version of the package, and one hash of all its source files."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda p: p.relative_to(package).as_posix()):
        digest.update(f"{path.relative_to(package).as_posix()} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return {"version": __version__, "source_sha256": digest.hexdigest()}
