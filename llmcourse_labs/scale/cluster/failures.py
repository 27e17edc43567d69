"""How often a cluster fails, and how often to save: formulas.

Times are in seconds.  Failures are taken to come at random and without memory: the time between two
of them is exponential, and a cluster of n parts fails n times as often as one part.
"""

import math
from typing import NamedTuple

from llmcourse.base.arguments import require, require_each

DAY_S = 86_400.0


class Cause(NamedTuple):
    """A row of the published table of interruptions."""

    name: str
    part: str
    """What it belongs to: GPU, network, host, software or other."""
    count: int  # type: ignore[assignment]  # nobody counts the fields of a row
    printed_percent: float


LLAMA3_DAYS = 54
LLAMA3_GPUS = 16_384
LLAMA3_INTERRUPTIONS = (
    Cause("faulty GPU", "GPU", 148, 30.1),
    Cause("GPU HBM3 memory", "GPU", 72, 17.2),
    Cause("software bug", "software", 54, 12.9),
    Cause("network switch or cable", "network", 35, 8.4),
    Cause("unplanned host maintenance", "host", 32, 7.6),
    Cause("GPU SRAM memory", "GPU", 19, 4.5),
    Cause("GPU system processor", "GPU", 17, 4.1),
    Cause("network card", "host", 7, 1.7),
    Cause("NCCL watchdog timeout", "other", 7, 1.7),
    Cause("silent data corruption", "GPU", 6, 1.4),
    Cause("GPU thermal interface and sensor", "GPU", 6, 1.4),
    Cause("SSD", "host", 3, 0.7),
    Cause("power supply", "host", 3, 0.7),
    Cause("server chassis", "host", 2, 0.5),
    Cause("IO expansion board", "host", 2, 0.5),
    Cause("dependency", "software", 2, 0.5),
    Cause("CPU", "host", 2, 0.5),
    Cause("system memory", "host", 2, 0.5),
)
"""The 419 unexpected interruptions in 54 days of training Llama 3 405B on 16,384 GPUs.

Source: Grattafiori et al. 2024, table 5, https://arxiv.org/abs/2407.21783; its first percentage
does not fit its count.
"""


def mean_time_between(num_failures: int, duration_s: int | float) -> float:
    """Return the mean time between failures, MTBF:  duration / failures.

    Raises:
        ValueError: if a number is not positive.
    """
    require_each({"num_failures": num_failures, "duration_s": duration_s}, above=0)
    return duration_s / num_failures


def expected_share(
    interval_s: int | float, *, save_s: int | float, restart_s: int | float, mtbf_s: int | float
) -> float:
    """Return the expected share of time that is kept as training: the goodput.

    A segment is `interval_s` of training and one save.  It ends only when no failure comes; each
    failure costs what was done since the last save, and a restart, during which it may fail again.
    With M the MTBF, a segment takes on average::

        M e^(restart / M) (e^((interval + save) / M) - 1)

    Args:
        interval_s: training between two saves, positive.
        save_s: time in which training stands still for a save, 0 or more.
        restart_s: from a failure to the first step after it, 0 or more.
        mtbf_s: mean time between failures of the whole cluster, positive.

    Raises:
        ValueError: if a number is outside its range.

    Source:
        Daly 2006, equation 13, https://doi.org/10.1016/j.future.2004.11.016
    """
    require_each({"interval_s": interval_s, "mtbf_s": mtbf_s}, above=0)
    require_each({"save_s": save_s, "restart_s": restart_s}, least=0)
    # In logarithms, since e^(days / minutes) is more than a float holds.
    exponent = (interval_s + save_s) / mtbf_s
    log_segment = math.log(mtbf_s) + restart_s / mtbf_s
    log_segment += exponent + math.log(-math.expm1(-exponent))
    return math.exp(math.log(interval_s) - log_segment)


def time_shares(
    interval_s: int | float, *, save_s: int | float, restart_s: int | float, mtbf_s: int | float
) -> dict[str, float]:
    """Return the expected shares of time by what becomes of it; they add up to 1.

    Those of `expected_share`'s model.  With M the MTBF, a share 1 - e^(-restart / M) goes
    to restarts.  Of the rest, saves take::

        e^(-interval / M) (1 - e^(-save / M)) / (1 - e^(-(interval + save) / M))

    Saves that a failure cuts off count as saves; training that was not saved is lost.  Arguments
    and errors as in `expected_share`.
    """
    trained = expected_share(interval_s, save_s=save_s, restart_s=restart_s, mtbf_s=mtbf_s)
    restarting = _fails_within(restart_s, mtbf_s)
    reaches = math.exp(-interval_s / mtbf_s)  # the probability that a segment comes to its save
    saving = (1 - restarting) * reaches * _fails_within(save_s, mtbf_s)
    saving /= _fails_within(interval_s + save_s, mtbf_s)
    return {
        "trained": trained,
        "saving": saving,
        "lost": max(0.0, 1 - restarting - saving - trained),
        "restarting": restarting,
    }


def _fails_within(time_s: int | float, mtbf_s: int | float) -> float:
    """Return the probability of a failure within some time."""
    return 0.0 - math.expm1(-time_s / mtbf_s)


def young_interval(save_s: int | float, mtbf_s: int | float) -> float:
    """Return Young's estimate of the best interval:  sqrt(2 save MTBF).

    Raises:
        ValueError: if a number is not positive.

    Source:
        Young 1974, https://doi.org/10.1145/361147.361115
    """
    require_each({"save_s": save_s, "mtbf_s": mtbf_s}, above=0)
    return math.sqrt(2 * save_s * mtbf_s)


def daly_interval(save_s: int | float, mtbf_s: int | float) -> float:
    """Return Daly's estimate, good for long saves, too::

        sqrt(2 s M) (1 + sqrt(s / 2M) / 3 + (s / 2M) / 9) - s     for s < 2M;   M otherwise

    Raises:
        ValueError: if a number is not positive.

    Source:
        Daly 2006, equation 37, https://doi.org/10.1016/j.future.2004.11.016
    """
    require_each({"save_s": save_s, "mtbf_s": mtbf_s}, above=0)
    if save_s >= 2 * mtbf_s:
        return float(mtbf_s)
    ratio = save_s / (2 * mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def best_interval(save_s: int | float, mtbf_s: int | float, *, tolerance: float = 1e-9) -> float:
    """Return the interval with the largest `expected_share`, by halving.

    The restart does not matter for it.  The share rises up to the best interval and falls after it;
    its slope has the sign of  1 - e^(-(x + s) / M) - x / M.

    Raises:
        ValueError: if a number is not positive.
    """
    require_each({"save_s": save_s, "mtbf_s": mtbf_s, "tolerance": tolerance}, above=0)
    low, high = 0.0, float(mtbf_s)  # at the MTBF the slope is negative, whatever the save costs
    while high - low > tolerance * high:
        middle = (low + high) / 2
        rises = -math.expm1(-(middle + save_s) / mtbf_s) > middle / mtbf_s
        low, high = (middle, high) if rises else (low, middle)
    return (low + high) / 2


def seconds_for_share(lost_share: int | float, failures_per_day: int | float) -> float:
    """Return how long a failure may cost for a share of the time to be lost to all of them.

    Raises:
        ValueError: if the share is not in (0, 1) or the failures are not positive.
    """
    require("lost_share", lost_share, above=0, below=1)
    require_each({"failures_per_day": failures_per_day}, above=0)
    return lost_share * DAY_S / failures_per_day
