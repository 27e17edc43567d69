"""Attention tile by tile in both directions: FlashAttention-2's algorithm as plain tensor code.

Forward keeps one number per query and head, the log-sum-exp of its scores.  Backward computes every
tile of weights anew from it, so that the T x S weights exist in neither pass.

Shape suffixes:  B batch, T time of the queries, S time of the keys, H query heads, G key/value
heads, K head size; lower case t and s are one tile of T and of S.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.base.pairs import refuse_second_derivatives, upcast
from llmcourse.model.attention.backward import sum_over_group
from llmcourse.model.attention.dense import repeat_kv
from llmcourse.model.attention.tiled import (
    exp_in_place,
    heads_first,
    scores_of_tile,
    tiled_with_logsumexp,
    tiles_of,
)


class FlashSaved(NamedTuple):
    """What `flash_backward` needs: inputs, output, and one log-sum-exp per query and head."""

    q_BTHK: Float[Tensor, "B T H K"]
    k_BSGK: Float[Tensor, "B S G K"]
    v_BSGK: Float[Tensor, "B S G K"]
    out_BTHK: Float[Tensor, "B T H K"]
    logsumexp_NT: Float[Tensor, "N T"]
    """Of batch x heads rows, float32 at least; 0 for a query that sees nothing."""


def flash_forward(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    mask: Bool[Tensor, "*masked T S"] | None = None,
    tile: int = 64,
) -> tuple[Float[Tensor, "B T H K"], FlashSaved]:
    """Return `attention_tiled` of the same arguments, and what its backward pass needs.

    Source:
        Dao 2023 (FlashAttention-2), algorithm 1, https://arxiv.org/abs/2307.08691
    """
    out_BTHK, logsumexp_BHT = tiled_with_logsumexp(q_BTHK, k_BSGK, v_BSGK, mask=mask, tile=tile)
    saved = FlashSaved(q_BTHK, k_BSGK, v_BSGK, out_BTHK, logsumexp_BHT.flatten(0, 1))
    return out_BTHK, saved


def flash_backward(
    dout_BTHK: Float[Tensor, "B T H K"],
    saved: FlashSaved,
    mask: Bool[Tensor, "*masked T S"] | None = None,
    tile: int = 64,
) -> tuple[Float[Tensor, "B T H K"], Float[Tensor, "B S G K"], Float[Tensor, "B S G K"]]:
    """Gradients of `flash_forward` for queries, keys and values, tile by tile.

    With n = 1 / sqrt(K) and L the log-sum-exp, a tile of weights is P = exp(n Q K^T - L), and

        dV += P^T dO,  dS = P * (dO V^T - delta),  dQ += n dS K,  dK += n dS^T Q

    where delta = sum over channels of dO * O is the sum over all keys of dP * P: it is known before
    the first tile, since O = P V.

    Args:
        dout_BTHK: gradient of the loss for the output.
        saved: from `flash_forward`.
        mask: the mask of the forward pass.
        tile: queries, and keys, of one tile.

    Source:
        Dao 2023 (FlashAttention-2), algorithm 2, https://arxiv.org/abs/2307.08691
    """
    dtype = saved.q_BTHK.dtype  # all sums are float32 at least
    dout_BTHK, q_BTHK, k_BSGK, v_BSGK, out_BTHK = map(upcast, (dout_BTHK, *saved[:4]))
    num_heads, num_kv_heads, scale = q_BTHK.shape[2], k_BSGK.shape[2], q_BTHK.shape[-1] ** -0.5
    q_BHTK, dout_BHTK = heads_first(q_BTHK * scale), heads_first(dout_BTHK)
    k_BHSK, v_BHSK = (heads_first(repeat_kv(x, num_heads)) for x in (k_BSGK, v_BSGK))
    delta_BHT1 = (dout_BTHK * out_BTHK).sum(-1).transpose(1, 2).unsqueeze(-1)
    logsumexp_BHT1 = saved.logsumexp_NT.view(delta_BHT1.shape)
    dq_BHTK, dk_BHSK, dv_BHSK = map(torch.zeros_like, (q_BHTK, k_BHSK, v_BHSK))
    for queries in tiles_of(q_BHTK.shape[2], tile):
        q_BHtK, dout_BHtK = q_BHTK[:, :, queries], dout_BHTK[:, :, queries]
        for keys in tiles_of(k_BHSK.shape[2], tile):
            scores_BHts = scores_of_tile(q_BHTK, k_BHSK, mask, queries, keys)
            if scores_BHts is None:
                continue
            # In place from here on: each pass over a tile of scores costs as much as a product.
            weights_BHts = exp_in_place(scores_BHts.sub_(logsumexp_BHT1[:, :, queries]))
            dscores_BHts = dout_BHtK @ v_BHSK[:, :, keys].mT
            dscores_BHts.sub_(delta_BHT1[:, :, queries]).mul_(weights_BHts)
            dv_BHSK[:, :, keys] += weights_BHts.mT @ dout_BHtK
            dk_BHSK[:, :, keys] += dscores_BHts.mT @ q_BHtK
            dq_BHTK[:, :, queries] += dscores_BHts @ k_BHSK[:, :, keys]
    dk_BSGK, dv_BSGK = (
        sum_over_group(dx_BHSK.transpose(1, 2), num_kv_heads) for dx_BHSK in (dk_BHSK, dv_BHSK)
    )
    return dq_BHTK.mul_(scale).transpose(1, 2).to(dtype), dk_BSGK.to(dtype), dv_BSGK.to(dtype)


class FlashAttention(torch.autograd.Function):
    """`flash_forward` and `flash_backward` as one node of autograd's graph.

    Call `FlashAttention.apply(q, k, v, mask, tile)`; mask None is causal.  Besides inputs and
    output it keeps a single tensor, the log-sum-exp, (batch x heads, T).
    """

    @staticmethod
    def forward(ctx, q_BTHK, k_BSGK, v_BSGK, mask=None, tile=64):  # noqa: PLR0917 - autograd passes by place
        """Run `flash_forward`; keep what it saved."""
        out_BTHK, saved = flash_forward(q_BTHK, k_BSGK, v_BSGK, mask, tile)
        ctx.save_for_backward(*saved)
        ctx.mask, ctx.tile = mask, tile
        return out_BTHK

    @staticmethod
    def backward(ctx, dout_BTHK):
        """Run `flash_backward`."""
        refuse_second_derivatives()
        saved = FlashSaved(*ctx.saved_tensors)
        return (*flash_backward(dout_BTHK, saved, ctx.mask, ctx.tile), None, None)


def attention_flash(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
    tile: int = 64,
) -> Float[Tensor, "B T H K"]:
    """Attention by `FlashAttention`, with the arguments of the other forms.

    `Transformer.attend_with(attention_flash)` trains a model with it.
    """
    return FlashAttention.apply(q_BTHK, k_BSGK, v_BSGK, mask, tile)
