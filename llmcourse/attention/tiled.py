"""Attention tile by tile: the softmax is built up on the way, and no T x S matrix is ever held.

Shape suffixes:  B batch, T time of the queries, S time of the keys, H query heads, G key/value
heads, K head size; lower case t and s are one tile of T and of S.

Taught in: chapters/11_attention.ipynb
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.attention.dense import repeat_kv
from llmcourse.attention.masks import mask_or_causal


class OnlineSoftmax(NamedTuple):
    """What is known of a softmax-weighted mean after some of its scores."""

    max_BHt: Float[Tensor, "B H t"]
    """Largest score so far."""
    sum_BHt: Float[Tensor, "B H t"]
    """Sum of exp(score - max) so far."""
    out_BHtK: Float[Tensor, "B H t K"]
    """Sum of exp(score - max) value so far: the mean, but for the division."""


def online_softmax_start(q_BHtK: Float[Tensor, "B H t K"]) -> OnlineSoftmax:
    """Return the state before the first score: nothing seen."""
    nothing_BHt = q_BHtK.new_zeros(q_BHtK.shape[:-1])
    return OnlineSoftmax(nothing_BHt - float("inf"), nothing_BHt, torch.zeros_like(q_BHtK))


def online_softmax_add(
    state: OnlineSoftmax,
    scores_BHts: Float[Tensor, "B H t s"],
    v_BHsK: Float[Tensor, "B H s K"],
) -> OnlineSoftmax:
    """Take one more tile of scores and values into account.

    With m' = max(m, scores):  sum' = sum exp(m - m') + sum over s of exp(score - m'), and the same
    for out.  What was gathered below the old maximum is rescaled once; scores of -inf add nothing.

    Source:
        Milakov and Gimelshein 2018, algorithm 3, https://arxiv.org/abs/1805.02867
    """
    max_BHt = torch.maximum(state.max_BHt, scores_BHts.amax(-1))
    # While only -inf was seen, -inf - -inf would be NaN; any finite number in its place gives 0.
    shift_BHt = max_BHt.where(max_BHt > float("-inf"), 0.0)
    rescale_BHt = (state.max_BHt - shift_BHt).exp()
    exp_BHts = (scores_BHts - shift_BHt.unsqueeze(-1)).exp()
    return OnlineSoftmax(
        max_BHt,
        state.sum_BHt * rescale_BHt + exp_BHts.sum(-1),
        state.out_BHtK * rescale_BHt.unsqueeze(-1) + exp_BHts @ v_BHsK,
    )


def attention_tiled(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
    tile: int = 64,
) -> Float[Tensor, "B T H K"]:
    """Return the same as `attention`, holding at most tile x tile scores per head at a time.

    Tiles in which no query may see a key are never computed: under the causal mask about half.

    Args:
        q_BTHK: queries, the last T of S positions.
        k_BSGK: keys.
        v_BSGK: values.
        mask: True where a query may look, (T, S) or (B, T, S); None is causal.
        tile: queries, and keys, of one tile; 1 or more.

    Raises:
        ValueError: if the tile is below 1, or the key/value heads do not divide the query heads.

    Source:
        Dao 2023 (FlashAttention-2), algorithm 1, https://arxiv.org/abs/2307.08691
    """
    if tile < 1:
        raise ValueError(f"tile must be 1 or greater, got {tile}")
    num_queries, num_heads = q_BTHK.shape[1:3]
    mask = mask_or_causal(mask, num_queries, k_BSGK.shape[1])
    mask_BTS = mask.to(q_BTHK.device).expand(len(q_BTHK), -1, -1)
    k_BHSK = repeat_kv(k_BSGK, num_heads).transpose(1, 2)
    v_BHSK = repeat_kv(v_BSGK, num_heads).transpose(1, 2)
    tiles = [
        _one_tile_of_queries(q_BHtK, k_BHSK, v_BHSK, mask_BtS, tile)
        for q_BHtK, mask_BtS in zip(
            q_BTHK.transpose(1, 2).split(tile, dim=2), mask_BTS.split(tile, dim=1), strict=True
        )
    ]
    return torch.cat(tiles, dim=2).transpose(1, 2)


def _one_tile_of_queries(
    q_BHtK: Float[Tensor, "B H t K"],
    k_BHSK: Float[Tensor, "B H S K"],
    v_BHSK: Float[Tensor, "B H S K"],
    mask_BtS: Bool[Tensor, "B t S"],
    tile: int,
) -> Float[Tensor, "B H t K"]:
    """Walk over the keys in tiles; divide once, at the end."""
    state = online_softmax_start(q_BHtK)
    for first in range(0, k_BHSK.shape[2], tile):
        keys = slice(first, first + tile)
        mask_B1ts = mask_BtS[:, None, :, keys]
        if mask_B1ts.any():
            scores_BHts = q_BHtK @ k_BHSK[:, :, keys].mT / math.sqrt(q_BHtK.shape[-1])
            scores_BHts = scores_BHts.masked_fill(~mask_B1ts, float("-inf"))
            state = online_softmax_add(state, scores_BHts, v_BHSK[:, :, keys])
    sum_BHt1 = state.sum_BHt.unsqueeze(-1)
    return state.out_BHtK / sum_BHt1.where(sum_BHt1 > 0, 1.0)  # nothing seen: 0, not 0 / 0
