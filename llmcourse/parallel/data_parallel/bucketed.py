"""Gradients are summed over the ranks while backward is still finding others."""

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from torch import Tensor, nn

from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel.buckets import BUCKET_BYTES, AllReduce, Bucket, cut_buckets
from llmcourse.parallel.data_parallel.replica import Replica
from llmcourse.parallel.world import Axis


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
        channel: of the axis, for the gradients, 1 or greater; two modules that are wrapped over
            one axis at the same time need two channels.

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
        self.channel = axis.channel(channel)
        """Where gradients travel; its `sent_bytes` counts them."""
        self.buckets = [Bucket(ps) for ps in cut_buckets(self._trained[::-1], bucket_bytes)]
        self._num_sent = 0
        if overlap:
            self._errands = CommThread("gradient buckets")
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

    def _ready(self, bucket: Bucket, p: Tensor) -> None:
        """Note a complete gradient, and send what may now be sent."""
        if self._local:
            return
        if bucket.sum is not None:
            raise RuntimeError(
                "a backward pass after the gradients were sent: call sync() after each, or put all "
                "but the last one into no_sync()"
            )
        bucket.missing.discard(id(p))
        while self._num_sent < len(self.buckets) and not self.buckets[self._num_sent].missing:
            self._send()

    def _send(self) -> None:
        """Let the thread sum the next bucket."""
        bucket = self.buckets[self._num_sent]
        bucket.sum = self._errands.submit(
            partial(bucket.reduce, self.all_reduce, self.channel, self._divisor)
        )
        self._num_sent += 1

    def _sync(self) -> None:
        if self.overlap:
            while self._num_sent < len(self.buckets):
                self._send()
        else:
            for bucket in self.buckets:
                bucket.reduce(self.all_reduce, self.channel, self._divisor)
        for bucket in self.buckets:
            bucket.finish()
        self._num_sent = 0


class CommThread:
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
        except BaseException as raised:  # for the thread that waits, which raises it
            error = raised
        if error is not None:
            future.set_exception(error)
        del item, errand, future  # or they would live until the next errand
