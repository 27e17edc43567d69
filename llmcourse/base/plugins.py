"""What other packages offer to this one, which imports none of them: entry points.

A package names in its `pyproject.toml` a group, a name and what stands behind the name::

    [project.entry-points."llmcourse.engines"]
    torch = "llmcourse_labs.torch_engine.engine"

Behind a name of these groups stands

* of `llmcourse.commands`, a `base.command_line.Command`;
* of `llmcourse.engines`, a module with `fit_under_torchrun`, `num_processes` and `is_first`;
* of `llmcourse.checkpoints`, a module that reads folders of that ending;
* of `llmcourse.stages`, a class like `train.stage.Stage`.

Source: https://packaging.python.org/en/latest/specifications/entry-points/
"""

import functools
from importlib.metadata import entry_points
from typing import Any


def names(group: str) -> list[str]:
    """Return the names that a group has, in order.

    Args:
        group: without "llmcourse.", such as "commands".
    """
    return sorted({point.name for point in entry_points(group=f"llmcourse.{group}")})


@functools.cache
def plugin(group: str, name: str) -> Any:
    """Return what stands behind a name of a group.

    Args:
        group: without "llmcourse.", such as "engines".
        name: such as "torch".

    Raises:
        ValueError: if nothing installed offers it.
    """
    found = list(entry_points(group=f"llmcourse.{group}", name=name))
    if not found:
        there = ", ".join(names(group)) or "none"
        raise ValueError(
            f"nothing installed offers {name!r} to llmcourse.{group}; there is: {there}. The "
            "packages of the course are installed together: pip install llmcourse"
        )
    return found[0].load()
