"""Measure what chapter 07 tells of mixtures: the runs that take longer than a page may.

    python -m tools.runs.mixture_runs [triangle] [repeats] [anneal] [held]

trains the nutshell's Llama on stories, Python's own library and presidential addresses, always on
the same number of tokens, and writes what it finds into llmcourse_classroom/mixture.json:

triangle  mixtures of the three sources, from each alone to all together; some are held out, for a
          law that the others give to predict.
repeats   a part of the addresses, from a few pages to nearly all, read until its share is full.
anneal    the same windows of each source in another order: addresses spread evenly, late, or early.
held      two of these orders again, at a learning rate that is held until the last fifth.

Losses are means in nats per token, on documents that no run reads, one number for each seed.
"""

import platform
import random
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from llmcourse import nutshell
from llmcourse.data import TokenShards, corpus, write_shards
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.mixture import MixedBatches, MixtureStage
from llmcourse.optim import warmup_stable_decay
from tools.runs.curation_runs import mean_loss
from tools.runs.recording import record_parts

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "mixture.json"
SEEDS = (0, 1, 2)
SOURCES = ("stories", "code", "addresses")

NUM_STEPS, BATCH_SIZE, LENGTH = 300, 16, 96
"""Of every run: 460,800 tokens are read, in about 12 seconds of one processor."""
NUM_LAYERS, PEAK, WARMUP = 1, 6e-3, 40
"""Of the model, and of its learning rate: small, so that each mixture has three seeds."""
TOKENS = NUM_STEPS * BATCH_SIZE * LENGTH

DOCUMENT_BYTES = 6_000
"""Only the beginning of a file or an address is taken, so that many are in a small text."""
TRAINING_BYTES, HELD_OUT_BYTES = 1_600_000, 60_000
"""Of each source, or all that there is; no source is read twice unless a run is about that."""
VOCAB_SIZE, TOKENIZER_BYTES = 768, 150_000
"""Of the tokenizer, and of its training text from each source."""


class Texts(NamedTuple):
    """Documents of a source."""

    training: list[str]
    held_out: list[str]


def first(documents: Iterable[str], num_bytes: int) -> list[str]:
    """Return as many documents from the beginning as fill a number of bytes."""
    taken, size = [], 0
    for document in documents:
        if size >= num_bytes:
            break
        taken.append(document)
        size += len(document.encode())
    return taken


@cache
def texts(source: str) -> Texts:
    """Return the documents of a source, those that are held out apart from the others."""
    if source == "stories":
        training, held_out = (
            corpus.stories(size, seed).split(END_OF_TEXT)[:-1]
            for seed, size in enumerate((TRAINING_BYTES, HELD_OUT_BYTES))
        )
        known = set(training)
        return Texts(training, [story for story in held_out if story not in known])
    whole = corpus.python_source() if source == "code" else corpus.sotu_split()[0]
    documents = [each.text[:DOCUMENT_BYTES] for each in whole if each.text.strip()]
    # Equal files, such as two empty classes, would be on both sides.
    documents = list(dict.fromkeys(documents))
    random.Random(0).shuffle(documents)
    held_out = first(documents, HELD_OUT_BYTES)
    return Texts(first(documents[len(held_out) :], TRAINING_BYTES), held_out)


@cache
def tokenizer() -> nutshell.Tokenizer:
    """Return the tokenizer of all runs, trained on as much of each source."""
    parts = [text for name in SOURCES for text in first(texts(name).training, TOKENIZER_BYTES)]
    return nutshell.Tokenizer(nutshell.learn_merges(END_OF_TEXT.join(parts), VOCAB_SIZE))


def encoded(documents: list[str]) -> np.ndarray:
    """Return the tokens of documents, each with its end."""
    return np.array(tokenizer().encode("".join(text + END_OF_TEXT for text in documents)))


@cache
def training_tokens(source: str) -> np.ndarray:
    """Return what runs read of a source."""
    return encoded(texts(source).training)


@cache
def held_out_tokens(source: str) -> torch.Tensor:
    """Return what the loss on a source is measured on."""
    return torch.from_numpy(encoded(texts(source).held_out))


