"""Record runs that a page has no time for: one row for each part, name and seed, in a JSON file."""

import json
import platform
import re
from collections.abc import Callable, Collection, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from llmcourse.base.files import write_atomically

Runs = dict[str, dict[str, Callable[[int], Any]]]
"""Every run by part and name; each is made for a seed."""


def record(
    file: Path,
    runs: Runs,
    *,
    seeds: Iterable[int],
    wanted: Collection[str],
    about: dict[str, Any],
) -> None:
    """Make the runs that a file has not got yet, and write it anew after each.

    A call that was cut short goes on with what is missing.

    Args:
        file: the JSON file, which need not exist.
        runs: by part and name.
        seeds: of each run.
        wanted: parts to make; all if it is empty.
        about: what all numbers of the file belong to, such as its settings.

    Raises:
        SystemExit: if a wanted part is none of the runs.
    """
    if unknown := sorted(set(wanted) - set(runs)):
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(runs)}")
    torch.set_num_threads(1)
    for seed in seeds:
        for part, of_part in runs.items():
            for name, run in of_part.items():
                if wanted and part not in wanted:
                    continue
                known = json.loads(file.read_text("utf8")) if file.exists() else {}
                rows = known.setdefault(part, {}).setdefault(name, {})
                if str(seed) in rows:
                    continue
                rows[str(seed)] = run(seed)
                _write(file, known | about | _made_by())
                print(f"{part} {name}, seed {seed}: done", flush=True)


def _made_by() -> dict[str, str]:
    return {
        "date": date.today().isoformat(),
        "machine": f"one thread, {platform.machine()}, torch {torch.__version__}",
    }


def _write(file: Path, found: dict[str, Any]) -> None:
    text = json.dumps(found, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]|\{[^][{}]*\}", lambda each: re.sub(r"\n *", " ", each[0]), text)
    with write_atomically(file) as written:
        written.write(f"{text}\n".encode())
