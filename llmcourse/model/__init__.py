"""A Llama: configuration and presets, the decoder, sampling, Hugging Face's names, ablations.

Taught in: chapters/10_blueprint.ipynb, chapters/16_cross_entropy.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.model.ablation import PARTS, Part, without
    from llmcourse.model.config import (
        PRESETS,
        ModelConfig,
        llama3_8b,
        llama3_70b,
        llama3_405b,
        mixtral_8x7b,
        stories,
        tiny,
        tiny_moe,
    )
    from llmcourse.model.decoder import KVCache, Transformer, auxiliary_loss
    from llmcourse.model.huggingface import from_huggingface, split_experts, to_huggingface
    from llmcourse.model.inspect import (
        attention_maps,
        hidden_units,
        queries_and_keys,
        residual_rms,
        whole_shapes,
    )
    from llmcourse.model.sampling import generate, next_token_probabilities

__all__ = [
    "PARTS",
    "PRESETS",
    "KVCache",
    "ModelConfig",
    "Part",
    "Transformer",
    "attention_maps",
    "auxiliary_loss",
    "from_huggingface",
    "generate",
    "hidden_units",
    "llama3_8b",
    "llama3_70b",
    "llama3_405b",
    "mixtral_8x7b",
    "next_token_probabilities",
    "queries_and_keys",
    "residual_rms",
    "split_experts",
    "stories",
    "tiny",
    "tiny_moe",
    "to_huggingface",
    "whole_shapes",
    "without",
]

lazy(__name__)
