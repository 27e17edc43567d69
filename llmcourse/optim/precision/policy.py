"""What `torch.autocast` computes in few bits, and what it leaves in float32.

Products of matrices read and write most numbers and lose least by rounding: they go to bf16.  Sums
over many terms, exponentials and quotients stay in float32, and so do the weights themselves, the
residual stream, the gradients of the weights, and the optimizer.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Policy = Literal["lower", "float32", "widest"]
"""Computes in the narrow dtype, in float32, or in the widest dtype among its inputs."""

POLICY: dict[str, Policy] = {
    "linear": "lower",
    "attention": "lower",
    "embedding": "widest",
    "residual sum": "widest",
    "silu gate": "widest",
    "rotation": "widest",
    "RMSNorm": "float32",
    "cross-entropy": "float32",
}
"""How the layers of the course's model behave under autocast."""


def autocast_dtype(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    dtype: torch.dtype = torch.bfloat16,
) -> torch.dtype:
    """Return the dtype in which a function answers under autocast: ask, rather than look it up.

    Args:
        function: any function of tensors.
        inputs: what to call it with.
        dtype: the narrow dtype.
    """
    with torch.no_grad(), torch.autocast(inputs[0].device.type, dtype):
        return function(*inputs).dtype
