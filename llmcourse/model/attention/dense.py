"""Attention with grouped keys and values, in two forms that the tests hold equal.

`attention` is written out, to be read; `attention_sdpa` is torch's fused kernel, to be trained
with.

Shape suffixes:  B batch, T time of the queries, S time of the keys (S >= T with a cache),
H query heads, G key/value heads (G divides H), K head size.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from llmcourse.base.pairs import outside_autocast, upcast
from llmcourse.model.attention.masks import mask_or_causal


def require_heads(
    q_BTHK: Shaped[Tensor, "..."],
    k_BSGK: Shaped[Tensor, "..."],
    v_BSGK: Shaped[Tensor, "..."],
    mask: Shaped[Tensor, "..."] | None,
) -> None:
    """Refuse what one form of attention would reject and another one read as something else.

    Raises:
        ValueError: if an input has no axis for heads, keys and values have two shapes, batches or
            head sizes differ, or the mask is not of booleans, has an axis for heads, or is for
            another batch.
    """
    q, k, v = (tuple(x.shape) for x in (q_BTHK, k_BSGK, v_BSGK))
    if not (len(q) == len(k) == 4 and k == v and (q[0], q[3]) == (k[0], k[3])):
        raise ValueError(
            "attention takes queries (batch, time, heads, head size), and keys and values of one "
            f"shape (batch, key time, key/value heads, head size); got {q}, {k} and {v}"
        )
    if q[2] % k[2]:
        raise ValueError(f"{k[2]} key/value heads do not divide {q[2]} heads")
    if mask is None:
        return
    if (
        mask.dtype != torch.bool
        or mask.ndim not in {2, 3}
        or mask.shape[:-2] not in {(), (1,), q[:1]}
    ):
        raise ValueError(
            f"a mask is of booleans, True where a query may look, for all of the {q[0]} rows "
            "(queries, keys) or for each (batch, queries, keys), the same for all heads; got "
            f"{mask.dtype} of the shape {tuple(mask.shape)}"
        )


def repeat_kv(x_BSGK: Float[Tensor, "*B S G K"], num_heads: int) -> Float[Tensor, "*B S H K"]:
    """Hand every query head the keys, or the values, of its group: head h reads h // (H / G).

    Raises:
        ValueError: if the key/value heads do not divide the query heads.
    """
    num_kv_heads = x_BSGK.shape[-2]
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_kv_heads} key/value heads do not divide {num_heads} heads")
    return x_BSGK.repeat_interleave(num_heads // num_kv_heads, dim=-2)


def attention_weights(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> Float[Tensor, "B H T S"]:
    """Return how much every query reads from every key: softmax(q k^T / sqrt(K)) where allowed.

    The weights of a query sum to 1; those of a query that may see no key are 0.  For bf16 and fp16
    they are float32: a score of 20 in bf16 is off by up to 0.06, and its weight by 6 %.

    Args:
        q_BTHK: queries, the last T of S positions.
        k_BSGK: keys.
        mask: True where a query may look, for all rows (T, S) or for each (B, T, S); None is
            causal.

    Raises:
        ValueError: if the shapes of queries, keys and mask do not fit, see `require_heads`.
    """
    require_heads(q_BTHK, k_BSGK, k_BSGK, mask)
    q_wide, k_wide = upcast(q_BTHK), upcast(repeat_kv(k_BSGK, q_BTHK.shape[2]))
    with outside_autocast(q_wide):
        scores_BHTS = torch.einsum("bthk,bshk->bhts", q_wide, k_wide) / math.sqrt(q_wide.shape[-1])
    forbidden = ~_over_heads(mask, q_BTHK, k_BSGK)
    # A query that sees nothing is a row of -inf, of which softmax makes NaN: hence the second fill.
    weights_BHTS = scores_BHTS.masked_fill(forbidden, float("-inf")).softmax(dim=-1)
    return weights_BHTS.masked_fill(forbidden, 0.0)


def attention(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> Float[Tensor, "B T H K"]:
    """Attention, every step written out:  out = softmax(q k^T / sqrt(K)) v, for each head.

    Args:
        q_BTHK: queries, the last T of S positions.
        k_BSGK: keys.
        v_BSGK: values.
        mask: see `attention_weights`.

    Raises:
        ValueError: if the shapes do not fit, see `require_heads`.

    Source:
        Vaswani et al. 2017, equation 1, https://arxiv.org/abs/1706.03762;
        Ainslie et al. 2023 for the groups, https://arxiv.org/abs/2305.13245
    """
    require_heads(q_BTHK, k_BSGK, v_BSGK, mask)
    weights_BHTS = attention_weights(q_BTHK, k_BSGK, mask=mask)
    return weighted_values(weights_BHTS, v_BSGK)


def weighted_values(
    weights_BHTS: Float[Tensor, "B H T S"], v_BSGK: Float[Tensor, "B S G K"]
) -> Float[Tensor, "B T H K"]:
    """Return the sum over s of weight times value for every head, in the values' dtype."""
    v_wide = upcast(repeat_kv(v_BSGK, weights_BHTS.shape[1]))
    with outside_autocast(v_wide):
        out_BTHK = torch.einsum("bhts,bshk->bthk", weights_BHTS, v_wide)
    return out_BTHK.to(v_BSGK.dtype)


def attention_sdpa(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> Float[Tensor, "B T H K"]:
    """The same attention through torch's fused kernel, which never stores the T x S weights."""
    require_heads(q_BTHK, k_BSGK, v_BSGK, mask)
    num_queries, num_keys = q_BTHK.shape[1], k_BSGK.shape[1]
    # torch's own causal flag aligns the first query with the first key, which is right without a
    # cache only; one query alone may see every key.
    causal = mask is None and num_queries == num_keys
    needs_mask = mask is not None or (not causal and num_queries > 1)
    out_BHTK = F.scaled_dot_product_attention(
        q_BTHK.transpose(1, 2),
        k_BSGK.transpose(1, 2),
        v_BSGK.transpose(1, 2),
        attn_mask=_over_heads(mask, q_BTHK, k_BSGK) if needs_mask else None,
        is_causal=causal,
        enable_gqa=q_BTHK.shape[2] != k_BSGK.shape[2],
    )
    return out_BHTK.transpose(1, 2)


def _over_heads(
    mask: Bool[Tensor, "*masked T S"] | None,
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
) -> Bool[Tensor, "*masked_1 T S"]:
    """Return the mask, causal where None, with an axis that spreads it over the heads."""
    mask = mask_or_causal(mask, q_BTHK.shape[1], k_BSGK.shape[1])
    return mask.to(q_BTHK.device).unsqueeze(-3)
