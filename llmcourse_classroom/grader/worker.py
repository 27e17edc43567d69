"""The learner's process: it runs the cells of one notebook and calls its functions.

Started by `sandbox`.  It reads requests, a line of plain data each, and answers each with one::

    ("cell", source)
        -> ("ok", None)
    ("call", name, arguments, settings, given)
        -> ("ok", what the function returned)
        or ("open", why there is no answer yet)
        or ("crash", the error in one line)

What the cells print goes to another pipe.  Whatever a cell does here, the grader only ever reads
lines of plain data, and knows the expected values in a process of its own.
"""

import asyncio
from typing import Any, BinaryIO

from llmcourse_classroom.exercises import plain
from llmcourse_classroom.exercises.check import crash
from llmcourse_classroom.exercises.compare import one_line
from llmcourse_labs.sandbox import lockdown


def _new_shell() -> Any:
    """Return IPython's own way to run cells, without history, without windows and without exit."""
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415  after the limits
    from traitlets.config import Config  # noqa: PLC0415

    class Shell(InteractiveShell):
        def enable_gui(self, gui: Any = None) -> None:
            """Draw into files alone, as `%matplotlib inline` does in a page."""

        def ask_exit(self) -> None:
            """Go on: the grader ends the process."""

    settings = {"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}}
    return Shell.instance(config=Config(settings))


def _run_cell(shell: Any, loop: asyncio.AbstractEventLoop, source: str) -> tuple[str, Any]:
    """Run one cell, inside an event loop as Jupyter does; an error in it is an answer, no end."""
    try:
        running = shell.run_cell_async(
            source, store_history=False, transformed_cell=shell.transform_cell(source)
        )
        outcome = loop.run_until_complete(running)
    except Exception as error:  # IPython lets some errors of reading a cell pass
        return "crash", _unreadable(error)
    if outcome.error_before_exec is not None:
        return "crash", _unreadable(outcome.error_before_exec)
    error = outcome.error_in_exec
    return ("crash", crash(error)) if error is not None else ("ok", None)


def _unreadable(error: BaseException) -> str:
    """Return in one line why a cell cannot be compiled."""
    words = [type(error).__name__, error.msg if isinstance(error, SyntaxError) else str(error)]
    if line := getattr(error, "lineno", None):
        words.append(f"line {line} of the cell")
    return one_line("it cannot be compiled: " + ", ".join(word for word in words if word))


def call(
    names: dict[str, Any], name: str, arguments: list, settings: dict, given: str = ""
) -> tuple[str, Any]:
    """Call a function of the notebook; what is given is the grader's own, and goes first."""
    if given:
        names = dict(names)
        exec(compile(given, "<given>", "exec"), names)
    function = names.get(name)
    if not callable(function):
        return "open", f"the notebook has no function {name}"
    try:
        return "ok", function(*arguments, **settings)
    except NotImplementedError as error:
        return "open", str(error)
    except BaseException as error:
        return "crash", crash(error)


def written(answer: tuple[str, Any]) -> bytes:
    """Return the line of an answer; what cannot be written is a fault of the function called."""
    try:
        return plain.dumps(answer) + b"\n"
    except Exception as error:  # a tensor without data, for one
        return written(("crash", f"your function returned what is no data: {error}"))


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    shell, loop = _new_shell(), asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    answers.write(written(("ok", "ready")))
    answers.flush()
    for line in requests:
        kind, *what = plain.loads(line)
        answer = _run_cell(shell, loop, *what) if kind == "cell" else call(shell.user_ns, *what)
        answers.write(written(answer))
        answers.flush()


def main() -> None:
    """Read the limits, lock down, and serve."""
    _serve(*lockdown.claim_pipes())


if __name__ == "__main__":
    main()
