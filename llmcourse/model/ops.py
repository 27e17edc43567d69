"""The layers of a Llama as plain functions: linear, embedding, RMSNorm, SwiGLU.

Every layer that holds arithmetic is a pair

    y, saved = name_forward(x, parameters)
    dx, dparameters = name_backward(dy, saved)

and `name` is the same layer as one node of autograd's graph, made by `pairs.differentiable`.
`dy` is the gradient of the loss with respect to `y`; `saved` holds what the backward pass needs and
nothing else.  A pair is as fast as autograd through torch's own operators, within a few hundredths
either way; what makes a model faster is the matrix product under `linear`, and only on some
processors (`pairs.choose_products`; docs/adr/0009-matrix-products.md has measurements).

Shape suffixes:  B batch, T time (tokens), D model width, F hidden width, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.base.pairs import differentiable, matmul_nt, upcast


class LinearSaved(NamedTuple):
    """What `linear_backward` needs: the input and the weight."""

    x_BTD: Float[Tensor, "*B D"]
    w_FD: Float[Tensor, "F D"]


def linear_forward(
    x_BTD: Float[Tensor, "*B D"], w_FD: Float[Tensor, "F D"]
) -> tuple[Float[Tensor, "*B F"], LinearSaved]:
    """Multiply every token by a matrix:  y_f = sum over d of w_fd x_d.

    The weight is stored with one row per output, as torch and every checkpoint of Llama store it.
    """
    return matmul_nt(x_BTD.contiguous(), w_FD), LinearSaved(x_BTD, w_FD)


def linear_backward(
    dy_BTF: Float[Tensor, "*B F"], saved: LinearSaved
) -> tuple[Float[Tensor, "*B D"], Float[Tensor, "F D"]]:
    """Gradients of `linear_forward`:  dx = dy W,  dW = sum over tokens of dy x^T.

    Two products of the size of the forward one: why backward costs twice forward.
    """
    x_BTD, w_FD = saved
    x_ND, dy_NF = x_BTD.reshape(-1, x_BTD.shape[-1]), dy_BTF.reshape(-1, dy_BTF.shape[-1])
    dx_ND = matmul_nt(dy_NF, w_FD.T)
    return dx_ND.view(x_BTD.shape), matmul_nt(dy_NF.T, x_ND.T)


defer_weight_grad: list[Callable[[Tensor, LinearSaved], bool]] = []
"""Asked by the backward pass of `linear` whether it may leave the gradient of its weight for later;
empty outside of `parallel.pipeline.deferred_weight_grads`.  A weight that was computed by a node
with a method `leave_weight_grad` asks that node, too."""


def _linear_backward_in_parts(
    dy_BTF: Float[Tensor, "*B F"], saved: LinearSaved
) -> tuple[Float[Tensor, "*B D"], Float[Tensor, "F D"] | None]:
    """Do as `linear_backward`, but leave out a weight's gradient that is made later, or never."""
    own = getattr(saved.w_FD.grad_fn, "leave_weight_grad", None)
    asked = defer_weight_grad if own is None else [*defer_weight_grad, own]
    if saved.w_FD.requires_grad and not any(each(dy_BTF, saved) for each in asked):
        return linear_backward(dy_BTF, saved)
    dx_ND = matmul_nt(dy_BTF.reshape(-1, dy_BTF.shape[-1]), saved.w_FD.T)
    return dx_ND.view(saved.x_BTD.shape), None


linear = differentiable(linear_forward, _linear_backward_in_parts, autocast="lower")


def embedding(ids_BT: Int[Tensor, "*B"], w_VD: Float[Tensor, "V D"]) -> Float[Tensor, "*B D"]:
    """Look up one row per token id:  y = w[id].

    Raises:
        IndexError: if an id is not a row of the table (torch's own check).
    """
    return F.embedding(ids_BT, w_VD)


def embedding_backward(
    dy_BTD: Float[Tensor, "*B D"], ids_BT: Int[Tensor, "*B"], vocab_size: int
) -> Float[Tensor, "V D"]:
    """Gradient of `embedding` for its table: every row gathers the gradients of its tokens.

    A token that occurs twice adds up both; a row that was not looked up gets 0.
    """
    dw_VD = dy_BTD.new_zeros(vocab_size, dy_BTD.shape[-1])
    return dw_VD.index_add_(0, ids_BT.flatten(), dy_BTD.flatten(0, -2))


class RMSNormSaved(NamedTuple):
    """What `rmsnorm_backward` needs: the input, the gain and 1/rms of each token."""

    x_BTD: Float[Tensor, "*B D"]
    gain_D: Float[Tensor, " D"]
    inv_rms_BT1: Float[Tensor, "*B 1"]


