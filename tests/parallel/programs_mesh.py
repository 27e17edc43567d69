"""What ranks do in test_mesh.py and test_train_mesh.py."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from llmcourse import train
from llmcourse.parallel import mesh
from llmcourse.parallel.world import Rank
from llmcourse.train import phases
from llmcourse.train.mesh_layout import OnMesh


class Steps(NamedTuple):
    """What some steps of a run left behind."""

    losses: list[float]
    norms: list[float]
    gradients: dict[str, Any]
    """Of the first step, whole, before clipping."""
    weights: dict[str, Any]
    """After the last step, whole."""
    moments: dict[int, Any]
    sent_bytes: dict[str, int]
    """By this rank in the first step, by axis."""


def new_run(config, folder: Path, dtype: torch.dtype):
    """A run whose weights are not all alike: gains differ from 1."""
    run = phases.new_run(config, folder, train.prepare(config, folder / "data"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in run.model.named_parameters():
            if name.endswith("gain"):
                p.add_(0.3 * torch.randn(p.shape, generator=generator))
    return run if dtype == torch.float32 else _doubled(run)


def _doubled(run):
    run.model.double()
    return run


def alone(config, folder: Path, dtype: torch.dtype) -> Steps:
    """The steps of one process, which every mesh has to equal."""
    run = new_run(config, folder, dtype)
    losses, norms, gradients = [], [], {}
    for step in range(config.steps):
        batch = phases.load(run)
        value = phases.loss(phases.forward(run, batch), batch)
        phases.backward(phases.objective(run, value))
        if step == 0:
            gradients = {n: p.grad.clone() for n, p in run.model.named_parameters()}
        norms.append(phases.optimizer(run))
        losses.append(value.item())
    weights, optimizer = run.layout.states(run)
    return Steps(losses, norms, gradients, weights, optimizer["state"], {})


def on_mesh(rank: Rank, config, folder: Path, dtype: torch.dtype, fault=None) -> Steps:
    """The same steps on a mesh; a fault is a function that spoils this rank's layout."""
    split = config.split
    rank = Rank(rank.index, split.sizes, messages=rank.messages)
    run = new_run(config, folder, dtype)
    layout = OnMesh(run, rank)
    if fault is not None:
        fault(layout)
    before = _sent(rank)
    losses, norms, gradients, sent = [], [], {}, {}
    for step in range(config.steps):
        nats = layout.forward_and_backward(run, phases.load(run))
        phases.sync(run)
        if step == 0:
            sent = {name: count - before[name] for name, count in _sent(rank).items()}
            if config.parallel == "ddp":  # ZeRO leaves whole gradients incomplete
                gradients = _gradients(layout, rank, split)
        norms.append(phases.optimizer(run))
        losses.append(layout.mean(nats))
    weights, optimizer = layout.states(run)
    return Steps(losses, norms, gradients, weights, optimizer["state"], sent)


def _sent(rank: Rank) -> dict[str, int]:
    return {name: rank.axis(name).sent_bytes for name in mesh.AXES}


def _gradients(layout: OnMesh, rank: Rank, split: mesh.Split) -> dict[str, Any]:
    mine = {n: {"gradient": p.grad.clone()} for n, p in layout.model.named_parameters()}
    whole = mesh.join(mine, rank, layout.config, split)
    return {name: state["gradient"] for name, state in whole.items()}
