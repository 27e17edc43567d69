"""A training run in progress: what a step reads and changes, made anew or from a checkpoint."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.data import Batches
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.mixture import MixedBatches
from llmcourse.data.packed_order import PackedBatches
from llmcourse.data.ramp import RampedBatches, steps_within
from llmcourse.model import Dropout, Transformer, without
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts import Layout, MakeLayout
from llmcourse.train.prepare import Prepared, prepare
from llmcourse.train.saved import as_value_error, require_step
from llmcourse.train.stage import stage_of

Watcher = Callable[[str, Any], None]
"""Called after every phase of a step with the phase's name and what it gave."""


@dataclass
class Run:
    """A training run in progress."""

    config: TrainConfig
    folder: Path
    prepared: Prepared
    layout: Layout
    """Owns model and optimizer, on this rank alone or as this rank's part of several."""
    batches: Batches | MixedBatches
    generators: dict[str, torch.Generator]
    """What the run draws from, by name: of samples, and of dropout where there is some."""
    saver: checkpoints.BackgroundSaver = field(default_factory=checkpoints.BackgroundSaver)
    """Writes while training goes on, if the settings ask for it."""
    steps_done: int = 0
    watchers: list[Watcher] = field(default_factory=list)

    @property
    def sample_generator(self) -> torch.Generator:
        """What samples draw from."""
        return self.generators["sample"]

    @property
    def model(self) -> nn.Module:
        """What this rank runs: in one process the whole model."""
        return self.layout.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What updates this rank's weights."""
        return self.layout.optimizer

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.layout.device

    @property
    def tokens_per_step(self) -> int:
        """Tokens that the last step learnt from, or the first will."""
        last = max(0, self.steps_done - 1)
        return self.config.tokens_before(last + 1) - self.config.tokens_before(last)

    @contextlib.contextmanager
    def watched_by(self, watcher: Watcher) -> Iterator[None]:
        """Let somebody watch every phase, while the context lasts."""
        self.watchers.append(watcher)
        try:
            yield
        finally:
            self.watchers.remove(watcher)


def new_run(
    config: TrainConfig,
    folder: Path,
    prepared: Prepared,
    *,
    layout: MakeLayout = Layout,
    saved: checkpoints.Checkpoint | None = None,
) -> Run:
    """Build model, optimizer and data order from the settings and their seed alone.

    Args:
        config: of the run.
        folder: of the run.
        prepared: its data.
        layout: makes the layout of model and optimizer.
        saved: a checkpoint to go on from; None begins anew.
    """
    _batches(config, prepared, share=0, num_shares=1)  # before a large model is made in vain
    device = runtime.device(config.layout.device)
    model = Transformer(config.model, generator=runtime.generator(config.seed)).to(device)
    if config.without != "nothing":
        model = without(model, config.without)
    stage_of(config).begin(config, model, prepared.tokenizer, anew=saved is None)
    settings = config.optimizer
    optimizer = settings.kind(settings.groups(model), **config.optimizer_arguments)
    generators = {"sample": runtime.generator(config.seed + 1)}
    dropout = None
    if config.dropout:
        generators["dropout"] = runtime.generator(config.seed + 2)
        dropout = Dropout(config.dropout, generator=generators["dropout"])
        model.drop_out(dropout)
    position: dict[str, Any] = {}
    if saved is not None:
        # The order of a whole batch has the state of every share of it.
        whole = _batches(config, prepared, share=0, num_shares=1)
        with as_value_error(None):
            checkpoints.restore(
                saved,
                model=model,
                optimizer=optimizer,
                data=whole,
                generators=generators,
                global_generators=True,
            )
            require_step(saved.step, whole.step)
            _require_moments(optimizer, config)
        position = whole.state_dict()
    made = layout(config, model, optimizer)
    batches = _batches(config, prepared, share=made.share, num_shares=made.num_shares)
    if dropout is not None:
        dropout.share, dropout.num_shares = made.share, made.num_shares
    run = Run(config, folder, prepared, made, batches, generators)
    if saved is not None:
        batches.load_state_dict(position)
        run.steps_done = saved.step
    return run


