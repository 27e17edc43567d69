"""One rule per setting: what every optimizer and schedule checks its numbers with.

Taught in: chapters/25_optimizers.ipynb
"""


def require(
    name: str,
    value: int | float,
    *,
    least: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
) -> None:
    """Raise ValueError, naming the setting and the rule, if the value breaks it."""
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be {least} or greater, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"{name} must be below {below}, got {value}")
