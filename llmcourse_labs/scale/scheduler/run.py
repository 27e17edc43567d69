"""The scheduler itself: a discrete-event simulation on SimPy.

Nothing happens between two events: an arrival, an end, a failure or a repair.  When all events of a
second have happened, the queue is looked through once.
"""

import bisect
import math
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy
import torch

from llmcourse_labs.scale.scheduler.settings import Fleet, Job, JobRecord, Policy, Result, Segment

Steps = Generator[simpy.Event, Any, None]


def schedule(
    jobs: Sequence[Job],
    fleet: Fleet,
    policy: Policy | None = None,
    *,
    until_s: int | None = None,
    generator: torch.Generator | None = None,
) -> Result:
    """Follow jobs through a cluster.

    Jobs stand in the queue by priority, then by arrival.  When a node fails, its whole job stops,
    loses what it did since its last checkpoint, gives all its nodes back, and returns to its place
    in the queue; it goes on from the checkpoint on any nodes.  So does a job that is preempted.

    Args:
        jobs: in the order of the queue where priority and arrival are equal.
        fleet: the nodes.
        policy: how nodes are given away; None is first come, first served, in gangs.
        until_s: when the account is closed; None: when nothing more can happen.
        generator: of the moments of failure, for `Fleet.mtbf_s`.

    Raises:
        ValueError: if a job could never start, two have one name, or until_s or generator is
            missing although nodes fail at random.
    """
    count = Counter(job.name for job in jobs)
    for job in jobs:
        if count[job.name] > 1:
            raise ValueError(f"two jobs have the name {job.name!r}: give each its own")
        if job.nodes > fleet.nodes:
            raise ValueError(
                f"job {job.name!r} wants {job.nodes} nodes and could never start: the cluster has "
                f"{fleet.nodes}; ask for at most as many"
            )
    if fleet.mtbf_s is not None and (until_s is None or generator is None):
        raise ValueError("nodes that fail at random (mtbf_s) never stop: give until_s, generator")
    if until_s is not None and until_s < 1:
        raise ValueError(f"until_s must be 1 or greater, got {until_s}")
    floor = _Floor(jobs, fleet, policy or Policy(), generator)
    floor.follow(math.inf if until_s is None else until_s)
    return floor.close(floor.now_s if until_s is None else until_s)


@dataclass(kw_only=True)
class _Entry:
    """A job in the queue, or on its nodes."""

    job: Job
    rank: tuple[int, int, int]
    """Its place in the queue: priority, arrival, number."""
    since_s: int
    """When it joined the queue, or was started."""
    nodes: list[int] = field(default_factory=list)
    done_s: int = 0
    """Work that is saved."""
    restart_s: int = 0
    process: simpy.Process | None = None

    @property
    def length_s(self) -> int:
        """How long it takes from its start, if nothing fails."""
        return self.restart_s + self.job.duration_s - self.done_s


