"""Record the runs that lie behind those in the page, and what the home page tells of them.

    python -m tools.runs.live_runs [run] [phases] [ranks]

writes what it finds into llmcourse_classroom/live.json; a call that was cut short goes on with what
is missing.

run     of "small", the 135 k weights of the home page, and of "chapter 01", the loop that its page
        prints, 354 k weights: losses of every step, samples, the merges of the tokenizer, and the
        floor under the loss.
phases  the share of every phase in the time of a step of the small run.
ranks   the first losses of the small run in one process, and in two that share every batch.

The cards of other phases take their numbers from other recorded files: see book/_ext/home.py.
"""

import itertools
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from llmcourse import nutshell, train
from llmcourse.base import runtime
from llmcourse.data import corpus
from llmcourse.data.tokenizer.files import spell
from llmcourse_classroom.measured import phases_of_step
from llmcourse_classroom.widgets.live import small_run
from tools.runs.recording import record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "live.json"
QUIET = {"sample_every": 0, "validate_every": 0}
"""Settings of every run: nothing but steps."""
SAMPLES_AT = (1, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
SAMPLE_TOKENS = 60
TIMED_AT = 20
"""Step after which the phases are measured."""
RANK_STEPS = 12
"""Steps of the comparison of one process with two."""


def small(_seed: int, steps: int = 400) -> dict[str, Any]:
    """Do the run of the home page, or its first steps, and return what is shown of it."""
    samples = {}

    def look(run: train.Run, report: train.StepReport) -> None:
        if report.step in SAMPLES_AT:
            samples[report.step] = train.sample(run)

    with TemporaryDirectory() as folder:
        config = small_run().replace(sample_tokens=SAMPLE_TOKENS, **QUIET)
        run = train.start(config, Path(folder) / "run")
        fitted = train.fit(run, on_step=look, interrupted=lambda: run.steps_done >= steps)
    losses = [report.loss for report in fitted.reports]
    return shown(run.model, run.prepared.tokenizer, losses, samples)


def chapter(_seed: int, steps: int = 300) -> dict[str, Any]:
    """Do the run that chapter 01 prints, or its first steps, draw for draw."""
    runtime.set_up(num_threads=1, seed=0)
    text = corpus.stories(num_bytes=2_000_000, seed=0)
    tokenizer = nutshell.Tokenizer(nutshell.learn_merges(text, 768))
    torch.manual_seed(0)
    model = nutshell.Llama(nutshell.Config())
    optimizer = nutshell.AdamW(model)
    drawn = nutshell.batches(torch.tensor(tokenizer.encode(text)), 12, 96)
    (hungry,) = tokenizer.encode(" hungry")
    first = next(batch for batch in drawn if (batch[1] == hungry).sum() == 1)
    losses, samples = [], {}
    for loss in nutshell.train(model, optimizer, itertools.chain([first], drawn), 300):
        losses.append(loss)
        if optimizer.t in SAMPLES_AT:
            samples[optimizer.t] = written(model, tokenizer)
        if optimizer.t == steps:
            break
    return shown(model, tokenizer, losses, samples)


@torch.no_grad()
def written(model: nutshell.Llama, tokenizer: nutshell.Tokenizer) -> str:
    """Let the model of chapter 01 write, as its page does."""
    chance, ids = torch.Generator().manual_seed(5), torch.tensor([[tokenizer.end]])
    while ids.shape[1] <= SAMPLE_TOKENS:
        probabilities = nutshell.softmax(model(ids)[:, -1])
        ids = torch.cat([ids, torch.multinomial(probabilities, 1, generator=chance)], dim=1)
    return tokenizer.decode(ids[0, 1:].tolist())


def shown(
    model: torch.nn.Module, tokenizer: Any, losses: list[float], samples: dict[int, str]
) -> dict[str, Any]:
    """Return what a page shows of a run."""
    held_out = corpus.stories(120_000, seed=1)
    per_token = len(held_out.encode()) / len(tokenizer.encode(held_out))
    return {
        "weights": sum(weight.numel() for weight in model.parameters()),
        "losses": [round(loss, 4) for loss in losses],
        "samples": {str(step): text for step, text in samples.items()},
        "merges": [f"{spell(a)} {spell(b)}" for a, b in tokenizer.merges],
        "floor": round(corpus.stories_entropy() * per_token * math.log(2), 4),
    }


def phase_shares(_seed: int) -> dict[str, float]:
    """Return the share of every phase in the time of a step."""
    with TemporaryDirectory() as folder:
        run = train.start(small_run().replace(**QUIET), Path(folder) / "run")
        train.fit(run, interrupted=lambda: run.steps_done >= TIMED_AT)
        found = phases_of_step(run, repeats=15)
    return {phase["name"]: round(phase["share"], 4) for phase in found}


def losses_on_ranks(_seed: int) -> dict[str, list[float]]:
    """Return the first losses in one process, and in two."""
    config = small_run().replace(steps=RANK_STEPS, warmup_steps=RANK_STEPS, **QUIET)
    with TemporaryDirectory() as folder:
        alone = train.fit(train.start(config, Path(folder) / "one"))
        two = train.fit_on_ranks(config.replace(ranks=2), Path(folder) / "two")
    return {"1": [report.loss for report in alone.reports], "2": two.losses}


def main(wanted: list[str]) -> int:
    """Make the parts that are missing, of the wanted ones or of all."""
    runs = {
        "run": {"small": small, "chapter 01": chapter},
        "phases": {"small": phase_shares},
        "ranks": {"small": losses_on_ranks},
    }
    about = {"command": "python -m tools.runs.live_runs"}
    record(FOUND, runs, seeds=(0,), wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
