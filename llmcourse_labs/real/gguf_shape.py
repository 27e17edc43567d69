"""The shape of a model in the metadata of a GGUF file: read, refused by name, and written.

Whoever reads a file must know every key of its architecture: one that is not known may change what
the same weights compute.

Source: the keys of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and those of
llama.cpp, src/llama-arch.cpp.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llmcourse.model.attention import RopeScaling
from llmcourse.model.config import ModelConfig
from llmcourse_labs.real.gguf_file import GgufFile

ARCHITECTURES = ("llama", "qwen3", "qwen3moe")
"""What a file may say it is; queries and keys are normalised in all but the first."""

ROPE_FREQS = "rope_freqs.weight"
"""The tensor by which llama.cpp divides frequencies: how a file tells the rotation of Llama 3.1."""

ORIGINAL_LENGTH = 8_192
"""Of the rotation of Llama 3.1, where a file names none."""

MOST_POSITIONS, MOST_CHANNELS = 2**22, 2**16
"""Of a context and of a head: tables of rotations are made for all of them."""

_READ = {
    *("block_count", "embedding_length", "feed_forward_length", "context_length", "vocab_size"),
    *("expert_count", "expert_used_count", "expert_feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv"),
    *("attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon"),
    *("rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor"),
    *("rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast"),
    *("rope.scaling.yarn_beta_slow", "rope.scaling.finetuned", "tensor_data_layout"),
}
"""Keys behind "ARCHITECTURE." that are read, or, the last two, change nothing."""

_NEUTRAL: dict[str, tuple[Any, str]] = {
    "attention.sliding_window": (0, "a sliding window"),
    "attention.causal": (True, "attention to later tokens"),
    "attention.scale": (0.0, "another scale of attention"),
    "attention.clamp_kqv": (0.0, "clamped queries, keys and values"),
    "attention.max_alibi_bias": (0.0, "positions by a bias"),
    "attn_logit_softcapping": (0.0, "capped logits of attention"),
    "final_logit_softcapping": (0.0, "capped logits"),
    "use_parallel_residual": (False, "attention beside the feed-forward network"),
    "expert_shared_count": (0, "shared experts"),
    "expert_weights_scale": (1.0, "scaled experts"),
    "expert_weights_norm": (True, "experts whose weights do not sum to 1"),
    "expert_gating_func": (1, "another function of the router than softmax"),
    "leading_dense_block_count": (0, "layers of both kinds"),
    "logit_scale": (1.0, "scaled logits"),
    "residual_scale": (1.0, "scaled layers"),
    "embedding_scale": (1.0, "a scaled embedding"),
    "rope.scale_linear": (1.0, "an old way to scale rotations"),
    "rope.scaling.attn_factor": (1.0, "rotations of another length"),
    "rope.scaling.yarn_ext_factor": (1.0, "a yarn of its own"),
    "rope.scaling.yarn_attn_factor": (1.0, "a yarn of its own"),
    "rope.scaling.yarn_log_multiplier": (0.0, "a yarn of its own"),
}
"""By key: the one value that is meant here, and what another one asks for."""


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """Return the shape that the metadata of a file describes.

    Raises:
        ValueError: if it is none of `ARCHITECTURES`, a part of a model or no model, or has what our
            decoder lacks, by its name; in one line with the name of the file.
    """
    try:
        return _config(file)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{file.path}: {error}") from error


def metadata_of(config: ModelConfig) -> dict[str, Any]:
    """Return what a file says of a shape: the inverse of `config_from_gguf`.

    Raises:
        ValueError: if a GGUF file cannot tell how rotations are scaled.
    """
    mixture = config.num_experts > 0
    name = ("qwen3moe" if mixture else "qwen3") if config.qk_norm else "llama"
    own: dict[str, Any] = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.width,
        "feed_forward_length": config.hidden,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.dimension_count": config.head_size,
        "rope.freq_base": config.rope_theta,
    }
    if mixture:
        own |= {"expert_count": config.num_experts, "expert_used_count": config.experts_per_token}
    if name == "qwen3moe":
        own["expert_feed_forward_length"] = config.hidden
    own |= _rotation_of(config)
    return {"general.architecture": name} | {f"{name}.{key}": value for key, value in own.items()}


def _rotation_of(config: ModelConfig) -> dict[str, Any]:
    """Return the metadata of a scaled rotation; ntk is another base, no more."""
    scaling = config.rope_scaling
    if scaling is None:
        return {}
    if scaling.kind == "ntk":
        stretched = scaling.factor ** (config.head_size / (config.head_size - 2))
        return {"rope.freq_base": config.rope_theta * stretched}
    if scaling.kind == "llama3":
        if config.qk_norm:
            raise ValueError(f"llama.cpp reads {ROPE_FREQS} of a llama alone, not of a qwen3")
        if (scaling.low_freq_factor, scaling.high_freq_factor) != (1.0, 4.0):
            raise ValueError(
                "a GGUF file has the rotation of Llama 3.1 with low_freq_factor 1 and "
                f"high_freq_factor 4 only, got {scaling.low_freq_factor} and "
                f"{scaling.high_freq_factor}"
            )
        return {"rope.scaling.original_context_length": scaling.original_length}
    told = {"rope.scaling.type": scaling.kind, "rope.scaling.factor": scaling.factor}
    if scaling.kind == "linear":
        return told
    return told | {
        "rope.scaling.original_context_length": scaling.original_length,
        "rope.scaling.yarn_beta_fast": scaling.beta_fast,
        "rope.scaling.yarn_beta_slow": scaling.beta_slow,
    }


def llama3_divisors(scaling: RopeScaling, head_size: int, theta: float) -> Tensor:
    """Return what llama.cpp divides the frequencies of a llama3 rotation by, [J]."""
    plain = [theta ** (-j / head_size) for j in range(0, head_size, 2)]
    scaled = scaling.frequencies(head_size, theta=theta)
    return torch.tensor([a / b for a, b in zip(plain, scaled, strict=True)])


def _config(file: GgufFile) -> ModelConfig:
    """Return the shape of a file, or raise ValueError without its name."""
    given, architecture = file.metadata, file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ValueError(
            f"general.architecture must be one of {', '.join(ARCHITECTURES)}, got "
            f"{str(architecture)[:40]!r}"
        )
    if given.get("general.type", "model") != "model" or given.get("split.count", 1) != 1:
        raise ValueError("it is not one whole model: an adapter, or one of several files")
    own = {
        key.removeprefix(f"{architecture}."): value
        for key, value in given.items()
        if key.startswith(f"{architecture}.")
    }
    for key in sorted(own.keys() - _READ):
        neutral, meaning = _NEUTRAL.get(key, (None, "what is not known here"))
        if own[key] != neutral:
            raise ValueError(
                f"our decoder has no such thing as {meaning}, and it says {architecture}.{key[:60]}"
                f" = {str(own[key])[:40]}"
            )
    width, num_heads = _number(own, "embedding_length"), _number(own, "attention.head_count")
    head_size = _number(own, "attention.key_length", width // max(num_heads, 1))
    length = _number(own, "context_length")
    for name, size, most in (
        ("context_length", length, MOST_POSITIONS),
        ("the size of a head", head_size, MOST_CHANNELS),
    ):
        if size > most:
            raise ValueError(f"{name} must be at most {most}, got {size}")
    for key in ("attention.value_length", "rope.dimension_count"):
        if _number(own, key, head_size) != head_size:
            raise ValueError(f"{key} must be the size of a head, {head_size}, got {own[key]}")
    num_experts = _number(own, "expert_count", 0)
    hidden = "expert_feed_forward_length" if architecture == "qwen3moe" else "feed_forward_length"
    return ModelConfig(
        num_layers=_number(own, "block_count"),
        width=width,
        num_heads=num_heads,
        num_kv_heads=_number(own, "attention.head_count_kv", num_heads),
        head_size=head_size,
        hidden=_number(own, hidden),
        vocab_size=_vocab_size(file, own),
        context_length=length,
        rope_theta=_real(own, "rope.freq_base", 10_000.0),
        tied_head="output.weight" not in file.tensors,
        norm_eps=_real(own, "attention.layer_norm_rms_epsilon"),
        qk_norm=architecture != "llama",
        num_experts=num_experts,
        experts_per_token=_number(own, "expert_used_count", 0) if num_experts else 0,
        rope_scaling=_scaling(file, own, head_size),
    )


def _number(own: dict[str, Any], key: str, otherwise: int | None = None) -> int:
    """Return a whole number of the metadata."""
    value = own.get(key, otherwise)
    if type(value) is not int:
        raise ValueError(f"it must give {key}, one whole number, got {str(value)[:40]}")
    return value


def _real(own: dict[str, Any], key: str, otherwise: float | None = None) -> float:
    """Return a number of the metadata; of those that float32 rounds to the file's, the shortest."""
    value = own.get(key, otherwise)
    if not isinstance(value, int | float) or value is True or not math.isfinite(value):
        raise ValueError(f"it must give {key}, a number, got {str(value)[:40]}")
    short = float(str(np.float32(value)))
    return short if np.float32(value) == value else float(value)


