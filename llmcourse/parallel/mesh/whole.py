"""Weights and moments of a whole model, cut for a rank of a mesh and put together again.

What a rank holds is told by the name of a parameter: the layers of its stage, its slice of a
matrix, its experts.  A state has for every parameter its tensors by name, such as the weight and
its two moments, which are all cut alike; what has another shape, such as the count of steps, is the
same everywhere.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from llmcourse.model import ModelConfig, whole_shapes
from llmcourse.parallel import expert_parallel, tensor_parallel
from llmcourse.parallel.mesh.split import Split
from llmcourse.parallel.pipeline import stages_of
from llmcourse.parallel.world import Rank

State = Mapping[str, Any]
"""Of one parameter: tensors of its shape, and other entries, by their names."""

Cut = tuple[int, int, int] | None
"""The dim that is cut, the first entry and the one after the last; None for all of it."""


def cut_of(
    name: str, shape: torch.Size, config: ModelConfig, split: Split, place: Mapping[str, int]
) -> Cut:
    """Tell which part of a whole parameter a rank holds, if its stage has it at all."""
    if split.ep > 1:
        return expert_parallel.slice_of(name, shape, place["ep"], split.ep)
    if split.tp > 1:
        return tensor_parallel.slice_of(
            name, shape, config, place["tp"], split.tp, replicate_kv=split.replicate_kv
        )
    return None


def layers_of(config: ModelConfig, split: Split, place: Mapping[str, int]) -> list[int]:
    """Return the layers of a rank's stages."""
    stages = stages_of(config.num_layers, split.pp, split.chunks)
    return [layer for stage in stages[place["pp"] :: split.pp] for layer in stage]


def names_of(config: ModelConfig, split: Split, place: Mapping[str, int]) -> list[str]:
    """Return the names of the parameters that a rank's stages have, or a part of them."""
    is_first, is_last = place["pp"] == 0, place["pp"] == split.pp - 1
    ends = {
        "embedding": is_first or (is_last and config.tied_head),
        "norm": is_last,
        "head": is_last,
    }
    ends |= {str(layer): True for layer in layers_of(config, split, place)}
    return [
        name
        for name in whole_shapes(config)
        if ends.get(name.removeprefix("blocks.").split(".")[0], False)
    ]


def cut(
    whole: Mapping[str, State],
    names: list[str],
    config: ModelConfig,
    split: Split,
    place: Mapping[str, int],
) -> dict[str, dict[str, Any]]:
    """Return a rank's part of the states of a whole model, for the names that its stages have."""
    shapes = whole_shapes(config)
    mine = {}
    for name in names:
        part = cut_of(name, shapes[name], config, split, place)
        mine[name] = {
            key: _narrowed(value, part).clone() if _is_cut(value, shapes[name]) else value
            for key, value in whole.get(name, {}).items()
        }
    return mine


def join(
    mine: Mapping[str, State], rank: Rank, config: ModelConfig, split: Split
) -> dict[str, dict[str, Any]]:
    """Put together, on every rank, the states of the whole model.

    All ranks that differ along pp, ep and tp tell each other what they hold; copies along dp and cp
    are left alone.  States come in the order of the model's parameters.
    """
    shapes = whole_shapes(config)
    found = {name: dict(state) for name, state in mine.items()}
    for axis_name in ("tp", "ep"):
        axis = rank.axis(axis_name)
        if axis.size == 1:
            continue
        told = axis.all_gather_object(found)
        places = [rank.place | {axis_name: index} for index in range(axis.size)]
        for name in found:
            cuts = [cut_of(name, shapes[name], config, split, place) for place in places]
            found[name] = _joined(name, told, cuts, shapes[name])
    stages = rank.axis("pp").all_gather_object(found)
    everything = {name: state for stage in reversed(stages) for name, state in stage.items()}
    return {name: everything[name] for name in shapes}


def _joined(
    name: str, told: list[dict[str, State]], cuts: list[Cut], shape: torch.Size
) -> dict[str, Any]:
    """Put one parameter's state together from the parts of the ranks of an axis."""
    if cuts[0] is None:
        return dict(told[0][name])
    dim, start, stop = cuts[0]
    part_shape = torch.Size([*shape[:dim], stop - start, *shape[dim + 1 :]])
    state = dict(told[0][name])
    for key, first in told[0][name].items():
        if _is_cut(first, part_shape):
            state[key] = first.new_empty(shape)
            for each, part in zip(told, cuts, strict=True):
                _narrowed(state[key], part).copy_(each[name][key])
    return state


def _narrowed(x: Tensor, part: Cut) -> Tensor:
    """Return a view of the part of a tensor."""
    if part is None:
        return x
    dim, start, stop = part
    return x.narrow(dim, start, stop - start)


def _is_cut(value: Any, shape: torch.Size) -> bool:
    """Whether an entry has a number for each of the parameter's."""
    return isinstance(value, Tensor) and value.shape == shape
