"""What the folder of a run says of it: its settings, and whether a checkpoint belongs to it."""

import contextlib
import json
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from llmcourse import checkpoint as checkpoints
from llmcourse.base.settings import Settings, from_flat, settings_of
from llmcourse.model.shapes import num_parameters
from llmcourse.train.config import LAYOUT, TrainConfig
from llmcourse.train.stage import stage_of

CONFIG = "config.json"
"""The settings with which a run began; what it changed since stands in its checkpoints."""

BEST = "best"
"""The folder in a run's own for the checkpoint with the lowest validation loss."""

TRAINING_BYTES = 8
"""Of one parameter in float32: weight and gradient; the optimizer's moments come on top."""

MAY_CHANGE = {"steps", "data", "save_in_shards", "save_in_background", *LAYOUT}
"""Settings that may change on the way, and the run is still the same; `data` is where it lies."""

OF_TUNING_IN_1_0 = {"start", "examples", "replay", "lora_rank", "learn_all"}
"""Settings that every run of version 1.0 had, and that pre-training never read."""


def require_run(folder: Path) -> None:
    """Raise ValueError unless a folder holds a run, be it one without a checkpoint."""
    if not (folder / CONFIG).exists() and not _checkpoints_of(folder):
        raise ValueError(
            f"{folder} holds no run to go on with: start one with llmcourse train --out, also "
            "where one ended before its text was prepared"
        )


def saved_config(folder: Path, **changes: Any) -> tuple[TrainConfig, checkpoints.Checkpoint | None]:
    """Return the settings of a run, changed where asked, and its newest intact checkpoint.

    A run that ended before its first checkpoint has none, and goes on from its beginning.

    Raises:
        ValueError: if there is no run, no checkpoint of it is intact, the newest is another run's
            or past the steps that are asked for, or this machine cannot hold the model.
    """
    require_run(folder)
    begun, newest, saved = begun_with(folder), checkpoints.latest(folder / "checkpoints"), None
    if newest is None and (begun is None or _checkpoints_of(folder)):
        raise ValueError(
            f"{folder} holds no intact checkpoint to resume from: start the run in another folder"
        )
    if begun is not None:  # before anything large is read
        check_memory(config_of(begun, folder / CONFIG), f"the run in {folder}")
    settings, step = begun, 0
    if newest is not None:
        saved = checkpoints.load(newest)
        settings, step = saved.config, saved.step
        if begun is not None:
            require_same_run(settings, begun, newest)
    settings = _asked_for(settings, newest or folder / CONFIG)
    config = config_of(settings, newest or folder / CONFIG).moved(**changes)
    check_memory(config, f"the run in {folder}")
    if step > config.steps:
        raise ValueError(f"steps must be at least the {step} already done, got {config.steps}")
    return config, saved


def config_and_checkpoint(folder: Path) -> tuple[TrainConfig, checkpoints.Checkpoint]:
    """Return what `saved_config` does of a run that has learnt something, to be used.

    Of a run with patience the checkpoint is the one with the lowest validation loss.

    Raises:
        ValueError: as there, and if the run has no checkpoint yet.
    """
    config, saved = saved_config(folder)
    if saved is None:
        raise ValueError(f"{folder} holds no checkpoint yet: train until the first one is saved")
    if config.watching.patience and (best := checkpoints.latest(folder / BEST)) is not None:
        saved = checkpoints.load(best)
        require_same_run(saved.config, config.flat(), best)
    return config, saved


def begun_with(folder: Path) -> dict[str, Any] | None:
    """Return the settings with which the run in a folder began; None if nobody wrote them down.

    Raises:
        ValueError: if they cannot be read.
    """
    path = folder / CONFIG
    if not path.exists():
        return None
    try:
        settings = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return _asked_for(settings, path)


