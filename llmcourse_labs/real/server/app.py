"""OpenAI's chat completions over one engine: answers whole, or as server-sent events.

Source: OpenAI, API reference, "Chat completions",
https://platform.openai.com/docs/api-reference/chat
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.real.serve.request import Event
from llmcourse_labs.real.serve.request import Request as ModelRequest
from llmcourse_labs.real.serve.text import TextStream
from llmcourse_labs.real.server.asked import Asked, RefusedError, parse_request
from llmcourse_labs.real.server.house import HANDLERS, error_response, read_body
from llmcourse_labs.real.server.live import BusyError, EndedError, LiveEngine
from llmcourse_labs.real.server.metrics import Metrics

MOST_BYTES = 200_000
"""Of a request."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that answers, and how much it may."""

    name: str
    tokenizer: Tokenizer
    prompt_ids: Callable[[list[dict[str, str]]], list[int]]
    """Returns messages as the model reads them that has to speak; refuses by ValueError."""
    end_ids: Collection[int]
    """Each of them ends an answer."""
    context_length: int
    most_tokens: int = 256
    """Of an answer."""
    most_seconds: int | float = 300
    """Of a request, from its arrival to the end of its answer."""


def serving_app(served: Served, live: LiveEngine, metrics: Metrics) -> Starlette:
    """Return the app: /v1/chat/completions, /v1/models, /health and /metrics.

    Args:
        served: the model.
        live: its engine, at work.
        metrics: in which is counted.
    """
    since = int(time.time())
    turn = asyncio.Semaphore()  # to cut a long text into tokens takes a core for a while

    async def completions(request: Request) -> Response:
        began = time.monotonic()
        wanted = parse_request(await read_body(request, MOST_BYTES), served.name)
        _refuse_if_over(live)
        with _refusing():
            async with turn:
                ids = await asyncio.to_thread(served.prompt_ids, wanted.messages)
        answer = _Answer(served, live, metrics, wanted, ids, began=began)
        if wanted.is_streamed:
            return _Streamed(answer)
        try:
            return JSONResponse(await _while_there(request, answer.whole()))
        finally:
            answer.close()

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [about]})

    async def one_model(request: Request) -> Response:
        if (name := request.path_params["name"]) != served.name:
            told = f"there is no model {name[:100]!r} here: ask for {served.name!r}"
            raise RefusedError(told, 404, param="model", code="model_not_found")
        return JSONResponse(about)

    async def health(_: Request) -> Response:
        _refuse_if_over(live, full=False)
        return JSONResponse({"status": "ok", "open": live.num_open})

    async def counted(_: Request) -> Response:
        text = metrics.text(live.counts, live.num_open)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    about = {"id": served.name, "object": "model", "created": since, "owned_by": "llmcourse"}
    routes = [
        Route("/v1/chat/completions", completions, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
        Route("/health", health),
        Route("/metrics", counted),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS)


class _Answer:
    """What becomes of one request."""

    def __init__(
        self,
        served: Served,
        live: LiveEngine,
        metrics: Metrics,
        wanted: Asked,
        ids: list[int],
        *,
        began: float,
    ) -> None:
        self.served, self.live, self.metrics, self.wanted = served, live, metrics, wanted
        self.began, self.num_prompt, self.num_new = began, len(ids), 0
        self.finish: str | None = None
        self.about = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.name,
        }
        self._text = TextStream(served.tokenizer, wanted.stop)
        self._arrived: asyncio.Queue[Event | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(event: Event | Exception) -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(self._arrived.put_nowait, event)

        with _refusing():
            request = ModelRequest(
                ids,
                _num_tokens(wanted.most_tokens, len(ids), served),
                stop_ids=served.end_ids,
                temperature=wanted.temperature,
                top_k=wanted.top_k,
                top_p=wanted.top_p,
                seed=secrets.randbits(62) if wanted.seed is None else wanted.seed % 2**63,
            )
            self._ticket = live.submit(request, deliver)

    async def pieces(self) -> AsyncIterator[str]:
        """Yield the text as it comes; raise RefusedError where it cannot go on."""
        last = None
        while self.finish is None:
            left = self.began + self.served.most_seconds - time.monotonic()
            try:
                event = await asyncio.wait_for(self._arrived.get(), max(left, 0))
            except TimeoutError:
                told = f"the answer took more than {self.served.most_seconds:g} seconds"
                raise RefusedError(f"{told}: ask for fewer tokens", 504, code="timeout") from None
            if isinstance(event, Exception):
                with _refusing():
                    raise event
            now = time.monotonic()
            first = self.metrics.first_token if last is None else self.metrics.between_tokens
            first.add(now - (last or self.began))
            last = now
            self.num_new += len(event.ids)
            text = self._text.feed(event.ids)
            if self._text.stopped:
                self.finish = "stop"
            elif event.finish is not None:
                text += self._text.end()
                self.finish = event.finish
            if text:
                yield text
        self.metrics.answer.add(time.monotonic() - self.began)

    def close(self) -> None:
        """Let the engine forget the request, if it is not done with it."""
        self.live.cancel(self._ticket)

    def usage(self) -> dict[str, int]:
        """Return how many tokens there were."""
        total = self.num_prompt + self.num_new
        counted = {"prompt_tokens": self.num_prompt, "completion_tokens": self.num_new}
        return {**counted, "total_tokens": total}

    async def whole(self) -> dict[str, Any]:
        """Return the answer in one piece."""
        text = "".join([piece async for piece in self.pieces()])
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        about = {**self.about, "object": "chat.completion"}
        return {**about, "choices": [choice], "usage": self.usage()}

    async def events(self) -> AsyncIterator[str]:
        """Yield the answer as server-sent events; an error is the last of them."""
        about = {**self.about, "object": "chat.completion.chunk"}
        if self.wanted.counts_usage:
            about["usage"] = None

        def chunk(delta: dict[str, str], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return _event({**about, "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        try:
            async for piece in self.pieces():
                yield chunk({"content": piece})
        except RefusedError as error:
            yield f"data: {bytes(error_response(error).body).decode()}\n\n"
            return
        yield chunk({}, self.finish)
        if self.wanted.counts_usage:
            yield _event({**about, "choices": [], "usage": self.usage()})
        yield "data: [DONE]\n\n"


class _Streamed(StreamingResponse):
    """An answer as server-sent events, which is cancelled when its reader goes away."""

    def __init__(self, answer: _Answer) -> None:
        super().__init__(answer.events(), media_type="text/event-stream")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # Who reads too slowly holds a connection, but not for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._answer.served.most_seconds + 5):
                    await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


@contextmanager
def _refusing() -> Iterator[None]:
    """Say in the form of HTTP why something cannot be answered."""
    try:
        yield
    except BusyError as error:
        raise RefusedError(str(error), 429, code="busy") from error
    except EndedError as error:
        raise RefusedError(str(error), 503, code="ended") from error
    except ValueError as error:
        raise RefusedError(str(error)) from error


async def _while_there(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what work returns, unless the client goes away before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # after the body nothing else comes
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise RefusedError("the client has gone", 499)
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def _refuse_if_over(live: LiveEngine, *, full: bool = True) -> None:
    """Refuse before any work what could not be taken."""
    if live.ended is not None:
        raise RefusedError(str(live.ended), 503, code="ended")
    if full and live.num_open >= live.most:
        raise RefusedError(f"{live.most} requests are open: try again later", 429, code="busy")


def _num_tokens(wanted: int | None, num_prompt: int, served: Served) -> int:
    """Return how many tokens an answer may have."""
    room = served.context_length - num_prompt
    if wanted is not None and wanted > served.most_tokens:
        told = f"an answer has at most {served.most_tokens} tokens here, got {wanted}: ask for less"
        raise RefusedError(told, param="max_tokens")
    if room < (wanted or 1):
        told = f"the messages make {num_prompt} tokens, and the context has {served.context_length}"
        told += f": there is room for {max(room, 0)}, not for {wanted or 1}"
        raise RefusedError(told, param="messages", code="context_length_exceeded")
    return wanted or min(served.most_tokens, room)
