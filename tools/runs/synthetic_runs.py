"""Measure what chapter 08 tells of text that models write: runs that take longer than a page may.

    python -m tools.runs.synthetic_runs [distillation] [generations] [cooler] [both] [kept]

trains the nutshell's Llama and writes what it finds into llmcourse_classroom/synthetic.json:

distillation  a student of one layer learns from a teacher's probabilities, at several temperatures,
              or from the tokens of the text, at equal numbers of tokens.
generations   a model learns from what the one before wrote, five times: from that alone, with half
              of it replaced by true stories, or with only those documents kept whose sentences the
              grammar of the stories accepts.
cooler        the first of these again, with text that is written at a temperature of 0.7.
both          verified documents, of which half are replaced by true stories.
kept          of what the first models write: how documents that pass differ from all.

Losses are in nats per token, on stories that nobody has read.  Every run has the seeds 0, 1 and 2;
training takes about 4 seconds for 100 steps.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.tuning import (
    generations,
    is_grammatical,
    rare_tokens,
    tail_loss,
    verify_and_keep,
    write_documents,
)
from llmcourse_labs.tuning.distillation import distillation
from tools.runs.recording import record_parts

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "synthetic.json"
SEEDS = (0, 1, 2)

BATCH_SIZE, LENGTH = 16, 96
NUM_LAYERS, NUM_STEPS = 2, 300
"""Of every generation: 460,800 tokens are read."""
TEXT_CHARACTERS = 480_000
"""Of a generation's documents; a run reads them about four times."""
NUM_GENERATIONS = 5
VARIANTS = ("own text", "half fresh", "verified")
COOLER, COOLER_TEMPERATURE = "cooler", 0.7
BOTH = "verified, half fresh"
FRESH_SHARE = 0.5
HELD_OUT_BYTES = 80_000

TEACHER_STEPS = 900
STUDENT_LAYERS, STUDENT_STEPS = 1, (100, 300, 1_200)
TARGETS = {"hard": None, "T = 1": 1.0, "T = 2": 2.0, "T = 4": 4.0}
"""A temperature of the teacher's probabilities; None is the tokens of the text."""


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of all runs, trained on stories that no run reads."""
    return train_bpe([corpus.stories(400_000, seed=1_000)], 768, [END_OF_TEXT])


def encoded(documents: Sequence[str]) -> torch.Tensor:
    """Return the tokens of documents, each with its end."""
    return torch.tensor(tokenizer().encode("".join(text + END_OF_TEXT for text in documents)))


def true_documents(seed: int) -> list[str]:
    """Return stories of the grammar; those of different seeds are different draws."""
    return corpus.stories(TEXT_CHARACTERS, seed=10_000 + seed).split(END_OF_TEXT)[:-1]


@cache
def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """Return windows of new stories, and the tokens that are rare in them."""
    tokens = torch.tensor(tokenizer().encode(corpus.stories(HELD_OUT_BYTES, seed=1)))
    window = LENGTH + 1
    return tokens[: len(tokens) // window * window].view(-1, window), rare_tokens(tokens.bincount())


@torch.no_grad()
def losses_on(model: nutshell.Llama, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of every target of some windows, and the targets."""
    found = []
    for some in windows.split(64):
        log_p = model(some[:, :-1]).log_softmax(-1)
        found.append(-log_p.gather(-1, some[:, 1:, None]).flatten())
    return torch.cat(found), windows[:, 1:].flatten()


def measured(model: nutshell.Llama) -> dict[str, float]:
    """Return the mean loss on new stories, and that on rare tokens."""
    windows, rare = held_out()
    losses, targets = losses_on(model, windows)
    return {"loss": losses.mean().item(), "tail": tail_loss(losses, targets, rare)}


def entropy_per_token() -> float:
    """Return the entropy of the stories in nats per token of these runs."""
    text = corpus.stories(HELD_OUT_BYTES, seed=1)
    num_bytes, num_tokens = len(text.encode()), len(tokenizer().encode(text))
    return corpus.stories_entropy() * math.log(2) * num_bytes / num_tokens


# --- a teacher and students


def trained(
    tokens: torch.Tensor, seed: int, num_steps: int, num_layers: int = NUM_LAYERS
) -> nutshell.Llama:
    """Train the nutshell's Llama on tokens."""
    torch.manual_seed(seed)
    model = nutshell.Llama(nutshell.Config(num_layers=num_layers))
    drawn = nutshell.batches(tokens, BATCH_SIZE, LENGTH)
    for _ in nutshell.train(model, nutshell.AdamW(model), drawn, num_steps):
        pass
    return model


def student_of(
    teacher: nutshell.Llama, tokens: torch.Tensor, seed: int, num_steps: int, temperature: float
) -> nutshell.Llama:
    """Train a student on the teacher's probabilities, in the steps and at the rates of `train`."""
    torch.manual_seed(seed)
    model = nutshell.Llama(nutshell.Config(num_layers=STUDENT_LAYERS))
    optimizer = nutshell.AdamW(model)
    drawn = nutshell.batches(tokens, BATCH_SIZE, LENGTH)
    for step in range(num_steps):
        ids, targets = next(drawn)
        with torch.no_grad():
            taught = teacher(ids)
        distillation(model(ids), taught, targets, temperature=temperature).backward()
        nutshell.clip([w.grad for w in model.parameters()], max_norm=1.0)
        optimizer.step(nutshell.warmup_cosine(step, 6e-3, num_steps, 40, final=6e-3 / 20))
    return model


