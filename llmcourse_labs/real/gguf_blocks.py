"""The kinds of numbers in a GGUF file: most are blocks of weights that share a scale.

A block is a few bytes that stand for 32 or 256 neighbours of one row: a scale d as float16, in some
kinds a minimum m, and a small whole number q for each weight::

    Q8_0:  w = d q,           q of 8 bits, -128 .. 127
    Q4_0:  w = d (q - 8),     q of 4 bits, 0 .. 15
    Q4_1:  w = d q + m
    Q4_K:  w = (d s) q - (dmin m),     s and m of 6 bits for each 32 of 256 weights
    Q6_K:  w = (d s) (q - 32),         s of 8 bits for each 16 of 256 weights, q of 6 bits

Every product and sum is rounded to float32 in this order, so that all readers get the same bits.

Shape suffixes:  N blocks, B bytes of a block, W weights of a block, S weights that share a scale.

Source: the layouts of ggml, https://github.com/ggml-org/ggml, src/ggml-common.h (block_q4_0, ...).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float16, UInt8
from torch import Tensor


class Kind(NamedTuple):
    """One kind of numbers, as a file names it and as long as it is there."""

    number: int
    """What stands in the file."""
    num_weights: int
    """In a block (W); rows are a multiple of it."""
    num_bytes: int
    """Of a block (B)."""


KINDS = {
    "F32": Kind(0, 1, 4),
    "F16": Kind(1, 1, 2),
    "BF16": Kind(30, 1, 2),
    "Q4_0": Kind(2, 32, 2 + 16),
    "Q4_1": Kind(3, 32, 2 + 2 + 16),
    "Q8_0": Kind(8, 32, 2 + 32),
    "Q4_K": Kind(12, 256, 2 + 2 + 12 + 128),
    "Q6_K": Kind(14, 256, 128 + 64 + 16 + 2),
}
"""By name: every kind that is read here."""

PIECE = 2**17
"""Weights that are dequantised at once: they stay in the cache."""


def dequantise(blocks_NB: UInt8[Tensor, "N B"], kind: str) -> Float[Tensor, "N W"]:
    """Return the weights of blocks, in float32.

    Args:
        blocks_NB: the bytes of each block.
        kind: one of `KINDS`.

    Raises:
        ValueError: if there is no such kind, or its blocks have another number of bytes.
    """
    if kind not in KINDS or blocks_NB.shape[1] != KINDS[kind].num_bytes:
        raise ValueError(
            f"kind must be one of {', '.join(KINDS)}, with blocks of its size, got {kind!r} and "
            f"blocks of {blocks_NB.shape[1]} bytes"
        )
    return _OF_KIND[kind](blocks_NB)


def dequantised(blocks_NB: UInt8[Tensor, "N B"], kind: str) -> Float[Tensor, "N W"]:
    """Return the weights of many blocks, made a piece at a time; else as `dequantise`."""
    weights_NW = torch.empty(len(blocks_NB), KINDS[kind].num_weights)
    step = PIECE // KINDS[kind].num_weights
    for given, wanted in zip(blocks_NB.split(step), weights_NW.split(step), strict=True):
        wanted.copy_(dequantise(given, kind))
    return weights_NW


def quantise_q8_0(weights_NW: Float[Tensor, "N 32"]) -> UInt8[Tensor, "N 34"]:
    """Return blocks of Q8_0:  d = max |w| / 127,  q = w / d, halves away from zero.

    Args:
        weights_NW: 32 neighbours of a row in each block, finite.
    """
    d_N1 = weights_NW.abs().amax(dim=1, keepdim=True) / 127
    # As ggml: multiplied by the inverse of d before d is rounded to float16.
    scaled_NW = weights_NW * torch.where(d_N1 == 0, 0, 1 / d_N1)
    size_NW = scaled_NW.abs()
    whole_NW = size_NW.floor()
    whole_NW += size_NW - whole_NW >= 0.5
    q_NW = (whole_NW * scaled_NW.sign()).to(torch.int8)
    return torch.cat([d_N1.half().view(torch.uint8), q_NW.view(torch.uint8)], dim=1)


def quantise_q4_1(weights_NW: Float[Tensor, "N 32"]) -> UInt8[Tensor, "N 20"]:
    """Return blocks of Q4_1:  m = min w,  d = (max w - m) / 15,  q = (w - m) / d, halves upwards.

    Args:
        weights_NW: 32 neighbours of a row in each block, finite.
    """
    m_N1, high_N1 = weights_NW.aminmax(dim=1, keepdim=True)
    d_N1 = (high_N1 - m_N1) / 15
    # As ggml: d and m are rounded to float16 only when the codes are found.
    q_NW = (weights_NW - m_N1) * torch.where(d_N1 == 0, 0, 1 / d_N1) + 0.5
    return q4_1_blocks(d_N1.half(), m_N1.half(), q_NW.to(torch.uint8).clamp_(max=15))


def q4_1_blocks(
    d_N1: Float16[Tensor, "N 1"], m_N1: Float16[Tensor, "N 1"], q_NW: UInt8[Tensor, "N 32"]
) -> UInt8[Tensor, "N 20"]:
    """Return blocks of Q4_1 with these scales, minima and codes, 0 to 15."""
    return torch.cat([d_N1.view(torch.uint8), m_N1.view(torch.uint8), nibbles(q_NW)], dim=1)


def nibbles(q_NW: UInt8[Tensor, "*N W"]) -> UInt8[Tensor, "*N W/2"]:
    """Return codes from 0 to 15, two to a byte: the first half low, the second half high."""
    low_NH, high_NH = q_NW.unflatten(-1, (2, -1)).unbind(-2)
    return low_NH | high_NH << 4


def _numbers(blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Take bytes for numbers of a type; return them in float32."""
    return blocks.contiguous().view(dtype).float()  # strided, float16 is slow


