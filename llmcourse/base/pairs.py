"""Pairs of a forward and a backward function, as nodes of autograd's graph."""

from collections.abc import Callable
from typing import Any, Literal

import torch

# Registered by torch for its own compiler; absent from builds without oneDNN.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
# Below about this many multiply-adds the call itself costs more than oneDNN saves (measured).
_ONEDNN_MIN_PRODUCTS = 1_000_000


def product_transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w^T of two matrices through the fastest float32 kernel that this torch carries.

    torch's own product goes to MKL, which takes a slow path on processors that are not Intel's: on
    an AMD Zen 5 core it was measured at 105 GFLOP/s where oneDNN, which is part of the same torch
    wheel, reaches 230.  Small products, other dtypes and other devices take torch's own.

    Args:
        x: (rows, inner), any strides.
        w: (columns, inner), any strides.
    """
    if _ONEDNN_LINEAR is None or x.dtype != torch.float32 or x.device.type != "cpu":
        return x @ w.T
    if x.shape[0] * w.shape[0] * w.shape[1] < _ONEDNN_MIN_PRODUCTS:
        return x @ w.T
    return _ONEDNN_LINEAR(x, w, None, "none", [], "")


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return a bf16 or fp16 tensor in float32, and any other as it is.

    For what must not be summed or divided in 8 or 11 bits: norms, rotations, the loss.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


Autocast = Literal["lower", "float32", "as given"]
"""In what a function computes under `torch.autocast`: in its narrow dtype, in float32, or in the
dtype of what it is given."""


def differentiable(
    forward: Callable[..., tuple[torch.Tensor, tuple]],
    backward: Callable[..., Any],
    *,
    autocast: Autocast = "as given",
) -> Callable[..., torch.Tensor]:
    """Make one differentiable function of a pair (forward, backward).

    Args:
        forward: maps its arguments to (output, saved), saved being a NamedTuple of tensors.
        backward: maps (output gradient, saved) to one gradient per tensor argument of `forward`
            that can have one, those arguments standing first.
        autocast: in what it computes under `torch.autocast`.

    Returns:
        A function with forward's positional arguments that returns its output.  It has a first
        derivative only, see `refuse_second_derivatives`.
    """

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
            y, saved = forward(*arguments)
            ctx.save_for_backward(*saved)
            ctx.saved_type = type(saved)
            ctx.num_arguments = len(arguments)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple:
            refuse_second_derivatives()
            gradients = backward(dy, ctx.saved_type(*ctx.saved_tensors))
            return (*gradients, *[None] * (ctx.num_arguments - len(gradients)))

    def apply(*arguments: Any) -> torch.Tensor:
        device = arguments[0].device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            # Without a gradient to come the node would be overhead, felt in steps of one token.
            return Pair.apply(*arguments) if torch.is_grad_enabled() else forward(*arguments)[0]
        # The casts stand outside the pair, where autograd sees them; inside, nothing is cast.
        dtype = torch.get_autocast_dtype(device) if autocast == "lower" else torch.float32
        with torch.autocast(device, enabled=False):
            return Pair.apply(*(_cast(a, dtype, autocast) for a in arguments))

    return apply


def refuse_second_derivatives() -> None:
    """Stop a backward pass that is itself recorded: called by those written by hand.

    What they saved is a constant to autograd, so that a second derivative would lack terms.  (Nor
    does torch's `once_differentiable` stop `torch.autograd.grad`: it leaves the terms out.)

    Raises:
        RuntimeError: in a backward pass with create_graph=True.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "a backward pass written by hand has no second derivative: leave create_graph=True "
            "out, or use torch's own functions (F.linear, F.cross_entropy, ...) for this model"
        )


def _cast(argument: Any, dtype: torch.dtype, autocast: Autocast) -> Any:
    """Return a floating-point tensor in the dtype that autocast asks for, all else as it is."""
    is_wanted = isinstance(argument, torch.Tensor) and argument.is_floating_point()
    return argument.to(dtype) if is_wanted and autocast != "as given" else argument
