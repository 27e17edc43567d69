"""A unit of stage 3: parameters that are unsharded and resharded together, and when.

At rest a parameter is this rank's shard of it.  For the forward pass the ranks put all shards
together in one flat parameter, and the modules find views of it in place of their own.  After it
the memory is given back, and autograd is left with views of nothing; before the backward pass comes
to them, the same flat parameter gets its memory and its contents back.

Autograd says by itself when the gradient of the flat parameter is complete, however often the
modules were called.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from llmcourse.parallel.collectives import all_gather, broadcast, reduce_scatter
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.flat_layout import FlatLayout


class Slot(NamedTuple):
    """A place where a module looks for a parameter."""

    module: nn.Module
    name: str


class Unit:
    """Parameters in one flat parameter; every one becomes this rank's shard of itself.

    Args:
        module: whose calls need them.
        slots: where they are.
        axis: the ranks.
        ordered: sum gradients in the order of ranks.
    """

    def __init__(
        self, module: nn.Module, slots: Sequence[Slot], axis: Axis, *, ordered: bool
    ) -> None:
        self.slots, self.axis, self.ordered = list(slots), axis, ordered
        self.shards = [getattr(inner, name) for inner, name in slots]
        self.layout = FlatLayout([p.shape for p in self.shards], axis.size)
        self.places = self.layout.places()
        # All ranks begin with rank 0's parameters, and keep their shards of them.
        flat = broadcast(torch.cat([p.detach().reshape(-1) for p in self.shards]), axis)
        for p, view, place in zip(self.shards, self.layout.views(flat), self.places, strict=True):
            p.data = place.cut(view, axis.index).clone()
        self.flat = flat.requires_grad_()
        """The flat parameter, which autograd knows; without memory while it is sharded."""
        self._num_bytes = flat.nbytes
        flat.untyped_storage().resize_(0)
        self.is_unsharded = self._is_held = self._in_backward = False
        self.sync_gradients = True
        """Whether gradients are reduced; else they are left in full, to be added up."""
        # forward: unshard - run - reshard; backward: unshard - run - reduce-scatter - reshard
        module.register_forward_pre_hook(self._before_forward)
        module.register_forward_hook(self._after_forward)
        self.flat.register_post_accumulate_grad_hook(self._after_backward)

    def unshard(self) -> None:
        """All-gather the flat parameter, and show its views to the modules."""
        if self.is_unsharded:
            return
        gathered = self.all_gather()
        self.flat.untyped_storage().resize_(self._num_bytes)
        self.flat.data.copy_(gathered)  # .data, so that autograd does not take it for a change
        with torch.enable_grad():  # views that are made in backward may serve a recomputation
            views = self.layout.views(self.flat)
        for (module, name), view in zip(self.slots, views, strict=True):
            # The instance's own attribute is found before the module's parameter.
            module.__dict__[name] = view
        self.is_unsharded = True

    def reshard(self) -> None:
        """Give the memory back; the modules see their shards again."""
        if not self.is_unsharded:
            return
        for module, name in self.slots:
            del module.__dict__[name]
        self.flat.untyped_storage().resize_(0)
        self.is_unsharded = False

    def all_gather(self) -> Tensor:
        """Return all parameters, end to end, in memory of their own."""
        chunk = torch.cat([shard.detach().reshape(-1) for shard in self.shards])
        return all_gather(chunk, self.axis, length=self.layout.length)

    def reduce_scatter(self) -> None:
        """Average the gradient over the ranks, and add this rank's chunk to that of its shards."""
        gradient, self.flat.grad = self.flat.grad, None
        assert gradient is not None  # autograd has added to it
        chunk = reduce_scatter(gradient, self.axis, ordered=self.ordered).div_(self.axis.size)
        parts = chunk.split([shard.numel() for shard in self.shards])
        for shard, part in zip(self.shards, parts, strict=True):
            mine = part.view(shard.shape)
            shard.grad = mine if shard.grad is None else shard.grad.add_(mine)

    def hold(self, is_held: bool) -> None:
        """Stay unsharded until further notice, or no longer."""
        self._is_held = is_held
        self.reshard()
        if is_held:
            self.unshard()

    def _before_forward(self, *_: Any) -> None:
        is_recomputation = torch._C._current_graph_task_id() != -1  # inside a backward pass
        if not (self._is_held or is_recomputation):
            self._in_backward = False
            self.reshard()  # what an error has left here may be out of date
        self.unshard()

    def _after_forward(self, module: nn.Module, _: tuple, out: Any) -> None:
        self._release()
        tensors = [x for x in (out if isinstance(out, tuple) else (out,)) if isinstance(x, Tensor)]
        if not tensors:
            raise TypeError(
                f"a {type(module).__name__} returned a {type(out).__name__}: a unit has to return "
                "a tensor, or a tuple with tensors, or backward would pass it unnoticed"
            )
        for x in tensors:
            if x.grad_fn is not None:
                x.grad_fn.register_prehook(self._before_backward)

    def _before_backward(self, _: tuple) -> None:
        """Backward has come to something that the module returned."""
        self._in_backward = True
        self.unshard()

    def _after_backward(self, _: Tensor) -> None:
        """Backward has the whole gradient: nothing reads the parameters any more."""
        if self.sync_gradients:
            self.reduce_scatter()
        self._in_backward = False
        self._release()

    def _release(self) -> None:
        if not (self._is_held or self._in_backward):
            self.reshard()
