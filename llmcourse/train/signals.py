"""Being asked to end: Ctrl-C, and the signals by which clusters warn a run before they end it.

Slurm and Kubernetes send a signal some time before they kill.  A run that hears it saves between
two steps and ends with the status `GO_ON`, which tells whoever started it to start it again.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llmcourse.base.command_line import GO_ON, WARNINGS

CTRL_C = (signal.SIGINT,)
EVERY = (*CTRL_C, *WARNINGS)


class EndedEarlyError(BaseException):
    """A warning came before the first step: there is nothing to save, and no reason to begin.

    Like KeyboardInterrupt it is no `Exception`, so that nobody takes it for an error of his own.
    """

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(f"ended by {by.name} before the first step; nothing is lost")
        # torchrun ends ranks by SIGTERM also when another one has failed.
        self.status = 128 + by if under_torchrun() else GO_ON


class GoneError(RuntimeError):
    """A rank was told to end and cannot save: another one does not answer any more."""

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(f"ended by {by.name}; nothing is saved, since another rank is gone")
        self.status = 128 + by


def under_torchrun() -> bool:
    """Whether torchrun watches this process, and starts all ranks anew when one fails."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class StopRequest:
    """Whether a run was asked to end: a question that its loop puts between two steps.

    An exception in the middle of a step would leave half of the weights updated.

    Args:
        on_press: called when the run is asked for the first time.
        listens: whether somebody puts the question already; until then a signal ends the run.
    """

    def __init__(self, on_press: Callable[[], None] = lambda: None, *, listens: bool) -> None:
        self.on_press, self.listens = on_press, listens
        self.by: signal.Signals | None = None
        """The signal that came first."""

    def __call__(self) -> bool:
        """Return whether the run was asked to end."""
        self.listens = True
        return self.by is not None

    @property
    def status(self) -> int:
        """Exit status of a run that has saved before its end.

        Whoever pressed Ctrl-C knows it.  torchrun knows success and failure alone, and answers a
        failure by starting all ranks anew.
        """
        return 0 if self.by == signal.SIGINT or under_torchrun() else GO_ON

    def hear(self, number: int, _frame: object = None) -> None:
        """Be the handler of a signal: a second Ctrl-C interrupts at once, a second warning waits.

        Raises:
            KeyboardInterrupt: for Ctrl-C before somebody listens, or after another signal.
            EndedEarlyError: for a warning before somebody listens.
        """
        again, came = self.by is not None, signal.Signals(number)
        if came == signal.SIGINT and (again or not self.listens):
            raise KeyboardInterrupt
        if again:
            return
        self.by = came
        if not self.listens:
            raise EndedEarlyError(came)
        self.on_press()


@contextmanager
def interruptible(
    asked: StopRequest | None = None, signals: tuple[signal.Signals, ...] = CTRL_C
) -> Iterator[StopRequest]:
    """Turn signals into a question, while the context lasts; in the main thread alone."""
    asked = asked or StopRequest(listens=True)
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, asked.hear) for number in signals}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
