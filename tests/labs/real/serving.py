"""Servers for tests: of a tiny model, and of an engine that does as it is told."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from http.client import HTTPConnection

import torch

from llmcourse import model
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs.real.serve.engine import Engine
from llmcourse_labs.real.serve.request import Counts, Event, Request
from llmcourse_labs.real.server.app import Served, serving_app
from llmcourse_labs.real.server.house import LOOPBACK, Guard, Listener, bound
from llmcourse_labs.real.server.live import LiveEngine
from llmcourse_labs.real.server.metrics import Metrics
from llmcourse_labs.tuning.chat_format import Turn, with_chat_tokens
from llmcourse_labs.tuning.sft import answer_ends, prompt_ids

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "the cat"}]}
REQUEST = Request([1], 1)
PATH = "/v1/chat/completions"


@cache
def tiny():
    """A decoder with weights that never train, in float64, and its tokenizer."""
    words = ["the cat sat on the mat and the dog sat too " * 9]
    tokenizer = with_chat_tokens(train_bpe(words, 280, []))
    config = replace(model.tiny(), vocab_size=tokenizer.vocab_size, context_length=128)
    g = torch.Generator().manual_seed(3)
    decoder = model.Transformer(config, generator=g).double().eval()
    for p in decoder.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=g)
    return decoder, tokenizer


def ids_of(messages):
    return prompt_ids([Turn(m["role"], m["content"]) for m in messages], tiny()[1])


class Obedient(Engine):
    """An engine that writes `ids` in each step to each request, as long as it is let."""

    counts = Counts()

    def __init__(self, ids=(5,), *, ends=True):
        self.ends = ends
        self.ids, self.rows, self.cancelled = list(ids), {}, []
        self.may_step, self.number, self.dies = threading.Event(), 0, None
        self.may_step.set()

    @property
    def is_idle(self):
        return not self.rows

    def submit(self, request):
        self.number += 1
        self.rows[self.number] = request.max_new_tokens
        return self.number

    def cancel(self, number):
        if self.rows.pop(number, None) is not None:
            self.cancelled.append(number)

    def step(self):
        assert self.may_step.wait(20)
        time.sleep(0.001)  # an engine that computes nothing would fill every queue
        if self.dies is not None:
            raise self.dies
        events = []
        for number, before in list(self.rows.items()):
            self.rows[number] = left = before - self.ends
            events.append(Event(number, self.ids, None if left else "length"))
            if not left:
                del self.rows[number]
        return events


class Running:
    """A server: where it is, and what stands behind it."""

    def __init__(self, engine=None, most=64, **limits):
        decoder, self.tokenizer = tiny()
        self.engine = Engine(decoder, num_pages=40, page_size=4) if engine is None else engine
        self.live, self.metrics = LiveEngine(self.engine, most=most), Metrics()
        about = {"name": "tiny", "context_length": 128, "most_tokens": 40} | limits
        ends = answer_ends(self.tokenizer)
        self.served = Served(tokenizer=self.tokenizer, prompt_ids=ids_of, end_ids=ends, **about)
        at = bound(LOOPBACK, 0)
        self.port = at.getsockname()[1]
        app = serving_app(self.served, self.live, self.metrics)
        guarded = Guard(app, LOOPBACK, self.port, count=self.metrics.count)
        ends = {"on_end": self.live.close, "is_busy": lambda: self.live.num_open > 0}
        self.listener = Listener(guarded, at, **ends)
        self.url = f"http://{LOOPBACK}:{self.port}/v1"

    def ask(self, method="POST", path=PATH, body=None, **headers):
        """Return a status, and an answer in JSON if it is any."""
        content = json.dumps(body) if isinstance(body, dict) else body
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        with_port = HTTPConnection(LOOPBACK, self.port, timeout=30)
        with_port.request(method, path, content, headers)
        with with_port.getresponse() as response:
            text = response.read().decode()
        with_port.close()
        return response.status, json.loads(text) if text[:1] == "{" else text


@contextmanager
def listening(listener):
    """Let a server work in a thread; it ends within a time."""
    thread = threading.Thread(target=listener.listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.should_exit = True
        thread.join(40)
        assert not thread.is_alive()


@contextmanager
def running(*given, **named):
    server = Running(*given, **named)
    with server.live, listening(server.listener):
        yield server


def until(is_so):
    """Wait until something is so; fail after a time."""
    pause = threading.Event()
    for _ in range(2_000):
        if is_so():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")
