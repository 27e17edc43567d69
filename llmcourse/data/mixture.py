"""Several sources in chosen shares: one global order of windows, and nothing to remember.

Window n of the order belongs to source i so that after any number of windows

    | windows of source i - share_i n | < 1

No draw of chance comes near that: of 10,000 windows at a half each, it misses by about 50.
Inside a source the windows come shuffled, epoch after epoch, as in `order`.  Where a run stands is
one number, the step, and the order is the same for every world size.

The shares are whole thousandths, so the sources' turns repeat after 1,000 windows at the latest.
Which source comes when solves the chairman assignment problem: of k countries with shares, whose
turn is it to chair a union, so that none is ever behind or ahead by a whole turn?

Source: Tijdeman 1980, "The chairman assignment problem", Discrete Mathematics 32: the bound is
1 - 1 / (2k - 2), and nobody can do better for all shares.

Shape suffixes:  B batch of this rank, T time (tokens).
"""

import hashlib
from collections.abc import Mapping
from functools import cache, reduce
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64

from llmcourse.base.arguments import require, require_fields
from llmcourse.base.stages import lengths_before, stage_at
from llmcourse.data.order import permuted
from llmcourse.data.shards import TokenShards

THOUSANDTHS = 1_000
"""Shares are multiples of one over this."""


