"""Collect what the ranks report, and find out who is at fault when one of them does not.

A rank can fail in three ways.  It raises: then it says so itself.  It dies: then its process ends
without a word.  Or it is late: then the others time out, and the one that said nothing is at fault.
The failure of one rank makes others fail, which lose their connection or time out in turn; the
first cause is reported, and the rest is left out.
"""

import os
import signal
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from llmcourse.parallel.world.errors import RankError, is_consequence
from llmcourse.parallel.world.stack_dump import StackDump, stacks_file

GRACE_S = 1.0
"""How long to wait, after a first failure, for others that may be its cause."""


class Child(NamedTuple):
    """A rank's process, and the parent's end of the connection to it."""

    rank: int
    process: BaseProcess
    connection: Connection


class Failure(NamedTuple):
    """What a rank said of its own end."""

    rank: int
    line: str
    """The exception in one line."""
    text: str
    """Its traceback."""
    error: Exception | None
    died: bool = False


def gather(
    ranks: list[Child], stack_dump: StackDump, folder: Path, timeout_s: float
) -> list[tuple]:
    """Return the report of every rank, in order.

    Raises:
        RankError: if a rank failed, naming the one at fault.
    """
    waiting = {child.rank: child for child in ranks}
    reports: dict[int, tuple] = {}
    failures: list[Failure] = []
    deadline = None
    while waiting:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        ready = wait(
            [x for c in waiting.values() for x in (c.connection, c.process.sentinel)], left
        )
        for child in list(waiting.values()):
            if child.connection in ready or child.process.sentinel in ready:
                del waiting[child.rank]
                report = _report_of(child, stack_dump)
                if isinstance(report, Failure):
                    failures.append(report)
                else:
                    reports[child.rank] = report
        if any(f.died or not is_consequence(f.line) for f in failures):
            break
        if failures:
            deadline = min(deadline or float("inf"), time.monotonic() + GRACE_S)
        elif reports and waiting and deadline is None:
            deadline = time.monotonic() + timeout_s + GRACE_S  # whoever is not done by then is late
    if failures or waiting:
        silent = list(waiting.values())
        how: dict[str, Any] = {"stack_dump": stack_dump, "folder": folder, "timeout_s": timeout_s}
        raise _blame(failures, silent, sorted(reports), **how)
    return [reports[child.rank] for child in ranks]


def _report_of(child: Child, stack_dump: StackDump) -> tuple | Failure:
    """Read what a rank has to say; it may have died in the middle of it."""
    try:
        kind, *report = cloudpickle.loads(child.connection.recv_bytes())
    except (EOFError, OSError):
        child.process.join()
        last, code = stack_dump.read(child.rank), child.process.exitcode
        assert code is not None  # it has ended
        return Failure(child.rank, f"{_ending(code)} ({last})", "", None, True)
    return (kind, *report) if kind == "done" else Failure(child.rank, *report)


def _ending(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"its process ended with exit code {code} without a result"
    return f"its process was killed by {signal.Signals(-code).name}"


def _blame(
    failures: list[Failure],
    silent: list[Child],
    done: list[int],
    *,
    stack_dump: StackDump,
    folder: Path,
    timeout_s: float,
) -> RankError:
    """Return the error of the rank at fault: a death, then an error of its own, then silence."""
    causes = [f for f in failures if f.died] or [f for f in failures if not is_consequence(f.line)]
    if causes:
        first = causes[0]
        blame = RankError(first.rank, first.line, first.text)
        blame.__cause__ = first.error
        return blame
    if silent:
        late = silent[0]
        where = "\n".join(_stack_of(child, stack_dump, folder) for child in silent)
        waited = " and ".join(f"rank {f.rank}" for f in failures) or "the others"
        return RankError(
            late.rank,
            f"it kept {waited} waiting for more than {timeout_s:g} s",
            f"where it was: {where}",
        )
    first = failures[0]
    stories = "\n\n".join(f"rank {f.rank}: {f.text}" for f in failures)
    what = stack_dump.read(first.rank)
    if done:
        cause = f"it still waited, {what}, when ranks {done} were done: they made fewer calls"
    else:
        cause = f"all ranks waited for each other, this one {what}"
    return RankError(first.rank, cause, stories)


def _stack_of(child: Child, stack_dump: StackDump, folder: Path) -> str:
    """Ask a rank that says nothing for its stack."""
    path = stacks_file(folder, child.rank)
    assert child.process.pid is not None  # it was started
    os.kill(child.process.pid, signal.SIGUSR1)
    limit = time.monotonic() + 1.0
    while time.monotonic() < limit and not path.stat().st_size:
        time.sleep(0.01)
    time.sleep(0.05)  # the rest of the stack
    return f"rank {child.rank}, {stack_dump.read(child.rank)}\n{path.read_text()}"
