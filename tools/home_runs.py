"""Record the run that stands behind the hero of the home page, and what its cards tell of it.

    python -m tools.home_runs [run] [phases] [ranks]

trains the 135 k weights of `small_run` and writes what it finds into llmcourse/course/home.json; a
call that was cut short goes on with the parts that are missing.

run     losses and gradient norms of every step, samples, the merges of its tokenizer, and the floor
        under its loss.
phases  the share of every phase in the time of a step, once it has learnt a little.
ranks   its first losses in one process, and in two that share every batch.

The cards of other phases take their numbers from other recorded files: see book/_ext/home.py.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llmcourse import train
from llmcourse.course.measured import phases_of_step
from llmcourse.course.widgets.live import small_run
from llmcourse.data import corpus
from llmcourse.data.tokenizer.files import spell
from tools.recording import record

FOUND = Path(__file__).resolve().parents[1] / "llmcourse" / "course" / "home.json"
QUIET = {"sample_every": 0, "validate_every": 0}
"""Settings of every run: nothing but steps."""
SAMPLES_AT = (1, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
SAMPLE_TOKENS = 60
TIMED_AT = 20
"""Step after which the phases are measured."""
RANK_STEPS = 12
"""Steps of the comparison of one process with two."""


def whole_run(_seed: int, steps: int = 400) -> dict[str, Any]:
    """Train, and return what the page shows of it: the first steps only where fewer are asked."""
    norms, samples = [], {}
    config = replace(small_run(), sample_tokens=SAMPLE_TOKENS, **QUIET)

    def look(run: train.Run, report: train.StepReport) -> None:
        norms.append(round(report.gradient_norm, 4))
        if report.step in SAMPLES_AT:
            samples[report.step] = train.sample(run)

    with TemporaryDirectory() as folder:
        run = train.start(config, Path(folder) / "run")
        fitted = train.fit(run, on_step=look, interrupted=lambda: run.steps_done >= steps)
        tokenizer = run.prepared.tokenizer
    held_out = corpus.stories(120_000, seed=1)
    per_token = len(held_out.encode()) / len(tokenizer.encode(held_out))
    return {
        "weights": sum(weight.numel() for weight in run.model.parameters()),
        "losses": [round(report.loss, 4) for report in fitted.reports],
        "norms": norms,
        "samples": {str(step): text for step, text in samples.items()},
        "merges": [f"{spell(a)} {spell(b)}" for a, b in tokenizer.merges],
        "floor": round(corpus.stories_entropy() * per_token * math.log(2), 4),
    }


def phase_shares(_seed: int) -> dict[str, float]:
    """Return the share of every phase in the time of a step."""
    with TemporaryDirectory() as folder:
        run = train.start(replace(small_run(), **QUIET), Path(folder) / "run")
        train.fit(run, interrupted=lambda: run.steps_done >= TIMED_AT)
        found = phases_of_step(run, repeats=15)
    return {phase["name"]: round(phase["share"], 4) for phase in found}


def losses_on_ranks(_seed: int) -> dict[str, list[float]]:
    """Return the first losses in one process, and in two."""
    config = replace(small_run(), steps=RANK_STEPS, warmup_steps=RANK_STEPS, **QUIET)
    with TemporaryDirectory() as folder:
        alone = train.fit(train.start(config, Path(folder) / "one"))
        two = train.fit_on_ranks(replace(config, ranks=2), Path(folder) / "two")
    return {"1": [report.loss for report in alone.reports], "2": two.losses}


def main(wanted: list[str]) -> int:
    """Make the parts that are missing, of the wanted ones or of all."""
    runs = {
        "run": {"small": whole_run},
        "phases": {"small": phase_shares},
        "ranks": {"small": losses_on_ranks},
    }
    about = {"command": "python -m tools.home_runs"}
    record(FOUND, runs, seeds=(0,), wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
