"""Measure this machine in a few seconds: products, attention, streams, and the cost of a call.

All of it on one thread and in float32, as the course trains.  Each number is a median of several
rounds, taken on the clock of the processor's own time where there is a fine one, so that other
programs on the machine disturb it less.
"""

import platform
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from llmcourse.base.arguments import require
from llmcourse.base.pairs import matmul_nt
from llmcourse_labs.scale.roofline.machine import Machine

PRODUCT_SIZES = (32, 64, 128, 256, 512, 1024)
ATTENTION_TOKENS = (64, 128, 256, 512)
STREAM_BYTES = (2**16, 2**18, 2**20, 2**22, 2**24, 2**26, 2**29)
"""Read and written together.  The last is larger than the caches that one core has for itself."""
NUM_CALLS = 64

_FINE = 1e-5
_CLOCK = (
    time.process_time
    if time.get_clock_info("process_time").resolution < _FINE
    else time.perf_counter
)


def median_seconds(run: Callable[[], object], *, rounds: int = 9, least_s: float = 0.0) -> float:
    """Return the median seconds of a call, after one that warms up.

    Args:
        run: what is called.
        rounds: how often at least, an odd number has one in the middle.
        least_s: go on for so long.

    Raises:
        ValueError: if `rounds` is below 1.
    """
    require("rounds", rounds, least=1)
    run()
    seconds: list[float] = []
    while len(seconds) < rounds or sum(seconds) < least_s:
        started = _CLOCK()
        run()
        seconds.append(_CLOCK() - started)
    return statistics.median(seconds)


def measured_machine(*, rounds: int = 9) -> Machine:
    """Measure the machine that this runs on, with the threads that torch has been given.

    Args:
        rounds: of each measurement.
    """
    threads = torch.get_num_threads()
    return Machine(
        name=f"this machine ({platform.machine()}, {threads} thread{'s' * (threads > 1)})",
        products=tuple((float(n), _product(n, rounds)) for n in PRODUCT_SIZES),
        attention=tuple((float(n), _attention(n, rounds)) for n in ATTENTION_TOKENS),
        streams=tuple((float(n), _stream(n, rounds)) for n in STREAM_BYTES),
        call_s=_call(rounds),
    )


def _product(size: int, rounds: int) -> float:
    """FLOP/s of a product of two square matrices, by the way that the model takes."""
    a, b = torch.full((size, size), 0.5), torch.full((size, size), 0.25)
    repeats = max(1, 2**22 // size**3)

    def run() -> None:
        for _ in range(repeats):
            matmul_nt(a, b)

    return repeats * 2 * size**3 / median_seconds(run, rounds=rounds)


def _attention(num_tokens: int, rounds: int, num_heads: int = 16, head_size: int = 32) -> float:
    """FLOP/s of torch's fused causal attention, forward and backward, by `cost`'s count."""
    shape = (1, num_heads, num_tokens, head_size)
    q, k, v = (torch.full(shape, 0.1, requires_grad=True) for _ in range(3))
    dy = torch.full(shape, 0.1)

    def run() -> None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), dy)

    forward = 4 * num_heads * head_size * num_tokens * (num_tokens + 1) / 2
    return 3 * forward / median_seconds(run, rounds=rounds)


def _stream(touched_bytes: int, rounds: int) -> float:
    """Bytes/s of reading two arrays and writing a third, a third of the bytes each."""
    a, b, c = (torch.ones(touched_bytes // 12) for _ in range(3))
    repeats = max(1, 2**20 // touched_bytes)

    def run() -> None:
        for _ in range(repeats):
            torch.mul(a, b, out=c)

    return repeats * touched_bytes / median_seconds(run, rounds=rounds)


def _call(rounds: int) -> float:
    """Seconds of one small operation that autograd records, and of its backward."""
    x = torch.ones(4, requires_grad=True)

    def run() -> None:
        y = x
        for _ in range(NUM_CALLS):
            y = y * 0.5
        y.sum().backward()
        x.grad = None

    return median_seconds(run, rounds=rounds) / (2 * NUM_CALLS)
