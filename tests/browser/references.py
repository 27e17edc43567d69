"""Arithmetic of pages that only they do, said a second time in Python."""

from collections.abc import Sequence

from llmcourse.parallel import zero
from llmcourse.parallel.tensor_parallel.moves import split_moves


def fewest_ranks(num_parameters: int, room_bytes: int | float, stage: int) -> int | None:
    """Return the smallest number of ranks on which a stage fits, or None where no number is enough.

    What a stage does not divide has to fit by itself; the rest of the room holds so many entries of
    what it does divide, and there are to be ranks for all of them.

    Args:
        num_parameters: of the model, or of the part of it that a replica's GPU has; 1 or more.
        room_bytes: memory of a GPU.
        stage: 0 to 3.
    """
    entry = zero.memory_bytes(1, 1, stage)  # bytes of a parameter in full
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
