"""ZeRO's stage 3: every rank keeps its shard of parameters, gradients and optimizer state.

A module runs on whole parameters only while it needs them.

Taught in: chapters/24_zero.ipynb
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse.checkpoint.shards import Piece
from llmcourse.parallel.collectives import broadcast
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.bucket import clip_shards
from llmcourse.parallel.zero.row import FlatRow, Rules, Slot
from llmcourse.parallel.zero.states import Pieces, Place, cut_states, join_states, state_pieces
from llmcourse.parallel.zero.unit import Backward, Unit

Units = type[nn.Module] | tuple[type[nn.Module], ...] | Sequence[nn.Module] | None
"""Which modules are units."""


class FullyShardedModel(nn.Module):
    """Any module, with its parameters sharded over the ranks of an axis.

    Every parameter of the module becomes this rank's piece of it, the same object with another
    shape, often an empty one; an optimizer takes them in groups made before or after, and has to
    treat every entry by itself.  Rank 0's parameters and buffers are copied to the others at the
    start.

    Parameters are gathered in units: before a unit's forward pass and again before its backward
    pass, and freed after each.  Backward leaves in every piece's `.grad` its piece of the gradient,
    reduced over the ranks and added to what is there; what no rank used, in a unit that was used,
    gets zeros.  All ranks have to call the same units in the same order.

    Args:
        module: on this rank's device; freeze parameters before.
        axis: the ranks.
        units: modules to be gathered by themselves, by class or one by one; what is in none of
            them, or in several, forms a unit with the module itself.  None is that unit alone.
        compute_dtype: of gathered parameters and of what units are given; None is the parameters'.
        reduce_dtype: of gradients while they are reduced; None is the compute dtype.
        average: the gradient is the mean over ranks, else the sum.
        ordered: sum gradients in the order of ranks, not in that of the ring.

    Raises:
        ValueError: if the module has no parameter, or no unit as described.

    Source:
        Rajbhandari et al. 2020, section 5.3, https://arxiv.org/abs/1910.02054; flat units as in
        Zhao et al. 2023, section 3, https://arxiv.org/abs/2304.11277
    """

    def __init__(
        self,
        module: nn.Module,
        axis: Axis,
        *,
        units: Units = None,
        compute_dtype: torch.dtype | None = None,
        reduce_dtype: torch.dtype | None = None,
        average: bool = True,
        ordered: bool = False,
    ) -> None:
        super().__init__()
        self.module, self.axis = module, axis
        rules = Rules(axis, compute_dtype, reduce_dtype, average, ordered)
        self._backward = Backward()
        roots = _unit_modules(module, units)
        for root, slots in zip(roots, _owned_slots(module, roots), strict=True):
            kinds: dict[tuple, dict[nn.Parameter, list[Slot]]] = {}
            for p, places in slots.items():
                kinds.setdefault((p.dtype, p.requires_grad), {})[p] = places
            rows = [FlatRow(each, rules) for each in kinds.values()]
            nested = any(inner is not root and inner in roots for inner in root.modules())
            Unit(root, rows, dtype=compute_dtype, nested=nested, backward=self._backward)
        self._rows = [row for unit in self._backward.units for row in unit.rows]
        if not self._rows:
            raise ValueError(f"a {type(module).__name__} has no parameters to shard")
        for buffer in module.buffers():
            broadcast(buffer, axis)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes inside add up whole gradients, which the next one outside reduces.

        It saves messages and costs the memory that stage 3 saves on gradients.
        """
        before, self._backward.sync = self._backward.sync, False
        try:
            yield
        finally:
            self._backward.sync = before

    @contextlib.contextmanager
    def gathered(self) -> Iterator[nn.Module]:
        """Give the module with all its parameters whole, to be read and run, not to be changed."""
        for unit in self._backward.units:
            unit.hold()
        try:
            yield self.module
        finally:
            for unit in self._backward.units:
                unit.let_go()

    def clip_grad_norm(self, max_norm: int | float) -> float:
        """Scale the gradient so that its norm, over all ranks' shards, is at most `max_norm`.

        Returns:
            The norm before.
        """
        return clip_shards(self.parameters(), self.axis, max_norm)

    def full_state_dict(self) -> dict[str, Any]:
        """Return, on every rank, the state of the module with whole parameters, by its own names.

        Buffers are those of rank 0.
        """
        wholes: dict[Tensor, Tensor] = {}
        for row in self._rows:
            wholes.update(zip(row.params, row.wholes(), strict=True))
        state = {}
        for name, value in self.module.state_dict(keep_vars=True).items():
            if isinstance(value, nn.Parameter):
                state[name] = wholes[value].clone()
            elif isinstance(value, Tensor):
                state[name] = broadcast(value.detach().clone(), self.axis)
            else:
                state[name] = value
        return state

    def load_full_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state of the module with whole parameters, the same on every rank.

        Raises:
            ValueError: if names are missing or too many, or a shape is another.
        """
        names = list(self.module.state_dict())
        missing, extra = sorted(set(names) - set(state)), sorted(set(state) - set(names))
        if missing or extra:
            raise ValueError(f"the state lacks {missing}, and has {extra}, which the module lacks")
        name_of = {p: name for name, p in self.module.named_parameters()}
        for row in self._rows:
            for p, place in zip(row.params, row.places, strict=True):
                given = state[name_of[p]].shape
                if given != place.shape:
                    raise ValueError(
                        f"{name_of[p]} has shape {tuple(place.shape)}, got {tuple(given)}"
                    )
        for row in self._rows:
            row.load([state[name_of[p]] for p in row.params])
        of_parameters = {n for n, _ in self.module.named_parameters(remove_duplicate=False)}
        rest = {name: value for name, value in state.items() if name not in of_parameters}
        self.module.load_state_dict(rest, strict=False)

    def full_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return, on every rank, what the optimizer's `state_dict` would be without shards."""
        mine = optimizer.state_dict()
        return {**mine, "state": join_states(mine["state"], self._places(optimizer), self.axis)}

    def weight_pieces(self) -> tuple[dict[str, Piece], dict[str, torch.Size]]:
        """Return this rank's pieces of `full_state_dict`, which stay where they are; all shapes.

        Buffers are whole and the same everywhere: rank 0 counts as their keeper.
        """
        places: dict[Tensor, Place] = {}
        for row in self._rows:
            places.update(zip(row.params, row.places, strict=True))
        mine, shapes = {}, {}
        for name, value in self.module.state_dict(keep_vars=True).items():
            if isinstance(value, nn.Parameter):
                shapes[name], pieces = places[value]
                mine[name] = Piece(pieces[self.axis.index][0], value.detach().flatten())
            else:
                shapes[name] = value.shape
                if self.axis.index == 0:
                    mine[name] = Piece(0, value.flatten())
        return mine, shapes

    def optimizer_pieces(
        self, optimizer: torch.optim.Optimizer
    ) -> tuple[Pieces, list[dict[str, Any]]]:
        """Return this rank's pieces of `full_optimizer_state`; the groups."""
        mine = optimizer.state_dict()
        pieces = state_pieces(mine["state"], self._places(optimizer), self.axis)
        return pieces, mine["param_groups"]

    def load_full_optimizer_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
    ) -> None:
        """Let an optimizer of the pieces take over a state of the whole."""
        mine = cut_states(state["state"], self._places(optimizer), self.axis.index)
        optimizer.load_state_dict({**state, "state": mine})

    def _places(self, optimizer: torch.optim.Optimizer) -> dict[int, Place]:
        """Return the places of an optimizer's parameters, by its own numbers."""
        places: dict[Tensor, Place] = {}
        for row in self._rows:
            places.update(zip(row.params, row.places, strict=True))
        params = [p for group in optimizer.param_groups for p in group["params"]]
        if any(p not in places for p in params):
            raise ValueError("the optimizer has parameters that are not of this model")
        return {number: places[p] for number, p in enumerate(params)}