def trained(
    stages: list[MixtureStage],
    seed: int,
    *,
    part: np.ndarray | None = None,
    num_steps: int = NUM_STEPS,
    held: bool = False,
) -> nutshell.Llama:
    """Train the nutshell's Llama on a mixture, of whose addresses a part may be all there is.

    The learning rate is that of `nutshell.train`, or is held until the last fifth.
    """
    names = {name for stage in stages for name in stage.shares}
    with TemporaryDirectory() as folder:
        sources = {}
        for name in SOURCES:
            if name in names:
                cut = name == "addresses" and part is not None
                tokens = part if cut else training_tokens(name)
                told = {"tokenizer_fingerprint": "mixture runs", "vocab_size": VOCAB_SIZE}
                write_shards(tokens, f"{folder}/{name}", **told)
                sources[name] = TokenShards(f"{folder}/{name}")
        drawn = MixedBatches(
            sources, stages, batch_size=BATCH_SIZE, context_length=LENGTH, seed=seed
        )
        torch.manual_seed(seed)
        model = nutshell.Llama(nutshell.Config(num_layers=NUM_LAYERS))
        optimizer = nutshell.AdamW(model)
        if held:
            last = {"warmup_steps": WARMUP, "decay_steps": num_steps // 5, "final": PEAK / 20}
            for step, (ids, targets) in zip(range(num_steps), drawn, strict=False):
                nutshell.cross_entropy(model(ids), targets).backward()
                nutshell.clip([w.grad for w in model.parameters()], max_norm=1.0)
                rate = warmup_stable_decay(step, peak=PEAK, num_steps=num_steps, **last)
                optimizer.step(rate)
        else:
            for _ in nutshell.train(model, optimizer, drawn, num_steps, peak=PEAK, warmup=WARMUP):
                pass
    return model


def losses_of(model: nutshell.Llama) -> dict[str, float]:
    """Return the loss of a model on each source."""
    return {name: round(mean_loss(model, held_out_tokens(name)), 4) for name in SOURCES}


# --- mixtures


class Mixture(NamedTuple):
    """One point of the triangle."""

    shares: tuple[float, float, float]
    """Of stories, code and addresses."""
    num_seeds: int
    held_out: bool = False
    """Not for the fit of a law: for its test."""


MIXTURES = (
    Mixture((1, 0, 0), 3),
    # The edge of code and addresses, which a chapter compares.
    Mixture((0, 1, 0), 3),
    Mixture((0, 0.9, 0.1), 3),
    Mixture((0, 0.75, 0.25), 3, held_out=True),
    Mixture((0, 0.5, 0.5), 3),
    Mixture((0, 0.25, 0.75), 3),
    Mixture((0, 0.1, 0.9), 3),
    Mixture((0, 0, 1), 3),
    Mixture((0.334, 0.333, 0.333), 3),
    Mixture((0.6, 0.2, 0.2), 3),
    Mixture((0.2, 0.6, 0.2), 3),
    Mixture((0.2, 0.2, 0.6), 3),
    Mixture((0.8, 0.1, 0.1), 3),
    Mixture((0.1, 0.8, 0.1), 3),
    Mixture((0.1, 0.1, 0.8), 3),
    Mixture((0.45, 0.45, 0.1), 3),
    Mixture((0.45, 0.1, 0.45), 3),
    Mixture((0.1, 0.45, 0.45), 3),
    Mixture((0.2, 0.5, 0.3), 3, held_out=True),
    Mixture((0.5, 0.3, 0.2), 3, held_out=True),
)


def triangle_run(
    shares: tuple[int | float, ...], seed: int, num_steps: int = NUM_STEPS
) -> dict[str, float]:
    """Train on a mixture; return the loss on each source."""
    of = {name: float(share) for name, share in zip(SOURCES, shares, strict=True) if share}
    return losses_of(trained([MixtureStage(0, of)], seed, num_steps=num_steps))


def triangle() -> dict[str, Any]:
    """Make the runs of all mixtures."""
    rows = [
        {"shares": list(m.shares), "held_out": m.held_out, "losses": {n: [] for n in SOURCES}}
        for m in MIXTURES
    ]
    for seed in SEEDS:
        for mixture, row in zip(MIXTURES, rows, strict=True):
            if seed < mixture.num_seeds:
                for name, loss in triangle_run(mixture.shares, seed).items():
                    row["losses"][name].append(loss)
                print(f"triangle, seed {seed}: {row}", flush=True)
    return {"sources": list(SOURCES), "tokens": TOKENS, "mixtures": rows}


# --- a part that is read again

PARTS = (2_000, 8_000, 32_000, 128_000, 500_000)
"""Tokens of addresses that a run knows; of the last it reads less than it knows."""
REPEATED_SHARES = (0.5,)
"""Of addresses; the rest is code."""


def repeats_run(
    num_tokens: int, share: float, seed: int, num_steps: int = NUM_STEPS
) -> dict[str, float]:
    """Train on code and a part of the addresses; return the losses, that on the part first."""
    documents = texts("addresses").training
    part = encoded(random.Random(seed).sample(documents, len(documents)))[:num_tokens]
    stage = MixtureStage(0, {"code": round(1 - share, 3), "addresses": share})
    model = trained([stage], seed, part=part, num_steps=num_steps)
    seen = torch.from_numpy(part[: len(held_out_tokens("addresses"))])
    return {"the part": round(mean_loss(model, seen), 4), **losses_of(model)}


def repeats() -> dict[str, Any]:
    """Make the runs with each part, at each share."""
    rows = []
    for share in REPEATED_SHARES:
        for num_tokens in PARTS:
            runs = [repeats_run(num_tokens, share, seed) for seed in SEEDS]
            windows = (num_tokens - 1) // LENGTH
            row = {
                "share": share,
                "tokens": num_tokens,
                "epochs": round(share * NUM_STEPS * BATCH_SIZE / windows, 4),
                "losses": {n: [run[n] for run in runs] for n in ("the part", "addresses", "code")},
            }
            rows.append(row)
            print(f"repeats: {row}", flush=True)
    return {"tokens": TOKENS, "runs": rows}


# --- when a source is read

EVEN = {"stories": 0.4, "code": 0.4, "addresses": 0.2}
MUCH = {"stories": 0.2, "code": 0.2, "addresses": 0.6}
LITTLE = {"stories": 0.45, "code": 0.45, "addresses": 0.1}
"""Four fifths of a run with little addresses and one with much make EVEN."""


def orders(num_steps: int = NUM_STEPS) -> dict[str, list[MixtureStage]]:
    """Return the orders in which the same windows of each source are read."""
    fifth = num_steps // 5
    return {
        "even": [MixtureStage(0, EVEN)],
        "late": [MixtureStage(0, LITTLE), MixtureStage(num_steps - fifth, MUCH)],
        "early": [MixtureStage(0, MUCH), MixtureStage(fifth, LITTLE)],
    }


def anneal(names: Iterable[str] = ("even", "late", "early"), held: bool = False) -> dict[str, Any]:
    """Make the runs of some orders."""
    found = {}
    for name in names:
        stages = orders()[name]
        runs = [losses_of(trained(stages, seed, held=held)) for seed in SEEDS]
        found[name] = {
            "stages": [[stage.step, stage.shares] for stage in stages],
            "losses": {source: [run[source] for run in runs] for source in SOURCES},
        }
        print(f"anneal, {name}: {found[name]}", flush=True)
    return {"tokens": TOKENS, "orders": found}


# --- the command

PARTS_OF_THE_FILE = {
    "triangle": triangle,
    "anneal": anneal,
    "held": lambda: anneal(("even", "late"), held=True),
    "repeats": repeats,
}


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all."""
    about = {
        "command": "python -m tools.runs.mixture_runs",
        # Python's library, one of the sources, differs between versions.
        "python": platform.python_version(),
    }
    record_parts(FOUND, PARTS_OF_THE_FILE, wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
