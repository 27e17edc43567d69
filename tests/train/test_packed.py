"""train --order packed: documents that see nothing of each other; resumed exactly, on ranks."""

from dataclasses import replace

import pytest
import torch

from llmcourse import loss, train
from llmcourse.base import checks
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.train import phases
from tests.train.runs import TINY, losses, weights

PACKED = TINY.replace(order="packed", model=replace(TINY.model, context_length=96), steps=6)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train.fit(train.start(PACKED, tmp_path_factory.mktemp("packed") / "run"))


def documents_of(batch):
    for ids, numbers in zip(batch.inputs_BT, batch.documents_BT, strict=True):
        for number in set(numbers.tolist()) - {-1}:
            yield ids[numbers == number]


def step_of(run, batch):
    run.model.double().zero_grad()
    value = phases.loss(run, phases.forward(run, batch), batch)
    phases.backward(run, value)
    return value.nats.item(), torch.cat([p.grad.flatten().clone() for p in run.model.parameters()])


def alone(run, batch):
    """The same of the documents, one by one, divided once by all they are asked for."""
    run.model.double().zero_grad()
    documents = list(documents_of(batch))
    asked = sum(len(ids) - 1 for ids in documents)
    total = 0.0
    for ids in documents:
        if len(ids) > 1:
            nats = loss.cross_entropy(run.model(ids[None, :-1]), ids[None, 1:], num_tokens=asked)
            nats.backward()
            total += nats.item()
    return total, torch.cat([p.grad.flatten().clone() for p in run.model.parameters()])


@pytest.fixture
def at_a_step(tmp_path):
    run = train.start(PACKED, tmp_path / "run")
    return run, phases.load(run)


def test_a_packed_step_is_that_of_the_documents_one_by_one(at_a_step):
    run, batch = at_a_step
    assert len(list(documents_of(batch))) > len(batch.inputs_BT)
    expected, gradient = alone(run, batch)
    found, ours = step_of(run, batch)
    assert found == pytest.approx(expected, rel=1e-12)
    assert checks.relative_error(ours, gradient) < 1e-6  # rotations are float32


MUTANTS = {
    "lets documents see each other": lambda b: b._replace(documents_BT=0 * b.documents_BT),
    "counts positions through the row": lambda b: b._replace(
        positions_BT=torch.arange(b.inputs_BT.shape[1]).expand_as(b.inputs_BT)
    ),
    "asks a document for the next one's beginning": lambda b: b._replace(
        targets_BT=loss.shifted_targets(b.inputs_BT)
    ),
}


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if "positions" not in m])
def test_the_comparison_notices(mutant, at_a_step):
    run, batch = at_a_step
    expected, gradient = alone(run, batch)
    found, ours = step_of(run, MUTANTS[mutant](batch))
    assert abs(found / expected - 1) > 1e-6, f"accepted a step that {mutant}"
    assert checks.relative_error(ours, gradient) > 1e-3


def test_positions_that_go_on_differ_in_rounding_alone(at_a_step):
    """RoPE sees differences only; counted anew, a position is one that short rows have shown."""
    run, batch = at_a_step
    _, gradient = alone(run, batch)
    _, ours = step_of(run, MUTANTS["counts positions through the row"](batch))
    assert checks.relative_error(ours, gradient) < 1e-5
    begins = batch.documents_BT[:, 1:] != batch.documents_BT[:, :-1]
    assert (batch.positions_BT[:, 1:][begins] == 0).all()


def test_a_run_goes_on_as_if_it_had_not_ended(finished, tmp_path):
    run = train.start(PACKED, tmp_path / "run")
    train.fit(run, interrupted=lambda: run.steps_done == 4)
    assert weights(train.fit(train.resume(tmp_path / "run")).run) == weights(finished.run)


def test_what_is_validated_is_packed_too(finished):
    run, last = finished.run, finished.validations[PACKED.steps]
    end = run.prepared.tokenizer.special_tokens[END_OF_TEXT]
    tokens = run.prepared.validation[: len(run.prepared.validation)]
    assert last.num_tokens < len(tokens) - (tokens == end).sum() + 1
    assert 0 < last.nats_per_token < finished.reports[0].loss


MESHES = {
    "dp=2,pp=2": {"parallel": "zero1", "micro_batches": 2},
    "tp=2,pp=2": {"sequence_parallel": True},
}


@pytest.mark.parametrize("mesh", MESHES)
def test_a_mesh_has_the_losses_of_one_process(mesh, finished, tmp_path):
    """Mutants seen to fail: rows times length as the normaliser, no mask on the stages."""
    config = PACKED.replace(mesh=mesh, **MESHES[mesh])
    found = train.fit_on_ranks(config, tmp_path / "run", timeout_s=120)
    assert found.losses == pytest.approx(losses(finished), rel=1e-5)
    last = finished.validations[PACKED.steps].nats_per_token
    assert found.validations[PACKED.steps].nats_per_token == pytest.approx(last, rel=1e-5)


@pytest.mark.parametrize("parallel", ["ddp", "zero1", "zero3"])
def test_ranks_train_what_one_process_does(parallel, finished, tmp_path):
    train.fit_on_ranks(PACKED.replace(ranks=2, parallel=parallel, accumulate=2), tmp_path / "run")
    ranks = train.resume(tmp_path / "run").model.state_dict()
    for name, weight in finished.run.model.state_dict().items():
        assert checks.relative_error(ranks[name], weight) < 1e-5, name


def test_tokens_without_an_end_of_documents_are_refused(tmp_path):
    import numpy as np  # noqa: PLC0415

    for name in ("train.bin", "val.bin"):
        np.arange(5_000, dtype="uint16").__mod__(300).tofile(tmp_path / name)
    config = PACKED.replace(corpus="bin", bin_folder=str(tmp_path))
    with pytest.raises(ValueError, match="needs to know where documents end"):
        train.start(config, tmp_path / "run")