def _unit_modules(module: nn.Module, units: Units) -> list[nn.Module]:
    """Return the modules that form units; the module itself is always the first.

    Raises:
        ValueError: if there are none of the kind, or some are not part of the module.
    """
    inside = list(module.modules())
    if units is None:
        found = []
    elif isinstance(units, type | tuple):
        found = [m for m in inside if isinstance(m, units)]
        if not found:
            raise ValueError(f"a {type(module).__name__} has no module of {units}")
    else:
        found = list(units)
        if any(m not in inside for m in found):
            raise ValueError(f"units has modules that are not part of the {type(module).__name__}")
    return [module, *(m for m in found if m is not module)]


def _owned_slots(
    module: nn.Module, roots: Sequence[nn.Module]
) -> list[dict[nn.Parameter, list[Slot]]]:
    """Return the parameters of every unit, and where they are found.

    A parameter belongs to the innermost unit around it, or to the module itself where it is found
    in several.
    """
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    slots: dict[nn.Parameter, list[Slot]] = {}
    seen = set()

    def visit(inner: nn.Module, owner: nn.Module) -> None:
        owner = inner if inner in roots else owner
        if (inner, owner) in seen:
            return
        seen.add((inner, owner))
        for name, p in inner._parameters.items():
            if p is not None:
                owners.setdefault(p, set()).add(owner)
                if Slot(inner, name) not in slots.setdefault(p, []):
                    slots[p].append(Slot(inner, name))
        for child in inner.children():
            visit(child, owner)

    visit(module, module)
    return [
        {
            p: slots[p]
            for p, several in owners.items()
            if (root in several if len(several) == 1 else root is module)
        }
        for root in roots
    ]
