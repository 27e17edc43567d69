"""What queueing theory says of jobs of one node each, and such jobs drawn at random."""

import torch

from llmcourse.base.arguments import require, require_each
from llmcourse_labs.scale.scheduler.settings import Job


def erlang_c(offered: int | float, servers: int) -> float:
    """Return the probability that an arriving job has to wait, in the queue M/M/c.

    Arrivals come at random at a rate, services take an exponential time, and c servers serve one
    job each, first come, first served.  With a = rate x mean service, by Erlang's recursion::

        B(0) = 1;   B(k) = a B(k - 1) / (k + a B(k - 1));   C = B(c) / (1 - (a / c) (1 - B(c)))

    Args:
        offered: a, the number of servers that would be busy on average; below `servers`.
        servers: c, nodes for us.

    Raises:
        ValueError: if a is not above 0 and below c: the queue would grow for ever.

    Source:
        Erlang 1917; Kleinrock 1975, Queueing Systems 1, section 3.5
    """
    require("servers", servers, least=1)
    require("offered", offered, above=0, below=servers)
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def mean_wait_s(mean_gap_s: int | float, mean_duration_s: int | float, servers: int) -> float:
    """Return the mean time in the queue M/M/c::

        wait = C(a, c) x duration / (c - a),    a = duration / gap

    Args:
        mean_gap_s: mean seconds between two arrivals, positive.
        mean_duration_s: mean seconds of a job, positive.
        servers: nodes.

    Raises:
        ValueError: if a number is not positive, or jobs come faster than they can be served.
    """
    require_each({"mean_gap_s": mean_gap_s, "mean_duration_s": mean_duration_s}, above=0)
    offered = mean_duration_s / mean_gap_s
    return erlang_c(offered, servers) * mean_duration_s / (servers - offered)


def random_jobs(
    count: int,
    mean_gap_s: int | float,
    mean_duration_s: int | float,
    *,
    generator: torch.Generator,
) -> list[Job]:
    """Draw jobs of one node each: random arrivals, exponential durations, in whole seconds.

    Raises:
        ValueError: if a number is not positive.
    """
    require("count", count, least=1)
    require_each({"mean_gap_s": mean_gap_s, "mean_duration_s": mean_duration_s}, above=0)
    draws = torch.empty(2, count, dtype=torch.float64).exponential_(generator=generator)
    arrivals = (draws[0].cumsum(0) * mean_gap_s).round().long().tolist()
    durations = (draws[1] * mean_duration_s).round().long().clamp(min=1).tolist()
    return [
        Job(name=f"job {number}", nodes=1, arrival_s=arrival, duration_s=duration)
        for number, (arrival, duration) in enumerate(zip(arrivals, durations, strict=True))
    ]
