"""A Llama: configuration and presets, the decoder, sampling, and Hugging Face's names for it.

Taught in: chapters/10_blueprint.ipynb, chapters/16_cross_entropy.ipynb
"""

from llmcourse.model.config import (
    PRESETS,
    ModelConfig,
    llama3_8b,
    llama3_70b,
    llama3_405b,
    stories,
    tiny,
)
from llmcourse.model.decoder import KVCache, Transformer
from llmcourse.model.huggingface import from_huggingface, to_huggingface
from llmcourse.model.sampling import generate, next_token_probabilities

__all__ = [
    "PRESETS",
    "KVCache",
    "ModelConfig",
    "Transformer",
    "from_huggingface",
    "generate",
    "llama3_8b",
    "llama3_70b",
    "llama3_405b",
    "next_token_probabilities",
    "stories",
    "tiny",
    "to_huggingface",
]
