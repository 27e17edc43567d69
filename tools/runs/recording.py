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
    refuse_unknown(wanted, runs)
    torch.set_num_threads(1)
    for seed in seeds:
        for part, of_part in runs.items():
            for name, run in of_part.items():
                if wanted and part not in wanted:
                    continue
                known = read(file)
                rows = known.setdefault(part, {}).setdefault(name, {})
                if str(seed) in rows:
                    continue
                rows[str(seed)] = run(seed)
                write(file, known | about)
                print(f"{part} {name}, seed {seed}: done", flush=True)


def record_parts(
    file: Path,
    parts: dict[str, Callable[[], Any]],
    *,
    wanted: Collection[str],
    about: dict[str, Any],
) -> None:
    """Make the wanted parts of a file, or all, each whole and anew, and write the file after each.

    Args:
        file: the JSON file, which need not exist.
        parts: by name.
        wanted: parts to make; all if it is empty.
        about: what all numbers of the file belong to: the command, at least.

    Raises:
        SystemExit: if a wanted part is none of the parts.
    """
    refuse_unknown(wanted, parts)
    torch.set_num_threads(1)
    for part, made in parts.items():
        if not wanted or part in wanted:
            write(file, read(file) | {part: made()} | about)


def refuse_unknown(wanted: Collection[str], known: Collection[str]) -> None:
    """Raise SystemExit if something is wanted that there is not."""
    if unknown := sorted(set(wanted) - set(known)):
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")


def read(file: Path) -> dict[str, Any]:
    """Return what is recorded in a file by now: nothing if there is none."""
    return json.loads(file.read_text("utf8")) if file.exists() else {}


def write(file: Path, found: dict[str, Any], *, processor: str = platform.machine()) -> None:
    """Write a file of runs, with today's date, the machine and torch's version."""
    made_by = {
        "date": date.today().isoformat(),
        "machine": f"{processor}, one thread, torch {torch.__version__}",
    }
    text = json.dumps(found | made_by, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]|\{[^][{}]*\}", lambda each: re.sub(r"\n *", " ", each[0]), text)
    with write_atomically(file) as written:
        written.write(f"{text}\n".encode())
