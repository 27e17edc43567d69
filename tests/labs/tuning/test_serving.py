"""llmcourse serve: the command, from its words to the signal that ends it."""

import json
import os
import signal
import sys
import threading
import urllib.request
from dataclasses import replace
from queue import SimpleQueue

import pytest
import torch
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from llmcourse import model
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs.real import server
from llmcourse_labs.real.gguf_writer import write_gguf
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.real.server.house import Guard, Listener, bound
from llmcourse_labs.tuning import Conversation, chat
from llmcourse_labs.tuning.serving import main
from tests.labs.real.serving import PATH, until
from tests.labs.real.test_opening import TALK, TOKENS


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model that was taught to talk, and one that was not."""
    folder = tmp_path_factory.mktemp("files")
    tokenizer = train_bpe(["the cat sat on the mat and the dog sat too " * 9], 300, TOKENS)
    config = replace(model.tiny(), vocab_size=tokenizer.vocab_size, context_length=64)
    g = torch.Generator().manual_seed(3)
    weights = model.Transformer(config, generator=g).state_dict()
    ids = {"eos": tokenizer.special_tokens["<|im_end|>"]}
    for name, template in (("talks", TALK), ("mute", None)):
        path = folder / f"{name}.gguf"
        write_gguf(path, weights, config, tokenizer, template=template, token_ids=ids)
    return folder


@pytest.fixture
def at_work(monkeypatch, no_loop):
    """Let a client talk to the command, which runs in the main thread; then a signal comes."""
    listening, listen = SimpleQueue(), Listener.listen
    monkeypatch.setattr(Listener, "listen", lambda self: listening.put(self) or listen(self))
    found = []

    def run(program, words, client, number=signal.SIGTERM):
        def talk():
            listener = listening.get(timeout=30)
            until(lambda: listener.started)
            try:
                found.append(client(f"http://127.0.0.1:{listener.port}"))
            finally:
                os.kill(os.getpid(), number)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        status = program(words)
        thread.join(30)
        return status, *found

    return run


def post(url, body):
    with urllib.request.urlopen(url, data=body, timeout=30) as response:
        return response.read()


def test_a_model_is_served_until_a_signal(files, at_work, capsys):
    asked = {"model": "talks", "messages": [{"role": "user", "content": "the cat"}]}
    asked |= {"temperature": 0, "max_tokens": 8}
    words = ["--model", str(files / "talks.gguf"), "--port", "0", "--tokens", "8"]
    status, answer = at_work(main, words, lambda url: post(url + PATH, json.dumps(asked).encode()))
    opened = open_model(files / "talks.gguf")
    said = Conversation(*opened, most_tokens=8).answer("the cat")
    (choice,) = json.loads(answer)["choices"]
    assert (status, choice["message"]["content"].strip()) == (0, said)
    printed = capsys.readouterr()
    assert printed.out.startswith("talks answers at http://127.0.0.1:")
    assert (printed.out.count("\n"), printed.err) == (1, "")


def test_a_short_context_is_served_without_a_word_of_tokens(files, at_work):
    asked = {"model": "talks", "messages": [{"role": "user", "content": "the cat"}]}
    words = ["--model", str(files / "talks.gguf"), "--port", "0"]
    status, answer = at_work(main, words, lambda url: post(url + PATH, json.dumps(asked).encode()))
    assert (status, 0 < json.loads(answer)["usage"]["completion_tokens"] <= 32) == (0, True)


def test_a_page_is_served_until_ctrl_c(files, at_work, capsys):
    words = ["--model", str(files / "talks.gguf"), "--serve", "0", "--tokens", "8"]
    talk = (chat.main, words, lambda url: post(f"{url}/1", b"the cat"), signal.SIGINT)
    status, answer = at_work(*talk)
    said = Conversation(*open_model(files / "talks.gguf"), most_tokens=8).answer("the cat")
    assert (status, answer.decode().strip()) == (130, said)
    printed = capsys.readouterr()
    assert printed.err == "llmcourse chat: interrupted\n"
    assert printed.out.startswith("talk to talks at http://127.0.0.1:")


def test_what_cannot_be_served_is_one_line(files, tmp_path, capsys):
    talks = ["--model", str(files / "talks.gguf")]
    with bound("127.0.0.1", 0) as at:
        taken = str(at.getsockname()[1])
        for words, says in (
            ([], "give --run, a folder, or --model"),
            (["--model", "nope"], "there is no model 'nope'"),
            (["--run", str(tmp_path)], "holds no run"),
            (["--model", str(files / "mute.gguf")], "has no template for conversations"),
            ([*talks, "--port", taken], f"port {taken}: "),
            ([*talks, "--port", "65536"], "port must be at most 65535, got 65536"),
            ([*talks, "--host", "evil.example"], "--host is an address of this machine, such as"),
            ([*talks, "--host", "192.0.2.1", "--port", "0"], "192.0.2.1, port 0: "),
            ([*talks, "--tokens", "64"], "tokens must be below 64, got 64"),
            ([*talks, "--tokens", "8", "--rows", "0"], "rows must be 1 or greater, got 0"),
            ([*talks, "--tokens", "8", "--rows", "129"], "rows must be at most 128, got 129"),
            ([*talks, "--tokens", "8", "--queue", "0"], "queue must be 1 or greater, got 0"),
            ([*talks, "--tokens", "8", "--seconds", "0"], "seconds must be above 0, got 0"),
        ):
            given = words if "--tokens" in words or not words else [*words, "--tokens", "8"]
            assert main(given) == 2
            printed = capsys.readouterr()
            (line,) = printed.err.splitlines()
            assert line.startswith("llmcourse serve: ")
            assert says in line
            assert printed.out == ""


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_plain_install_is_told_of_the_extra(missing, files, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    for name in ("real.server.app", "real.server.house", "tuning.chat_page"):
        monkeypatch.delitem(sys.modules, f"llmcourse_labs.{name}", raising=False)
    monkeypatch.delattr(server, "app", raising=False)
    monkeypatch.delattr(server, "house", raising=False)
    monkeypatch.delattr("llmcourse_labs.tuning.chat_page", raising=False)
    words = ["--model", str(files / "talks.gguf")]
    assert main(words) == 2
    assert chat.main([*words, "--serve"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f'llmcourse {each}: a server needs {missing}: pip install "llmcourse[serve]"'
        for each in ("serve", "chat")
    ]


def test_who_asks_from_elsewhere_is_known_by_an_address():
    def here(host, port, *names):
        return [Guard(print, host, port)._is_here(name) for name in names]

    assert here("127.0.0.1", 80, "localhost", "127.0.0.1:80", "[::1]", "a", "") == [1, 1, 1, 0, 0]
    assert here("127.0.0.1", 8000, "LOCALHOST:8000", "8.8.8.8:8000", "localhost") == [1, 0, 0]
    names = ("10.0.0.5:8000", "[fe80::1]:8000", "localhost:8000", "evil.example:8000", "10.0.0.5")
    assert here("0.0.0.0", 8000, *names) == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://10.0.0.5:8000", 200),
        ("http://localhost:8000", 403),
        ("http://10.0.0.6:8000", 403),
        ("https://10.0.0.5:8000", 403),
    ],
)
def test_a_page_at_another_address_may_not_ask(origin, status):
    guarded = Guard(PlainTextResponse("here"), "0.0.0.0", 8000)
    client = TestClient(guarded, base_url="http://10.0.0.5:8000")
    assert client.get("/", headers={"Origin": origin}).status_code == status
