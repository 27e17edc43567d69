"""What a few bits can say: blocks of neighbours in a row share a scale, and perhaps a minimum.

A weight w of a block and its code q of b bits::

    with a minimum:  w = d q + m,   q = 0 .. h,    d = (max - min) / h,  m = min,    h = 2^b - 1
    symmetric:       w = d q,       q = -h .. h,   d = max |w| / h,                  h = 2^(b-1) - 1

Scales and minima are kept as float16, codes are found before they are rounded: at 4 bits with a
minimum and at 8 bits symmetric, blocks of 32, this is Q4_1 and Q8_0 of ggml to the bit.  (Its Q4_0
has one code more on the side of the largest weight.)

Shape suffixes:  F rows, D columns, N blocks of a row, B columns of a block.

Source: ggml, https://github.com/ggml-org/ggml, src/ggml-quants.c (quantize_row_q4_1_ref, ...).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float16, Int8, UInt8
from torch import Tensor

from llmcourse.base.arguments import require


@dataclass(frozen=True)
class Grid:
    """How many codes a weight has, and who shares a scale."""

    bits: int
    """Of a code (b), 2 to 8."""
    block: int | None = 32
    """Neighbours in a row with one scale (B); None is the whole row."""
    symmetric: bool = False
    """Whether blocks have a scale alone, without a minimum."""

    def __post_init__(self) -> None:
        """Reject what no code can be kept in."""
        require("bits", self.bits, least=2, most=8)
        if self.block is not None:
            require("block", self.block, least=1)

    @property
    def lowest(self) -> int:
        """The smallest code."""
        return -self.highest if self.symmetric else 0

    @property
    def highest(self) -> int:
        """The largest code."""
        return 2 ** (self.bits - self.symmetric) - 1

    def block_of(self, num_columns: int) -> int:
        """Return how many of a row's weights share a scale.

        Raises:
            ValueError: if blocks do not divide the row.
        """
        block = self.block or num_columns
        if num_columns % block:
            raise ValueError(
                f"blocks of {block} do not divide rows of {num_columns}: choose a block that "
                "does, or None, the whole row"
            )
        return block

    def bits_per_weight(self, num_columns: int) -> float:
        """Return  b + 16 / B  of a symmetric grid,  b + 32 / B  of one with minima.

        Args:
            num_columns: of the rows, which B is where blocks are whole rows.
        """
        return self.bits + (16 if self.symmetric else 32) / self.block_of(num_columns)

    def fit(
        self, w_FNB: Float[Tensor, "*F B"]
    ) -> tuple[Float[Tensor, "*F 1"], Float[Tensor, "*F 1"]]:
        """Return scale and minimum of every block, before they are kept as float16."""
        if self.symmetric:
            d_FN1 = w_FNB.abs().amax(-1, keepdim=True) / self.highest
            return d_FN1, torch.zeros_like(d_FN1)
        low_FN1, high_FN1 = w_FNB.aminmax(dim=-1, keepdim=True)
        return (high_FN1 - low_FN1) / self.highest, low_FN1

    def codes(
        self,
        w_FNB: Float[Tensor, "*F B"],
        d_FN1: Float[Tensor, "*F 1"],
        m_FN1: Float[Tensor, "*F 1"],
    ) -> Float[Tensor, "*F B"]:
        """Return the nearest code of every weight, for given scales and minima."""
        q_FNB = (w_FNB - m_FN1) * torch.where(d_FN1 == 0, 0, 1 / d_FN1)
        if self.symmetric:  # halves go away from zero
            size_FNB = q_FNB.abs()
            whole_FNB = size_FNB.floor()
            whole_FNB += size_FNB - whole_FNB >= 0.5
            q_FNB = whole_FNB * q_FNB.sign()
        else:
            q_FNB = (q_FNB + 0.5).floor()
        return q_FNB.clamp(self.lowest, self.highest)


class Rounded(NamedTuple):
    """A matrix on a grid: a code for every weight, scale and minimum for every block."""

    grid: Grid
    codes_FD: UInt8[Tensor, "F D"] | Int8[Tensor, "F D"]
    """Signed where the grid is symmetric."""
    scales_FN: Float16[Tensor, "F N"]
    minima_FN: Float16[Tensor, "F N"] | None
    """None of a symmetric grid."""

    def weights(self) -> Float[Tensor, "F D"]:
        """Return  d q + m  in float32."""
        q_FNB = self.codes_FD.float().unflatten(1, (self.scales_FN.shape[1], -1))
        w_FNB = self.scales_FN.float()[..., None] * q_FNB
        if self.minima_FN is not None:
            w_FNB += self.minima_FN.float()[..., None]
        return w_FNB.flatten(1)

    @property
    def num_bits(self) -> float:
        """Of all codes, scales and minima."""
        return self.codes_FD.numel() * self.grid.bits_per_weight(self.codes_FD.shape[1])


def nearest(w_FD: Float[Tensor, "F D"], grid: Grid) -> Rounded:
    """Round every weight to the nearest code of its block.

    Raises:
        ValueError: if blocks do not divide the rows, or a scale does not fit into float16.
    """
    w_FNB = w_FD.unflatten(1, (-1, grid.block_of(w_FD.shape[1])))
    d_FN1, m_FN1 = grid.fit(w_FNB)
    return kept(grid, grid.codes(w_FNB, d_FN1, m_FN1).flatten(1), d_FN1[..., 0], m_FN1[..., 0])


def kept(
    grid: Grid,
    q_FD: Float[Tensor, "F D"],
    d_FN: Float[Tensor, "F N"],
    m_FN: Float[Tensor, "F N"],
) -> Rounded:
    """Return codes as whole numbers, scales and minima as float16.

    Raises:
        ValueError: if a scale or a minimum is no finite number of float16.
    """
    scales_FN, minima_FN = d_FN.half(), m_FN.half()
    if not (scales_FN.isfinite().all() and minima_FN.isfinite().all()):
        raise ValueError("weights are too large for scales in float16, or not finite")
    if grid.symmetric:
        return Rounded(grid, q_FD.to(torch.int8), scales_FN, None)
    return Rounded(grid, q_FD.to(torch.uint8), scales_FN, minima_FN)
