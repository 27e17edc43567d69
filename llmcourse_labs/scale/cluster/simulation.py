"""A run with failures, drawn at random: the formulas' assumptions can be changed here."""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import torch

from llmcourse.base.arguments import require, require_fields


class Outcome(NamedTuple):
    """What became of a stretch of time."""

    trained_s: float
    """Training that was kept: saved, or still going at the end."""
    lost_s: float
    """Training that had to be repeated."""
    saving_s: float
    """Standing still for saves, cut-off ones included."""
    restarting_s: float
    """From failures to the next step."""
    waiting_s: float
    """Waiting for a repaired node, with no spare left."""
    num_failures: int

    @property
    def share(self) -> float:
        """The goodput: kept training as a share of all time."""
        return self.trained_s / sum(self[:5])


@dataclass(frozen=True, kw_only=True)
class Faults:
    """When a run saves, how it fails, and what a failure costs."""

    interval_s: int | float
    """Training between two saves."""
    save_s: int | float
    """How long training stands still for a save."""
    restart_s: int | float
    """From a failure to the next step; a restart may fail, too."""
    mtbf_s: int | float
    """Mean time between failures of the whole cluster."""
    spares: int | None = None
    """Nodes that stand by; None: there is always one."""
    repair_s: int | float = 0.0
    """Until a broken node stands by again."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be followed, or would have no effect."""
        require_fields(self, "interval_s", "mtbf_s", above=0)
        require_fields(self, "save_s", "restart_s", "repair_s", "spares", least=0)
        if self.spares is None and self.repair_s:
            raise ValueError("repair_s has no effect when there is always a spare: give spares")


def simulate(duration_s: int | float, faults: Faults, *, generator: torch.Generator) -> Outcome:
    """Follow a run through random failures.

    The run trains, saves, and so on.  A failure throws it back to its last whole save.  It takes a
    spare node, restarts, and goes on; the broken node comes back after its repair.  With no spare
    left, the run waits for the first that comes back.

    Args:
        duration_s: length of the stretch, positive.
        faults: how it fails.
        generator: of the moments of failure.

    Raises:
        ValueError: if duration_s is not positive.
    """
    require("duration_s", duration_s, above=0)
    pool = _Spares(faults)
    time = dict.fromkeys(Outcome._fields[:5], 0.0)
    now, num_failures = 0.0, 0
    while now < duration_s:
        fails_at = now + _until_failure(faults, generator)
        up_for = min(fails_at, duration_s) - now
        segments, rest = divmod(up_for, faults.interval_s + faults.save_s)
        unsaved = min(rest, faults.interval_s)
        time["trained_s"] += segments * faults.interval_s
        time["saving_s"] += segments * faults.save_s + rest - unsaved
        time["trained_s" if fails_at >= duration_s else "lost_s"] += unsaved
        now += up_for
        restarted = now >= duration_s
        while not restarted and now < duration_s:
            num_failures += 1
            waited = min(pool.take(now), duration_s - now)
            restart = min(faults.restart_s, duration_s - now - waited)
            held = _until_failure(faults, generator)
            restarted = held >= restart
            time["waiting_s"] += waited
            time["restarting_s"] += min(held, restart)
            now += waited + min(held, restart)
    return Outcome(**time, num_failures=num_failures)


def _until_failure(faults: Faults, generator: torch.Generator) -> float:
    """Draw the time to the next failure; it does not depend on how long all went well."""
    draw = torch.empty((), dtype=torch.float64).exponential_(generator=generator)
    return faults.mtbf_s * float(draw)


class _Spares:
    """The nodes that stand by, and those in repair."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.free = faults.spares
        self.back_at: list[float] = []

    def take(self, now: float) -> float:
        """Send a broken node to repair and take a spare; return how long one has to be waited for.

        What is waited for is the earliest repair, perhaps that of the node itself.
        """
        if self.free is None:
            return 0.0
        heapq.heappush(self.back_at, now + self.faults.repair_s)
        while self.back_at and self.back_at[0] <= now:
            heapq.heappop(self.back_at)
            self.free += 1
        if self.free:
            self.free -= 1
            return 0.0
        return heapq.heappop(self.back_at) - now
