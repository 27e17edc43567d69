"""When everything happens: a schedule in units of time, its bubble, and what is held in memory.

The bubble is the time in which ranks have nothing to do, relative to the time in which they work:
idle time / busy time.  Of the whole time it is bubble / (1 + bubble).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from llmcourse.parallel.pipeline.schedules import Action, Schedule
from llmcourse.parallel.pipeline.timed import Timed, Units
from llmcourse.parallel.pipeline.validity import ScheduleSlot, needs, run_order, validate


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A schedule as it ran, or as it would run if every action took the time that it should."""

    schedule: Schedule
    """In the order in which it ran."""
    rows: tuple[tuple[Timed, ...], ...]
    """By rank."""

    @property
    def total(self) -> Units:
        """From the start of the first action to the end of the last."""
        times = [timed for row in self.rows for timed in row]
        return max(t.end for t in times) - min(t.start for t in times)

    def busy(self, rank: int) -> Units:
        """Return how long a rank works."""
        return sum(timed.end - timed.start for timed in self.rows[rank])

    @property
    def bubble(self) -> Units:
        """Idle time of all ranks relative to their busy time; a Fraction if the times are exact."""
        busy = sum(self.busy(rank) for rank in range(len(self.rows)))
        idle = self.total * len(self.rows) - busy
        return idle / busy if isinstance(idle, float) else Fraction(idle) / busy


def simulate(
    schedule: Schedule,
    *,
    forward: Units = 1,
    input_gradient: Units = 1,
    weight_gradient: Units = 1,
    message: Units = 0,
) -> Timeline:
    """Return when every action begins and ends, each as soon as it can.

    start = max(end of the rank's action before, end of the action needed + message)

    Args:
        schedule: see `schedules`.
        forward: units of one forward action, that is of one micro-batch through one chunk.
        input_gradient: units of the first part of a backward pass.
        weight_gradient: units of its second part; a whole backward pass takes the sum of both.
        message: units between the end of an action and the arrival of its result at another rank.

    Returns:
        Times from 0 on, exact if the arguments are.

    Raises:
        ValueError: if an action takes no time or a message negative time, or the schedule cannot be
            run, see `validate`.
    """
    units = {
        "F": forward,
        "B": input_gradient + weight_gradient,
        "I": input_gradient,
        "W": weight_gradient,
    }
    if min(units.values()) <= 0 or message < 0:
        raise ValueError(
            "actions take positive time and messages 0 or more, got "
            f"forward = {forward}, input_gradient = {input_gradient}, "
            f"weight_gradient = {weight_gradient}, message = {message}"
        )
    validate(schedule)
    ends: dict[ScheduleSlot, Units] = {}
    rows: list[list[Timed]] = [[] for _ in schedule.actions]
    for place in run_order(schedule)[0]:
        rank, action = place
        start = rows[rank][-1].end if rows[rank] else 0
        needed = needs(schedule, rank, action)
        if needed is not None:
            start = max(start, ends[needed] + (message if needed.rank != rank else 0))
        ends[place] = start + units[action.kind]
        rows[rank].append(Timed(action, start, ends[place]))
    return Timeline(schedule=schedule, rows=tuple(map(tuple, rows)))


def timeline_of(schedule: Schedule, rows: Sequence[Sequence[Timed]]) -> Timeline:
    """Put together the `timed` of every rank's run; the order is the one in which it really ran."""
    ran = tuple(tuple(Action(*timed[0]) for timed in row) for row in rows)
    as_run = replace(schedule, actions=ran)
    first = min(timed[1] for row in rows for timed in row)
    times = tuple(
        tuple(Timed(Action(*a), start - first, end - first) for a, start, end in row)
        for row in rows
    )
    return Timeline(schedule=as_run, rows=times)


def peak_live(schedule: Schedule) -> tuple[int, ...]:
    """Count how many micro-batches every rank holds at most, each chunk of a rank for itself.

    A micro-batch is held from the beginning of F to the end of B, or of W.
    """
    peaks = []
    for row in schedule.actions:
        live = peak = 0
        for action in row:
            live += action.kind == "F"
            peak = max(peak, live)
            live -= action.kind in "BW"
        peaks.append(peak)
    return tuple(peaks)
