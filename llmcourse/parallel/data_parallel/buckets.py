"""Gradients that travel together."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.parallel.collectives import all_reduce_ordered
from llmcourse.parallel.world import Axis

AllReduce = Callable[[Tensor, Axis], Tensor]
"""Sums a tensor over the ranks of an axis, in place, and returns it."""

BUCKET_BYTES = 1 << 20


class Bucket:
    """Gradients that travel together: one tensor, and at its end a mark for each parameter.

    The mark is not zero where a rank has a gradient, so that its sum tells whether any has.  The
    tensor is kept from step to step: memory for the gradients once more.

    Args:
        parameters: of one dtype and device.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        sizes = [p.numel() for p in parameters]
        self.parameters = parameters
        self.flat = parameters[0].detach().new_zeros(sum(sizes) + len(sizes))
        *parts, self.marks = self.flat.split([*sizes, len(sizes)])
        self.parts = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        self.missing = set(map(id, parameters))
        """Parameters whose gradient is not complete yet."""
        self.sum: Future | None = None
        """What the thread is at, once it was told."""

    @torch.no_grad()
    def reduce(self, all_reduce: AllReduce, axis: Axis, divisor: int) -> None:
        """Sum the gradients over the ranks, and divide; `finish` hands them out."""
        for part, p in zip(self.parts, self.parameters, strict=True):
            part.zero_() if p.grad is None else part.copy_(dense(p.grad))
        self.marks.copy_(torch.tensor([p.grad is not None for p in self.parameters]))
        all_reduce(self.flat, axis)
        if divisor > 1:
            self.flat.div_(divisor)

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for the sum, and write it into the gradients."""
        if self.sum is not None:
            self.sum.result()
        for part, p, used in zip(self.parts, self.parameters, self.marks.tolist(), strict=True):
            if used:
                p.grad = torch.empty_like(p) if p.grad is None else p.grad
                p.grad.copy_(part)
        self.missing, self.sum = set(map(id, self.parameters)), None


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
    if axis.size > 1:
        for alike in by_dtype.values():
            bucket = Bucket(alike)
            bucket.reduce(all_reduce_ordered, axis, 1)
            bucket.finish()


def cut_buckets(
    tensors: Iterable[Shaped[Tensor, "..."]], bucket_bytes: int
) -> list[list[Shaped[Tensor, "..."]]]:
    """Cut tensors into buckets of one dtype and device, keeping their order.

    Args:
        tensors: in the order in which they become ready.
        bucket_bytes: of one bucket, at most; a larger tensor stands alone.

    Returns:
        The buckets, in the order in which they are full.

    Raises:
        ValueError: if bucket_bytes is below 1.
    """
    if bucket_bytes < 1:
        raise ValueError(f"bucket_bytes must be 1 or greater, got {bucket_bytes}")
    full: list[tuple[int, list[Tensor]]] = []  # with the place of the last tensor
    filling: dict[tuple, tuple[int, int, list[Tensor]]] = {}  # and with the bytes so far
    for place, x in enumerate(tensors):
        kind = (x.dtype, x.device)
        last, size, bucket = filling.get(kind, (0, 0, []))
        if bucket and size + x.nbytes > bucket_bytes:
            full.append((last, bucket))
            size, bucket = 0, []
        bucket.append(x)
        filling[kind] = (place, size + x.nbytes, bucket)
    full += [(last, bucket) for last, _, bucket in filling.values()]
    return [bucket for _, bucket in sorted(full, key=lambda pair: pair[0])]


def dense(gradient: Tensor) -> Tensor:
    """Return the gradient itself.

    Raises:
        ValueError: if it is sparse.
    """
    if gradient.layout != torch.strided:
        raise ValueError(f"gradients must be dense, got {gradient.layout}: use sparse=False")
    return gradient
