"""How an answer is compared with what is expected, and how the difference is put into words.

Taught in: chapters/00_how_to_use.ipynb
"""

import math
from typing import Any

import numpy as np
import torch

from llmcourse.grading import plain

MOST_CHARACTERS = 80
# A truth value is a whole number to Python, so it comes first.
KINDS = {
    type(None): "None",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
}


def shown(value: Any) -> str:
    """Return a value in one short line."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return described(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 4] + " ..."


def described(value: Any) -> str:
    """Return what kind of thing a value is, with shape and dtype if it has them."""
    if isinstance(value, np.ndarray | torch.Tensor):
        kind = "a tensor" if isinstance(value, torch.Tensor) else "an array"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)}, dtype {dtype}"
    for kind, words in KINDS.items():
        if isinstance(value, kind):
            return words
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a value of type {type(value).__name__}"


def is_other_kind(answer: Any, expected: Any) -> bool:
    """Say whether an array stands for something else, or has another type or dtype.

    Its shape does not matter, and an array or tensor of one entry stands for a number.
    """
    kinds = [_array_kind(value) for value in (answer, expected)]
    return kinds[0] != kinds[1]


def _array_kind(value: Any) -> str:
    if not isinstance(value, np.ndarray | torch.Tensor) or value.ndim == 0:
        return "no array"
    return f"{type(value).__name__} of {str(value.dtype).removeprefix('torch.')}"


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
    return _difference(answer, plain.passed_through(expected), relative, absolute)


def _difference(answer: Any, expected: Any, relative: int | float, absolute: int | float) -> str:
    """Compare by the kind of what is expected."""
    answer, expected = _as_number(answer), _as_number(expected)
    if isinstance(expected, bool | str | bytes | None):
        return _exact_difference(answer, expected)
    by_kind = {
        int | float: _number_difference,
        list | tuple: _list_difference,
        dict: _dict_difference,
        np.ndarray | torch.Tensor: _array_difference,
    }
    compare = next(found for kind, found in by_kind.items() if isinstance(expected, kind))
    return compare(answer, expected, relative, absolute)


def _exact_difference(answer: Any, expected: Any) -> str:
    if type(answer) is not type(expected):
        return f"yours is {described(answer)}, expected {described(expected)}"
    return "" if answer == expected else f"yours: {shown(answer)}, expected: {shown(expected)}"


def _as_number(value: Any) -> Any:
    """Return the number that an array without dimensions holds."""
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
        return value.item()
    return value


def _number_difference(
    answer: Any, expected: int | float, relative: int | float, absolute: int | float
) -> str:
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return f"yours is {described(answer)}, expected a number"
    if answer == expected or (math.isnan(answer) and math.isnan(expected)):
        return ""
    finite = math.isfinite(answer) and math.isfinite(expected)
    # Not `abs(...) > near`: NaN is never greater.
    if not (finite and abs(answer - expected) <= max(relative * abs(expected), absolute)):
        return f"yours: {shown(answer)}, expected: {shown(expected)}"
    return ""


def _list_difference(
    answer: Any, expected: Any, relative: int | float, absolute: int | float
) -> str:
    if not isinstance(answer, list | tuple) or len(answer) != len(expected):
        return f"yours is {described(answer)}, expected {described(expected)}"
    for place, (mine, right) in enumerate(zip(answer, expected, strict=True)):
        if found := _difference(mine, right, relative, absolute):
            return f"at place {place}: {found}"
    return ""


def _dict_difference(
    answer: Any, expected: Any, relative: int | float, absolute: int | float
) -> str:
    if not isinstance(answer, dict):
        return f"yours is {described(answer)}, expected {described(expected)}"
    if set(answer) != set(expected):
        return f"yours has the keys {shown(list(answer))}, expected {shown(list(expected))}"
    for key, right in expected.items():
        if found := _difference(answer[key], right, relative, absolute):
            return f"at {key!r}: {found}"
    return ""


def _array_difference(
    answer: Any, expected: Any, relative: int | float, absolute: int | float
) -> str:
    if described(answer) != described(expected):
        return f"yours is {described(answer)}, expected {described(expected)}"
    mine, right = _as_array(answer), _as_array(expected)
    # Whole numbers are compared as they are: float64 cannot hold every int64.
    same = mine == right
    wide, aim = mine.astype(np.float64), right.astype(np.float64)
    near = max(relative * float(np.abs(aim[np.isfinite(aim)]).max(initial=0.0)), absolute)
    with np.errstate(invalid="ignore", over="ignore"):
        close = (np.abs(wide - aim) <= near) if near else np.zeros_like(same)
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
