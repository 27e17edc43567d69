"""The course's look in one place: look.json as custom properties of CSS.

The book's pages, the widgets in JupyterLab and the figures take their colours from it.  A hue
belongs to a phase of a training step.  Within the elements that `rotation` names, everything begins
with the hue of their phase: what a widget calls its first colour is `--phase` there.  A *concept*,
such as the query or the ring, has the same hue in every figure and widget, on whatever page.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any

THEMES = ("light", "dark")
DARK = ('html[data-theme="dark"]', '[data-jp-theme-light="false"]', 'html[theme="dark"]')
"""How the book, JupyterLab and Colab say that they are dark."""


@cache
def read_look() -> dict[str, Any]:
    """Return what look.json holds."""
    text = resources.files("llmcourse_classroom").joinpath("look.json").read_text(encoding="utf8")
    return json.loads(text)


def hues(theme: str, phase: int = 1) -> list[str]:
    """Return the seven hues of a theme, from that of a phase on and round."""
    found = read_look()[theme]["hues"]
    return found[phase - 1 :] + found[: phase - 1]


def concepts() -> dict[str, int]:
    """Return the number of each concept's hue, counted from 1."""
    return {name: n for group in read_look()["concepts"].values() for name, n in group.items()}


def concept(name: str, theme: str = "light") -> str:
    """Return the colour of a concept, or of a phase such as "forward", in a figure.

    It is its hue, but for the last bit of blue: so the pages tell it from a hue that turns with
    the phase.

    Raises:
        ValueError: if there is no such concept.
    """
    known = concepts() | {phase: n for n, phase in enumerate(read_look()["phases"], start=1)}
    if name not in known:
        raise ValueError(f"there is no concept {name!r}; there are {', '.join(known)}")
    return f"#{int(hues(theme)[known[name] - 1][1:], 16) ^ 1:06x}"


def _colours(theme: str) -> Iterator[tuple[str, str]]:
    for number, hue in enumerate(hues(theme), start=1):
        yield f"phase-{number}", hue
    for name, number in concepts().items():
        yield f"lc-{name}", f"var(--phase-{number})"
    for name in ("on", "text", "muted", "line", "surface", "back"):
        yield f"look-{name}", read_look()[theme][name]


def rule(selectors: Sequence[str], properties: Iterator[tuple[str, str]]) -> str:
    """Return a rule that sets custom properties."""
    body = " ".join(f"--{name}: {value};" for name, value in properties)
    return f"{', '.join(selectors)} {{ {body} }}"


def widget_css() -> str:
    """Return the colours of both themes, for a widget wherever it stands."""
    dark = [f"{where} .lc" for where in DARK]
    rules = [rule([".lc"], _colours("light")), rule(dark, _colours("dark"))]
    rules += [f".lc .lc-{name} {{ color: var(--lc-{name}); }}" for name in concepts()]
    return "\n".join(rules) + "\n"


def page_css() -> str:
    """Return colours, sizes, spaces and the hue of each phase's pages, for the book."""
    sizes = [(f"size-{name}", value) for name, value in read_look()["sizes"].items()]
    sizes += [(f"space-{name}", value) for name, value in read_look()["spaces"].items()]
    sizes += [("measure", read_look()["measure"]), ("phase", "var(--phase-1)")]
    rules = [
        rule(["html"], iter([*_colours("light"), *sizes])),
        rule(DARK[:1], _colours("dark")),
    ]
    return "\n".join([*rules, *map(rotation, range(1, len(hues("light")) + 1))]) + "\n"


def rotation(phase: int) -> str:
    """Return the rule by which all begins with the hue of a phase."""
    count = len(hues("light"))
    turned = [(f"hue-{k + 1}", f"var(--phase-{(phase - 1 + k) % count + 1})") for k in range(count)]
    return rule([f".phase-{phase}"], iter([("phase", f"var(--phase-{phase})"), *turned]))
