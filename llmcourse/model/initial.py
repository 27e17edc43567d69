"""The first weights of a model, or of one of its parts."""

import torch
from torch import nn

STD = 0.02


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator, *, num_layers: int = 0) -> None:
    """Draw all matrices of a module anew, in the order of `named_parameters`; gains are 1.

    w ~ N(0, 0.02^2);  w_o and w_down ~ N(0, 0.02^2 / (2 num_layers)): they write into the residual
    stream, where the parts of all layers add up.

    Args:
        module: a model, or a part of one.
        generator: source of the draws.
        num_layers: of the model; 0 for a part that is none of a residual stream.

    Raises:
        ValueError: if a parameter is neither a matrix nor a gain.

    Source:
        Radford et al. 2019, section 2.3 (GPT-2), for 0.02 and the scaled residual writers.
    """
    residual_std = STD / max(1, 2 * num_layers) ** 0.5
    for name, parameter in module.named_parameters():
        if name.endswith("gain"):
            parameter.fill_(1.0)
        elif parameter.ndim < 2:
            raise ValueError(f"{name} is neither a matrix nor a gain: say here how it begins")
        else:
            std = residual_std if name.endswith(("w_o", "w_down")) else STD
            parameter.normal_(0.0, std, generator=generator)
