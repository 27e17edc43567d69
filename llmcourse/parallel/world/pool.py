"""The parent's side of a world: start the ranks, hand them work, notice when one fails."""

import contextlib
import math
import multiprocessing
import pickle
import shutil
import signal
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import cloudpickle

from llmcourse.base.arguments import require
from llmcourse.base.command_line import WARNINGS
from llmcourse.parallel.world import faults, worker
from llmcourse.parallel.world.rank import Message
from llmcourse.parallel.world.stack_dump import StackDump

PRELOADED = [
    "torch",
    "torch.distributed",
    "llmcourse.parallel.world.worker",
    "llmcourse.train",
]
"""Imported once, by the server, in place of once in every rank."""


class Results(list):
    """What the ranks returned, by rank, and the log of their messages."""

    messages: list[Message]
    """Of all ranks, in the order in which they began; times since the start of the run."""


class Pool:
    """Ranks that stay between runs, so that a second run starts at once.

    Use it as a context, or call `close`.  After a failure the ranks are ended, and the next run
    starts new ones.  Processes are children of a server that has torch loaded; only for a function
    that cannot be sent they are copies of this one, for one run.

    Args:
        num_ranks: how many processes.
        mesh: sizes of named axes, whose product is `num_ranks`; None is one axis, "dp".
        timeout_s: how long a rank may keep others waiting.

    Raises:
        ValueError: if a number is below 1, or the mesh has another number of ranks.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        mesh: Mapping[str, int] | None = None,
        timeout_s: int | float = 60.0,
    ) -> None:
        mesh = {"dp": num_ranks} if mesh is None else dict(mesh)
        if num_ranks < 1 or min(mesh.values()) < 1:
            raise ValueError(f"a world has 1 rank or more, got {num_ranks} on {mesh}")
        if math.prod(mesh.values()) != num_ranks:
            raise ValueError(
                f"the mesh {mesh} has {math.prod(mesh.values())} places for {num_ranks} ranks"
            )
        require("timeout_s", timeout_s, above=0)
        self.num_ranks, self.mesh, self.timeout_s = num_ranks, mesh, float(timeout_s)
        self._ranks: list[faults.Child] = []
        self._folder: Path | None = None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, fn: Callable[..., Any], *args: Any, **settings: Any) -> Results:
        """Let every rank call ``fn(rank, *args, **settings)``; return their results by rank.

        Tensors in a result come back as NumPy arrays (bf16 as float32).

        Raises:
            RankError: if a rank raises, dies, or keeps the others waiting for longer than the
                timeout; the other ranks are ended.
        """
        task = worker.Task(fn, args, settings)
        try:
            sent = cloudpickle.dumps(task)
        except (TypeError, AttributeError, ValueError, RuntimeError, pickle.PicklingError):
            sent = None  # the processes have to be copies of this one
        began = time.monotonic()
        try:
            if sent is None:
                self.close()
                self._begin("fork", task)
            elif not self._ranks:
                self._begin("forkserver")
            for child in self._ranks if sent is not None else []:
                with contextlib.suppress(BrokenPipeError):  # it is dead: `gather` says why
                    child.connection.send_bytes(sent)
            assert self._folder is not None  # from `_begin`, of this run or of one before
            reports = faults.gather(self._ranks, self._whereabouts, self._folder, self.timeout_s)
        except BaseException:  # Ctrl-C, too, leaves no process
            self._end(kill=True)
            raise
        if sent is None:
            self._end(kill=False)
        return _joined(reports, began)

    def close(self) -> None:
        """End the ranks."""
        for child in self._ranks:
            with contextlib.suppress(OSError):
                child.connection.send_bytes(cloudpickle.dumps(None))
        self._end(kill=False)

    def _begin(self, method: str, task: worker.Task | None = None) -> None:
        """Start the processes; they meet over a file in a folder of their own."""
        get = multiprocessing.get_context  # its return type depends on a literal
        context = get("fork") if method == "fork" else get("forkserver")
        if method == "forkserver":
            context.set_forkserver_preload(PRELOADED)
        self._folder = Path(tempfile.mkdtemp(prefix="llmcourse-world-"))
        self._whereabouts = StackDump(self._folder / "stack_dump", self.num_ranks)
        for index in range(self.num_ranks):
            setup = worker.Setup(index, self.mesh, self.num_ranks, self.timeout_s, self._folder)
            ours, theirs = context.Pipe()
            process = context.Process(
                target=worker.main, args=(setup, theirs, task), name=f"rank {index}", daemon=True
            )
            with warnings.catch_warnings(), _without_main(), _deaf():
                # Newer Pythons warn of every fork of a process with threads.  The child runs
                # nothing that waits for one of them: it resets torch's pool first of all.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._ranks.append(faults.Child(index, process, ours))

    def _end(self, *, kill: bool) -> None:
        """Wait for the processes, or kill them, and remove their folder."""
        deadline = time.monotonic() + (0 if kill else 2)
        for child in self._ranks:
            child.process.join(max(0.0, deadline - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
            child.connection.close()
            child.process.close()
        self._ranks = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def run(
    fn: Callable[..., Any],
    num_ranks: int,
    *args: Any,
    mesh: Mapping[str, int] | None = None,
    timeout_s: int | float = 60.0,
    **settings: Any,
) -> Results:
    """Call ``fn(rank, *args, **settings)`` in `num_ranks` processes; return their results by rank.

    For many runs in a row, a `Pool` starts its processes once.

    The first argument of `fn` is the `Rank`; the rest, and the errors, as in `Pool` and its `run`.
    """
    with Pool(num_ranks, mesh=mesh, timeout_s=timeout_s) as pool:
        return pool.run(fn, *args, **settings)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which multiprocessing would import anew in every process.

    Functions travel by value where they are not found by name, so that no rank needs it: a script
    needs no guard around its main part, and a rank starts without what the script imports.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Keep the signals by which clusters warn a job from what is started meanwhile.

    A cluster may send them to every process of a job.  They are the parent's to handle: a rank, or
    the server that starts ranks, which died of one would take the run with it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)
    try:
        # The server starts it, and it unblocks SIGTERM when it has started.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _joined(reports: list[tuple], began: float) -> Results:
    """Put the reports of the ranks together."""
    results = Results(result for _, result, _ in reports)
    log = sorted((m for _, _, messages in reports for m in messages), key=lambda m: m.start_s)
    results.messages = [replace(m, start_s=m.start_s - began, end_s=m.end_s - began) for m in log]
    return results
