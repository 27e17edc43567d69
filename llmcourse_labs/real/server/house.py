"""What all servers of the course share: who may ask, how much, how errors look, how they end."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llmcourse.base.arguments import require
from llmcourse_labs.real.server.asked import RefusedError

LOOPBACK = "127.0.0.1"

MOST_SILENCE = 60
"""Seconds that a connection may be open without a word, and that a body may take."""

MOST_CONNECTIONS = 200

GRACE = 10
"""Seconds in which running answers may end when the server has to."""


class Guard:
    """Refuse what another site's page asks for in the name of this one.

    A page that anybody's browser shows may send requests to this machine.  Its `Origin` gives it
    away, which is another than the `Host` that it asks; or, where its own name was made to lead
    here, the `Host`.

    Args:
        app: that is guarded.
        host: that the server is bound to.
        port: that it listens at.
        count: is given the status of each response.
    """

    def __init__(
        self, app: ASGIApp, host: str, port: int, *, count: Callable[[int], object] = lambda _: None
    ) -> None:
        self.app, self.port, self.count = app, port, count
        self.names = {LOOPBACK, "localhost", "::1", host.lower()}
        self.is_open = not ipaddress.ip_address(host).is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.count(message["status"])
                message["headers"] += [
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._is_here(hosts[0]):
            told = f"this server is http://{LOOPBACK}:{self.port}, got Host {hosts}"
        elif not all(self._may_ask(origin, hosts[0]) for origin in origins):
            told = f"pages of other sites may not ask, got Origin {origins}"
        else:
            await self.app(scope, receive, counted)
            return
        refusal = error_response(RefusedError(told[:300], 403, code="forbidden"))
        await refusal(scope, receive, counted)

    def _may_ask(self, origin: str, host: str) -> bool:
        """Whether a page is the host's own; all names of this machine are one host."""
        page = origin.removeprefix("http://")
        own = [self._is_here(each, by_address=False) for each in (page, host)]
        return page != origin and (page == host.lower() or all(own))

    def _is_here(self, host: str, *, by_address: bool = True) -> bool:
        """Whether a name and a port lead here, by what the client calls them."""
        name, colon, port = host.lower().rpartition(":")
        if not colon or "]" in port:  # as browsers leave out port 80
            name, port = host.lower(), "80"
        name = name.removeprefix("[").removesuffix("]")
        if port != str(self.port):
            return False
        if name in self.names:
            return True
        with contextlib.suppress(ValueError):  # an address is nobody's name that could be moved
            return by_address and self.is_open and bool(ipaddress.ip_address(name))
        return False


def error_response(error: RefusedError) -> JSONResponse:
    """Return an error in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    content = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse({"error": content}, error.status, headers)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return error_response(error)


def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = f"{request.method} {request.url.path[:100]}: {error.detail}"
    response = error_response(RefusedError(told, error.status_code))
    response.headers.update(error.headers or {})
    return response


def _failed(_: Request, error: Exception) -> Response:
    told = f"the server has failed: {type(error).__name__}; its terminal says where"
    return error_response(RefusedError(told, 500))


async def _gone(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


HANDLERS: dict[Any, Callable[..., Any]] = {
    RefusedError: _refused,
    HTTPException: _no_such,
    ClientDisconnect: _gone,
    Exception: _failed,
}
"""How an app says what is wrong."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Args:
        request: whose body nobody has read.
        most: bytes.

    Raises:
        RefusedError: if it is longer, or takes too long.
        ClientDisconnect: if the client goes away.
    """
    length = request.headers.get("content-length", "0")
    body = bytearray()
    try:
        async with asyncio.timeout(MOST_SILENCE):
            if int(length) <= most:
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        break
                else:
                    return bytes(body)
    except TimeoutError:
        raise RefusedError(f"the body took more than {MOST_SILENCE} seconds", 408) from None
    raise RefusedError(f"a body has at most {most:,} bytes: say it in fewer words", 413)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Args:
        host: an address of this machine.
        port: to listen at; 0 takes one that is free.

    Raises:
        ValueError: if the address is none of this machine, the port is none, or somebody has it.
    """
    require("port", port, least=0, most=65_535)
    try:
        is_v6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        told = f"--host is an address of this machine, such as {LOOPBACK} or 0.0.0.0, got {host!r}"
        raise ValueError(told) from None
    try:
        family = socket.AF_INET6 if is_v6 else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        told = f"port {port}: {error.strerror}; take another, or 0 for any"
        raise ValueError(told if host == LOOPBACK else f"{host}, {told}") from None


class Listener(uvicorn.Server):
    """Serves an app at a socket until a signal, or until `should_exit` is set.

    Args:
        app: of ASGI.
        at: as `bound` returns it.
        on_end: is called when the grace is over; whoever still writes has to stop then.
        is_busy: whether answers are on their way.
    """

    def __init__(
        self,
        app: ASGIApp,
        at: socket.socket,
        *,
        on_end: Callable[[], object] = lambda: None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=2,
        )
        super().__init__(config)
        self._at, self._on_end, self._is_busy = at, on_end, is_busy
        self._silent_since: dict[Any, float] = {}
        self.port: int = at.getsockname()[1]

    def listen(self) -> None:
        """Serve; return after SIGTERM, or when `should_exit` was set.

        Raises:
            KeyboardInterrupt: after Ctrl-C.
        """
        self.run([self._at])

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose other side has said nothing for too long."""
        now, since = time.monotonic(), self._silent_since
        quiet = {c for c in self.server_state.connections if _is_quiet(c)}
        self._silent_since = {connection: since.get(connection, now) for connection in quiet}
        for connection, began in self._silent_since.items():
            if now - began > MOST_SILENCE:
                connection.transport.abort()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let answers end for a while, then end them."""
        for server in self.servers:
            server.close()
        ends = time.monotonic() + GRACE
        while self._is_busy() and time.monotonic() < ends and not self.force_exit:
            await asyncio.sleep(0.05)
        self._on_end()
        for connection in filter(_waits_for_body, list(self.server_state.connections)):
            connection.transport.abort()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # whose other side does not read
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM end this as work that is done, and Ctrl-C as any other command."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = (signal.SIGINT, signal.SIGTERM)
        before = {name: signal.signal(name, self.handle_exit) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
        if signal.SIGINT in self._captured_signals:
            raise KeyboardInterrupt


def _waits_for_body(connection: Any) -> bool:
    """Whether a connection has a request that is not whole."""
    return connection.cycle is not None and connection.cycle.more_body


def _is_quiet(connection: Any) -> bool:
    """Whether a connection waits for a request, or for someone to read its last bytes."""
    cycle = connection.cycle
    return cycle is None or cycle.response_complete or connection.transport.is_closing()
