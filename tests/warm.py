"""Start `python -m MODULE ...` as a copy of a process that has imported torch, in place of anew.

A fresh Python takes two or three seconds of a processor for torch; torchrun, with two ranks, ten.
The copy is forked from the server of ranks: a process of its own, in a session of its own, with the
streams, handlers of signals and variables that a fresh one has.  Ranks of torchrun are forked by
torchrun.  What Python does before a module's first line it does not do: of each command one test
starts a fresh one.  Ranks of the course's own come from the same server, not from one in the
command's group: who signals a whole group starts a fresh one, too.
"""

import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import psutil

TORCHRUN = "torch.distributed.run"
HEARD = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Process:
    """A command that runs, with what is used of `subprocess.Popen`; its output is text."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        method: Literal["fork", "forkserver"] = "forkserver",
    ):
        self.args = words
        context = multiprocessing.get_context(method)
        pipes = []
        if method == "forkserver":
            context.set_forkserver_preload([])  # tests/conftest.py adds what all ranks need
            pipes = [context.Pipe(duplex=False) for _ in range(2)]
            self.stdout, self.stderr = (os.fdopen(os.dup(ours.fileno())) for ours, _ in pipes)
        given = (*words[1:],), {**(os.environ if env is None else env)}, cwd
        theirs = [pipe for _, pipe in pipes]
        self._process = context.Process(target=_become, args=(*given, theirs))
        self._process.start()
        self.pid = self._process.pid
        for pipe in pipes:
            for end in pipe:
                end.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        with ThreadPoolExecutor() as readers:
            out, err = (readers.submit(each.read) for each in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.end_family()  # or its ranks would keep the pipes open
                raise
            return out.result(), err.result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end_family(self) -> None:
        """Kill it with all that it has started."""
        family = [psutil.Process(self.pid)]
        for each in [*family[0].children(recursive=True), *family]:
            each.kill()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_error: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()


def run(words: Sequence[str], *, timeout: float) -> subprocess.CompletedProcess:
    """Run a command to its end, as `subprocess.run` does."""
    with Process(words) as process:
        out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _become(
    words: Sequence[str], env: Mapping[str, str], cwd: Path | None, pipes: Sequence[Connection]
) -> None:
    """Be what `python WORDS` would be, but warm."""
    os.setsid()
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a server started by a pool blocks warnings
    logging.getLogger().handlers.clear()
    for stream, pipe in enumerate(pipes, start=1):
        os.dup2(pipe.fileno(), stream)
    os.closerange(3, os.sysconf("SC_OPEN_MAX")) if not pipes else [p.close() for p in pipes]
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or ".")
    place = words.index("-m") + 1
    sys.argv = [words[place], *words[place + 1 :]]
    if words[place] == TORCHRUN:
        _fork_ranks()
    try:
        runpy.run_module(words[place], run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def _fork_ranks() -> None:
    """Let torchrun fork its ranks, which have torch then."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import (  # noqa: PLC0415
        subprocess_handler,
    )

    def forked(_handler: object, words: Sequence[str], env: Mapping[str, str]) -> Process:
        return Process(words, env=env, method="fork")

    subprocess_handler.SubprocessHandler._popen = forked
