"""A model of Hugging Face's from its folder: config.json, and the weights in safetensors.

A state dict does not tell how it is meant: the head size, the base of the rotation or a window of
attention change what the same weights compute.  config.json tells it, and what our decoder cannot
compute is refused here by its name.  transformers' own classes are the reference: what they do not
read, or read in training alone (dropout, the router's noise), changes no logits and is passed over.

Nothing is unpickled: a safetensors file holds tensors and nothing that could run.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from llmcourse.model.attention import RopeScaling
from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.huggingface_names import from_huggingface

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

_THETA = {"llama": 10_000.0, "qwen3": 10_000.0, "mixtral": 1_000_000.0}
"""By model_type: the base of the rotation where config.json names none."""

_POSITIONS = "max_position_embeddings"

_SIZES = {
    "num_layers": "num_hidden_layers",
    "width": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "hidden": "intermediate_size",
    "vocab_size": "vocab_size",
    "context_length": _POSITIONS,
}
"""Our name of a size, and theirs."""

_LACKING = {
    "hidden_act": ("silu", "activation besides silu"),
    "attention_bias": (False, "biases in attention"),
    "mlp_bias": (False, "biases in the feed-forward network"),
    "quantization_config": (None, "quantised weights"),
    "auto_map": (None, "model whose code comes with its weights"),
}
"""By key: the one value besides null that is meant here, and what another one asks for."""


def config_from_huggingface(config: Mapping[str, Any] | str | Path) -> ModelConfig:
    """Return the shape that a config.json describes: of a Llama, a Qwen3 or a Mixtral.

    Names of transformers 4 and of transformers 5 are read.

    Args:
        config: path of a config.json, or what it holds.

    Raises:
        ValueError: if the model is none of the three, or has what our decoder lacks: partial
            rotations, or such as are scaled in a way besides linear, yarn and llama3, a sliding
            window, biases, another activation; each by its name.
        OSError: if the file cannot be read.
    """
    given = config if isinstance(config, Mapping) else _read_json(Path(config))
    kind = given.get("model_type")
    if kind not in tuple(_THETA):  # which a list or an object may be asked for
        raise ValueError(f"{CONFIG}: model_type must be one of {', '.join(_THETA)}, got {kind!r}")
    for key, (neutral, meaning) in _LACKING.items():
        _refuse(given, key, neutral, meaning)
    _refuse_windows(given)
    settings: dict[str, Any] = _sizes(given, kind)
    theta, scaling = _rope(given)
    settings |= {
        "rope_theta": theta or _THETA[kind],
        "rope_scaling": scaling,
        "tied_head": _number(given, "tie_word_embeddings", bool, otherwise=False),
        "norm_eps": _number(given, "rms_norm_eps", float),
        "qk_norm": kind == "qwen3",
    }
    if kind == "mixtral":
        chosen = _number(given, "num_experts_per_tok", int)
        settings |= {
            "num_experts": _number(given, "num_local_experts", int),
            "experts_per_token": chosen,
            # transformers' balance loss is k times ours.
            "balance_weight": _number(given, "router_aux_loss_coef", float) * chosen,
        }
    return ModelConfig(**settings)


def load_huggingface(folder: str | Path) -> Transformer:
    """Return the model of a folder that `save_pretrained` wrote, its weights in float32.

    The weights are model.safetensors, or the files that model.safetensors.index.json names.

    Args:
        folder: on this machine; nothing is downloaded.

    Raises:
        ValueError: if config.json describes what our decoder lacks or this machine cannot hold,
            the weights are others than it describes, a file is damaged or missing, or there are
            pickled weights alone.
        OSError: if a file cannot be read.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(
            f"{folder} holds no {CONFIG}: give a folder on this machine, such as "
            "huggingface_hub.snapshot_download returns; nothing is downloaded here"
        )
    config = config_from_huggingface(folder / CONFIG)
    weights = _read_weights(folder)
    try:
        state, model = from_huggingface(weights, config), Transformer(config)
    except (RuntimeError, OverflowError, TypeError) as error:  # torch's, of sizes beyond reason
        reason = str(error).splitlines()[0]
        raise ValueError(f"the model of {folder / CONFIG} cannot be made here: {reason}") from error
    model.load_state_dict(state)
    return model


def _refuse(given: Mapping[str, Any], key: str, neutral: Any, meaning: str) -> None:
    """Raise ValueError if a key asks for what the decoder lacks."""
    value = given.get(key)
    if value is not None and value != neutral:
        raise ValueError(f"our decoder has no {meaning}, and {CONFIG} says {key} = {value!r}")


def _refuse_windows(given: Mapping[str, Any]) -> None:
    """Raise ValueError if some layer sees a part of the context only.

    Qwen3 has a size of a window in its file, and a switch beside it that is off.
    """
    if given.get("use_sliding_window", True):
        _refuse(given, "sliding_window", None, "sliding window")
    layers = given.get("layer_types")
    if isinstance(layers, list) and all(layer == "full_attention" for layer in layers):
        return
    _refuse(given, "layer_types", None, "layers besides full_attention")


def _sizes(given: Mapping[str, Any], kind: str) -> dict[str, int]:
    """Return every size under our names."""
    width, heads = (_number(given, key, int) for key in ("hidden_size", "num_attention_heads"))
    otherwise = {}
    if kind == "llama" or "num_key_value_heads" in given:
        otherwise["num_key_value_heads"] = heads
    if kind != "qwen3" and given.get("head_dim") is None:
        if heads < 1 or width % heads:
            raise ValueError(
                f"{CONFIG} has no head_dim, and its hidden_size = {width} is not a multiple of "
                f"num_attention_heads = {heads}"
            )
        otherwise["head_dim"] = width // heads
    return {
        ours: _number(given, theirs, int, otherwise=otherwise.get(theirs))
        for ours, theirs in _SIZES.items()
    }


