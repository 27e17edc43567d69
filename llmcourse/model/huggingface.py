"""Weights under Hugging Face's names for Llama (for Qwen3 with `qk_norm`), and back.

Two things differ: the names, and the order of the channels inside each query and key head, since
Hugging Face rotates split halves where we rotate adjacent pairs.

Taught in: chapters/10_blueprint.ipynb
"""

import torch
from torch import Tensor

from llmcourse.attention import halves_from_adjacent
from llmcourse.model.config import ModelConfig

_IN_BLOCK = {
    "attention_norm.gain": "input_layernorm.weight",
    "attention.w_q": "self_attn.q_proj.weight",
    "attention.w_k": "self_attn.k_proj.weight",
    "attention.w_v": "self_attn.v_proj.weight",
    "attention.w_o": "self_attn.o_proj.weight",
    "feed_forward_norm.gain": "post_attention_layernorm.weight",
    "feed_forward.w_gate": "mlp.gate_proj.weight",
    "feed_forward.w_up": "mlp.up_proj.weight",
    "feed_forward.w_down": "mlp.down_proj.weight",
}


_OF_HEADS = {
    "attention.q_norm.gain": "self_attn.q_norm.weight",
    "attention.k_norm.gain": "self_attn.k_norm.weight",
}
"""Of a model with `qk_norm` only: Hugging Face calls it Qwen3."""

_ROTATED = ("w_q", "w_k", "q_norm.gain", "k_norm.gain")


def _names(config: ModelConfig) -> dict[str, str]:
    """Return Hugging Face's name for each of our parameters."""
    names = {"embedding": "model.embed_tokens.weight", "norm.gain": "model.norm.weight"}
    for layer in range(config.num_layers):
        for ours, theirs in (_IN_BLOCK | (_OF_HEADS if config.qk_norm else {})).items():
            names[f"blocks.{layer}.{ours}"] = f"model.layers.{layer}.{theirs}"
    if not config.tied_head:
        names["head"] = "lm_head.weight"
    return names


def _permute_heads(weight: Tensor, order_K: Tensor) -> Tensor:
    """Reorder the rows of a query or key projection, or the channels of a gain, in each head."""
    per_head = weight.unflatten(0, (-1, order_K.numel()))
    return per_head[:, order_K].flatten(0, 1)


def to_huggingface(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return the state dict that `LlamaForCausalLM.load_state_dict` takes.

    With `qk_norm` it is that of `Qwen3ForCausalLM`.  With a tied head, "lm_head.weight" is
    given too, as Hugging Face lists it.

    Raises:
        ValueError: if a parameter of the configuration is missing from `state`.
    """
    order_K = halves_from_adjacent(config.head_size)
    result = {}
    for ours, theirs in _names(config).items():
        if ours not in state:
            raise ValueError(f"the state dict has no parameter {ours!r} of this configuration")
        rotated = ours.endswith(_ROTATED)
        result[theirs] = _permute_heads(state[ours], order_K) if rotated else state[ours]
    if config.tied_head:
        result["lm_head.weight"] = result["model.embed_tokens.weight"]
    return result


def from_huggingface(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return our state dict from one of `LlamaForCausalLM`: the inverse of `to_huggingface`.

    Raises:
        ValueError: if a parameter is missing, or `state` has one that this configuration has not.
    """
    names = _names(config)
    unknown = state.keys() - set(names.values()) - {"lm_head.weight"}
    if unknown:
        raise ValueError(f"not parameters of this configuration: {sorted(unknown)}")
    order_K = torch.argsort(halves_from_adjacent(config.head_size))
    result = {}
    for ours, theirs in names.items():
        if theirs not in state:
            raise ValueError(f"the state dict has no parameter {theirs!r} of this configuration")
        rotated = ours.endswith(_ROTATED)
        result[ours] = _permute_heads(state[theirs], order_K) if rotated else state[theirs]
    return result
