"""The files beside the weights that Hugging Face's transformers reads, as plain data.

Only a Llama can be written, or a Mixtral, which is a Llama with experts: what else the course can
build is refused.  Nothing here imports transformers; the tests load what is written with it.
"""

from typing import Any, Literal

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import GPT2, Tokenizer
from llmcourse.data.tokenizer.files import spell
from llmcourse.model import ModelConfig
from llmcourse.train.config import TrainConfig

DType = Literal["float32", "bfloat16"]
"""In what weights are written."""

SAMPLE_TEMPERATURE = 0.8
"""Of generated text, as in `train.sample`."""


def refuse_other_than_llama(config: TrainConfig) -> None:
    """Raise ValueError if neither Llama nor Mixtral can compute what a run's model computes."""
    if config.without != "nothing":
        raise ValueError(
            f"a model without {config.without} is no Llama, and transformers has no class for it: "
            "train with --without nothing, or use the run's checkpoint with llmcourse itself"
        )
    if config.model.qk_norm:
        raise ValueError(
            "a model with qk_norm is no Llama: train with --model.qk_norm false, or load what "
            "model.to_huggingface returns into transformers' Qwen3ForCausalLM"
        )
    if config.model.width % config.model.num_heads:
        raise ValueError(
            f"transformers takes a Llama only if num_heads divides width, here {config.model.width}"
            f" and {config.model.num_heads}: train with another number of heads, or use the run's "
            "checkpoint with llmcourse itself"
        )


def config_json(config: ModelConfig, *, end_id: int, dtype: DType) -> dict[str, Any]:
    """Return config.json: the shape under the names of `LlamaConfig` or `MixtralConfig`.

    No id is named for padding: that row of the embedding would no longer be trained.

    Args:
        config: the shape.
        end_id: of the token between two documents.
        dtype: of the weights.
    """
    return {
        **(_mixtral(config) if config.num_experts else _LLAMA),
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.context_length,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,  # where transformers 4 looks
        "tie_word_embeddings": config.tied_head,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "dtype": dtype,
        "torch_dtype": dtype,  # where transformers 4 looks
    }


_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
}
"""What only a Llama has to say."""


def _mixtral(config: ModelConfig) -> dict[str, Any]:
    """Return what only a Mixtral has to say.

    transformers' balance loss is k times ours, of all layers together; it drops no token, as we
    drop none outside training.
    """
    return {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": config.num_experts,
        "num_experts_per_tok": config.experts_per_token,
        "router_aux_loss_coef": config.balance_weight / config.experts_per_token,
        "router_jitter_noise": 0.0,
        "output_router_logits": False,
        "sliding_window": None,
    }


def generation_config_json(config: ModelConfig, *, end_id: int) -> dict[str, Any]:
    """Return generation_config.json: sample as the run did, and stop where a document ends."""
    return {
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "do_sample": True,
        "temperature": SAMPLE_TEMPERATURE,
        "top_k": 0,  # all tokens; transformers' own default is 50
        "max_length": config.context_length,
    }


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return tokenizer.json, the form of Hugging Face's `tokenizers`: it gives the ids of ours.

    The two may differ on characters that one of them does not know yet: each cuts words by the
    version of Unicode that it was built with.

    Raises:
        ValueError: if the special tokens are more than the one between documents.
    """
    if tokenizer.special_tokens.keys() != {END_OF_TEXT}:
        raise ValueError(
            f"expected the special token {END_OF_TEXT!r} alone, as train writes it, got "
            f"{sorted(tokenizer.special_tokens)}"
        )
    end_id = tokenizer.special_tokens[END_OF_TEXT]
    vocabulary = {
        END_OF_TEXT if i == end_id else spell(tokenizer.token_bytes(i)): i
        for i in range(tokenizer.vocab_size)
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(END_OF_TEXT, end_id)],
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(tokenizer.pattern),
        "post_processor": None,
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [[spell(a), spell(b)] for a, b in tokenizer.merges],
        },
    }


def tokenizer_config_json(config: ModelConfig) -> dict[str, Any]:
    """Return tokenizer_config.json: how transformers wraps tokenizer.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }


def _added(token: str, token_id: int) -> dict[str, Any]:
    """Return how tokenizer.json names a special token; white space beside it is not taken."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": token, **flags, "special": True}


def _pre_tokenizer(pattern: str) -> dict[str, Any]:
    """Return what cuts text into words by a pattern and spells their bytes."""
    if pattern == GPT2:
        return _byte_level(use_regex=True)
    cut = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [cut, _byte_level(use_regex=False)]}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    """Return the part of tokenizer.json that turns bytes into printable characters, or back."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }
