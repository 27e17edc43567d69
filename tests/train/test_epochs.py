"""train --epochs, --dropout and --patience: how long, with what noise, and when to end."""

import contextlib
import json
import shutil
from dataclasses import replace

import pytest
import torch

from llmcourse import checkpoint, train
from llmcourse.backward.recompute import recompute, recomputed
from llmcourse.model import Dropout, Transformer, tiny
from llmcourse.model.ops import dropout
from llmcourse.train import early_stopping, phases, validation
from llmcourse.train.saved import config_and_checkpoint
from llmcourse_labs.export import folder as exporting
from tests.train.runs import command, losses, metrics, weights

WORDS = ["--preset", "tiny", "--warmup_steps", "2", "--sample_tokens", "5"]


@pytest.mark.parametrize(
    "changes",
    [{}, {"order": "random"}, {"batch_size": 2, "batch_ramp": "0:2,3:8"}, {"order": "packed"}],
)
def test_the_steps_of_a_run_are_as_many_as_its_epochs_hold(changes, config, tmp_path):
    run = train.start(config.replace(epochs=1.5, **changes), tmp_path / "run")
    # Counted from what the batches are, one after the other.
    whole, read, steps = run.batches.num_windows, 0, 0
    if "batch_ramp" not in changes:
        whole -= whole % 8
    sizes = {"batch_ramp": [2, 2, 2]}.get(next(iter(changes.keys() & {"batch_ramp"}), ""), [])
    while read + (size := sizes[steps] if steps < len(sizes) else 8) <= 1.5 * whole:
        read, steps = read + size, steps + 1
    assert run.config.steps == steps > 10
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == steps


def test_the_command_counts_epochs_also_on_ranks(tmp_path, capfd):
    words = [*WORDS, "--corpus_bytes", "9000", "--epochs", "2", "--batch_size", "4"]
    for name, more in (("one", []), ("two", ["--ranks", "2"])):
        assert command(*words, *more, "--out", tmp_path / name) == 0
    assert "checkpoints and metrics.jsonl" in capfd.readouterr().out
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert [r["loss"] for r in one] == pytest.approx([r["loss"] for r in two], rel=1e-5)
    run = train.resume(tmp_path / "one")
    assert len(one) == run.config.steps == 2 * run.batches.steps_per_epoch
    assert one[-1]["learning_rate"] < 0.15 * max(row["learning_rate"] for row in one)


def test_dropout_is_torchs_with_the_same_draw():
    x = torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
    torch.manual_seed(5)
    theirs = torch.nn.functional.dropout(x, 0.25)
    ours = dropout(x, theirs != 0, 0.25)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    dy = torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(ours, x, dy)
    assert torch.equal(gradient, dropout(dy, theirs != 0, 0.25))


def dropping(rate=0.5, seed=0, share=0, num_shares=1):
    model = Transformer(tiny(), generator=torch.Generator().manual_seed(0))
    dropped = Dropout(rate, generator=torch.Generator().manual_seed(seed))
    dropped.share, dropped.num_shares = share, num_shares
    model.drop_out(dropped)
    return model


IDS = torch.arange(4 * 20).view(4, 20)


def test_a_model_in_use_drops_nothing():
    plain = Transformer(tiny(), generator=torch.Generator().manual_seed(0))
    model = dropping()
    assert torch.equal(model.eval()(IDS), plain(IDS))
    assert not torch.allclose(model.train()(IDS), plain(IDS), atol=1e-3)
    assert not torch.equal(model(IDS), model(IDS))


def test_every_part_and_the_embedding_drop_and_ranks_together_drop_the_same():
    calls = []

    class Noted(Dropout):
        def __call__(self, x_BTD):
            calls.append(x_BTD.shape)
            return super().__call__(x_BTD)

    model = dropping()
    model.drop_out(Noted(0.5, generator=torch.Generator().manual_seed(0)))
    model(IDS)
    assert calls == [(4, 20, 32)] * (1 + 2 * 2)
    whole = dropping()(IDS)
    halves = [dropping(share=r, num_shares=2)(IDS[2 * r : 2 * r + 2]) for r in range(2)]
    torch.testing.assert_close(torch.cat(halves), whole, rtol=1e-5, atol=1e-6)
    same = [dropping()(IDS[2 * r : 2 * r + 2]) for r in range(2)]  # each draws for itself alone
    assert not torch.allclose(torch.cat(same), whole, atol=1e-3)


def test_a_recomputed_block_drops_the_same_again():
    def gradient(policy):
        model = dropping()
        with contextlib.nullcontext() if policy is None else recomputed(model, policy):
            model(IDS).square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    expected = gradient(None)
    assert torch.equal(gradient("block"), expected)
    assert torch.equal(gradient("attention"), expected)
    model = dropping()
    block = model.blocks[0]
    x = torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(3), requires_grad=True)

    def of_block(**known):
        model.dropout.generator.manual_seed(0)
        y = recompute(block, x, model.rotations_of(20), **known)
        return torch.autograd.grad(y.square().sum(), x)[0]

    told = of_block(generators=[model.dropout.generator])
    assert not torch.allclose(of_block(), told)  # who is not told draws anew