def _require_moments(optimizer: torch.optim.Optimizer, config: TrainConfig) -> None:
    """Raise ValueError if what was loaded are no moments of it: a step would end badly."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not (state := optimizer.state.get(p)):
                continue
            for name, shape in config.optimizer.moments(tuple(p.shape), group).items():
                if getattr(state.get(name), "shape", None) != shape:
                    raise ValueError("optimizer: the checkpoint lacks a moment of a parameter")
            step = state.get("step") if config.optimizer.counts else 0
            if type(step) is not int or step < 0:
                raise ValueError(f"optimizer: the checkpoint counts {step!r} steps")


def restored(folder: Path, config: TrainConfig, *, layout: MakeLayout = Layout) -> Run:
    """Rebuild a run from its newest intact checkpoint, or from its start, in any layout."""
    newest = checkpoints.latest(folder / "checkpoints")
    saved = None if newest is None else checkpoints.load(newest)
    prepared = prepare(config, folder / "data")
    return new_run(config, folder, prepared, layout=layout, saved=saved)


def save(run: Run, *, into: str = "checkpoints") -> Path | None:
    """Write a checkpoint of the run into a folder in its own; return its path.

    Any layout can go on from it.  Only the first rank has a path to return.
    """
    return run.layout.save(run.folder / into, _facts(run), run.saver)


def with_steps(config: TrainConfig, prepared: Prepared) -> TrainConfig:
    """Return settings that say epochs with the steps that these are, rounded down.

    Raises:
        ValueError: if they are less than a step.
    """
    if not config.epochs:
        return config
    whole = _batches(config, prepared, share=0, num_shares=1)
    assert isinstance(whole, Batches)  # a mixture's sources have epochs of their own
    per_epoch = whole.num_windows
    if not config.batch_ramp:  # what does not fill a last batch is left out of every epoch
        per_epoch = whole.steps_per_epoch * config.batch_size
    steps = steps_within(config.ramp, math.floor(config.epochs * per_epoch + 1e-6))
    if steps < 1:
        raise ValueError(
            f"epochs = {config.epochs} of {per_epoch} sequences are less than one step of "
            f"{config.batch_size}: give more epochs, more text or a smaller batch"
        )
    return replace(config, steps=steps, epochs=0.0)


def _batches(
    config: TrainConfig, prepared: Prepared, *, share: int, num_shares: int
) -> Batches | MixedBatches:
    """Return the order of a rank's share of every batch, from its beginning."""
    settings: dict[str, Any] = {
        "context_length": config.model.context_length,
        "rank": share,
        "world_size": num_shares,
        "seed": config.seed,
    }
    order = config.text.order
    if config.batch_ramp and order != "packed":
        return RampedBatches(prepared.training, config.ramp, order=order, **settings)
    settings["batch_size"] = config.batch_size // num_shares
    if order == "packed":
        return PackedBatches(prepared.training, end_id=end_id(prepared), **settings)
    if not config.text.stages:
        return Batches(prepared.training, order=order, **settings)
    training = {name: source.training for name, source in prepared.sources.items()}
    return MixedBatches(training, config.text.stages, **settings)


def end_id(prepared: Prepared) -> int:
    """Return the token that ends a document.

    Raises:
        ValueError: if there is none.
    """
    known = prepared.tokenizer.special_tokens if prepared.tokenizer is not None else {}
    if END_OF_TEXT not in known:
        raise ValueError(
            f"order = packed needs to know where documents end, and the tokenizer of these tokens "
            f"is missing or has no {END_OF_TEXT}: take another order"
        )
    return known[END_OF_TEXT]


def _facts(run: Run) -> dict[str, Any]:
    """Return what a checkpoint holds besides weights and moments, as `checkpoint.save` takes it."""
    # The schedule is a pure function of the step: its state is its settings.
    names = ("schedule", "learning_rate", "steps", "warmup_steps", "decay_steps", "final_share")
    settings = run.config.flat()
    return {
        "step": run.steps_done,
        "schedule": {name: settings[name] for name in names},
        "data": run.batches,
        "generators": run.generators,
        "config": settings,
    }
