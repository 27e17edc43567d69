"""tuning.chat_page: the page of a conversation, over HTTP on this machine."""

import http.client
import socket
import threading
from contextlib import closing, contextmanager

import pytest

from llmcourse_labs.real.server import house
from llmcourse_labs.real.server.live import LiveEngine
from llmcourse_labs.tuning import Conversation, chat
from llmcourse_labs.tuning.chat_page import (
    MOST_BYTES,
    MOST_PAGES,
    EngineConversation,
    chat_listener,
)
from llmcourse_labs.tuning.serving import engine_at_work
from tests.labs.real.serving import Obedient, listening, tiny, until


class Echo(Conversation):
    def __init__(self):
        self.heard, self.temperature = [], 0.0

    def set_temperature(self, temperature):
        self.temperature = temperature

    def reset(self):
        self.heard = []

    def answer(self, said, write):
        self.heard.append(said)
        for piece in ("heard ", *self.heard, f" at {self.temperature}"):
            write(piece)


@contextmanager
def serving(new_conversation=Echo, **given):
    given = {"title": "chat", "temperature": 0.0} | given
    listener = chat_listener(new_conversation, chat.respond, 0, **given)
    with listening(listener):
        yield listener.port


def ask(port, method, path, body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, headers)
        with connection.getresponse() as response:
            return response, response.read().decode()


def test_each_page_has_a_conversation_that_goes_on():
    with serving() as port:
        said = [
            ask(port, "POST", path, line.encode())[1]
            for path, line in (("/1", "ä"), ("/2", "b"), ("/1", "c"), ("/1", "/temperature 0.5"))
        ]
        assert said == ["heard ä at 0.0", "heard b at 0.0", "heard äc at 0.0", "temperature 0.5"]
        assert ask(port, "POST", "/1", b"d")[1] == "heard äcd at 0.5"
        assert ask(port, "POST", "/1", b"/reset")[1] == "forgotten"
        assert ask(port, "POST", "/1", b"e")[1] == "heard e at 0.5"
        assert ask(port, "POST", "/2", b"f")[1] == "heard bf at 0.0"
        assert "a temperature is a number" in ask(port, "POST", "/2", b"/temperature x")[1]


def test_the_page_that_was_silent_for_longest_is_forgotten():
    with serving() as port:
        for number in [*range(MOST_PAGES), 0, MOST_PAGES]:
            ask(port, "POST", f"/{number}", b"a")
        assert ask(port, "POST", "/0", b"b")[1] == "heard aab at 0.0"
        assert ask(port, "POST", "/1", b"b")[1] == "heard b at 0.0"


def test_the_page_is_one_file_with_its_title_as_text():
    with serving(title="a<b>&{temperature}", temperature=0.8) as port:
        response, page = ask(port, "GET", "/")
        assert "<h1>a&lt;b>&amp;{temperature}</h1>" in page
        assert 'value="0.8"' in page
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "http" not in page
        assert ask(port, "GET", "/else")[0].status == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
def test_another_site_is_refused(method, headers):
    made = []
    with serving(lambda: made.append(1) or Echo()) as port:
        own = {"Origin": f"http://localhost:{port}"}
        assert (ask(port, method, "/", b"a", **headers)[0].status, made) == (403, [])
        assert ask(port, method, "/", b"a", **own)[0].status == 200


SCHEMES = ["https", "x", "HTTP", "file", ""]
LENGTHS = ["-1", "x", "²", "", "9" * 5_000]
REFUSED = [
    *((400, None, {"Content_Length": length.encode("latin1")}) for length in LENGTHS),
    (413, None, {"Content_Length": str(MOST_BYTES + 1)}),
    (413, b"a" * (MOST_BYTES + 1), {}),
    *((403, b"a", {"Origin": f"{scheme}://127.0.0.1:PORT"}) for scheme in SCHEMES),
    (400, b"\xff", {}),  # no text
]


@pytest.mark.parametrize(("status", "body", "headers"), REFUSED)
def test_a_length_another_scheme_and_bytes_that_cannot_be_are_refused(status, body, headers):
    with serving() as port:
        if "Origin" in headers:
            headers = {"Origin": headers["Origin"].replace("PORT", str(port))}
        assert ask(port, "POST", "/1", body, **headers)[0].status == status


@pytest.mark.parametrize("request_line", [b"GET /\r\n\r\n", b"GET /\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_request_without_a_version_gets_nothing_of_the_page(request_line):
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request_line)
        assert client.recv(1_000).startswith(b"HTTP/1.1 400 ")


def test_a_page_that_closes_does_not_end_the_server():
    begun, gone = threading.Event(), threading.Event()

    class Slow(Echo):
        def answer(self, said, write):
            if said == "slow":
                begun.set()
                gone.wait(20)
                for _ in range(1_000):
                    write("x" * 10_000)
            write(said)

    with serving(Slow) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/1", b"slow")
        assert begun.wait(20)
        connection.close()
        gone.set()
        assert ask(port, "POST", "/1", b"b")[1] == "b"


def test_a_line_that_fails_breaks_the_response_off():
    class Failing(Echo):
        def answer(self, said, write):
            write(said)
            raise OSError("no disk")

    with serving(Failing) as port, pytest.raises(http.client.IncompleteRead):
        ask(port, "POST", "/1", b"b")


def test_an_engine_answers_as_a_conversation_alone_and_pages_side_by_side():
    decoder, tokenizer = tiny()
    how = {"most_tokens": 6, "temperature": 0.0}
    alone = Conversation(decoder, tokenizer, **how)
    wanted = [alone.answer(line) for line in ("the cat", "sat")]
    with engine_at_work(decoder) as live:

        def new():
            return EngineConversation(live, decoder, tokenizer, **how)

        with serving(new, on_end=live.close) as port:
            said = [
                [ask(port, "POST", f"/{page}", line)[1].strip() for page in range(2)]
                for line in (b"the cat", b"sat")
            ]
            assert said == [[text] * 2 for text in wanted]
            drawn = []
            for page in ("/3", "/4", "/3"):
                ask(port, "POST", page, b"/temperature 1.5")
                ask(port, "POST", page, b"/reset")
                drawn.append(ask(port, "POST", page, b"the cat")[1])
            assert drawn[0] == drawn[1] != drawn[2]


@contextmanager
def obedient():
    """A page over an engine that writes until it is told to end."""
    decoder, tokenizer = tiny()
    with LiveEngine(engine := Obedient(ends=False), most=4) as live:

        def new():
            return EngineConversation(live, decoder, tokenizer)

        with serving(new, on_end=live.close) as port:
            yield port, engine


def test_a_page_that_closes_cancels_its_answer():
    with obedient() as (port, engine):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/1", b"a")
        with connection.getresponse() as response:
            assert response.read(3)
        connection.close()
        until(lambda: engine.cancelled == [1])


def test_a_server_that_ends_tells_its_pages(monkeypatch):
    monkeypatch.setattr(house, "GRACE", 0.2)
    with obedient() as (port, engine):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/1", b"a")
        response = connection.getresponse()
        until(lambda: engine.rows)
    with response:
        assert response.read().decode().endswith("the server is ending")
    connection.close()


def test_a_port_that_cannot_be_had_is_named():
    with serving() as port, pytest.raises(ValueError, match=f"port {port}: .*take another"):
        chat_listener(Echo, chat.respond, port, title="", temperature=0)
    with pytest.raises(ValueError, match="port must be at most 65535, got 70000"):
        chat_listener(Echo, chat.respond, 70_000, title="", temperature=0)
