"""Inputs for tests: awkward tensors, in which nothing cancels, and an awkward shape of a model."""

import torch

from llmcourse.model import ModelConfig


def awkward(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32):
    """A tensor with a mean, a scale and an outlier: neither 0 nor 1 anywhere by design."""
    x = 3 * torch.randn(*shape, generator=generator, dtype=dtype) + 1
    if x.numel():
        x.view(-1)[0] *= 5
    return x


def small_config(**changes):
    """A decoder of 17 tokens whose width, heads, hidden units and context all differ."""
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_size": 6}
    sizes = {"num_layers": 2, "width": 12, "hidden": 20, "vocab_size": 17, "context_length": 9}
    return ModelConfig(**heads | sizes | changes)
