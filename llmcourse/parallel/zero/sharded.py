"""ZeRO's stage 3: every rank keeps its shard of parameters, gradients and optimizer state.

A module runs on full parameters only while it needs them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse.checkpoint.shards import ShardRange
from llmcourse.parallel.collectives import broadcast
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.bucket import clip_shards
from llmcourse.parallel.zero.flat_layout import check_parameters
from llmcourse.parallel.zero.states import (
    Pieces,
    ShardPlacement,
    cut_states,
    join_states,
    state_pieces,
)
from llmcourse.parallel.zero.unit import Slot, Unit


class FullyShardedModel(nn.Module):
    """A model with its parameters sharded over the ranks of an axis.

    Every parameter becomes this rank's shard of it, the same object with another shape, often an
    empty one; an optimizer takes them in groups made before or after, and has to treat every entry
    by itself.  Rank 0's parameters and buffers are copied to the others at the start.  A parameter
    that is frozen, such as those below adapters, stays whole on every rank.

    Parameters are gathered in units: before a unit's forward pass and again before its backward
    pass, and freed after each.  Backward leaves in every shard's `.grad` its part of the gradient,
    averaged over the ranks and added to what is there.  All ranks call the same units in the same
    order.

    Args:
        module: on this rank's device.
        axis: the ranks.
        units: modules to be gathered by themselves, such as the blocks; what is in none of them
            forms a unit with the module itself.
        ordered: sum gradients in the order of ranks, not in that of the ring.

    Raises:
        ValueError: if a unit is not part of the module, or a parameter has two places, is not
            contiguous or of a second dtype; if all are frozen.

    Source:
        Rajbhandari et al. 2020, section 5.3, https://arxiv.org/abs/1910.02054; flat units as in
        Zhao et al. 2023, section 3, https://arxiv.org/abs/2304.11277
    """

    def __init__(
        self,
        module: nn.Module,
        axis: Axis,
        *,
        units: Sequence[nn.Module] = (),
        ordered: bool = False,
    ) -> None:
        super().__init__()
        self.module, self.axis = module, axis
        every = dict(module.named_parameters(remove_duplicate=False))
        check_parameters({name: p for name, p in every.items() if p.requires_grad})
        self._units = [
            Unit(root, slots, axis, ordered=ordered)
            for root, slots in _slots_by_unit(module, units).items()
            if slots
        ]
        frozen = (p.detach() for p in module.parameters() if not p.requires_grad)
        for whole in (*frozen, *module.buffers()):
            broadcast(whole, axis)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes inside add up gradients in full, which the next one outside reduces.

        It saves messages and costs the memory that stage 3 saves on gradients.
        """
        for unit in self._units:
            unit.sync_gradients = False
        try:
            yield
        finally:
            for unit in self._units:
                unit.sync_gradients = True

    @contextlib.contextmanager
    def gathered(self) -> Iterator[nn.Module]:
        """Give the module with all its parameters in full, to be read and run, not changed."""
        for unit in self._units:
            unit.hold(True)
        try:
            yield self.module
        finally:
            for unit in self._units:
                unit.hold(False)

    def clip_grad_norm(self, max_norm: int | float) -> float:
        """Scale the gradient so that its norm, over all ranks' shards, is at most `max_norm`.

        Returns:
            The norm before.
        """
        return clip_shards(self.parameters(), self.axis, max_norm)

    def full_state_dict(self) -> dict[str, Tensor]:
        """Return, on every rank, the state of the module with full parameters, by its own names.

        Buffers are this rank's.
        """
        full: dict[Tensor, Tensor] = {}
        for unit in self._units:
            full.update(zip(unit.shards, unit.layout.views(unit.all_gather()), strict=True))
        state = self.module.state_dict(keep_vars=True)
        return {name: full.get(value, value).detach().clone() for name, value in state.items()}

    def full_optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return, on every rank, what the optimizer's `state_dict` would be without shards."""
        mine = optimizer.state_dict()
        return {**mine, "state": join_states(mine["state"], self._places(optimizer), self.axis)}

    def weight_pieces(self) -> tuple[dict[str, ShardRange], dict[str, torch.Size]]:
        """Return this rank's pieces of `full_state_dict`, which stay where they are; all shapes.

        Buffers and what is frozen are on every rank: rank 0 counts as their keeper.
        """
        places = self._places_of_shards()
        mine, shapes = {}, {}
        for name, value in self.module.state_dict(keep_vars=True).items():
            if value in places:
                shapes[name], bounds = places[value]
                mine[name] = ShardRange(bounds[self.axis.index][0], value.detach().flatten())
            else:
                shapes[name] = value.shape
                if self.axis.index == 0:
                    mine[name] = ShardRange(0, value.detach().flatten())
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
        """Let an optimizer of the shards take over a state of full parameters."""
        mine = cut_states(state["state"], self._places(optimizer), self.axis.index)
        optimizer.load_state_dict({**state, "state": mine})

    def _places(self, optimizer: torch.optim.Optimizer) -> dict[int, ShardPlacement]:
        """Return the places of an optimizer's parameters, by its own numbers."""
        places = self._places_of_shards()
        params = [p for group in optimizer.param_groups for p in group["params"]]
        if any(p not in places for p in params):
            raise ValueError("the optimizer has parameters that are not of this model")
        return {number: places[p] for number, p in enumerate(params)}

    def _places_of_shards(self) -> dict[Tensor, ShardPlacement]:
        return {p: at for u in self._units for p, at in zip(u.shards, u.places, strict=True)}


def _slots_by_unit(module: nn.Module, units: Sequence[nn.Module]) -> dict[nn.Module, list[Slot]]:
    """Return the parameters of the module's own unit, and of each of the units inside."""
    if not set(units) <= set(module.modules()):
        raise ValueError(f"units has modules that are not part of the {type(module).__name__}")
    unit_of = {inner: unit for unit in units for inner in unit.modules()}
    slots: dict[nn.Module, list[Slot]] = {module: [], **{unit: [] for unit in units}}
    for inner in module.modules():
        found = inner._parameters.items()
        names = [name for name, p in found if p is not None and p.requires_grad]
        slots[unit_of.get(inner, module)] += [Slot(inner, name) for name in names]
    return slots
