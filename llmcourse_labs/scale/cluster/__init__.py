"""A cluster on paper: how often it fails, and what of its time is left for training.

Taught in: chapters/31_failures.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.cluster.failures import (
        DAY_S,
        LLAMA3_DAYS,
        LLAMA3_GPUS,
        LLAMA3_INTERRUPTIONS,
        Cause,
        best_interval,
        daly_interval,
        expected_share,
        mean_time_between,
        seconds_for_share,
        young_interval,
    )
    from llmcourse_labs.scale.cluster.simulation import Faults, Outcome, simulate

lazy(__name__)
