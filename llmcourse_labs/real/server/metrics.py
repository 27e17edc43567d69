"""What a server has done, in the text form that Prometheus reads.

Source: Prometheus, "Exposition formats", text format 0.0.4,
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate

from llmcourse_labs.real.serve.request import Counts

SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
NOW = ("running", "waiting", "pages_used", "pages_kept", "pages_free")
"""Counts of an engine that go up and down; the others only grow."""


class Histogram:
    """How many values lay at or below each bound.

    Args:
        bounds: growing.
    """

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds, self.total = tuple(bounds), 0.0
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> list[str]:
        """Return it under a name: a count up to each bound, the sum, and the count of all."""
        upto = list(accumulate(self.counts))
        bounds = [*map(str, self.bounds), "+Inf"]
        made = [f'{name}_bucket{{le="{b}"}} {n}' for b, n in zip(bounds, upto, strict=True)]
        return [*made, f"{name}_sum {self.total}", f"{name}_count {upto[-1]}"]


@dataclass
class Metrics:
    """What a server counts; times are in seconds."""

    requests: Counter[int] = field(default_factory=Counter)
    """Answered, by status."""
    first_token: Histogram = field(default_factory=Histogram)
    """From a request to its first token."""
    between_tokens: Histogram = field(default_factory=Histogram)
    answer: Histogram = field(default_factory=Histogram)
    """From a request to the end of its answer."""

    def count(self, status: int) -> None:
        """Count a response."""
        self.requests[status] += 1

    def text(self, counts: Counts, num_open: int) -> str:
        """Return all of it.

        Args:
            counts: of the engine.
            num_open: requests that wait or are being answered.
        """
        made = ["# TYPE llmcourse_requests_total counter"]
        made += [
            f'llmcourse_requests_total{{code="{code}"}} {number}'
            for code, number in sorted(self.requests.items())
        ]
        made += ["# TYPE llmcourse_open gauge", f"llmcourse_open {num_open}"]
        for name, number in asdict(counts).items():
            kind, end = ("gauge", "") if name in NOW else ("counter", "_total")
            full = f"llmcourse_engine_{name}{end}"
            made += [f"# TYPE {full} {kind}", f"{full} {number}"]
        for name in ("first_token", "between_tokens", "answer"):
            full = f"llmcourse_{name}_seconds"
            made += [f"# TYPE {full} histogram", *getattr(self, name).lines(full)]
        return "\n".join([*made, ""])
