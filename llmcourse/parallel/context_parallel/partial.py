"""Attention to some of the keys, and how two such parts make one.

A part is known by what the queries read from its keys alone, and by the log-sum-exp of their
scores, which says how much the part weighs against others.

Shape suffixes:  B batch, t time of this rank's queries, s time of the keys of one part, H query
heads, G key/value heads, K head size.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.model.attention import flash_forward


class Partial(NamedTuple):
    """What queries read from some of the keys."""

    out_BtHK: Float[Tensor, "B t H K"]
    """Mean of the values, weighted by softmax over these keys alone; 0 for a query that sees none
    of them."""
    logsumexp_BHt: Float[Tensor, "B H t"]
    """log(sum exp(score)) over these keys; -inf for a query that sees none of them."""


def empty_partial(q_BtHK: Float[Tensor, "B t H K"]) -> Partial:
    """Return what queries have read before the first key."""
    logsumexp_BHt = q_BtHK.new_full(q_BtHK.shape[:-1], -math.inf).transpose(1, 2)
    return Partial(torch.zeros_like(q_BtHK), logsumexp_BHt)


def read_part(
    q_BtHK: Float[Tensor, "B t H K"],
    k_BsGK: Float[Tensor, "B s G K"],
    v_BsGK: Float[Tensor, "B s G K"],
    allowed_ts: Bool[Tensor, "*masked t s"],
    *,
    tile: int = 64,
) -> Partial:
    """Attend to some of the keys, by `flash_forward`.

    Args:
        q_BtHK: queries.
        k_BsGK: some keys.
        v_BsGK: their values.
        allowed_ts: True where a query may look, with a batch axis or without.
        tile: queries, and keys, of one tile.
    """
    out_BtHK, saved = flash_forward(q_BtHK, k_BsGK, v_BsGK, allowed_ts, tile)
    batch, length, num_heads, _ = q_BtHK.shape
    logsumexp_BHt = saved.logsumexp_NT.view(batch, num_heads, length)
    sees_1t = allowed_ts.any(-1).unsqueeze(-2)
    return Partial(out_BtHK, logsumexp_BHt.where(sees_1t, -math.inf))


def merge(one: Partial, other: Partial) -> Partial:
    """Return what the queries read from the keys of both parts, which have no key in common.

    With m = max(L1, L2) and weights w = exp(L1 - m), exp(L2 - m):

        out = (w1 out1 + w2 out2) / (w1 + w2),   L = m + log(w1 + w2)

    The weights are divided by their own sum, not by exp(L - m): so they sum to 1 however large the
    scores are, and however coarsely L is rounded.

    Source:
        Milakov and Gimelshein 2018, section 3.1, https://arxiv.org/abs/1805.02867
    """
    max_BHt = torch.maximum(one.logsumexp_BHt, other.logsumexp_BHt)
    # While nothing was seen, -inf - -inf would be NaN; any finite number in its place gives 0.
    shift_BHt = max_BHt.where(max_BHt > -math.inf, 0.0)
    weights = [(part.logsumexp_BHt - shift_BHt).exp() for part in (one, other)]
    sum_BHt = weights[0] + weights[1]
    # One of the weights is 1, so only the sum over nothing is below 1: 0, in place of 0 / 0.
    shares = [(weight / sum_BHt.clamp(min=1.0)).transpose(1, 2) for weight in weights]
    first_BtH1, second_BtH1 = (share.unsqueeze(-1) for share in shares)
    out_BtHK = first_BtH1 * one.out_BtHK + second_BtH1 * other.out_BtHK
    return Partial(out_BtHK, shift_BHt + sum_BHt.log())