class _Floor:
    """The state of the cluster, and what changes it."""

    def __init__(
        self, jobs: Sequence[Job], fleet: Fleet, policy: Policy, generator: torch.Generator | None
    ) -> None:
        self.env = simpy.Environment()
        self.fleet, self.policy, self.generator = fleet, policy, generator
        self.records = {job.name: JobRecord() for job in jobs}
        self.queue: list[_Entry] = []
        self.free = list(range(fleet.nodes))  # in the order in which they became free
        self.running: dict[int, _Entry] = {}  # by node
        self.back_at: dict[int, int] = {}  # of nodes that are down
        self.doing: list[tuple[str, int, str | None]] = [("idle", 0, None)] * fleet.nodes
        self.segments: list[Segment] = []
        self.will_look = False
        for number, job in enumerate(jobs):
            self.env.process(self._arrive(job, number))
        for second, node in fleet.failures:
            self.env.process(self._known_failure(second, node))
        if fleet.mtbf_s is not None:
            for node in range(fleet.nodes):
                self.env.process(self._random_failures(node, fleet.mtbf_s))

    @property
    def now_s(self) -> int:
        """The second that it is: SimPy allows fractions, and nothing here waits for one."""
        return int(self.env.now)

    def follow(self, until_s: int | float) -> None:
        """Let all happen up to a second, that one included."""
        while (at := self.env.peek()) <= until_s and at < math.inf:
            self.env.step()

    # ---- what happens

    def _arrive(self, job: Job, number: int) -> Steps:
        yield self.env.timeout(job.arrival_s)
        rank = (-job.priority, job.arrival_s, number)
        self._join(_Entry(job=job, rank=rank, since_s=self.now_s))

    def _work(self, entry: _Entry) -> Steps:
        try:
            yield self.env.timeout(entry.length_s)
        except simpy.Interrupt:
            return  # whoever stopped it has done the account
        self._leave(entry, kept_s=None)
        self.records[entry.job.name].finished_s = self.now_s

    def _random_failures(self, node: int, mtbf_s: int) -> Steps:
        while True:
            draw = torch.empty((), dtype=torch.float64).exponential_(generator=self.generator)
            yield self.env.timeout(max(1, round(mtbf_s * float(draw))))
            yield from self._outage(node)

    def _known_failure(self, second: int, node: int) -> Steps:
        yield self.env.timeout(second)
        yield from self._outage(node)

    def _outage(self, node: int) -> Steps:
        """Let a node fail, and come back repaired; one that is down already cannot fail."""
        if node in self.back_at:
            return
        if entry := self.running.get(node):
            self.records[entry.job.name].num_failures += 1
            self._stop(entry)
        for nodes in (self.free, *(entry.nodes for entry in self.queue)):
            if node in nodes:
                nodes.remove(node)
        self.back_at[node] = self.now_s + self.fleet.repair_s
        self._mark(node, "down")
        self._look_soon()
        yield self.env.timeout(self.fleet.repair_s)
        del self.back_at[node]
        self.free.append(node)
        self._look_soon()

    def _join(self, entry: _Entry) -> None:
        bisect.insort(self.queue, entry, key=lambda waiting: waiting.rank)
        self._look_soon()

    def _start(self, entry: _Entry, nodes: list[int]) -> None:
        self.queue.remove(entry)
        record = self.records[entry.job.name]
        if record.started_s is None:
            record.started_s = self.now_s
        record.waited_s += self.now_s - entry.since_s
        record.leaf_switches += (len({self.fleet.rack_of(node) for node in nodes}),)
        entry.nodes, entry.since_s = nodes, self.now_s
        for node in nodes:
            self.running[node] = entry
            self._mark(node, "running", entry.job.name)
        entry.process = self.env.process(self._work(entry))

    def _stop(self, entry: _Entry) -> None:
        """End a job before its time: it goes back into the queue, and to its last checkpoint."""
        worked_s = max(0, self.now_s - entry.since_s - entry.restart_s)
        every_s = entry.job.checkpoint_s or entry.job.duration_s + 1
        done_s = (entry.done_s + worked_s) // every_s * every_s
        self._leave(entry, kept_s=done_s - entry.done_s)
        assert entry.process is not None  # it runs
        entry.process.interrupt()
        entry.done_s, entry.restart_s = done_s, entry.job.restart_s
        entry.since_s = self.now_s
        self._join(entry)

    def _leave(self, entry: _Entry, *, kept_s: int | None) -> None:
        """Give the nodes of a job back, and account for its time on them, see `_account`."""
        self._account(entry, self.now_s, kept_s)
        for node in entry.nodes:
            del self.running[node]
            self.doing[node] = ("idle", self.now_s, None)
        self.free += entry.nodes
        entry.nodes = []
        self._look_soon()

    # ---- who gets nodes

    def _look_soon(self) -> None:
        """Look through the queue when all else of this second has happened."""
        if not self.will_look:
            self.will_look = True
            self.env.process(self._look_through())

    def _look_through(self) -> Steps:
        yield self.env.timeout(0)
        self.will_look = False
        if self.policy.placement == "one_by_one":
            self._hand_out()
        else:
            self._start_gangs()
        for node in self.free:
            self._mark(node, "reserved" if self.queue else "idle")

    def _hand_out(self) -> None:
        """Give free nodes away one by one; jobs that arrived together take turns."""
        wanted = [
            (*entry.rank[:2], turn, place)
            for place, entry in enumerate(self.queue)
            for turn in range(len(entry.nodes), entry.job.nodes)
        ]
        for *_, place in sorted(wanted)[: len(self.free)]:
            self.queue[place].nodes.append(self.free.pop(0))
        for entry in list(self.queue):
            if len(entry.nodes) == entry.job.nodes:
                self._start(entry, entry.nodes)
            for node in entry.nodes if entry in self.queue else ():
                self._mark(node, "reserved", entry.job.name)

    def _start_gangs(self) -> None:
        while self.queue:
            first = self.queue[0]
            for victim in self._victims(first.job):
                self.records[victim.job.name].num_preemptions += 1
                self._stop(victim)
            if first.job.nodes > len(self.free):
                break
            self._start(first, self._take(first.job.nodes))
        if self.queue and self.policy.backfill:
            self._backfill()

    def _victims(self, job: Job) -> list[_Entry]:
        """Choose jobs to stop: the lowest priority first, of these the latest; or none."""
        running = {entry.rank: entry for entry in self.running.values()}.values()
        below = [entry for entry in running if entry.job.priority < job.priority]
        below.sort(key=lambda e: (e.job.priority, -e.since_s, e.rank))
        found, nodes = [], len(self.free)
        while below and nodes < job.nodes:
            found.append(below.pop(0))
            nodes += len(found[-1].nodes)
        return found if self.policy.preemption and nodes >= job.nodes else []

    def _backfill(self) -> None:
        """Start jobs behind the first, if it can start as early as without them."""
        wanted = self.queue[0].job.nodes
        ends = [(entry.since_s + entry.length_s, node) for node, entry in self.running.items()]
        coming = sorted(ends + [(second, node) for node, second in self.back_at.items()])
        starts_s, _ = coming[wanted - len(self.free) - 1]
        left_over = len(self.free) + sum(at <= starts_s for at, _ in coming) - wanted
        for entry in self.queue[1:]:
            nodes, ends_before = entry.job.nodes, self.now_s + entry.length_s <= starts_s
            if nodes <= len(self.free) and (ends_before or nodes <= left_over):
                left_over -= 0 if ends_before else nodes
                self._start(entry, self._take(nodes))

    def _take(self, count: int) -> list[int]:
        """Take free nodes: those free for longest, or those below the fewest leaf switches."""
        chosen = [] if self.policy.topology else self.free[:count]
        racks: dict[int, list[int]] = {}
        for node in sorted(self.free):
            racks.setdefault(self.fleet.rack_of(node), []).append(node)
        left = sorted(racks.values(), key=len)
        while len(chosen) < count:
            need = count - len(chosen)
            # The tightest rack that is enough, or else the fullest.
            rack = next((nodes for nodes in left if len(nodes) >= need), left[-1])
            left.remove(rack)
            chosen += rack[:need]
        self.free = [node for node in self.free if node not in chosen]
        return chosen

    # ---- the account

    def _mark(self, node: int, state: str, job: str | None = None) -> None:
        """Note that a node does something else from now on."""
        was, since_s, of = self.doing[node]
        if (was, of) != (state, job):
            self._write(node, since_s, self.now_s, was, of)
            self.doing[node] = (state, self.now_s, job)

    def _write(self, node: int, start_s: int, end_s: int, state: str, job: str | None) -> None:
        if end_s > start_s:
            self.segments.append(Segment(node, start_s, end_s, state, job))

    def _account(self, entry: _Entry, now_s: int, kept_s: int | None) -> None:
        """Write where a job's time went: restarting, working for `kept_s` (None is all), lost."""
        works_from = min(entry.since_s + entry.restart_s, now_s)
        lost_from = now_s if kept_s is None else min(works_from + kept_s, now_s)
        for node in entry.nodes:
            self._write(node, entry.since_s, works_from, "restarting", entry.job.name)
            self._write(node, works_from, lost_from, "working", entry.job.name)
            self._write(node, lost_from, now_s, "lost", entry.job.name)

    def close(self, end_s: int) -> Result:
        """End the account; what still runs counts as kept."""
        for entry in {entry.rank: entry for entry in self.running.values()}.values():
            self._account(entry, end_s, None)
        for node, (state, since_s, job) in enumerate(self.doing):
            if state != "running":
                self._write(node, since_s, end_s, state, job)
        for entry in self.queue:
            self.records[entry.job.name].waited_s += end_s - entry.since_s
        return Result(
            fleet=self.fleet,
            end_s=end_s,
            jobs=self.records,
            segments=tuple(sorted(self.segments, key=lambda segment: segment[:3])),
        )
