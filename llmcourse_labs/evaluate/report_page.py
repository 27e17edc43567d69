"""The page of a report: HTML in one file, made from what its JSON holds and from nothing else.

A number is shown with five digits; the `data` element around it has all of them.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import chain
from string import Template
from typing import Any

WIDTH, HEIGHT = 640, 300
"""Of a figure."""

LEFT, RIGHT, TOP, BOTTOM = 56, 120, 14, 40
"""Space around what a figure draws, for its labels."""

COLOURS, DASHES = ("--first", "--second", "--third"), ("none", "7 3", "2 3")
"""Of the lines of a figure, told apart without colour, too."""


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a report.

    Args:
        record: what `report` returns.
    """
    sections = record["sections"]
    links = (f'<li><a href="#{_id(n)}">{escape(s["title"])}</a></li>' for n, s in sections.items())
    template = resources.files(__package__).joinpath("report.html").read_text("utf8")
    return Template(template).substitute(
        title=escape(record["title"]),
        lead=escape(record["lead"]),
        links="\n".join(links),
        sections="\n".join(chain.from_iterable(_section(n, s) for n, s in sections.items())),
        version=escape(record["version"]),
    )


def shown(value: Any) -> str:
    """Return a value as a person reads it: a number with five digits, or all if it is whole."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return f"{int(value):,}"
        return f"{value:.5g}"
    return str(value)


# --- parts


def _id(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def _section(name: str, section: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{_id(name)}"><h2>{escape(section["title"])}</h2>'
    if "missing" in section:
        yield f'<p class="missing">Not measured: {escape(section["missing"])}</p>'
    if section["facts"]:
        yield from _facts(section)
    for number, curves in enumerate(section["curves"]):
        yield from _figure(curves, f"{_id(name)}-{number}")
    for table in section["tables"]:
        yield from _table(table)
    yield from (f"<p>{escape(note)}</p>" for note in section["notes"])
    yield "</section>"


def _cell(value: Any) -> str:
    """Return a value as a cell of a table."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{_number(value)}</td>'
    long = isinstance(value, str) and len(value) > 40 and " " not in value
    return f"<td{' class=long' if long else ''}>{escape(shown(value))}</td>"


def _number(value: int | float) -> str:
    """Return a number, with all its digits for programs."""
    text = re.sub(r"e\+?(-?)0*(\d+)", r" × 10<sup>\1\2</sup>", escape(shown(value)))
    return f'<data value="{value!r}">{text}</data>'


def _open_table(caption: str, columns: Sequence[str], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return (
        f'<div class="wide" role="group" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption{kind}>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>"
    )


def _facts(section: Mapping[str, Any]) -> Iterator[str]:
    yield _open_table(section["title"], ["what", "value", "from"], ' class="unseen"')
    for name, fact in section["facts"].items():
        cell = _cell(fact["value"])
        if "low" in fact:
            ends = f"{_number(fact['low'])} to {_number(fact['high'])}"
            cell = cell.replace("</td>", f' <span class="range">({ends})</span></td>')
        source = f'<td class="from">{escape(fact["from"])}</td>'
        yield f'<tr><th scope="row">{escape(name)}</th>{cell}{source}</tr>'
    yield "</tbody></table></div>"


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    yield _open_table(f"{table['caption']} (from {table['from']})", table["columns"])
    for first, *rest in table["rows"]:
        cells = "".join(map(_cell, rest))
        yield f'<tr><th scope="row">{escape(shown(first))}</th>{cells}</tr>'
    yield "</tbody></table></div>"


# --- figures


def _figure(curves: Mapping[str, Any], name: str) -> Iterator[str]:
    """Draw lines over steps, with a text that says where each begins, ends and is lowest."""
    # Points that have no place are left out, and then lines that have no point.
    lines = {
        label: [(x, y) for x, y in points if isinstance(y, int | float) and math.isfinite(y)]
        for label, points in curves["lines"].items()
    }
    lines = {label: points for label, points in lines.items() if points}
    if not lines:
        return
    # One scale for all lines.  SVG counts y downwards, so the lowest value gets the largest y.
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    across, up = _scale(xs, LEFT, WIDTH - RIGHT), _scale(ys, HEIGHT - BOTTOM, TOP)
    told = f"{curves['y']} by {curves['x']}. " + " ".join(map(_in_words, lines, lines.values()))
    label = f"Figure: {escape(curves['y'])}"
    yield f'<div class="wide" role="group" aria-label="{label}" tabindex="0">'
    yield (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-told">'
        f'<title id="{name}-told">{escape(told)}</title>'
    )
    yield f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    # An axis is labelled at its two ends, which may be one.
    for value in sorted({min(ys), max(ys)}):
        yield f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
    for value in sorted({min(xs), max(xs)}):
        y = HEIGHT - BOTTOM + 17
        yield f'<text x="{across(value):.1f}" y="{y}" text-anchor="middle">{shown(value)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    said = f"{curves['x']} (across), {curves['y']} (up)"
    yield f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(said)}</text>'
    for number, (label, points) in enumerate(lines.items()):
        colour = f"var({COLOURS[number % len(COLOURS)]})"
        path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
        style = f'style="stroke: {colour}; stroke-dasharray: {DASHES[number % len(DASHES)]}"'
        yield f'<path class="line" {style} d="M{path}"/>'
        # More dots would run into each other.
        if len(points) <= 60:
            dots = (f'cx="{across(x):.1f}" cy="{up(y):.1f}"' for x, y in points)
            yield from (f'<circle class="dot" style="fill: {colour}" r="4" {at}/>' for at in dots)
        # The legend, in the margin on the right, with a row for each line.
        x, y = WIDTH - RIGHT + 12, TOP + 16 + 20 * number
        yield f'<path class="line" {style} d="M{x} {y - 4}h24"/>'
        yield f'<text x="{x + 30}" y="{y}">{escape(label)}</text>'
    yield f'</svg></div><p class="from">From {escape(curves["from"])}.</p>'


def _scale(values: Sequence[int | float], low: int, high: int) -> Callable[[Any], float]:
    """Return what takes values to places of a figure."""
    least, span = min(values), (max(values) - min(values)) or 1
    return lambda value: low + (value - least) / span * (high - low)


def _in_words(label: str, points: Sequence[tuple[int | float, int | float]]) -> str:
    (first_x, first), (last_x, last) = points[0], points[-1]
    low_x, low = min(points, key=lambda point: point[1])
    return (
        f"{label}: {shown(first)} at {shown(first_x)}, {shown(last)} at {shown(last_x)}, "
        f"lowest {shown(low)} at {shown(low_x)}."
    )
