"""How much a chat template may make at once."""

from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MOST_CHARACTERS = 4_000_000
"""Of one text that a template makes, and of all texts in one list."""


class TooMuchError(RuntimeError):
    """A template made too much, or took too long."""


def size_of(value: Any, *, numbers: bool = False) -> int:
    """Return the characters of a value, and 16 for all that it holds; or more than are allowed.

    Args:
        value: plain Python.
        numbers: whether a whole number counts as many as it says.
    """
    size, left = 0, [value]
    while left and size <= MOST_CHARACTERS:
        value = left.pop()
        size += 16
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            size += len(value)
            left += value if size <= MOST_CHARACTERS else ()
        elif isinstance(value, int) and numbers:
            size += abs(value)
        elif isinstance(value, Namespace) and size > 16:
            raise SecurityError("it puts a namespace into something else")
    return size
