"""Measure what chapter 32 tells of batches: the runs that take longer than a page may.

    python -m tools.runs.batch_runs [target] [noise]

trains the nutshell's Llama, with one layer, on stories, and writes what it finds into
llmcourse_classroom/batch.json:

target  steps and tokens until the loss on held-out stories is at TARGET, for several batch sizes,
        each at its best constant learning rate of those in RATES, found with other seeds.
noise   the gradient noise scale at some losses on the way, from the gradients of single sequences,
        and from the squared norms of small and big batches.

Losses are means in nats per token, on documents that no run reads.
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from llmcourse import nutshell
from llmcourse.base import progress
from llmcourse.data import corpus
from llmcourse_labs.study import noise_scale_from_gradients, noise_scale_from_squares
from tools.runs.recording import record_parts

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "batch.json"
SEEDS = (0, 1, 2)
TUNING_SEEDS = (8, 9)
"""One would not do: near the largest rate that works, steps vary by half from seed to seed."""
LENGTH, VOCAB_SIZE, NUM_LAYERS, WARMUP = 48, 768, 1, 20
TEXT_BYTES, HELD_OUT_BYTES, TOKENIZER_BYTES = 8_000_000, 40_000, 300_000
TARGET = 1.1
"""Nats per token; the entropy of the stories is 0.38."""
RATES = {
    2: (7.5e-4, 1.5e-3, 3e-3),
    8: (1.5e-3, 3e-3, 6e-3),
    32: (3e-3, 6e-3, 1.2e-2),
    128: (6e-3, 1.2e-2, 2.4e-2),
}
"""For each batch size three, of which the second was the best and the others are worse."""
MOST_STEPS = 6_000
STAGES = (5, 30, 120, 480)
"""Steps of a run after which its noise scale is measured."""
STAGE_BATCH, STAGE_RATE = 32, 6e-3
"""Of that run."""
NUM_SINGLE = 256
"""Sequences whose single gradients give an estimate."""
SMALL, BIG, REPETITIONS = 4, 32, 24
"""Batches whose squared norms give another."""


@cache
def tokenizer() -> nutshell.Tokenizer:
    """Return the tokenizer of all runs."""
    return nutshell.Tokenizer(
        nutshell.learn_merges(corpus.stories(TOKENIZER_BYTES, seed=0), VOCAB_SIZE)
    )


@cache
def tokens_of(num_bytes: int, seed: int) -> Tensor:
    """Return the tokens of some stories."""
    return torch.tensor(tokenizer().encode(corpus.stories(num_bytes, seed=seed)))


def new_model(seed: int) -> nutshell.Llama:
    """Return the model of all runs, before its first step."""
    torch.manual_seed(seed)
    return nutshell.Llama(nutshell.Config(num_layers=NUM_LAYERS))


@torch.no_grad()
def held_out_loss(model: nutshell.Llama) -> float:
    """Return the mean loss on stories that no run reads."""
    ids = tokens_of(HELD_OUT_BYTES, 1)
    windows = ids[: len(ids) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    return nutshell.cross_entropy(model(windows[:, :-1]), windows[:, 1:]).item()


def steps_of(
    model: nutshell.Llama, batch_size: int, rate: float, seed: int
) -> Iterator[tuple[int, float]]:
    """Train with a constant rate; give each step's number and its training loss."""
    drawn = nutshell.batches(tokens_of(TEXT_BYTES, 0), batch_size, LENGTH)
    optimizer = nutshell.AdamW(model)
    torch.manual_seed(1_000 + seed)
    for step in range(MOST_STEPS):
        inputs, targets = next(drawn)
        loss = nutshell.cross_entropy(model(inputs), targets)
        loss.backward()
        nutshell.clip([w.grad for w in model.parameters()], 1.0)
        optimizer.step(rate * min(1.0, (step + 1) / WARMUP))
        yield step + 1, loss.item()


def steps_to_target(
    batch_size: int, rate: float, seed: int, *, target: float = TARGET, most: float = math.inf
) -> float:
    """Return the step, between two validations, at which a run arrives; infinite if it does not.

    Args:
        batch_size: sequences of a step.
        rate: learning rate after warm-up.
        seed: of weights and data.
        target: loss at which it has arrived.
        most: steps after which it is given up.
    """
    model = new_model(seed)
    every = max(2, round(20 / math.sqrt(batch_size)))
    before = math.inf
    for step, _ in steps_of(model, batch_size, rate, seed):
        if step > most:
            break
        if step % every:
            continue
        loss = held_out_loss(model)
        if loss <= target:
            part = (before - target) / (before - loss) if before < math.inf else 1.0
            return step - every + part * every
        before = loss
    return math.inf


