"""The page of  llmcourse chat --run runs/chat --serve:  one file, for this machine alone.

The page sends a line and reads what comes back while it is drawn.  Each page that is open has a
conversation of its own, which it names by a number it drew.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources

from llmcourse.base.arguments import require
from llmcourse_labs.tuning.conversation import Conversation

HOST = "127.0.0.1"

MOST_PAGES = 16
"""Pages that are open at once; of more, the one that was silent for longest is forgotten."""

MOST_BYTES = 100_000
"""Of a line."""

MOST_SILENCE = 60
"""Seconds that a connection may be open without a word."""

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)

Respond = Callable[[Conversation, str, Callable[[str], object]], None]


def chat_server(
    new_conversation: Callable[[], Conversation],
    respond: Respond,
    port: int,
    *,
    title: str,
    temperature: int | float,
) -> ThreadingHTTPServer:
    """Return a server of the page on this machine; `serve_forever` lets it work.

    Args:
        new_conversation: makes one, for a page that is opened.
        respond: is given a conversation, a line, and what to write the response with.
        port: to listen at; 0 takes one that is free.
        title: of the page.
        temperature: that it shows at first.

    Raises:
        ValueError: if the port is none, or somebody else has it.
    """
    require("port", port, least=0, most=65_535)
    page = resources.files("llmcourse_labs.tuning").joinpath("chat.html").read_text(encoding="utf8")
    for sign, name in (("&", "&amp;"), ("<", "&lt;")):
        title = title.replace(sign, name)
    content = page.replace("{temperature}", f"{temperature:g}").replace("{title}", title).encode()
    known: OrderedDict[str, Conversation] = OrderedDict()
    turn = threading.Lock()  # one answer at a time: the model has one core

    class Handler(BaseHTTPRequestHandler):
        server: ThreadingHTTPServer
        timeout = MOST_SILENCE
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not self._is_local():
                return
            if self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self._begin("text/html", len(content))
            self.wfile.write(content)

        def do_POST(self) -> None:
            if not self._is_local():
                return
            number = self.headers.get("Content-Length", "")
            digits = number.isascii() and number.isdigit() and len(number) <= len(str(MOST_BYTES))
            if not digits or int(number) > MOST_BYTES:
                self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return
            try:
                line = self.rfile.read(int(number)).decode()
            except UnicodeDecodeError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            self._begin("text/plain")
            with turn:
                if self.path not in known:
                    known[self.path] = new_conversation()
                known.move_to_end(self.path)
                if len(known) > MOST_PAGES:
                    known.popitem(last=False)
                try:
                    respond(known[self.path], line, self._write)
                    self.wfile.write(b"0\r\n\r\n")
                except ConnectionError:  # the page was closed: nobody reads the rest
                    self.close_connection = True

        def _is_local(self) -> bool:
            """Refuse what another site's page asks for in the name of this one."""
            if self.request_version == "HTTP/0.9":  # has no headers that could be refused
                self.close_connection = True
                return False
            here = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
            allowed = {None, *(f"http://{each}" for each in here)}
            if self.headers.get("Host") in here and self.headers.get("Origin") in allowed:
                return True
            self.send_error(HTTPStatus.FORBIDDEN)
            return False

        def _begin(self, kind: str, length: int | None = None) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Connection", "close")
            if length is None:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(length))
            self.end_headers()

        def _write(self, text: str) -> None:
            """Send a piece; an empty one would be the end."""
            if text:
                piece = text.encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

        def log_message(self, *_: object) -> None:
            """Say nothing: the conversation is the reader's."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ValueError(f"port {port}: {error.strerror}; take another, or 0 for any") from None
