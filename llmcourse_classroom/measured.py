"""One training step, taken on a copy of a run and measured phase by phase."""

import math
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llmcourse import train

Facts = list[list[str]]
"""Pairs of a name and a value, in words."""


def _about(name: str, takes: str, gives: str) -> dict[str, str]:
    function = f"llmcourse.train.phases.{'load' if name == 'data' else name}"
    return {"name": name, "takes": takes, "gives": gives, "function": function}


PHASES = (
    _about("data", "the token ids on disk, and the place in the data", "inputs and targets"),
    _about("forward", "the inputs and the weights", "logits: a score for every next token"),
    _about("loss", "the logits and the targets", "one number: how wrong the scores are"),
    _about("backward", "the loss, and what the forward pass kept", "a gradient for every weight"),
    _about("sync", "the gradients of every rank", "their mean, the same on every rank"),
    _about("optimizer", "the gradients and the learning rate", "changed weights"),
    _about("checkpoint", "weights, optimizer, data order, generators", "now and then, a file"),
)
"""What the phases of a step are, in their order."""


def phases_of_step(run: train.Run, *, repeats: int = 5) -> list[dict[str, Any]]:
    """Do the next step of a run on a copy, and return what every phase took, gave and cost.

    The run itself stays as it is.  Times are the median of the steps after the first, which has
    to fetch its memory; saving is spread over the steps between two checkpoints.

    Args:
        run: a run.
        repeats: steps to take the time of, at least 1.

    Returns:
        One dict for each phase, with its name, what it takes and gives, its function, facts (pairs
        of strings), and share, its part of the time from 0 to 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    copy = deepcopy(run, {id(run.prepared): run.prepared})
    with tempfile.TemporaryDirectory() as folder:
        copy.folder = Path(folder)  # a checkpoint of the copy is none of the run
        facts = _Step(copy).facts()
        timed = [_Step(copy).seconds for _ in range(repeats)]
        started = time.perf_counter()
        saved = train.save(copy)
        save_seconds = time.perf_counter() - started
        facts["checkpoint"] = _of_saving(run, saved.stat().st_size)
    seconds = {name: float(np.median([each[name] for each in timed])) for name in timed[0]}
    seconds["checkpoint"] = save_seconds / (run.config.saving.checkpoint_every or run.config.steps)
    whole = sum(seconds.values())
    return [
        {**about, "facts": facts[about["name"]], "share": seconds[about["name"]] / whole}
        for about in PHASES
    ]


class _Step:
    """A step of `train.step`, watched phase by phase: how long each took, and what it gave."""

    def __init__(self, run: train.Run) -> None:
        self.run = run
        self.seconds: dict[str, float] = {}
        self.given: dict[str, Any] = {}
        self.since = time.perf_counter()
        with run.watched_by(self):
            self.report = train.step(run)

    def __call__(self, function: str, given: Any) -> None:
        phase = "data" if function == "load" else function
        self.seconds[phase] = time.perf_counter() - self.since
        self.given[phase] = given
        if phase == "sync":
            gradients = [p.grad for p in self.run.model.parameters() if p.grad is not None]
            self.num_gradients = sum(gradient.numel() for gradient in gradients)
            self.gradient_bytes = sum(_num_bytes(gradient) for gradient in gradients)
            self.largest_gradient = max(gradient.abs().max().item() for gradient in gradients)
            self.before = [p.detach().clone() for p in self.run.model.parameters()]
        elif phase == "optimizer":
            pairs = zip(self.run.model.parameters(), self.before, strict=True)
            self.largest_change = max((p.detach() - old).abs().max().item() for p, old in pairs)
        self.since = time.perf_counter()  # what is looked at here costs no phase its time

    def facts(self) -> dict[str, Facts]:
        """Return the numbers of the phases before the checkpoint, in words."""
        config, report = self.run.config, self.report
        # What the phases handed on, kept by `__call__` while the step was done.
        batch = self.given["data"]
        inputs_BT, targets_BT = batch.inputs_BT, batch.targets_BT
        logits_BTV = self.given["forward"].logits_BTV
        # Six tokens show that the targets are the inputs, moved by one.
        first = inputs_BT[0, :6].tolist()
        pieces = "|".join(self.run.prepared.tokenizer.decode([i]) for i in first)
        # All gradients are scaled together, so that their norm is at most this.
        clipped = min(report.gradient_norm, config.clip_norm)
        return {
            "data": [
                ["inputs and targets", f"{_shape(inputs_BT)} token ids each"],
                ["size", _size(_num_bytes(inputs_BT) + _num_bytes(targets_BT))],
                ["first inputs", f"{first} = {pieces}"],
                ["first targets", str(targets_BT[0, :6].tolist())],
            ],
            "forward": [
                ["logits", _shape(logits_BTV)],
                ["size", _size(_num_bytes(logits_BTV))],
                ["weights used", f"{_num_weights(self.run):,}"],
            ],
            "loss": [
                ["loss", f"{report.loss:.4f} nats per token"],
                ["of guessing, ln V", f"{math.log(config.model.vocab_size):.4f}"],
                ["mean over", f"{targets_BT.numel():,} predictions"],
            ],
            "backward": [
                ["gradients", f"{self.num_gradients:,} numbers"],
                ["size", _size(self.gradient_bytes)],
                ["largest", f"{self.largest_gradient:.2e}"],
            ],
            # One rank has no one to talk to: told is what each of several would have to share.
            "sync": [
                ["ranks here", "1: nothing to agree on"],
                ["with more, each has to share", _size(self.gradient_bytes)],
            ],
            "optimizer": [
                ["learning rate", f"{report.learning_rate:.2e}"],
                [
                    "gradient norm",
                    f"{report.gradient_norm:.3f}, clipped to {clipped:.3f}",
                ],
                ["largest change of a weight", f"{self.largest_change:.2e}"],
            ],
        }


def _of_saving(run: train.Run, num_bytes: int) -> Facts:
    every = run.config.saving.checkpoint_every
    return [
        ["file", _size(num_bytes)],
        ["for each weight", f"{num_bytes / _num_weights(run):.1f} bytes"],
        ["when", f"every {every:,} steps, and at the end" if every else "at the end"],
    ]


def _num_weights(run: train.Run) -> int:
    return sum(p.numel() for p in run.model.parameters())


def _num_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _shape(tensor: torch.Tensor) -> str:
    return " × ".join(f"{size:,}" for size in tensor.shape)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"
