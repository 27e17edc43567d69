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

import argparse
import asyncio
import contextlib
import ctypes
import os
import resource
import sys
from typing import Any, BinaryIO

from llmcourse_classroom.exercises import plain
from llmcourse_classroom.exercises.check import crash
from llmcourse_classroom.exercises.compare import one_line
from llmcourse_labs.sandbox import syscalls

MOST_FILES = 512
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _SIGKILL = 1, 4, 9


def _limit(kind: int, most: int) -> None:
    """Set a limit that cannot be raised again; keep a lower one that is there already."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _lock_down(options: argparse.Namespace) -> None:
    """Give up rights and set limits, before a line of the learner's is read."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, options.cpu_s)
    _limit(resource.RLIMIT_FSIZE, options.file_bytes)
    _stand_guard()
    if options.uid:
        os.setgroups([])
        os.setresgid(options.uid, options.uid, options.uid)
        os.setresuid(options.uid, options.uid, options.uid)
    # A change of user would undo both.
    _prctl(_PR_SET_DUMPABLE, 1)  # the grader looks at what this process holds
    _die_with_parent()
    _limit(resource.RLIMIT_NPROC, options.processes)
    _limit(resource.RLIMIT_NOFILE, MOST_FILES)
    if sys.platform == "linux":  # elsewhere the system ignores or refuses it
        _limit(resource.RLIMIT_AS, options.memory_bytes)
        with contextlib.suppress(OSError):  # then `Isolation.missing` says so
            syscalls.refuse()


def _prctl(option: int, value: int) -> None:
    """Ask the system for something about this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    """Ask the system to end this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def _stand_guard() -> None:
    """Go on in a child.  Who kills its parent then kills this process, not the grader.

    In namespaces the parent is process 1, which ends all others when it ends, and which nothing
    in there can kill.  It keeps the grader's user: bubblewrap, which has given up its rights,
    could not end another's.  Learners' processes of the same user may not write into it either.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    child = os.fork()
    if child:
        _die_with_parent()
        while os.waitpid(-1, 0)[0] != child:
            pass
        os._exit(0)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes of requests and answers; what is printed goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


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
    parser = argparse.ArgumentParser(description="run the cells of one notebook")
    for name in ("uid", "cpu_s", "file_bytes", "processes", "memory_bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    requests, answers = _pipes()
    _lock_down(options)
    _serve(requests, answers)


if __name__ == "__main__":
    main()
