"""A decoder whose matrices are held as packed codes, and multiplied from them.

Codes of up to 4 bits lie two to a byte, as in Q4_1, larger ones in a byte each (as those of blocks
with an odd number of columns).  A product  y = x W^T  first makes W of the codes, a matrix at a
time, so the memory that is held is the packed bytes and one matrix of float32.

Its speed, measured with one thread of a server's processor on a decoder of 135 M weights in 4 bits:
one token takes three times the time of the same decoder in float32, a text of 32 tokens twice, one
of 512 a third more.  The bytes are saved, the time is not: that needs a kernel that makes the
weights in registers.  Two other ways were measured on single matrices.  To make W in slices of rows
is slower nearly everywhere; to sum the codes of a block first,  y = sum over blocks of d (q x) + m
(sum of x),  is up to a fifth faster for one token, and two to nine times slower for 32 and more.

Shape suffixes:  F rows, D columns, N blocks of a row, B columns of a block, H half of
them, P bytes of a row's codes.
"""

import copy
from typing import cast

import torch
from jaxtyping import Float, Float16, UInt8
from torch import Tensor, nn
from torch.nn.utils import parametrize

from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.gguf_blocks import nibbles
from llmcourse_labs.real.quantise.decoder import RoundedDecoder
from llmcourse_labs.real.quantise.grid import Rounded


class Unpack(nn.Module):
    """Makes a matrix of its packed codes; what `torch.nn.utils.parametrize` calls when it is read.

    Args:
        matrix: what is packed, in place of the matrix that stands there.
        shape: of that matrix.
    """

    def __init__(self, matrix: Rounded, shape: torch.Size) -> None:
        super().__init__()
        self.shape, self.lowest = shape, matrix.grid.lowest
        self.block = matrix.grid.block_of(shape[-1])
        self.in_nibbles = matrix.grid.bits <= 4 and self.block % 2 == 0
        self._packed: tuple[Tensor, ...] | None = self._pack(matrix)

    def _pack(self, matrix: Rounded) -> tuple[Tensor, ...]:
        """Return bytes, scales and, unless the grid is symmetric, minima."""
        codes_FNB = (matrix.codes_FD.to(torch.int16) - self.lowest).to(torch.uint8)
        codes_FNB = codes_FNB.unflatten(1, (-1, self.block))
        packed_FP = (nibbles(codes_FNB) if self.in_nibbles else codes_FNB).flatten(1)
        numbers = (matrix.scales_FN, matrix.minima_FN)
        return (packed_FP, *(number for number in numbers if number is not None))

    def right_inverse(self, w: Tensor) -> tuple[Tensor, ...]:
        """Return what is kept in place of the matrix, once."""
        packed, self._packed = self._packed, None
        return cast("tuple[Tensor, ...]", packed)

    def forward(
        self,
        packed_FP: UInt8[Tensor, "F P"],
        scales_FN: Float16[Tensor, "F N"],
        minima_FN: Float16[Tensor, "F N"] | None = None,
    ) -> Float[Tensor, "*shape"]:
        """Return  d q + m,  the bits of `Rounded.weights`."""
        num_rows, num_blocks = scales_FN.shape
        if self.in_nibbles:
            packed_FNH = packed_FP.view(num_rows, num_blocks, -1)
            q_FNB = scales_FN.new_empty(num_rows, num_blocks, 2, self.block // 2).float()
            q_FNB[:, :, 0], q_FNB[:, :, 1] = packed_FNH & 15, packed_FNH >> 4
        else:
            q_FNB = packed_FP.float()
        q_FNB = q_FNB.view(num_rows, num_blocks, self.block)
        if self.lowest:
            q_FNB += self.lowest
        q_FNB *= scales_FN.float()[..., None]
        if minima_FN is not None:
            q_FNB += minima_FN.float()[..., None]
        return q_FNB.view(self.shape)


def pack(rounded: RoundedDecoder) -> Transformer:
    """Return a decoder that computes what the rounded one does, and holds packed codes.

    It is for use, not for training.  Its embedding, head and norms are those of the rounded one,
    in float32 and in the same memory.
    """
    frozen = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in rounded.decoder.parameters()
    }
    decoder = copy.deepcopy(rounded.decoder, frozen)
    for name, matrix in rounded.matrices.items():
        owner_name, _, last = name.rpartition(".")
        owner = decoder.get_submodule(owner_name)
        unpack = Unpack(matrix, getattr(owner, last).shape)
        parametrize.register_parametrization(owner, last, unpack)
    return decoder
