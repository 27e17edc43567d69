"""Interleaved timing: A B A B ..., so that a machine that slows down slows both."""

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    sides: Mapping[str, Callable[[], object]], *, repeats: int, warm_up: int = 1
) -> dict[str, float]:
    """Return the median seconds of each side over `repeats` rounds, after a warm-up."""
    seconds = {name: [] for name in sides}
    for turn in range(warm_up + repeats):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def row(
    what: str, ours: float, peer: float, peer_name: str, unit: str, *, aim: str = ""
) -> dict[str, object]:
    """Return one line of the table, from rates (more is better)."""
    return {
        "what": what,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "unit": unit,
        "ratio": ours / peer,
        "aim": aim,
    }
