"""Batches that grow: the same global order of windows, taken in larger and larger bites.

Early in a run the gradient is large and plain, and a few sequences show where it points; later the
noise of a small batch hides it.  A batch ramp gives each step as many sequences as it needs.  Where
a run stands is still one number, the step: how many windows came before it follows from the ramp.

Shape suffixes:  B batch of this rank.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from llmcourse.base.arguments import require
from llmcourse.base.stages import lengths_before, stage_at
from llmcourse.data.order import Batches, Order, permuted, random_starts
from llmcourse.data.shards import TokenShards


class RampStage(NamedTuple):
    """The sequences of a step, and the step from which on they hold."""

    step: int
    batch_size: int


def ramp_of(text: str) -> list[RampStage]:
    """Return the ramp that a text such as "0:12,200:24" gives: from step 200 on 24 sequences.

    Raises:
        ValueError: if it has another form, does not begin at step 0, or its steps or batches do not
            grow.
    """
    stages = []
    for part in text.split(","):
        numbers = part.strip().split(":")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f"{part.strip()!r} is no stage of a batch ramp: give steps and sequences, as in "
                "0:12,200:24"
            )
        stages.append(RampStage(*map(int, numbers)))
    if stages[0].step != 0:
        raise ValueError(
            f"a batch ramp begins at step 0, not at {stages[0].step}: put 0: and the first batch "
            "before it, as in 0:12,200:24"
        )
    for before, after in pairwise(stages):
        if after.step <= before.step or after.batch_size <= before.batch_size:
            raise ValueError(
                f"a batch ramp goes up in steps and in sequences: {after.step}:{after.batch_size} "
                f"may not follow {before.step}:{before.batch_size}"
            )
    require("the first batch", stages[0].batch_size, least=1)
    return stages


def ramp_stage_at(ramp: list[RampStage], step: int) -> RampStage:
    """Return the stage of a ramp that a step belongs to, counted from 0."""
    return ramp[stage_at([stage.step for stage in ramp], step)]


def windows_before(ramp: list[RampStage], step: int) -> int:
    """Return how many sequences all steps before this one have read."""
    require("step", step, least=0)
    lengths = lengths_before([stage.step for stage in ramp], step)
    return sum(length * stage.batch_size for length, stage in zip(lengths, ramp, strict=True))


def steps_within(ramp: list[RampStage], windows: int) -> int:
    """Return how many whole steps read at most so many sequences: `windows_before` turned round."""
    require("windows", windows, least=0)
    ends = [*(stage.step for stage in ramp[1:]), math.inf]
    for stage, end in zip(ramp, ends, strict=True):
        steps = stage.step + (windows - windows_before(ramp, stage.step)) // stage.batch_size
        if steps < end:
            break
    return steps


class RampedBatches(Batches):
    """The batches of one rank of a ramp: a pure function of (seed, step, rank, world size).

    The windows come in the order of `Batches`, and none is left out: a step at the end of an epoch
    takes its last windows and the first of the next.

    Args:
        shards: where the tokens are.
        ramp: the sequences of all ranks together at each step, as from `ramp_of`.
        context_length: tokens that the model reads, 1 or more.
        rank: from 0 to world_size - 1.
        world_size: number of ranks.
        seed: of the order, 0 or greater.
        order: "shuffled", or "random" for windows that begin anywhere, drawn with repetition.

    Raises:
        ValueError: as for `Batches`, or if the ranks cannot share a batch of the ramp equally.
    """

    def __init__(
        self,
        shards: TokenShards,
        ramp: list[RampStage],
        *,
        context_length: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        order: Order = "shuffled",
    ) -> None:
        for stage in ramp:
            if stage.batch_size % world_size:
                raise ValueError(
                    f"batch_ramp has {stage.batch_size} sequences, which {world_size} ranks cannot "
                    "share equally: choose multiples"
                )
        self.ramp = ramp
        largest = ramp[-1].batch_size // world_size
        super().__init__(shards, largest, context_length, rank, world_size, seed, order)

    def epoch_of(self, step: int) -> int:
        """Return the epoch of a step's first window, both counted from 0."""
        return windows_before(self.ramp, step) // self.num_windows

    def starts(self, step: int) -> Int64[np.ndarray, " B"]:
        """Return the tokens at which this rank's windows of a step begin."""
        share = ramp_stage_at(self.ramp, step).batch_size // self.world_size
        first = windows_before(self.ramp, step) + self.rank * share
        positions = np.arange(first, first + share, dtype=np.int64)
        if self.order == "random":
            count = len(self.shards) - self.context_length
            return random_starts(positions, count, seed=self.seed)
        epochs, places = np.divmod(positions, self.num_windows)
        windows = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            settings = {"seed": self.seed, "epoch": epoch}
            windows[here] = permuted(places[here], self.num_windows, **settings)
        return windows * self.context_length

    def windows(self, step: int) -> Int64[np.ndarray, " B"]:
        """Return the numbers of the windows that this rank reads at a step of the shuffled order.

        Raises:
            ValueError: if the step is negative, or the windows have no numbers.
        """
        if self.order != "shuffled":
            raise ValueError("windows at random starts have no numbers: use starts(step)")
        return self.starts(step) // self.context_length

    def _identity(self) -> dict[str, Any]:
        identity = super()._identity()
        del identity["global_batch_size"]
        return {**identity, "ramp": [list(stage) for stage in self.ramp]}
