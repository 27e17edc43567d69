"""A notebook without the weights of its model: what needs them says so, and the rest runs."""

import ast
import dis
from collections.abc import Iterator
from types import CodeType

from llmcourse_labs.real.opening import INSTALLED, find_installed


def needs_weights(model: str) -> None:
    """Let the later cells of this notebook say what is missing, if a model is not installed.

    A cell needs the model if it names it, as in `open_model("smollm2")`, or reads what a cell that
    did not run would have made.  Such a cell shows one line, with how to get the weights.  Where
    they are installed, nothing happens.

    Args:
        model: a name that `open_model` knows.

    Raises:
        ValueError: if there is no such name, or, outside of notebooks, if it is not installed.
    """
    from IPython import get_ipython  # noqa: PLC0415 - notebooks alone have it

    shell = get_ipython()
    if shell is not None:  # it may have been missing when this cell ran before
        others = [each for each in shell.ast_transformers if not isinstance(each, _Without)]
        shell.ast_transformers[:] = others
    try:
        find_installed(model)
    except ValueError as error:
        if shell is None or model not in INSTALLED:
            raise
        shell.ast_transformers.append(_Without(model, str(error)))


class _Without:
    """Replaces cells that need a model; IPython hands over each before it runs."""

    def __init__(self, model: str, told: str) -> None:
        self.model = model
        self.missing: set[str] = set()
        """What cells that did not run would have made."""
        # Displayed, not printed: the book makes figures, and what links to them, of displays.
        text = f"*This cell did not run: {told.replace(': ', ': `', 1)}`*"
        self.instead = (
            f"import IPython\nIPython.display.display(IPython.display.Markdown({text!r}))"
        )

    def visit(self, cell: ast.Module) -> ast.Module:
        """Return the cell, or what says that it did not run."""
        texts = (node.value for node in ast.walk(cell) if isinstance(node, ast.Constant))
        named = any(self.model in text.split() for text in texts if isinstance(text, str))
        code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        read, made = _names(code)
        if (named or read & self.missing) and needs_weights.__name__ not in read | made:
            self.missing |= made
            return ast.parse(self.instead)
        self.missing -= made
        return cell


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the global names that a cell reads from others, and those that it makes."""
    read: set[str] = set()
    made: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            made.add(step.argval)
        elif step.opname == "LOAD_NAME" and step.argval not in made:
            read.add(step.argval)
    return read | ({*_in_functions(code)} - made), made


def _in_functions(code: CodeType) -> Iterator[str]:
    """Yield the global names that functions and classes of a code read, when they are called."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            loads = ("LOAD_GLOBAL", "LOAD_NAME")
            yield from (s.argval for s in dis.get_instructions(inner) if s.opname in loads)
            yield from _in_functions(inner)
