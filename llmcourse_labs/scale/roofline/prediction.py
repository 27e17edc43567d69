"""Put operations under the roof of a machine, and predict how long they take.

    attainable FLOP/s  = min(peak, intensity x bandwidth)
    time of operations = sum of max(FLOPs / rate, bytes / bandwidth) + calls x latency

Source: Williams, Waterman and Patterson 2009, https://doi.org/10.1145/1498765.1498785
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from llmcourse.base.arguments import require
from llmcourse_labs.scale.roofline.machine import Machine
from llmcourse_labs.scale.roofline.operations import Operation

Bound = Literal["compute", "memory", "calls"]


class Placed(NamedTuple):
    """One operation on one machine, in seconds."""

    operation: Operation
    compute_s: float
    memory_s: float
    calls_s: float

    @property
    def seconds(self) -> float:
        """Arithmetic and memory side by side, calls before them."""
        return max(self.compute_s, self.memory_s) + self.calls_s

    @property
    def bound(self) -> Bound:
        """What takes longest."""
        parts: dict[Bound, float] = {
            "compute": self.compute_s,
            "memory": self.memory_s,
            "calls": self.calls_s,
        }
        return max(parts, key=lambda part: parts[part])


def attainable_flop_per_s(machine: Machine, intensity: int | float) -> float:
    """Return the roofline:  min(peak, intensity x bandwidth).

    Args:
        machine: whose.
        intensity: FLOPs for each byte, above 0.

    Raises:
        ValueError: if `intensity` is not above 0.
    """
    require("intensity", intensity, above=0)
    return min(machine.peak_flop_per_s, intensity * machine.memory_bytes_per_s)


def place(machine: Machine, operation: Operation, *, fused: bool = False) -> Placed:
    """Return where the time of an operation goes.

    Args:
        machine: where it runs.
        operation: what runs.
        fused: whether it is one kernel that moves the least bytes; otherwise each line is a call.
    """
    if operation.shape is not None:
        rate = machine.product_flop_per_s(*operation.shape)
    elif operation.num_tokens:
        rate = machine.attention_flop_per_s(operation.num_tokens)
    else:
        rate = machine.peak_flop_per_s
    moved = operation.bytes if fused else operation.eager_bytes
    calls = operation.count if fused else operation.calls
    # It comes back in every layer, and until then others have swept the cache: what all of its
    # occurrences touch together decides which cache serves it.
    bandwidth = machine.bytes_per_s(moved)
    return Placed(operation, operation.flop / rate, moved / bandwidth, calls * machine.call_s)


def predicted_seconds(
    machine: Machine, operations: Iterable[Operation], *, fused: bool = False
) -> float:
    """Return the time of some operations, one after the other.

    Args:
        machine: where they run.
        operations: what runs.
        fused: see `place`.
    """
    return sum(place(machine, operation, fused=fused).seconds for operation in operations)
