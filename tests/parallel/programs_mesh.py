"""What ranks do in test_mesh.py and test_train_mesh.py."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from llmcourse import train
from llmcourse.parallel import mesh
from llmcourse.parallel.world import Rank
from llmcourse.train.layouts import OnMesh


class Steps(NamedTuple):
    losses: list[float]
    norms: list[float]
    gradients: dict[str, Any]  # of the first step, whole, before clipping
    weights: dict[str, Any]  # after the last step, whole
    moments: dict[int, Any]
    sent_bytes: dict[str, int]  # by this rank in the first step, by axis


def new_run(config, folder: Path, dtype: torch.dtype, layout=train.Layout):
    """A run whose weights are not all alike: gains differ from 1."""

    def uneven(config, model, optimizer):
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if name.endswith("gain"):
                    p.add_(0.3 * torch.randn(p.shape, generator=generator))
        if dtype == torch.float64:
            model.double()
        return layout(config, model, optimizer)

    return train.new_run(config, folder, train.prepare(config, folder / "data"), layout=uneven)


def alone(config, folder: Path, dtype: torch.dtype) -> Steps:
    run, gradients = new_run(config, folder, dtype), {}

    def watch(phase, _given):
        if phase == "backward" and not gradients:
            gradients.update({n: p.grad.clone() for n, p in run.model.named_parameters()})

    return _steps(run, watch, gradients, {})


def on_mesh(rank: Rank, config, folder: Path, dtype: torch.dtype, fault=None) -> Steps:
    """The same steps on a mesh; a fault is a function that spoils this rank's layout."""
    split = config.layout.split(config.batch_size)
    rank = Rank(rank.index, split.sizes, messages=rank.messages)
    run = new_run(config, folder, dtype, train.layout_on(rank, config))
    if fault is not None:
        fault(run.layout)
    before, gradients, sent = _sent(rank), {}, {}

    def watch(phase, _given):
        if phase == "sync" and not sent:
            sent.update({name: count - before[name] for name, count in _sent(rank).items()})
            if config.layout.parallel == "ddp":  # ZeRO leaves whole gradients incomplete
                gradients.update(_gradients(run.layout, rank, split))

    return _steps(run, watch, gradients, sent)


def _steps(run, watch, gradients, sent) -> Steps:
    with run.watched_by(watch):
        reports = [train.step(run) for _ in range(run.config.steps)]
    weights, optimizer = run.layout.states()
    losses, norms = ([getattr(r, n) for r in reports] for n in ("loss", "gradient_norm"))
    return Steps(losses, norms, gradients, weights, optimizer["state"], sent)


def _sent(rank: Rank) -> dict[str, int]:
    return {name: rank.axis(name).sent_bytes for name in mesh.AXES}


def _gradients(layout: OnMesh, rank: Rank, split: mesh.Split) -> dict[str, Any]:
    mine = {n: {"gradient": p.grad.clone()} for n, p in layout.model.named_parameters()}
    whole = mesh.join(mine, rank, layout.config.model, split)
    return {name: state["gradient"] for name, state in whole.items()}
