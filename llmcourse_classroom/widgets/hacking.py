"""A widget about over-optimisation: proxy and gold against the KL that a policy may spend."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Named, Whole
from llmcourse_classroom.widget import Widget

MOST_SCORES, MOST_SEEDS, MOST_POINTS = 6, 8, 40
LONGEST_NAME = 30
HIGHEST_KL = 100.0
"""Nats."""

Points = Sequence[Sequence[int | float]]
"""Of one seed: KL, proxy, gold, with a KL that increases from 0."""


class HackingBoard(Widget):
    """What a policy reaches by a score, and what it is worth, as its budget of KL grows.

    Args:
        scores: 1 to 6, each a dict of name and runs: for each of up to 8 seeds 2 to 40 points, a
            KL in nats that increases from 0, the proxy's score and gold.
        state: score (its name), budget (in nats), seed (the place of the run), all (whether the
            other seeds are drawn, too).

    Raises:
        ValueError: if a score lacks something, or its points are not as above.
    """

    script = "hacking_board.js"
    alt = (
        "Two curves against the KL from the reference.  The proxy rises all the way.  Gold rises "
        "with it at first, turns at a budget of one to three nats, and falls."
    )

    scores = traitlets.List(traitlets.Dict()).tag(sync=True)
    score = Named().tag(sync=True)
    budget = Limited(1.0, low=0.0, high=HIGHEST_KL, step=0.05, label="budget of KL, in nats")
    seed = Whole(0, low=0, high=MOST_SEEDS - 1, step=1, label="seed")
    all = traitlets.Bool(False).tag(sync=True)

    def __init__(self, scores: Sequence[Mapping[str, Any]], **state: Any) -> None:
        if not 1 <= len(scores) <= MOST_SCORES:
            raise ValueError(f"1 to {MOST_SCORES} scores, not {len(scores)}")
        kept = [_checked(each) for each in scores]
        names = [each["name"] for each in kept]
        if len(set(names)) < len(names):
            raise ValueError(f"each score needs a name of its own, got {names}")
        seeds = {len(each["runs"]) for each in kept}
        if len(seeds) > 1:
            raise ValueError(f"all scores have the same number of seeds, not {sorted(seeds)}")
        bounds = {"score": names, "seed": max(seeds) - 1, "budget": _last(kept)}
        super().__init__(scores=kept, bounds=bounds, **({"score": names[0]} | state))


def _last(scores: Sequence[Mapping[str, Any]]) -> float:
    """Return the KL up to which every run of every score is known."""
    return min(points[-1][0] for each in scores for points in each["runs"])


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score as the page takes it."""
    if missing := [key for key in ("name", "runs") if key not in given]:
        raise ValueError(f"a score has no {missing}; it needs a name and runs")
    name, runs = str(given["name"]), list(given["runs"])
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"names have 1 to {LONGEST_NAME} characters, unlike {name!r}")
    if not 1 <= len(runs) <= MOST_SEEDS:
        raise ValueError(f"{name}: 1 to {MOST_SEEDS} seeds, not {len(runs)}")
    return {"name": name, "runs": [_points(name, points) for points in runs]}


def _points(name: str, points: Points) -> list[list[float]]:
    """Return the points of a run, rounded."""
    if not 2 <= len(points) <= MOST_POINTS or any(len(point) != 3 for point in points):
        raise ValueError(f"{name}: 2 to {MOST_POINTS} points of KL, proxy and gold")
    kept = [[round(float(x), 4) for x in point] for point in points]
    if not all(math.isfinite(x) for point in kept for x in point):
        raise ValueError(f"{name}: all numbers are finite")
    kls = [point[0] for point in kept]
    if kls[0] != 0 or kls[-1] > HIGHEST_KL or any(b <= a for a, b in pairwise(kls)):
        raise ValueError(f"{name}: the KL increases from 0 to at most {HIGHEST_KL:g}, not {kls}")
    return kept
