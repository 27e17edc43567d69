"""Gradients of parameters that several ranks hold copies of, and each has a part of.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from collections.abc import Iterable

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives.sums import all_reduce_ordered
from llmcourse.parallel.world import Axis


@torch.no_grad()
def sum_gradients(parameters: Iterable[Shaped[Tensor, "..."]], axis: Axis) -> None:
    """Replace every gradient by its sum over the ranks, the same to the last bit on all of them.

    All gradients of one dtype travel as one row.  A parameter that has no gradient on a rank counts
    as zero there; one that has none on any rank is left without.

    Args:
        parameters: the same on every rank, in the same order; those that are not trained are
            passed over.
        axis: the ranks.

    Raises:
        ValueError: if a gradient is sparse.
        MismatchError: if the ranks have parameters of other shapes.
    """
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for p in parameters:
        if p.requires_grad:
            by_dtype.setdefault(p.dtype, []).append(p)
    for alike in by_dtype.values() if axis.size > 1 else ():
        sizes = [p.numel() for p in alike]
        row = torch.cat([*map(_gradient_row, alike), alike[0].new_zeros(len(alike))])
        *parts, marks = row.split([*sizes, len(sizes)])
        # A mark that is not zero says that some rank has a gradient.
        marks.copy_(torch.tensor([p.grad is not None for p in alike]))
        all_reduce_ordered(row, axis)
        for p, part, used in zip(alike, parts, marks.tolist(), strict=True):
            if used:
                p.grad = torch.empty_like(p) if p.grad is None else p.grad
                p.grad.copy_(part.view(p.shape))


def _gradient_row(p: Tensor) -> Tensor:
    """Return the gradient as one row, zeros where there is none."""
    if p.grad is None:
        return p.new_zeros(p.numel())
    if p.grad.layout != torch.strided:
        raise ValueError(f"gradients must be dense, got {p.grad.layout}: use sparse=False")
    return p.grad.reshape(-1)
