"""Plain data: what may pass between a learner's process and the grader.

Numbers, texts, bytes, lists, tuples, dictionaries, numpy arrays and torch tensors, and nothing
else.  No class of the learner's is ever loaded by the grader: a value is written as JSON on one
side, and checked while it is read on the other.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, no_type_check

import numpy as np
import torch

MOST_DEPTH = 20
MOST_ITEMS = 1_000_000
MOST_EMPTY = 10_000
"""Product of the other sides of an array that has a side of 0."""
MOST_ALIKE = 50
"""Keys of a dictionary with one hash: more would make it slow to build."""
SCALARS = (bool, int, float, str, type(None))
WHOLE_DTYPES = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMPY_DTYPES = WHOLE_DTYPES | {"bool", "float16", "float32", "float64"}
TORCH_DTYPES = NUMPY_DTYPES | {"bfloat16"}


class NotPlainError(TypeError):
    """A value is not plain data."""


@no_type_check  # a call for each item: 200,000 pieces are many
def _encode(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if depth > MOST_DEPTH:
        raise NotPlainError(f"the value is nested more than {MOST_DEPTH} deep")
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    if kind in SCALARS:
        return _scalar(value)
    if kind in (list, tuple):
        items = [_encode(item, depth + 1) for item in value]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        return {"dict": [[_encode(part, depth + 1) for part in pair] for pair in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    return _encode_array(value)


@no_type_check
def _scalar(value: Any) -> Any:
    """Return a number or a text, unless it holds half a character, which no file could."""
    try:
        if type(value) is str:
            value.encode()
    except UnicodeEncodeError:
        raise NotPlainError("the text holds half a character (a lone surrogate)") from None
    return value


def _encode_array(value: Any) -> dict[str, Any]:
    """Return an array's dtype, shape and bytes."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if type(value) is torch.Tensor or isinstance(value, torch.nn.Parameter):
        tensor, dtype = value.detach().cpu().contiguous(), str(value.dtype).removeprefix("torch.")
        # numpy has no bfloat16: its bits travel as those of an integer.
        array = (tensor.view(torch.int16) if dtype == "bfloat16" else tensor).numpy()
        kind = "tensor"
    elif type(value) is np.ndarray:
        array, dtype, kind = np.ascontiguousarray(value), str(value.dtype), "array"
    else:
        allowed = "numbers, texts, lists, tuples, dictionaries, arrays or tensors"
        raise NotPlainError(f"a value of type {type(value).__name__!r} is not one of {allowed}")
    if dtype not in TORCH_DTYPES:
        raise NotPlainError(f"an array of {dtype} is not allowed: use numbers or booleans")
    _bound_sides(value.shape)
    data = base64.b64encode(array.tobytes()).decode()
    return {kind: dtype, "shape": list(value.shape), "data": data}


@no_type_check
def _decode(written: Any, depth: int = 0) -> Any:  # noqa: PLR0911  a case for each kind
    if depth > MOST_DEPTH + 1:
        raise NotPlainError(f"the value is nested more than {MOST_DEPTH} deep")
    if type(written) in SCALARS:
        return _scalar(written)
    if type(written) is list:
        return [_decode(item, depth + 1) for item in written]
    if type(written) is not dict or not written:
        raise NotPlainError(f"the value cannot be read: {type(written).__name__}")
    kind = next(iter(written))
    if kind == "float":
        return float(str(written[kind]))
    if kind == "tuple":
        return tuple(_decode(item, depth + 1) for item in written[kind])
    if kind == "dict":
        pairs = [(_decode(k, depth + 1), _decode(v, depth + 1)) for k, v in written[kind]]
        return _dictionary(pairs)
    if kind == "bytes":
        return base64.b64decode(written[kind], validate=True)
    if kind in ("tensor", "array"):
        return _decode_array(written, kind)
    raise NotPlainError(f"the value cannot be read: {kind!r} is no kind of data")


def _dictionary(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the dictionary of some pairs, unless its keys were chosen to collide."""
    try:
        hashes = Counter(hash(key) for key, _ in pairs)
    except TypeError:
        raise NotPlainError("a dictionary's keys must be numbers, texts or tuples") from None
    if max(hashes.values(), default=0) > MOST_ALIKE:
        raise NotPlainError("the keys of a dictionary collide")
    return dict(pairs)


def _bound_sides(shape: Sequence[int]) -> None:
    """Refuse an array without entries that has many rows all the same: its bytes tell nothing."""
    if 0 in shape and math.prod(n or 1 for n in shape) > MOST_EMPTY:
        raise NotPlainError(f"an array without entries has more than {MOST_EMPTY:,} rows")


def _decode_array(written: dict[str, Any], kind: str) -> np.ndarray | torch.Tensor:
    dtype, shape = written[kind], written["shape"]
    if dtype not in (TORCH_DTYPES if kind == "tensor" else NUMPY_DTYPES):
        raise NotPlainError(f"an array of {str(dtype)[:40]} is not allowed")
    if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
        raise NotPlainError("an array's shape must be a list of whole numbers")
    data = base64.b64decode(written["data"], validate=True)
    array = np.frombuffer(data, dtype="int16" if dtype == "bfloat16" else dtype)
    if len(shape) > MOST_DEPTH or math.prod(shape) != array.size:
        raise NotPlainError("an array has another number of entries than its shape says")
    _bound_sides(shape)
    array = array.reshape(shape).copy()
    if kind == "array":
        return array
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def dumps(value: Any) -> bytes:
    """Return a plain value as one line of JSON.

    Raises:
        NotPlainError: if some part is of another type, a subclass included, or nested too deep.
    """
    try:
        return json.dumps(_encode(value), separators=(",", ":"), allow_nan=False).encode()
    except (RecursionError, ValueError) as error:
        raise NotPlainError(f"the value cannot be written: {error}") from None


def loads(line: bytes) -> Any:
    """Return the plain value of a line of JSON; trust nothing about what is given.

    Raises:
        NotPlainError: if the line is not what `dumps` writes.
    """
    # Every item but the first follows one of these; cheap, and before anything is built.
    if line.count(b",") + line.count(b"[") > MOST_ITEMS:
        raise NotPlainError(f"the value has more than {MOST_ITEMS:,} items: use an array")
    try:
        return _decode(json.loads(line))
    except NotPlainError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotPlainError(f"the value cannot be read: {type(error).__name__}") from None


def passed_through(value: Any) -> Any:
    """Return a copy of a value as the other side would see it."""
    return loads(dumps(value))
