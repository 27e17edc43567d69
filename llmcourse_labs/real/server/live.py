"""An engine at work in a thread of its own: requests go in, events come back as they happen.

The thread alone touches the engine.  When the engine fails, everybody who waits is told, and who
asks later is refused: nothing waits for a thread that is dead.
"""

import threading
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse_labs.real.serve.engine import Engine
from llmcourse_labs.real.serve.request import Counts, Event, Request

MOST_STEP = 10
"""Seconds that a last step may take; a thread that hangs in one is left alone."""


class BusyError(RuntimeError):
    """As many requests as may be open are open."""


class EndedError(RuntimeError):
    """The engine has ended, or failed."""


Deliver = Callable[[Event | Exception], object]
"""Is called from the thread, and must not fail: an event, or the error that takes its place."""


class Ticket(NamedTuple):
    """A request that was handed in; the key tells it from another that asks for the same."""

    request: Request
    deliver: Deliver
    key: object


class LiveEngine:
    """An engine at work, until the `with` block ends.

    Args:
        engine: idle; nobody else uses it from now on.
        most: requests that are open at once, 1 or more; of more each is refused.
    """

    def __init__(self, engine: Engine, *, most: int = 64) -> None:
        require("most", most, least=1)
        self.most = most
        self.counts: Counts = engine.counts
        """Of the engine, as they were after its last step."""
        self.ended: EndedError | None = None
        """Why there are no answers any more."""
        self._engine = engine
        self._inbox: SimpleQueue[tuple[str, Ticket | None]] = SimpleQueue()
        self._open: set[object] = set()
        self._numbers: dict[object, int] = {}
        self._tickets: dict[int, Ticket] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def __enter__(self) -> "LiveEngine":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._thread.join(MOST_STEP)

    @property
    def num_open(self) -> int:
        """Requests that wait or are being answered."""
        return len(self._open)

    def submit(self, request: Request, deliver: Deliver) -> Ticket:
        """Hand in a request; what becomes of it is delivered, up to an event with a finish.

        Args:
            request: to the engine; what the engine refuses is delivered as its ValueError.
            deliver: is given an event, or an error, which is then the last.

        Raises:
            BusyError: if too many requests are open.
            EndedError: if the engine has ended.
        """
        ticket = Ticket(request, deliver, object())
        with self._lock:
            if self.ended is not None:
                raise self.ended
            if len(self._open) >= self.most:
                raise BusyError(f"{self.most} requests are open already: try again later")
            self._open.add(ticket.key)
            self._inbox.put(("submit", ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Let the engine forget a request, if it still knows it; nothing more is delivered."""
        self._inbox.put(("cancel", ticket))

    def close(self) -> None:
        """Let the thread end; who still waits is told."""
        self._inbox.put(("close", None))

    def _work(self) -> None:
        why = "the server is ending"
        try:
            while self._has_taken():
                events = [] if self._engine.is_idle else self._engine.step()
                self.counts = self._engine.counts  # before anybody hears of the step
                for event in events:
                    self._pass_on(event)
        except BaseException as error:  # who waits must hear of it, whatever it was
            traceback.print_exception(error)
            why = f"the engine has failed: {type(error).__name__}"
        with self._lock:
            self.ended = EndedError(why)
        waiting = list(self._tickets.values())
        with_rest = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        waiting += [t for what, t in with_rest if what == "submit" and t is not None]
        for ticket in waiting:
            self._forget(ticket)
            ticket.deliver(self.ended)

    def _has_taken(self) -> bool:
        """Do what was asked for, waiting only when there is nothing else to do."""
        while True:
            try:
                what, ticket = self._inbox.get(block=self._engine.is_idle)
            except Empty:
                return True
            if ticket is None:
                return False
            if what == "submit":
                self._begin(ticket)
            elif (number := self._numbers.get(ticket.key)) is not None:
                self._engine.cancel(number)
                self._forget(ticket)

    def _begin(self, ticket: Ticket) -> None:
        try:
            number = self._engine.submit(ticket.request)
        except ValueError as error:
            self._forget(ticket)
            ticket.deliver(error)
        else:
            self._numbers[ticket.key], self._tickets[number] = number, ticket

    def _pass_on(self, event: Event) -> None:
        if (ticket := self._tickets.get(event.number)) is not None:
            if event.finish is not None:
                self._forget(ticket)
            ticket.deliver(event)

    def _forget(self, ticket: Ticket) -> None:
        self._tickets.pop(self._numbers.pop(ticket.key, -1), None)
        self._open.discard(ticket.key)
