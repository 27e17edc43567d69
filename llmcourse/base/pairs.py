"""Pairs of a forward and a backward function, as nodes of autograd's graph."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.utils import flop_counter

# Registered by torch for its own compiler; absent from builds without oneDNN.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
# torch's counter of FLOPs passes over it otherwise.
if _ONEDNN_LINEAR is not None and _ONEDNN_LINEAR not in flop_counter.flop_registry:

    @flop_counter.register_flop_formula(_ONEDNN_LINEAR)
    def _flops_of_linear(x: torch.Size, w: torch.Size, *_: Any, **__: Any) -> int:
        """Return 2 x rows x columns x inner, as for torch's product."""
        return 2 * x[:-1].numel() * w.numel()


# Below about this many multiply-adds the call itself costs more than oneDNN saves (measured).
_ONEDNN_MIN_PRODUCTS = 1_000_000
_CPUINFO = Path("/proc/cpuinfo")


def choose_products() -> Literal["torch", "onednn"]:
    """Return whose float32 products on the CPU this process uses, by a rule without a clock.

    A measurement would come out one way in one rank, or before a pause, and another way after it,
    and the last bits of a run with it; the kind of processor does not change.  "onednn" is for
    AMD's from family 26 (Zen 5) on, with AVX-512 in use: there torch's own library, MKL, takes a
    slow path.  Elsewhere torch's product is as fast, or faster.

    The environment variable LLMCOURSE_PRODUCTS, torch or onednn, overrules it.

    Raises:
        ValueError: if the variable is set to something else, or to onednn where torch lacks it.
    """
    wanted = os.environ.get("LLMCOURSE_PRODUCTS", "")
    allowed = ("torch",) if _ONEDNN_LINEAR is None else ("torch", "onednn")
    if wanted in allowed:
        return "onednn" if wanted == "onednn" else "torch"
    if wanted:
        raise ValueError(f"LLMCOURSE_PRODUCTS must be {' or '.join(allowed)}, got {wanted!r}")
    if "onednn" not in allowed or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "torch"
    return "onednn" if _amd_family() >= 26 else "torch"


def _amd_family() -> int:
    """Return the family of an AMD processor, 0 for any other and where the system does not say."""
    if not _CPUINFO.exists():
        return 0
    # The first processor stands for all.
    lines = _CPUINFO.read_text(errors="replace").split("\n\n")[0].splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
    family = fields.get("cpu family", "")
    return int(family) if fields.get("vendor_id") == "AuthenticAMD" and family.isdigit() else 0


PRODUCTS = choose_products()
"""Whose products this process uses, chosen on import."""


def matmul_nt(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w^T, through oneDNN where `choose_products` found it faster.

    On an AMD Zen 5 core torch's own product was measured at 105 GFLOP/s where oneDNN, which is part
    of the same torch wheel, reaches 230.  Small products, other dtypes and other devices take
    torch's own.

    Args:
        x: (..., inner); any strides if it is a matrix, else contiguous.
        w: (columns, inner), any strides.
    """
    if PRODUCTS == "torch" or x.dtype != torch.float32 or x.device.type != "cpu":
        return F.linear(x, w)  # less around the product than x @ w.T: felt with one token
    rows = x.reshape(-1, x.shape[-1])
    y = _product_as_a_node(rows, w) if torch.compiler.is_compiling() else _product_onednn(rows, w)
    return y.view(*x.shape[:-1], w.shape[0])


def _product_onednn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w^T through oneDNN if the product is large enough for it."""
    if x.shape[0] * w.shape[0] * w.shape[1] < _ONEDNN_MIN_PRODUCTS:
        return x @ w.T
    assert _ONEDNN_LINEAR is not None  # or PRODUCTS would be torch
    return _ONEDNN_LINEAR(x, w, None, "none", [], "")


# The compiler has rules of its own for oneDNN's operator, which expect weights that never change.
# Under another name it is a node that the compiler leaves alone.
_product_as_a_node = torch.library.custom_op(
    "llmcourse::matmul_nt", _product_onednn, mutates_args=()
)
_product_as_a_node.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[0]))


def upcast(x: torch.Tensor) -> torch.Tensor:
    """Return a bf16 or fp16 tensor in float32, and any other as it is.

    For what must not be summed or divided in 8 or 11 bits: norms, rotations, the loss.
    """
    return x.to(at_least_float32(x.dtype))


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for a narrower dtype, and any other as it is."""
    return torch.promote_types(dtype, torch.float32)


def outside_autocast(x: torch.Tensor) -> contextlib.AbstractContextManager:
    """Return a context in which `torch.autocast` narrows nothing on the device of a tensor."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


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
