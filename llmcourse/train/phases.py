"""One training step: seven phases, seven calls, in the order in which they happen.

Every phase is a function of a run; `step` calls them.  What differs between one process and several
is the run's layout.  Where a layout cannot tell phases 2 to 4 apart (micro-batches whose gradients
add up, a pipeline), `forward_backward` does the three of them under this name when the first one
is called, and each of them says that it is covered.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from llmcourse import loss as losses
from llmcourse.data.packing import PackedRows
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts import Batch, Losses, Prediction
from llmcourse.train.run import Run, save
from llmcourse.train.stage import stage_of

JOINED = ("forward", "loss", "backward")
"""What `forward_backward` does, in the layouts that join them."""


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


class Covered(NamedTuple):
    """What watchers are told of a phase that was done together with others."""

    by: str
    """The name under which it was done."""


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
        result = told = phase(run, *given)
        if phase.__name__ in JOINED and run.layout.joins_phases:
            told = Covered(forward_backward.__name__)
        for watcher in run.watchers:
            watcher(phase.__name__, told)
        return result

    return call


@_watched
def load(run: Run) -> Batch:
    """Phase 1: take the next batch of the global order."""
    taken, device = next(run.batches), run.layout.device
    if isinstance(taken, PackedRows):
        learned_BT = stage_of(run.config).learned(
            run.config, run.prepared.tokenizer, taken.ids_RT, taken.documents_RT
        )
        targets_BT = losses.shifted_targets(
            taken.ids_RT, documents_BT=taken.documents_RT, learned_BT=learned_BT
        )
        number = int((targets_BT != losses.IGNORE_INDEX).sum())
        ids_BT, documents_BT, positions_BT = (part.to(device) for part in taken)
        return Batch(ids_BT, targets_BT.to(device), documents_BT, positions_BT, number)
    inputs_BT, targets_BT = taken
    return Batch(inputs_BT.to(device), targets_BT.to(device), known_targets=targets_BT.numel())


@_watched
def forward(run: Run, batch: Batch) -> Prediction | Losses:
    """Phase 2: predict every next token; or, where phases are joined, do them and say the loss."""
    return forward_backward(run, batch) if run.layout.joins_phases else run.layout.forward(batch)


@_watched
def loss(run: Run, prediction: Prediction | Losses, batch: Batch) -> Losses:
    """Phase 3: measure how wrong the predictions are, in nats per token."""
    return prediction if isinstance(prediction, Losses) else run.layout.loss(prediction, batch)


@_watched
def backward(run: Run, value: Losses) -> None:
    """Phase 4: find the gradient of the loss for every weight."""
    if not run.layout.joins_phases:
        run.layout.backward(value)


@_watched
def forward_backward(run: Run, batch: Batch) -> Losses:
    """Phases 2 to 4 together, where the layout cannot tell them apart."""
    return run.layout.forward_backward(batch)


@_watched
def sync(run: Run) -> None:
    """Phase 5: agree with the other ranks on one gradient."""
    run.layout.sync()


@_watched
def optimizer(run: Run, value: Losses) -> StepReport:
    """Phase 6: clip, set the learning rate, change the weights; say what the step has done.

    Raises:
        TrainingDivergedError: if the gradient or the loss is not finite.  A gradient that is not
            changes no weight; nothing is saved of either.
    """
    norm = run.layout.clip()
    if not math.isfinite(norm):
        _require_finite(run, value)  # which comes first, and says more
        raise TrainingDivergedError(f"the gradient norm is {norm} at step {run.steps_done + 1}")
    rate, stepper = learning_rate(run.config, run.steps_done), run.layout.optimizer
    for group in stepper.param_groups:
        group["lr"] = rate
    stepper.step()
    stepper.zero_grad(set_to_none=True)
    nats = _require_finite(run, value)  # read here: until now the device need not be waited for
    run.steps_done += 1
    return StepReport(run.steps_done, nats, rate, norm)


@_watched
def checkpoint(run: Run) -> None:
    """Phase 7: save everything that the next step depends on, if it is time to."""
    every = run.config.saving.checkpoint_every
    if run.steps_done == run.config.steps or (every and run.steps_done % every == 0):
        save(run)


def _require_finite(run: Run, value: Losses) -> float:
    """Return the loss of all ranks; raise if it is no finite number."""
    nats = run.layout.mean(value.nats.item())
    if not math.isfinite(nats):
        raise TrainingDivergedError(
            f"the loss is {nats}: lower the learning rate, or warm up longer"
        )
    return nats


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    return config.schedule.rate(step, config.steps)
