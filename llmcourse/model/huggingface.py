"""Weights under Hugging Face's names for Llama, Qwen3 (`qk_norm`) or Mixtral (experts).

Two things differ: the names, and the order of the channels inside each query and key head, since
Hugging Face rotates split halves where we rotate adjacent pairs.

The experts of a Mixtral have two sets of names.  Published files, and transformers before version
5, hold three matrices for each expert; transformers 5 joins all of them in two tensors when it
loads a folder.  `to_huggingface` gives the joined ones, and `split_experts` makes files of them.
"""

import torch
from torch import Tensor

from llmcourse.model.attention import halves_from_adjacent
from llmcourse.model.config import ModelConfig

_IN_BLOCK = {
    "attention_norm.gain": "input_layernorm.weight",
    "attention.w_q": "self_attn.q_proj.weight",
    "attention.w_k": "self_attn.k_proj.weight",
    "attention.w_v": "self_attn.v_proj.weight",
    "attention.w_o": "self_attn.o_proj.weight",
    "feed_forward_norm.gain": "post_attention_layernorm.weight",
}

_DENSE = {
    "feed_forward.w_gate": "mlp.gate_proj.weight",
    "feed_forward.w_up": "mlp.up_proj.weight",
    "feed_forward.w_down": "mlp.down_proj.weight",
}

_MIXTURE = {
    "feed_forward.router.w_router": "mlp.gate.weight",
    "feed_forward.experts.w_gate": "mlp.experts.gate_proj",
    "feed_forward.experts.w_up": "mlp.experts.up_proj",
    "feed_forward.experts.w_down": "mlp.experts.down_proj",
}
"""Gate and up stand under names of their own here until they are joined."""

_OF_HEADS = {
    "attention.q_norm.gain": "self_attn.q_norm.weight",
    "attention.k_norm.gain": "self_attn.k_norm.weight",
}
"""Of a model with `qk_norm` only: Hugging Face calls it Qwen3."""

_ROTATED = ("w_q", "w_k", "q_norm.gain", "k_norm.gain")


def _names(config: ModelConfig) -> dict[str, str]:
    """Return Hugging Face's name for each of our parameters."""
    if config.num_experts and config.qk_norm:
        raise ValueError(
            "transformers has no Mixtral with qk_norm: set qk_norm to False, or num_experts to 0"
        )
    names = {"embedding": "model.embed_tokens.weight", "norm.gain": "model.norm.weight"}
    in_block = _IN_BLOCK | (_MIXTURE if config.num_experts else _DENSE)
    if config.qk_norm:
        in_block |= _OF_HEADS
    for layer in range(config.num_layers):
        for ours, theirs in in_block.items():
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

    With `qk_norm` it is that of `Qwen3ForCausalLM`; with experts that of `MixtralForCausalLM` in
    transformers 5, whose joined experts are copies.  With a tied head, "lm_head.weight" is given
    too, as Hugging Face lists it.

    Raises:
        ValueError: if a parameter of the configuration is missing from `state`, or it has both
            experts and qk_norm.
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
    return _joined(result)


def _joined(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put the gates and the ups of all experts in one tensor, gates first, as transformers 5."""
    result = {}
    for name, weight in state.items():
        if name.endswith("experts.gate_proj"):
            up = state[name.replace("gate_proj", "up_proj")]
            result[name.replace("gate_proj", "gate_up_proj")] = torch.cat([weight, up], dim=1)
        elif not name.endswith("experts.up_proj"):
            result[name] = weight
    return result


def split_experts(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict of `to_huggingface` with a name for each matrix of each expert.

    So published files of Mixtral hold them, and every version of transformers reads them:
    block_sparse_moe.experts.E.w1 is the gate of expert E, w3 its up, w2 its down.  A state dict
    without experts is returned as it is.
    """
    result = {}
    for name, weight in state.items():
        place, _, part = name.replace(".mlp.", ".block_sparse_moe.").rpartition(".")
        if name.endswith("experts.gate_up_proj"):
            gates, ups = weight.chunk(2, dim=1)
            matrices = {"w1": gates, "w3": ups}
        elif name.endswith("experts.down_proj"):
            matrices = {"w2": weight}
        else:
            router = name.endswith(".mlp.gate.weight")
            result[f"{place}.{part}" if router else name] = weight
            continue
        for short, of_experts in matrices.items():
            result |= {f"{place}.{e}.{short}.weight": w for e, w in enumerate(of_experts)}
    return result
