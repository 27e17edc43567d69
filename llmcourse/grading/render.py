"""How the result of a check is shown: as text in a terminal, as HTML in a notebook and a page.

Taught in: chapters/00_how_to_use.ipynb
"""

import html
import sys

from llmcourse.grading.result import Result

# Words say the state; the border's colour only repeats it.  Text keeps the colour of its
# surroundings, so that it can be read on light and on dark.
_BORDERS = {"PASS": "#2a9d5c", "NOT YET": "#d97706", "not answered yet": "#8a8f98"}
_BOX = "border-left:4px solid {border};padding:.1em 0 .1em .8em;margin:.4em 0;line-height:1.45"
_LIST = "list-style:none;padding:0;margin:.2em 0"


def heading(result: Result) -> str:
    """Return the first line: question, state and points."""
    points = f"{result.points:g} point{'' if result.points == 1 else 's'}"
    if result.state == "PASS":
        return f"{result.question} PASS, {points}"
    if result.state == "not answered yet":
        return f"{result.question} not answered yet, {points} to win"
    held = sum(line.state == "PASS" for line in result.lines)
    return f"{result.question} NOT YET, {held} of {len(result.lines)} checks hold"


def meanings(result: Result) -> list[str]:
    """Return what each line says.

    One mistake often makes several lines fail, and the later ones then speak of mistakes that
    were not made: only the first says what it means.
    """
    found, first = [], True
    for line in result.lines:
        later = line.state == "NOT YET" and not first and bool(line.right)
        found.append(f"does not hold either: {line.right}" if later else line.meaning)
        first = first and line.state != "NOT YET"
    return found


def as_text(result: Result) -> str:
    """Return the result for a terminal, a line for each check."""
    lines = [heading(result)]
    for line, meaning in zip(result.lines, meanings(result), strict=True):
        lines.append(f"  {line.state:<16} {meaning}")
        if line.detail:
            lines.append(f"  {'':<16} {line.detail}")
    return "\n".join(lines)


def as_html(result: Result) -> str:
    """Return the result for a notebook or a page; a screen reader reads it as a status."""
    items = []
    for line, meaning in zip(result.lines, meanings(result), strict=True):
        detail = f"<br><code>{html.escape(line.detail)}</code>" if line.detail else ""
        text = f"<strong>{html.escape(line.state)}</strong> {html.escape(meaning)}{detail}"
        items.append(f'<li style="margin:.15em 0">{text}</li>')
    box = _BOX.format(border=_BORDERS[result.state])
    return (
        f'<div class="llmcourse-check" role="status" style="{box}">'
        f"<strong>{html.escape(heading(result))}</strong>"
        f'<ul style="{_LIST}">{"".join(items)}</ul></div>'
    )


def show(result: Result) -> None:
    """Show the result where the code runs: in a notebook as HTML and text, elsewhere as text."""
    # Where no notebook has imported IPython, there is none to show it in.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        print(as_text(result))
        return
    from IPython.display import display  # noqa: PLC0415  only inside a notebook

    data = {"text/plain": as_text(result), "text/html": as_html(result)}
    display(data, raw=True)
