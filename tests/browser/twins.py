"""How a function of the shipped page is held against its twin in Python."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest


def each(arithmetic: Callable, widget: type, name: str, cases: Iterable) -> Iterator[tuple]:
    """Return each case with what a function of the page returns of it."""
    cases = [list(case) for case in cases]
    return zip(cases, arithmetic(widget, name, cases), strict=True)


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
        wanted = pytest.approx(right, **near) if near else right
        assert got == wanted, f"{name}{tuple(case)} gives {got}, not {wanted}"
        expected.append(right)
    assert expected, name
    return expected
