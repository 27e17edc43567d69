"""The settings that a checkpoint brings along, which may come from anywhere."""

import json
import reprlib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from llmcourse.model import ModelConfig
from llmcourse.train.config import ONE_RANK, TrainConfig

MAY_DIFFER = {"steps", "save_in_shards", "save_in_background", *ONE_RANK}
"""What may change in the course of a run."""


def own_settings(saved: Any, folder: Path) -> dict[str, Any]:
    """Return a checkpoint's settings if they are those of the run in a folder.

    Args:
        saved: the `config` of a checkpoint in the folder.
        folder: of the run; its config.json was written when the run began.

    Raises:
        ValueError: if it holds no settings of a run, or those of another run.
    """
    _require_settings(TrainConfig, saved, "")
    _require_settings(ModelConfig, saved["model"], "model.")
    path = folder / "config.json"
    if not path.exists():
        return dict(saved)
    try:
        own = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(own, dict) or not isinstance(own.get("model"), dict):
        raise ValueError(f"{path} holds no settings of a run")
    here, there = _flat(own), _flat(saved)
    for name in sorted(here.keys() & there.keys() - MAY_DIFFER):
        if here[name] != there[name]:
            raise ValueError(
                f"{folder} holds a run with {name} = {reprlib.repr(here[name])}, and a checkpoint "
                f"of another run, with {reprlib.repr(there[name])}: take that checkpoint away"
            )
    return dict(saved)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with those of the model among them."""
    model = {f"model.{name}": value for name, value in settings["model"].items()}
    return {name: value for name, value in settings.items() if name != "model"} | model


def _require_settings(kind: type, saved: Any, prefix: str) -> None:
    """Raise ValueError for the first setting that a dataclass does not have, or not of its type."""
    if not isinstance(saved, dict):
        raise ValueError(f"{prefix or 'the checkpoint '}holds no settings of a run")
    types, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    for name in sorted(saved.keys() - known.keys(), key=str):
        raise ValueError(f"the checkpoint has a setting {prefix}{name}, which this code has not")
    for name, field in known.items():
        if name not in saved and field.default is MISSING:
            raise ValueError(f"the checkpoint lacks the setting {prefix}{name}")
        if name in saved and not _is(saved[name], types[name]):
            value = reprlib.repr(saved[name])
            raise ValueError(f"the checkpoint has an odd setting: {prefix}{name} is {value}")


def _is(value: object, kind: Any) -> bool:
    """Whether a value is of a field's type; a whole number will do for a float."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind is ModelConfig:
        return isinstance(value, dict)
    return type(value) is kind or (kind is float and type(value) is int)
