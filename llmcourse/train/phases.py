"""One training step: seven phases, seven calls, in the order in which they happen.

Every phase is a function of a run; `step` calls them.  What differs between one process and several
is the run's layout.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from llmcourse import loss as losses
from llmcourse.data.packing import PackedRows
from llmcourse.optim import warmup_cosine, warmup_stable_decay
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts import Batch, Losses, Prediction
from llmcourse.train.run import Run, save
from llmcourse.train.stage import stage_of


class TrainingDivergedError(RuntimeError):
    """The loss or the gradient is no longer a finite number."""


class StepReport(NamedTuple):
    """What one step has to say."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Nats per token, before the update."""
    learning_rate: float
    gradient_norm: float
    """Before clipping."""


def step(run: Run) -> StepReport:
    """Do one training step."""
    batch = load(run)
    prediction = forward(run, batch)
    value = loss(run, prediction, batch)
    backward(run, value)
    sync(run)
    report = optimizer(run, value)
    checkpoint(run)
    return report


def _watched(phase: Callable[..., Any]) -> Callable[..., Any]:
    """Tell a run's watchers what a phase gave, as soon as it is over."""

    @functools.wraps(phase)
    def call(run: Run, *given: Any) -> Any:
        result = phase(run, *given)
        for watcher in run.watchers:
            watcher(phase.__name__, result)
        return result

    return call


@_watched
def load(run: Run) -> Batch:
    """Phase 1: take the next batch of the global order."""
    taken, device = next(run.batches), run.layout.device
    if isinstance(taken, PackedRows):
        ids_BT, documents_BT, positions_BT = (part.to(device) for part in taken)
        learned_BT = stage_of(run.config).learned(
            run.config, run.prepared.tokenizer, ids_BT, documents_BT
        )
        targets_BT = losses.shifted_targets(
            ids_BT, documents_BT=documents_BT, learned_BT=learned_BT
        )
        return Batch(ids_BT, targets_BT, documents_BT, positions_BT)
    inputs_BT, targets_BT = taken
    return Batch(inputs_BT.to(device), targets_BT.to(device))


@_watched
def forward(run: Run, batch: Batch) -> Prediction:
    """Phase 2: predict every next token."""
    return run.layout.forward(batch)


@_watched
def loss(run: Run, prediction: Prediction, batch: Batch) -> Losses:
    """Phase 3: measure how wrong the predictions are, in nats per token."""
    return run.layout.loss(prediction, batch)


@_watched
def backward(run: Run, value: Losses) -> None:
    """Phase 4: find the gradient of the loss for every weight.

    Raises:
        TrainingDivergedError: if the loss is not finite; its gradient would ruin the weights.
    """
    if not math.isfinite(value.nats.item()):
        raise TrainingDivergedError(
            f"the loss is {value.nats.item()}: lower the learning rate, or warm up longer"
        )
    run.layout.backward(value)


@_watched
def sync(run: Run) -> None:
    """Phase 5: agree with the other ranks on one gradient."""
    run.layout.sync()


@_watched
def optimizer(run: Run, value: Losses) -> StepReport:
    """Phase 6: clip, set the learning rate, change the weights; say what the step has done.

    Raises:
        TrainingDivergedError: if the gradient is not finite.
    """
    norm = run.layout.clip()
    if not math.isfinite(norm):
        raise TrainingDivergedError(f"the gradient norm is {norm} at step {run.steps_done + 1}")
    rate, stepper = learning_rate(run.config, run.steps_done), run.layout.optimizer
    for group in stepper.param_groups:
        group["lr"] = rate
    stepper.step()
    stepper.zero_grad(set_to_none=True)
    run.steps_done += 1
    return StepReport(run.steps_done, run.layout.mean(value.nats.item()), rate, norm)


@_watched
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