def _rope(given: Mapping[str, Any]) -> tuple[float | None, RopeScaling | None]:
    """Return the base of the rotation, None where no place names one, and how it is scaled."""
    _refuse(given, "partial_rotary_factor", 1.0, "partial rotation")
    bases = {_number(given, "rope_theta", float)} if given.get("rope_theta") is not None else set()
    scalings = set()
    for key in ("rope_parameters", "rope_scaling"):  # of transformers 5, and of 4
        rope = given.get(key) or {}
        if not isinstance(rope, Mapping):
            raise ValueError(f"{CONFIG}: {key} must be an object, got {rope!r}")
        _refuse(rope, "partial_rotary_factor", 1.0, "partial rotation")
        if rope.get("rope_theta") is not None:
            bases.add(_number(rope, "rope_theta", float))
        if rope.keys() - {"rope_theta", "partial_rotary_factor"}:
            scalings.add(_scaling(rope, given, key))
    for name, found in (("rope_theta", bases), ("scalings of the rotation", scalings)):
        if len(found) > 1:
            raise ValueError(f"{CONFIG} names several {name}: {sorted(found, key=repr)}")
    return (bases.pop() if bases else None), (scalings.pop() if scalings else None)


_LENGTH = "original_max_position_embeddings"

_SCALINGS: dict[str, dict[str, float | None]] = {
    "default": {},
    "linear": {"factor": None},
    "yarn": {"factor": None, "beta_fast": 32.0, "beta_slow": 1.0},
    "llama3": {"factor": None, "low_freq_factor": None, "high_freq_factor": None},
}
"""By kind of scaling: its numbers, whose names are ours, too; what they are where absent."""


def _scaling(rope: Mapping[str, Any], given: Mapping[str, Any], key: str) -> RopeScaling | None:
    """Return the scaling that an object of config.json describes; None where it asks for none."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise ValueError(
            f"our decoder scales rotations as linear, yarn or llama3, and {CONFIG} says {key} = "
            f"{dict(rope)!r}"
        )
    read = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *_SCALINGS[kind]}
    if kind == "yarn":  # which may be told otherwise
        _refuse(rope, "truncate", True, "yarn without whole pairs")
        read |= {"truncate", "attention_factor"}
    if kind in ("yarn", "llama3"):
        read.add(_LENGTH)
    if odd := sorted(name for name in rope.keys() - read if rope[name] is not None):
        raise ValueError(f"our {kind} rotation has no {odd[0]}, and {CONFIG} says {key} = {rope!r}")
    if kind == "default":
        return None
    settings: dict[str, Any] = {"kind": kind}
    for name, otherwise in _SCALINGS[kind].items():
        settings[name] = float(_number(rope, name, float, otherwise=otherwise))
    if kind == "linear":
        return RopeScaling(**settings)
    trained = rope if given.get(_LENGTH) is None else given  # as transformers prefers
    trained = trained if trained.get(_LENGTH) is not None else {_LENGTH: given.get(_POSITIONS)}
    made = RopeScaling(original_length=_number(trained, _LENGTH, int), **settings)
    if kind == "yarn":
        _refuse(rope, "attention_factor", made.attention_factor, "yarn with another temperature")
    return made


def _number(given: Mapping[str, Any], key: str, kind: type, *, otherwise: Any = None) -> Any:
    """Return what a key holds, or `otherwise` where it is absent or null; refuse other types."""
    value = given.get(key)
    if value is None:
        value = otherwise
    # JSON writes 1e6 as 1000000, and Python counts True as a whole number.
    right = (int, float) if kind is float else kind
    if not isinstance(value, right) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{CONFIG} must give {key}, of type {kind.__name__}, got {value!r}")
    return value


def _read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file."""
    try:
        content = json.loads(path.read_text("utf8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Return every tensor of a folder under Hugging Face's name."""
    if (folder / WEIGHTS).is_file():
        return _read_tensors(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        # The most likely reason has an answer of its own.
        pickled = sorted(
            path.name for end in ("bin", "pt", "pth") for path in folder.glob(f"*.{end}")
        )
        if pickled:
            raise ValueError(
                f"{folder} has its weights in {pickled[0]}, a pickle, which can run code when it "
                "is read: take a version in safetensors, or, if you trust its origin, write one "
                "with transformers' save_pretrained"
            )
        raise ValueError(f"{folder} holds neither {WEIGHTS} nor {INDEX}")
    # Weights in several files: an index says which tensor is in which.
    places = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, Mapping) or not all(isinstance(f, str) for f in places.values()):
        raise ValueError(f"{folder / INDEX} has no weight_map from names to files")
    state: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        # The index comes from outside, and may not lead out of the folder.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{INDEX} names {name!r}, which is no safetensors file of its folder")
        if not (folder / name).is_file():
            raise ValueError(f"{INDEX} names {name}, which is not there: complete the folder")
        state |= _read_tensors(folder / name)
    # They differ where a folder has files of two versions.
    if state.keys() != places.keys():
        odd = min(state.keys() ^ places.keys())
        raise ValueError(f"{INDEX} and the files do not list the same tensors: {odd!r}")
    return state


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one safetensors file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no intact safetensors file: {error}") from error
    for name, weight in state.items():
        if weight.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"{path.name} holds {name} as {weight.dtype}: quantised weights?")
    return state
