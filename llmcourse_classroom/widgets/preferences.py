"""A widget about preferences: what a policy gains from distance, and what distance costs."""

import math
from collections.abc import Mapping
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Named
from llmcourse_classroom.widget import Widget

MOST_ANSWERS, LONGEST_NAME = 6, 16
MOST_UTILITY = 20.0
LEAST_SHARE = 1e-6


class PreferenceBoard(Widget):
    """A world of a few answers: the reference, the best policy for a beta, and a pair's loss.

    Args:
        world: names (2 to 6 texts), reference (their probabilities, which sum to 1) and utilities
            (what each is worth, from -20 to 20).
        state: beta (0.03 to 10), training (0 to 100 %: how far on the way from the reference to the
            best policy), chosen and rejected (names of two answers).

    Raises:
        ValueError: if the world lacks something, or its numbers are outside their range.
    """

    script = "preference_board.js"
    alt = (
        "For each of a few answers two bars: how likely the reference makes it, and how likely the "
        "policy does, with what the answer is worth beside them.  The smaller beta, the more of "
        "the policy lies on the answer that is worth most, and the larger its KL from the "
        "reference."
    )

    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    reference = traitlets.List(traitlets.Float()).tag(sync=True)
    utilities = traitlets.List(traitlets.Float()).tag(sync=True)
    beta = Limited(1.0, low=0.03, high=10.0, step=0.01, label="β")
    training = Limited(100, low=0, high=100, step=1, label="training, %")
    chosen = Named().tag(sync=True)
    rejected = Named().tag(sync=True)

    def __init__(self, world: Mapping[str, Any], **state: Any) -> None:
        keys = ("names", "reference", "utilities")
        if missing := [key for key in keys if key not in world]:
            raise ValueError(f"the world has no {missing}; it needs {list(keys)}")
        names = [str(name) for name in world["names"]]
        if not 2 <= len(set(names)) == len(names) <= MOST_ANSWERS:
            raise ValueError(f"2 to {MOST_ANSWERS} answers with names of their own, not {names}")
        if not all(0 < len(name) <= LONGEST_NAME for name in names):
            raise ValueError(f"a name has 1 to {LONGEST_NAME} characters, unlike one of {names}")
        shares = [float(x) for x in world["reference"]]
        if len(shares) != len(names) or not all(LEAST_SHARE <= x < 1 for x in shares):
            raise ValueError(f"a share from {LEAST_SHARE:g} to 1 for each answer, not {shares}")
        if not math.isclose(math.fsum(shares), 1, abs_tol=1e-4):
            raise ValueError(f"the shares of the reference sum to 1, not {math.fsum(shares):g}")
        worth = [float(x) for x in world["utilities"]]
        if len(worth) != len(names) or not all(abs(x) <= MOST_UTILITY for x in worth):
            raise ValueError(f"a utility from -20 to 20 for each answer, not {worth}")
        total = math.fsum(shares)
        super().__init__(
            names=names,
            reference=[x / total for x in shares],
            utilities=worth,
            bounds={"chosen": names, "rejected": names},
            **({"chosen": names[0], "rejected": names[-1]} | state),
        )
