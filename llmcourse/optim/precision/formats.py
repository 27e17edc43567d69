"""Floating-point formats, described by their bits.

A number is a sign, an exponent field e of E bits and a mantissa field m of M bits::

    e > 0:   (-1)^sign  (1 + m / 2^M)  2^(e - bias)          normal
    e = 0:   (-1)^sign  (m / 2^M)      2^(1 - bias)          subnormal, or zero
"""

from dataclasses import dataclass
from typing import Literal

from llmcourse.base.arguments import require_fields

Overflow = Literal["infinity", "largest"]
"""What a number beyond the largest one becomes."""


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """The layout of a floating-point format, and its rule for what does not fit."""

    name: str
    exponent_bits: int
    """E."""
    mantissa_bits: int
    """M; the leading 1 is not stored."""
    bias: int
    """Subtracted from the exponent field."""
    has_infinity: bool = True
    """Whether the highest exponent is kept for infinity and NaN; otherwise only its last code,
    all ones, is NaN, and the rest are numbers."""
    has_nan: bool = True
    """Whether there is a NaN; otherwise every code is a number."""
    overflow: Overflow = "infinity"
    """What a number that is too large becomes; infinity itself follows the same rule."""

    def __post_init__(self) -> None:
        """Reject formats that float32 does not contain, or that contradict themselves."""
        require_fields(self, "exponent_bits", least=2, most=8)
        require_fields(self, "mantissa_bits", least=1, most=23)
        require_fields(self, "bias", least=1, most=127)
        if self.overflow == "infinity" and not self.has_infinity:
            raise ValueError(f"{self.name} has no infinity: overflow must be largest")
        if self.has_infinity and not self.has_nan:
            raise ValueError(f"{self.name} has an infinity, and so it has a NaN")

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def infinity_code(self) -> int:
        """Bits of +infinity, where there is one."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def largest_code(self) -> int:
        """Bits of the largest finite number."""
        everything = (1 << (self.bits - 1)) - 1
        if self.has_infinity:
            return self.infinity_code - 1
        return everything - 1 if self.has_nan else everything

    @property
    def nan_code(self) -> int:
        """Bits of one NaN, where there is one: the quiet one, its first mantissa bit set."""
        quiet = self.infinity_code | (1 << (self.mantissa_bits - 1))
        return quiet if self.has_infinity else (1 << (self.bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.value(self.largest_code)

    @property
    def smallest_normal(self) -> float:
        """The smallest number with all its mantissa bits."""
        return 2.0 ** (1 - self.bias)

    @property
    def smallest(self) -> float:
        """The smallest number above 0; numbers below `smallest_normal` are its multiples."""
        return 2.0 ** (1 - self.bias - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number: rounding errs by at most half of it."""
        return 2.0**-self.mantissa_bits

    def value(self, code: int) -> float:
        """Return the number that some bits stand for.

        Raises:
            ValueError: if the bits are more than the format has.
        """
        if not 0 <= code < 1 << self.bits:
            raise ValueError(f"a code of {self.name} has {self.bits} bits, got {code}")
        magnitude = code & ((1 << (self.bits - 1)) - 1)
        sign = -1.0 if code >> (self.bits - 1) else 1.0
        if magnitude > self.largest_code:
            is_infinity = self.has_infinity and magnitude == self.infinity_code
            return sign * float("inf") if is_infinity else float("nan")
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        leading = 1 << self.mantissa_bits if exponent else 0
        scale = max(exponent, 1) - self.bias - self.mantissa_bits
        return sign * (leading + mantissa) * 2.0**scale


FP32 = FloatFormat(name="fp32", exponent_bits=8, mantissa_bits=23, bias=127)
"""IEEE 754 single precision."""

BF16 = FloatFormat(name="bf16", exponent_bits=8, mantissa_bits=7, bias=127)
"""The upper half of fp32: its range, and 8 significant bits."""

FP16 = FloatFormat(name="fp16", exponent_bits=5, mantissa_bits=10, bias=15)
"""IEEE 754 half precision: 11 significant bits up to 65,504."""

E4M3 = FloatFormat(
    name="fp8 e4m3",
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    has_infinity=False,
    overflow="largest",
)
"""Up to 448, no infinity, and a number that is too large becomes 448 (torch's float8_e4m3fn).

Source: Micikevicius et al. 2022, table 1, https://arxiv.org/abs/2209.05433
"""

E5M2 = FloatFormat(name="fp8 e5m2", exponent_bits=5, mantissa_bits=2, bias=15)
"""The upper half of fp16: up to 57,344, with infinity (torch's float8_e5m2).

Source: Micikevicius et al. 2022, table 1, https://arxiv.org/abs/2209.05433
"""

E2M1 = FloatFormat(
    name="fp4 e2m1",
    exponent_bits=2,
    mantissa_bits=1,
    bias=1,
    has_infinity=False,
    has_nan=False,
    overflow="largest",
)
"""0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives: every code is a number.

Source: Rouhani et al. 2023, https://arxiv.org/abs/2310.10537
"""

FORMATS = {f.name: f for f in (FP32, BF16, FP16, E4M3, E5M2)}
"""The formats of eight bits or more, by their names: those that have a NaN."""
