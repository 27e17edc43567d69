"""The code of the package, shown in a notebook from where it is installed."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

LINE_LENGTH = 88
"""A signature without its annotations stands in one line when it fits into so many characters."""


def show(
    thing: Callable[..., Any] | property,
    *,
    start: str | None = None,
    end: str | None = None,
    plain: bool = False,
) -> None:
    """Show the source of a function, class, method or property of the installed package.

    Every front end colours it in its own way: what is displayed is a block of Markdown.

    Args:
        thing: what to show.
        start: text in the first line to show; None begins with the definition.
        end: text in the last line to show, after `start`; None goes on to the end.
        plain: leave out docstrings, annotations and the checks of arguments at the beginning.

    Raises:
        TypeError: if it has no source in Python.
        ValueError: if no line holds `start`, or none after it `end`.
    """
    from IPython.display import Markdown, display  # noqa: PLC0415 - notebooks alone have it

    source, name = listing(thing, start=start, end=end, plain=plain)
    display(Markdown(f"```python\n{source}\n```\n\n`{name}`"))


def listing(
    thing: Callable[..., Any] | property,
    *,
    start: str | None = None,
    end: str | None = None,
    plain: bool = False,
) -> tuple[str, str]:
    """Return what `show` shows, and the thing's full name; arguments and errors are its."""
    thing = inspect.unwrap(thing.fget if isinstance(thing, property) else thing)
    source = textwrap.dedent(inspect.getsource(thing)).rstrip("\n")
    lines = (_plain(source) if plain else source).split("\n")
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


def _plain(source: str) -> str:
    """Cut docstrings, annotations and checks out of a source; all else stays letter by letter."""
    tree = ast.parse(source)
    lines = source.split("\n")
    heads = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    left_out = {number for node in ast.walk(tree) for number in _lines_left_out(node, lines)}
    for head in heads:
        first, last = head.lineno - 1, head.body[0].lineno - 2
        if last < first:  # the body stands in the line of its head
            continue
        while not lines[last].split("#")[0].rstrip().endswith(":"):
            last -= 1
        short = _without_annotations(head, lines[first : last + 1])
        lines[first : last + 1] = [*short, *[""] * (last + 1 - first - len(short))]
        left_out |= set(range(first + len(short) + 1, last + 2))
    kept = [line for number, line in enumerate(lines, start=1) if number not in left_out]
    return re.sub(r":\n\n+", ":\n", "\n".join(kept)).rstrip("\n")


def _lines_left_out(node: ast.AST, lines: list[str]) -> Iterator[int]:
    """Yield the lines of a definition's docstrings and of the checks that its body begins with."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return
    texts = [each for each in node.body if _is_text(each)]
    checks = []
    for each in node.body if isinstance(node, ast.FunctionDef) else []:
        if not _is_text(each) and not _is_check(each):
            break
        checks.append(each)
    left_out = {*texts, *checks}
    if len(left_out) == len(node.body):  # nothing else is there
        return
    for each in left_out:
        first = each.lineno
        while lines[first - 2].lstrip().startswith("#"):  # what a comment says of it goes, too
            first -= 1
        yield from range(first, each.end_lineno + 1)


def _is_text(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Expr) and isinstance(getattr(value, "value", None), str)


def _is_check(statement: ast.stmt) -> bool:
    """Say whether a statement refuses what it is given, and does nothing else."""
    if isinstance(statement, ast.Raise):
        return True
    if isinstance(statement, ast.If | ast.For):
        return all(map(_is_check, [*statement.body, *statement.orelse]))
    called = getattr(getattr(statement, "value", None), "func", None)
    return isinstance(statement, ast.Expr) and ast.unparse(called or statement).startswith(
        "require"
    )


def _without_annotations(head: ast.FunctionDef, lines: list[str]) -> list[str]:
    """Return the lines of a function's head without annotations: one, if it fits."""
    lines = [line.encode() for line in lines]  # Python counts columns in bytes

    def place(line: int, column: int) -> int:
        """Return where a place is in the joined lines."""
        return sum(len(each) + 1 for each in lines[: line - head.lineno]) + column

    text = b"\n".join(lines)
    arguments = head.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each]
    cuts = []
    for each in every:
        if each.annotation:
            begins = place(each.lineno, each.col_offset) + len(each.arg.encode())
            ends = place(each.end_lineno, each.end_col_offset)
            default = re.match(rb"\s*=\s*", text[ends:])
            cuts.append((begins, ends + len(default[0]), b"=") if default else (begins, ends, b""))
    if head.returns:
        ends = place(head.returns.end_lineno, head.returns.end_col_offset)
        begins = text.rindex(b"->", 0, place(head.returns.lineno, head.returns.col_offset))
        cuts.append((len(text[:begins].rstrip()), ends, b""))
    for begins, ends, instead in sorted(cuts, reverse=True):
        text = text[:begins] + instead + text[ends:]
    short = text.decode()
    joined = re.sub(r",? \)", ")", " ".join(short.split())).replace("( ", "(")
    joined = lines[0].decode()[: head.col_offset] + joined
    return [joined] if "#" not in short and len(joined) <= LINE_LENGTH else short.split("\n")
