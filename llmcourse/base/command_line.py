"""How the course's commands end: what a status means, and a failure in one line."""

import contextlib
import io
import os
import signal
import sys
from argparse import SUPPRESS, ArgumentError, ArgumentParser, HelpFormatter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

GO_ON = 75
"""Status of a run that has saved because it was told to end: the work is not done, go on with it.

It is EX_TEMPFAIL of sysexits.h, "try again later"; no error of a run ends with it.
"""

STOP = "stop"
"""A file in the folder of a run on several ranks: when it appears, they save and end."""


WARNINGS = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))
"""What clusters send before they end a job; ranks are started with both blocked."""


class Command(NamedTuple):
    """A module with a `main`, what it does in a few words, and arguments to begin with."""

    module: str
    does: str
    example: str
    is_result: bool = False
    """Whether what it prints is what it is for, so that nobody's reading on ends it."""


LONGEST = 1_000
"""Characters of a line that says what is wrong."""

AGAIN = "the same command goes on from there"
"""Of commands whose work is kept when they are ended."""


class _ForPeople:
    """A stream whose text is for people: writing it never fails, so it never ends work.

    When nobody reads on, or the disk is full, the rest is dropped.  Where the text is the result
    itself, nobody's reading on ends the work.
    """

    def __init__(self, stream: Any, *, is_result: bool) -> None:
        self._stream, self._is_result = stream, is_result

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is held back goes there, too, when Python flushes it at the end.
            with contextlib.suppress(OSError, io.UnsupportedOperation):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if self._is_result and isinstance(error, BrokenPipeError):
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def for_people(*, is_result: bool = False) -> Iterator[None]:
    """Let nothing that is printed end what is being done.

    A character that the console cannot show becomes a question mark; see `_ForPeople`.

    Args:
        is_result: whether standard output is what the command is for.

    Raises:
        BrokenPipeError: if it is, and nobody reads on.
    """
    with contextlib.ExitStack() as stack:
        for stream, redirected in (
            (sys.stdout, contextlib.redirect_stdout),
            (sys.stderr, contextlib.redirect_stderr),
        ):
            if isinstance(stream, io.TextIOWrapper):
                stack.callback(stream.reconfigure, errors=stream.errors)
                stream.reconfigure(errors="replace")
            ends = is_result and stream is sys.stdout
            stack.enter_context(redirected(_ForPeople(stream, is_result=ends)))
        try:
            yield
        finally:
            sys.stdout.flush()


def run_command(main: Callable[[], int], *, is_result: bool = False) -> int:
    """Return the status of a command whose output is for people; see `for_people`."""
    with for_people(is_result=is_result):
        try:
            return main()
        except BrokenPipeError:  # the reader has read enough
            return 0
        except RuntimeError as error:  # of Path.resolve, before Python 3.13
            if "Symlink loop" not in str(error):
                raise
            return fail("llmcourse", f"{error}: links go round in a circle")


def fail(program: str, problem: Exception | str) -> int:
    """Say in one line on standard error what is wrong with a command, and return its status, 2."""
    said = str(problem)
    if isinstance(problem, ArgumentError):
        said = problem.message or said
    elif isinstance(problem, OSError):
        said = f"{problem.strerror or said}: {problem.filename or 'while writing'}"
    line = " ".join(said.split())
    if len(line) > LONGEST:  # somebody's input is quoted in it
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    print(f"{program}: {line}", file=sys.stderr)
    return 2


def ended(
    program: str,
    work: Callable[[], int | None],
    *,
    again: str = "",
    told: tuple[type[Exception], ...] = (),
) -> int:
    """Do the work of a command; return its status: its own or 0, 2 after one line, or 130.

    Args:
        program: as which the command speaks, such as "llmcourse prepare".
        work: returns a status, or None for 0.
        again: what the same command does with the work that is left, if there is any.
        told: errors whose text is for people, beside ValueError and those of files.

    Raises:
        BrokenPipeError: if nobody reads on; what started the command ends quietly.
    """
    told = (ValueError, ArgumentError, *told)
    try:
        return work() or 0
    except BrokenPipeError:
        raise
    except told as error:
        return fail(program, error)
    except OSError as error:
        if not again:
            return fail(program, error)
        where = error.filename or "while writing"
        return fail(program, f"{error.strerror or error}: {where}; mend that, and {again}")
    except KeyboardInterrupt:  # 130 is what a shell makes of it
        fail(program, f"interrupted; {again}" if again else "interrupted")
        return 130
    except BrokenProcessPool:  # only commands that have --processes make such a pool
        said, way = "a process was ended, perhaps for want of memory", ": with fewer --processes"
    except MemoryError:
        said, way = "there is not enough memory", "; mend that, and"
    return fail(program, f"{said}{way} {again}" if again else said)


def shorten_help(parser: ArgumentParser, arguments: Sequence[str], usual: Collection[str]) -> None:
    """Let --help show the usual options alone, unless the arguments say --help all.

    Args:
        parser: with a flag for each field of a configuration.
        arguments: of the command.
        usual: names of the options that most people need.
    """
    asked = [place for place, word in enumerate(arguments) if word in ("-h", "--help")]
    if any(list(arguments[place + 1 : place + 2]) == ["all"] for place in asked):
        return
    parser.formatter_class = HelpFormatter  # without the types
    parser.epilog = "--help all shows every setting."
    for action in parser._actions:
        if action.dest not in usual:
            action.help = SUPPRESS
        elif isinstance(action.default, str | int | float) and action.default not in ("", SUPPRESS):
            action.help = f"{action.help or ''} (%(default)s)"
