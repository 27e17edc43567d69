"""Templates: sentences with slots, as text.

A slot is written "{variable}" or "{variable.form}"; everything else is literal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

Value = Mapping[str, str]
"""One value of a class: its text by form, the plain form under the empty name."""
_SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")


@dataclass(frozen=True)
class Slot:
    """A place in a template that a variable fills, in one of its forms."""

    variable: str
    form: str


@cache
def split_template(template: str) -> tuple[str | Slot, ...]:
    """Cut a template into literal text and slots, in order."""
    pieces: list[str | Slot] = []
    end = 0
    for found in _SLOT.finditer(template):
        pieces += [template[end : found.start()], Slot(found[1], found[2] or "")]
        end = found.end()
    return tuple(piece for piece in [*pieces, template[end:]] if piece != "")


def capitalise(text: str) -> str:
    """Raise the first letter and leave the rest alone (`str.capitalize` would lower it)."""
    return text[:1].upper() + text[1:]
