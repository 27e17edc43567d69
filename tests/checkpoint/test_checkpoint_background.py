"""checkpoint.BackgroundSaver: never half of one step and half of the next; errors come to light."""

import threading
from unittest import mock

import pytest
import torch

from llmcourse import checkpoint, optim
from llmcourse.checkpoint import BackgroundSaver, background, load


@pytest.fixture
def run():
    """A model whose every weight, and moment, is the number of steps done."""
    model = torch.nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    optimizer.zero_grad()
    fill(model, optimizer, 0)
    return model, optimizer


def fill(model, optimizer, step):
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(step)
            optimizer.state[p]["velocity"] = optimizer.state[p].get("velocity", p.clone())
            optimizer.state[p]["velocity"].fill_(step)


def numbers(saved):
    moments = [s["velocity"] for s in saved.optimizer["state"].values()]
    return {float(x) for t in (*saved.model.values(), *moments) for x in t.flatten()}


@pytest.fixture
def gate(monkeypatch):
    opened = threading.Event()
    original = background.write

    def held(*arguments, **settings):
        assert opened.wait(10)
        return original(*arguments, **settings)

    monkeypatch.setattr(background, "write", held)
    return opened


@pytest.mark.parametrize("copies", [True, False])
def test_steps_taken_during_the_write_are_not_in_it(copies, run, gate, tmp_path, monkeypatch):
    if not copies:
        monkeypatch.setattr(background, "copied", lambda content: content)
    model, optimizer = run
    with BackgroundSaver() as saver:
        saver.save(tmp_path, step=0, model=model, optimizer=optimizer)
        fill(model, optimizer, 1)
        assert not list(tmp_path.iterdir())
        gate.set()
    assert (numbers(load(checkpoint.latest(tmp_path))) == {0.0}) is copies


def steps_in(folder):
    return [load(path).step for path in checkpoint.list_checkpoints(folder)]


def test_saves_come_one_after_the_other_and_equal_those_at_once(run, tmp_path):
    model, optimizer = run
    g = torch.Generator().manual_seed(3)
    with BackgroundSaver() as saver:
        assert saver.wait() is None
        for step in range(6):
            fill(model, optimizer, step)
            parts = {"model": model, "optimizer": optimizer, "generators": {"g": g}}
            saver.save(tmp_path / "a", step=step, keep_last=3, **parts)
            at_once = checkpoint.save(tmp_path / "b", step=step, keep_last=3, **parts)
            assert saver.wait().name == at_once.name
            ours, theirs = load(saver.wait()), load(at_once)
            assert numbers(ours) == numbers(theirs) == {float(step)}
            assert torch.equal(ours.generators["g"], theirs.generators["g"])
            assert (ours.step, ours.code) == (step, theirs.code)
            torch.rand(1, generator=g)
    assert steps_in(tmp_path / "a") == [3, 4, 5]


def test_an_error_of_the_thread_is_raised_once_and_the_old_file_stays(run, tmp_path, monkeypatch):
    model, _ = run
    saver = BackgroundSaver()
    saver.save(tmp_path, step=0, model=model)
    saver.wait()
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(background, "write", full)
    saver.save(tmp_path, step=1, model=model)
    with pytest.raises(OSError, match="No space left"):
        saver.save(tmp_path, step=2, model=model)
    monkeypatch.undo()
    saver.save(tmp_path, step=3, model=model)
    assert (saver.wait().name, steps_in(tmp_path)) == ("step_00000003.ckpt", [0, 3])


@pytest.mark.parametrize(("own", "raised"), [(None, OSError), (RuntimeError("mine"), RuntimeError)])
def test_the_end_of_a_block_says_what_the_thread_met_or_the_first_error(own, raised, run, tmp_path):
    (tmp_path / "file").touch()

    def saving():
        with BackgroundSaver() as saver:
            saver.save(tmp_path / "file", step=0, model=run[0])
            if own:
                raise own

    with pytest.raises(raised, match="mine" if own else "file"):
        saving()


def test_bad_arguments_are_refused_at_once(run, tmp_path):
    with BackgroundSaver() as saver:
        with pytest.raises(ValueError, match="step must be 0 or greater"):
            saver.save(tmp_path, step=-1, model=run[0])
        with pytest.raises(TypeError, match="config"):
            saver.save(tmp_path, step=0, model=run[0], config={"f": print})
        assert saver.wait() is None
