"""Data parallelism: every rank has the whole model, and its own part of the batch.

All ranks start from rank 0's weights.  Each finds the gradient of its own part; `sync` replaces it
by the mean over the ranks,

    g = (g_0 + g_1 + ... + g_{n-1}) / n,

which is the gradient of the whole batch where the parts are equally large.  The same step of the
same optimizer then keeps the weights equal, without sending any of them again.  `NaiveDDP` says
this in a few lines; `BucketedDDP` sends few large messages, while backward is still running.

A parameter without a gradient on some ranks (a branch not taken) counts as zero there.  Whether any
rank has a gradient travels beside the gradients, so that all agree on it.

Taught in: chapters/23_data_parallel.ipynb
"""

import contextlib
import queue
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse.parallel import collectives
from llmcourse.parallel.world import Axis

AllReduce = Callable[[Tensor, Axis], Tensor]
"""Sums a tensor over the ranks of an axis, in place, and returns it."""

BUCKET_BYTES = 1 << 20


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
                g = torch.zeros_like(p) if p.grad is None else _dense(p.grad)
                g = self.all_reduce(g.contiguous(), self.axis) / self._divisor
                p.grad = g if p.grad is None else p.grad.copy_(g)


class BucketedDDP(Replica):
    """Few large messages, each sent as soon as backward has what goes into it.

    Backward reaches the last parameters first, so buckets are filled from the last parameter
    to the first.  A parameter's hook fires when its gradient is complete; when the last one of a
    bucket has fired, a thread of its own sums the bucket over the ranks while backward goes on.
    Every rank sends the buckets in the same order, whatever the order in which they fill; those
    that did not fill, because a parameter was not used, are sent by `sync`.

    Gradients change in `sync` alone.  With `overlap`, all but the last backward pass before it
    belong into `no_sync`.

    Args:
        module, axis, all_reduce, average, broadcast_buffers: as in `Replica`.
        bucket_bytes: gradients in one message, at most; a larger parameter has its own bucket.
        overlap: whether full buckets are sent during backward, or all of them in `sync`.
        channel: of the axis, for the thread; two modules that are wrapped over one axis at the same
            time need two channels.

    Raises:
        ValueError: if bucket_bytes or channel is below 1; and as in `Replica`.

    Source:
        Li et al. 2020, sections 3.2 and 4.2, https://arxiv.org/abs/2006.15704
    """

    def __init__(
        self,
        module: nn.Module,
        axis: Axis,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        overlap: bool = True,
        all_reduce: AllReduce = collectives.all_reduce_ring,
        average: bool = True,
        broadcast_buffers: bool = True,
        channel: int = 1,
    ) -> None:
        if channel < 1:
            raise ValueError(f"channel must be 1 or greater (0 is the caller's), got {channel}")
        cut_buckets([], bucket_bytes)  # before anything is sent
        settings = {"average": average, "broadcast_buffers": broadcast_buffers}
        super().__init__(module, axis, all_reduce=all_reduce, **settings)
        self.overlap = overlap
        self.channel = axis.channel(channel) if overlap else axis
        """Where gradients travel; its `sent_bytes` counts them."""
        self.buckets = [Bucket(ps) for ps in cut_buckets(self._trained[::-1], bucket_bytes)]
        self._errands: Errands | None = None
        if overlap:
            self._errands = Errands("gradient buckets")
            self._listen()

    def _listen(self) -> None:
        """Hear of every complete gradient, for as long as this object lives."""
        me = weakref.ref(self)  # parameters outlive their wrapper, and would keep it alive

        def ready(p: Tensor, bucket: Bucket) -> None:
            if (replica := me()) is not None:
                replica._ready(bucket, p)

        for bucket in self.buckets:
            for p in bucket.parameters:
                hook = p.register_post_accumulate_grad_hook(partial(ready, bucket=bucket))
                weakref.finalize(self, hook.remove)

    def _ready(self, bucket: "Bucket", p: Tensor) -> None:
        """Note a complete gradient, and send what may now be sent."""
        if self._local:
            return
        if bucket.sum is not None:
            raise RuntimeError(
                "a backward pass after the gradients were sent: call sync() after each, or put all "
                "but the last one into no_sync()"
            )
        bucket.missing.discard(id(p))
        for each in self.buckets:  # in order, up to the first that is not full
            if each.missing:
                break
            if each.sum is None:
                self._send(each)

    def _send(self, bucket: "Bucket") -> None:
        reduce = partial(bucket.reduce, self.all_reduce, self.channel, self._divisor)
        bucket.sum = self._errands.submit(reduce)

    def _sync(self) -> None:
        for bucket in self.buckets:
            if not self.overlap:
                bucket.reduce(self.all_reduce, self.channel, self._divisor)
            elif bucket.sum is None:
                self._send(bucket)
        for bucket in self.buckets:
            bucket.finish()


class Bucket:
    """Gradients that travel together: one tensor, and at its end a mark for each parameter.

    The mark is not zero where a rank has a gradient, so that its sum tells whether any has.

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
            part.zero_() if p.grad is None else part.copy_(_dense(p.grad))
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


class Errands:
    """A thread that does what it is told, in order, until an error; it ends with its owner.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        todo: queue.SimpleQueue = queue.SimpleQueue()
        self._todo = todo
        threading.Thread(target=_do_errands, args=(todo,), name=name, daemon=True).start()
        weakref.finalize(self, todo.put, None)

    def submit(self, errand: Callable[[], Any]) -> Future:
        """Return at once; the result, or the first error of the thread, comes with the Future."""
        future: Future = Future()
        self._todo.put((errand, future))
        return future


def _do_errands(todo: queue.SimpleQueue) -> None:
    """Do errands until None comes; after an error do none, since the other ranks are lost."""
    error = None
    while (item := todo.get()) is not None:
        errand, future = item
        try:
            if error is None:
                future.set_result(errand())
        except BaseException as raised:  # the thread that waits raises it  # noqa: BLE001
            error = raised
        if error is not None:
            future.set_exception(error)
        del item, errand, future  # or they would live until the next errand


def cut_buckets(tensors: Iterable[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
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
    filling: dict[tuple, tuple[int, list[Tensor]]] = {}
    for place, x in enumerate(tensors):
        kind = (x.dtype, x.device)
        last, bucket = filling.pop(kind, (place, []))
        if bucket and sum(y.nbytes for y in bucket) + x.nbytes > bucket_bytes:
            full.append((last, bucket))
            bucket = []
        filling[kind] = (place, [*bucket, x])
    in_order = sorted([*full, *filling.values()], key=lambda pair: pair[0])
    return [bucket for _, bucket in in_order]


@torch.no_grad()
def broadcast_tensors(tensors: list[Tensor], axis: Axis) -> None:
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
            mine = torch.cat([x.flatten() for x in bucket]).view(torch.uint8)
            theirs = collectives.broadcast(mine.clone(), axis)
            if torch.equal(mine, theirs):
                continue
            parts = theirs.view(bucket[0].dtype).split([x.numel() for x in bucket])
            for x, part in zip(bucket, parts, strict=True):
                x.copy_(part.view(x.shape))


def _dense(gradient: Tensor) -> Tensor:
    """Return the gradient itself.

    Raises:
        ValueError: if it is sparse.
    """
    if gradient.layout != torch.strided:
        raise ValueError(f"gradients must be dense, got {gradient.layout}: use sparse=False")
    return gradient
