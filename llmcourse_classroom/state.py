"""The state of a widget: numbers with limits, that clamp what is impossible and say so."""

import math
from collections.abc import Collection
from typing import Any

import traitlets


class StateError(traitlets.TraitError, ValueError):
    """What a state cannot be, said by a trait or by the widget's constructor."""


def one_of(name: str, value: Any, options: Collection[str]) -> str:
    """Return the value, if it is one of the options."""
    if value not in options:
        raise StateError(f"{name} must be one of {', '.join(options)}, not {value!r}")
    return value


class Limited(traitlets.TraitType):
    """A number between two bounds, both allowed.

    What lies outside is clamped to the nearer bound, and the widget's `note` says so.

    Args:
        default: the value at first.
        low: smallest value.
        high: largest value; the widget's `bounds` may hold a lower one.
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
        high = obj.bounds.get(self.name, self.high)
        rounded = round(value) if self.whole and math.isfinite(value) else value
        used = min(high, max(self.low, rounded))
        if used != value:
            obj.note = (
                f"{self.label}: {value:g} is not possible (from {self.low:g} to {high:g}"
                f"{', whole' if self.whole else ''}); {used:g} is used."
            )
        return used

    def limits(self) -> dict[str, Any]:
        """Return what the page needs to clamp in the same way."""
        return {"low": self.low, "high": self.high, "step": self.step, "whole": self.whole}


class Whole(Limited):
    """A whole number between two bounds; others are rounded."""

    info_text = "a whole number"
    whole = True


class Named(traitlets.Unicode):
    """One of the names that the widget was made with, which its `bounds` hold."""

    def validate(self, obj: Any, value: Any) -> str:
        """Return the value, if it is one of the names."""
        return one_of(self.name, value, obj.bounds[self.name])


class Choice(traitlets.Unicode):
    """One of some strings."""

    def __init__(self, options: tuple[str, ...], *, default: str | None = None) -> None:
        self.options = options
        super().__init__(default_value=options[0] if default is None else default)
        self.tag(sync=True)

    def validate(self, obj: Any, value: Any) -> str:
        """Return the value, if it is one of the options."""
        return one_of(self.name, value, self.options)

    def limits(self) -> dict[str, Any]:
        """Return what the page needs to offer the same options."""
        return {"options": list(self.options)}
