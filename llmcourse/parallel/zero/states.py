"""Optimizer state of shards, put together to that of whole parameters, and cut again.

The whole is what the optimizer itself would hold without shards: it fits any layout.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llmcourse.checkpoint.shards import ShardRange
from llmcourse.parallel.world import Axis

ParamState = Mapping[str, Any]
"""What an optimizer keeps for one parameter, by its names."""

COUNTER = "step"
"""The one entry that optimizers keep for a parameter as a whole, even where it is a tensor."""


class ShardPlacement(NamedTuple):
    """Where the pieces of one parameter are."""

    shape: torch.Size
    """Of the whole parameter."""
    pieces: list[tuple[int, int]]
    """By rank: from which entry to which of the flattened parameter."""

    def shard_shape(self, rank: int) -> torch.Size:
        """Return the shape of a rank's shard: the parameter's if it is all of it, else flat."""
        first, last = self.pieces[rank]
        return self.shape if last - first == self.shape.numel() else torch.Size([last - first])

    def cut(self, whole: Tensor, rank: int) -> Tensor:
        """Return a rank's shard of a tensor of the parameter's shape, a view where possible."""
        first, last = self.pieces[rank]
        return whole.reshape(-1)[first:last].view(self.shard_shape(rank))


def join_states(
    mine: Mapping[int, ParamState], places: Mapping[int, ShardPlacement], axis: Axis
) -> dict[int, dict[str, Any]]:
    """Put together the states of all ranks' shards, on every rank, by numbers of parameters.

    An entry that is not as large as the shard, such as the count of steps, is taken from one rank.
    """
    ranks = axis.all_gather_object(dict(mine))
    found = {}
    for number, place in places.items():
        shards = {rank: states[number] for rank, states in enumerate(ranks) if number in states}
        if shards:
            keys = next(iter(shards.values()))
            found[number] = {key: _joined(key, shards, place) for key in keys}
    return found


class Pieces(NamedTuple):
    """An optimizer's state, cut as a rank keeps it."""

    mine: dict[tuple[int, str], ShardRange]
    """This rank's ranges of what is divided, by number and name."""
    shapes: dict[tuple[int, str], torch.Size]
    """Of the whole tensors that are divided, those that this rank has nothing of included."""
    rest: dict[int, dict[str, Any]]
    """What is not divided, such as the count of steps."""


def state_pieces(
    mine: Mapping[int, ParamState], places: Mapping[int, ShardPlacement], axis: Axis
) -> Pieces:
    """Cut the state of this rank's shards; the ranks tell each other names and counts alone."""
    pieces: dict[tuple[int, str], ShardRange] = {}
    rest: dict[int, dict[str, Any]] = {}
    for number, state in mine.items():
        first, shape = places[number].pieces[axis.index][0], places[number].shard_shape(axis.index)
        rest[number] = {}
        for key, value in state.items():
            if _is_divided(key, value, shape):
                pieces[number, key] = ShardRange(first, value.detach().flatten())
            else:
                rest[number][key] = value
    told = axis.all_gather_object((list(pieces), rest))
    shapes = {name: places[name[0]].shape for names, _ in told for name in names}
    wholes = {number: state for _, states in told for number, state in states.items()}
    return Pieces(pieces, shapes, wholes)


def cut_states(
    whole: Mapping[int, ParamState], places: Mapping[int, ShardPlacement], rank: int
) -> dict[int, dict[str, Any]]:
    """Return what one rank keeps of the states of whole parameters; empty shards included."""
    return {
        number: {
            key: places[number].cut(value, rank).clone()
            if _is_divided(key, value, places[number].shape)
            else value
            for key, value in state.items()
        }
        for number, state in whole.items()
    }


def _joined(key: str, shards: Mapping[int, ParamState], place: ShardPlacement) -> Any:
    """Return one entry of a parameter's state."""
    rank, state = next(iter(shards.items()))
    value = state[key]
    if not _is_divided(key, value, place.shard_shape(rank)):
        return value
    whole = value.new_empty(place.shape.numel())
    for rank, state in shards.items():
        first, last = place.pieces[rank]
        whole[first:last] = state[key].flatten()
    return whole.view(place.shape)


def _is_divided(key: str, value: Any, shape: torch.Size) -> bool:
    """Whether an entry has one number for each of the parameter's, so that it is cut as that is."""
    return isinstance(value, Tensor) and key != COUNTER and value.shape == shape
