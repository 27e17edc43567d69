"""The stages after pre-training: answers (SFT), and which of two answers is better (DPO)."""

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.base.files import write_atomically
from llmcourse.train import fit, resume, start
from llmcourse.train.sampling import load
from llmcourse.train.saved import config_and_checkpoint, require_run
from llmcourse_labs.capstone.stage import Artifact, StageFolder
from llmcourse_labs.capstone.training import InterruptedEarlyError, Watch, facts_of, weights_files
from llmcourse_labs.tuning import (
    PreferenceLoss,
    fit_preferences,
    pair_log_probs,
    pair_rows,
    preference_pairs,
)
from llmcourse_labs.tuning.fine_tuning import settings_of_start

TASKS: dict[str, Any] = {"kinds": ("next",), "difficulties": (1, 2)}
"""What pairs of answers are about."""

HELD_OUT_PAIRS = 200
"""Pairs of which no step learns."""


def fine_tune(place: StageFolder) -> Artifact:
    """Fine-tune the pre-trained model on answers, in one process."""
    run = place.folder / "run"
    settings = settings_of_start(place.before["train"] / "run")
    config = place.config.sft.replace(**settings)
    watch = Watch(run, config, place)
    with watch.watching():
        try:
            require_run(run)
        except ValueError:
            begun = start(config, run)
        else:
            begun = resume(run)
        result = fit(begun)
    if result.interrupted:
        raise InterruptedEarlyError
    watch.say("ended")
    facts = facts_of(run)
    return Artifact(facts, [*weights_files(run), *(run / "data" / "tokenizer").glob("*")])


def prefer(place: StageFolder) -> Artifact:
    """Move the fine-tuned model towards the answers that a judge prefers."""
    settings, seed, before = place.config.dpo, place.config.seed, place.before["sft"] / "run"
    policy, tokenizer = load(before)
    runtime.set_up(seed=seed)
    about = {**TASKS, "temperature": settings.temperature}
    # The parts have no task in common, so the held-out pairs are new in their words, too.
    pairs = preference_pairs(settings.pairs, seed=seed, part="training", **about)
    held_out = preference_pairs(HELD_OUT_PAIRS, seed=seed + 1, part="test", **about)
    learnt, asked = (pair_rows(each, tokenizer) for each in (pairs, held_out))
    rows: list[dict[str, float]] = []

    def on_step(step: int, found: PreferenceLoss) -> None:
        row = {"loss": found.losses_B.mean().item(), "margin": found.margins.mean().item()}
        rows.append({"step": step, **row})
        place.log("step", stage="dpo", step=step, loss=round(row["loss"], 4))

    # DPO measures from the model before the first step, and so does the test at the end.
    reference = copy.deepcopy(policy)
    fit_preferences(
        policy.train(),
        reference,
        learnt,
        replace(settings.fit, seed=seed),
        beta=settings.beta,
        on_step=on_step,
    )
    run = save_as_run(policy.state_dict(), before, place.folder / "run", rows)
    # By how many nats each answer to the held-out pairs has become likelier: chosen, rejected.
    moved_N2 = pair_log_probs(policy, asked) - pair_log_probs(reference, asked)
    facts = {
        "steps": settings.steps,
        "pairs": len(pairs),
        # The judge draws; where the margin is negative it has drawn the worse answer.
        "pairs on which the judge erred": sum(pair.margin < 0 for pair in pairs),
        "held-out pairs": len(held_out),
        "moved as the judge wants": int((moved_N2[:, 0] > moved_N2[:, 1]).sum()),
        "losses": [row["loss"] for row in rows],
        "weights": runtime.fingerprint(policy.state_dict()),
    }
    return Artifact(facts, [*weights_files(run), *(run / "data" / "tokenizer").glob("*")])


def save_as_run(model: dict[str, Any], before: Path, run: Path, rows: list[dict[str, Any]]) -> Path:
    """Write weights as a folder that llmcourse sample, chat, evaluate and export read.

    Args:
        model: the weights.
        before: the run that they were made from, whose settings and tokenizer they keep.
        run: the folder.
        rows: of its metrics, one for each step.
    """
    config, saved = config_and_checkpoint(before)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(before / "data" / "tokenizer", run / "data" / "tokenizer")
    shutil.copy(before / "config.json", run / "config.json")
    with write_atomically(run / "metrics.jsonl") as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
    checkpoints.save(
        run / "checkpoints", step=saved.step, keep_last=1, model=model, config=config.flat()
    )
    return run
