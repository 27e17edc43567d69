"""A widget about formats of numbers: what each bit is worth, and what rounding does."""

import math
import re
from typing import Any

import traitlets

from llmcourse.optim.precision import FORMATS
from llmcourse_classroom.state import Choice
from llmcourse_classroom.widget import Widget

_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_TERM = rf"2\^([+-]?[0-9]+)|({_DECIMAL})(?:/({_DECIMAL}))?"
_SUM = re.compile(rf"([+-]?)(?:{_TERM})(?:([+-])(?:{_TERM}))?")
_BITS = re.compile(r"0x[0-9a-f]{1,12}|0b[01]{1,48}")
_FIELDS = (
    "bits",
    "exponent_bits",
    "mantissa_bits",
    "bias",
    "has_infinity",
    "overflow",
    "infinity_code",
    "largest_code",
    "nan_code",
)


def parsed(text: str) -> float | None:
    """Return the number that a text such as "0.1", "1/3", "1 + 2^-8" or "inf" means, or None."""
    plain = re.sub(r"\s*([-+/^])\s*", r"\1", text.strip().lower().replace("−", "-"))
    plain = re.sub(r"([0-9]),(?=[0-9]{3}(?![0-9]))", r"\1", plain)  # 70,000
    if re.fullmatch(r"[+-]?(nan|inf(inity)?)", plain):
        return float(plain)
    found = _SUM.fullmatch(plain)
    if found is None:
        return None
    sign, power, number, below, then, *other = found.groups()
    total = (-1 if sign == "-" else 1) * _size(power, number, below)
    if then:
        total += (-1 if then == "-" else 1) * _size(*other)
    return None if math.isnan(total) else total


def _size(power: str | None, number: str | None, below: str | None) -> float:
    if power is not None:
        return math.inf if int(power) > 1023 else 2.0 ** int(power)
    if below is None:
        return float(number)
    above, under = float(number), float(below)
    if under == 0:
        return math.nan if above == 0 else math.inf
    return above / under


class Number(traitlets.Unicode):
    """A number as a text, or bits of a format."""

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text, if it means something."""
        text = str(value) if isinstance(value, int | float) else value
        if isinstance(value, bool) or not isinstance(text, str):
            raise traitlets.TraitError(f"{self.name} must be a number or a text, not {value!r}")
        if parsed(text) is None and _BITS.fullmatch(text.strip().lower()) is None:
            raise traitlets.TraitError(
                f"{self.name} must be a number such as 0.1, '1/3', '2^-24' or 'inf', or bits such "
                f"as '0x3dcd', not {value!r}"
            )
        return text


class BitPattern(Widget):
    """A number in one of five formats, bit by bit: every bit can be flipped.

    Args:
        number: a number, or a text such as "0.1", "1/3", "1 + 2^-8", "inf"; "0x3dcd" and "0b01"
            are bits of the format.
        format: one of `precision.FORMATS`.
    """

    script = "bit_pattern.js"
    alt = (
        "The bits of a number: one for the sign, some for the exponent, the rest for the mantissa. "
        "Below, the numbers of the format beside it on a line, and what the same number becomes "
        "in fp32, bf16, fp16 and the two fp8 formats."
    )

    number = Number("0.1").tag(sync=True)
    format = Choice(tuple(FORMATS))
    formats = traitlets.Dict().tag(sync=True)

    def __init__(
        self, number: float | int | str = "0.1", format: str = "bf16", **state: Any
    ) -> None:
        formats = {
            name: {field: getattr(fmt, field) for field in _FIELDS} for name, fmt in FORMATS.items()
        }
        super().__init__(number=number, format=format, formats=formats, **state)
