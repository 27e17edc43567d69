"""One training step: seven phases, seven calls, in the order in which they happen.

`Run` holds what a step reads and changes.  Every phase is a function of a run; `step` calls them.

Shape suffixes:  B batch, T time, V vocabulary.

Taught in: chapters/01_whole_run.ipynb, chapters/02_step_by_hand.ipynb, chapters/04_phases_and_units.ipynb
"""  # noqa: E501 - one line, which tests and pages read

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse import checkpoint as checkpoints
from llmcourse import loss as losses
from llmcourse import runtime
from llmcourse.data import Batches
from llmcourse.model import Transformer, without
from llmcourse.optim import (
    AdamW,
    decay_groups,
    warmup_cosine,
    warmup_stable_decay,
)
from llmcourse.train.config import TrainConfig
from llmcourse.train.layout import InMicroBatches, Layout
from llmcourse.train.prepare import Prepared


class TrainingDivergedError(RuntimeError):
    """The loss or the gradient is no longer a finite number."""


class Batch(NamedTuple):
    """Token ids, and the ids that follow them."""

    inputs_BT: Int[Tensor, "B T"]
    targets_BT: Int[Tensor, "B T"]


class StepReport(NamedTuple):
    """What one step has to say."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Nats per token, before the update."""
    learning_rate: float
    gradient_norm: float
    """Before clipping."""


def one_rank(_gradients: list[Tensor]) -> None:
    """The gradient synchronisation of a run with a single rank: nothing to agree on."""


@dataclass
class Run:
    """A training run in progress."""

    config: TrainConfig
    folder: Path
    prepared: Prepared
    model: Transformer
    optimizer: AdamW
    batches: Batches
    sample_generator: torch.Generator
    all_reduce: Callable[[list[Tensor]], None] = one_rank
    """Averages gradients over ranks in place; chapters 22 and 23 give it something to do."""
    layout: Layout = field(default_factory=Layout)
    """Where weights, gradients and moments are: on this rank alone, or on several."""
    saver: checkpoints.BackgroundSaver = field(default_factory=checkpoints.BackgroundSaver)
    """Writes while training goes on, if the settings ask for it."""
    steps_done: int = 0

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step learns from."""
        return self.config.batch_size * self.config.model.context_length


def new_run(config: TrainConfig, folder: Path, prepared: Prepared) -> Run:
    """Build model, optimizer and data order from the settings and their seed alone."""
    device = runtime.device(config.device)
    model = Transformer(config.model, generator=runtime.generator(config.seed)).to(device)
    if config.without != "nothing":
        model = without(model, config.without)
    optimizer = AdamW(
        decay_groups(model, weight_decay=config.weight_decay),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
    )
    batches = Batches(
        prepared.training,
        batch_size=config.batch_size,
        context_length=config.model.context_length,
        seed=config.seed,
    )
    generator = runtime.generator(config.seed + 1)
    return Run(config, folder, prepared, model, optimizer, batches, generator)


def step(run: Run, *, look: Callable[[StepReport], None] | None = None) -> StepReport:
    """Do one training step.

    Args:
        run: in progress.
        look: called before the checkpoint, so that what it draws and writes is part of the step
            that a resumed run does not repeat.
    """
    batch = load(run)
    if isinstance(run.layout, InMicroBatches):
        nats = run.layout.forward_and_backward(run, batch)
    else:
        logits_BTV = forward(run, batch)
        value = loss(logits_BTV, batch)
        backward(objective(run, value))
        nats = value.item()
    sync(run)
    gradient_norm = optimizer(run)
    rate = learning_rate(run.config, run.steps_done - 1)
    report = StepReport(run.steps_done, run.layout.mean(nats), rate, gradient_norm)
    if look is not None:
        look(report)
    checkpoint(run)
    return report


def load(run: Run) -> Batch:
    """Phase 1: take the next batch of the global order."""
    inputs_BT, targets_BT = next(run.batches)
    return Batch(inputs_BT.to(run.device), targets_BT.to(run.device))


def forward(run: Run, batch: Batch) -> Float[Tensor, "B T V"]:
    """Phase 2: predict every next token."""
    narrow = run.config.precision == "bf16"
    with torch.autocast(run.device.type, torch.bfloat16, enabled=narrow):
        return run.model(batch.inputs_BT)


def loss(logits_BTV: Float[Tensor, "B T V"], batch: Batch) -> Float[Tensor, ""]:
    """Phase 3: measure how wrong the predictions are, in nats per token."""
    return losses.cross_entropy(logits_BTV, batch.targets_BT)


def objective(run: Run, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Add to the loss what else the model is to learn: to use its experts evenly, if it has any."""
    decoder = next(m for m in run.model.modules() if isinstance(m, Transformer))
    balance = decoder.balance_loss()
    return value if balance is None else value + balance


def backward(value: Float[Tensor, ""]) -> None:
    """Phase 4: find the gradient of the loss for every weight.

    Raises:
        TrainingDivergedError: if the loss is not finite; its gradient would ruin the weights.
    """
    if not math.isfinite(value.item()):
        raise TrainingDivergedError(
            f"the loss is {value.item()}: lower the learning rate, or warm up longer"
        )
    value.backward()


def sync(run: Run) -> None:
    """Phase 5: agree with the other ranks on one gradient."""
    run.all_reduce([p.grad for p in run.model.parameters() if p.grad is not None])


def optimizer(run: Run) -> float:
    """Phase 6: clip, set the learning rate, change the weights; return the norm before clipping.

    Raises:
        TrainingDivergedError: if the gradient is not finite.
    """
    norm = run.layout.clip(run)
    if not math.isfinite(norm):
        raise TrainingDivergedError(f"the gradient norm is {norm} at step {run.steps_done + 1}")
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate(run.config, run.steps_done)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    run.steps_done += 1
    return norm


def checkpoint(run: Run) -> None:
    """Phase 7: save everything that the next step depends on, if it is time to."""
    every = run.config.checkpoint_every
    if run.steps_done == run.config.steps or (every and run.steps_done % every == 0):
        save(run)


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    common = {
        "peak": config.learning_rate,
        "num_steps": config.steps,
        "warmup_steps": config.warmup_steps,
        "final": config.learning_rate * config.final_share,
    }
    if config.schedule == "wsd":
        return warmup_stable_decay(step, decay_steps=config.decay_steps, **common)
    return warmup_cosine(step, **common)


def save(run: Run) -> Path | None:
    """Write a checkpoint of the run into its folder; return its path.

    Any layout can go on from it.  Only the first rank has a path to return.
    """
    return run.layout.save(run)
