"""Rotary positions: turn every pair of channels by an angle that grows with the position.

A pair of channels is a complex number, and a turn a product.  Rotations are kept as pairs of real
numbers all the same: casts of a module and the compiler have no use for complex ones.

Shape suffixes:  B batch, T time (tokens), H heads, K head size, J pairs of channels (K / 2), 2 the
real and the imaginary part.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.pairs import upcast
from llmcourse.model.attention.rope_scaling import RopeScaling


def rope_frequencies(
    head_size: int, *, theta: float = 10_000.0, scaling: RopeScaling | None = None
) -> Float[Tensor, " J"]:
    """Return by how much every channel pair turns from one position to the next, in radians.

    w_j = theta^(-2j / head_size), slowed down where a scaling says so.  In float64: in float32 the
    angle of position 100,000 is already wrong in the third digit.  Arguments and errors as in
    `rope_rotations`.
    """
    if head_size <= 0 or head_size % 2:
        raise ValueError(f"head_size must be even and positive for RoPE, got {head_size}")
    if theta <= 0:
        raise ValueError(f"theta must be positive, got {theta}")
    if scaling is not None:
        return torch.tensor(scaling.frequencies(head_size, theta=theta), dtype=torch.float64)
    exponents_J = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
    return theta ** (-exponents_J)


def rope_rotations(
    head_size: int,
    num_positions: int,
    *,
    theta: float = 10_000.0,
    scaling: RopeScaling | None = None,
) -> Float[Tensor, "T J 2"]:
    """Return the rotation of every position and channel pair: the two parts of a complex number.

    rotation[t, j] = m exp(i t w_j) = m (cos(t w_j) + i sin(t w_j)),  w_j of `rope_frequencies`;
    m is 1, but for the scaling yarn, which makes queries and keys longer.

    Args:
        head_size: channels per head, even.
        num_positions: number of positions, from 0.
        theta: the base; larger turns the slow pairs slower.  10,000 in the paper, 500,000 in
            Llama 3.
        scaling: slows the pairs down for a context beyond the trained one; None does not.

    Raises:
        ValueError: if the head size is not even and positive, theta not positive, or the scaling
            cannot be had with them.

    Source:
        Su et al. 2021, equation 15, https://arxiv.org/abs/2104.09864
    """
    frequencies_J = rope_frequencies(head_size, theta=theta, scaling=scaling)
    angles_TJ = torch.outer(torch.arange(num_positions, dtype=torch.float64), frequencies_J)
    length = 1.0 if scaling is None else scaling.attention_factor
    return (length * torch.stack((angles_TJ.cos(), angles_TJ.sin()), dim=-1)).float()


def rope_adjacent(
    x_BTHK: Float[Tensor, "*B T H K"], rotations_TJ2: Float[Tensor, "*#B T J 2"]
) -> Float[Tensor, "*B T H K"]:
    """Rotate the channel pairs (0, 1), (2, 3), ... of every head: the layout of the paper.

    A pair is read as one complex number, so the rotation is one complex product.  This is the
    layout of our model and of Meta's own Llama code.  There are no complex numbers of bf16 parts:
    bf16 and fp16 are rotated in float32 and rounded once, at the end.

    Args:
        x_BTHK: queries or keys.
        rotations_TJ2: the rotation of each token's position, from `rope_rotations`; with a batch
            axis where the positions differ from row to row.
    """
    if torch.compiler.is_compiling():
        return _rope_adjacent_real(x_BTHK, rotations_TJ2)
    x_BTHJ = torch.view_as_complex(upcast(x_BTHK).unflatten(-1, (-1, 2)))
    turns_T1J = torch.view_as_complex(rotations_TJ2).unsqueeze(-2)
    return torch.view_as_real(x_BTHJ * turns_T1J).flatten(-2).to(x_BTHK.dtype)


def _rope_adjacent_real(
    x_BTHK: Float[Tensor, "*B T H K"], rotations_TJ2: Float[Tensor, "*#B T J 2"]
) -> Float[Tensor, "*B T H K"]:
    """Return the same bits by real products: slow in plain torch, one fast loop when compiled."""
    real_BTHJ, imaginary_BTHJ = upcast(x_BTHK).unflatten(-1, (-1, 2)).unbind(-1)
    cos_T1J, sin_T1J = rotations_TJ2.unsqueeze(-3).unbind(-1)
    turned = (
        real_BTHJ * cos_T1J - imaginary_BTHJ * sin_T1J,
        imaginary_BTHJ * cos_T1J + real_BTHJ * sin_T1J,
    )
    return torch.stack(turned, dim=-1).flatten(-2).to(x_BTHK.dtype)


def rope_adjacent_backward(
    dy_BTHK: Float[Tensor, "*B T H K"], rotations_TJ2: Float[Tensor, "*#B T J 2"]
) -> Float[Tensor, "*B T H K"]:
    """Gradient of `rope_adjacent` for its input: turn back by the same angles.

    The transpose of a rotation turns the other way, as the conjugate of a complex number does.
    """
    conjugates_TJ2 = rotations_TJ2 * rotations_TJ2.new_tensor([1.0, -1.0])
    return rope_adjacent(dy_BTHK, conjugates_TJ2)


def rope_halves(
    x_BTHK: Float[Tensor, "*B T H K"], rotations_TJ2: Float[Tensor, "*#B T J 2"]
) -> Float[Tensor, "*B T H K"]:
    """Rotate the pairs (0, K/2), (1, K/2 + 1), ...: the layout of Hugging Face's Llama."""
    # Pair j is channel j of the first half and channel j of the second; all heads turn alike.
    first_BTHJ, second_BTHJ = upcast(x_BTHK).chunk(2, dim=-1)
    cos_T1J, sin_T1J = rotations_TJ2.unsqueeze(-3).unbind(-1)
    return torch.cat(
        (
            first_BTHJ * cos_T1J - second_BTHJ * sin_T1J,
            second_BTHJ * cos_T1J + first_BTHJ * sin_T1J,
        ),
        dim=-1,
    ).to(x_BTHK.dtype)


def halves_from_adjacent(head_size: int) -> Int[Tensor, " K"]:
    """Return the permutation p between the two layouts:  x_halves = x_adjacent[..., p].

    Then  rope_halves(x[..., p]) = rope_adjacent(x)[..., p].  The same p, applied to the rows of the
    query and key weights, turns a checkpoint of one layout into one of the other.
    """
    channels_K = torch.arange(head_size)
    return torch.cat((channels_K[0::2], channels_K[1::2]))
