"""A cluster on paper: how often it fails, and what of its time is left for training.

Taught in: chapters/31_failures.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.cluster.failures import (
        LLAMA3_INTERRUPTIONS,
        Cause,
        best_interval,
        daly_interval,
        expected_share,
        mean_time_between,
        seconds_for_share,
        young_interval,
    )
    from llmcourse.cluster.simulation import Faults, Outcome, simulate

__all__ = [
    "LLAMA3_INTERRUPTIONS",
    "Cause",
    "Faults",
    "Outcome",
    "best_interval",
    "daly_interval",
    "expected_share",
    "mean_time_between",
    "seconds_for_share",
    "simulate",
    "young_interval",
]

lazy(__name__)
