"""Multi-head latent attention: of each token one short list is kept, for all heads.

    c = W_d x            R numbers, kept          k_h = U_h c,  v_h = W_h c        for every head
    r = rotated W_r x    P numbers, kept          score = (q_h . k_h + p_h . r) / sqrt(K + P)

Rotary positions cannot go into k_h: `latent_attention_absorbed` says why.  They have channels of
their own, P in each query and one rotated key for all heads.

Shape suffixes:  B batch, T time of the queries, S time of the keys, H heads, K channels of a head
that are not rotated, P channels that are, R rank, V channels of a head's values, X = R + P.

Source:
    DeepSeek-AI 2024 (DeepSeek-V2), section 2.1, https://arxiv.org/abs/2405.04434
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.base.pairs import outside_autocast, upcast
from llmcourse.model.attention.dense import attention_weights


class LatentCache(NamedTuple):
    """What is kept of every token: R + P numbers in each layer, however many heads there are."""

    c_BSR: Float[Tensor, "B S R"]
    """The latent list, of which every head makes its key and its value."""
    r_BSP: Float[Tensor, "B S P"]
    """The rotated key, one for all heads."""


def latent_attention(
    q_BTHK: Float[Tensor, "B T H K"],
    p_BTHP: Float[Tensor, "B T H P"],
    kept: LatentCache,
    u_HKR: Float[Tensor, "H K R"],
    w_HVR: Float[Tensor, "H V R"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> Float[Tensor, "B T H V"]:
    """Latent attention as it is trained: every head makes its keys and values out of c.

    out = softmax((q (U c)^T + p r^T) / sqrt(K + P)) W c, for each head

    Args:
        q_BTHK: the queries' part that is not rotated.
        p_BTHP: their rotated part.
        kept: of each token what a cache keeps.
        u_HKR: makes keys of c.
        w_HVR: makes values of c.
        mask: see `attention_weights`.

    Raises:
        ValueError: if the mask does not fit, see `require_heads`.
    """
    dtype = q_BTHK.dtype
    with outside_autocast(q_BTHK):
        q_BTHK, p_BTHP, c_BSR, r_BSP = map(upcast, (q_BTHK, p_BTHP, *kept))
        k_BSHK = torch.einsum("bsr,hkr->bshk", c_BSR, upcast(u_HKR))
        v_BSHV = torch.einsum("bsr,hvr->bshv", c_BSR, upcast(w_HVR))
        r_BSHP = r_BSP.unsqueeze(2).expand(-1, -1, len(u_HKR), -1)
        queries, keys = torch.cat((q_BTHK, p_BTHP), -1), torch.cat((k_BSHK, r_BSHP), -1)
        weights_BHTS = attention_weights(queries, keys, mask=mask)
        return torch.einsum("bhts,bshv->bthv", weights_BHTS, v_BSHV).to(dtype)


def latent_attention_absorbed(
    q_BTHK: Float[Tensor, "B T H K"],
    p_BTHP: Float[Tensor, "B T H P"],
    kept: LatentCache,
    u_HKR: Float[Tensor, "H K R"],
    w_HVR: Float[Tensor, "H V R"],
    *,
    mask: Bool[Tensor, "*masked T S"] | None = None,
) -> Float[Tensor, "B T H V"]:
    """The same, as it is decoded: no key and no value is ever made.

    q (U c) = (q U) c, and a sum of W c is W times the sum of c: the matrices move to the side of
    the query, and what is left is attention with one key/value head, which is what the cache holds.
    A rotation of U c by the token's position would stand between q and U, for every key another
    one, and nothing could be moved.

    Arguments and errors as in `latent_attention`.
    """
    dtype, (K, R), P = q_BTHK.dtype, u_HKR.shape[1:], p_BTHP.shape[-1]
    with outside_autocast(q_BTHK):
        q_BTHK, p_BTHP, c_BSR, r_BSP = map(upcast, (q_BTHK, p_BTHP, *kept))
        q_BTHR = torch.einsum("bthk,hkr->bthr", q_BTHK, upcast(u_HKR))
        # `attention_weights` divides by the root of the channels that it sees, R + P.
        queries = torch.cat((q_BTHR, p_BTHP), -1) * math.sqrt((R + P) / (K + P))
        keys_BS1X = torch.cat((c_BSR, r_BSP), -1).unsqueeze(2)
        weights_BHTS = attention_weights(queries, keys_BS1X, mask=mask)
        read_BTHR = torch.einsum("bhts,bsr->bthr", weights_BHTS, c_BSR)
        return torch.einsum("bthr,hvr->bthv", read_BTHR, upcast(w_HVR)).to(dtype)
