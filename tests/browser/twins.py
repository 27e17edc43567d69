"""How a function of the shipped page is held against its twin in Python."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import pytest


def each(arithmetic: Callable, widget: type, name: str, cases: Iterable) -> Iterator[tuple]:
    cases = [list(case) for case in cases]
    return zip(cases, arithmetic(widget, name, cases), strict=True)


def same(found: Any, right: Any, near: Mapping[str, float]) -> bool:
    """Return whether a page has what Python has; tuples, arrays and tensors are lists there."""
    if hasattr(right, "tolist"):
        right = right.tolist()
    if isinstance(right, Mapping) and isinstance(found, Mapping):
        return found.keys() == right.keys() and all(same(found[k], right[k], near) for k in right)
    if isinstance(right, list | tuple) and isinstance(found, list):
        return len(found) == len(right) and all(map(same, found, right, repeat(near)))
    if isinstance(right, float) and not math.isfinite(right):
        return found is None
    is_near = near and isinstance(right, int | float)
    return found == (pytest.approx(right, **near) if is_near else right)


def agrees(
    arithmetic: Callable,
    widget: type,
    name: str,
    cases: Iterable,
    twin: Callable[..., Any],
    **near: float,
) -> list:
    """Assert that a function of the page returns what its twin does; return all of that.

    Args:
        near: tolerances of `pytest.approx`; without any, both are equal.
    """
    expected = []
    for case, got in each(arithmetic, widget, name, cases):
        right = twin(*case)
        assert same(got, right, near), f"{name}{tuple(case)} gives {got}, not {right}"
        expected.append(right)
    assert expected, name
    return expected


class Twin(NamedTuple):
    """A function of a page, what it is called with, and its twin or what is right."""

    name: str
    cases: Sequence
    right: Callable | Sequence
    near: dict[str, float]


def twin(name: str, cases: Iterable, right: Callable | None = None, **near: float) -> Twin:
    """Return a function with its cases and its twin in Python.

    Args:
        cases: each a list or tuple of arguments, or an argument; without a twin, a mapping from
            each to what is right, or pairs of both.
        near: tolerances, as in `agrees`.
    """
    answers: Callable | Sequence | None = right
    if answers is None:
        cases, answers = zip(*(cases.items() if isinstance(cases, Mapping) else cases), strict=True)
    listed = [case if isinstance(case, list | tuple) else [case] for case in cases]
    return Twin(name, listed, answers, near)


def compared(widget: type, *twins: Twin) -> Callable:
    @pytest.mark.parametrize("one", twins, ids=[one.name for one in twins])
    def test(arithmetic: Callable, one: Twin) -> None:
        answers = iter(() if callable(one.right) else one.right)
        right = one.right if callable(one.right) else lambda *_: next(answers)
        agrees(arithmetic, widget, one.name, one.cases, right, **one.near)

    return test