def _small(packed_NB: Tensor, num_bits: int, run: int) -> Tensor:
    """Return the small numbers of packed bytes, [N, 8 / num_bits B].

    Of each run of bytes first come the lowest bits of all, then the next, up to the highest.
    """
    runs, mask = packed_NB.contiguous().unflatten(1, (-1, run)), 2**num_bits - 1
    return torch.stack([runs >> low & mask for low in range(0, 8, num_bits)], dim=2).flatten(1)


def _q8_0(blocks_NB: Tensor) -> Tensor:
    return _numbers(blocks_NB[:, :2], torch.float16) * blocks_NB[:, 2:].view(torch.int8)


def _q4_0(blocks_NB: Tensor) -> Tensor:
    d_N1, q_NW = _numbers(blocks_NB[:, :2], torch.float16), _small(blocks_NB[:, 2:], 4, run=16)
    return d_N1 * (q_NW.view(torch.int8) - 8)


def _q4_1(blocks_NB: Tensor) -> Tensor:
    d_N1 = _numbers(blocks_NB[:, 0:2], torch.float16)
    m_N1 = _numbers(blocks_NB[:, 2:4], torch.float16)
    q_NW = _small(blocks_NB[:, 4:], 4, run=16)  # 16 low halves of bytes, then 16 high ones
    return (d_N1 * q_NW).add_(m_N1)


def _q4_k(blocks_NB: Tensor) -> Tensor:
    d_N11, dmin_N11 = _numbers(blocks_NB[:, :4], torch.float16)[..., None, None].unbind(1)
    # Eight scales and eight minima: the first four of each are the low 6 bits of a byte, whose
    # high 2 bits are those of the other four; these have their low 4 bits in the last four bytes.
    first_N8, last_N4 = blocks_NB[:, 4:12], blocks_NB[:, 12:16]
    high_N8 = first_N8 >> 6 << 4
    s_N8 = torch.cat([first_N8[:, :4] & 63, last_N4 & 15 | high_N8[:, :4]], dim=1)
    m_N8 = torch.cat([first_N8[:, 4:] & 63, last_N4 >> 4 | high_N8[:, 4:]], dim=1)
    q_N8S = _small(blocks_NB[:, 16:], 4, run=32).unflatten(1, (8, 32))
    return (d_N11 * s_N8[..., None] * q_N8S).sub_(dmin_N11 * m_N8[..., None]).flatten(1)


def _q6_k(blocks_NB: Tensor) -> Tensor:
    low_NW, high_NW = (
        _small(blocks_NB[:, :128], 4, run=64),
        _small(blocks_NB[:, 128:192], 2, run=32),
    )
    q_NGS = ((low_NW | high_NW << 4).view(torch.int8) - 32).unflatten(1, (16, 16))
    s_NG1 = blocks_NB[:, 192:208].view(torch.int8)[..., None]
    d_N11 = _numbers(blocks_NB[:, 208:], torch.float16)[..., None]
    return (d_N11 * s_NG1 * q_NGS).flatten(1)


_OF_KIND = {
    "F32": lambda blocks_NB: _numbers(blocks_NB, torch.float32),
    "F16": lambda blocks_NB: _numbers(blocks_NB, torch.float16),
    "BF16": lambda blocks_NB: _numbers(blocks_NB, torch.bfloat16),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
