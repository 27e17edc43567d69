"""Measure what chapter 40 tells of supervised fine-tuning: the runs that a page has no time for.

    python -m tools.runs.sft_runs [examples] [ways] [rates] [long]

fine-tunes the little model of the page again and again, and writes what it finds into
llmcourse_classroom/sft.json; a call that was cut short goes on with the runs that are missing.
What the model can do before is always measured.

examples  how many conversations it takes until the answers have the right form, and new ones.
ways      with more replay.
rates     all weights, those of the blocks, thin matrices without and with the embedding, replay, no
          mask: at five learning rates (with the embedding at two).
long      what becomes of the six kinds of tasks in a longer run.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch

from llmcourse import train
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train import Run
from llmcourse_labs.tuning import (
    Task,
    answers,
    fine_tuning,
    in_format,
    judge,
    make_tasks,
    sft_config,
)
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS
from llmcourse_labs.tuning.lora import add_low_rank
from llmcourse_labs.tuning.tune_config import TuneConfig
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "sft.json"
SEEDS = (0, 1, 2)

QUIET = {"sample_tokens": 1, "validate_every": 0, "checkpoint_every": 0, "sample_every": 0}
BASE_STEPS, BASE_BYTES = 150, 600_000
NUM_TESTS = 120
"""Tasks that a model is judged on, in wordings that it trains on; and as many in others."""

EXAMPLES = (8, 16, 32, 64, 256, 1024)
WAYS: dict[str, dict[str, Any]] = {
    "replay 0.2": {"replay": 0.2},
    "replay 0.5": {"replay": 0.5},
}
RATES: dict[str, dict[str, Any]] = {
    "all weights": {"learning_rate": (3e-4, 1e-3, 2e-3, 4e-3, 1e-2)},
    "blocks alone": {"blocks_alone": True, "learning_rate": (3e-4, 1e-3, 2e-3, 4e-3, 1e-2)},
    "rank 4": {"lora_rank": 4, "learning_rate": (1e-3, 4e-3, 1e-2, 2e-2, 4e-2)},
    "rank 16": {"lora_rank": 16, "learning_rate": (1e-3, 4e-3, 1e-2, 2e-2, 4e-2)},
    "rank 16, embedding": {
        **{"lora_rank": 16, "embedding": True},
        "learning_rate": (4e-3, 1e-2),
    },
    "replay 0.1": {"replay": 0.1, "learning_rate": (3e-4, 1e-3, 2e-3, 4e-3, 1e-2)},
    "no mask": {"learn_all": True, "learning_rate": (3e-4, 1e-3, 2e-3, 4e-3, 1e-2)},
}
"""Each way with its own rates: two ways at one rate say nothing of the ways."""
SHORT = {"steps": 100, "batch_size": 12, "learning_rate": 4e-3, "examples": 3_000}
SMALL = {"steps": 150, "batch_size": 2, "learning_rate": 4e-3}
LONG = {"steps": 600, "batch_size": 12, "learning_rate": 5e-3, "examples": 20_000, "replay": 0.1}
LONG_EVERY = 100


def base(folder: str | Path) -> Run:
    """Train the model that all runs begin with: the one of the page."""
    config = train.PRESETS["stories"]().replace(steps=BASE_STEPS, corpus_bytes=BASE_BYTES, **QUIET)
    return train.fit(train.start(config, folder)).run


def tests(*, held_out: bool) -> list[Task]:
    """Return tasks that no run trains on, but for chance; the same for all runs."""
    return make_tasks(NUM_TESTS, seed=1_000, held_out=held_out)


def measured(run: Run) -> dict[str, Any]:
    """Judge a model on tasks, and measure its loss on answers and on stories."""
    found: dict[str, Any] = {}
    run.model.eval()
    for name, held_out in (("seen", False), ("new", True)):
        told = judge(run.model, run.prepared.tokenizer, tests(held_out=held_out))
        found[f"format {name}"] = round(told.in_format, 4)
        found[f"right {name}"] = round(told.right, 4)
        found[f"kinds {name}"] = {kind: round(share, 4) for kind, share in told.by_kind.items()}
    run.model.train()
    validation = train.validate(run)
    found["loss"] = round(validation.nats_per_token, 4)
    found["kept"] = round(validation.by_source["kept"], 4)
    return found


def tuned(
    start: Path,
    seed: int,
    on_step: Callable[..., None] | None = None,
    *,
    blocks_alone: bool = False,
    embedding: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Fine-tune, and measure what came out.

    With `blocks_alone` the embedding stays but for the rows of the chat tokens, as with LoRA; with
    `embedding` LoRA learns all of its rows.
    """
    adapt = with_embedding if embedding else fine_tuning.adapt
    with TemporaryDirectory() as folder, mock.patch.object(fine_tuning, "adapt", adapt):
        config = sft_config(start, seed=seed, **QUIET, **settings)
        run = train.start(config, Path(folder) / "run")
        learnt = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
        if blocks_alone:
            ids = [run.prepared.tokenizer.special_tokens[token] for token in CHAT_TOKENS]
            new_V1 = torch.zeros(run.config.model.vocab_size, 1)
            new_V1[ids] = 1
            run.model.embedding.register_hook(lambda grad_VD: grad_VD * new_V1)
        train.fit(run, on_step=on_step)
        return measured(run) | {"by heart seen": by_heart(run), "learnt": learnt}


