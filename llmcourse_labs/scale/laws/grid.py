"""A grid of runs on the stories, to fit laws to: sizes by amounts of compute, each run once.

    python -m llmcourse_labs.scale.laws run --out grid.json

All models are Llamas of two blocks with an untied head; the width alone differs.  Every run

* reads whole stories, each once, one to a row, so that what cannot be known is the entropy of the
  grammar and nothing else: no story has lost its beginning to a cut;
* has a learning rate that suits its width (`peak_for`) and comes down to 0 at the end of its own
  tokens, not of another run's;
* is measured on stories that no model has read.

Amounts of compute are counted: every story's products, attention by the story's length.

Rates were swept by hand with seed 9, which no recorded run has.
"""

import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from llmcourse.base import progress, runtime
from llmcourse.base.files import write_atomically
from llmcourse.data import corpus
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.loss import cross_entropy
from llmcourse.model import ModelConfig, Transformer
from llmcourse.optim import AdamW, clip_by_global_norm, decay_groups, warmup_cosine
from llmcourse.train import TrainingDivergedError
from llmcourse_labs.scale import cost

WIDTHS = {
    2e10: (8, 12, 16, 20, 24, 32),
    4e10: (12, 16, 20, 24, 32, 40),
    8e10: (12, 16, 24, 32, 40, 48),
    1.6e11: (16, 20, 28, 36, 48, 64),
    3.2e11: (20, 28, 36, 48, 64, 80),
}
"""For each amount of compute, in FLOPs, widths around the best."""
REPEATED, REPEAT_SEEDS = (8e10, 24), (1, 2, 3, 4)
"""Compute and width of the run that shows what the seed does."""
HELD_OUT, HELD_OUT_SEEDS = (1.6e12, 64), (0, 1, 2)
"""Five times the most compute of the grid."""
BATCH_STORIES = 8
"""Stories of a step, about 550 tokens."""
WARMUP_SHARE = 0.1
VOCAB_SIZE, TOKENIZER_BYTES, HELD_OUT_BYTES = 768, 2_000_000, 120_000
LONGEST = 127
"""Tokens of the longest story that has a place, its end included."""
BYTES_PER_TOKEN = 4.1
"""A little more than a token has: so much text is written for so many tokens."""
SEED_OF_READ, SEED_OF_HELD_OUT = 0, 1


class Plan(NamedTuple):
    """A run that is to be done."""

    flop: float
    width: int
    seed: int
    held_out: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run."""

    flop: float
    """The amount of compute that it stands for, in FLOPs; `counted_flop` is what it took."""
    width: int
    seed: int
    held_out: bool
    """Whether it is kept from every fit, to be predicted."""
    num_parameters: int
    """All of them: embedding, blocks and head."""
    num_non_embedding: int
    """Without the embedding and the head."""
    num_tokens: int
    """Tokens that were predicted in training."""
    num_steps: int
    counted_flop: float
    learning_rate: float
    """At its peak."""
    loss: float
    """On stories that no model has read, in nats per token."""
    seconds: float
    """Of one processor."""

    @property
    def num_multiplying(self) -> float:
        """Return counted FLOPs / (6 D): the size for which 6 N D is what the run took.

        The embedding is looked up and multiplies nothing; attention multiplies without parameters.
        """
        return self.counted_flop / 6 / self.num_tokens


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The runs of a table, and how they were made."""

    command: str
    date: str
    machine: str
    settings: dict[str, Any]
    """What all runs share; entropy is in nats per token."""
    runs: tuple[Run, ...]

    @property
    def entropy(self) -> float:
        """Return what no model can be below, in nats per token."""
        return self.settings["entropy"]

    @property
    def fitted(self) -> tuple[Run, ...]:
        """Return the runs of the grid: those that a law is fitted to."""
        return tuple(run for run in self.runs if run.seed == 0 and not run.held_out)

    @property
    def held_out(self) -> tuple[Run, ...]:
        """Return the runs that a law has to predict."""
        return tuple(run for run in self.runs if run.held_out)

    @property
    def repeats(self) -> tuple[Run, ...]:
        """Return the run that was done with several seeds, in all of them."""
        return tuple(
            run for run in self.runs if (run.flop, run.width) == REPEATED and not run.held_out
        )


