"""The shapes of a model's parameters, without the parameters."""

import functools

import torch

from llmcourse.model.config import ModelConfig
from llmcourse.model.decoder import Transformer


@functools.cache
def whole_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Return the shape of every parameter of a whole model, in its order, without building one."""
    with torch.device("meta"):
        return {name: p.shape for name, p in Transformer(config).named_parameters()}


def num_parameters(config: ModelConfig) -> int:
    """Return how many parameters a model has, all experts included."""
    return sum(shape.numel() for shape in whole_shapes(config).values())
