"""The experts of a layer, spread over ranks: rows go to the owner of their expert and come back.

Shape suffixes:  R rows of this rank, S rows of all ranks for this rank's experts, E experts,
e experts of this rank, N ranks, D width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse.model.moe import Experts
from llmcourse.parallel.expert_parallel.exchange import all_to_all, exchange_counts
from llmcourse.parallel.legal import divisors, multiples, nearest
from llmcourse.parallel.world import Axis


class ParallelExperts(Experts):
    """Stands in for `Experts`: the same forward, with this rank's slice of the weights.

    With E experts on n ranks, rank r owns experts r E/n to (r+1) E/n - 1.

    Args:
        experts: all of them, alike on every rank; their weights are copied.
        axis: the ranks, each with rows of its own.

    Raises:
        ValueError: if the experts cannot be cut evenly.
    """

    def __init__(self, experts: Experts, axis: Axis) -> None:
        nn.Module.__init__(self)
        self.axis = axis
        first, stop = share_of(len(experts.w_gate), axis.index, axis.size)
        for name, w in experts.named_parameters():
            mine = w.detach()[first:stop].clone()
            setattr(self, name, nn.Parameter(mine, requires_grad=w.requires_grad))

    def forward(
        self, rows_RD: Float[Tensor, "R D"], counts_E: Int[Tensor, " E"]
    ) -> Float[Tensor, "R D"]:
        """Transform every row by its expert, wherever that is; the order of rows stays.

        Rows are sorted by expert; the counts say how many this rank has for each of the layer's.
        """
        axis = self.axis
        sent_Ne = counts_E.unflatten(0, (axis.size, -1))
        received_Ne = exchange_counts(sent_Ne, axis)
        sent, received = sent_Ne.sum(1).tolist(), received_Ne.sum(1).tolist()

        rows_SD = all_to_all(rows_RD, sent, received, axis)
        rows_SD = regroup(rows_SD, received_Ne)
        rows_SD = super().forward(rows_SD, received_Ne.sum(0))
        rows_SD = regroup(rows_SD, received_Ne.T)
        return all_to_all(rows_SD, received, sent, axis)


def regroup(rows_SD: Float[Tensor, "S D"], counts: Int[Tensor, "N E"]) -> Float[Tensor, "S D"]:
    """Bring rows sorted by (first, second) into the order (second, first).

    Rows arrive sorted by rank and, within a rank, by expert: counts is ranks x experts.  An expert
    wants all its rows together, those of rank 0 first.  The transposed counts undo it.
    """
    chunks = rows_SD.split(counts.flatten().tolist())
    first, second = (range(size) for size in counts.shape)
    return torch.cat([chunks[a * len(second) + b] for b in second for a in first])


def share_of(num_experts: int, index: int, size: int) -> tuple[int, int]:
    """Return the first expert of a rank, and the one after its last; ValueError if uneven."""
    if num_experts % size:
        ranks = nearest(size, divisors(num_experts))
        experts = nearest(num_experts, multiples(size, num_experts))
        raise ValueError(
            f"{num_experts} experts cannot be cut evenly over {size} ranks; nearest: {ranks} "
            f"ranks, or {experts} experts"
        )
    share = num_experts // size
    return index * share, (index + 1) * share
