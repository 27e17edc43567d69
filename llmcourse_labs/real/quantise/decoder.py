"""A decoder whose blocks are rounded: every matrix to nearest, or by GPTQ.

The matrices of the blocks are rounded, w_q, w_k, w_v, w_o, w_gate, w_up and w_down (of experts,
too); the embedding, the head, all norms and a mixture's router stay as they are.

For GPTQ blocks are rounded one after the other.  What a matrix reads is what the rounded blocks
before it make of the calibration text; within a block, its own matrices are still the old ones.

Shape suffixes:  R rows of text, T tokens of a row, D width, F rows of a matrix.

Source:
    Frantar et al. 2022, https://arxiv.org/abs/2210.17323
"""

import copy
from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.model.decoder import Block, FeedForward, Transformer
from llmcourse.model.ops import linear
from llmcourse_labs.real.quantise.gptq import DAMPING, gptq
from llmcourse_labs.real.quantise.grid import Grid, Rounded, nearest

ROWS_AT_ONCE = 4
"""Of the calibration text, in one pass."""


class RoundedDecoder(NamedTuple):
    """A decoder of rounded weights, and what they are kept as."""

    decoder: Transformer
    """Its weights are the rounded ones, in float32."""
    matrices: dict[str, Rounded]
    """By the name of the parameter; of experts, the rows of all of them one after the other."""

    @property
    def num_bytes(self) -> int:
        """Of the rounded matrices: codes, scales and minima."""
        return round(sum(matrix.num_bits for matrix in self.matrices.values()) / 8)

    @property
    def num_others(self) -> int:
        """Weights that stay as they were."""
        every = sum(weight.numel() for weight in self.decoder.parameters())
        return every - sum(matrix.codes_FD.numel() for matrix in self.matrices.values())


@torch.no_grad()
def round_decoder(
    decoder: Transformer,
    grid: Grid,
    calibration_RT: Int[Tensor, "R T"] | None = None,
    damping: float = DAMPING,
) -> RoundedDecoder:
    """Return a copy of a decoder whose blocks are on a grid.

    Args:
        decoder: stays as it is.
        grid: of every matrix.
        calibration_RT: text for GPTQ, rows of ids; None rounds to nearest.
        damping: of GPTQ, see `gptq.inverse_factor`.

    Raises:
        ValueError: if blocks do not divide the rows of a matrix, a scale does not fit into float16,
            or GPTQ is asked for a mixture of experts.
    """
    decoder = copy.deepcopy(decoder)
    matrices: dict[str, Rounded] = {}
    if calibration_RT is not None:
        x_RTD = decoder.look_up(calibration_RT, decoder.embedding)
        rotations_TJ2 = decoder.rotations_of(calibration_RT.shape[1])
    for layer, block in enumerate(cast("Iterable[Block]", decoder.blocks)):
        hessians: dict[str, Tensor] = {}
        if calibration_RT is not None:
            for rows_RTD in x_RTD.split(ROWS_AT_ONCE):
                for name, read_RTD in inputs_of(block, rows_RTD, rotations_TJ2).items():
                    read_ND = read_RTD.flatten(0, -2)
                    hessians[name] = hessians.get(name, 0) + 2 * (read_ND.T @ read_ND)
        for name, weight in block.named_parameters():
            if weight.ndim == 1 or name.endswith("w_router"):
                continue
            rows_FD = weight.flatten(0, -2)
            if calibration_RT is None:
                rounded = nearest(rows_FD, grid)
            else:
                rounded = gptq(rows_FD, hessians[READ_BY[name]], grid, damping)
            weight.copy_(rounded.weights().view_as(weight))
            matrices[f"blocks.{layer}.{name}"] = rounded
        if calibration_RT is not None:
            x_RTD = torch.cat([block(rows, rotations_TJ2) for rows in x_RTD.split(ROWS_AT_ONCE)])
    return RoundedDecoder(decoder, matrices)


READ_BY = {
    **{f"attention.w_{name}": "normed" for name in "qkv"},
    "attention.w_o": "heads",
    "feed_forward.w_gate": "transformed",
    "feed_forward.w_up": "transformed",
    "feed_forward.w_down": "hidden",
}
"""By a matrix of a block: which of `inputs_of` it reads."""


def inputs_of(
    block: Block, x_RTD: Float[Tensor, "R T D"], rotations_TJ2: Float[Tensor, "T J 2"]
) -> dict[str, Float[Tensor, "R T _"]]:
    """Return what the matrices of a block read; see `READ_BY`.

    Raises:
        ValueError: if the block is a mixture of experts.
    """
    attention, feed_forward = block.attention, block.feed_forward
    if not isinstance(feed_forward, FeedForward):
        raise ValueError("GPTQ is for dense models, and this one has experts: round to nearest")
    normed_RTD = block.attention_norm(x_RTD)
    q_RTHK, k_RTGK = attention.queries_and_keys(normed_RTD, rotations_TJ2)
    v_RTGK = linear(normed_RTD, attention.w_v).unflatten(-1, (-1, attention.head_size))
    heads_RTD = attention.attend(q_RTHK, k_RTGK, v_RTGK).flatten(-2)
    transformed_RTD = block.feed_forward_norm(x_RTD + linear(heads_RTD, attention.w_o))
    hidden_RTF = feed_forward.hidden(transformed_RTD)
    return {
        "normed": normed_RTD,
        "heads": heads_RTD,
        "transformed": transformed_RTD,
        "hidden": hidden_RTF,
    }
