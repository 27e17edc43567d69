"""Measure what chapter 29 tells of muP: the best learning rate of four widths, with three seeds.

    python -m tools.mup_runs [standard] [mup]

trains a Llama of one layer on stories at each width and rate, and writes the losses on held-out
stories into llmcourse/course/mup.json; a call that was cut short goes on with what is missing.

standard  the course's initialisation, and one rate for all weights.
mup       start values and rates scaled from width BASE by `optim.mup_start` and `optim.mup_groups`;
          at width BASE the two are the same run, which is not made twice.
"""

import sys
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from llmcourse import loss, optim
from llmcourse.base import runtime
from llmcourse.data import corpus, tokenizer
from llmcourse.model import ModelConfig, Transformer
from tools.recording import Runs, record

FOUND = Path(__file__).resolve().parents[1] / "llmcourse" / "course" / "mup.json"
SEEDS = (0, 1, 2)
BASE = 32
WIDTHS = (32, 64, 128, 256)
RATES = {
    "standard": tuple(2.0**-k for k in range(10, 3, -1)),
    "mup": tuple(2.0**-k for k in range(10, 3, -1)),
}
STEPS, WARMUP, BATCH_SIZE, LENGTH = 150, 15, 16, 32
VOCAB_SIZE, TEXT_BYTES, HELD_OUT_BYTES = 300, 1_000_000, 60_000


@cache
def tokens(num_bytes: int, seed: int) -> Tensor:
    """Return the tokens of some stories."""
    words = tokenizer.train_bpe([corpus.stories(100_000, seed=0)], VOCAB_SIZE, [corpus.END_OF_TEXT])
    return torch.tensor(words.encode(corpus.stories(num_bytes, seed=seed)))


def new_model(width: int, seed: int) -> Transformer:
    """Return a model of one layer: all sizes but those of a head and the vocabulary grow."""
    shape = ModelConfig(
        num_layers=1,
        width=width,
        num_heads=width // 16,
        num_kv_heads=width // 16,
        head_size=16,
        hidden=3 * width,
        vocab_size=VOCAB_SIZE,
        context_length=LENGTH,
        tied_head=False,
    )
    return Transformer(shape, generator=runtime.generator(seed))


def run(rule: str, width: int, rate: float, seed: int, *, steps: int = STEPS) -> float:
    """Train with a warm-up and a cosine; return nats per token on held-out stories."""
    m = width / BASE if rule == "mup" else 1
    model = new_model(width, seed)
    optim.mup_start(model, m=m)
    optimizer = optim.AdamW(optim.mup_groups(model, lr=rate, m=m), lr=rate, weight_decay=0.0)
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
    held = tokens(HELD_OUT_BYTES, 1)[: 512 * LENGTH + 1]
    with torch.no_grad():
        logits = model(held[:-1].view(-1, LENGTH))
        return round(loss.token_losses(logits, held[1:].view(-1, LENGTH)).mean().item(), 4)


def runs() -> Runs:
    """Return every run: part by rule, named by width and the exponent of its rate."""
    return {
        rule: {
            f"{width} {rate:.3g}": partial(run, rule, width, rate)
            for width in WIDTHS
            for rate in RATES[rule]
            if rule == "standard" or width > BASE
        }
        for rule in RATES
    }


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all that are missing."""
    settings = {
        "base": BASE, "widths": WIDTHS, "steps": STEPS, "batch": BATCH_SIZE, "length": LENGTH
    }  # fmt: skip
    record(FOUND, runs(), seeds=SEEDS, wanted=wanted, about={"settings": settings})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
