"""Record what chapter 45 replays: the whole machine at its small size.

    python -m tools.runs.capstone_runs [runs] [control]

runs it twice, with its crash ("killed") and without ("whole"), which takes minutes, and writes what
each stage found, how long it took, the log and all hashes into llmcourse_classroom/capstone.json.
A call that was cut short goes on with the run that is missing.  Leave the package's files alone
meanwhile: the report has their hash.

control runs the machine up to its fine-tuned model once more.  Its DPO begins either there, or
after some steps on answers as people give them, so that the model says what the judge is to weigh;
what comes out is written into capstone_control.json.
"""

import copy
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.sampling import load
from llmcourse_labs.capstone import CapstoneConfig, hashes, read_log, run_capstone
from llmcourse_labs.capstone.config import shipped
from llmcourse_labs.capstone.tuning import TASKS
from llmcourse_labs.evaluate import bootstrap
from llmcourse_labs.tuning import (
    FitSettings,
    answer_ids,
    answers,
    fit_answers,
    fit_preferences,
    make_tasks,
    mixed_answers,
    pair_rows,
    preference_pairs,
    prompt_ids,
    utility,
)
from llmcourse_labs.tuning.preference_data import CLOSING, OPENING
from tools.runs.recording import Runs, record, refuse_unknown

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "capstone.json"
CONTROL = FOUND.with_name("capstone_control.json")
SEEDS = (0, 1, 2)
"""Of the control."""
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


SHOWN = FitSettings(steps=60, learning_rate=2e-3)
"""Of the steps on answers as people give them."""
NUM_TASKS = 2_000
"""Tasks with such answers, and tasks of which each is asked once."""


@cache
def fine_tuned() -> tuple[Transformer, Tokenizer]:
    """Return the machine's fine-tuned model."""
    with tempfile.TemporaryDirectory() as folder:
        config = CapstoneConfig.read("small").with_kill(0)
        run_capstone(config, folder, until="sft", show=lambda line: print(line, flush=True))
        return load(next(Path(folder).glob("*_sft")) / "run")


def control(seed: int, *, shown: bool) -> dict[str, dict[str, Any]]:
    """Fit the fine-tuned model to pairs as the machine does; count answers before and after.

    Args:
        seed: of the answers, the pairs and the order of both.
        shown: whether it first learns from answers of all styles, right and wrong.
    """
    given, tokenizer = fine_tuned()
    policy, settings = copy.deepcopy(given), CapstoneConfig.read("small").dpo
    if shown:
        tasks = make_tasks(NUM_TASKS, seed=seed, part="training", **TASKS)
        prompts = [prompt_ids(task.turns[:1], tokenizer) for task in tasks]
        said = [answer_ids(text, tokenizer) for text in mixed_answers(tasks, seed=seed)]
        fit_answers(policy.train(), prompts, said, replace(SHOWN, seed=seed))
    reference = copy.deepcopy(policy)
    about = {**TASKS, "temperature": settings.temperature}
    pairs = preference_pairs(settings.pairs, seed=seed, part="training", **about)
    rows = pair_rows(pairs, tokenizer)
    fitted = replace(settings.fit, seed=seed)
    fit_preferences(policy.train(), reference, rows, fitted, beta=settings.beta)
    return {"before": tally(reference, tokenizer), "after": tally(policy, tokenizer)}


@torch.no_grad()
def tally(model: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Count what a model's answers to tasks of a test have."""
    tasks = list(dict.fromkeys(make_tasks(NUM_TASKS, seed=0, part="test", **TASKS)))
    said = answers(model.eval(), tokenizer, tasks)
    worth = [utility(task, text) for task, text in zip(tasks, said, strict=True)]
    low, high = bootstrap(worth, generator=torch.Generator().manual_seed(0))
    return {
        "answers": len(said),
        "right": sum(task.answer in text for task, text in zip(tasks, said, strict=True)),
        "kind": sum(text.startswith(OPENING.strip()) for text in said),
        "idle words": sum(text.endswith(CLOSING) for text in said),
        "utility": {"mean": round(mean(worth), 4), "low": round(low, 4), "high": round(high, 4)},
        "first": [[tasks[k].prompt, said[k]] for k in range(3)],
    }


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


def main(wanted: list[str]) -> int:
    """Make the runs that are missing, of the wanted parts or of all."""
    runs: Runs = {
        "runs": {
            "killed": lambda _: run(killed=True),
            "whole": lambda _: run(killed=False),
        }
    }
    about = {"command": "python -m tools.runs.capstone_runs", "settings": shipped("small")}
    controls: Runs = {
        "control": {
            "as it is": partial(control, shown=False),
            "shown answers": partial(control, shown=True),
        }
    }
    refuse_unknown(wanted, [*runs, *controls])
    if not wanted or "runs" in wanted:
        record(FOUND, runs, seeds=(0,), wanted=(), about=about)
    if not wanted or "control" in wanted:
        record(CONTROL, controls, seeds=SEEDS, wanted=(), about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
