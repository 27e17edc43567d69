"""Attention tile by tile: the softmax is built up on the way, and no T x S matrix is ever held.

Shape suffixes:  B batch, T time of the queries, S time of the keys, H query heads, G key/value
heads, K head size; lower case t and s are one tile of T and of S.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.base.pairs import outside_autocast, upcast
from llmcourse.model.attention.dense import repeat_kv, require_heads
from llmcourse.model.attention.masks import mask_or_causal

_LOG2_E = math.log2(math.e)
"""Turns powers of e into powers of 2."""


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
    exp_BHts = exp_in_place(scores_BHts - shift_BHt.unsqueeze(-1))
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

    Tiles in which no query may see a key are never computed: under the causal mask about half.  A
    tile has `tile` queries and keys, 1 or more; the other arguments are those of `attention`.

    Raises:
        ValueError: if the tile is below 1, the shapes do not fit, see `require_heads`, or there are
            more queries than keys and no mask.

    Source:
        Dao 2023 (FlashAttention-2), algorithm 1, https://arxiv.org/abs/2307.08691
    """
    return tiled_with_logsumexp(q_BTHK, k_BSGK, v_BSGK, mask=mask, tile=tile)[0]


def tiled_with_logsumexp(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
    tile: int = 64,
) -> tuple[Float[Tensor, "B T H K"], Float[Tensor, "B H T"]]:
    """Return what `attention_tiled` does, and log(sum exp(score)) of every query and head.

    The log-sum-exp of a query that sees nothing is given as 0.  Of bf16 and fp16 all sums are made
    in float32, and the log-sum-exp is returned so.
    """
    if tile < 1:
        raise ValueError(f"tile must be 1 or greater, got {tile}")
    require_heads(q_BTHK, k_BSGK, v_BSGK, mask)
    if mask is not None:
        mask = mask_or_causal(mask, q_BTHK.shape[1], k_BSGK.shape[1])
    elif q_BTHK.shape[1] > k_BSGK.shape[1]:
        raise ValueError(f"{q_BTHK.shape[1]} queries cannot be the last of {k_BSGK.shape[1]} keys")
    q_BHTK = heads_first(upcast(q_BTHK) / math.sqrt(q_BTHK.shape[-1]))
    k_BHSK = heads_first(upcast(repeat_kv(k_BSGK, q_BTHK.shape[2])))
    v_BHSK = heads_first(upcast(repeat_kv(v_BSGK, q_BTHK.shape[2])))
    outs, logsumexps = [], []
    for queries in tiles_of(q_BHTK.shape[2], tile):
        state = online_softmax_start(q_BHTK[:, :, queries])
        with outside_autocast(q_BHTK):
            for keys in tiles_of(k_BHSK.shape[2], tile):
                scores_BHts = scores_of_tile(q_BHTK, k_BHSK, mask, queries, keys)
                if scores_BHts is not None:
                    state = online_softmax_add(state, scores_BHts, v_BHSK[:, :, keys])
        outs.append(_mean(state))
        logsumexps.append((state.max_BHt + state.sum_BHt.log()).where(state.sum_BHt > 0, 0.0))
    # Laid out token by token, so that joining the heads afterwards copies nothing.
    out_BTHK = torch.cat(outs, dim=2).to(q_BTHK.dtype).transpose(1, 2).contiguous()
    return out_BTHK, torch.cat(logsumexps, dim=2)


def exp_in_place(x_BHts: Float[Tensor, "B H t s"]) -> Float[Tensor, "B H t s"]:
    """Replace x by exp(x) = 2^(x log2 e).

    In base 2, as fused kernels do it too: on some CPUs torch's exp is several times slower at -inf
    than elsewhere, and exp2 is not.
    """
    return x_BHts.mul_(_LOG2_E).exp2_()


def heads_first(x_BTHK: Float[Tensor, "B T H K"]) -> Float[Tensor, "B H T K"]:
    """Lay heads out one after the other: copied once here, instead of in every product."""
    return x_BTHK.transpose(1, 2).contiguous()


def tiles_of(length: int, tile: int) -> list[slice]:
    """Cut 0 to length into stretches of `tile`, the last one shorter."""
    return [slice(first, min(first + tile, length)) for first in range(0, length, tile)]


def scores_of_tile(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BHSK: Float[Tensor, "B H S K"],
    mask: Bool[Tensor, "*masked T S"] | None,
    queries: slice,
    keys: slice,
) -> Float[Tensor, "B H t s"] | None:
    """Return one tile of q k^T, -inf where forbidden; None where nothing is allowed.

    The queries come divided by sqrt(K): there are fewer of them than of scores.
    """
    num_cached = k_BHSK.shape[2] - q_BHTK.shape[2]
    allowed_1ts = _tile_of_mask(mask, queries, keys, num_cached).to(q_BHTK.device)
    if not allowed_1ts.any():
        return None
    scores_BHts = q_BHTK[:, :, queries] @ k_BHSK[:, :, keys].mT
    if allowed_1ts.all():
        return scores_BHts
    bias_1ts = torch.zeros_like(allowed_1ts, dtype=scores_BHts.dtype)
    return scores_BHts.add_(bias_1ts.masked_fill_(~allowed_1ts, -math.inf))


def _tile_of_mask(
    mask: Bool[Tensor, "*masked T S"] | None, queries: slice, keys: slice, num_cached: int
) -> Bool[Tensor, "*masked 1 t s"]:
    """Return one tile of the mask, with an axis for the heads; causal where the mask is None."""
    if mask is not None:
        return mask[..., queries, keys].unsqueeze(-3)
    query_t = torch.arange(queries.start, queries.stop) + num_cached
    return (torch.arange(keys.start, keys.stop) <= query_t.unsqueeze(-1)).unsqueeze(0)


def _mean(state: OnlineSoftmax) -> Float[Tensor, "B H t K"]:
    """Divide once, at the end; a query that has seen nothing gives 0, not 0 / 0."""
    sum_BHt1 = state.sum_BHt.unsqueeze(-1)
    return state.out_BHtK / sum_BHt1.where(sum_BHt1 > 0, 1.0)
