"""One job, one failed node, three answers: take a spare, wait for the repair, or shrink.

All three go back to the last checkpoint and pay for a restart, because a synchronous step needs all
its ranks.  They differ in who stands idle until the node is repaired.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llmcourse.base.arguments import require_fields

ANSWERS = ("spare", "wait", "shrink")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A job of replicas with as many nodes each, some spare nodes, and one failure."""

    replicas: int
    """Copies of the model; each is a whole number of nodes."""
    replica_nodes: int
    """Nodes of one replica."""
    spares: int
    """Nodes that stand by."""
    checkpoint_s: int
    """Seconds of work between two checkpoints."""
    fails_s: int
    """When a node of the first replica fails."""
    restart_s: int
    """From a start to the first step."""
    repair_s: int
    """Until the node is back."""
    until_s: int
    """When the account is closed."""

    def __post_init__(self) -> None:
        """Reject numbers that cannot be."""
        require_fields(
            self, "replicas", "replica_nodes", "checkpoint_s", "fails_s", "until_s", least=1
        )
        require_fields(self, "spares", "restart_s", "repair_s", least=0)
        require_fields(self, "fails_s", below=self.until_s)


class Stretch(NamedTuple):
    """Some nodes that do the same thing for a while."""

    group: str
    """failed: the node; mates: the rest of its replica; others: all other replicas; spares."""
    nodes: int
    start_s: int
    end_s: int
    state: str
    """One of `scheduler.STATES`."""


_Ends = tuple[tuple[int, str], ...]
"""What somebody does, each up to a second."""


def after_failure(failure: Failure, answer: str) -> list[Stretch]:
    """Tell what every group of nodes does, from 0 to `until_s`.

    The job starts at 0 and works to the end.  With "spare", a spare takes the place of the failed
    node, which later stands by itself.  With "wait", the job holds its nodes until the repair.
    With "shrink", the other replicas go on at once; the first one returns at their first checkpoint
    after the repair, so that nothing is lost, and all pay for another restart.

    Raises:
        ValueError: if there is no such answer, no spare to take, or no replica to go on with.
    """
    if answer not in ANSWERS:
        raise ValueError(f"answer must be one of {', '.join(ANSWERS)}, got {answer!r}")
    if answer == "spare" and not failure.spares:
        raise ValueError("spares is 0, so there is no spare to take: keep one, or wait or shrink")
    if answer == "shrink" and failure.replicas == 1:
        raise ValueError("replicas is 1, and a job cannot shrink to none: take a spare or wait")
    f, found = failure, _Stretches(failure)
    back_s = f.fails_s + f.repair_s
    # All replicas work up to the failure; what came after the last checkpoint is lost.
    lost_from = f.fails_s - f.fails_s % f.checkpoint_s
    before = ((lost_from, "working"), (f.fails_s, "lost"))
    found.add("spares", f.spares - (answer == "spare"), ((f.until_s, "idle"),))
    if answer == "spare":
        # Nobody waits: the spare comes in at once, and the repaired node takes its place later.
        again: _Ends = (*before, (f.fails_s + f.restart_s, "restarting"), (f.until_s, "working"))
        found.add("spares", 1, ((f.fails_s, "idle"), *again[2:]))
        found.add("failed", 1, (*before, (back_s, "down"), (f.until_s, "idle")))
        found.add("mates", f.replica_nodes - 1, again)
        found.add("others", (f.replicas - 1) * f.replica_nodes, again)
        return found.all
    if answer == "wait":
        joins_s = back_s
        others: _Ends = (*before, (joins_s, "reserved"))
    else:
        first_s = f.fails_s + f.restart_s
        # The first checkpoint after the repair, counted from the restart: a division rounded up.
        saves = max(0, -(-(back_s - first_s) // f.checkpoint_s))
        joins_s = first_s + saves * f.checkpoint_s
        others = (*before, (first_s, "restarting"), (joins_s, "working"))
    # From here on the two answers are alike: all replicas restart when the node joins.
    again = ((joins_s + f.restart_s, "restarting"), (f.until_s, "working"))
    found.add("failed", 1, (*before, (back_s, "down"), (joins_s, "reserved"), *again))
    found.add("mates", f.replica_nodes - 1, (*before, (joins_s, "reserved"), *again))
    found.add("others", (f.replicas - 1) * f.replica_nodes, (*others, *again))
    return found.all


class _Stretches:
    """Collects stretches, cut at the end of the account."""

    def __init__(self, failure: Failure) -> None:
        self.until_s = failure.until_s
        self.all: list[Stretch] = []

    def add(self, group: str, nodes: int, ends: _Ends) -> None:
        """Add what some nodes do, each up to a second; what ends before it began is left out."""
        now_s = 0
        for end_s, state in ends:
            if nodes and min(end_s, self.until_s) > now_s:
                self.all.append(Stretch(group, nodes, now_s, min(end_s, self.until_s), state))
                now_s = min(end_s, self.until_s)


def node_seconds(stretches: list[Stretch]) -> dict[str, int]:
    """Return the node-seconds in each state; they add up to nodes x time."""
    found: dict[str, int] = {}
    for stretch in stretches:
        spent = stretch.nodes * (stretch.end_s - stretch.start_s)
        found[stretch.state] = found.get(stretch.state, 0) + spent
    return found