def columns(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what fits take: sizes (`Run.num_multiplying`), tokens and losses."""
    rows = [(run.num_multiplying, run.num_tokens, run.loss) for run in runs]
    return tuple(np.array(rows, dtype=np.float64).T)


def plans() -> list[Plan]:
    """Return all runs, the cheap ones first."""
    grid = [Plan(flop, width, 0) for flop, widths in WIDTHS.items() for width in widths]
    repeats = [Plan(*REPEATED, seed) for seed in REPEAT_SEEDS]
    large = [Plan(*HELD_OUT, seed, held_out=True) for seed in HELD_OUT_SEEDS]
    return [*grid, *repeats, *large]


def config_for(width: int) -> ModelConfig:
    """Return the shape of a width, a multiple of 4."""
    return ModelConfig(
        num_layers=2,
        width=width,
        num_heads=2,
        num_kv_heads=1,
        head_size=width // 2,
        hidden=width * 11 // 4,
        vocab_size=VOCAB_SIZE,
        context_length=LONGEST,
        tied_head=False,
    )


def peak_for(width: int) -> float:
    """Return the learning rate of a width."""
    return min(0.04, 0.64 / width)


# --- stories


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of all runs, the one of chapter 04 (its bytes are in another order)."""
    text = corpus.stories(TOKENIZER_BYTES, seed=SEED_OF_READ)
    return train_bpe(text, VOCAB_SIZE, [corpus.END_OF_TEXT])


def stories_of(num_bytes: int, seed: int) -> list[Int64[np.ndarray, " T"]]:
    """Return stories as tokens: an end of text, the story, and its own end."""
    ids = np.array(tokenizer().encode(corpus.stories(num_bytes, seed=seed)))
    ends = np.flatnonzero(ids == VOCAB_SIZE - 1)
    rows = np.split(ids, ends[:-1] + 1)
    return [np.concatenate([[VOCAB_SIZE - 1], row]) for row in rows]


def batches_of(
    stories: Sequence[np.ndarray], size: int, generator: torch.Generator | None = None
) -> list[tuple[Int64[Tensor, "B T"], Int64[Tensor, "B T"]]]:
    """Put stories of nearly one length side by side; return inputs and targets of every batch.

    Args:
        stories: from `stories_of`.
        size: stories of a batch.
        generator: of the order in which stories of a length, and then batches, come; None is the
            order of their lengths.
    """
    order = np.arange(len(stories))
    if generator is not None:
        order = torch.randperm(len(stories), generator=generator).numpy()
    lengths = np.array([len(story) for story in stories])
    order = order[np.argsort(lengths[order], kind="stable")]
    found = []
    for first in range(0, len(order), size):
        chosen = [torch.from_numpy(stories[k]) for k in order[first : first + size]]
        ids_BT = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-100)
        found.append((ids_BT[:, :-1].clamp(min=0), ids_BT[:, 1:]))
    if generator is not None:
        found = [found[k] for k in torch.randperm(len(found), generator=generator).tolist()]
    return found


@cache
def held_out_stories() -> list[np.ndarray]:
    """Return the stories that every model is measured on."""
    return stories_of(HELD_OUT_BYTES, SEED_OF_HELD_OUT)


def entropy_per_token() -> float:
    """Return the entropy of the stories in nats per token of this tokenizer."""
    num_bytes = len(corpus.stories(HELD_OUT_BYTES, seed=SEED_OF_HELD_OUT))
    num_tokens = sum(len(story) - 1 for story in held_out_stories())
    return corpus.stories_entropy() * math.log(2) * num_bytes / num_tokens


def needed_bytes(planned: Sequence[Plan]) -> int:
    """Return how much text the longest of some runs reads."""
    per_token = [
        cost.training_flop_per_token(config_for(p.width), context_length=60) for p in planned
    ]
    tokens = max(p.flop / each for p, each in zip(planned, per_token, strict=True))
    return int(BYTES_PER_TOKEN * tokens) + 1_000


# --- a run


def train(plan: Plan, stories: Sequence[np.ndarray], *, peak: float | None = None) -> Run:
    """Do a run.

    Args:
        plan: which.
        stories: that it may read, from `stories_of`; as many of the first as its compute allows.
        peak: a learning rate other than `peak_for` gives.

    Raises:
        ValueError: if the stories do not suffice.
    """
    config = config_for(plan.width)
    lengths = np.array([len(story) - 1 for story in stories])
    # What a token costs grows evenly with the length, as attention does.
    one, two = (cost.training_flop_per_token(config, context_length=T) for T in (1, 2))
    flop = np.cumsum(lengths * (one + (two - one) * (lengths - 1)))
    if flop[-1] < plan.flop:
        raise ValueError(
            f"{len(stories)} stories are {flop[-1]:.3g} of {plan.flop:.3g} FLOPs: give more stories"
        )
    num_stories = int(np.searchsorted(flop, plan.flop)) + 1
    started = process_time()
    generator = runtime.generator(plan.seed)
    model = Transformer(config, generator=generator)
    with torch.no_grad():
        model.embedding.mul_(5)  # as large as in chapter 04: tokens differ from the first step on
    batches = batches_of(stories[:num_stories], BATCH_STORIES, generator)
    peak = peak_for(plan.width) if peak is None else peak
    optimizer = AdamW(decay_groups(model, weight_decay=0.1), lr=peak)
    schedule = {"num_steps": len(batches), "warmup_steps": int(WARMUP_SHARE * len(batches))}
    for step, (inputs_BT, targets_BT) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = warmup_cosine(step, peak=peak, **schedule)
        optimizer.zero_grad()
        cross_entropy(model(inputs_BT), targets_BT).backward()
        norm = clip_by_global_norm(model.parameters(), 1.0)
        if not math.isfinite(norm):
            raise TrainingDivergedError(f"the gradient norm is {norm} at step {step + 1} of {plan}")
        optimizer.step()
    parts = cost.parameters_by_part(config)
    return Run(
        **plan._asdict(),
        num_parameters=sum(parts.values()),
        num_non_embedding=sum(parts.values()) - parts["embedding"] - parts["head"],
        num_tokens=int(lengths[:num_stories].sum()),
        num_steps=len(batches),
        counted_flop=float(flop[num_stories - 1]),
        learning_rate=peak,
        loss=round(loss_on_held_out(model), 4),
        seconds=round(process_time() - started, 1),
    )


