"""Causal attention with grouped keys and values, and the rotary positions it works on.

Two forms of the same attention stand side by side: `attention` written out, to be read, and
`attention_sdpa`, torch's fused kernel, to be trained with.  The tests hold them equal.

Shape suffixes:  B batch, T time of the queries, S time of the keys (S >= T with a cache),
H query heads, G key/value heads (G divides H), K head size, J pairs of channels (K / 2).

Taught in: chapters/11_attention.ipynb, chapters/13_norm_rope_silu.ipynb
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor


def rope_rotations(
    head_size: int, num_positions: int, *, theta: float = 10_000.0
) -> Complex[Tensor, "T J"]:
    """Return the rotation of every position and channel pair, as unit complex numbers.

    rotation[t, j] = exp(i t w_j),  w_j = theta^(-2j / head_size).

    Args:
        head_size: channels per head, even.
        num_positions: number of positions, from 0.
        theta: the base; larger turns the slow pairs slower.  10,000 in the paper, 500,000 in
            Llama 3.

    Raises:
        ValueError: if the head size is not even and positive, or theta not positive.

    Source:
        Su et al. 2021, equation 15, https://arxiv.org/abs/2104.09864
    """
    if head_size <= 0 or head_size % 2:
        raise ValueError(f"head_size must be even and positive for RoPE, got {head_size}")
    if theta <= 0:
        raise ValueError(f"theta must be positive, got {theta}")
    # float64: in float32 the angle of position 100,000 is already wrong in the third digit.
    exponents_J = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
    angles_TJ = torch.outer(
        torch.arange(num_positions, dtype=torch.float64), theta ** (-exponents_J)
    )
    return torch.polar(torch.ones_like(angles_TJ), angles_TJ).to(torch.complex64)


def rope_adjacent(
    x_BTHK: Float[Tensor, "*B T H K"], rotations_TJ: Complex[Tensor, "T J"]
) -> Float[Tensor, "*B T H K"]:
    """Rotate the channel pairs (0, 1), (2, 3), ... of every head: the layout of the paper.

    A pair is read as one complex number, so the rotation is one complex product.  This is the
    layout of our model and of Meta's own Llama code.
    """
    x_BTHJ = torch.view_as_complex(x_BTHK.unflatten(-1, (-1, 2)))
    return torch.view_as_real(x_BTHJ * rotations_TJ.unsqueeze(-2)).flatten(-2)


def rope_halves(
    x_BTHK: Float[Tensor, "*B T H K"], rotations_TJ: Complex[Tensor, "T J"]
) -> Float[Tensor, "*B T H K"]:
    """Rotate the pairs (0, K/2), (1, K/2 + 1), ...: the layout of Hugging Face's Llama."""
    first_BTHJ, second_BTHJ = x_BTHK.chunk(2, dim=-1)
    cos_T1J, sin_T1J = rotations_TJ.real.unsqueeze(-2), rotations_TJ.imag.unsqueeze(-2)
    return torch.cat(
        (
            first_BTHJ * cos_T1J - second_BTHJ * sin_T1J,
            second_BTHJ * cos_T1J + first_BTHJ * sin_T1J,
        ),
        dim=-1,
    )


def halves_from_adjacent(head_size: int) -> Int[Tensor, " K"]:
    """Return the permutation p between the two layouts:  x_halves = x_adjacent[..., p].

    Then  rope_halves(x[..., p]) = rope_adjacent(x)[..., p].  The same p, applied to the rows of the
    query and key weights, turns a checkpoint of one layout into one of the other.
    """
    channels_K = torch.arange(head_size)
    return torch.cat((channels_K[0::2], channels_K[1::2]))


def causal_mask(num_queries: int, num_keys: int) -> Bool[Tensor, "T S"]:
    """Return which keys a query may see: True where key position <= query position.

    The queries are the last `num_queries` of `num_keys` positions, as they are when the earlier
    keys come from a cache.

    Raises:
        ValueError: if there are more queries than keys.
    """
    if num_queries > num_keys:
        raise ValueError(f"{num_queries} queries cannot be the last of {num_keys} keys")
    allowed_TS = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return allowed_TS.tril(diagonal=num_keys - num_queries)


def attention(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
) -> Float[Tensor, "B T H K"]:
    """Causal attention, every step written out.

    out = softmax(q k^T / sqrt(K) + mask) v, for each head; query head h reads key/value head
    h // (H / G).

    Raises:
        ValueError: if the key/value heads do not divide the query heads.

    Source:
        Vaswani et al. 2017, equation 1, https://arxiv.org/abs/1706.03762;
        Ainslie et al. 2023 for the groups, https://arxiv.org/abs/2305.13245
    """
    num_heads, num_kv_heads = q_BTHK.shape[2], k_BSGK.shape[2]
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_kv_heads} key/value heads do not divide {num_heads} heads")
    k_BSHK = k_BSGK.repeat_interleave(num_heads // num_kv_heads, dim=2)
    v_BSHK = v_BSGK.repeat_interleave(num_heads // num_kv_heads, dim=2)
    scores_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / math.sqrt(q_BTHK.shape[-1])
    allowed_TS = causal_mask(q_BTHK.shape[1], k_BSGK.shape[1]).to(q_BTHK.device)
    weights_BHTS = scores_BHTS.masked_fill(~allowed_TS, float("-inf")).softmax(dim=-1)
    return torch.einsum("bhts,bshk->bthk", weights_BHTS, v_BSHK)


def attention_sdpa(
    q_BTHK: Float[Tensor, "B T H K"],
    k_BSGK: Float[Tensor, "B S G K"],
    v_BSGK: Float[Tensor, "B S G K"],
) -> Float[Tensor, "B T H K"]:
    """The same attention through torch's fused kernel, which never stores the T x S weights."""
    num_queries, num_keys = q_BTHK.shape[1], k_BSGK.shape[1]
    grouped = q_BTHK.shape[2] != k_BSGK.shape[2]
    # torch's own causal flag aligns the first query with the first key, which is right without a
    # cache only; one query alone may see every key.
    square = num_queries == num_keys
    mask_TS = None if square or num_queries == 1 else causal_mask(num_queries, num_keys)
    out_BHTK = F.scaled_dot_product_attention(
        q_BTHK.transpose(1, 2),
        k_BSGK.transpose(1, 2),
        v_BSGK.transpose(1, 2),
        attn_mask=None if mask_TS is None else mask_TS.to(q_BTHK.device),
        is_causal=square,
        enable_gqa=grouped,
    )
    return out_BHTK.transpose(1, 2)
