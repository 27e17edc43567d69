"""What longer runs have found, as the commands that chapters name have written it."""

import json
from importlib import resources
from typing import Any


def recorded_runs(name: str) -> dict[str, Any]:
    """Return the content of a recorded file, such as "curation".

    Raises:
        ValueError: if nothing of that name is recorded.
    """
    folder = resources.files("llmcourse_classroom")
    file = folder.joinpath(f"{name}.json")
    if not file.is_file():
        known = sorted(p.name.removesuffix(".json") for p in folder.iterdir() if ".json" in p.name)
        raise ValueError(f"nothing is recorded as {name!r}; there are {', '.join(known)}")
    return json.loads(file.read_text(encoding="utf8"))