def require_same_run(saved: Any, here: Mapping[str, Any], source: Path) -> None:
    """Raise ValueError for the first setting in which a checkpoint, or a folder, is another run's.

    Args:
        saved: settings that were found.
        here: those of the run.
        source: where they were found.
    """
    saved = _asked_for(saved, source)
    for name in sorted(saved.keys() & here.keys() - MAY_CHANGE):
        theirs, ours = saved[name], here[name]
        if name == "model" and isinstance(theirs, dict) and isinstance(ours, dict):
            for part in sorted(theirs.keys() & ours.keys()):
                _require_equal(f"model.{part}", theirs[part], ours[part], source)
        else:
            _require_equal(name, theirs, ours, source)


def require_step(step: Any, position: Any) -> None:
    """Raise ValueError unless a checkpoint is of a step, and has taken as many batches."""
    if type(step) is not int or step < 0 or position != step:
        raise ValueError(
            f"the checkpoint is of step {step!r} and has taken {position!r} batches: no run saves "
            "such a state"
        )


def check_memory(config: TrainConfig, name: str) -> None:
    """Refuse a model whose training state cannot fit, instead of dying while it is built."""
    needed = num_parameters(config.model) * (TRAINING_BYTES + config.optimizer.moment_bytes)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise ValueError(
            f"{name}: {num_parameters(config.model):,} parameters need "
            f"{needed / 1e9:,.0f} GB for weights, gradients and moments; "
            f"this machine has {present / 1e9:,.0f} GB"
        )


@contextlib.contextmanager
def as_value_error(source: Path | None) -> Iterator[None]:
    """Say of a checkpoint whose parts are not those of a run that it is none; None is anywhere.

    A file may be whole, as its hashes tell, and yet hold what no run has written.
    """
    try:
        yield
    except (AttributeError, LookupError, OverflowError, RuntimeError, TypeError) as error:
        where, reason = source or "the checkpoint", " ".join(str(error).split()[:30])
        raise ValueError(
            f"{where} does not hold the state of a run: {type(error).__name__} {reason}"
        ) from error


def _require_equal(name: str, theirs: Any, ours: Any, source: Path) -> None:
    theirs, ours = (list(x) if isinstance(x, tuple) else x for x in (theirs, ours))
    if theirs != ours:
        raise ValueError(
            f"{source} holds a run with {name} = {theirs!r}, this one has {ours!r}: it is another "
            "run; choose another folder, or the same settings"
        )


def _checkpoints_of(folder: Path) -> list[Path]:
    return checkpoints.list_checkpoints(folder / "checkpoints")


def _asked_for(settings: Any, source: Path) -> dict[str, Any]:
    """Return a copy of settings; whatever else was found in their place is refused."""
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise ValueError(f"{source} holds no settings of a run")
    return dict(settings)


def config_of(settings: Any, source: Path) -> TrainConfig:
    """Return settings of a run that came out of a file as plain data.

    Raises:
        ValueError: if they cannot be those of a run.
    """
    settings = _asked_for(settings, source)
    kind = stage_of(settings).config
    if kind is TrainConfig:
        settings = {n: value for n, value in settings.items() if n not in OF_TUNING_IN_1_0}
    return _made(kind, settings, source)


def _made(kind: type[Any], settings: Mapping[str, Any], source: Path) -> Any:
    """Make settings from plain data that came out of a file."""
    hints = get_type_hints(kind)
    if is_run := issubclass(kind, Settings):  # a later stage's file has all that a run may have
        hints = {n: s.hint for k in (TrainConfig, kind) for n, s in settings_of(k).items()}
    if unknown := sorted(settings.keys() - hints):
        raise ValueError(f"{source} has the setting {unknown[0]!r}, which this version has not")
    made = dict(settings)
    for name, value in settings.items():
        kinds = (hints[name], *get_args(hints[name]))
        part: Any = next((kind for kind in kinds if is_dataclass(kind)), None)
        if part is not None and (part is hints[name] or value is not None):
            made[name] = _made(part, _asked_for(value, source), source)
        elif not _fits(value, hints[name]):
            raise ValueError(f"{source} has {name} = {value!r}, which cannot be")
    with as_value_error(source):  # a setting that is missing
        return from_flat(kind, made, {}) if is_run else kind(**made)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from a file is of a type; true stands for no number."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, list | tuple)
    return type(value) in ((int, float) if hint is float else (hint,))
