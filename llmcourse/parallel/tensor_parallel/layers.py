"""Linear layers and the embedding, cut into one slice per rank.

A matrix with one row per output is cut by rows: every rank computes some of the outputs ("column
parallel", after the transposed weight of the paper).  What follows is cut by columns, so that every
rank reads just the outputs that it has, and leaves a part of the sum ("row parallel").  Two
matrices, one communication.

Shape suffixes:  B batch, T time, D width, v this rank's rows of the vocabulary.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.model.ops import embedding, linear
from llmcourse.parallel.tensor_parallel.nodes import f, g, gather_time, scatter_time
from llmcourse.parallel.world import Axis


def enter_tp(
    x_BTD: Float[Tensor, "B _ D"], axis: Axis, *, sequence_parallel: bool = False
) -> Float[Tensor, "B T D"]:
    """Bring activations into a cut layer: all positions, on every rank."""
    return gather_time(x_BTD, axis) if sequence_parallel else f(x_BTD, axis)


def leave_tp(
    partial_BTD: Float[Tensor, "B T D"], axis: Axis, *, sequence_parallel: bool = False
) -> Float[Tensor, "B _ D"]:
    """Sum what the ranks' slices of a layer contribute: all positions, or this rank's stretch."""
    return scatter_time(partial_BTD, axis) if sequence_parallel else g(partial_BTD, axis)


def vocabulary_parallel_linear(
    x_BTD: Float[Tensor, "B _ D"],
    w_vD: Float[Tensor, "v D"],
    axis: Axis,
    *,
    sequence_parallel: bool = False,
) -> Float[Tensor, "B T v"]:
    """Compute this rank's logits: a column-parallel layer whose outputs are vocabulary entries.

    Source:
        Shoeybi et al. 2019, section 3, https://arxiv.org/abs/1909.08053
    """
    return linear(enter_tp(x_BTD, axis, sequence_parallel=sequence_parallel), w_vD)


def vocabulary_parallel_embedding(
    ids_BT: Int[Tensor, "B T"],
    w_vD: Float[Tensor, "v D"],
    axis: Axis,
    *,
    sequence_parallel: bool = False,
) -> Float[Tensor, "B _ D"]:
    """Look up ids in a table of which every rank has some rows.

    Every rank looks up the ids that are its own and takes 0 for the others; the sum over the ranks
    has one term that is not 0, and so no rounding error.

    Raises:
        IndexError: if an id is not a row of any rank.
        ValueError: if time does not divide into as many equal stretches as there are ranks.
    """
    num_rows = w_vD.shape[0] * axis.size
    if ids_BT.numel() and not 0 <= ids_BT.min() <= ids_BT.max() < num_rows:
        raise IndexError(
            f"ids must be from 0 to {num_rows - 1}, got {int(ids_BT.min())} to {int(ids_BT.max())}"
        )
    rows_BT, mine_BT = own_rows(ids_BT, w_vD.shape[0], axis)
    found_BTD = embedding(rows_BT, w_vD).masked_fill(~mine_BT.unsqueeze(-1), 0.0)
    return leave_tp(found_BTD, axis, sequence_parallel=sequence_parallel)


def own_rows(
    ids: Int[Tensor, "*B"], num_rows: int, axis: Axis
) -> tuple[Int[Tensor, "*B"], Bool[Tensor, "*B"]]:
    """Return where ids stand among this rank's rows of the vocabulary, and which of them do.

    An id that is another rank's, or no id at all, stands at 0.
    """
    rows = ids - axis.index * num_rows
    mine = (rows >= 0) & (rows < num_rows)
    return torch.where(mine, rows, 0), mine
