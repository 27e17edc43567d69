"""The page of  llmcourse chat --run runs/chat --serve:  one file, over an engine.

The page sends a line and reads what comes back while it is drawn.  Each page that is open has a
conversation of its own, which it names by a number it drew.  Pages are answered side by side, the
lines of one page one after the other.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib import resources
from queue import SimpleQueue
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from llmcourse_labs.real.serve.request import Event
from llmcourse_labs.real.serve.request import Request as ModelRequest
from llmcourse_labs.real.serve.text import TextStream
from llmcourse_labs.real.server.asked import RefusedError
from llmcourse_labs.real.server.house import HANDLERS, LOOPBACK, Guard, Listener, bound, read_body
from llmcourse_labs.real.server.live import BusyError, EndedError, LiveEngine
from llmcourse_labs.tuning.conversation import Conversation

MOST_PAGES = 16
"""Pages that are open at once; of more, the one that was silent for longest is forgotten."""

MOST_BYTES = 100_000
"""Of a line."""

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)

HEADERS = {"Content-Security-Policy": POLICY}

Respond = Callable[[Conversation, str, Callable[[str], object]], None]


class EngineConversation(Conversation):
    """A conversation whose answers an engine draws, beside those of others.

    Args:
        live: the engine, at work.
        rest: of a `Conversation`.
    """

    def __init__(self, live: LiveEngine, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self._live = live

    def _answered(self, ids: list[int], write: Callable[[str], Any]) -> str:
        request = ModelRequest(
            ids,
            self.most_tokens,
            stop_ids=self.end_ids,
            temperature=self.temperature,
            seed=int(torch.randint(2**62, (), generator=self.generator)),
        )
        text, pieces = TextStream(self.tokenizer), [""]
        arrived: SimpleQueue[Event | Exception] = SimpleQueue()
        ticket = self._live.submit(request, arrived.put)
        try:
            finish = None
            while finish is None:
                event = arrived.get()
                if isinstance(event, Exception):
                    raise event
                finish = event.finish
                pieces.append(text.feed(event.ids) + (text.end() if finish else ""))
                write(pieces[-1])
        finally:
            self._live.cancel(ticket)
        return "".join(pieces).strip()


def chat_listener(
    new_conversation: Callable[[], Conversation],
    respond: Respond,
    port: int,
    *,
    title: str,
    temperature: int | float,
    on_end: Callable[[], object] = lambda: None,
) -> Listener:
    """Return a server of the page on this machine; `listen` lets it work.

    Args:
        new_conversation: makes one, for a page that is opened.
        respond: is given a conversation, a line, and what to write the response with; in a thread.
        port: to listen at; 0 takes one that is free.
        title: of the page.
        temperature: that it shows at first.
        on_end: ends answers that would go on when the server ends.

    Raises:
        ValueError: if the port is none, or somebody else has it.
    """
    page = resources.files("llmcourse_labs.tuning").joinpath("chat.html").read_text(encoding="utf8")
    for sign, name in (("&", "&amp;"), ("<", "&lt;")):
        title = title.replace(sign, name)
    content = page.replace("{temperature}", f"{temperature:g}").replace("{title}", title)
    known: OrderedDict[str, tuple[Conversation, asyncio.Lock]] = OrderedDict()
    answering: set[object] = set()

    async def show(_: Request) -> Response:
        return HTMLResponse(content, headers=HEADERS)

    async def say(request: Request) -> Response:
        body = await read_body(request, MOST_BYTES)
        try:
            line = body.decode()
        except UnicodeDecodeError:
            raise RefusedError("a line is text in UTF-8") from None
        number = request.path_params["number"]
        if number not in known:
            known[number] = new_conversation(), asyncio.Lock()
        known.move_to_end(number)
        if len(known) > MOST_PAGES:
            known.popitem(last=False)
        return _Spoken(respond, *known[number], line, answering)

    async def nothing(_: Request) -> Response:
        raise HTTPException(404)

    routes = [Route("/", show), Route("/{number:path}", say, methods=["POST"])]
    routes += [Route("/{other:path}", nothing)]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    at = bound(LOOPBACK, port)
    guarded = Guard(app, LOOPBACK, at.getsockname()[1])
    return Listener(guarded, at, on_end=on_end, is_busy=lambda: bool(answering))


class _Spoken(StreamingResponse):
    """A response to a line, sent as it is written in a thread; a page's lines wait their turn."""

    def __init__(
        self,
        respond: Respond,
        conversation: Conversation,
        turn: asyncio.Lock,
        line: str,
        answering: set[object],
    ) -> None:
        self._written: asyncio.Queue[str | None] = asyncio.Queue()
        super().__init__(self._pieces(), headers=HEADERS, media_type="text/plain")
        self._respond, self._conversation, self._line = respond, conversation, line
        self._turn, self._answering = turn, answering
        self._has_left = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of ASGI."""
        async with self._turn:
            self._answering.add(self)
            self._working = self._loop.run_in_executor(None, self._work)
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._has_left.set()
                await asyncio.wait([self._working])
                self._answering.discard(self)

    async def _pieces(self) -> AsyncIterator[str]:
        while (text := await self._written.get()) is not None:
            if text:
                yield text
        await self._working  # what has failed breaks the response off

    def _work(self) -> None:
        try:
            self._respond(self._conversation, self._line, self._write)
        except ConnectionError:  # the page was closed: nobody reads the rest
            pass
        except (BusyError, EndedError) as error:
            self._put(str(error))
        finally:
            self._put(None)

    def _write(self, text: str) -> None:
        if self._has_left.is_set():
            raise ConnectionError
        self._put(text)

    def _put(self, text: str | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._written.put_nowait, text)
