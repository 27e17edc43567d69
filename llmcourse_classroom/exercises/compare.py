"""How an answer is compared with what is expected, and how the difference is put into words."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from llmcourse_classroom.exercises import plain

MOST_CHARACTERS = 80
# A truth value is a whole number to Python, so it comes first.
_KINDS = {
    type(None): "None", bool: "a truth value", int: "a number", float: "a number", str: "a text",
    bytes: "bytes",
}  # fmt: skip
Near = Callable[[float], float]
"""Largest accepted difference, for the size of the largest expected entry."""


def one_line(text: str, most: int = 300) -> str:
    """Return a text in one short line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 4] + " ..."


def shown(value: Any) -> str:
    """Return a value in one short line."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return described(value)
    return one_line(repr(value), MOST_CHARACTERS)


def described(value: Any) -> str:
    """Return what kind of thing a value is, with shape and dtype if it has them."""
    if isinstance(value, np.ndarray | torch.Tensor):
        kind = "a tensor" if isinstance(value, torch.Tensor) else "an array"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)}, dtype {dtype}"
    for kind, words in _KINDS.items():
        if isinstance(value, kind):
            return words
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a value of type {type(value).__name__}"


def is_other_kind(answer: Any, expected: Any) -> bool:
    """Say whether an array stands for something else, or has another type or dtype.

    Its shape does not matter, and an array or tensor of one entry stands for a number.
    """

    def kind(value: Any) -> tuple[type, object] | None:
        is_array = isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0
        return (type(value), value.dtype) if is_array else None

    return kind(answer) != kind(expected)


def difference(
    answer: Any, expected: Any, *, relative: int | float, absolute: int | float = 0.0
) -> str:
    """Return in words how an answer differs from what is expected; nothing if it does not.

    abs(answer - expected) <= max(relative * max(abs(expected)), absolute), entry by entry

    Types, lengths, shapes and dtypes have to agree; a list stands for a tuple, and an array or
    tensor without dimensions for a number.

    Args:
        answer: anything; what is not plain data differs from everything.
        expected: plain data.
        relative: largest accepted difference, relative to the largest expected entry; 0 is exact.
        absolute: largest accepted difference where the expected entries are zero.
    """
    try:
        answer = plain.passed_through(answer)
    except plain.NotPlainError as error:
        return str(error)
    expected = plain.passed_through(expected)
    return _difference(answer, expected, lambda size: max(relative * size, absolute))


def _difference(answer: Any, expected: Any, near: Near) -> str:
    """Compare by the kind of what is expected."""
    answer, expected = _as_number(answer), _as_number(expected)
    if isinstance(expected, bool | str | bytes | None):
        other = type(answer) is not type(expected)
        return _of_another_kind(answer, expected) if other else _unequal(answer, expected)
    if isinstance(expected, int | float):
        return _number_difference(answer, expected, near)
    if isinstance(expected, np.ndarray | torch.Tensor):
        other = described(answer) != described(expected)
        return _of_another_kind(answer, expected) if other else _entries(answer, expected, near)
    like = dict if isinstance(expected, dict) else list | tuple
    if not isinstance(answer, like) or (like is not dict and len(answer) != len(expected)):
        return _of_another_kind(answer, expected)
    if like is not dict:
        pairs = enumerate(zip(answer, expected, strict=True))
        parts = ((f"place {n}", mine, right) for n, (mine, right) in pairs)
    elif answer.keys() == expected.keys():
        parts = ((repr(key), answer[key], right) for key, right in expected.items())
    else:
        return f"yours has the keys {shown(list(answer))}, expected {shown(list(expected))}"
    found = ((where, _difference(mine, right, near)) for where, mine, right in parts)
    return next((f"at {where}: {words}" for where, words in found if words), "")


def _of_another_kind(answer: Any, expected: Any) -> str:
    return f"yours is {described(answer)}, expected {described(expected)}"


def _unequal(answer: Any, expected: Any) -> str:
    return "" if answer == expected else f"yours: {shown(answer)}, expected: {shown(expected)}"


def _as_number(value: Any) -> Any:
    """Return the number that an array without dimensions holds."""
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
        return value.item()
    return value


def _number_difference(answer: Any, expected: int | float, near: Near) -> str:
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return f"yours is {described(answer)}, expected a number"
    if answer == expected or (math.isnan(answer) and math.isnan(expected)):
        return ""
    finite = math.isfinite(answer) and math.isfinite(expected)
    within = finite and abs(answer - expected) <= near(abs(expected))
    return "" if within else _unequal(answer, expected)


def _entries(answer: Any, expected: Any, near: Near) -> str:
    """Compare arrays, or tensors, of one shape and dtype."""
    mine, right = _as_array(answer), _as_array(expected)
    # Whole numbers are compared as they are: float64 cannot hold every int64.
    same = mine == right
    wide, aim = mine.astype(np.float64), right.astype(np.float64)
    most = near(float(np.abs(aim[np.isfinite(aim)]).max(initial=0.0)))
    with np.errstate(invalid="ignore", over="ignore"):
        close = (np.abs(wide - aim) <= most) if most else np.zeros_like(same)
    wrong = ~(same | close | (np.isnan(wide) & np.isnan(aim)))
    if not wrong.any():
        return ""
    place = tuple(int(index[0]) for index in np.nonzero(wrong))
    where = place[0] if len(place) == 1 else place
    values = f"yours {mine[place]:.6g}, expected {right[place]:.6g}"
    return f"{int(wrong.sum())} of {wrong.size} entries differ, the first at {where}: {values}"


def _as_array(value: np.ndarray | torch.Tensor) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    return value
