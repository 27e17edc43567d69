"""The code of the package, shown in a notebook from where it is installed."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def show(
    thing: Callable[..., Any] | property, *, start: str | None = None, end: str | None = None
) -> None:
    """Show the source of a function, class, method or property of the installed package.

    Every front end colours it in its own way: what is displayed is a block of Markdown.

    Args:
        thing: what to show.
        start: text in the first line to show; None begins with the definition.
        end: text in the last line to show, after `start`; None goes on to the end.

    Raises:
        TypeError: if it has no source in Python.
        ValueError: if no line holds `start`, or none after it `end`.
    """
    from IPython.display import Markdown, display  # noqa: PLC0415 - notebooks alone have it

    source, name = listing(thing, start=start, end=end)
    display(Markdown(f"```python\n{source}\n```\n\n`{name}`"))


def listing(
    thing: Callable[..., Any] | property, *, start: str | None = None, end: str | None = None
) -> tuple[str, str]:
    """Return what `show` shows, and the thing's full name; arguments and errors are its."""
    thing = inspect.unwrap(thing.fget if isinstance(thing, property) else thing)
    lines = inspect.getsource(thing).rstrip("\n").split("\n")
    first = _line_with(start, lines, 0)
    last = _line_with(end, lines, first) if end else len(lines) - 1
    source = textwrap.dedent("\n".join(lines[first : last + 1]))
    return source, f"{thing.__module__}.{thing.__qualname__}"


def _line_with(text: str | None, lines: list[str], after: int) -> int:
    """Return the place of the first line that holds a text."""
    for place, line in enumerate(lines[after:], start=after):
        if text is None or text in line:
            return place
    raise ValueError(f"no line of the listing holds {text!r}: its lines begin with {lines[0]!r}")
