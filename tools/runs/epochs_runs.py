"""Measure what chapter 33 tells of epochs: the runs that take longer than a page may.

    python -m tools.runs.epochs_runs [sizes] [cures] [worth]

trains Llamas on few stories again and again, and writes what it finds into
llmcourse_classroom/epochs.json:

sizes  the same steps on more and more stories: losses on what is read and on what is held out.
cures  the run on FEW windows with one thing changed: decay, dropout, the size, where windows begin.
worth  so many epochs of PART tokens, beside as many tokens that are all read once.

Losses are means in nats per token, one number or one curve for each seed.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from llmcourse import nutshell
from llmcourse.base import progress, runtime
from llmcourse.data import corpus
from llmcourse.model import Dropout, ModelConfig, Transformer
from tools.runs import recording

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "epochs.json"
SEEDS = (0, 1, 2)
NUM_STEPS, BATCH_SIZE, LENGTH = 300, 16, 96
"""Of the runs of sizes and cures: 460,800 tokens are read."""
PEAK, WARMUP = 6e-3, 40
VOCAB_SIZE, TOKENIZER_BYTES = 768, 300_000
TEXT_BYTES, HELD_OUT_BYTES = 5_000_000, 60_000
CHECK_EVERY = 20
"""Steps between two points of a curve."""
WINDOWS = (50, 200, 800, 4_800)
"""Sequences of 96 tokens that a run reads again and again; the last are read once."""
FEW = 200
PART, EPOCHS = 384, (1, 2, 4, 8, 16)
"""Of "worth": sequences, and how often they are read."""


@cache
def tokenizer() -> nutshell.Tokenizer:
    """Return the tokenizer of all runs."""
    text = corpus.stories(TOKENIZER_BYTES, seed=0)
    return nutshell.Tokenizer(nutshell.learn_merges(text, VOCAB_SIZE))


@cache
def windows_of(num_bytes: int, seed: int) -> Tensor:
    """Return stories as rows of 97 tokens: 96 inputs, each with its target behind it."""
    ids = torch.tensor(tokenizer().encode(corpus.stories(num_bytes, seed=seed)))
    starts = torch.arange(0, len(ids) - LENGTH, LENGTH)
    return ids[starts[:, None] + torch.arange(LENGTH + 1)]


def batches(windows: Tensor, seed: int, *, anew: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches, each window once in an epoch; epochs follow each other without a gap.

    Windows that are cut anew begin at random places of the same tokens.
    """
    generator, left = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
    ids = torch.cat([windows[:, :-1].flatten(), windows[-1:, -1]])
    while anew:
        starts = torch.randint(len(ids) - LENGTH, (BATCH_SIZE, 1), generator=generator)
        rows = ids[starts + torch.arange(LENGTH + 1)]
        yield rows[:, :-1], rows[:, 1:]
    while True:
        while len(left) < BATCH_SIZE:
            left = torch.cat([left, torch.randperm(len(windows), generator=generator)])
        rows, left = windows[left[:BATCH_SIZE]], left[BATCH_SIZE:]
        yield rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def loss_on(model: nn.Module, windows: Tensor) -> float:
    """Return the mean loss of a model in use."""
    model.eval()
    loss = nutshell.cross_entropy(model(windows[:, :-1]), windows[:, 1:]).item()
    model.train()
    return round(loss, 4)


class Variant(NamedTuple):
    """A run with one thing changed."""

    windows: int = FEW
    decay: float = 0.1
    dropout: float = 0.0
    width: int = 80
    anew: bool = False


