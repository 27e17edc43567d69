"""Arithmetic of pages that only they do, said a second time in Python."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llmcourse_labs.scale import arithmetic
from llmcourse_labs.scale.arithmetic.moves import split_moves


def fewest_ranks(num_parameters: int, room_bytes: int | float, stage: int) -> int | None:
    """Return the smallest number of ranks on which a stage fits, or None where no number is enough.

    What a stage does not divide has to fit by itself; the rest of the room holds so many entries of
    what it does divide, and there are to be ranks for all of them.

    Args:
        num_parameters: of the model, or of the part of it that a replica's GPU has; 1 or more.
        room_bytes: memory of a GPU.
        stage: 0 to 3.
    """
    entry = arithmetic.memory_bytes(1, 1, stage)  # bytes of a parameter in full
    divided = {0: 0, 1: 12, 2: 14, 3: 16}[stage]
    left = room_bytes - (entry - divided) * num_parameters
    if stage == 0:
        return 1 if left >= 0 else None
    entries = int(left // divided)
    return -(-num_parameters // entries) if entries > 0 else None


def trailing_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """Return each value's mean with the numbers before it, `window` of them in all.

    Args:
        values: None, which stays None, is left out of later means.
        window: 1 or more; 1 leaves the values as they are.
    """
    known: list[float] = []
    means: list[float | None] = []
    for value in values:
        if value is None:
            means.append(None)
            continue
        known = [*known, value][-window:]
        means.append(sum(known) / len(known))
    return means


def weights_share(network: str, cut_a: str, cut_b: str, num_ranks: int) -> float:
    """Return the share of all weights that a rank holds; A and B have the same size."""
    cuts = (cut_a,) if network == "single" else (cut_a, cut_b)
    return sum(1 if cut == "whole" else 1 / num_ranks for cut in cuts) / len(cuts)


def work_share(network: str, cut_a: str, cut_b: str, ends: str, num_ranks: int) -> float:
    """Return the share of all multiplications of the forward pass that a rank makes."""
    moves = {move.tensor: move for move in split_moves(network, cut_a, cut_b, ends)}
    read = [("x", cut_a)] if network == "single" else [("x", cut_a), ("h", cut_b)]
    shared = [cut != "whole" or moves[tensor].need == "rows" for tensor, cut in read]
    return sum(1 / num_ranks if is_shared else 1 for is_shared in shared) / len(shared)


class Features(NamedTuple):
    """What can be read off a curve of training losses; None is a number that is not finite."""

    first: float
    end: float
    """Mean of the last tenth of the points."""
    late_fall: float
    """From the tenth that lies a fifth before the end, to the end."""
    lowest: float
    lowest_step: int
    rise: float
    """The most that the loss rose above the lowest value so far."""
    broken: int | None
    """The first step whose loss is not finite."""
    validation: float | None
    """The last that was measured."""


def features(run: Mapping[str, Any]) -> Features:
    """Return what can be read off the curves of a run, as the page says it.

    Args:
        run: with steps, train and validation, None for what is not finite or not measured.
    """
    train = run["train"]
    known = [value for value in train if value is not None]
    tenth = max(1, len(known) // 10)
    end = _mean(known[-tenth:])
    before = _mean(known[-3 * tenth : -2 * tenth] or known[:1])
    lowest, rise = math.inf, 0.0
    for value in known:
        lowest = min(lowest, value)
        rise = max(rise, value - lowest)
    measured = [value for value in run["validation"] if value is not None]
    return Features(
        first=known[0],
        end=end,
        late_fall=before - end,
        lowest=lowest,
        lowest_step=run["steps"][train.index(lowest)],
        rise=rise,
        broken=run["steps"][train.index(None)] if None in train else None,
        validation=measured[-1] if measured else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
