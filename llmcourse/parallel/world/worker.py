"""The child's side of a world: join the others, run what is asked for, report how it went."""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
import torch.distributed as dist

from llmcourse.parallel.world.rank import Rank
from llmcourse.parallel.world.stack_dump import StackDump, stacks_file

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


@dataclass(frozen=True)
class Setup:
    """What a process has to know to become a rank."""

    index: int
    mesh: dict[str, int]
    num_ranks: int
    timeout_s: float
    folder: Path


@dataclass(frozen=True)
class Task:
    """A function to run, with the arguments that follow the rank."""

    fn: Callable[..., Any]
    args: tuple
    settings: dict[str, Any]


def main(setup: Setup, connection: Connection, task: Task | None = None) -> None:
    """Be a rank: run one given task, or those that come over the connection until it closes."""
    _die_with_parent()
    gc.freeze()  # what the server imported: collecting would go through it, and copy its pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)  # after a fork, torch's pool of threads exists in the parent alone
    stacks = stacks_file(setup.folder, setup.index).open("w")
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])  # asks for the stack, no more
    stack_dump = StackDump(setup.folder / "stack_dump", setup.num_ranks, setup.index)
    stack_dump.write("joining the others")
    messages: list = []
    with contextlib.suppress(BrokenPipeError, EOFError):  # nobody is left to hear
        try:
            join(setup)
            rank = Rank(setup.index, setup.mesh, messages=messages, stack_dump=stack_dump)
        except Exception as error:
            connection.send_bytes(_failure(error))
            return
        # With a task at hand, run it alone; else whatever comes, until None does.
        tasks = [task] if task else iter(lambda: cloudpickle.loads(connection.recv_bytes()), None)
        for each in tasks:
            messages.clear()
            stack_dump.write(f"in {getattr(each.fn, '__name__', 'its function')}")
            connection.send_bytes(_report(rank, each))


def join(setup: Setup) -> None:
    """Meet the other ranks over a file, and connect to them over the loopback interface."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    store = dist.FileStore(str(setup.folder / "store"), setup.num_ranks)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=setup.index,
        world_size=setup.num_ranks,
        timeout=timedelta(seconds=setup.timeout_s),
    )


def plain(result: Any) -> Any:
    """Return a result with every tensor turned into an array: nothing shared leaves a process."""
    if isinstance(result, torch.Tensor):
        x = result.detach().cpu()
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy().copy()
    if isinstance(result, Mapping):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(plain, result))
    if isinstance(result, list | tuple):
        return type(result)(map(plain, result))
    return result.copy() if isinstance(result, np.ndarray) else result


def _report(rank: Rank, task: Task) -> bytes:
    """Run the task; return its result and the log, or what went wrong."""
    try:
        result = plain(task.fn(rank, *task.args, **task.settings))
        return cloudpickle.dumps(("done", result, list(rank.messages)))
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> bytes:
    """Return an error as text, and as itself where it can be pickled."""
    text = "".join(traceback.format_exception(error))
    line = "".join(traceback.format_exception_only(error)).strip()
    try:
        return cloudpickle.dumps(("failed", line, text, error))
    except Exception:
        return cloudpickle.dumps(("failed", line, text, None))


def _die_with_parent() -> None:
    """End this process, whatever it is doing, as soon as its parent is gone."""
    parent = parent_process()

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()
