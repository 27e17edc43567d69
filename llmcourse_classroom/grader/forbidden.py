"""Functions of the package that no cell of a submission may call, when an instructor says so."""

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from llmcourse_classroom.exercises.check import is_cell


class ForbiddenError(Exception):
    """A cell called what the instructor wants to be written anew."""


def checked_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, if each is a function or class of the package.

    Raises:
        ValueError: if one is not.
    """
    names = tuple(names)
    for name in names:
        module, _, own = name.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), own)
        except (ImportError, AttributeError, ValueError):
            found = None
        if not module.startswith("llmcourse") or not callable(found):
            raise ValueError(
                f"--forbid takes functions such as llmcourse.loss.units.bits_per_byte, not {name!r}"
            )
    return names


def forbid(names: Iterable[str]) -> None:
    """Make each of some functions raise when a cell calls it; the package itself still may."""
    for name in checked_names(names):
        module, _, own = name.rpartition(".")
        whole = getattr(sys.modules[module], own)
        if isinstance(whole, type):
            whole.__init__ = _guarded(whole.__init__, name)  # type: ignore[misc]
            continue
        guarded = _guarded(whole, name)
        for other in [m for key, m in sys.modules.items() if key.startswith("llmcourse")]:
            for alias in [key for key, value in vars(other).items() if value is whole]:
                setattr(other, alias, guarded)


def _guarded(whole: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that raises if a cell calls it."""

    @functools.wraps(whole)
    def guarded(*arguments: Any, **settings: Any) -> Any:
        if is_cell(sys._getframe(1).f_code.co_filename):
            raise ForbiddenError(f"{name} may not be called here: the answer is to be your own")
        return whole(*arguments, **settings)

    del guarded.__wrapped__  # type: ignore[attr-defined]
    return guarded
