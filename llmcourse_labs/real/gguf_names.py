"""What llama.cpp calls the parts of a Llama, a Qwen3 or a mixture of experts, and our names.

Two things differ from our names: the names, and, in some architectures, the order of the channels
inside each query and key head.  llama.cpp rotates the pairs of a `llama` as we do, neighbours, and
its converter has put the rows of Hugging Face's files in that order; the pairs of a `qwen3` are the
two halves of a head, as in Hugging Face's own files.

Source: https://github.com/ggml-org/llama.cpp, src/llama-arch.cpp (names), src/llama-model.cpp
(llama_model_rope_type), convert_hf_to_gguf.py (LlamaModel.permute).
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llmcourse.model.attention import RopeScaling, halves_from_adjacent, rope_rotations
from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.gguf_file import GgufFile

ARCHITECTURES = ("llama", "qwen3", "qwen3moe")
"""What a file may say it is; queries and keys are normalised in all but the first."""

ROPE_FREQS = "rope_freqs.weight"
"""The tensor by which llama.cpp divides frequencies: how a file tells the rotation of Llama 3.1."""

ORIGINAL_LENGTH = 8_192
"""Of the rotation of Llama 3.1, where a file names none."""

MOST_POSITIONS, MOST_CHANNELS = 2**22, 2**16
"""Of a context and of a head: tables of rotations are made for all of them."""

_IN_BLOCK = {
    "attention_norm.gain": "attn_norm",
    "attention.w_q": "attn_q",
    "attention.w_k": "attn_k",
    "attention.w_v": "attn_v",
    "attention.w_o": "attn_output",
    "feed_forward_norm.gain": "ffn_norm",
}
_DENSE = {
    "feed_forward.w_gate": "ffn_gate",
    "feed_forward.w_up": "ffn_up",
    "feed_forward.w_down": "ffn_down",
}
_MIXTURE = {
    "feed_forward.router.w_router": "ffn_gate_inp",
    "feed_forward.experts.w_gate": "ffn_gate_exps",
    "feed_forward.experts.w_up": "ffn_up_exps",
    "feed_forward.experts.w_down": "ffn_down_exps",
}
_OF_HEADS = {"attention.q_norm.gain": "attn_q_norm", "attention.k_norm.gain": "attn_k_norm"}

_ROTATED = ("w_q", "w_k", "q_norm.gain", "k_norm.gain")

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


def gguf_names(config: ModelConfig) -> dict[str, str]:
    """Return llama.cpp's name for each of our parameters."""
    names = {"embedding": "token_embd.weight", "norm.gain": "output_norm.weight"}
    in_block = _IN_BLOCK | (_MIXTURE if config.num_experts else _DENSE)
    in_block |= _OF_HEADS if config.qk_norm else {}
    for layer in range(config.num_layers):
        for ours, theirs in in_block.items():
            names[f"blocks.{layer}.{ours}"] = f"blk.{layer}.{theirs}.weight"
    return names if config.tied_head else names | {"head": "output.weight"}


def reordered(name: str, weight: Tensor, config: ModelConfig, *, to_file: bool) -> Tensor:
    """Return a parameter with the channels of each head in the order of a file, or in ours.

    Args:
        name: ours.
        weight: the parameter.
        config: the shape; with qk_norm, files have the two halves of a head one after the other.
        to_file: whether it goes into a file or comes from one.
    """
    if not (config.qk_norm and name.endswith(_ROTATED)):
        return weight
    order_K = halves_from_adjacent(config.head_size)
    order_K = order_K if to_file else order_K.argsort()
    return weight.unflatten(0, (-1, config.head_size))[:, order_K].flatten(0, 1)


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


def state_from_gguf(file: GgufFile, config: ModelConfig) -> dict[str, Tensor]:
    """Return our state dict, in float32, of the tensors of a file.

    Raises:
        ValueError: if a tensor is missing, has another shape than the metadata give, or is one that
            our decoder lacks.
    """
    try:
        names = _checked(file, config)
    except (ValueError, RuntimeError, OverflowError, TypeError) as error:
        raise ValueError(f"{file.path}: {str(error).splitlines()[0]}") from error
    return {
        ours: reordered(ours, file.read(theirs), config, to_file=False)
        for ours, theirs in names.items()
    }


def decoder_from_gguf(file: GgufFile) -> Transformer:
    """Return the model of a file, in float32 and in evaluation mode.

    Raises:
        ValueError: as `config_from_gguf` and `state_from_gguf`.
    """
    config = config_from_gguf(file)
    state = state_from_gguf(file, config)
    with torch.device("meta"):  # shapes alone: the weights of the file are put in their places
        decoder = Transformer(config)
    decoder.load_state_dict(state, assign=True)
    decoder.rotations_TJ2 = rope_rotations(
        config.head_size,
        config.context_length,
        theta=config.rope_theta,
        scaling=config.rope_scaling,
    )
    return decoder.eval()


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
        if "rope.scaling.type" in own and kind != "none":
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


def llama3_divisors(scaling: RopeScaling, head_size: int, theta: float) -> Tensor:
    """Return what llama.cpp divides the frequencies of a llama3 rotation by, [J]."""
    plain = [theta ** (-j / head_size) for j in range(0, head_size, 2)]
    scaled = scaling.frequencies(head_size, theta=theta)
    return torch.tensor([a / b for a, b in zip(plain, scaled, strict=True)])


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


def _checked(file: GgufFile, config: ModelConfig) -> dict[str, str]:
    """Return llama.cpp's name for each of our parameters, all of which the file has."""
    if config.num_layers > len(file.tensors):  # before anything is made for every layer
        raise ValueError(f"{len(file.tensors)} tensors are too few for {config.num_layers} layers")
    names = gguf_names(config)
    with torch.device("meta"):  # shapes alone, without memory
        expected = Transformer(config).state_dict()
    for ours, theirs in names.items():
        if theirs not in file.tensors:
            raise ValueError(f"it has no tensor {theirs!r}, which its metadata ask for")
        given, wanted = file.tensors[theirs].shape, tuple(expected[ours].shape)
        if given != wanted:
            raise ValueError(f"{theirs!r} has the shape {given}, and its metadata give {wanted}")
    odd = file.tensors.keys() - set(names.values()) - {ROPE_FREQS}
    if odd := {name for name in odd if not name.endswith(".attn_rot_embd.weight")}:
        what = "biases" if all(name.endswith(".bias") for name in odd) else "such tensor"
        raise ValueError(f"our decoder has no {what}, and it has {min(odd)[:80]!r}")
    return names
