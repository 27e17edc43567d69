"""Measure what chapter 36 tells of long context: the runs that take longer than a page may.

    python -m tools.runs.context_runs [needle] [stories] [paper] [packing]

trains small Llamas and writes what it finds into llmcourse_classroom/context.json; a call that was
cut short goes on with the seeds that are missing.

needle   a layer learns on rows of 64 tokens to look facts up; rows up to 256, with each scaling of
         its rotations, before and after a short tune on rows of 256.
stories  the same with two layers and stories: the loss by the place in a row of 256.
paper    the models of stories again, with YaRN as its paper has it.
packing  stories in rows of 256: padded, packed with and without masks, on as many places.
"""

import json
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from llmcourse import loss, optim
from llmcourse.base import runtime
from llmcourse.base.files import write_atomically
from llmcourse.data import (
    Batches,
    PackedBatches,
    TokenShards,
    corpus,
    one_per_row,
    packed_rows,
    write_shards,
)
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.model import ModelConfig, Transformer, stories
from llmcourse.model.attention import RopeScaling, document_mask
from llmcourse_labs.evaluate import needle_rows, needle_tests
from llmcourse_labs.evaluate.needles import NEEDLE_VOCAB

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "context.json"
SEEDS = {"needle": (0, 1, 2, 3), "stories": (0, 1, 2), "paper": (0, 1, 2), "packing": (0, 1, 2)}

TRAINED, WANTED = 64, 256
"""Tokens of the rows that are trained on, and of those that are wanted."""
FACTOR = WANTED / TRAINED
SCALINGS: dict[str, RopeScaling | None] = {
    "none": None,
    "linear": RopeScaling(kind="linear", factor=FACTOR),
    "ntk": RopeScaling(kind="ntk", factor=FACTOR),
    "yarn": RopeScaling(kind="yarn", factor=FACTOR, original_length=TRAINED),
    "llama3": RopeScaling(kind="llama3", factor=FACTOR, original_length=TRAINED),
}
PAPER = RopeScaling(kind="llama3", factor=FACTOR, original_length=TRAINED, high_freq_factor=32.0)
"""The speeds of YaRN's paper: those of Llama 3.1 with another limit.  The kind "yarn" has the ramp
of the authors' code."""
SHARPER = RopeScaling(kind="yarn", factor=FACTOR, original_length=TRAINED).attention_factor
"""YaRN's longer rotations, which sharpen the scores."""
TUNE_STEPS = 50
"""Of the short tune, at a tenth of the learning rate; a step reads as many tokens as before."""


class Batch(NamedTuple):
    """What a step reads."""

    ids_BT: Tensor
    targets_BT: Tensor
    apart: dict[str, Tensor]
    """Mask and positions of packed rows."""


