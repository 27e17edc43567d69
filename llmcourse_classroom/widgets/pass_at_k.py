"""A widget about several draws: how often one of them is right, before and after rewards."""

from typing import Any

import traitlets

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.tuning.arithmetic import make_sums

TEST_SEED = 2_000
"""Of the recorded sums."""
TOLD = {
    "right": "after rewards for right answers",
    "coin": "after a coin's rewards",
    "form": "after rewards for the form",
}
"""What a model is called that learnt from a reward; other rewards are called by their names."""


class PassAtK(Widget):
    """The chance of a right answer among k draws: on average as a curve, and sum by sum.

    Of each recorded reward it shows the run with the lowest seed, at its end; not those rewards
    whose runs began with another model, which cannot be compared with the one before.

    Args:
        state: k (1 to 1,024 draws), policy ("before", or the name of a reward, such as "right").
    """

    script = "pass_at_k.js"
    alt = (
        "On the left pass@k against the number of draws k, on a logarithmic axis: a curve of the "
        "model before, and one after training with rewards; one may lead with few draws and the "
        "other with many.  On the right a column for each sum, from the hardest before to the "
        "easiest, filled as high as a right answer among k draws is likely.  More draws fill most "
        "columns; a few on the left stay low."
    )

    sums = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The hardest before comes first, here and in all lists of chances."""
    before = traitlets.List(traitlets.Float()).tag(sync=True)
    policies = traitlets.List(traitlets.Dict()).tag(sync=True)
    """name, told and p, the chance that one draw is right for each sum."""
    steps = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Updates after which the policies are shown, each number once."""
    k = Whole(8, low=1, high=1_024, step=1, label="draws, k")
    policy = Named().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        found = recorded_runs("reasoning")
        before = found["start"][""]["0"]["p"]
        tests = make_sums(len(before), seed=TEST_SEED, held_out=True)
        order = sorted(range(len(before)), key=before.__getitem__)
        policies, steps = [], []
        for reward, rows in found.get("policy", {}).items():
            row = rows[min(rows, key=int)]
            if "start" in row:  # of its own
                continue
            last = max(row["steps"], key=int)
            told = TOLD.get(reward, f"after rewards: {reward}")
            p = row["steps"][last]["p"]
            policies.append({"name": reward, "told": told, "p": [p[i] for i in order]})
            steps.append(last)
        names = ["before", *(one["name"] for one in policies)]
        super().__init__(
            sums=[tests[i].prompt.removesuffix(" = ") for i in order],
            before=[before[i] for i in order],
            policies=policies,
            steps=list(dict.fromkeys(steps)),
            bounds={"policy": names},
            **({"policy": names[min(1, len(names) - 1)]} | state),
        )
