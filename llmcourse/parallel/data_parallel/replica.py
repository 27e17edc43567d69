"""A rank's copy of a module, equal to the others; and the simplest way to keep it so."""

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Shaped
from torch import nn

from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel.buckets import BUCKET_BYTES, AllReduce, cut_buckets, dense
from llmcourse.parallel.world import Axis


class Replica(nn.Module):
    """One rank's copy of a module: the same weights everywhere, the buffers those of rank 0.

    It is used like the module itself, which is its attribute `module`; all ranks make it, call
    `sync` and, in training mode and if there are buffers, `forward` the same number of times.

    Args:
        module: any module; on every rank with the same parameters and buffers in the same order.
        axis: the ranks that share a batch.
        all_reduce: how gradients are summed.
        average: whether `sync` gives the mean over the ranks, or their sum, for losses that every
            rank divides by the same number of tokens.  A sum wants gradients that were cleared.
        broadcast_buffers: whether rank 0's buffers (such as running means) go to all ranks before
            every forward pass in training mode.

    Raises:
        ValueError: if a parameter is lazy or on the meta device: it has no value to broadcast.
        MismatchError: if the module differs between ranks.
    """

    def __init__(
        self,
        module: nn.Module,
        axis: Axis,
        *,
        all_reduce: AllReduce = collectives.all_reduce_ring,
        average: bool = True,
        broadcast_buffers: bool = True,
    ) -> None:
        super().__init__()
        for name, p in module.named_parameters():
            if nn.parameter.is_lazy(p) or p.is_meta:
                raise ValueError(f"parameter {name} has no value yet: initialise it, then wrap")
        self.module, self.axis, self.all_reduce = module, axis, all_reduce
        self.average, self.broadcast_buffers = average, broadcast_buffers
        self._local = False  # whether we are inside `no_sync`
        broadcast_tensors([*module.parameters(), *module.buffers()], axis)
        self._trained = [p for p in module.parameters() if p.requires_grad]

    def forward(self, *args: Any, **settings: Any) -> Any:
        """Return what the module returns."""
        if self.broadcast_buffers and self.training and not self._local:
            broadcast_tensors(list(self.module.buffers()), self.axis)
        return self.module(*args, **settings)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on this rank; nothing is sent inside."""
        before, self._local = self._local, True
        try:
            yield
        finally:
            self._local = before

    def sync(self) -> None:
        """Phase 5 of a step: make every gradient the same on all ranks, their mean or sum.

        Raises:
            RuntimeError: inside `no_sync`, or if the module got other parameters since it was
                wrapped.
        """
        if self._local:
            raise RuntimeError("sync() inside no_sync(): call it after the context has ended")
        known = set(map(id, self._trained))
        for name, p in self.module.named_parameters():
            if p.requires_grad and id(p) not in known:
                raise RuntimeError(
                    f"parameter {name} was added, replaced or unfrozen after the module was "
                    "wrapped, so nobody synchronises it: wrap the module again"
                )
        self._sync()

    def _sync(self) -> None:
        raise NotImplementedError

    @property
    def _divisor(self) -> int:
        return self.axis.size if self.average else 1


class NaiveDDP(Replica):
    """One all-reduce per parameter, after backward: arguments and errors as in `Replica`."""

    @torch.no_grad()
    def _sync(self) -> None:
        used = torch.tensor([p.grad is not None for p in self._trained], dtype=torch.int64)
        self.all_reduce(used, self.axis)
        for p, ranks in zip(self._trained, used.tolist(), strict=True):
            if ranks:
                g = torch.zeros_like(p) if p.grad is None else dense(p.grad)
                g = self.all_reduce(g.contiguous(), self.axis) / self._divisor
                p.grad = g if p.grad is None else p.grad.copy_(g)


@torch.no_grad()
def broadcast_tensors(tensors: list[Shaped[torch.Tensor, "..."]], axis: Axis) -> None:
    """Write rank 0's values into tensors of any dtype, in few messages.

    Tensors that are equal already are left alone, so that autograd does not take them for changed.

    Raises:
        MismatchError: if number, shapes or dtypes differ between ranks.
    """
    if axis.size == 1 or not tensors:
        return
    layout = " ".join(f"{x.dtype}{tuple(x.shape)}{x.requires_grad}" for x in tensors)
    num_bytes = sum(x.nbytes for x in tensors)
    alike = f"{len(tensors)} tensors {num_bytes} bytes layout {zlib.crc32(layout.encode()):08x}"
    with axis.collective("broadcast_tensors", alike):
        for bucket in cut_buckets(tensors, BUCKET_BYTES):
            mine = torch.cat([x.flatten() for x in bucket])
            theirs = collectives.broadcast(mine.clone().view(torch.uint8), axis).view(mine.dtype)
            sizes = [x.numel() for x in bucket]
            for x, old, new in zip(bucket, mine.split(sizes), theirs.split(sizes), strict=True):
                if not torch.equal(old.view(torch.uint8), new.view(torch.uint8)):
                    x.copy_(new.view(x.shape))
