"""Record what chapter 45 replays: the whole machine at its small size.

    python -m tools.runs.capstone_runs

runs it twice, with its crash ("killed") and without ("whole"), which takes minutes, and writes what
each stage found, how long it took, the log and all hashes into llmcourse_classroom/capstone.json.
A call that was cut short goes on with the run that is missing.  Leave the package's files alone
meanwhile: the report has their hash.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmcourse_labs.capstone import CapstoneConfig, hashes, read_log, run_capstone
from llmcourse_labs.capstone.config import shipped
from tools.runs.recording import record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "capstone.json"
EVERY = 4
"""Steps of the log of which one is kept; those around the crash are kept all."""


def run(*, killed: bool) -> dict[str, Any]:
    """Run the machine in a folder that goes afterwards, and return what is told of it."""
    config = CapstoneConfig.read("small")
    if not killed:
        config = config.with_kill(0)
    with tempfile.TemporaryDirectory() as folder:
        done = run_capstone(config, folder, show=lambda line: print(line, flush=True))
        stages = {
            name: {"seconds": each["seconds"], "facts": thinned(each["facts"])}
            for name, each in done.items()
            if name != "report"
        }
        stages["report"] = {"seconds": done["report"]["seconds"], "facts": {}}
        told = {"stages": stages, "hashes": hashes(folder)}
        return told | {"log": thinned_log(read_log(folder))} if killed else told


def thinned(found: Any) -> Any:
    """Return facts without the verdict of every single item, losses with four digits."""
    if isinstance(found, dict):
        return {name: thinned(each) for name, each in found.items() if name != "verdicts"}
    if isinstance(found, list):
        return [thinned(each) for each in found]
    return round(found, 4) if isinstance(found, float) else found


def thinned_log(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a log with seconds since its beginning, and some of its steps."""
    crash = next((e["step"] for e in events if e["event"] == "kill"), 0)
    kept = []
    for event in events:
        row = event | {"at": round(event["at"] - events[0]["at"], 2)}
        for name in ("identity", "file", "goes_on"):
            row.pop(name, None)
        if "mesh" in row:
            row["mesh"] = {axis: size for axis, size in row["mesh"].items() if size > 1}
        is_near = event.get("stage") == "train" and abs(event.get("step", -99) - crash) <= EVERY
        if row["event"] != "step" or row["step"] == 1 or row["step"] % EVERY == 0 or is_near:
            kept.append(row)
    return kept


def main() -> int:
    """Make the runs that are missing."""
    runs = {
        "runs": {
            "killed": lambda _: run(killed=True),
            "whole": lambda _: run(killed=False),
        }
    }
    about = {"command": "python -m tools.runs.capstone_runs", "settings": shipped("small")}
    record(FOUND, runs, seeds=(0,), wanted=(), about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
