"""The backward pass of attention, from the weights that the forward pass kept.

Shape suffixes:  B batch, T time of the queries, S time of the keys, H query heads, G key/value
heads, K head size.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.base.pairs import upcast
from llmcourse.model.attention.dense import (
    attention_weights,
    repeat_kv,
    require_heads,
    weighted_values,
)


class AttentionSaved(NamedTuple):
    """What `attention_backward` needs: the inputs, and T x S weights for every head."""

    q_BTHK: Float[Tensor, "B T H K"]
    k_BSGK: Float[Tensor, "B S G K"]
    v_BSGK: Float[Tensor, "B S G K"]
    weights_BHTS: Float[Tensor, "B H T S"]


def attention_forward(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> tuple[Float[Tensor, "B T H K"], AttentionSaved]:
    """Return `attention` of the same arguments, and what its backward pass needs."""
    require_heads(q_BTHK, k_BSGK, v_BSGK, mask)
    weights_BHTS = attention_weights(q_BTHK, k_BSGK, mask=mask)
    out_BTHK = weighted_values(weights_BHTS, v_BSGK)
    return out_BTHK, AttentionSaved(q_BTHK, k_BSGK, v_BSGK, weights_BHTS)


def attention_backward(
    dout_BTHK: Float[Tensor, "B T H K"], saved: AttentionSaved
) -> tuple[Float[Tensor, "B T H K"], Float[Tensor, "B S G K"], Float[Tensor, "B S G K"]]:
    """Gradients of `attention_forward` for queries, keys and values.

    With P the weights and n = 1 / sqrt(K), for each head:

        dV = P^T dO,  dP = dO V^T,  dS = P * (dP - sum over s of dP * P)
        dQ = n dS K,  dK = n dS^T Q

    A key or value head was read by H / G query heads, so its gradient is the sum of theirs.  The
    mask needs no second look: where it forbids, P is 0, and so is dS.
    """
    dtype = saved.q_BTHK.dtype
    dout_BTHK, q_BTHK, k_BSGK, v_BSGK, weights_BHTS = map(upcast, (dout_BTHK, *saved))
    num_heads, num_kv_heads, scale = q_BTHK.shape[2], k_BSGK.shape[2], q_BTHK.shape[-1] ** -0.5
    dv_BSHK = torch.einsum("bhts,bthk->bshk", weights_BHTS, dout_BTHK)
    dweights_BHTS = torch.einsum("bthk,bshk->bhts", dout_BTHK, repeat_kv(v_BSGK, num_heads))
    mean_BHT1 = (dweights_BHTS * weights_BHTS).sum(-1, keepdim=True)
    dscores_BHTS = (dweights_BHTS - mean_BHT1) * weights_BHTS * scale
    dq_BTHK = torch.einsum("bhts,bshk->bthk", dscores_BHTS, repeat_kv(k_BSGK, num_heads))
    dk_BSHK = torch.einsum("bhts,bthk->bshk", dscores_BHTS, q_BTHK)
    dk_BSGK, dv_BSGK = (sum_over_group(dx, num_kv_heads) for dx in (dk_BSHK, dv_BSHK))
    return dq_BTHK.to(dtype), dk_BSGK.to(dtype), dv_BSGK.to(dtype)


def sum_over_group(
    dx_BSHK: Float[Tensor, "*B S H K"], num_kv_heads: int
) -> Float[Tensor, "*B S G K"]:
    """Backward of `repeat_kv`: add up the gradients of the query heads that share a head."""
    return dx_BSHK.unflatten(-2, (num_kv_heads, -1)).sum(-2)
