"""Text of which every character knows who wrote it: a template itself, or a message.

A template may trim, split, join and slice what a message says.  `Marked` is a string that carries a
mark for each of its characters through all of that; a plain string is the template's own.  Where a
method of strings is not listed here, its result is plain, and the sandbox marks it whole.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

OWN = "\0"
"""The mark of what a template itself writes."""


WRITTEN = 1 << 19
"""Is in the mark of what stands between {% generation %} and its end."""

HIDDEN = "\udc00"
"""Stands in no special token."""


class Marked(str):
    """A string with a mark for each character.

    Args:
        text: what it says.
        marks: as many characters: `OWN`, or what stands for the message that said it.
    """

    _marks: str

    def __new__(cls, text: str, marks: str) -> "Marked":
        """Make it; the text is taken as it is."""
        made = super().__new__(cls, text)
        made._marks = marks
        return made

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> "Marked":
        return self._added(self, other)

    def __radd__(self, other: str) -> "Marked":
        return self._added(other, self)

    def __getitem__(self, key: Any) -> "Marked":
        return Marked(super().__getitem__(key), self._marks[key])

    def __iter__(self) -> Iterator["Marked"]:
        return map(Marked, super().__iter__(), self._marks)

    def __mul__(self, number: Any) -> "Marked":
        return Marked(super().__mul__(number), self._marks * number)

    __rmul__ = __mul__

    def lstrip(self, *args: Any) -> "Marked":
        """Return it without some characters at its beginning."""
        return self[len(self) - len(super().lstrip(*args)) :]

    def rstrip(self, *args: Any) -> "Marked":
        """Return it without some characters at its end."""
        return self[: len(super().rstrip(*args))]

    def strip(self, *args: Any) -> "Marked":
        """Return it without some characters at both ends."""
        return self.lstrip(*args).rstrip(*args)

    def removeprefix(self, prefix: str, /) -> "Marked":
        """Return it without what it may begin with."""
        return self[len(prefix) :] if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> "Marked":
        """Return it without what it may end with."""
        return self[: len(self) - len(suffix)] if self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: Any = -1) -> list[str]:
        """Return its parts."""
        return self._located(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: Any = -1) -> list[str]:
        """Return its parts, cut from the right."""
        return self._located(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        """Return its lines."""
        return self._located(super().splitlines(keepends))

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        """Return what stands before a separator, the separator, and what stands behind it."""
        return tuple(self._located(super().partition(sep)))  # type: ignore[return-value]

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        """Return the same of the last separator."""
        return tuple(self._located(super().rpartition(sep)))  # type: ignore[return-value]

    def replace(self, old: str, new: str, count: Any = -1, /) -> str:
        """Return it with some parts replaced; those come from whoever wrote the new ones."""
        if not old:
            raise ValueError("it replaces what is empty")
        return with_between(new, self.split(old, count))

    def join(self, parts: Iterable[str], /) -> str:
        """Return parts with it in between."""
        return with_between(self, parts)

    @staticmethod
    def _added(left: str, right: str) -> "Marked":
        if not isinstance(left, str) or not isinstance(right, str):
            return NotImplemented
        return Marked(str.__add__(str.__str__(left), right), marks_of(left) + marks_of(right))

    def _located(self, parts: Iterable[str], sep: str | None = None) -> list[str]:
        """Return parts that stand in it one after the other, with their marks."""
        found: list[str] = []
        end = 0
        for part in parts:
            begin = self.find(part, end)
            end = begin + len(part)
            found.append(self[begin:end])
            end += len(sep or "")
        return found


def _cased(name: str) -> Callable[[Marked], str]:
    """Return a method that writes the characters in another case, mostly one for one."""
    plain = getattr(str, name)

    def method(self: Marked) -> str:
        made = plain(self)
        if len(made) != len(self):
            made = "".join(map(plain, str.__iter__(self)))
            marks = zip(str.__iter__(self), self._marks, strict=True)
            return Marked(made, "".join(mark * len(plain(c)) for c, mark in marks))
        return Marked(made, self._marks)

    method.__name__ = name
    return method


for _name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold"):
    setattr(Marked, _name, _cased(_name))


def marks_of(text: str) -> str:
    """Return the marks of a text, one a character."""
    return text._marks if isinstance(text, Marked) else OWN * len(text)


def runs(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the mark of each stretch that has one, without `WRITTEN`; where it begins, and ends."""
    for match in re.finditer(r"(.)\1*", marks_of(text), re.DOTALL):
        yield ord(match[1]) % WRITTEN, *match.span()


def hidden(text: str) -> str:
    """Return a text with `HIDDEN` for every character that a message said."""
    plain = str.__str__(text)
    return "".join(
        HIDDEN * (end - begin) if mark else plain[begin:end] for mark, begin, end in runs(text)
    )


def joined(parts: Iterable[str]) -> str:
    """Return one text."""
    parts = list(parts)
    text = "".join(parts)
    if not any(isinstance(part, Marked) for part in parts):
        return text
    return Marked(text, "".join(map(marks_of, parts)))


def with_between(sep: str, parts: Iterable[str]) -> str:
    """Return parts with a separator in between."""
    made: list[str] = []
    for part in parts:
        made += [sep, part]
    return joined(made[1:])


def origins(value: Any) -> list[Marked]:
    """Return the marked strings in a value."""
    return [text for text in strings(value) if isinstance(text, Marked)]


def marked_whole(value: Any, mark: str) -> Any:
    """Return a value with one mark on all strings in it."""
    if isinstance(value, list | tuple):
        return type(value)(marked_whole(item, mark) for item in value)
    if isinstance(value, dict):
        return {name: marked_whole(item, mark) for name, item in value.items()}
    if isinstance(value, str):
        return Marked(value, mark * len(value))
    return value


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)