def with_embedding(config: TuneConfig, model: Transformer, tokenizer: Tokenizer) -> None:
    """Let a model learn by thin matrices, and every row of its embedding, the head."""
    generator = torch.Generator().manual_seed(config.seed + 3)
    rows = range(tokenizer.vocab_size)
    add_low_rank(model, config.lora_rank, generator=generator, new_ids=rows)


def by_heart(run: Run) -> float:
    """Return the share, of answers in the right form, of those that were trained on."""
    asked = tests(held_out=False)
    run.model.eval()
    said = answers(run.model, run.prepared.tokenizer, asked)
    run.model.train()
    assert isinstance(run.config, TuneConfig)
    trained = {task.answer for task in make_tasks(run.config.text.examples, seed=run.config.seed)}
    formed = [
        text.strip() in trained
        for task, text in zip(asked, said, strict=True)
        if in_format(task, text)
    ]
    return round(mean(formed), 4) if formed else 0.0


def untuned(start: Path) -> dict[str, Any]:
    """Measure the model before it is fine-tuned, with the chat tokens that it has not met."""
    with TemporaryDirectory() as folder:
        return measured(train.start(sft_config(start, **QUIET | SHORT), Path(folder) / "run"))


def curve(start: Path, seed: int) -> list[dict[str, Any]]:
    """Fine-tune for longer, and measure on the way."""
    found = []

    def on_step(run: Run, report: Any) -> None:
        if report.step % LONG_EVERY == 0 and report.step < run.config.steps:
            found.append({"step": report.step} | measured(run))

    last = tuned(start, seed, on_step, **LONG)
    return [*found, {"step": LONG["steps"]} | last]


def parts(start: Path) -> Runs:
    """Return every run by part and name; each is made for a seed."""
    return {
        "examples": {
            str(n): lambda seed, n=n: tuned(start, seed, examples=n, **SMALL) for n in EXAMPLES
        },
        "ways": {
            name: lambda seed, way=way: tuned(start, seed, **SHORT | way)
            for name, way in WAYS.items()
        },
        "rates": {
            f"{name} at {rate:g}": lambda seed, way=way | {"learning_rate": rate}: tuned(
                start, seed, **SHORT | way
            )
            for name, way in RATES.items()
            for rate in way["learning_rate"]
        },
        "long": {"": lambda seed: curve(start, seed)},
    }


# --- the command

ABOUT = {
    "command": "python -m tools.runs.sft_runs",
    "tests": NUM_TESTS,
    "base": {"steps": BASE_STEPS, "bytes": BASE_BYTES},
    "settings": {"examples": SMALL, "ways": SHORT, "rates": SHORT, "long": LONG},
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make the runs that are missing, of the wanted parts or of all."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        start = Path(folder) / "base"
        base(start)
        once = {"before": {"": lambda _seed: untuned(start)}}
        record(FOUND, once, seeds=SEEDS[:1], wanted=(), about=ABOUT)
        record(FOUND, parts(start), seeds=SEEDS, wanted=wanted, about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
