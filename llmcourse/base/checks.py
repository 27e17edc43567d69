"""Comparisons shared by the chapters, the tests and the graders.

A hand-written backward pass is believed when it agrees with autograd in float64, for inputs and an
output gradient in which nothing cancels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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

    def __str__(self) -> str:
        """Return a table: each gradient, its error, and whether that is within the tolerance."""
        width = max((len(name) for name in self.relative_errors), default=0)
        lines = [
            f"{name:{width}}  {error:8.1e}  {'ok' if error <= self.tolerance else 'WRONG'}"
            for name, error in self.relative_errors.items()
        ]
        return "\n".join([*lines, f"accepted up to {self.tolerance:g} of the largest entry"])


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


def check_finite_differences(
    forward: Callable[..., tuple[Tensor, object]],
    backward: Callable[[Tensor, object], Sequence[Tensor]],
    inputs: dict[str, Tensor],
    *,
    generator: torch.Generator,
    num_directions: int = 8,
    tolerance: float = 1e-7,
) -> GradReport:
    """Compare `backward` with differences of `forward`, in float64, without any autograd.

    For a random output gradient dy and a random direction u of one input, the slope

        (L(x + h u) - L(x - h u)) / 2h,  L = sum of dy * forward(x),

    has to be the sum of dx * u.  It is measured at two steps h and h / 2 and extrapolated to 0;
    how far the two are apart says how well the difference itself is known, and only what goes
    beyond that counts as an error.

    Args:
        forward: maps the inputs to (output, saved).
        backward: maps (output gradient, saved) to one gradient per floating-point input, in order.
        inputs: as in `check_backward`.
        generator: source of the output gradient and of the directions.
        num_directions: random directions tried for each input.
        tolerance: largest accepted relative error, dimensionless.

    Returns:
        For each input the largest error over the directions, relative to the largest slope.

    Raises:
        ValueError: if every slope of some input is zero, so that nothing was checked.

    Source:
        Richardson 1911 for the extrapolation; Press et al., Numerical Recipes, section 5.7.
    """
    inputs = {n: x.double() if x.is_floating_point() else x for n, x in inputs.items()}
    with torch.no_grad():
        y, saved = forward(*inputs.values())
        dy = torch.randn(y.shape, generator=generator, dtype=torch.float64)
        gradients = iter(backward(dy, saved))

        def value(name: str, moved: Tensor) -> float:
            return float((forward(*(inputs | {name: moved}).values())[0] * dy).sum())

        errors = {}
        for name, x in inputs.items():
            if x.is_floating_point():
                dx = next(gradients)
                errors[name] = _worst_direction(
                    partial(value, name), x, dx, num_directions, generator
                )
    return GradReport(errors, tolerance)


def _worst_direction(
    value: Callable[[Tensor], float],
    x: Tensor,
    dx: Tensor,
    num_directions: int,
    generator: torch.Generator,
) -> float:
    """Return the largest unexplained difference between dx and measured slopes of value at x."""
    step = 1e-4 * max(1.0, float(x.abs().max()))
    slopes, errors = [], []
    for _ in range(num_directions):
        u = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        wide, narrow = ((value(x + h * u) - value(x - h * u)) / (2 * h) for h in (step, step / 2))
        slope = narrow + (narrow - wide) / 3  # the error of both falls with h^2
        known_to = abs(narrow - wide) + 1e-12 * abs(value(x)) / step
        slopes.append(abs(slope))
        errors.append(max(0.0, abs(float((dx * u).sum()) - slope) - known_to))
    if max(slopes) == 0:
        raise ValueError("every slope is zero: choose other inputs")
    return max(errors) / max(slopes)
