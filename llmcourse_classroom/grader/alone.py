"""Grading one submission in a process that may die alone.

Hidden tests work on what a submission returned, and that can be made to take any time or memory.
Their process has limits of both; what ends it costs the question that was asked, and the others
are graded in a new one.
"""

import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch

from llmcourse_classroom.grader import session, submission
from llmcourse_classroom.grader.submission import Exam
from llmcourse_labs.sandbox import sandbox

LOOK_EVERY_S = 0.2
SLACK_S = 600.0
"""Wall time beyond that of the submission, for starting and ending processes."""
DIED = "the process of the hidden tests ended with"
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class DiedError(Exception):
    """The process died before the first question, or another one said why it failed."""


def grade(path: Path, exam: Exam, place: sandbox.Place) -> dict[str, Any]:
    """Return the report of one submission, as `submission.grade`, from processes of its own.

    Returns:
        The report; its `died` says whether something ended a process that may not have been the
        submission's fault.

    Raises:
        DiedError: if a process ended where no question is to blame.
    """
    lost: dict[str, str] = {}
    until = time.monotonic() + place.limits.submission_s + SLACK_S
    while True:
        with (
            sandbox.reserved(place) as reserved,
            tempfile.TemporaryDirectory(prefix="llmcourse-grading-") as folder,
        ):
            Path(folder).chmod(0o711)  # a learner's home is in it
            own = replace(reserved, mark=uuid.uuid4().hex, folder=Path(folder))
            try:
                asked, told = _in_a_process(path, exam, own, lost, until)
            finally:
                # The process, if it died, has ended and removed nothing.
                session.kill(session.strays(own))
                subprocess.run(
                    ["rm", "-rf", "--", *Path(folder).iterdir()], check=False, capture_output=True
                )
        if isinstance(told, dict):
            return told | {"died": any(why.startswith(DIED) for why in lost.values())}
        if asked in lost or not asked:
            raise DiedError(told)
        lost[asked] = told


def _in_a_process(
    path: Path, exam: Exam, place: sandbox.Place, lost: Mapping[str, str], until: float
) -> tuple[str, dict[str, Any] | str]:
    """Grade in a new process; return the question it was at, and the report or why it ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours, its = context.Pipe()
    hidden = Path(str(exam.tests.__file__)).parent
    again = partial(
        submission.exam, exam.notebook, hidden, seed=exam.seed, forbidden=exam.forbidden
    )
    worker = context.Process(target=_work, args=(its, path, again, place, dict(lost)))
    worker.start()
    its.close()
    try:
        return _hear(ours, worker, place.limits, until)
    finally:
        worker.kill()
        worker.join()
        worker.close()
        ours.close()


def _hear(
    pipe: Connection, worker: BaseProcess, limits: sandbox.Limits, until: float
) -> tuple[str, dict[str, Any] | str]:
    """Wait for a report, and watch the process meanwhile."""
    asked, spent = "", 0.0
    while True:
        try:
            if pipe.poll(LOOK_EVERY_S):
                kind, what = pipe.recv()
                if kind == "fault":
                    raise DiedError(what)
                if kind == "report":
                    return asked, what
                asked, spent = what, _processor_s(worker)
        except (EOFError, OSError):
            worker.join()
            return asked, f"{DIED} {worker.exitcode}"
        if _processor_s(worker) - spent > limits.tests_s:
            return asked, f"they took more than {limits.tests_s:g} s of processor time"
        if time.monotonic() > until:
            return asked, "they did not end"


def _processor_s(worker: BaseProcess) -> float:
    """Return the processor time of a process: on Linux, without the threads that only watch."""
    try:
        process = psutil.Process(worker.pid)
        threads = process.threads() if sys.platform == "linux" else ()
        first = [thread[1:] for thread in threads if thread.id == worker.pid]
        return sum(first[0] if first else process.cpu_times()[:2])  # of the user, of the system
    except psutil.Error:
        return 0.0


def _work(
    pipe: Connection,
    path: Path,
    exam: Callable[[], Exam],
    place: sandbox.Place,
    lost: Mapping[str, str],
) -> None:
    """Grade, in the process that may die."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: None)  # the stop button is the grader's
    _adopt_orphans(True)
    torch.set_num_threads(1)
    if place.cores and sys.platform == "linux":
        os.sched_setaffinity(0, place.cores)
    tempfile.tempdir = str(place.folder)
    if sys.platform == "linux":
        most = psutil.Process().memory_info().vms + place.limits.tests_bytes
        # What it starts has another limit, which may be higher.
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        found = submission.grade(
            path, exam(), place, lost=lost, begin=lambda number: pipe.send(("question", number))
        )
        pipe.send(("report", found))
    except Exception as error:
        pipe.send(("fault", traceback.format_exception(error)[-1].strip()))


def _die_with_parent() -> None:
    """End this process when the grader ends, however that comes about."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def adopted_orphans() -> Iterator[None]:
    """Be the parent of processes whose own parent has ended, and end them at the end.

    What this process has started before, for other ends, goes on; and what of that is orphaned
    later has the parent again that it would have had.
    """
    before = _adopts_orphans()
    _adopt_orphans(True)
    others = set(psutil.Process().children(recursive=True))
    try:
        yield
    finally:
        session.kill(set(psutil.Process().children(recursive=True)) - others)
        _adopt_orphans(before)


def _adopts_orphans() -> bool:
    adopts = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return bool(adopts.value)


def _adopt_orphans(adopts: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)
