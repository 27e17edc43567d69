"""Putting a checkpoint back: first everything is compared, then everything is loaded."""

import logging
from typing import Any

import torch

from llmcourse.base import runtime
from llmcourse.checkpoint.state import Checkpoint, Stateful, code_version

log = logging.getLogger(__name__)


def restore(
    checkpoint: Checkpoint,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Stateful | None = None,
    data: Stateful | None = None,
    generators: dict[str, torch.Generator] | None = None,
    config: dict[str, Any] | None = None,
    global_generators: bool = False,
) -> None:
    """Put the whole state of a run back.

    What the checkpoint holds must be given, and the other way round: a part that is silently left
    out gives a run that looks right and is another one.  The exception is `schedule`, which may be
    a record of settings: it is loaded when given.  For the weights alone, as in sampling, use
    `model.load_state_dict(checkpoint.model)`.

    All of it is compared before anything is changed.  Other source code than the checkpoint was
    written with is no error, but is said in the log, since the numbers may differ.

    Args:
        checkpoint: from `load`.
        model: with the same parameters.
        optimizer: of the same kind over the same parameters.
        schedule: of the learning rate.
        data: at any position of the same order.
        generators: by the names under which they were saved.
        config: of the run that continues; None compares nothing.
        global_generators: put those of Python, NumPy and torch back, too.  A run that owns its
            process wants it; inside somebody else's program they are not ours to set.

    Raises:
        ValueError: naming the first thing that does not fit.
    """
    if config is not None:
        _compare_config(checkpoint.config, config)
    _compare_weights(checkpoint.model, model.state_dict())
    for name, given in (("optimizer", optimizer), ("data", data)):
        _compare_presence(name, saved=getattr(checkpoint, name) is not None, given=given)
    if schedule is not None:
        _compare_presence("schedule", saved=checkpoint.schedule is not None, given=schedule)
    if optimizer is not None:
        _compare_optimizer(checkpoint.optimizer, optimizer)
    generators = generators or {}
    _compare_generators(checkpoint.generators, generators)
    if global_generators:
        runtime.check_global_rng_state(checkpoint.global_rng)
    if checkpoint.code != code_version():
        log.warning(
            "the checkpoint was written by other source code (version %s): numbers may differ",
            checkpoint.code.get("version"),
        )
    if data is not None:  # checks before it changes anything, so it goes first
        try:
            data.load_state_dict(checkpoint.data)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"data: {error}") from error
    if schedule is not None:
        schedule.load_state_dict(checkpoint.schedule)
    model.load_state_dict(checkpoint.model)
    if optimizer is not None and checkpoint.optimizer is not None:
        optimizer.load_state_dict(checkpoint.optimizer)
    for name, generator in generators.items():
        generator.set_state(checkpoint.generators[name])
    if global_generators:
        runtime.restore_global_rng_state(checkpoint.global_rng)


def _compare_presence(name: str, *, saved: bool, given: object) -> None:
    """Raise ValueError unless something was saved exactly if it is given."""
    if saved and given is None:
        raise ValueError(f"{name}: the checkpoint holds one; pass it, or the run is another one")
    if not saved and given is not None:
        raise ValueError(f"{name}: the checkpoint holds none; it was saved without")


