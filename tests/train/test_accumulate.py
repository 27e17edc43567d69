"""train --accumulate and --batch_ramp: a big batch in pieces, and batches that grow."""

from dataclasses import replace

import pytest
import torch
from edits import edited

from llmcourse import loss, train
from llmcourse.model import PRESETS, Transformer
from llmcourse.optim import AdamW
from llmcourse.train import phases
from llmcourse.train.layouts import Batch, Layout
from llmcourse.train.run import save
from tests.train.runs import WORDS, command, learn, losses, metrics, weights


@pytest.fixture(scope="module")
def batch():
    """Rows of which very different numbers of targets count, of one row none at all."""
    ids = torch.randint(300, (8, 33), generator=torch.Generator().manual_seed(1))
    targets = ids[:, 1:].clone()
    for row, counted in enumerate((32, 1, 7, 0, 32, 30, 2, 3)):
        targets[row, counted:] = loss.IGNORE_INDEX
    return Batch(ids[:, :-1], targets)


def learnt(config, batch, made=Layout, shape="tiny"):
    """The loss and the gradient that a layout leaves, in float64."""
    shape = PRESETS[shape]()
    model = Transformer(shape, generator=torch.Generator().manual_seed(0)).double()
    layout = made(replace(config, model=shape), model, AdamW(model.parameters(), lr=0.1))
    value = learn(layout, batch)
    return value.nats.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


def faults(config, batch, made, number):
    whole, whole_gradient = learnt(config, batch)
    nats, gradient = learnt(config.replace(accumulate=number), batch, made)
    found = []
    if abs(nats - whole) > 1e-12 * abs(whole):
        found.append("loss")
    if (gradient - whole_gradient).abs().max() > 1e-12 * whole_gradient.abs().max():
        found.append("gradient")
    return found


@pytest.mark.parametrize("number", [2, 4, 8])
def test_micro_batches_with_uneven_masks_give_the_big_batchs_loss_and_gradient(
    number, config, batch
):
    assert faults(config, batch, Layout, number) == []


OWN = "num_tokens=float(max(1, batch.num_targets))"
WRONG = {
    "a mean of means": ("num_tokens=num_tokens", f"{OWN} * self.config.layout.accumulate"),
    "a sum of means": ("num_tokens=num_tokens", OWN),
    "the last one alone": ("for part in before:", "for part in before[:0]:"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ways_to_accumulate_are_noticed(name, config, batch):
    assert "gradient" in faults(config, batch, edited(Layout, WRONG[name]), 4)


def test_the_normaliser_counts_targets_and_balance_is_the_mean_over_micro_batches(config, batch):
    inputs, targets = batch[:2]
    model = Transformer(config.model, generator=torch.Generator().manual_seed(0)).double()
    mean = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    assert learnt(config, batch)[0] == pytest.approx(mean.item(), rel=1e-12)
    pads_counted = edited(Layout, ("float(batch.num_targets)", "float(batch.targets_BT.numel())"))
    assert learnt(config, batch, pads_counted)[0] != pytest.approx(mean.item(), rel=1e-2)
    full = Batch(batch.inputs_BT, batch.inputs_BT.roll(-1, 1))  # every target counts
    halves = [learnt(config, half, shape="tiny_moe")[1] for half in full.micro_batches(2)]
    gradient = learnt(config.replace(accumulate=2), full, shape="tiny_moe")[1]
    assert torch.allclose(gradient, (halves[0] + halves[1]) / 2, rtol=0, atol=1e-15)


class Kept:
    """Bytes that autograd keeps: the most at any time."""

    def __init__(self):
        self.now = self.most = 0

    def pack(self, tensor):
        self.now += tensor.nbytes
        self.most = max(self.most, self.now)
        return tensor

    def unpack(self, tensor):
        self.now -= tensor.nbytes
        return tensor


def test_no_more_than_one_micro_batch_is_kept_at_a_time(config, batch):
    most = {}
    for number in (1, 4):
        kept = Kept()
        with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
            learnt(config.replace(accumulate=number), batch)
        most[number] = kept.most
    assert most[4] < 0.45 * most[1]  # weights, which do not shrink, are saved too


def test_a_run_in_micro_batches_is_the_run_in_one(config, tmp_path):
    one = train.fit(train.start(config, tmp_path / "one"))
    four = train.fit(train.start(config.replace(accumulate=4), tmp_path / "four"))
    assert losses(four) == pytest.approx(losses(one), rel=1e-5)
    assert losses(four) != losses(one)  # additions in another order
    norms = [[r.gradient_norm for r in result.reports] for result in (one, four)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_a_run_may_go_on_in_other_micro_batches(config, tmp_path):
    one = train.fit(train.start(config, tmp_path / "one"))
    run = train.start(config, tmp_path / "run")
    for _ in range(3):
        phases.step(run)
    assert command("--resume", tmp_path / "run", "--accumulate", "4") == 0
    found = [row["loss"] for row in metrics(tmp_path / "run")]
    assert found == pytest.approx(losses(one)[3:], rel=1e-5)


RAMP = "0:2,3:4,6:8"


def test_a_ramp_reads_more_at_each_change_and_resumes_to_the_same_bits(config, tmp_path):
    config = config.replace(batch_size=2, batch_ramp=RAMP, accumulate=2)
    whole = train.start(config, tmp_path / "whole")
    sizes = []
    with whole.watched_by(lambda phase, it: sizes.append(it) if phase == "load" else None):
        train.fit(whole)
    assert [len(batch.inputs_BT) for batch in sizes] == [2, 2, 2, 4, 4, 4, 8, 8]
    assert config.num_tokens == 34 * config.model.context_length
    run = train.start(config, tmp_path / "run")
    for stop in (1, 5):
        while run.steps_done < stop:
            phases.step(run)
        save(run)
        run = train.resume(tmp_path / "run")
        assert run.steps_done == stop
    train.fit(run)
    assert weights(whole) == weights(run)


def test_tokens_per_second_count_the_tokens_of_the_step(config, tmp_path):
    run = train.start(replace(config, batch_size=2, batch_ramp=RAMP), tmp_path / "run")
    seen = [run.tokens_per_step]
    for _ in range(7):
        phases.step(run)
        seen.append(run.tokens_per_step)
    assert seen == [n * config.model.context_length for n in (2, 2, 2, 2, 4, 4, 4, 8)]


def test_the_command_takes_the_first_batch_from_the_ramp(tmp_path, capfd):
    words = ["--batch_ramp", "0:4,2:8", "--accumulate", "2", "--ranks", "2"]
    assert command(*WORDS, *words, "--out", tmp_path / "run") == 0
    assert "batch_size: 4" in capfd.readouterr().out
    rows = metrics(tmp_path / "run")
    assert command(*WORDS, *words[:2], "--out", tmp_path / "alone") == 0
    alone = [row["loss"] for row in metrics(tmp_path / "alone")]
    assert [row["loss"] for row in rows] == pytest.approx(alone, rel=1e-5)
