"""Comparisons shared by the chapters, the tests and the graders.

A hand-written backward pass is believed when it agrees with autograd in float64, for inputs and an
output gradient in which nothing cancels.

Taught in: chapters/19_llama_backward.ipynb
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GradReport:
    """How far each gradient is from autograd's: largest difference / largest entry."""

    relative_errors: dict[str, float]
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether every gradient is within the tolerance."""
        return all(error <= self.tolerance for error in self.relative_errors.values())


def relative_error(ours: Tensor, reference: Tensor) -> float:
    """Return max abs(ours - reference) / max abs(reference).

    The error is relative to the largest entry, so that a small reference is not matched by zero.

    Raises:
        ValueError: if the shapes differ, or the reference is zero everywhere (nothing is checked).
    """
    if ours.shape != reference.shape:
        raise ValueError(f"shapes differ: {tuple(ours.shape)} and {tuple(reference.shape)}")
    scale = reference.abs().max().item() if reference.numel() else 0.0
    if scale == 0:
        raise ValueError("the reference is zero everywhere: choose other inputs")
    return (ours - reference).abs().max().item() / scale


def check_backward(
    forward: Callable[..., tuple[Tensor, object]],
    backward: Callable[[Tensor, object], Sequence[Tensor]],
    inputs: dict[str, Tensor],
    *,
    generator: torch.Generator,
    tolerance: float = 1e-9,
) -> GradReport:
    """Compare `backward` with autograd through `forward`, in float64, for a random output gradient.

    Args:
        forward: maps the inputs to (output, saved).
        backward: maps (output gradient, saved) to one gradient per floating-point input, in order.
        inputs: by name, in the order that `forward` takes them; floats are cast to float64, token
            ids and masks are passed as they are and get no gradient.
        generator: source of the random output gradient.
        tolerance: largest accepted relative error, dimensionless.

    Returns:
        The relative error of each gradient.

    Raises:
        ValueError: if some gradient of autograd is zero everywhere, so that nothing was checked.
    """
    leaves = {
        name: value.detach().double().requires_grad_() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    smooth = {name: value for name, value in leaves.items() if value.is_floating_point()}
    y, _ = forward(*leaves.values())
    dy = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    theirs = torch.autograd.grad(y, list(smooth.values()), dy)
    with torch.no_grad():
        _, saved = forward(*leaves.values())
        ours = backward(dy, saved)
    return GradReport(
        {
            name: relative_error(mine, reference)
            for name, mine, reference in zip(smooth, ours, theirs, strict=True)
        },
        tolerance,
    )
