"""What a roofline needs to know of a machine: rates of products, of memory, and of calls."""

import math
from dataclasses import dataclass
from itertools import pairwise

from llmcourse.base.arguments import require_fields
from llmcourse_labs.scale.cost import HARDWARE

Rates = tuple[tuple[int | float, int | float], ...]
"""Pairs of a size and the rate that was seen there, sizes ascending."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates of one processor or accelerator, measured or from a data sheet."""

    name: str
    products: Rates
    """FLOP/s of matrix products by their size (m k n)^(1/3)."""
    attention: Rates
    """FLOP/s of fused attention by the number of tokens, forward and backward together."""
    streams: Rates
    """Bytes/s of reading and writing, by the bytes that are touched: caches are faster."""
    call_s: int | float
    """Seconds that a call costs before it computes anything."""

    def __post_init__(self) -> None:
        """Reject rates that no machine has."""
        for name in ("products", "attention", "streams"):
            rates = getattr(self, name)
            sizes = [size for size, _ in rates]
            if not rates or min(min(pair) for pair in rates) <= 0:
                raise ValueError(f"{name} must be pairs above 0 (size, rate), got {rates}")
            if sizes != sorted(set(sizes)):
                raise ValueError(f"{name} must have ascending sizes, got {sizes}")
        require_fields(self, "call_s", least=0)

    @property
    def peak_flop_per_s(self) -> float:
        """The roof: FLOP/s of the best product."""
        return max(rate for _, rate in self.products)

    @property
    def memory_bytes_per_s(self) -> float:
        """The slope: bytes/s where no cache helps."""
        return self.streams[-1][1]

    @property
    def ridge(self) -> float:
        """FLOPs per byte where the slope meets the roof:  peak / bandwidth."""
        return self.peak_flop_per_s / self.memory_bytes_per_s

    def product_flop_per_s(self, m: int, k: int, n: int) -> float:
        """Return the rate of an (m, k) by (k, n) product."""
        return _between(self.products, (m * k * n) ** (1 / 3))

    def attention_flop_per_s(self, num_tokens: int) -> float:
        """Return the rate of fused attention over rows of `num_tokens`."""
        return _between(self.attention, num_tokens)

    def bytes_per_s(self, touched_bytes: int | float) -> float:
        """Return the rate of a stream that touches so many bytes in all."""
        return _between(self.streams, touched_bytes)


def _between(rates: Rates, size: int | float) -> float:
    """Read a table of rates between its rows, both axes logarithmic; flat outside of it."""
    if size <= rates[0][0]:
        return rates[0][1]
    for (low, slow), (high, fast) in pairwise(rates):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return slow * (fast / slow) ** share
    return rates[-1][1]


def accelerator(name: str) -> Machine:
    """Return the machine of a data sheet: its two numbers at every size, and calls for nothing.

    A real one stays below both.  Calls cost nothing while they wait in a queue.

    Args:
        name: in `cost.HARDWARE`.

    Raises:
        ValueError: if there is no such accelerator.
    """
    if name not in HARDWARE:
        raise ValueError(f"accelerator must be one of {', '.join(HARDWARE)}, got {name!r}")
    sheet = HARDWARE[name]
    peak = ((1.0, sheet.dense_bf16_flop_per_s),)
    return Machine(
        name=sheet.name,
        products=peak,
        attention=peak,
        streams=((1.0, sheet.memory_bytes_per_s),),
        call_s=0.0,
    )
