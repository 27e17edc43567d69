"""What llama.cpp calls the parts of a Llama, a Qwen3 or a mixture of experts, and our names.

Two things differ from our names: the names, and, in some architectures, the order of the channels
inside each query and key head.  llama.cpp rotates the pairs of a `llama` as we do, neighbours, and
its converter has put the rows of Hugging Face's files in that order; the pairs of a `qwen3` are the
two halves of a head, as in Hugging Face's own files.

Source: https://github.com/ggml-org/llama.cpp, src/llama-arch.cpp (names), src/llama-model.cpp
(llama_model_rope_type), convert_hf_to_gguf.py (LlamaModel.permute).
"""

import torch
from torch import Tensor

from llmcourse.model.attention import halves_from_adjacent, rope_rotations
from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_shape import ROPE_FREQS, config_from_gguf

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
