"""A flat row of parameters that is gathered for use and freed after it, for stage 3.

At rest a parameter is this rank's piece of it.  For the forward pass the ranks put all pieces
together in one flat row, and the modules find views of that row in place of their parameters.
After it the row's memory is given back, and autograd is left with views of nothing; before the
backward pass comes to them, the same row gets its memory and its contents back.

Autograd sees the row as one parameter, so it says by itself when its gradient is complete, however
often the modules were called.

Taught in: chapters/24_zero.ipynb
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from llmcourse.parallel.collectives import all_gather, broadcast, reduce_scatter
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.layout import end_to_end
from llmcourse.parallel.zero.states import Place


class Slot(NamedTuple):
    """A place where a module looks for a parameter; a tied one has several."""

    module: nn.Module
    name: str


@dataclass(frozen=True)
class Rules:
    """How a unit communicates: see `FullyShardedModel`."""

    axis: Axis
    compute_dtype: torch.dtype | None
    reduce_dtype: torch.dtype | None
    average: bool
    ordered: bool


class FlatRow:
    """Parameters of one dtype, all to be trained or all frozen, laid end to end and cut in chunks.

    Every parameter object becomes this rank's piece of itself.

    Args:
        slots: of each parameter.
        rules: how to communicate.
    """

    def __init__(self, slots: Mapping[nn.Parameter, Sequence[Slot]], rules: Rules) -> None:
        self.params, self.slots = list(slots), list(slots.values())
        self.rules, axis = rules, rules.axis
        first = self.params[0]
        self.trained = first.requires_grad
        self.layout = end_to_end([p.shape for p in self.params], axis.size)
        by_rank = [self.layout.pieces(rank) for rank in range(axis.size)]
        self.places = [
            Place(p.shape, [pieces[i] for pieces in by_rank]) for i, p in enumerate(self.params)
        ]
        whole = broadcast(self.layout.join([p.detach() for p in self.params], like=first), axis)
        self.load(self.layout.cut(whole))
        can_cast = rules.compute_dtype is not None and first.is_floating_point()
        dtype = rules.compute_dtype if can_cast else first.dtype
        self.row = torch.empty(
            self.layout.length, dtype=dtype, device=first.device, requires_grad=self.trained
        )
        """What autograd knows; without memory between uses."""
        self._num_bytes = self.row.untyped_storage().nbytes()
        self.row.untyped_storage().resize_(0)
        self.here = False

    def load(self, wholes: Sequence[Tensor]) -> None:
        """Keep this rank's pieces of whole parameters."""
        for p, whole, place in zip(self.params, wholes, self.places, strict=True):
            p.data = place.cut(whole.detach(), self.rules.axis.index).to(p.dtype, copy=True)

    def chunk(self) -> Tensor:
        """Return this rank's chunk: its pieces end to end."""
        return torch.cat([p.detach().flatten() for p in self.params])

    def wholes(self) -> list[Tensor]:
        """Return the whole parameters, in their own dtype."""
        return self.layout.cut(all_gather(self.chunk(), self.rules.axis, length=self.layout.length))

    def gather(self) -> None:
        """Get the contents of the row from all ranks, and show its views to the modules."""
        if self.here:
            return
        chunk = self.chunk().to(self.row.dtype)
        whole = all_gather(chunk, self.rules.axis, length=self.layout.length)
        self.row.untyped_storage().resize_(self._num_bytes)
        self.row.data.copy_(whole)  # .data, so that autograd does not take it for a change
        self.here = True
        shapes = self.layout.shapes
        with torch.enable_grad():  # views that are made in backward may serve a recomputation
            parts = self.row.split([shape.numel() for shape in shapes])
            views = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        for view, slots in zip(views, self.slots, strict=True):
            for slot in slots:
                # The instance's own attribute is found before the module's parameter.
                slot.module.__dict__[slot.name] = view
        self._tell_modules()

    def free(self) -> None:
        """Give the memory of the row back; the modules see their pieces again."""
        if not self.here:
            return
        for slots in self.slots:
            for slot in slots:
                slot.module.__dict__.pop(slot.name, None)
        self._tell_modules()
        self.row.untyped_storage().resize_(0)
        self.here = False

    def reduce(self) -> None:
        """Sum the row's gradient over the ranks, and add this rank's chunk to the pieces' own."""
        rules, gradient = self.rules, self.row.grad
        self.row.grad = None
        if rules.reduce_dtype is not None:
            gradient = gradient.to(rules.reduce_dtype)
        chunk = reduce_scatter(gradient, rules.axis, ordered=rules.ordered)
        chunk = chunk.to(self.params[0].dtype)
        if rules.average:
            chunk.div_(rules.axis.size)
        pieces = chunk.split([p.numel() for p in self.params])
        for p, piece in zip(self.params, pieces, strict=True):
            p.grad = piece.view(p.shape) if p.grad is None else p.grad.add_(piece.view(p.shape))

    def _tell_modules(self) -> None:
        """Let recurrent modules look their weights up again: they keep a list of them."""
        for slots in self.slots:
            for module, _ in slots:
                if isinstance(module, nn.RNNBase):
                    names = module._flat_weights_names
                    module._flat_weights = [getattr(module, name) for name in names]