def _vocab_size(file: GgufFile, own: dict[str, Any]) -> int:
    """Return the rows of the embedding, which the metadata may not contradict."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ValueError("it has no tensor 'token_embd.weight'")
    rows, tokens = embedding.shape[0], file.metadata.get("tokenizer.ggml.tokens")
    told = _number(own, "vocab_size", rows)
    if told != rows or (isinstance(tokens, list) and len(tokens) != rows):
        raise ValueError(
            f"its embedding has {rows} rows, its vocab_size is {told}, and its tokens are "
            f"{'none' if tokens is None else len(tokens)}"
        )
    return rows


def _scaling(file: GgufFile, own: dict[str, Any], head_size: int) -> RopeScaling | None:
    """Return how rotations are scaled; None where they are not."""
    factor = _real(own, "rope.scaling.factor", 0.0) or 1.0  # 0 is what llama.cpp takes for none
    kind = own.get("rope.scaling.type", "linear")
    if ROPE_FREQS in file.tensors:
        if kind != "none" and ("rope.scaling.type" in own or factor != 1.0):
            raise ValueError(f"its rotations are scaled twice, by {ROPE_FREQS} and by {kind}")
        return _llama3(file, own, head_size)
    if kind not in ("none", "linear", "yarn"):
        raise ValueError(f"our decoder scales rotations as linear, yarn or llama3, not {kind!r}")
    if kind == "none" or factor == 1.0:
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    length = _number(own, "rope.scaling.original_context_length", own.get("context_length"))
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_length=length,
        beta_fast=_real(own, "rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_real(own, "rope.scaling.yarn_beta_slow", 1.0),
    )


def _llama3(file: GgufFile, own: dict[str, Any], head_size: int) -> RopeScaling | None:
    """Return the rotation of Llama 3.1 that gives the divisors in a file."""
    if file.tensors[ROPE_FREQS].shape != (head_size // 2,):
        raise ValueError(f"{ROPE_FREQS} must have {head_size // 2} numbers")
    given_J = file.read(ROPE_FREQS)
    if torch.all(given_J == 1):
        return None
    length = _number(own, "rope.scaling.original_context_length", ORIGINAL_LENGTH)
    if 1 < (factor := float(given_J.max())) < math.inf:
        made = RopeScaling(kind="llama3", factor=factor, original_length=length)
        theta = _real(own, "rope.freq_base", 10_000.0)
        if torch.allclose(llama3_divisors(made, head_size, theta), given_J, rtol=1e-5, atol=0.0):
            return made
    raise ValueError(
        f"{ROPE_FREQS} scales rotations in a way of its own: of such, only those of Llama 3.1 are "
        "known here"
    )
