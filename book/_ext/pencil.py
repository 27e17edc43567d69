"""What the drawings at the heads of the chapters are made of: SVG, 240 by 140.

An element has a look, which course.css gives the hue of the phase: "on" is filled,
"soft" is pale, "off" is an outline, "ink" is a line, "hue" a line in the hue, "paper" what lies on
a filled element.
"""

import math
from collections.abc import Callable

Drawing = tuple[str, str]
"""The elements of a drawing, and what they show."""


def rect(look: str, x: float, y: float, w: float, h: float, *, more: str = "") -> str:
    return f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" {more}/>'


def dot(look: str, x: float, y: float, r: float, more: str = "") -> str:
    return f'<circle class="{look}" cx="{x:.4g}" cy="{y:.4g}" r="{r:g}" {more}/>'


def path(look: str, d: str, more: str = "") -> str:
    return f'<path class="{look}" d="{d}" {more}/>'


def arrow(look: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a line with a head."""
    turn = math.atan2(y2 - y1, x2 - x1)
    sides = [(x2 - 7 * math.cos(turn + a), y2 - 7 * math.sin(turn + a)) for a in (0.5, -0.5)]
    (a, b), (c, d) = sides
    return path(look, f"M{x1:g},{y1:g}L{x2:g},{y2:g}M{a:.1f},{b:.1f}L{x2:g},{y2:g}L{c:.1f},{d:.1f}")


def around(number: int, radius: float, x: float = 120, y: float = 70) -> list[tuple[float, float]]:
    """Return places on a circle, from the top on and clockwise."""
    angles = [2 * math.pi * k / number - math.pi / 2 for k in range(number)]
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


def cells(number: int, rule: Callable[[int], str], y: float, w: float = 18, h: float = 14) -> str:
    """Draw a row of cells in the middle, each with the look that a rule gives."""
    left = 120 - number * w / 2
    return "".join(rect(rule(k), left + k * w, y, w - 3, h) for k in range(number))