def mean_steps(batch_size: int, rate: float, seeds: tuple[int, ...], *, most: float) -> float:
    """Return the mean over seeds; infinite if one run has not arrived after `most` steps."""
    steps = []
    for seed in seeds:
        steps.append(steps_to_target(batch_size, rate, seed, most=most))
        if steps[-1] == math.inf:
            break
    return mean(steps)


def target() -> dict[str, Any]:
    """Find the best rate for each batch size, then count steps with each seed."""
    rows = []
    total = sum(map(len, RATES.values())) + len(RATES) * len(SEEDS)
    with progress.bar(total=total, unit="run", desc="target") as bar:
        for batch_size, rates in RATES.items():
            tried: dict[float, float] = {}
            for rate in rates:
                most = 1.3 * min(tried.values(), default=MOST_STEPS)
                tried[rate] = mean_steps(batch_size, rate, TUNING_SEEDS, most=most)
                bar.update()
            best = min(tried, key=lambda rate: tried[rate])
            steps = []
            for seed in SEEDS:
                steps.append(round(steps_to_target(batch_size, best, seed), 1))
                bar.update()
            tuning = {str(rate): round(n, 1) if n < math.inf else None for rate, n in tried.items()}
            rows.append({"batch_size": batch_size, "rate": best, "tuning": tuning, "steps": steps})
            bar.write(str(rows[-1]))
    return {"loss": TARGET, "length": LENGTH, "runs": rows}


def gradient(model: nutshell.Llama, windows: Tensor) -> Tensor:
    """Return the gradient of the mean loss on some windows, as one row of numbers."""
    loss = nutshell.cross_entropy(model(windows[:, :-1]), windows[:, 1:])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def noise_at(model: nutshell.Llama, seed: int) -> dict[str, Any]:
    """Estimate the noise scale at the weights of a model, twice, from windows drawn with a seed."""
    ids, generator = tokens_of(TEXT_BYTES, 0), torch.Generator().manual_seed(seed)
    starts = torch.randint(
        len(ids) - LENGTH, (NUM_SINGLE + REPETITIONS * BIG,), generator=generator
    )
    windows = ids[starts[:, None] + torch.arange(LENGTH + 1)]
    single = torch.stack([gradient(model, each[None]) for each in windows[:NUM_SINGLE]])
    direct = noise_scale_from_gradients(single)
    smalls, bigs = [], []
    for batch in windows[NUM_SINGLE:].view(REPETITIONS, BIG, -1):
        parts = torch.stack([gradient(model, part) for part in batch.split(SMALL)])
        smalls.append(parts.square().sum(1).mean())
        bigs.append(parts.mean(0).square().sum())
    from_two = noise_scale_from_squares(
        torch.stack(smalls), torch.stack(bigs), small=SMALL, big=BIG
    )
    return {
        "single": [round(direct.batch, 2), round(direct.standard_error, 2)],
        "two sizes": [round(from_two.batch, 2), round(from_two.standard_error, 2)],
    }


def noise() -> dict[str, Any]:
    """Measure the noise scale on the way of a run, with each seed."""
    rows = []
    with progress.bar(total=len(SEEDS) * len(STAGES), unit="stage", desc="noise") as bar:
        for seed in SEEDS:
            model = new_model(seed)
            for step, _ in steps_of(model, STAGE_BATCH, STAGE_RATE, seed):
                if step in STAGES:
                    found = noise_at(model, seed)
                    loss = round(held_out_loss(model), 4)
                    rows.append({"seed": seed, "step": step, "loss": loss, **found})
                    bar.update()
                    bar.write(str(rows[-1]))
                if step == max(STAGES):
                    break
    return {"batch_size": STAGE_BATCH, "rate": STAGE_RATE, "stages": rows}


# --- the command

PARTS: dict[str, Callable[[], dict[str, Any]]] = {"noise": noise, "target": target}


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all."""
    record_parts(FOUND, PARTS, wanted=wanted, about={"command": "python -m tools.runs.batch_runs"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
