"""Saving while training goes on: copy the state, then write the copy from a thread.

A write takes as long as the disk needs, a copy as long as memory needs.  Only the copy has to wait
for the step to be over: what the thread reads is changed by nobody, so that a checkpoint can never
hold half of one step and half of the next.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from llmcourse.checkpoint.store import content_of_run, write


class BackgroundSaver:
    """Writes checkpoints from a thread, one at a time.

    Use::

        with BackgroundSaver() as saver:
            ...
            saver.save(folder, step=step, model=model, optimizer=optimizer, ...)

    The state is copied before `save` returns.  A save that is asked for while one is being written
    waits for it, so that memory never holds more than one copy.  An error of the thread is raised
    by the next `save`, by `wait`, or at the end of the `with` block.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._path: Path | None = None

    def __enter__(self) -> "BackgroundSaver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
        elif self._thread is not None:  # an error is on its way already: do not hide it
            self._thread.join()

    def save(
        self, path_or_folder: str | Path, *, keep_last: int | None = None, **parts: Any
    ) -> None:
        """Copy the state and begin to write it; arguments as in `checkpoint.save`.

        Raises:
            ValueError, TypeError: as `checkpoint.save` does.
            OSError: if the write before this one failed.
        """
        self.wait()
        content = copied(content_of_run(**parts))
        self.start(lambda: write(path_or_folder, content, keep_last=keep_last))

    def start(self, write_it: Callable[[], Path]) -> None:
        """Begin a write of any form, after the one before it.

        Args:
            write_it: writes what nobody changes any more; returns the path.

        Raises:
            OSError: if the write before this one failed.
        """
        self.wait()
        # Not a daemon: a program that ends waits for its last checkpoint.
        self._thread = threading.Thread(target=self._run, args=(write_it,), name="checkpoint")
        self._thread.start()

    def wait(self) -> Path | None:
        """Wait for the write under way; return the file that was written last, None if none was.

        Raises:
            OSError: if it failed.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._path

    def _run(self, write_it: Callable[[], Path]) -> None:
        """Write, and keep an error for whoever asks next."""
        try:
            self._path = write_it()
        except (OSError, ValueError) as error:
            self._error = error


def copied(value: Any) -> Any:
    """Return plain data with every tensor copied to memory of its own, on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value
