"""What is left of an adapter when it is merged into a matrix of few bits.

    added = with_adapter(state, read_adapter(folder, config))[name] - state[name]
    merge_loss(state[name], added, Grid(bits=4))          # the grid of Q4_1

A whole run is merged and rounded by `decoder.round_decoder`, or into a file by `llmcourse quantise
--run runs/mine --kind Q4_1`.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from llmcourse_labs.real.quantise.grid import Grid, nearest


class MergeLoss(NamedTuple):
    """What rounding does to a change C of a matrix W on a grid; R what W + C has become less W."""

    survives: float
    """sum(R C) / sum(C C): 1 if all of the change is there, 0 if nothing is."""
    noise: float
    """Length of R - C over that of C: what was added or lost beside it."""


def merge_loss(
    w_FD: Float[Tensor, "F D"], change_FD: Float[Tensor, "F D"], grid: Grid
) -> MergeLoss:
    """Merge a change, such as (alpha / r) B A, into a matrix, and round the sum to nearest.

    Args:
        w_FD: the matrix, on the grid or not.
        change_FD: what is added, not 0 everywhere.
        grid: of the merged matrix.

    Raises:
        ValueError: as `grid.nearest`.
    """
    made_FD = nearest(w_FD + change_FD, grid).weights() - w_FD
    square = change_FD.square().sum()
    survives = (made_FD * change_FD).sum() / square
    noise = (made_FD - change_FD).square().sum() / square
    return MergeLoss(float(survives), float(noise.sqrt()))
