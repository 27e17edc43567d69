"""The state of a widget: numbers with limits, that clamp what is impossible and say so."""

import math
from typing import Any

import traitlets


class Limited(traitlets.TraitType):
    """A number between two bounds, both allowed.

    What lies outside is clamped to the nearer bound, and the widget's `note` says so.

    Args:
        default: the value at first.
        low: smallest value.
        high: largest value.
        step: what one press of an arrow key moves the slider by.
        label: what the note calls the number.
    """

    info_text = "a number"
    whole = False

    def __init__(
        self,
        default: int | float,
        *,
        low: int | float,
        high: int | float,
        step: int | float,
        label: str,
    ) -> None:
        if not (low <= default <= high and step > 0):
            raise ValueError(f"{label}: {default} must be from {low} to {high}, {step} above 0")
        self.low, self.high, self.step, self.label = low, high, step, label
        super().__init__(default_value=default)
        self.tag(sync=True)

    def validate(self, obj: Any, value: Any) -> int | float:
        """Return the value, clamped."""
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise traitlets.TraitError(
                f"{self.label} must be a number from {self.low} to {self.high}, not {value!r}"
            )
        used = min(self.high, max(self.low, round(value) if self._rounds(value) else value))
        if used != value:
            obj.note = (
                f"{self.label}: {value:g} is not possible (from {self.low:g} to {self.high:g}"
                f"{', whole' if self.whole else ''}); {used:g} is used."
            )
        return used

    def _rounds(self, value: int | float) -> bool:
        return self.whole and math.isfinite(value)

    def limits(self) -> dict[str, Any]:
        """Return what the page needs to clamp in the same way."""
        return {"low": self.low, "high": self.high, "step": self.step, "whole": self.whole}


class Whole(Limited):
    """A whole number between two bounds; others are rounded."""

    info_text = "a whole number"
    whole = True


class Choice(traitlets.Unicode):
    """One of some strings."""

    def __init__(self, options: tuple[str, ...], *, default: str | None = None) -> None:
        self.options = options
        super().__init__(default_value=options[0] if default is None else default)
        self.tag(sync=True)

    def validate(self, obj: Any, value: Any) -> str:
        """Return the value, if it is one of the options."""
        if value not in self.options:
            raise traitlets.TraitError(f"{self.name} must be one of {self.options}, not {value!r}")
        return value

    def limits(self) -> dict[str, Any]:
        """Return what the page needs to offer the same options."""
        return {"options": list(self.options)}
