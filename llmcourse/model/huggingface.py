"""Which class of Hugging Face's transformers computes what a model computes, and when none does."""

from typing import Literal

from llmcourse.model.config import ModelConfig

Family = Literal["Llama", "Qwen3", "Mixtral", "Qwen3Moe"]
"""Classes of transformers: Qwen3 is a Llama with `qk_norm`, Mixtral one with experts, Qwen3Moe one
with both."""


def family_of(model: ModelConfig) -> Family:
    """Return the class of transformers that computes what a model computes."""
    if model.num_experts:
        return "Qwen3Moe" if model.qk_norm else "Mixtral"
    return "Qwen3" if model.qk_norm else "Llama"


def obstacle(model: ModelConfig, without: str = "nothing") -> str | None:
    """Return why transformers has no class for a run's model, and the way out; None if it has.

    Args:
        model: the shape.
        without: the part that the model is built without, as in `model.without`.
    """
    if without != "nothing":
        return (
            f"a model without {without} is no Llama, and transformers has no class for it: "
            "train with --without nothing, or use the run's checkpoint with llmcourse itself"
        )
    if family_of(model) == "Llama" and model.width % model.num_heads:
        return (
            f"transformers takes a Llama only if num_heads divides width, here {model.width} and "
            f"{model.num_heads}: train with another number of heads, or with --model.qk_norm true, "
            "or use the run's checkpoint with llmcourse itself"
        )
    return None
