"""The state of a run as tensors by name, and all the rest: what a checkpoint in parts is made of.

A tensor of the model is called model.NAME, a moment optimizer.NUMBER.NAME, by the number of its
parameter.  Counts, settings and positions are small: they stay together as plain data.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def moment_name(number: int, key: str) -> str:
    """Return the name of an optimizer's tensor for one parameter."""
    return f"optimizer.{number}.{key}"


def take_apart(
    model: Mapping[str, Any], optimizer: Mapping[str, Any] | None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take states apart.

    Args:
        model: as of `state_dict()`.
        optimizer: as of `state_dict()`, or None.

    Returns:
        The tensors by name; then the states with what is left in them, such as counts of steps.
    """
    tensors, kept = {}, {}
    for name, value in model.items():
        if isinstance(value, Tensor):
            tensors[f"model.{name}"] = value
        else:
            kept[name] = value
    if optimizer is None:
        return tensors, {"model": kept, "optimizer": None}
    states: dict[int, dict[str, Any]] = {}
    for number, state in optimizer["state"].items():
        states[number] = {}
        for key, value in state.items():
            if isinstance(value, Tensor) and value.ndim:
                tensors[moment_name(number, key)] = value
            else:
                states[number][key] = value
    return tensors, {"model": kept, "optimizer": {**optimizer, "state": states}}


def assembled(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what `take_apart` took apart: the fields of a `Checkpoint`.

    Args:
        tensors: whole, by name.
        content: the fields of a `Checkpoint`, tensors left out.
    """
    model, optimizer = dict(content["model"]), content["optimizer"]
    if optimizer is not None:
        states = {number: dict(state) for number, state in optimizer["state"].items()}
        optimizer = {**optimizer, "state": states}
    for name, value in tensors.items():
        part, rest = name.split(".", 1)
        if part == "model":
            model[rest] = value
        else:
            number, key = rest.split(".", 1)
            optimizer["state"][int(number)][key] = value
    return {**content, "model": model, "optimizer": optimizer}