def student_run(teacher: nutshell.Llama, name: str, num_steps: int, seed: int) -> dict[str, float]:
    """Train a student on one kind of targets, on a text more per 300 steps; return its losses."""
    parts = range(math.ceil(num_steps / NUM_STEPS))
    tokens = encoded([text for part in parts for text in true_documents(seed + 10 * part)])
    if (temperature := TARGETS[name]) is None:
        return measured(trained(tokens, seed, num_steps, STUDENT_LAYERS))
    return measured(student_of(teacher, tokens, seed, num_steps, temperature))


def distillation_runs() -> dict[str, Any]:
    """Train the teacher, and all students."""
    stories = [text for seed in range(100, 104) for text in true_documents(seed)]
    teacher = trained(encoded(stories), seed=0, num_steps=TEACHER_STEPS)
    found: dict[str, Any] = {"teacher": rounded(measured(teacher)), "students": []}
    for num_steps in STUDENT_STEPS:
        for name in TARGETS:
            runs = [rounded(student_run(teacher, name, num_steps, seed)) for seed in SEEDS]
            losses = {key: [run[key] for run in runs] for key in runs[0]}
            row = {"targets": name, "tokens": num_steps * BATCH_SIZE * LENGTH, **losses}
            found["students"].append(row)
            print(f"distillation: {row}", flush=True)
    return found


# --- models that learn from models


def written_by(
    model: nutshell.Llama, num_characters: int, seed: int, temperature: float = 1.0
) -> list[str]:
    """Let a model write documents with about so many characters."""
    fast = Transformer(ModelConfig(**asdict(nutshell.Config(num_layers=NUM_LAYERS))))
    fast.load_state_dict(model.state_dict())
    return write_documents(
        fast, tokenizer(), num_characters // 4, seed=seed, temperature=temperature
    )


def lineage(variant: str, seed: int, num_steps: int = NUM_STEPS) -> list[dict[str, float]]:
    """Train generation after generation; return what each is like."""

    def train(documents: Sequence[str], number: int) -> nutshell.Llama:
        return trained(encoded(documents), 100 * seed + number, num_steps)

    def write(model: nutshell.Llama, number: int) -> list[str]:
        draws = 1_000 * (100 * seed + number)
        if variant not in ("verified", BOTH):
            temperature = COOLER_TEMPERATURE if variant == COOLER else 1.0
            return written_by(model, TEXT_CHARACTERS, draws, temperature)
        return verify_and_keep(
            lambda part: written_by(model, TEXT_CHARACTERS, draws + part),
            is_grammatical,
            TEXT_CHARACTERS,
        ).documents

    mixed = variant in ("half fresh", BOTH)
    rows = []
    for generation in generations(
        true_documents(100 * seed),
        train,
        write,
        num_generations=NUM_GENERATIONS,
        fresh=(lambda number: true_documents(100 * seed + number)) if mixed else None,
        fresh_share=FRESH_SHARE if mixed else 0.0,
        seed=seed,
    ):
        text = written_by(generation.model, HELD_OUT_BYTES, seed)
        tokens = encoded(text)
        own = tokens[: len(tokens) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
        row = measured(generation.model) | {
            "own": losses_on(generation.model, own)[0].mean().item(),
            "grammatical": sum(map(is_grammatical, text)) / len(text),
            "openings": len({" ".join(story.split()[:6]) for story in generation.documents[:800]}),
        }
        rows.append(rounded(row))
        print(f"{variant}, seed {seed}, generation {generation.number}: {rows[-1]}", flush=True)
    return rows


def generation_runs(variants: Sequence[str]) -> dict[str, Any]:
    """Follow the lineages of some variants."""
    found: dict[str, Any] = {variant: [] for variant in variants}
    for seed in SEEDS:
        for variant in variants:
            found[variant].append(lineage(variant, seed))
    by_key = {
        variant: {key: [[row[key] for row in rows] for rows in lineages] for key in lineages[0][0]}
        for variant, lineages in found.items()
    }
    return {"entropy": round(entropy_per_token(), 4), "variants": by_key}


def kept_run(seed: int, num_steps: int = NUM_STEPS) -> dict[str, float]:
    """Return the mean length, and the share of rare tokens, of what is written and what passes."""
    true = true_documents(100 * seed)
    model = trained(encoded(true), 100 * seed, num_steps)
    written = written_by(model, TEXT_CHARACTERS, 1_000 * (100 * seed + 1))
    passed = [text for text in written if is_grammatical(text)]
    rare = held_out()[1]
    found = {"rare true": torch.isin(encoded(true), rare).double().mean().item()}
    for name, documents in (("written", written), ("passed", passed)):
        found[f"words {name}"] = sum(len(text.split()) for text in documents) / len(documents)
        found[f"rare {name}"] = torch.isin(encoded(documents), rare).double().mean().item()
    return rounded(found)


def kept_runs() -> dict[str, list[float]]:
    """Look at what the first generation's models write."""
    runs = [kept_run(seed) for seed in SEEDS]
    return {key: [run[key] for run in runs] for key in runs[0]}


# --- the command


def rounded(numbers: dict[str, float]) -> dict[str, float]:
    """Return numbers with four digits."""
    return {key: round(value, 4) for key, value in numbers.items()}


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all."""
    parts = {
        "distillation": distillation_runs,
        "generations": lambda: generation_runs(VARIANTS),
        "cooler": lambda: generation_runs((COOLER,)),
        "both": lambda: generation_runs((BOTH,)),
        "kept": kept_runs,
    }
    about = {"command": "python -m tools.runs.synthetic_runs"}
    record_parts(FOUND, parts, wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
