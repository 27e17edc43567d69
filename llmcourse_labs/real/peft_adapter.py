"""An adapter in peft's files: the thin matrices of LoRA alone, without the model they belong to.

    y = x W^T + (alpha / r) (x A^T) B^T,     A: r x in,  B: out x r

A folder holds them as adapter_model.safetensors, and adapter_config.json says r, alpha and which
model they were learnt beside.  peft names a matrix as transformers does, and B has a row for each
row of W, so those of w_q and w_k stand in transformers' order: split halves of a head.

Shape suffixes:  F outputs, D inputs, R rank.

Source:
    https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.model.attention import halves_from_adjacent
from llmcourse.model.config import ModelConfig
from llmcourse.model.shapes import whole_shapes
from llmcourse_labs.real.huggingface_config import read_json
from llmcourse_labs.real.huggingface_folder import read_tensors
from llmcourse_labs.real.huggingface_names import ROTATED, names_of, permute_heads

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_IGNORED = {
    *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
    *("inference_mode", "lora_dropout", "megatron_core", "qalora_group_size", "runtime_config"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("peft_type", "r", "rank_pattern", "lora_alpha", "use_rslora", "ensure_weight_tying"),
}
"""Keys that are read, are of training alone, or say what names and shapes of the tensors say."""

_HARMLESS = {"bias": ("none",), "init_lora_weights": (True, "gaussian")}
"""What other keys may say beside nothing: that they change nothing."""


class Thin(NamedTuple):
    """What is learnt beside one matrix."""

    a_RD: Float[Tensor, "R D"]
    b_FR: Float[Tensor, "F R"]
    alpha: int | float
    """Numerator of the scale, alpha / r."""


def adapter_files(thin: Mapping[str, Thin], config: ModelConfig, *, base: str) -> dict[str, bytes]:
    """Return the two files of an adapter by name.

    Args:
        thin: by our name of the matrix; all of one rank and alpha.
        config: of the model.
        base: what the model is called.

    Raises:
        ValueError: if ranks or scales differ, or there is nothing.
    """
    kinds = {(len(each.a_RD), each.alpha) for each in thin.values()}
    if len(kinds) != 1:
        raise ValueError(f"an adapter has matrices of one rank and scale, got {sorted(kinds)}")
    rank, alpha = kinds.pop()
    order_K, theirs, tensors = halves_from_adjacent(config.head_size), names_of(config), {}
    for name, (a_RD, b_FR, _) in thin.items():
        place = f"base_model.model.{theirs[name].removesuffix('.weight')}"
        rows_FR = permute_heads(b_FR, order_K) if name.endswith(ROTATED) else b_FR
        tensors[f"{place}.lora_A.weight"] = a_RD.contiguous()
        tensors[f"{place}.lora_B.weight"] = rows_FR.contiguous()
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({theirs[name].split(".")[-2] for name in thin}),
        "inference_mode": True,
    }
    weights = safetensors.torch.save(tensors, metadata={"format": "pt"})
    return {CONFIG: f"{json.dumps(described, indent=2)}\n".encode(), WEIGHTS: weights}


def read_adapter(folder: str | Path, config: ModelConfig) -> dict[str, Thin]:
    """Return the thin matrices of a folder by our names, in float32.

    Args:
        folder: as peft's `save_pretrained` writes it; nothing is downloaded.
        config: of the model that they belong to.

    Raises:
        ValueError: if a file is missing or damaged, the adapter is no LoRA, or one of a kind that
            we lack, by its name, or its matrices are not those of this model.
        OSError: if a file cannot be read.
    """
    folder = Path(folder)
    if config.num_experts:
        raise ValueError("adapters are for dense models, and this one has experts")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no {name}: give a folder that peft saved")
    alpha, roots = _alpha(read_json(folder / CONFIG), folder)
    tensors, found = read_tensors(folder / WEIGHTS), {}
    order_K, shapes = halves_from_adjacent(config.head_size).argsort(), whole_shapes(config)
    for ours, theirs in names_of(config).items():
        place = f"base_model.model.{theirs.removesuffix('.weight')}"
        if ".w_" not in ours:
            continue
        names = [f"{place}.lora_{side}.weight" for side in "AB"]
        pair = [tensors.pop(name).float() for name in names if name in tensors]
        if not pair:
            continue
        rank, (rows, columns) = len(pair[0]) if pair[0].ndim else 0, shapes[ours]
        if not rank or [tuple(w.shape) for w in pair] != [(rank, columns), (rows, rank)]:
            raise ValueError(f"{folder / WEIGHTS}: the pair of {theirs} is not of this model")
        a_RD, b_FR = pair
        b_FR = permute_heads(b_FR, order_K) if ours.endswith(ROTATED) else b_FR
        found[ours] = Thin(a_RD, b_FR, alpha * math.sqrt(rank) if roots else alpha)
    if tensors or not found:
        odd = min(tensors, default="nothing")
        raise ValueError(f"{folder / WEIGHTS} holds {odd}, which is no pair of a matrix of blocks")
    return found


def _alpha(told: Mapping[str, Any], folder: Path) -> tuple[float, bool]:
    """Return alpha, and whether it is divided by the root of r, of a plain LoRA."""
    if told.get("peft_type") != "LORA":
        raise ValueError(f"{folder} holds a {told.get('peft_type')}, and LORA alone is read here")
    for key, value in told.items():
        if value and key not in _IGNORED and value not in _HARMLESS.get(key, ()):
            raise ValueError(f"{folder} holds LoRA with {key} = {value!r}, which is not read here")
    alpha = told.get("lora_alpha")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ValueError(f"lora_alpha of {folder / CONFIG} must be a number, got {alpha!r}")
    return float(alpha), told.get("use_rslora") is True


def with_adapter(state: Mapping[str, Tensor], thin: Mapping[str, Thin]) -> dict[str, Tensor]:
    """Return a state with an adapter in it:  W + (alpha / r) B A.

    Args:
        state: of a plain model, by our names.
        thin: from `read_adapter`.
    """
    return dict(state) | {
        name: torch.addmm(state[name], b_FR, a_RD, alpha=alpha / len(a_RD))
        for name, (a_RD, b_FR, alpha) in thin.items()
    }
