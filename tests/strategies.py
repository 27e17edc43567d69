"""Inputs for tests: awkward tensors, in which nothing cancels, and an awkward shape of a model."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmcourse.model import ModelConfig


def awkward(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32):
    """A tensor with a mean, a scale and an outlier: neither 0 nor 1 anywhere by design."""
    x = 3 * torch.randn(*shape, generator=generator, dtype=dtype) + 1
    if x.numel():
        x.view(-1)[0] *= 5
    return x


class Largest(TorchDispatchMode):
    """Notes the most numbers in a tensor that was made in it."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.found = max(self.found, out.numel())
        return out


def small_config(**changes):
    """A decoder of 17 tokens whose width, heads, hidden units and context all differ."""
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_size": 6}
    sizes = {"num_layers": 2, "width": 12, "hidden": 20, "vocab_size": 17, "context_length": 9}
    return ModelConfig(**heads | sizes | changes)
