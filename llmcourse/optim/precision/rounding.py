"""Rounding float32 to a narrower format by its bits, to the nearest number or by chance."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.optim.precision.formats import FP32, FloatFormat

_MOST_DROPPED = 40  # bits; a float32 has 24 significant ones, so further down all round to 0


def encode(x: Float[Tensor, "*shape"], fmt: FloatFormat) -> Int[Tensor, "*shape"]:
    """Round float32 to the nearest number of a format, ties to even; return its bits.

    The significant bits n, sign apart, lose their last s; the rest goes up by one if what was lost
    is more than half, or exactly half and the rest is odd::

        q = (n + 2^(s-1) - 1 + (bit s of n)) >> s

    A carry out of the mantissa raises the exponent by itself, since the exponent stands above it.
    Below the smallest normal number s grows: the format's numbers keep one distance there.

    Args:
        x: float32 numbers.
        fmt: the format.

    Returns:
        int64 codes, `fmt.bits` wide: sign, exponent, mantissa.

    Raises:
        ValueError: if x is not float32, or has a NaN where the format has none.

    Source:
        IEEE 754-2019, section 4.3.1 (roundTiesToEven).
    """
    significand, exponent, dropped = _taken_apart(x, fmt)
    is_odd = (significand >> dropped) & 1
    just_below_half = (1 << (dropped - 1).clamp(min=0)) - 1
    carry = torch.where(dropped > 0, just_below_half + is_odd, 0)
    return _put_together(x, (significand + carry) >> dropped, exponent, fmt)


def _encode_stochastic(
    x: Float[Tensor, "*shape"], fmt: FloatFormat, *, generator: torch.Generator
) -> Int[Tensor, "*shape"]:
    """Return the codes of `encode`, rounded up by chance:  P(up) = lost part / distance.

    A number between s random bits and 2^s is added before the last s bits are dropped.
    """
    significand, exponent, dropped = _taken_apart(x, fmt)
    noise = torch.randint(0, 1 << _MOST_DROPPED, x.shape, generator=generator, device=x.device)
    noise &= (1 << dropped) - 1
    return _put_together(x, (significand + noise) >> dropped, exponent, fmt)


def decode(codes: Int[Tensor, "*shape"], fmt: FloatFormat) -> Float[Tensor, "*shape"]:
    """Return the float32 numbers that the bits of a format stand for."""
    codes = codes.long()
    magnitude = codes & ((1 << (fmt.bits - 1)) - 1)
    exponent = magnitude >> fmt.mantissa_bits
    mantissa = magnitude & ((1 << fmt.mantissa_bits) - 1)
    leading = (exponent > 0).long() << fmt.mantissa_bits
    scale = exponent.clamp(min=1) - fmt.bias - fmt.mantissa_bits
    # In float64, which holds every step of this exactly.
    value = (leading + mantissa).double() * torch.pow(2.0, scale.double())
    if fmt.has_infinity:
        value = torch.where(magnitude == fmt.infinity_code, torch.inf, value)
        value = torch.where(magnitude > fmt.infinity_code, torch.nan, value)
    else:
        value = torch.where(magnitude > fmt.largest_code, torch.nan, value)
    return torch.where(codes >> (fmt.bits - 1) == 1, -value, value).float()


def round_to(
    x: Float[Tensor, "*shape"], fmt: FloatFormat, *, generator: torch.Generator | None = None
) -> Float[Tensor, "*shape"]:
    """Return the numbers of a format that stand for x, as float32.

    Args:
        x: float32 numbers.
        fmt: the format.
        generator: rounds by chance; None rounds to the nearest.

    Raises:
        ValueError: if x is not float32.
    """
    if generator is None:
        return decode(encode(x, fmt), fmt)
    return decode(_encode_stochastic(x, fmt, generator=generator), fmt)


def bits_of(x: Float[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Return the 32 bits of every float32 number, as an int64 from 0 to 2^32 - 1.

    Raises:
        ValueError: if x is not float32.
    """
    if x.dtype != torch.float32:
        raise ValueError(f"the bits of float32 numbers are taken apart here, got {x.dtype}")
    return x.contiguous().view(torch.int32).long() & 0xFFFFFFFF


def _taken_apart(
    x: Float[Tensor, "*shape"], fmt: FloatFormat
) -> tuple[Int[Tensor, "*shape"], Int[Tensor, "*shape"], Int[Tensor, "*shape"]]:
    """Return significant bits, the format's exponent field (1 or more) and how many bits go."""
    magnitude = bits_of(x) & 0x7FFFFFFF
    exponent = magnitude >> FP32.mantissa_bits
    is_normal = (exponent > 0).long()
    significand = (magnitude & ((1 << FP32.mantissa_bits) - 1)) | is_normal << FP32.mantissa_bits
    field = exponent.clamp(min=1) - FP32.bias + fmt.bias
    dropped = FP32.mantissa_bits - fmt.mantissa_bits + (1 - field).clamp(min=0)
    return significand, field.clamp(min=1), dropped.clamp(max=_MOST_DROPPED)


def _put_together(
    x: Float[Tensor, "*shape"],
    significand: Int[Tensor, "*shape"],
    exponent: Int[Tensor, "*shape"],
    fmt: FloatFormat,
) -> Int[Tensor, "*shape"]:
    """Return the code of a rounded number: its leading 1 counts as one unit of the exponent."""
    code = significand + ((exponent - 1) << fmt.mantissa_bits)
    beyond = fmt.infinity_code if fmt.overflow == "infinity" else fmt.largest_code
    code = torch.where((code > fmt.largest_code) | x.isinf(), beyond, code)
    if fmt.has_nan:
        code = torch.where(x.isnan(), fmt.nan_code, code)
    elif x.isnan().any():
        raise ValueError(f"{fmt.name} has no NaN")
    return code | (bits_of(x) >> 31) << (fmt.bits - 1)
