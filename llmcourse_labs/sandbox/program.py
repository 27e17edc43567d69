"""A program that nobody trusts, in a process of its own, whose functions are called from here.

    with Program("def double(x): return 2 * x", place()) as program:
        program.call("double", 21)

Only literals of Python come back, as text that is parsed: nothing of the program is run here, and
what judges its answers is in no process that it could reach.
"""

import ast
import contextlib
import os
import selectors
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from llmcourse_labs.sandbox import sandbox

WORKER = "llmcourse_labs.sandbox.caller"
LIMITS = sandbox.Limits(
    submission_s=3.0, wall_times=5.0, memory_bytes=2**29, disk_bytes=48 * 2**20, processes=8,
    output_bytes=2**22, answer_bytes=2**20,
)  # fmt: skip
"""Of one program: processor and wall time of all calls together, memory of each process."""
START_S = 60.0
"""For starting Python, on a busy machine."""
CHUNK = 1 << 16


class ProgramError(Exception):
    """A program failed, or had to be ended; the message says why."""


@cache
def place(*private: Path, limits: sandbox.Limits = LIMITS) -> sandbox.Place:
    """Return where programs run: with name spaces of their own, or not at all.

    Args:
        private: folders that a program must not see, such as those with the answers.
        limits: of a program.

    Raises:
        ValueError: if this system has no name spaces for it.
    """
    isolation = sandbox.detect(private, worker=WORKER, wanted="namespaces", needs=())
    return sandbox.Place(isolation, limits, private)


class Program:
    """A program in a sandbox.

    Args:
        source: of the program, run when the block is entered.
        where: as `place` returns it.

    Raises:
        ProgramError: on entering the block, if the program fails before anything is called.
    """

    def __init__(self, source: str, where: sandbox.Place) -> None:
        self._source, self._where, self._printed = source, where, 0
        self._process: Any = None
        self._end = contextlib.ExitStack()

    def __enter__(self) -> "Program":
        with contextlib.ExitStack() as end:
            where = end.enter_context(sandbox.reserved(self._where))
            self._process, _ = sandbox.start(where, uuid.uuid4().hex, WORKER)
            end.callback(self._close)
            os.set_blocking(self._process.stdin.fileno(), False)
            self._until = time.monotonic() + START_S
            self._talk(b"")
            limits = where.limits
            self._until = time.monotonic() + limits.submission_s * limits.wall_times
            self.call("", self._source)
            self._end = end.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the program with literals; return a copy of what it returns.

        Raises:
            ProgramError: if it fails, is late, or returns what is no literal.
        """
        told = _literal(self._talk(f"{(name, arguments)!r}\n".encode()).decode(errors="replace"))
        match told:
            case ("ok", str(value)):
                return _literal(value)
            case ("crash", str(why)):
                raise ProgramError(why)
        raise ProgramError("it answered something else than it was asked for")

    def _talk(self, line: bytes) -> bytes:
        """Send a line, and return the line that comes back; what is printed is thrown away."""
        answer, process = b"", self._process
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            if line:
                ready.register(process.stdin, selectors.EVENT_WRITE)
            while not answer.endswith(b"\n"):
                if time.monotonic() > self._until:
                    raise ProgramError("it took too long and was ended")
                for key, _ in ready.select(self._until - time.monotonic()):
                    if key.fileobj is process.stdin:
                        with contextlib.suppress(BrokenPipeError):  # the other pipe tells
                            line = line[os.write(key.fd, line[:CHUNK]) :]
                            if line:
                                continue
                        ready.unregister(process.stdin)
                        continue
                    part = os.read(key.fd, CHUNK)
                    if key.fileobj is process.stdout:
                        answer += part
                        if not part or len(answer) > self._where.limits.answer_bytes:
                            raise ProgramError("it ended by itself" if not part else "it says much")
                    else:
                        self._printed += len(part)
                        if not part:
                            ready.unregister(process.stderr)
                        if self._printed > self._where.limits.output_bytes:
                            raise ProgramError("it prints too much")
        return answer

    def _close(self) -> None:
        """End the process, and with it all that it started."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ProgramError("it returned what is no plain data") from None
