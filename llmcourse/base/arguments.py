"""One rule per number: what functions and settings check their numbers with."""

from collections.abc import Mapping

Number = int | float


def require(
    name: str,
    value: Number,
    *,
    least: Number | None = None,
    above: Number | None = None,
    most: Number | None = None,
    below: Number | None = None,
) -> None:
    """Raise ValueError, naming the setting and the rule, if the value breaks it; NaN breaks all."""
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be {least} or greater, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, got {value}")
    if most is not None and not value <= most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"{name} must be below {below}, got {value}")


def require_each(values: Mapping[str, Number | None], **rule: Number) -> None:
    """Apply the rule of `require` to several numbers by their names; None is not given."""
    for name, value in values.items():
        if value is not None:
            require(name, value, **rule)


def require_fields(owner: object, *names: str, **rule: Number) -> None:
    """Apply the rule of `require` to fields of an object."""
    require_each({name: getattr(owner, name) for name in names}, **rule)
