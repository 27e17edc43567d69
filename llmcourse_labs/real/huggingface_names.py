"""Weights under Hugging Face's names for Llama, Qwen3 (`qk_norm`), Mixtral (experts), Qwen3-MoE.

Two things differ: the names, and the order of the channels inside each query and key head, since
Hugging Face rotates split halves where we rotate adjacent pairs.

Experts have two sets of names.  Published files, and transformers before version 5, hold three
matrices for each expert; transformers 5 joins all of them in two tensors when it loads a folder.
`to_huggingface` gives the joined ones, `split_experts` makes files of them, and `from_huggingface`
reads both.
"""

import torch
from torch import Tensor

from llmcourse.model.attention import halves_from_adjacent
from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer

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

_SHORT = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
"""What the matrices of one expert are called in the files of Qwen3-MoE, and in those of Mixtral."""

_OF_HEADS = {
    "attention.q_norm.gain": "self_attn.q_norm.weight",
    "attention.k_norm.gain": "self_attn.k_norm.weight",
}
"""Of a model with `qk_norm` only, which Hugging Face calls Qwen3."""

ROTATED = ("w_q", "w_k", "q_norm.gain", "k_norm.gain")


def names_of(config: ModelConfig) -> dict[str, str]:
    """Return Hugging Face's name for each of our parameters."""
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


def permute_heads(weight: Tensor, order_K: Tensor) -> Tensor:
    """Reorder the rows of a query or key projection, or the channels of a gain, in each head."""
    per_head = weight.unflatten(0, (-1, order_K.numel()))
    return per_head[:, order_K].flatten(0, 1)


def to_huggingface(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return the state dict that `LlamaForCausalLM.load_state_dict` takes.

    With `qk_norm` it is that of `Qwen3ForCausalLM`; with experts that of `MixtralForCausalLM` in
    transformers 5, whose joined experts are copies; with both that of `Qwen3MoeForCausalLM`.  With
    a tied head, "lm_head.weight" is given too, as Hugging Face lists it.

    Raises:
        ValueError: if a parameter of the configuration is missing from `state`, or if that has
            another one.
    """
    if strange := sorted(state.keys() - names_of(config)):
        raise ValueError(f"Hugging Face has no name for the parameter {strange[0]!r}")
    order_K = halves_from_adjacent(config.head_size)
    result = {}
    for ours, theirs in names_of(config).items():
        if ours not in state:
            raise ValueError(f"the state dict has no parameter {ours!r} of this configuration")
        rotated = ours.endswith(ROTATED)
        result[theirs] = permute_heads(state[ours], order_K) if rotated else state[ours]
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

    So published files hold them, and every version of transformers reads them.  In Mixtral's,
    block_sparse_moe.experts.E.w1 is the gate of expert E, w3 its up, w2 its down; in those of
    Qwen3-MoE they are mlp.experts.E.gate_proj and so on.  A state dict without experts is returned
    as it is.
    """
    is_qwen = any(name.endswith("q_norm.weight") for name in state)
    part, shorts = (".mlp.", {}) if is_qwen else (".block_sparse_moe.", _SHORT)
    result: dict[str, Tensor] = {}
    for name, weight in _unjoined(state).items():
        place, _, long = name.rpartition("experts.")
        if place:
            place, short = place.replace(".mlp.", part) + "experts", shorts.get(long, long)
            result |= {f"{place}.{e}.{short}.weight": w for e, w in enumerate(weight.unbind())}
        else:
            router = name.endswith(".mlp.gate.weight")
            result[name.replace(".mlp.", part) if router else name] = weight
    return result


def _unjoined(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the gates and the ups of all experts apart; both are views."""
    result = {}
    for name, weight in state.items():
        if name.endswith("experts.gate_up_proj"):
            halves = weight.chunk(2, dim=1)
            for part, half in zip(("gate_proj", "up_proj"), halves, strict=True):
                result[name.replace("gate_up_proj", part)] = half
        else:
            result[name] = weight
    return result


def _stacked(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Put the matrices of single experts, under their published names, in one tensor of all."""
    state = {name.replace(".block_sparse_moe.", ".mlp."): w for name, w in state.items()}
    for layer in range(config.num_layers):
        place = f"model.layers.{layer}.mlp.experts."
        for long, short in _SHORT.items():
            for spelt in (short, long):
                names = [f"{place}{e}.{spelt}.weight" for e in range(config.num_experts)]
                if all(name in state for name in names):
                    state[place + long] = torch.stack([state.pop(name) for name in names])
    return state


def from_huggingface(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return our state dict from one of `LlamaForCausalLM`: the inverse of `to_huggingface`.

    Experts may have either set of names.  The frequencies of the rotation, which
    old files hold beside the weights, are passed over: `config` has their base.

    Raises:
        ValueError: if a parameter is missing or of another shape, `state` has one that this
            configuration has not, or its head is another matrix than the embedding where the
            configuration ties them.
    """
    # First of all: what follows takes time and memory for every layer.
    if config.num_layers > len(state):
        raise ValueError(f"{len(state)} parameters are too few for {config.num_layers} layers")
    names = names_of(config)
    state = {name: w for name, w in state.items() if not name.endswith("rotary_emb.inv_freq")}
    # Joined or one by one, the experts come to one tensor of all of them.
    if config.num_experts:
        state = _stacked(_unjoined(state), config)
    unknown = state.keys() - set(names.values()) - {"lm_head.weight"}
    if unknown:
        raise ValueError(f"not parameters of this configuration: {sorted(unknown)}")
    # Shapes alone, without memory.
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    # The inverse of `to_huggingface`'s order: from split halves to adjacent pairs.
    order_K = torch.argsort(halves_from_adjacent(config.head_size))
    result = {}
    for ours, theirs in names.items():
        if theirs not in state:
            raise ValueError(f"the state dict has no parameter {theirs!r} of this configuration")
        if state[theirs].shape != expected[ours].shape:
            raise ValueError(
                f"{theirs!r} has the shape {tuple(state[theirs].shape)}, this configuration gives "
                f"{tuple(expected[ours].shape)}"
            )
        rotated = ours.endswith(ROTATED)
        result[ours] = permute_heads(state[theirs], order_K) if rotated else state[theirs]
    # A file may list a tied head as well; then it is the embedding once more.
    head = state.get("lm_head.weight")
    if config.tied_head and head is not None and not torch.equal(head, result["embedding"]):
        raise ValueError(
            "'lm_head.weight' is another matrix than 'model.embed_tokens.weight': set tied_head to "
            "False"
        )
    return result