@cache
def interleave(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return which source has each turn of a period of sum(weights) turns.

    At turn n a source may come if  w_i n / W - c_i >= 1 / (2k - 2),  c_i being its turns so far; of
    those that may, the one comes whose next turn is due first, at (c_i + 1 - 1 / (2k - 2)) W / w_i.
    Equal ones come in their order.

    Args:
        weights: turns of each source in the period (w_i), W together, each 1 or more.

    Raises:
        ValueError: if there is no source or a weight is below 1.
    """
    require("the number of sources", len(weights), least=1)
    for weight in weights:
        require("a weight", weight, least=1)
    total, slack = sum(weights), max(1, 2 * len(weights) - 2)
    counts = [0] * len(weights)
    order = []
    for n in range(1, total + 1):
        # All terms times slack * W, so that they are whole numbers.
        may = [
            i
            for i, w in enumerate(weights)
            if slack * (w * n - counts[i] * total) >= total or len(weights) == 1
        ]
        first = min(may, key=lambda i: ((slack * (counts[i] + 1) - 1) * total / weights[i], i))
        order.append(first)
        counts[first] += 1
    return tuple(order)


def per_mille(shares: Mapping[str, float]) -> dict[str, int]:
    """Return shares as whole numbers: thousandths, less their common divisor.

    Raises:
        ValueError: if a share is no whole number of thousandths above 0, or they do not add to 1.
    """
    if not shares:
        raise ValueError("a mixture needs a source: name one or more with their shares")
    for name, share in shares.items():
        off = abs(share * THOUSANDTHS - round(share * THOUSANDTHS)) if 0 < share <= 1 else 1
        if off > 1e-6:
            raise ValueError(
                f"the share of {name} is {share}: give thousandths, such as 0.125, above 0"
            )
    weights = {name: round(share * THOUSANDTHS) for name, share in shares.items()}
    if sum(weights.values()) != THOUSANDTHS:
        raise ValueError(f"the shares add to {sum(weights.values()) / THOUSANDTHS}, not to 1")
    common = reduce(gcd, weights.values())
    return {name: weight // common for name, weight in weights.items()}


def shares_of(text: str) -> dict[str, float]:
    """Return the shares that a text such as "prose=0.75,code=0.25" gives to sources.

    Raises:
        ValueError: if it has another form, or names a source twice.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            value = float(share)
        except ValueError as error:
            raise ValueError(f"{part!r} is no share: give them as prose=0.75,code=0.25") from error
        if name.strip() in shares:
            raise ValueError(f"{name.strip()} stands twice in {text!r}: name a source once")
        shares[name.strip()] = value
    return shares


class MixtureStage(NamedTuple):
    """A mixture, and the step from which on it holds."""

    step: int
    shares: Mapping[str, float]


class MixedBatches:
    """The batches of one rank of a mixture: a pure function of (seed, step, rank, world size).

    Args:
        sources: where the tokens of each source are, all opened with one tokenizer's fingerprint.
        stages: the first from step 0 on, such as `[Stage(0, {"prose": 0.75, "code": 0.25})]`; a
            later one changes the shares, for example to anneal on the best source, and every source
            goes on where it was.
        batch_size: windows per step of *this rank*, 1 or more.
        context_length: tokens that the model reads, 1 or more.
        rank: from 0 to world_size - 1.
        world_size: number of ranks.
        seed: of the order in each source, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range, a stage names another source than there is,
            stages do not follow each other from 0, or a source does not fill one window.
    """

    def __init__(
        self,
        sources: Mapping[str, TokenShards],
        stages: list[MixtureStage],
        *,
        batch_size: int,
        context_length: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
    ) -> None:
        self.sources, self.stages = dict(sources), stages
        self.batch_size, self.context_length = batch_size, context_length
        self.rank, self.world_size, self.seed, self.step = rank, world_size, seed, 0
        require_fields(self, "batch_size", "context_length", "world_size", least=1)
        require_fields(self, "rank", "seed", least=0)
        require("rank", rank, below=world_size)
        steps = [stage.step for stage in stages]
        if steps[:1] != [0] or steps != sorted(set(steps)):
            raise ValueError(f"stages begin at step 0 and follow each other; these at {steps}")
        for stage in stages:
            if strange := sorted(set(stage.shares) - set(self.sources)):
                known = ", ".join(self.sources)
                raise ValueError(f"there is no source {strange[0]!r}: there are {known}")
        sizes = {each.vocab_size for each in self.sources.values()}
        if len(sizes) > 1:
            raise ValueError(f"the sources have vocabularies of {sorted(sizes)}: use one tokenizer")
        self.num_windows = {
            name: max(0, len(shards) - 1) // context_length for name, shards in sources.items()
        }
        for name, count in self.num_windows.items():
            if count < 1:
                raise ValueError(
                    f"{name} has {len(sources[name])} tokens, too few for a window of "
                    f"{context_length} + 1: take more text or a shorter context"
                )
        self._weights = [per_mille(stage.shares) for stage in stages]

    @property
    def global_batch_size(self) -> int:
        """Windows per step of all ranks together."""
        return self.batch_size * self.world_size

    def counts(self, step: int) -> dict[str, int]:
        """Return how many windows of each source all steps before this one have read."""
        require("step", step, least=0)
        counts = dict.fromkeys(self.sources, 0)
        for number, length in enumerate(lengths_before([s.step for s in self.stages], step)):
            for name, count in self._counted(number, length * self.global_batch_size).items():
                counts[name] += count
        return counts

    def epochs(self, step: int) -> dict[str, float]:
        """Return how often each source has been read before a step: 2.5 is two and a half times."""
        return {name: n / self.num_windows[name] for name, n in self.counts(step).items()}

    def _counted(self, stage: int, windows: int) -> dict[str, int]:
        """Return how many of a stage's first windows belong to each of its sources."""
        weights = self._weights[stage]
        order = interleave(tuple(weights.values()))
        periods, rest = divmod(windows, len(order))
        return {
            name: periods * weight + order[:rest].count(i)
            for i, (name, weight) in enumerate(weights.items())
        }

    def windows(self, step: int) -> list[tuple[str, int]]:
        """Return the source and the number of each window that this rank reads at a step."""
        require("step", step, least=0)
        stage = stage_at([each.step for each in self.stages], step)
        behind = self.counts(self.stages[stage].step)
        first = (step - self.stages[stage].step) * self.global_batch_size
        first += self.rank * self.batch_size
        names = list(self._weights[stage])
        order = interleave(tuple(self._weights[stage].values()))
        here = {name: behind[name] + n for name, n in self._counted(stage, first).items()}
        found = []
        for n in range(first, first + self.batch_size):
            name = names[order[n % len(order)]]
            epoch, place = divmod(here[name], self.num_windows[name])
            seed = _seed_of(name, self.seed)
            at = permuted(np.array([place]), self.num_windows[name], seed=seed, epoch=epoch)
            found.append((name, int(at[0])))
            here[name] += 1
        return found

    def batch(self, step: int) -> tuple[Int64[torch.Tensor, "B T"], Int64[torch.Tensor, "B T"]]:
        """Return the inputs of a step, and as targets the tokens that follow them."""
        length = self.context_length
        inputs_BT, targets_BT = np.empty((2, self.batch_size, length), dtype=np.int64)
        for row, (name, window) in enumerate(self.windows(step)):
            tokens = self.sources[name][window * length : (window + 1) * length + 1]
            inputs_BT[row], targets_BT[row] = tokens[:-1], tokens[1:]
        return torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT)

    def __iter__(self) -> "MixedBatches":
        return self

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        batch = self.batch(self.step)
        self.step += 1
        return batch

    def _identity(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same."""
        return {
            "seed": self.seed,
            "context_length": self.context_length,
            "global_batch_size": self.global_batch_size,
            # As lists: of sources with equal shares the first that is named comes first.
            "stages": [
                [stage.step, [[name, share] for name, share in stage.shares.items()]]
                for stage in self.stages
            ],
            "data": {name: shards.fingerprint for name, shards in self.sources.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what it refers to, as plain data."""
        return {"step": self.step, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position that `state_dict` returned, on this or another world size.

        Raises:
            ValueError: if it belongs to another order.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state was saved with {name} = {state.get(name)!r}, here it is {value!r}: "
                    "its position means nothing in another order"
                )
        if type(state.get("step")) is not int or state["step"] < 0:
            raise ValueError(f"the state was saved at step {state.get('step')!r}, which is none")
        self.step = state["step"]


def _seed_of(name: str, seed: int) -> int:
    """Return a seed for a source, so that two of equal size are not read in the same order."""
    digest = hashlib.shake_128(f"{seed} source {name}".encode()).digest(6)
    return int.from_bytes(digest, "little")