def rmsnorm_forward(
    x_BTD: Float[Tensor, "*B D"], gain_D: Float[Tensor, " D"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*B D"], RMSNormSaved]:
    """Scale every token to root-mean-square 1, then by a learned gain.

    y = gain * x / sqrt(mean(x^2) + eps), the mean over the last axis.  bf16 and fp16 are normalised
    in float32 and rounded before the gain, as Llama does.

    Args:
        x_BTD: activations.
        gain_D: learned scale, one per channel.
        eps: added to the mean square, in the units of x squared; positive.

    Returns:
        The normalised activations, and what the backward pass needs.

    Raises:
        ValueError: if `eps` is not positive.

    Source:
        Zhang and Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467
    """
    if eps <= 0:
        raise ValueError(f"eps must be positive, got {eps}")
    wide_BTD = upcast(x_BTD)
    inv_rms_BT1 = (wide_BTD.square().mean(-1, keepdim=True) + eps).rsqrt()
    normed_BTD = (wide_BTD * inv_rms_BT1).to(x_BTD.dtype)
    return normed_BTD.mul_(gain_D), RMSNormSaved(x_BTD, gain_D, inv_rms_BT1)


def rmsnorm_backward(
    dy_BTD: Float[Tensor, "*B D"], saved: RMSNormSaved
) -> tuple[Float[Tensor, "*B D"], Float[Tensor, " D"]]:
    """Gradients of `rmsnorm_forward` with respect to its input and its gain.

    With n = x / rms:  dx = (dn - n * mean(dn * n)) / rms,  where dn = gain * dy.
    The second term is the gradient that flows through the rms itself.
    """
    x_BTD, gain_D, inv_rms_BT1 = saved
    dy_BTD = upcast(dy_BTD)
    n_BTD = x_BTD * inv_rms_BT1  # recomputed, not saved: one multiply buys B*T*D numbers
    dgain_D = (dy_BTD * n_BTD).flatten(0, -2).sum(0)
    dn_BTD = dy_BTD * gain_D
    projection_BT1 = (dn_BTD * n_BTD).mean(-1, keepdim=True)
    dx_BTD = dn_BTD.addcmul_(n_BTD, projection_BT1, value=-1).mul_(inv_rms_BT1)
    return dx_BTD.to(x_BTD.dtype), dgain_D.to(gain_D.dtype)


rmsnorm = differentiable(rmsnorm_forward, rmsnorm_backward, autocast="float32")


class SiluGateSaved(NamedTuple):
    """What `silu_gate_backward` needs: both inputs."""

    gate_BTF: Float[Tensor, "*B F"]
    up_BTF: Float[Tensor, "*B F"]


def silu_gate_forward(
    gate_BTF: Float[Tensor, "*B F"], up_BTF: Float[Tensor, "*B F"]
) -> tuple[Float[Tensor, "*B F"], SiluGateSaved]:
    """Let one half of the hidden layer gate the other:  y = silu(gate) * up.

    silu(g) = g * sigmoid(g), also called swish.
    """
    return F.silu(gate_BTF).mul_(up_BTF), SiluGateSaved(gate_BTF, up_BTF)


def silu_gate_backward(
    dy_BTF: Float[Tensor, "*B F"], saved: SiluGateSaved
) -> tuple[Float[Tensor, "*B F"], Float[Tensor, "*B F"]]:
    """Gradients of `silu_gate_forward`.

    dup = dy * silu(gate);  dgate = dy * up * silu'(gate);
    with silu'(g) = s (1 + g (1 - s)) and s = sigmoid(g).
    """
    gate_BTF, up_BTF = saved
    sigmoid_BTF = torch.sigmoid(gate_BTF)
    silu_BTF = gate_BTF * sigmoid_BTF
    dup_BTF = dy_BTF * silu_BTF
    # silu'(g) = s (1 + g (1 - s)) = s (1 + g - silu), built in place: memory traffic is the cost.
    slope_BTF = silu_BTF.neg_().add_(gate_BTF).add_(1.0).mul_(sigmoid_BTF)
    return slope_BTF.mul_(dy_BTF).mul_(up_BTF), dup_BTF


silu_gate = differentiable(silu_gate_forward, silu_gate_backward)


def dropout(
    x_BTD: Float[Tensor, "*B D"], kept_BTD: Bool[Tensor, "*B D"], rate: float
) -> Float[Tensor, "*B D"]:
    """Set numbers to 0 and scale the others up:  y = x / (1 - rate) where kept, and 0 elsewhere.

    Each number is kept with the probability 1 - rate, so that the mean of y over all draws is x:
    nothing has to be scaled when the model is used.  The backward pass is the same function:
    dx = dropout(dy, kept, rate).

    Args:
        x_BTD: activations.
        kept_BTD: drawn anew in every forward pass.
        rate: share of the numbers that is set to 0, from 0 to below 1.

    Raises:
        ValueError: if `rate` is outside its range.

    Source:
        Srivastava et al. 2014, section 4, https://jmlr.org/papers/v15/srivastava14a.html
    """
    require("rate", rate, least=0, below=1)
    return x_BTD * kept_BTD / (1 - rate)


def swiglu(
    x_BTD: Float[Tensor, "*B D"],
    w_gate_FD: Float[Tensor, "F D"],
    w_up_FD: Float[Tensor, "F D"],
    w_down_DF: Float[Tensor, "D F"],
) -> Float[Tensor, "*B D"]:
    """The feed-forward network of a Llama:  y = W_down (silu(W_gate x) * W_up x).

    Source:
        Shazeer 2020, equation 6, https://arxiv.org/abs/2002.05202
    """
    return linear(silu_gate(linear(x_BTD, w_gate_FD), linear(x_BTD, w_up_FD)), w_down_DF)