@torch.no_grad()
def loss_on_held_out(model: Transformer) -> float:
    """Return the mean loss on the stories that are held out."""
    losses, tokens = 0.0, 0
    for inputs_BT, targets_BT in batches_of(held_out_stories(), 64):
        losses += cross_entropy(model(inputs_BT), targets_BT, num_tokens=1).item()
        tokens += int((targets_BT >= 0).sum())
    return losses / tokens


# --- the table


def settings() -> dict[str, Any]:
    """Return what all runs of a table share."""
    return {
        "corpus": "stories",
        "tokenizer": tokenizer().fingerprint,
        "entropy": round(entropy_per_token(), 4),
        "batch_stories": BATCH_STORIES,
        "num_layers": config_for(8).num_layers,
        "learning_rate": "min(0.04, 0.64 / width)",
    }


def read_grid(path: str | Path) -> Grid:
    """Read a table.

    Raises:
        ValueError: if the file is no table of runs.
        OSError: if it cannot be read.
    """
    return _grid_of(Path(path).read_text(encoding="utf8"), str(path))


def recorded_grid() -> Grid:
    """Return the table that comes with the package."""
    file = resources.files("llmcourse_labs.scale.laws").joinpath("stories.json")
    return _grid_of(file.read_text(encoding="utf8"), "the recorded table")


def _grid_of(text: str, name: str) -> Grid:
    try:
        content = json.loads(text)
        runs = tuple(Run(**run) for run in content.pop("runs"))
        return Grid(**content, runs=runs)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{name} is no table of runs ({error}): make one with `run`") from error


def check_settings(grid: Grid, name: str) -> None:
    """Raise ValueError if a table was made of another corpus, or by another tokenizer."""
    for key, ours in settings().items():
        if (theirs := grid.settings.get(key)) != ours:
            raise ValueError(
                f"{name} has the {key} {theirs!r}, the runs of today {ours!r}: give another file, "
                "or remove this one"
            )


def run_all(
    path: str | Path,
    *,
    planned: Sequence[Plan] | None = None,
    train_one: Callable[[Plan, Sequence[np.ndarray]], Run] = train,
) -> Grid:
    """Do all runs that a table does not have yet, and write it after each.

    Args:
        path: of the table, new or begun.
        planned: which runs; None is `plans`.
        train_one: does one.

    Raises:
        ValueError: if the file has no table, or one that was made with other settings.
    """
    planned = plans() if planned is None else planned
    runs: list[Run] = []
    if Path(path).exists():
        grid = read_grid(path)
        check_settings(grid, str(path))
        runs = list(grid.runs)
    done = {(run.flop, run.width, run.seed) for run in runs}
    left = [plan for plan in planned if plan[:3] not in done]
    shared = settings()
    stories = stories_of(needed_bytes(left), SEED_OF_READ) if left else []
    with progress.bar(total=len(planned), initial=len(planned) - len(left), unit="run") as bar:
        for plan in left:
            bar.set_description(f"width {plan.width}, {plan.flop:.0e} FLOPs")
            runs.append(train_one(plan, stories))
            grid = Grid(
                command="python -m llmcourse_labs.scale.laws run",
                date=datetime.now(UTC).date().isoformat(),
                machine=f"{_processor()}, one thread, torch {torch.__version__}",
                settings=shared,
                runs=tuple(runs),
            )
            with write_atomically(path) as file:
                file.write((json.dumps(asdict(grid), indent=1) + "\n").encode())
            bar.update()
    return grid


def _processor() -> str:
    """Return the name of the processor."""
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text(encoding="utf8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
