"""A widget that replays the whole machine of chapter 45 from its log."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget

MOST_EVENTS, MOST_RANKS, MOST_STAGES = 2_000, 8, 12
STATES = ("starting", "training", "killed", "ended")
STAGES_WITH_LOSSES = ("train", "sft", "dpo")
KINDS = {
    "begin": (),
    "end": (),
    "kept": (),
    "ranks": ("state", "number"),
    "step": ("step", "loss"),
    "saved": ("step",),
    "validation": ("step", "loss"),
    "kill": ("step",),
    "resume": ("step",),
}
"""What an event needs besides its time, its kind and its stage."""


class MachineBoard(Widget):
    """Stages, processes, losses, the crash and what came after it, event by event.

    Args:
        events: of `capstone.read_log`, 2 to 2,000 dicts, each with at (seconds since the
            beginning, not decreasing), event (a key of `KINDS`), stage, and what the kind needs.
        stages: name and title of each stage, in their order.
        mesh: ranks along dp and pp, as in {"dp": 2, "pp": 2}.
        state: event (so many of the first events are shown), of (the stage whose losses are drawn:
            train, sft or dpo).

    Raises:
        ValueError: if an event lacks something, or they do not belong together.
    """

    script = "machine_board.js"
    alt = (
        "A time line of nine stages and four processes.  In the middle of the pre-training all "
        "four processes are killed at once; they start again, go on from the last checkpoint, and "
        "the steps that they take a second time have the losses that they had before.  Below, the "
        "loss by step falls as if nothing had happened."
    )

    events = traitlets.List(traitlets.Dict()).tag(sync=True)
    stages = traitlets.List(traitlets.Dict()).tag(sync=True)
    mesh = traitlets.Dict().tag(sync=True)
    event = Whole(1, low=1, high=MOST_EVENTS, step=1, label="events of the log")
    of = Named().tag(sync=True)

    def __init__(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        stages: Mapping[str, str],
        mesh: Mapping[str, int],
        **state: Any,
    ) -> None:
        if not 1 <= len(stages) <= MOST_STAGES:
            raise ValueError(f"give 1 to {MOST_STAGES} stages, not {len(stages)}")
        if not 2 <= len(events) <= MOST_EVENTS:
            raise ValueError(f"give 2 to {MOST_EVENTS} events, not {len(events)}")
        kept = [_checked(event, stages) for event in events]
        times = [event["at"] for event in kept]
        if times != sorted(times) or times[0] < 0:
            raise ValueError("times of events begin at 0 or later and do not decrease")
        most = max((each["number"] for each in kept if each["event"] == "ranks"), default=0)
        if set(mesh) != {"dp", "pp"} or mesh["dp"] * mesh["pp"] != most:
            raise ValueError(f"the mesh {dict(mesh)} must have dp and pp for {most} processes")
        if not 1 <= most <= MOST_RANKS:
            raise ValueError(f"processes are 1 to {MOST_RANKS}, not {most}")
        super().__init__(
            events=kept,
            stages=[{"name": name, "title": title} for name, title in stages.items()],
            mesh=dict(mesh),
            bounds={"of": STAGES_WITH_LOSSES, "event": len(kept)},
            **({"event": len(kept), "of": STAGES_WITH_LOSSES[0]} | state),
        )


def _checked(event: Mapping[str, Any], stages: Mapping[str, str]) -> dict[str, Any]:
    """Return an event as the page takes it."""
    kind = event.get("event")
    if kind not in KINDS:
        raise ValueError(f"an event is one of {', '.join(KINDS)}, not {kind!r}")
    needed = ("at", "event", "stage", *KINDS[kind])
    if missing := [key for key in needed if key not in event]:
        raise ValueError(f"an event {kind!r} needs {', '.join(missing)}, too")
    if event["stage"] not in stages:
        raise ValueError(f"the stage {event['stage']!r} is none of {', '.join(stages)}")
    if kind == "ranks" and event["state"] not in STATES:
        raise ValueError(f"processes are {', '.join(STATES)}, not {event['state']!r}")
    if not all(math.isfinite(event[key]) for key in needed if key in ("at", "step", "loss")):
        raise ValueError(f"the numbers of an event {kind!r} must be finite")
    return {key: event[key] for key in needed}
