"""train --optimizer: each optimizer trains, is saved whole, and is refused where it cannot be."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from llmcourse import checkpoint, train
from llmcourse.optim import OptimizerSettings
from llmcourse.train import phases
from llmcourse.train.run import new_run
from tests.train.runs import SHORT, TINY, command, losses, weights

KINDS = get_args(OptimizerSettings)
RATES = {"adamw": 6e-3, "muon": 6e-3, "adafactor": 0.1, "lion": 2e-3}
LOST = {"adamw": "mean_square", "muon": "velocity", "adafactor": "row_mean", "lion": "mean"}
"""A moment that a checkpoint may lack."""


def test_no_optimizer_is_left_out():
    assert RATES.keys() == LOST.keys() == {kind().optimizer for kind in KINDS}


@pytest.mark.parametrize("name", RATES)
def test_it_learns_and_goes_on_bit_for_bit(name, tmp_path):
    config = SHORT.replace(optimizer=name, learning_rate=RATES[name], steps=16)
    whole = train.fit(train.start(config, tmp_path / "whole"))
    first, *_, last = losses(whole)
    assert last < first - 0.3
    part = train.start(config, tmp_path / "part")
    while part.steps_done < 6:
        phases.step(part)
    resumed = train.fit(train.resume(tmp_path / "part"))
    assert resumed.run.config.optimizer == config.optimizer
    assert losses(resumed) == losses(whole)[6:]
    assert weights(resumed.run) == weights(whole.run)


def test_each_has_its_own_defaults_and_keeps_what_was_asked_for():
    assert TINY.replace(optimizer="lion").optimizer.beta2 == 0.99
    assert TINY.replace(optimizer="adafactor").optimizer.weight_decay == 0.0
    asked = TINY.replace(beta2=0.9).replace(optimizer="lion").optimizer
    assert (asked.beta1, asked.beta2) == (0.9, 0.9)
    assert TINY.replace(optimizer="lion").replace(optimizer="adamw") == TINY


def test_a_checkpoint_without_a_moment_is_refused(tmp_path):
    """Mutants: a table whose names are not asked for."""
    for name, lost in LOST.items():
        config = SHORT.replace(optimizer=name, steps=3)
        run = train.fit(train.start(config, tmp_path / name)).run
        saved = checkpoint.load(checkpoint.latest(run.folder / "checkpoints"))
        state = next(each for each in saved.optimizer["state"].values() if lost in each)
        state["else"] = state.pop(lost)
        with pytest.raises(ValueError, match="lacks a moment of a parameter"):
            new_run(config, run.folder, run.prepared, saved=saved)


def test_the_command_names_it(tmp_path, capfd):
    words = ["--preset", "tiny", "--steps", "2", "--warmup_steps", "1", "--sample_tokens", "5"]
    assert command(*words, "--optimizer", "muon", "--out", tmp_path / "run") == 0
    said = capfd.readouterr().out
    assert "optimizer: muon" in said
    assert "momentum: 0.95" in said


def test_the_machine_is_asked_for_what_the_optimizer_keeps(monkeypatch):
    """A model that fits with Lion's one moment, and not with AdamW's two."""
    from llmcourse.train import saved  # noqa: PLC0415

    wide = replace(TINY.model, hidden=2**20)
    count = saved.num_parameters(wide)
    monkeypatch.setattr(saved.os, "sysconf", {"SC_PAGE_SIZE": 14, "SC_PHYS_PAGES": count}.get)
    lion = TINY.replace(model=wide, optimizer="lion")
    saved.check_memory(lion, "this")
    with pytest.raises(ValueError, match="for weights, gradients and moments"):
        saved.check_memory(lion.replace(optimizer="adamw"), "this")


def test_experts_are_trained_by_each(tmp_path):
    shape = replace(TINY.model, num_experts=4, experts_per_token=2, hidden=32)
    for name, rate in RATES.items():
        config = SHORT.replace(model=shape, optimizer=name, learning_rate=rate)
        run = train.start(config, tmp_path / name)
        first, *_, last = [phases.step(run).loss for _ in range(8)]
        assert last < first
        assert all(torch.isfinite(p).all() for p in run.model.parameters())
