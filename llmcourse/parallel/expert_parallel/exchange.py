"""Rows to where they are needed: an all-to-all of uneven chunks that autograd can go back through.

Shape suffixes:  R rows to be sent, S rows received, D width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.pairs import refuse_second_derivatives
from llmcourse.parallel import collectives
from llmcourse.parallel.world import Axis


def all_to_all(
    rows_RD: Float[Tensor, "R D"],
    sent_counts: Sequence[int],
    received_counts: Sequence[int],
    axis: Axis,
) -> Float[Tensor, "S D"]:
    """Send each rank its rows, and receive from each rank those that are for this one.

    Backward sends the gradients of the rows received back to where they came from, so every rank
    has to go backward if one does.

    Args:
        rows_RD: sorted by the rank that they are for.
        sent_counts: how many rows are for each rank, in the order of ranks; 0 sends nothing.
        received_counts: how many rows come from each rank, see `exchange_counts`.
        axis: the ranks.

    Returns:
        The rows received, sorted by the rank that they came from.
    """
    return _AllToAll.apply(rows_RD, axis, tuple(sent_counts), tuple(received_counts))


def exchange_counts(counts_NE: Int[Tensor, "N E"], axis: Axis) -> Int[Tensor, "N E"]:
    """Send row r of a table to rank r; return the table of what every rank sent to this one.

    Where this rank's table says how many rows it has for each expert of each rank, what it gets
    back says how many rows each rank has for each of its own experts.  It is the transpose of the
    ranks' tables taken together.
    """
    rows = list(counts_NE.split(1))
    return torch.cat(collectives.all_to_all(rows, axis, lengths=[1] * axis.size))


class _AllToAll(torch.autograd.Function):
    """Rows one way in forward, their gradients the other way in backward."""

    @staticmethod
    def forward(
        ctx: Any, rows_RD: Tensor, axis: Axis, sent: tuple[int, ...], received: tuple[int, ...]
    ) -> Tensor:
        ctx.axis, ctx.sent, ctx.received = axis, sent, received
        return _exchange(rows_RD, sent, received, axis)

    @staticmethod
    def backward(ctx: Any, drows_SD: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_derivatives()
        return _exchange(drows_SD, ctx.received, ctx.sent, ctx.axis), None, None, None


def _exchange(rows: Tensor, sent: Sequence[int], received: Sequence[int], axis: Axis) -> Tensor:
    chunks = rows.split(list(sent))
    return torch.cat(collectives.all_to_all(chunks, axis, lengths=received))