def test_a_run_with_dropout_resumes_to_the_same_bits_and_ranks_follow_it(config, tmp_path):
    noisy = replace(config, dropout=0.2)
    whole = train.fit(train.start(noisy, tmp_path / "whole"))
    plain = train.fit(train.start(config, tmp_path / "plain"))
    assert losses(whole) != pytest.approx(losses(plain), rel=1e-4)
    part = train.start(noisy, tmp_path / "part")
    for _ in range(6):
        phases.step(part)
    resumed = train.fit(train.resume(tmp_path / "part"))
    assert resumed.run.steps_done == 8
    assert weights(whole.run) == weights(resumed.run)
    for kind in ("ddp", "zero3"):
        spread = train.fit_on_ranks(noisy.replace(ranks=2, parallel=kind), tmp_path / kind)
        assert spread.losses == pytest.approx(losses(whole), rel=1e-5)


@pytest.fixture
def told(monkeypatch):
    given = dict(LOSSES)

    def validate(run):
        return replace(validation.validate(run), nats_per_token=given[run.steps_done])

    monkeypatch.setattr("llmcourse.train.loop.validate", validate)
    return given


PATIENT = {"steps": 20, "validate_every": 2, "patience": 2}
PATIENT |= {"checkpoint_every": 4, "keep_checkpoints": 9}
LOSSES = {2: 5.0, 4: 4.0, 6: 4.5, 8: 3.0, 10: 3.0, 12: 3.5, 14: 2.0, 16: 2.0, 18: 2.0, 20: 2.0}


def steps_kept(folder):
    return [checkpoint.load(path).step for path in checkpoint.list_checkpoints(folder)]


def test_a_run_ends_when_the_best_is_so_many_validations_ago(config, told, tmp_path):
    result = train.fit(train.start(config.replace(**PATIENT), tmp_path / "run"))
    assert result.run.steps_done == 12  # 10 is no better than 8, and 12 is worse
    assert result.best == (8, 3.0)
    assert not result.interrupted
    assert steps_kept(tmp_path / "run" / "best")[-1] == 8
    assert steps_kept(tmp_path / "run" / "checkpoints")[-1] == 12
    again = train.fit(train.resume(tmp_path / "run"))
    assert (again.run.steps_done, again.best) == (12, (8, 3.0))


def steps_with_an_interruption(config, folder):
    run = train.start(config.replace(**PATIENT), folder)
    assert train.fit(run, interrupted=lambda: run.steps_done == 11).interrupted
    return train.fit(train.resume(folder)).run.steps_done


def test_who_goes_on_has_waited_already(config, told, tmp_path):
    assert steps_with_an_interruption(config, tmp_path / "run") == 12


def test_a_stop_that_forgets_what_it_saw_before_is_noticed(config, told, tmp_path, monkeypatch):
    monkeypatch.setattr(early_stopping, "_validations", lambda *_: [])
    assert steps_with_an_interruption(config, tmp_path / "run") != 12


def test_a_best_of_steps_that_were_taken_back_goes(config, told, tmp_path):
    folder = tmp_path / "run"
    train.fit(train.start(config.replace(**PATIENT), folder))
    for path in checkpoint.list_checkpoints(folder / "checkpoints"):
        if checkpoint.load(path).step > 4:
            path.unlink() if path.is_file() else shutil.rmtree(path)
    told |= {6: 3.9, 8: 4.0, 10: 4.1}
    assert steps_kept(folder / "checkpoints"), "the run keeps no checkpoint of step 4"
    assert train.fit(train.resume(folder)).best == (6, 3.9)
    assert steps_kept(folder / "best")[-1] == 6


def test_what_is_used_afterwards_is_the_best(config, told, tmp_path, monkeypatch):
    train.fit(train.start(config.replace(**PATIENT), tmp_path / "run"))
    _, saved = config_and_checkpoint(tmp_path / "run")
    assert saved.step == 8
    exporting.export(tmp_path / "run", tmp_path / "exported")
    assert "8" in (tmp_path / "exported" / "README.md").read_text()
    ranks = config.replace(**PATIENT, ranks=2)
    monkeypatch.undo()
    result = train.fit_on_ranks(replace(ranks, steps=4), tmp_path / "ranks")
    assert result.best == (4, pytest.approx(result.validations[4].nats_per_token))


def test_the_command_says_where_the_best_is(tmp_path, capfd):
    words = [*WORDS, "--steps", "6", "--validate_every", "1", "--patience", "1"]
    words += ["--learning_rate", "3", "--clip_norm", "1000"]  # soon worse than at the start
    assert command(*words, "--out", tmp_path / "run") == 0
    said = capfd.readouterr().out
    assert "the lowest validation loss" in said
    assert f"that checkpoint is in {tmp_path / 'run'}/best" in said
