"""The talk between the grader and one learner's process, with a deadline for every answer."""

import contextlib
import os
import selectors
import subprocess
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from llmcourse_classroom.exercises import plain
from llmcourse_classroom.exercises.check import AnswerError, NotAnsweredError
from llmcourse_classroom.exercises.compare import one_line
from llmcourse_labs.sandbox import sandbox

WORKER = "llmcourse_classroom.grader.worker"
"""The module that runs a learner's cells, in a process of its own."""
CHUNK = 1 << 16
START_S = 120.0
"""For importing Python's packages, on a busy machine."""
LOOK_EVERY_S = 0.2
TAIL_BYTES = 2000
GONE_S = 10.0
BLOCK_BYTES = 512
INODE_BYTES = 1024
"""What Linux itself counts for a file in memory, beside its content (tmpfs: BOGO_INODE_SIZE)."""


class EndedError(AnswerError):
    """The learner's process is gone, or had to be ended; the message says why."""


class Session:
    """One learner's process: start it, run cells, call functions, end it and all it started.

    Args:
        place: where it runs.
        deadline: when the whole submission must be done, by `time.monotonic`.
        given: source of functions that are the exam's own, whatever the notebook made of them.
        given_names: those that are called.
    """

    def __init__(
        self,
        place: sandbox.Place,
        *,
        deadline: float,
        given: str = "",
        given_names: Collection[str] = (),
    ) -> None:
        self._ready = False
        self._given = dict.fromkeys(given_names, given)
        self.limits, self.deadline, self.ended = place.limits, deadline, ""
        place = replace(place, mark=place.mark or uuid.uuid4().hex)
        self._place = place
        self._buffer, self._printed, self._tail = b"", 0, b""
        self._spent_s, self._from_s, self._allowed_s = 0.0, 0.0, START_S
        self._process, self._home = sandbox.start(place, place.mark, WORKER)
        os.set_blocking(self._process.stdin.fileno(), False)
        self._closed = threading.Event()
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._drainer.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> "Session":
        self._set_clock(START_S, START_S)
        self._answer()
        self._ready = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_cell(self, source: str) -> str:
        """Run a cell; return its error in one line, or nothing.

        Raises:
            EndedError: if the process is gone, or did not answer in time.
        """
        try:
            kind, value = self._ask(("cell", source), self.limits.cell_s)
        except plain.NotPlainError as error:  # of what is sent
            return f"it cannot be run: {error}"
        return "" if kind == "ok" else one_line(str(value), 400)

    def call(self, name: str, *arguments: Any, **settings: Any) -> Any:
        """Call a function of the notebook; return what it returned, as plain data.

        Raises:
            NotAnsweredError: if it is not there, or still a stub.
            AnswerError: if it raised, or returned what is not plain data.
            EndedError: if the process is gone, or did not answer in time.
        """
        question = ("call", name, list(arguments), settings, self._given.get(name, ""))
        kind, value = self._ask(question, self.limits.call_s)
        if kind == "ok":
            return value
        raise (NotAnsweredError if kind == "open" else AnswerError)(one_line(str(value), 400))

    @property
    def processor_s(self) -> float:
        """Processor time of the last cell or call, measured from outside, to about 0.01 s."""
        return self._spent_s - self._from_s

    def printed(self) -> str:
        """Return the end of what was printed."""
        return self._tail.decode(errors="replace")

    # --- question and answer

    def _ask(self, question: Any, seconds: float) -> tuple[str, Any]:
        if self.ended:
            raise EndedError(self.ended)
        self._set_clock(seconds, seconds * self.limits.wall_times)
        self._send(plain.dumps(question) + b"\n")
        answer = self._answer()
        # Now, not when the watcher looks next: the blame would fall on the question after this one.
        if too_much := self._too_much() or self.ended:  # the watcher may have been the first
            raise self._end(too_much)
        return answer

    def _answer(self) -> tuple[str, Any]:
        try:
            answer = plain.loads(self._receive())
        except plain.NotPlainError as error:
            raise self._end(f"what came back cannot be read: {error}") from None
        whole = type(answer) is tuple and len(answer) == 2 and type(answer[0]) is str
        if not whole or answer[0] not in ("ok", "open", "crash"):
            raise self._end("the process answered something else than the grader asked for")
        return answer

    def _set_clock(self, processor_s: float, wall_s: float) -> None:
        """Set what the next answer may take, and what is said if it is late."""
        self._from_s, self._allowed_s = self._spent_s, processor_s
        own = time.monotonic() + wall_s
        self._until = min(own, self.deadline)
        allowed = wall_s if own < self.deadline else self.limits.submission_s
        self._late = f"it took more than {allowed:g} s and was stopped"

    def _wait(self, pipe: Any, event: int) -> None:
        """Wait until a pipe is ready; when that takes too long, end the process."""
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, event)
            while not ready.select(LOOK_EVERY_S):
                # The watcher has ended the process; something else may hold its pipes open.
                if self.ended or time.monotonic() > self._until:
                    raise self._end(self._late)

    def _send(self, data: bytes) -> None:
        while data:
            self._wait(self._process.stdin, selectors.EVENT_WRITE)
            try:
                data = data[os.write(self._process.stdin.fileno(), data[:CHUNK]) :]
            except BrokenPipeError:
                raise self._left() from None

    def _receive(self) -> bytes:
        parts, size = [self._buffer], len(self._buffer)
        while b"\n" not in parts[-1]:
            self._wait(self._process.stdout, selectors.EVENT_READ)
            parts.append(os.read(self._process.stdout.fileno(), CHUNK))
            size += len(parts[-1])
            if not parts[-1]:
                raise self._left()
            if size > self.limits.answer_bytes:
                raise self._end("it returned more than the grader takes")
        line, _, self._buffer = b"".join(parts).partition(b"\n")
        return line

    def _left(self) -> EndedError:
        time.sleep(LOOK_EVERY_S)  # the watcher may know better
        return self._end("the process ended by itself")

    def _end(self, why: str) -> EndedError:
        """End the process; return the error that says why, the watcher's reason first."""
        self.ended = self.ended or why
        self.close()
        return EndedError(self.ended)

    # --- watching, in threads

    def _drain(self) -> None:
        """Read what is printed, so that nobody waits; keep the end of it."""
        while part := os.read(self._process.stderr.fileno(), CHUNK):
            self._printed += len(part)
            self._tail = (self._tail + part)[-TAIL_BYTES:]
            if self._printed > self.limits.output_bytes:
                self._stop(f"it printed more than {self.limits.output_bytes >> 20} MiB")

    def _watch(self) -> None:
        """End the process when all that it started uses too much."""
        while not self._closed.wait(LOOK_EVERY_S):
            if too_much := self._too_much():
                self._stop(too_much)

    def _stop(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self._process.kill()

    def _too_much(self) -> str:
        """Return what to say if all that was started uses too much of something, or nothing."""
        most, family = self.limits.memory_bytes, self._family()
        self._spent_s = max(self._spent_s, sum(map(_processor_s, family)))
        held, files = sum(map(_held_bytes, family)), self._files(family)
        if held + files * INODE_BYTES > most:
            counted = f", with {files:,} files" if files * INODE_BYTES > held else ""
            return f"it used more than {most / 2**30:.3g} GiB of memory{counted}"
        if self.processor_s > self._allowed_s:
            return f"it took more than {self._allowed_s:g} s of processor time and was stopped"
        return ""

    def _family(self) -> list[psutil.Process]:
        """Return the process and all that it started, as far as they can be found."""
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []

    def _files(self, family: list[psutil.Process]) -> int:
        """Return the number of its files in memory, which take some even when they are empty."""
        if self._place.isolation.kind != "namespaces" or not self._ready:
            return 0  # nothing is in its place yet
        for process in family[1:]:  # the first is bubblewrap's, outside
            with contextlib.suppress(OSError):
                found = [os.statvfs(f"/proc/{process.pid}/root{f}") for f in sandbox.FOLDERS]
                return sum(each.f_files - each.f_ffree for each in found)
        return 0

    # --- the end

    def close(self) -> None:
        """End the process and everything that it started; return when all of it is gone."""
        if self._closed.is_set():
            return
        self._closed.set()
        family = self._family()
        self._process.kill()
        kill(family)
        kill(strays(self._place))
        _, alive = psutil.wait_procs(family, timeout=GONE_S)
        self._process.wait()
        kill(strays(self._place))
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        self._drainer.join(GONE_S)
        if not self._drainer.is_alive():
            self._process.stderr.close()
        if self._home is not None:  # by a program that minds no depth of folders
            subprocess.run(["rm", "-rf", "--", self._home], check=False, capture_output=True)
        if alive:
            raise subprocess.SubprocessError(f"these processes could not be ended: {alive}")


def strays(place: sandbox.Place) -> Iterator[psutil.Process]:
    """Yield what hides among the machine's processes: of a submission's user, or with its mark."""
    # In a process list of its own, nothing outlives the first process.
    for process in psutil.process_iter() if place.isolation.kind != "namespaces" else ():
        try:
            mine = place.uid and process.uids().real == place.uid
            mine = mine or process.environ().get(sandbox.MARK) == place.mark
        except (psutil.Error, OSError):
            continue
        if mine:
            yield process


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _processor_s(process: psutil.Process) -> float:
    """Return the processor time of a process, and of those that it has waited for."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


def _held_bytes(process: psutil.Process) -> int:
    """Return what a process holds: its resident memory, and files that live in memory alone."""
    try:
        held = process.memory_info().rss
        # What only threads hold is not seen at a process whose first thread has ended.
        for thread in () if held else process.threads():
            held = max(held, psutil.Process(thread.id).memory_info().rss)
    except psutil.Error:
        return 0
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            if str(file.readlink()).startswith("/memfd:"):
                held += file.stat().st_blocks * BLOCK_BYTES
    return held
