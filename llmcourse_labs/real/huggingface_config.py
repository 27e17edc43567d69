"""The shape of a model of Hugging Face's from its config.json.

A state dict does not tell how it is meant: the head size, the base of the rotation or a window of
attention change what the same weights compute.  config.json tells it, and what our decoder cannot
compute is refused here by its name.  transformers' own classes are the reference: what they do not
read, or read in training alone (dropout, the router's noise), changes no logits and is passed over.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmcourse.model.attention import RopeScaling
from llmcourse.model.config import ModelConfig

CONFIG = "config.json"

_THETA = dict.fromkeys(("llama", "mistral", "qwen3", "qwen3_moe"), 10_000.0)
_THETA["mixtral"] = 1_000_000.0
"""By model_type: the base of the rotation where config.json names none."""

_EXPERTS = {"mixtral": "intermediate_size", "qwen3_moe": "moe_intermediate_size"}
"""By model_type of a mixture: what it calls the hidden units of one expert."""

_POSITIONS = "max_position_embeddings"

_SIZES = {
    "num_layers": "num_hidden_layers",
    "width": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "vocab_size": "vocab_size",
    "context_length": _POSITIONS,
}
"""Our name of a size, and theirs; what is hidden is called otherwise in some mixtures."""

_LACKING = {
    "hidden_act": ("silu", "activation besides silu"),
    "attention_bias": (False, "biases in attention"),
    "mlp_bias": (False, "biases in the feed-forward network"),
    "decoder_sparse_step": (1, "mixture in some layers and none in others"),
    "mlp_only_layers": ([], "mixture in some layers and none in others"),
    "is_causal": (True, "attention to later tokens"),
    "quantization_config": (None, "quantised weights"),
    "auto_map": (None, "model whose code comes with its weights"),
}
"""By key: the one value besides null that is meant here, and what another one asks for."""


def config_from_huggingface(config: Mapping[str, Any] | str | Path) -> ModelConfig:
    """Return the shape that a config.json describes: a Llama's, or that of one of its kin.

    They are Mistral (a Llama, where it has no window), Qwen3 (with `qk_norm`), Mixtral (with
    experts) and Qwen3-MoE (with both).  Names of transformers 4 and of transformers 5 are read.

    Args:
        config: path of a config.json, or what it holds.

    Raises:
        ValueError: if the model is none of them, or has what our decoder lacks: partial rotations,
            or such as are scaled in a way besides linear, yarn and llama3, a sliding window,
            biases, another activation, weights of the chosen experts that do not sum to 1, layers
            with a mixture beside others without; each by its name.
        OSError: if the file cannot be read.
    """
    given = config if isinstance(config, Mapping) else read_json(Path(config))
    kind = given.get("model_type")
    if kind not in tuple(_THETA):  # which a list or an object may be asked for
        raise ValueError(f"{CONFIG}: model_type must be one of {', '.join(_THETA)}, got {kind!r}")
    for key, (neutral, meaning) in _LACKING.items():
        _refuse(given, key, neutral, meaning)
    _refuse_windows(given, kind)
    settings: dict[str, Any] = _sizes(given, kind)
    theta, scaling = _rope(given)
    settings |= {
        "rope_theta": theta or _THETA[kind],
        "rope_scaling": scaling,
        "tied_head": _number(given, "tie_word_embeddings", bool, otherwise=False),
        "norm_eps": _number(given, "rms_norm_eps", float),
        "qk_norm": kind.startswith("qwen3"),
    }
    if kind in _EXPERTS:
        settings |= _mixture(given, kind)
    return ModelConfig(**settings)


def _refuse(given: Mapping[str, Any], key: str, neutral: Any, meaning: str) -> None:
    """Raise ValueError if a key asks for what the decoder lacks."""
    value = given.get(key)
    if value is not None and value != neutral:
        raise ValueError(f"our decoder has no {meaning}, and {CONFIG} says {key} = {value!r}")


def _refuse_windows(given: Mapping[str, Any], kind: str) -> None:
    """Raise ValueError if some layer sees a part of the context only.

    Qwen's files have a size of a window, and a switch beside it that is off; the others know no
    switch.  A Mistral that says nothing has a window of 4,096.
    """
    if kind == "mistral" and "sliding_window" not in given:
        raise ValueError(
            f"our decoder has no sliding window, and a Mistral has one unless {CONFIG} says "
            "sliding_window = null"
        )
    if given.get("use_sliding_window", True) or kind in ("mistral", "mixtral"):
        _refuse(given, "sliding_window", None, "sliding window")
    layers = given.get("layer_types")
    if isinstance(layers, list) and all(layer == "full_attention" for layer in layers):
        return
    _refuse(given, "layer_types", None, "layers besides full_attention")


def _mixture(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return what a mixture has beside a dense model."""
    if kind == "qwen3_moe" and given.get("norm_topk_prob") is not True:
        raise ValueError(
            "the weights of a token's experts sum to 1 in our decoder, and here they need not: "
            f"{CONFIG} says norm_topk_prob = {given.get('norm_topk_prob', False)!r}"
        )
    # The first in Mixtral's files and in those of transformers 5, the other one in Qwen's own.
    names = [n for n in ("num_local_experts", "num_experts") if given.get(n) is not None]
    numbers = {_number(given, name, int) for name in names or ["num_local_experts"]}
    if len(numbers) > 1:
        raise ValueError(f"{CONFIG} names several numbers of experts: {sorted(numbers)}")
    chosen = _number(given, "num_experts_per_tok", int)
    return {
        "num_experts": numbers.pop(),
        "experts_per_token": chosen,
        # transformers' balance loss is k times ours.
        "balance_weight": _number(given, "router_aux_loss_coef", float) * chosen,
    }


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
        for ours, theirs in (_SIZES | {"hidden": _EXPERTS.get(kind, "intermediate_size")}).items()
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


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file.

    Raises:
        ValueError: if it holds something else.
        OSError: if it cannot be read.
    """
    try:
        content = json.loads(path.read_text("utf8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content
