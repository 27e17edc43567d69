"""A widget about fine-tuning: what runs have learnt, and what they have forgotten."""

from collections.abc import Mapping
from typing import Any

import traitlets

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.tuning import check, make_tasks

TEST_SEED = 1_000
"""Of the recorded tests."""
SEEN = 3
"""Tests whose answers are seen at once."""


class TuningPlane(Widget):
    """Runs of fine-tuning on the plane of learning against forgetting.

    Args:
        state: first and second (names of two runs, such as "rank 4, rate 0.002"), every (whether
            all runs are drawn), part (three tests whose answers are shown, from 1).
    """

    script = "tuning_plane.js"
    alt = (
        "A plane: the loss on new answers to the right, the bits a byte of English upward; less of "
        "both is better, so a good run lies low on the left.  Two runs are marked.  With all runs, "
        "each way of training is a curve through its rates, and a high rate moves it up.  Below, "
        "what the two models said to three tests."
    )

    runs = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Those that did not diverge, way by way, with rising rates; points are [loss, bits, share]."""
    diverged = traitlets.List(traitlets.Unicode()).tag(sync=True)
    before = traitlets.Dict().tag(sync=True)
    """The model as it is shipped."""
    tests = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[asked, right answer] of each test whose answers are kept."""
    settings = traitlets.Dict().tag(sync=True)
    first = Named().tag(sync=True)
    second = Named().tag(sync=True)
    every = traitlets.Bool(False).tag(sync=True)
    part = Whole(1, low=1, high=99, step=1, label=f"tests, {SEEN} at a time")

    def __init__(self, **state: Any) -> None:
        found = recorded_runs("tuning")
        before, number = found["before"][""]["0"], found["settings"]["tests"]
        tests = make_tasks(number, seed=TEST_SEED, part="test")[: len(before["said"])]

        def answers(row: Mapping[str, Any]) -> dict[str, Any]:
            right = [check(task, text) for task, text in zip(tests, row["said"], strict=True)]
            return {"said": row["said"], "right": right}

        runs, diverged = [], []
        for name, rows in found["plane"].items():
            way, rate = name.split(", rate ")
            told = f"{way}, rate {_plain(float(rate))}"
            if any("diverged" in row for row in rows.values()):
                diverged.append(told)
                continue
            points = [[row["loss"], row["bits"], row["right"]] for row in rows.values()]
            run = {"name": told, "way": way, "rate": _plain(float(rate)), "points": points}
            runs.append(run | answers(next(iter(rows.values()))))
        ways = list(dict.fromkeys(run["way"] for run in runs))
        runs.sort(key=lambda run: (ways.index(run["way"]), float(run["rate"])))
        names = [run["name"] for run in runs]
        of = [[run["name"] for run in runs if run["way"] == way] for way in ways]
        super().__init__(
            runs=runs,
            diverged=diverged,
            before={key: before[key] for key in ("loss", "bits")}
            | {"share": before["right"]}
            | answers(before),
            tests=[[task.prompt, task.answer] for task in tests],
            settings={key: found["settings"][key] for key in ("trained", "tests", "steps")},
            bounds={"first": names, "second": names, "part": -(-len(tests) // SEEN)},
            **({"first": of[0][-1], "second": of[-1][(len(of[-1]) - 1) // 2]} | state),
        )


def _plain(rate: float) -> str:
    """Return a rate without an exponent."""
    return f"{rate:f}".rstrip("0")
