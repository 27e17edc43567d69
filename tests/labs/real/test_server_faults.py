"""real.server: clients that leave or do not read, an engine that dies, a signal: nothing hangs."""

import json
import os
import signal
import socket
import threading
from contextlib import suppress

import openai
import pytest

from llmcourse_labs.real.server import house
from llmcourse_labs.real.server.live import BusyError, EndedError, LiveEngine
from tests.labs.real.serving import HELLO, PATH, REQUEST, Obedient, Running, running, until

STREAM = HELLO | {"stream": True}


def open_client(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=30)


def raw(server, body):
    """A connection on which a request was sent; nothing is read."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    content = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return client


def is_clean(server):
    """Nothing is kept of requests that are over."""
    live = server.live
    return not (live.num_open or live._tickets or live._numbers or server.engine.rows)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_request(stream):
    engine = Obedient(ends=False)
    with running(engine) as server:
        client = raw(server, HELLO | {"stream": stream})
        until(lambda: engine.rows)
        if stream:
            assert client.recv(10).startswith(b"HTTP/1.1 2")
        client.close()
        until(lambda: engine.cancelled == [1])
        until(lambda: is_clean(server))
        engine.ends = True
        assert server.ask(body=HELLO | {"max_tokens": 2})[0] == 200
    assert engine.cancelled == [1]


def test_who_leaves_before_the_first_token_is_cancelled():
    engine = Obedient()
    engine.may_step.clear()
    with running(engine) as server:
        for stream in (False, True):
            raw(server, HELLO | {"stream": stream}).close()
        until(lambda: server.live._inbox.qsize() >= 2 or server.live.num_open >= 1)
        engine.may_step.set()
        until(lambda: is_clean(server))


def test_a_reader_that_does_not_read_stops_nobody_and_ends_with_the_server(monkeypatch):
    monkeypatch.setattr(house, "GRACE", 0.3)
    engine = Obedient([5] * 2_000, ends=False)
    with running(engine) as server:
        stuck = raw(server, STREAM)
        connections = server.listener.server_state.connections
        until(lambda: any(each.flow.write_paused for each in connections))
        engine.ids, engine.ends = [5], True
        engine.rows[1] = 10**9
        for _ in range(5):
            assert server.ask(body=HELLO | {"max_tokens": 3})[0] == 200
    assert engine.rows.keys() <= {1}
    assert isinstance(server.live.ended, EndedError)
    stuck.close()


def test_a_full_queue_is_refused_at_once():
    engine = Obedient()
    engine.may_step.clear()
    with running(engine, most=2) as server, open_client(server) as client:
        waiting = [raw(server, STREAM) for _ in range(2)]
        until(lambda: server.live.num_open == 2)
        with pytest.raises(openai.RateLimitError, match="2 requests are open") as refused:
            client.chat.completions.create(**HELLO)
        assert refused.value.response.headers["Retry-After"] == "1"
        with pytest.raises(BusyError):
            server.live.submit(REQUEST, print)
        engine.may_step.set()
        until(lambda: server.live.num_open == 0)
        assert server.ask(body=HELLO)[0] == 200
        for each in waiting:
            each.close()


def test_a_dead_engine_is_told_to_all_and_takes_no_more(capsys):
    engine = Obedient()
    engine.may_step.clear()
    with running(engine) as server, open_client(server) as client:
        stream = client.chat.completions.create(**STREAM)
        assert next(stream).choices[0].delta.role == "assistant"
        engine.dies = MemoryError("no room")
        engine.may_step.set()
        says = "the engine has failed: MemoryError"
        with pytest.raises(openai.APIError, match=says):
            list(stream)
        with pytest.raises(openai.InternalServerError, match=says):
            client.chat.completions.create(**HELLO)
        status, answer = server.ask("GET", "/health")
        assert (status, answer["error"]["message"]) == (503, says)
        assert server.ask("GET", "/metrics")[0] == 200
        assert server.live.num_open == 0
    assert "MemoryError: no room" in capsys.readouterr().err


def test_an_answer_that_takes_too_long_is_ended():
    engine = Obedient()
    engine.may_step.clear()
    with running(engine, most_seconds=0.2) as server, open_client(server) as client:
        says = "the answer took more than 0.2 seconds: ask for fewer tokens"
        with pytest.raises(openai.InternalServerError, match=says):
            client.chat.completions.create(**HELLO)
        with pytest.raises(openai.APIError, match=says):
            list(client.chat.completions.create(**STREAM))
        engine.may_step.set()
        until(lambda: is_clean(server))


@pytest.mark.usefixtures("no_loop")
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_signal_while_streaming_lets_answers_end_or_ends_them(goes_on, monkeypatch):
    """In the main thread, as the command runs."""
    monkeypatch.setattr(house, "GRACE", 0.3 if goes_on else 20)
    engine = Obedient(ends=not goes_on)
    engine.may_step.clear()
    server, found = Running(engine), []

    def talk():
        with open_client(server) as client:
            stream = client.chat.completions.create(**STREAM)
            next(stream)
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: server.listener.should_exit)
            engine.may_step.set()
            try:
                found.append([chunk.choices[0].finish_reason for chunk in stream][-1])
            except openai.APIError as error:
                found.append(str(error))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=talk, daemon=True)
    with server.live:
        thread.start()
        server.listener.listen()
    thread.join(30)
    assert found == ["the server is ending" if goes_on else "length"]
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ConnectionError):
        server.ask(body=HELLO)


@pytest.mark.usefixtures("no_loop")
def test_a_signal_while_a_body_comes_ends_without_a_traceback(caplog):
    server, client = Running(Obedient()), socket.socket()

    def stop():
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"POST {PATH} HTTP/1.1\r\nHost: localhost:{server.port}\r\n".encode())
        client.sendall(b"Content-Length: 9\r\n\r\n{")
        connections = server.listener.server_state.connections
        until(lambda: any(c.cycle is not None and c.cycle.more_body for c in connections))
        os.kill(os.getpid(), signal.SIGTERM)

    half = threading.Thread(target=stop, daemon=True)
    with server.live, client:
        half.start()
        server.listener.listen()
    half.join()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.usefixtures("no_loop")
def test_ctrl_c_ends_as_in_other_commands():
    server = Running(Obedient())

    def stop():
        until(lambda: server.listener.started)
        os.kill(os.getpid(), signal.SIGINT)

    interrupt = threading.Thread(target=stop, daemon=True)
    with server.live:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            server.listener.listen()
    interrupt.join()


def test_a_connection_without_a_word_is_closed(monkeypatch):
    monkeypatch.setattr(house, "MOST_SILENCE", 0.2)
    with running(Obedient()) as server:
        for said in (b"", b"POST /v1/chat", f"POST {PATH} HTTP/1.1\r\nContent-Le".encode()):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                client.sendall(said)
                with suppress(ConnectionResetError):
                    assert client.recv(1_000) == b""
        head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(head.encode())
            assert client.recv(1_000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("number_of", [120, pytest.param(10_000, marks=pytest.mark.soak)])
def test_nothing_is_kept_of_many_short_requests(number_of):
    with running(Obedient(), most=8) as server:
        num_threads = threading.active_count()
        for number in range(number_of):
            given = {"max_tokens": 1 + number % 3, "stream": bool(number % 2)}
            assert server.ask(body=HELLO | given)[0] == 200
        until(lambda: is_clean(server))
        assert threading.active_count() <= num_threads + 8
        until(lambda: len(server.listener.server_state.tasks) == 0)
        assert server.metrics.requests == {200: number_of}


def test_an_engine_that_has_ended_takes_nothing():
    got = []
    live = LiveEngine(Obedient(), most=1)
    with live:
        for number in range(3):  # one after the other, since each is forgotten when it is over
            live.submit(REQUEST, got.append)
            until(lambda done=number + 1: len(got) == done)
        assert [event.finish for event in got] == ["length"] * 3
    got.clear()
    with pytest.raises(EndedError, match="the server is ending"):
        live.submit(REQUEST, got.append)
    late = LiveEngine(Obedient(), most=1)
    late.close()
    late.submit(REQUEST, got.append)  # before the thread is there
    with late:
        pass
    assert got == [late.ended]
    with pytest.raises(ValueError, match="most must be 1 or greater, got 0"):
        LiveEngine(Obedient(), most=0)
