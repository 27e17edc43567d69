"""Measure what chapter 29 tells of muP: the best learning rate of four widths, with three seeds.

    python -m tools.runs.mup_runs [standard] [mup]

trains a Llama of one layer on the openings of stories of that chapter at each width and rate, and
writes the losses on openings that no run reads into llmcourse_classroom/mup.json; a call that was
cut short goes on with what is missing.

standard  the course's initialisation, and one rate for all weights.
mup       narrow copies of the model of width TARGET, by `study.mup_start` and `study.mup_groups`;
          at width TARGET itself the two are the same run, which is not made twice.
"""

import re
import sys
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from llmcourse import loss, optim
from llmcourse.base import runtime
from llmcourse.data import corpus
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs import study
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "mup.json"
SEEDS = (0, 1, 2)
TARGET = 128
WIDTHS = (16, 32, 64, TARGET)
RATES = tuple(2.0**-k for k in range(9, 2, -1))
STEPS, WARMUP, BATCH_SIZE, LENGTH = 120, 12, 16, 32
TEXT_BYTES, HELD_OUT_BYTES = 1_500_000, 300_000


@cache
def openings(num_bytes: int, seed: int) -> list[str]:
    """Return the words and marks of chapter 29's text: two sentences of a story, He or She."""
    told = corpus.stories(num_bytes, seed).split(corpus.END_OF_TEXT)
    begun = ["".join(re.findall(r"[^.!?]*[.!?]", story)[:2]) for story in told]
    kept = "|".join(text for text in begun if re.search(r"\. (He|She) ", text))
    return re.findall(r"\w+|[^\w\s]", kept)


@cache
def vocabulary() -> dict[str, int]:
    """Return the number of every word and mark of the training text."""
    return {word: i for i, word in enumerate(sorted(set(openings(TEXT_BYTES, 0))))}


@cache
def tokens(num_bytes: int, seed: int) -> Tensor:
    """Return the tokens of some openings."""
    return torch.tensor([vocabulary()[word] for word in openings(num_bytes, seed)])


def new_model(width: int, seed: int) -> Transformer:
    """Return a model of one layer: all sizes but those of a head and the vocabulary grow."""
    shape = ModelConfig(
        num_layers=1,
        width=width,
        num_heads=width // 16,
        num_kv_heads=width // 16,
        head_size=16,
        hidden=3 * width,
        vocab_size=len(vocabulary()),
        context_length=LENGTH,
        tied_head=False,
    )
    return Transformer(shape, generator=runtime.generator(seed))


def run(rule: str, width: int, rate: float, seed: int, *, steps: int = STEPS) -> float:
    """Train with a warm-up and a cosine; return nats per token on held-out stories."""
    m = width / TARGET if rule == "mup" else 1
    model = new_model(width, seed)
    study.mup_start(model, m=m)
    optimizer = optim.AdamW(study.mup_groups(model, lr=rate, m=m), lr=rate, weight_decay=0.0)
    rates = [group["lr"] for group in optimizer.param_groups]
    ids, drawn = tokens(TEXT_BYTES, 0), runtime.generator(seed + 100)
    for step in range(STEPS)[:steps]:
        part = optim.warmup_cosine(step, peak=1.0, num_steps=STEPS, warmup_steps=WARMUP, final=0.05)
        for group, lr in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = lr * part
        starts = torch.randint(len(ids) - LENGTH - 1, (BATCH_SIZE, 1), generator=drawn)
        rows = ids[starts + torch.arange(LENGTH + 1)]
        loss.cross_entropy(model(rows[:, :-1]), rows[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    held = tokens(HELD_OUT_BYTES, 1)[: 256 * LENGTH + 1]
    with torch.no_grad():
        logits = model(held[:-1].view(-1, LENGTH))
        return round(loss.token_losses(logits, held[1:].view(-1, LENGTH)).mean().item(), 4)


def runs() -> Runs:
    """Return every run: part by rule, named by width and the exponent of its rate."""
    return {
        rule: {
            f"{width} {rate:.3g}": partial(run, rule, width, rate)
            for width in WIDTHS
            for rate in RATES
            if rule == "standard" or width < TARGET
        }
        for rule in ("standard", "mup")
    }


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all that are missing."""
    settings = {"target": TARGET, "widths": WIDTHS, "rates": RATES, "steps": STEPS}
    about = {"command": "python -m tools.runs.mup_runs", "settings": settings}
    record(FOUND, runs(), seeds=SEEDS, wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