def _compare_names(what: str, saved: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ValueError for the first name that one side lacks."""
    for name in sorted(saved.keys() - here.keys()):
        raise ValueError(f"{what}: {name!r} is in the checkpoint and not here")
    for name in sorted(here.keys() - saved.keys()):
        raise ValueError(f"{what}: {name!r} is here and not in the checkpoint")


def _compare_generators(saved: dict[str, torch.Tensor], here: dict[str, torch.Generator]) -> None:
    """Raise ValueError unless every state is one that the generator of its name can take."""
    _compare_names("generators", saved, here)
    for name, generator in here.items():
        if saved[name].shape != generator.get_state().shape:
            raise ValueError(f"generators: {name!r} was saved from another kind of device")
        try:
            torch.Generator(generator.device).set_state(saved[name])
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"generators: the state of {name!r} is broken: {error}") from error


def _compare_config(saved: dict[str, Any] | None, here: dict[str, Any], path: str = "") -> None:
    """Raise ValueError for the first setting that differs, by its full name."""
    if saved is None:
        raise ValueError("config: the checkpoint holds none; it was saved without")
    _compare_names(f"config{path}", saved, here)
    for name, value in here.items():
        if isinstance(value, dict) and isinstance(saved[name], dict):
            _compare_config(saved[name], value, f"{path}.{name}")
        elif saved[name] != value:
            raise ValueError(
                f"config{path}.{name}: the checkpoint has {saved[name]!r}, this run {value!r}"
            )


def _compare_weights(saved: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ValueError for the first weight that is missing or of another shape or dtype."""
    _compare_names("model", saved, here)
    for name, weight in here.items():
        if not isinstance(weight, torch.Tensor):
            continue
        for field in ("shape", "dtype"):
            theirs, ours = getattr(saved[name], field, None), getattr(weight, field)
            if theirs != ours:
                theirs = tuple(theirs) if field == "shape" and theirs is not None else theirs
                ours = tuple(ours) if field == "shape" else ours
                raise ValueError(
                    f"model: {name!r} has {field} {theirs} in the checkpoint and {ours} here"
                )


def _compare_optimizer(saved: dict[str, Any] | None, optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError for another kind of optimizer, other groups, or moments of other shapes."""
    assert saved is not None
    _require_optimizer_state(saved)
    groups = optimizer.param_groups
    there, here = len(saved["param_groups"]), len(groups)
    if there != here:
        raise ValueError(f"optimizer: {there} parameter groups in the checkpoint and {here} here")
    for number, (theirs, ours) in enumerate(zip(saved["param_groups"], groups, strict=True)):
        # A schedule of torch adds initial_lr when it is made, before or after this.
        settings = {name for name in theirs.keys() ^ ours.keys() if name != "initial_lr"}
        if settings:
            raise ValueError(
                f"optimizer: settings {sorted(settings)} of group {number} are on one side only: "
                "it is another kind of optimizer"
            )
        for name in sorted(ours.keys() & theirs.keys() - {"params"}):
            if not _alike(theirs[name], ours[name]):
                raise ValueError(
                    f"optimizer: {name} of group {number} is a {type(theirs[name]).__name__} in "
                    f"the checkpoint and a {type(ours[name]).__name__} here"
                )
        there, here = len(theirs["params"]), len(ours["params"])
        if there != here:
            what = f"group {number} has {there} parameters in the checkpoint and {here} here"
            raise ValueError(f"optimizer: {what}")
        for index, parameter in zip(theirs["params"], ours["params"], strict=True):
            for name, moment in saved["state"].get(index, {}).items():
                if isinstance(moment, torch.Tensor) and not _fits(moment, parameter):
                    raise ValueError(
                        f"optimizer: {name!r} of parameter {index} has shape "
                        f"{tuple(moment.shape)}, the parameter {tuple(parameter.shape)}"
                    )


def _require_optimizer_state(saved: dict[str, Any]) -> None:
    """Raise ValueError for what no optimizer's `state_dict` returns."""
    groups, states = saved.get("param_groups"), saved.get("state")
    if not isinstance(groups, list) or not isinstance(states, dict):
        raise ValueError("optimizer: the checkpoint holds no state of an optimizer")
    numbers = []
    for group in groups:
        if not isinstance(group, dict) or not isinstance(group.get("params"), list):
            raise ValueError("optimizer: a group of the checkpoint has no parameters")
        numbers += group["params"]
    if not all(type(number) is int for number in numbers) or len({*numbers}) < len(numbers):
        raise ValueError("optimizer: parameters of the checkpoint are doubled, or have no number")
    if unknown := states.keys() - set(numbers):
        raise ValueError(f"optimizer: the state of {min(unknown, key=str)!r} is of no parameter")
    if not all(isinstance(state, dict) for state in states.values()):
        raise ValueError("optimizer: the state of a parameter is no dict")


def _alike(saved: object, here: object) -> bool:
    """Whether a setting is of the same kind; torch keeps None, and tensors, for some of them."""
    if saved is None or here is None or isinstance(here, torch.Tensor):
        return True
    if isinstance(here, tuple | list) and type(saved) is type(here):
        return len(saved) == len(here) and all(map(_alike, saved, here))
    if isinstance(here, int | float) and not isinstance(here, bool):
        return isinstance(saved, int | float | torch.Tensor) and not isinstance(saved, bool)
    return type(saved) is type(here)


def _fits(moment: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether a moment can belong to a parameter: a number, or its shape with some sides 1."""
    if moment.ndim == 0:
        return True
    return moment.ndim == parameter.ndim and all(
        m in (1, p) for m, p in zip(moment.shape, parameter.shape, strict=True)
    )
