"""What a scheduler is given, and what it tells: nodes, jobs, a policy, and the account of it all.

Time runs in whole seconds, as it does in Slurm.  So sums are exact, and no GPU-second is lost to
rounding.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from llmcourse.base.arguments import require_fields

STATES = ("idle", "reserved", "working", "lost", "restarting", "down")
"""What a node can be doing.

    idle        free, and no job waits
    reserved    free or held while a job waits for more nodes than there are
    working     work that is kept: saved, finished, or still going at the end
    lost        work since the last checkpoint, when a failure or a preemption came
    restarting  from the start on new nodes to the first step after the checkpoint
    down        failed, and not yet repaired
"""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Nodes in racks; the nodes of a rack share a leaf switch, and are numbered in a row."""

    racks: int
    """How many racks, each with one leaf switch."""
    nodes_per_rack: int
    """Nodes below one leaf switch."""
    gpus_per_node: int = 8
    """GPUs of each node."""
    mtbf_s: int | None = None
    """Mean seconds from the start, or a repair, of one node to its next failure; None: no such."""
    failures: tuple[tuple[int, int], ...] = ()
    """Failures that are known: (second, node)."""
    repair_s: int = 0
    """Seconds for which a failed node is down."""

    def __post_init__(self) -> None:
        """Reject fleets that cannot be, or settings without an effect."""
        require_fields(self, "racks", "nodes_per_rack", "gpus_per_node", "mtbf_s", least=1)
        require_fields(self, "repair_s", least=0)
        for second, node in self.failures:
            if second < 0 or not 0 <= node < self.nodes:
                raise ValueError(
                    f"failures must be (second, node) with a second of 0 or more and a node from 0 "
                    f"to {self.nodes - 1}, got ({second}, {node})"
                )
        if self.repair_s and self.mtbf_s is None and not self.failures:
            raise ValueError("repair_s has no effect when no node fails: give mtbf_s or failures")

    @property
    def nodes(self) -> int:
        """All nodes."""
        return self.racks * self.nodes_per_rack

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    def rack_of(self, node: int) -> int:
        """The rack, and so the leaf switch, of a node."""
        return node // self.nodes_per_rack


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a user asks for."""

    name: str
    """A name that no other job has."""
    nodes: int
    """Nodes that it needs, all at the same time."""
    duration_s: int
    """Seconds of work on these nodes; also the time limit that the user gave."""
    arrival_s: int = 0
    """When it joins the queue."""
    priority: int = 0
    """Jobs of a higher priority stand before all others in the queue."""
    checkpoint_s: int | None = None
    """Seconds of work between two checkpoints; None: it saves nothing, and starts from zero.

    A save itself takes no time here; chapter 31 counts it."""
    restart_s: int = 0
    """Seconds from a start after a failure or a preemption to the first step."""

    def __post_init__(self) -> None:
        """Reject jobs that cannot be."""
        require_fields(self, "nodes", "duration_s", "checkpoint_s", least=1)
        require_fields(self, "arrival_s", "restart_s", least=0)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How nodes are given to jobs; without any setting: first come, first served, in gangs."""

    placement: Literal["gang", "one_by_one"] = "gang"
    """All nodes of a job at once or none; or each as soon as there is one, and the job holds it."""
    backfill: bool = False
    """Whether a job may overtake, if the first in the queue starts no later for it (EASY)."""
    topology: bool = False
    """Whether a job gets nodes below as few leaf switches as possible."""
    preemption: bool = False
    """Whether jobs of a lower priority are stopped for one that does not fit otherwise."""

    def __post_init__(self) -> None:
        """Reject settings that would have no effect."""
        if self.placement not in ("gang", "one_by_one"):
            raise ValueError(f"placement must be gang or one_by_one, got {self.placement!r}")
        for name in ("backfill", "topology", "preemption"):
            if getattr(self, name) and self.placement == "one_by_one":
                raise ValueError(f"{name} has no effect with placement one_by_one: use gang")


class Segment(NamedTuple):
    """A stretch of time in which one node did one thing."""

    node: int
    start_s: int
    end_s: int
    state: str
    """One of `STATES`."""
    job: str | None
    """The job that had the node."""


@dataclass(kw_only=True)
class JobRecord:
    """What a job went through."""

    started_s: int | None = None
    """When it first had all its nodes."""
    finished_s: int | None = None
    """When it was done; None: it was not."""
    waited_s: int = 0
    """Time in the queue, after failures and preemptions, too."""
    num_failures: int = 0
    """Times that a node failed under it."""
    num_preemptions: int = 0
    """Times that it was stopped for another job."""
    leaf_switches: tuple[int, ...] = ()
    """How many leaf switches its nodes had, for each of its starts."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of every job, and of every GPU-second."""

    fleet: Fleet
    """Where it happened."""
    end_s: int
    """When the account was closed."""
    jobs: dict[str, JobRecord]
    """Each job by its name."""
    segments: tuple[Segment, ...]
    """For every node, stretches from 0 to the end without a gap."""

    def gpu_seconds(self) -> dict[str, int]:
        """Return the GPU-seconds in each state; they add up to GPUs x time, exactly."""
        found = dict.fromkeys(STATES, 0)
        for segment in self.segments:
            found[segment.state] += (segment.end_s - segment.start_s) * self.fleet.gpus_per_node
        return found

    @property
    def goodput(self) -> int | float:
        """Work that was kept, as a share of all GPU-seconds; 0 if no time passed."""
        return self.end_s and self.gpu_seconds()["working"] / (self.fleet.gpus * self.end_s)

    @property
    def unfinished(self) -> list[str]:
        """Jobs that were not done at the end.

        Without `until_s`, `schedule` ends when nothing more can happen: these then wait for ever.
        """
        return [name for name, record in self.jobs.items() if record.finished_s is None]
