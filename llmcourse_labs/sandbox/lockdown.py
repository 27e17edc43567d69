"""How a process of code that nobody trusts begins: pipes, a guard, limits, no way back.

The modules that `sandbox.start` runs call `claim_pipes` before they read a line that is not theirs.
"""

import argparse
import contextlib
import ctypes
import os
import resource
import sys
from typing import BinaryIO

from llmcourse_labs.sandbox import syscalls

MOST_FILES = 512
SET_PDEATHSIG, SET_DUMPABLE, SIGKILL = 1, 4, 9


def _limit(kind: int, most: int) -> None:
    """Set a limit that cannot be raised again; keep a lower one that is there already."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def lock_down(options: argparse.Namespace) -> None:
    """Give up rights and set limits, before a line of the learner's is read."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, options.cpu_s)
    _limit(resource.RLIMIT_FSIZE, options.file_bytes)
    stand_guard()
    if options.uid:
        os.setgroups([])
        os.setresgid(options.uid, options.uid, options.uid)
        os.setresuid(options.uid, options.uid, options.uid)
    # A change of user would undo both.
    prctl(SET_DUMPABLE, 1)  # the grader looks at what this process holds
    _die_with_parent()
    _limit(resource.RLIMIT_NPROC, options.processes)
    _limit(resource.RLIMIT_NOFILE, MOST_FILES)
    if sys.platform == "linux":  # elsewhere the system ignores or refuses it
        _limit(resource.RLIMIT_AS, options.memory_bytes)
        with contextlib.suppress(OSError):  # then `Isolation.missing` says so
            syscalls.refuse()


def prctl(option: int, value: int) -> None:
    """Ask the system for something about this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    """Ask the system to end this process when its parent ends."""
    prctl(SET_PDEATHSIG, SIGKILL)


def stand_guard() -> None:
    """Go on in a child.  Who kills its parent then kills this process, not the grader.

    In namespaces the parent is process 1, which ends all others when it ends, and which nothing
    in there can kill.  It keeps the grader's user: bubblewrap, which has given up its rights,
    could not end another's.  Learners' processes of the same user may not write into it either.
    """
    prctl(SET_DUMPABLE, 0)
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


def claim_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Read the limits from the command line, lock down; return pipes of requests and answers."""
    parser = argparse.ArgumentParser(description="a process of code that nobody trusts")
    for name in ("uid", "cpu_s", "file_bytes", "processes", "memory_bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    pipes = _pipes()
    lock_down(options)
    return pipes
