"""optim.settings: the table of optimizers tells the truth; optim.lion: equal to its formula."""

import math
from typing import get_args

import numpy as np
import pytest
import torch

from llmcourse import model as models
from llmcourse.base.settings import settings_of
from llmcourse.optim import Lion, OptimizerSettings, decay_groups
from llmcourse.train import TrainConfig
from llmcourse_labs.scale import cost

KINDS = get_args(OptimizerSettings)


def one_step(settings, shape=None):
    generator = torch.Generator().manual_seed(0)
    net = models.Transformer(shape or models.tiny(), generator=generator)
    made = settings.kind(settings.groups(net), lr=1e-3, **settings.arguments())
    for p in net.parameters():
        p.grad = torch.randn(p.shape, generator=generator)
    made.step()
    return net, made


def test_each_is_named_once_and_costs_count_the_same_moments():
    named = [settings().optimizer for settings in KINDS]
    assert sorted(named) == ["adafactor", "adamw", "lion", "muon"]
    assert set(get_args(settings_of(TrainConfig)["optimizer"].hint)) == set(named)
    assert len({settings.title for settings in KINDS}) == len(KINDS)
    adamw = next(kind for kind in KINDS if kind.title == "AdamW")
    assert cost.FP32_TRAINING.moments == cost.MIXED_TRAINING.moments == adamw.moment_bytes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind().optimizer)
def test_the_table_says_what_is_kept(kind):
    """Mutants: a moment's name, a side of a shape, bytes, and whether steps are counted."""
    settings = kind()
    net, made = one_step(settings)
    assert sum(len(group["params"]) for group in made.param_groups) == len([*net.parameters()])
    matrices = kept = 0
    for group in made.param_groups:
        for p in group["params"]:
            state = made.state[p]
            tensors = {n: tuple(x.shape) for n, x in state.items() if isinstance(x, torch.Tensor)}
            assert tensors == settings.moments(tuple(p.shape), group)
            assert all(x.dtype == torch.float32 for x in state.values() if torch.is_tensor(x))
            if settings.counts:
                assert state["step"] == 1
            if p.ndim == 2 and group.get("orthogonal", True):
                matrices += p.numel()
                kept += sum(math.prod(s) for s in tensors.values() if s == tuple(p.shape))
    assert 4 * kept == matrices * settings.moment_bytes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind().optimizer)
def test_an_elementwise_one_does_the_same_to_half_a_matrix(kind):
    """What the ranks of a mesh, and of ZeRO, rely on; the others do something else."""
    settings, generator = kind(), torch.Generator().manual_seed(1)
    w, g = (torch.randn(8, 6, generator=generator) for _ in range(2))
    found = []
    for rows in (slice(0, 8), slice(0, 4)):
        p = torch.nn.Parameter(w[rows].clone())
        p.grad = g[rows].clone()
        group = {"params": [p], "orthogonal": True} if kind.title.startswith("Muon") else p
        settings.kind([group], lr=1e-2, **settings.arguments()).step()
        found.append(p.detach()[:4])
    assert torch.equal(*found) == settings.is_elementwise


def test_muon_takes_the_matrices_of_the_blocks_alone():
    net, made = one_step(next(kind for kind in KINDS if kind.title.startswith("Muon"))())
    names = {id(p): name for name, p in net.named_parameters()}
    plain = decay_groups(net, weight_decay=0.1)
    decay = {id(p): group["weight_decay"] for group in plain for p in group["params"]}
    taken = set()
    for group in made.param_groups:
        taken |= {names[id(p)] for p in group["params"]} if group["orthogonal"] else set()
        assert {decay[id(p)] for p in group["params"]} == {group["weight_decay"]}
    assert len(taken) == 2 * 7
    assert all(name.startswith("blocks.") and name.rpartition(".")[2][:2] == "w_" for name in taken)


def lion(w, g_of_step, steps, *, lr, b1, b2, decay):
    """Algorithm 2 of the paper, in NumPy and float64."""
    m = np.zeros_like(w)
    for step in range(steps):
        g = g_of_step(step)
        update = np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
        w = w - lr * (update + decay * w)
    return w


def test_lion_is_its_formula_and_mutants_are_not():
    rng = np.random.default_rng(0)
    start = rng.normal(size=(4, 5))
    gradients = rng.normal(size=(40, 4, 5)) + 0.2
    w = torch.nn.Parameter(torch.tensor(start))
    ours = Lion([w], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.3)
    for g in gradients:
        w.grad = torch.tensor(g)
        ours.step()
    settings = {"lr": 1e-3, "b1": 0.9, "b2": 0.99, "decay": 0.3}
    expected = lion(start, lambda step: gradients[step], 40, **settings)
    moved = np.abs(expected - start).max()
    assert np.abs(w.detach().numpy() - expected).max() < 1e-12 * moved
    for change in [{"b1": 0.99, "b2": 0.9}, {"decay": 0.0}, {"decay": 0.03}, {"lr": 2e-3}]:
        other = lion(start, lambda step: gradients[step], 40, **settings | change)
        assert np.abs(other - expected).max() > 1e-3 * moved, change
