"""Whether a schedule can be run, and if not, why: what is missing, wrong, or waits for ever.

The model of messages: a send never waits, since it leaves a copy; a receive waits until the message
is there.  A rank does its actions one after the other.
"""

from collections import Counter
from typing import NamedTuple

from llmcourse.parallel.pipeline.schedules import KINDS, Action, Schedule, stage_at


class ScheduleSlot(NamedTuple):
    """One action of one rank."""

    rank: int
    action: Action


def validate(schedule: Schedule) -> None:
    """Return if the schedule can be run to its end.

    Raises:
        ValueError: if actions have numbers that do not exist, are missing or there twice, stand
            before another one of the same rank that they need, or if ranks wait for each other for
            ever; the message names ranks and actions, at most five of them.
    """
    faults = problems(schedule)
    if faults:
        more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
        raise ValueError(
            f"the schedule {schedule.name} cannot be run: " + "; ".join(faults[:5] + more)
        )


def problems(schedule: Schedule) -> list[str]:
    """Return what is wrong with a schedule, in words; nothing if it can be run.

    Later kinds of faults are looked for only where there are none of the earlier ones: numbers that
    do not exist, missing and double actions, order within a rank, deadlock.
    """
    for look in (_wrong_numbers, _wrong_counts, _wrong_order, _deadlock):
        faults = look(schedule)
        if faults:
            return faults
    return []


def needs(schedule: Schedule, rank: int, action: Action) -> ScheduleSlot | None:
    """Return the action whose message an action has to wait for, None if it waits for none.

    Forward needs the activations of the stage before, backward the gradient of the stage after.
    """
    step = {"F": -1, "B": 1, "I": 1, "W": 0}[action.kind]
    stage = schedule.stage(rank, action) + step
    if step == 0 or not 0 <= stage < schedule.num_stages:
        return None
    chunk, at = divmod(stage, schedule.num_ranks)
    source = stage_at(at, chunk, schedule.num_ranks, v_shape=schedule.v_shape) % schedule.num_ranks
    if action.kind == "F":
        return ScheduleSlot(source, Action("F", action.micro_batch, chunk))
    whole = Action("B", action.micro_batch, chunk)
    return ScheduleSlot(
        source, whole if whole in schedule.actions[source] else whole._replace(kind="I")
    )


def run_order(schedule: Schedule) -> tuple[list[ScheduleSlot], dict[int, int]]:
    """Let every rank go as far as it can, and return what was done and who is stuck.

    Returns:
        All actions in an order in which they can happen, and for every rank that is stuck the
        index of the action that it cannot begin.
    """
    # An action that waits for no message wants None, which counts as done from the start.
    done: set[ScheduleSlot | None] = {None}
    rows, order = schedule.actions, []
    at = dict.fromkeys(range(schedule.num_ranks), 0)
    wants = [[needs(schedule, rank, action) for action in row] for rank, row in enumerate(rows)]
    # Round after round, until nobody moves: who is not at the end by then waits for ever.
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and wants[rank][at[rank]] in done:
                place = ScheduleSlot(rank, row[at[rank]])
                done.add(place)
                order.append(place)
                at[rank] += 1
                moved = True
    return order, {rank: index for rank, index in at.items() if index < len(rows[rank])}


def _wrong_numbers(schedule: Schedule) -> list[str]:
    if len(schedule.actions) != schedule.num_ranks:
        return [f"it has {len(schedule.actions)} rows for {schedule.num_ranks} ranks"]
    faults = []
    for rank, row in enumerate(schedule.actions):
        for index, action in enumerate(row):
            where = f"rank {rank}, action {index} ({action})"
            if action.kind not in KINDS:
                faults.append(f"{where}: the kind must be one of {', '.join(KINDS)}")
            elif not 0 <= action.micro_batch < schedule.num_micro_batches:
                faults.append(f"{where}: micro-batches are 0 to {schedule.num_micro_batches - 1}")
            elif not 0 <= action.chunk < schedule.num_chunks:
                faults.append(f"{where}: chunks are 0 to {schedule.num_chunks - 1}")
    return faults


def _wrong_counts(schedule: Schedule) -> list[str]:
    faults = []
    for rank, row in enumerate(schedule.actions):
        count = Counter(row)
        faults += [f"rank {rank} does {a} {n} times" for a, n in count.items() if n > 1]
        for chunk in range(schedule.num_chunks):
            for k in range(schedule.num_micro_batches):
                there = "".join(kind for kind in KINDS if Action(kind, k, chunk) in count)
                faults += _wrong_parts(rank, Action("F", k, chunk), there)
    return faults


def _wrong_parts(rank: int, forward: Action, there: str) -> list[str]:
    """Say which parts of a micro-batch's way through a chunk are missing, or one too many."""
    if there in ("FB", "FIW"):
        return []
    backward = "I and W" if "I" in there or "W" in there else "B"
    if "B" in there and backward != "B":
        return [f"rank {rank} does {forward._replace(kind='B')} and parts of it (I, W): choose one"]
    wanted = {"B": "FB", "I and W": "FIW"}[backward]
    missing = [str(forward._replace(kind=kind)) for kind in wanted if kind not in there]
    return [f"rank {rank} never does {name}" for name in missing]


def _wrong_order(schedule: Schedule) -> list[str]:
    faults = []
    for rank, row in enumerate(schedule.actions):
        index = {action: i for i, action in enumerate(row)}
        for action in row:
            first = action._replace(kind={"B": "F", "I": "F", "W": "I"}.get(action.kind, "F"))
            if index[first] > index[action]:
                faults.append(
                    f"rank {rank} does {action} (action {index[action]}) before its {first} "
                    f"(action {index[first]})"
                )
    return faults


def _deadlock(schedule: Schedule) -> list[str]:
    _, stuck = run_order(schedule)
    if not stuck:
        return []
    # Every rank that is stuck waits for one other that is: following them ends in a circle.
    at = {rank: schedule.actions[rank][index] for rank, index in stuck.items()}
    wants = {rank: slot for rank, action in at.items() if (slot := needs(schedule, rank, action))}
    way = [next(iter(stuck))]
    while way.count(way[-1]) < 2:
        way.append(wants[way[-1]].rank)
    circle = way[way.index(way[-1]) : -1]
    waits = []
    for rank in circle:
        action, wanted = at[rank], wants[rank]
        what = "activations" if action.kind == "F" else "gradient"
        later = schedule.actions[wanted.rank].index(wanted.action)
        waits.append(
            f"rank {rank} at action {stuck[rank]} ({action}) waits for the {what} of "
            f"{wanted.action} of rank {wanted.rank}, its action {later}"
        )
    return ["deadlock, " + ", and ".join(waits)]