def trained(
    variant: Variant,
    seed: int,
    *,
    num_steps: int = NUM_STEPS,
    note: Callable[[int, nn.Module], None] = lambda step, model: None,
) -> nn.Module:
    """Train a model; `note` is called now and then with the step and the model."""
    shape = ModelConfig(
        num_layers=2,
        width=variant.width,
        num_heads=4,
        num_kv_heads=2,
        head_size=variant.width // 4,
        hidden=variant.width * 14 // 5,
        vocab_size=VOCAB_SIZE,
        context_length=LENGTH,
    )
    model = Transformer(shape, generator=runtime.generator(seed))
    if variant.dropout:
        model.drop_out(Dropout(variant.dropout, generator=runtime.generator(seed + 100)))
    optimizer = nutshell.AdamW(model, decay=variant.decay)
    drawn = batches(windows_of(TEXT_BYTES, 0)[: variant.windows], seed, anew=variant.anew)
    warmup = min(WARMUP, num_steps // 4)
    steps = nutshell.train(model, optimizer, drawn, num_steps, peak=PEAK, warmup=warmup)
    for step, _ in enumerate(steps, start=1):
        if step % CHECK_EVERY == 0 or step == num_steps:
            note(step, model)
    return model


def size_of_weights(model: nn.Module) -> float:
    """Return the root-mean-square of all weights that decay: the matrices of the blocks."""
    weights = [w.detach().flatten() for w in model.blocks.parameters() if w.ndim == 2]
    return round(torch.cat(weights).square().mean().sqrt().item(), 4)


def curve(variant: Variant, seed: int) -> dict[str, list[float]]:
    """Return the losses of a run on what it reads and what is held out, and its weights' size."""
    found: dict[str, list[float]] = {"steps": [], "training": [], "held out": [], "weights": []}
    read = windows_of(TEXT_BYTES, 0)[: min(variant.windows, 200)]

    def note(step: int, model: nn.Module) -> None:
        found["steps"].append(step)
        found["training"].append(loss_on(model, read))
        found["held out"].append(loss_on(model, windows_of(HELD_OUT_BYTES, 1)))
        found["weights"].append(size_of_weights(model))

    trained(variant, seed, note=note)
    return found


def sizes() -> dict[str, Any]:
    """Make the runs on more and more stories."""
    rows = []
    with progress.bar(total=len(WINDOWS) * len(SEEDS), unit="run", desc="sizes") as bar:
        for windows in WINDOWS:
            runs = []
            for seed in SEEDS:
                runs.append(curve(Variant(windows), seed))
                bar.update()
            rows.append(
                {
                    "tokens": windows * LENGTH,
                    "epochs": NUM_STEPS * BATCH_SIZE / windows,
                    "steps": runs[0]["steps"],
                    **{name: [run[name] for run in runs] for name in ("training", "held out")},
                }
            )
    return {"tokens read": NUM_STEPS * BATCH_SIZE * LENGTH, "runs": rows}


CURES = {
    "as it is": Variant(),
    "no weight decay": Variant(decay=0.0),
    "weight decay 3": Variant(decay=3.0),
    "dropout 0.3": Variant(dropout=0.3),
    "half the width": Variant(width=40),
    "windows cut anew": Variant(anew=True),
    "weight decay 1": Variant(decay=1.0),
    "dropout 0.1": Variant(dropout=0.1),
}
"""More stories are a cure as well: they are a row of `sizes`."""


def cures() -> dict[str, Any]:
    """Make the runs on few stories with one thing changed."""
    found: dict[str, Any] = {}
    with progress.bar(total=len(CURES) * len(SEEDS), unit="run", desc="cures") as bar:
        for name, variant in CURES.items():
            runs = []
            for seed in SEEDS:
                runs.append(curve(variant, seed))
                bar.update()
            found[name] = {
                "steps": runs[0]["steps"],
                **{key: [run[key] for run in runs] for key in ("training", "held out")},
                "weights": [run["weights"][-1] for run in runs],
            }
            bar.write(f"{name}: {[losses[-1] for losses in found[name]['held out']]}")
            part = {"tokens": FEW * LENGTH, "runs": found}
            recording.write(FOUND, recording.read(FOUND) | {"cures": part} | ABOUT)  # if cut short
    return {"tokens": FEW * LENGTH, "runs": found}


def worth() -> dict[str, Any]:
    """Make the runs of some epochs, and those on as many tokens that are read once."""
    rows = []
    with progress.bar(total=2 * len(EPOCHS) * len(SEEDS), unit="run", desc="worth") as bar:
        for epochs in EPOCHS:
            row: dict[str, Any] = {"epochs": epochs, "again": [], "fresh": []}
            for seed in SEEDS:
                for name, windows in (("again", PART), ("fresh", PART * epochs)):
                    steps = PART * epochs // BATCH_SIZE
                    model = trained(Variant(windows), seed, num_steps=steps)
                    row[name].append(loss_on(model, windows_of(HELD_OUT_BYTES, 1)))
                    bar.update()
            rows.append(row)
            bar.write(str(row))
    return {"tokens": PART * LENGTH, "runs": rows}


# --- the command

ABOUT = {"command": "python -m tools.runs.epochs_runs"}
PARTS: dict[str, Callable[[], dict[str, Any]]] = {"sizes": sizes, "cures": cures, "worth": worth}


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all."""
    recording.record_parts(FOUND, PARTS, wanted=wanted, about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
