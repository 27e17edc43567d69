"""A widget about goodput: how often to save on a cluster that fails."""

from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cluster
from llmcourse_labs.scale.cluster.failures import DAY_S, LLAMA3_DAYS, LLAMA3_GPUS

HOUR_S = 3_600.0
CURVE = ("gpus", "gpu_mtbf_h", "save_s", "restart_s")
"""What the curve depends on; the interval is the place on it."""


def _published_hours() -> int:
    """Return the hours between two failures of one GPU in the published 54 days."""
    counted = sum(cause.count for cause in cluster.LLAMA3_INTERRUPTIONS)
    mtbf_s = cluster.mean_time_between(counted, LLAMA3_DAYS * DAY_S)
    return round(mtbf_s * LLAMA3_GPUS / HOUR_S)


PUBLISHED = {"gpus": LLAMA3_GPUS, "gpu_mtbf_h": _published_hours()}


class GoodputPlanner(Widget):
    """The goodput of a cluster against the interval between saves.

    Args:
        state: gpus, gpu_mtbf_h (hours between two failures of one GPU), save_s (how long training
            stands still for a save), restart_s (from a failure to the next step), interval_s
            (training between two saves), kept (a second curve: gpus, gpu_mtbf_h, save_s and
            restart_s, or nothing).
    """

    script = "goodput_planner.js"
    alt = (
        "A curve of the share of time that is kept as training, against the interval between two "
        "saves.  It rises while saves take most of the time, is flat around the best interval, and "
        "falls where failures cost more and more work.  Young's rule is marked near its top.  "
        "Below, a bar of where the time goes: training, saves, work done again, restarts."
    )

    gpus = Whole(PUBLISHED["gpus"], low=1, high=1_000_000, step=1, label="GPUs")
    gpu_mtbf_h = Whole(
        PUBLISHED["gpu_mtbf_h"],
        low=1_000,
        high=1_000_000,
        step=1,
        label="MTBF of one GPU, hours",
    )
    save_s = Limited(30, low=0.1, high=3_600, step=0.1, label="seconds for a save")
    restart_s = Limited(300, low=0, high=7_200, step=10, label="seconds to restart")
    interval_s = Limited(3_600, low=10, high=604_800, step=1, label="seconds between saves")
    kept = traitlets.Dict().tag(sync=True)
    published = traitlets.Dict(PUBLISHED).tag(sync=True)

    @traitlets.validate("kept")
    def _check_kept(self, proposal: dict[str, Any]) -> dict[str, Any]:
        kept = proposal["value"]
        if kept and set(kept) != set(CURVE):
            raise traitlets.TraitError(f"kept must have {', '.join(CURVE)}, or nothing; got {kept}")
        for name, value in kept.items():
            trait = self.traits()[name]
            if not isinstance(value, int | float) or not trait.low <= value <= trait.high:
                raise traitlets.TraitError(
                    f"{name} of kept must be from {trait.low} to {trait.high}, got {value!r}"
                )
        return kept