def train(
    model: Transformer, batches: Iterator[Batch], num_steps: int, *, peak: float, warmup: int = 40
) -> None:
    """Train a model with AdamW, a warm-up and a cosine."""
    optimizer = optim.AdamW(optim.decay_groups(model, weight_decay=0.1), lr=peak, betas=(0.9, 0.95))
    for step in range(num_steps):
        batch = next(batches)
        rate = optim.warmup_cosine(
            step, peak=peak, num_steps=num_steps, warmup_steps=warmup, final=peak / 10
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model(batch.ids_BT, **batch.apart)
        optimizer.zero_grad()
        loss.cross_entropy(logits, batch.targets_BT).backward()
        optim.clip_by_global_norm(model.parameters(), 1.0)
        optimizer.step()


def scaled(model: Transformer, scaling: RopeScaling | None) -> Transformer:
    """Return a model with the same weights and scaled rotations."""
    copy = Transformer(replace(model.config, rope_scaling=scaling))
    copy.load_state_dict(model.state_dict())
    return copy


def with_each_scaling(
    model: Transformer,
    tuned: Callable[[Transformer], None],
    measured: Callable[[Transformer], list[Any]],
) -> dict[str, Any]:
    """Measure a model with each scaling, before and after a tune."""
    found: dict[str, Any] = {"untuned": {}, "tuned": {}}
    for name, scaling in SCALINGS.items():
        copy = scaled(model, scaling)
        found["untuned"][name] = measured(copy)
        tuned(copy)
        found["tuned"][name] = measured(copy)
    return found


# --- needles

NEEDLE_STEPS, NEEDLE_ROWS, NEEDLE_PEAK = 1_500, 32, 1e-2
LENGTHS, DEPTHS = (32, 64, 96, 128, 192, 256), tuple(i / 8 for i in range(9))
NUM_TESTS = 100
"""Rows of a length and a depth."""


def needle_model(seed: int) -> Transformer:
    """Return a model of one layer, which is enough to look a fact up."""
    config = ModelConfig(
        num_layers=1,
        width=64,
        num_heads=2,
        num_kv_heads=2,
        head_size=32,
        hidden=128,
        vocab_size=NEEDLE_VOCAB,
        context_length=WANTED,
        tied_head=False,
    )
    return Transformer(config, generator=runtime.generator(seed))


def needle_batches(length: int, seed: int) -> Iterator[Batch]:
    """Yield batches of one size, in rows of a length."""
    generator = runtime.generator(1_000 + seed)
    while True:
        rows = needle_rows(NEEDLE_ROWS * TRAINED // length, length, generator=generator)
        yield Batch(*rows, {})


@torch.no_grad()
def found_needles(model: Transformer) -> list[list[float]]:
    """Return the share of needles that are found, by length and by depth."""
    generator = runtime.generator(7)
    found = []
    for length in LENGTHS:
        found.append([])
        for depth in DEPTHS:
            rows = needle_tests(NUM_TESTS, length, depth, generator=generator)
            right = model(rows.ids_BT)[:, -1].argmax(-1) == rows.targets_BT[:, -1]
            found[-1].append(round(right.double().mean().item(), 2))
    return found


def trained_on_needles(seed: int, num_steps: int = NEEDLE_STEPS) -> Transformer:
    """Return a model that has learnt to look facts up in short rows."""
    model = needle_model(seed)
    train(model, needle_batches(TRAINED, seed), num_steps, peak=NEEDLE_PEAK)
    return model


def needle(seed: int) -> dict[str, Any]:
    """Find needles with each scaling."""

    def tuned(model: Transformer) -> None:
        batches = needle_batches(WANTED, 100 + seed)
        train(model, batches, TUNE_STEPS, peak=NEEDLE_PEAK / 10, warmup=5)

    return with_each_scaling(trained_on_needles(seed), tuned, found_needles)


# --- stories

STORY_STEPS, STORY_TOKENS, STORY_PEAK = 300, 1_536, 6e-3
"""Steps, tokens of a step, and largest learning rate."""
STORY_BYTES, HELD_OUT_BYTES = 1_600_000, 120_000
PLACES = 16
"""Places of a row whose losses are averaged."""


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of all runs."""
    return train_bpe([corpus.stories(400_000, seed=0)], stories().vocab_size, [END_OF_TEXT])


@cache
def tokens(num_bytes: int, seed: int) -> np.ndarray:
    """Return stories as tokens, each with its end."""
    return np.array(tokenizer().encode(corpus.stories(num_bytes, seed)))


def shards(folder: str) -> TokenShards:
    """Return the stories to train on."""
    told = {"tokenizer_fingerprint": "context runs", "vocab_size": stories().vocab_size}
    write_shards(tokens(STORY_BYTES, 0), folder, **told)
    return TokenShards(folder)


def story_model(seed: int) -> Transformer:
    """Return a model of two layers with room for long rows."""
    config = replace(stories(), num_layers=2, context_length=WANTED)
    return Transformer(config, generator=runtime.generator(seed))


def windows(folder: str, length: int, seed: int) -> Iterator[Batch]:
    """Yield windows of the stories, one after the other without regard to where they end."""
    for ids_BT, targets_BT in Batches(shards(folder), STORY_TOKENS // length, length, seed=seed):
        yield Batch(ids_BT, targets_BT, {})


@torch.no_grad()
def losses_by_place(model: Transformer) -> list[float]:
    """Return the loss at the places of a long row, in groups."""
    held_out = torch.from_numpy(tokens(HELD_OUT_BYTES, 1))
    count = (len(held_out) - 1) // WANTED
    ids_BT = held_out[: count * WANTED].view(count, WANTED)
    targets_BT = held_out[1 : count * WANTED + 1].view(count, WANTED)
    losses_BT = loss.token_losses(model(ids_BT), targets_BT)
    return [round(x, 4) for x in losses_BT.mean(0).view(-1, PLACES).mean(1).tolist()]


def trained_on_stories(seed: int) -> Transformer:
    """Return a model that has read stories in short rows."""
    model = story_model(seed)
    with TemporaryDirectory() as folder:
        train(model, windows(f"{folder}/a", TRAINED, seed), STORY_STEPS, peak=STORY_PEAK)
    return model


def tuned_on_stories(copy: Transformer, seed: int) -> None:
    """Tune a model on long rows of stories."""
    with TemporaryDirectory() as folder:
        batches = windows(f"{folder}/a", WANTED, 100 + seed)
        train(copy, batches, TUNE_STEPS, peak=STORY_PEAK / 10, warmup=5)


def story_run(seed: int) -> dict[str, Any]:
    """Measure stories with each scaling."""

    def tuned(copy: Transformer) -> None:
        tuned_on_stories(copy, seed)

    return with_each_scaling(trained_on_stories(seed), tuned, losses_by_place)


def paper_run(seed: int) -> dict[str, Any]:
    """Measure stories with YaRN as its paper has it, before and after a tune."""
    copy = scaled(trained_on_stories(seed), PAPER)
    copy.rotations_TJ2.mul_(SHARPER)
    untuned = losses_by_place(copy)
    tuned_on_stories(copy, seed)
    return {"untuned": untuned, "tuned": losses_by_place(copy)}


# --- packing against padding


def packed_batches(folder: str, seed: int) -> Iterator[Batch]:
    """Yield packed rows, whose documents do not see each other."""
    size = STORY_TOKENS // WANTED
    end_id = tokenizer().special_tokens[END_OF_TEXT]
    for ids, documents, positions in PackedBatches(
        shards(folder), size, WANTED, seed=seed, end_id=end_id
    ):
        targets = loss.shifted_targets(ids, documents_BT=documents)
        yield Batch(ids, targets, {"mask": document_mask(documents), "positions_BT": positions})


def documents(num_bytes: int, seed: int) -> list[list[int]]:
    """Return stories as lists of tokens, each with its end."""
    whole = tokens(num_bytes, seed)
    ends = np.flatnonzero(whole == tokenizer().special_tokens[END_OF_TEXT]) + 1
    return [part.tolist() for part in np.split(whole, ends) if len(part)]


def padded(texts: list[list[int]], *, end_id: int) -> Batch:
    """Return documents in rows of their own."""
    rows = packed_rows(texts, one_per_row([len(t) for t in texts], WANTED), padding_id=end_id)
    return Batch(rows.ids_RT, loss.shifted_targets(rows.ids_RT, documents_BT=rows.documents_RT), {})


def padded_batches(_folder: str, seed: int) -> Iterator[Batch]:
    """Yield one story a row, filled up with padding, which causal attention never looks at."""
    texts, end_id = documents(STORY_BYTES, 0), tokenizer().special_tokens[END_OF_TEXT]
    order = np.random.default_rng(seed).permutation(len(texts))
    size = STORY_TOKENS // WANTED
    for first in range(0, len(order) - size, size):
        yield padded([texts[n] for n in order[first : first + size]], end_id=end_id)


def window_batches(folder: str, seed: int) -> Iterator[Batch]:
    """Yield windows in which stories see those before them."""
    return windows(folder, WANTED, seed)


WAYS = {
    "padded": padded_batches,
    "packed with masks": packed_batches,
    "packed without masks": window_batches,
}


@torch.no_grad()
def loss_on_stories(model: Transformer, way: str) -> float:
    """Return the loss on held-out stories, each alone, from the second token on.

    Who has learnt that a story comes after the end of another gets that end in front.
    """
    end_id = tokenizer().special_tokens[END_OF_TEXT]
    in_front = [end_id] if way == "packed without masks" else []
    texts = [in_front + text for text in documents(HELD_OUT_BYTES, 1)]
    rows = padded(texts, end_id=end_id)
    if in_front:
        rows.targets_BT[:, 0] = loss.IGNORE_INDEX
    longest = max(map(len, texts))
    logits = model(rows.ids_BT[:, :longest])
    return round(loss.cross_entropy(logits, rows.targets_BT[:, :longest]).item(), 4)


def packing(seed: int, num_steps: int = STORY_STEPS) -> dict[str, Any]:
    """Train on as many places of rows, filled in each way."""
    found = {}
    for way, batches in WAYS.items():
        model, counted = story_model(seed), 0
        with TemporaryDirectory() as folder:
            source = batches(f"{folder}/a", seed)

            def counting(source: Iterator[Batch] = source) -> Iterator[Batch]:
                nonlocal counted
                for batch in source:
                    counted += int((batch.targets_BT != loss.IGNORE_INDEX).sum())
                    yield batch

            train(model, counting(), num_steps, peak=STORY_PEAK)
        found[way] = {"loss": loss_on_stories(model, way), "targets": counted}
    return found


# --- the command

RUNS = {"needle": needle, "stories": story_run, "paper": paper_run, "packing": packing}


def settings() -> dict[str, Any]:
    """Return what all numbers of the file belong to."""
    return {
        "command": "python -m tools.runs.context_runs",
        "date": date.today().isoformat(),
        "machine": f"one thread, {platform.machine()}, torch {torch.__version__}",
        "lengths": LENGTHS,
        "depths": DEPTHS,
        "tests": NUM_TESTS,
        "places": PLACES,
    }


def main(wanted: list[str]) -> int:
    """Make the runs that are missing, of the wanted parts or of all."""
    torch.set_num_threads(1)
    for part, run in RUNS.items():
        for seed in SEEDS[part] if not wanted or part in wanted else ():
            known = json.loads(FOUND.read_text(encoding="utf8")) if FOUND.exists() else {}
            if str(seed) in known.get(part, {}):
                continue
            made = {str(seed): run(seed)}
            known |= settings() | {part: known.get(part, {}) | made}
            one_line = re.sub(
                r"\[[^][{}]*\]", lambda x: " ".join(x[0].split()), json.dumps(known, indent=1)
            )
            with write_atomically(FOUND) as file:
                file.write(f"{one_line}\n".encode())
            print(f"{part}, seed {seed}: done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
