"""Inputs for property tests, and awkward tensors in which nothing cancels."""

import torch


def awkward(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32):
    """A tensor with a mean, a scale and an outlier: neither 0 nor 1 anywhere by design."""
    x = 3 * torch.randn(*shape, generator=generator, dtype=dtype) + 1
    if x.numel():
        x.view(-1)[0] *= 5
    return x
