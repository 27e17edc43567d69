"""train: of two processes in one folder the second is refused; a dead one is in nobody's way."""

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from unittest import mock

import psutil
import pytest

from llmcourse import train
from llmcourse.base import lock
from tests import warm
from tests.train import runs

RUNS = {"one process": runs.TRAIN, "two ranks": [*runs.TRAIN, "--ranks", "2"]}
RUNS["torchrun"] = [*runs.TORCHRUN, "-m", "llmcourse.train", "--engine", "torch"]


def refusal_of(words):
    done = warm.run(words, timeout=120)
    assert done.returncode != 0
    (line,) = {each for each in done.stderr.splitlines() if "is in use by" in each}
    return line


@contextlib.contextmanager
def resting(process):
    """Stop a process and all that it started for a while: nothing else needs the processor."""
    family = [*psutil.Process(process.pid).children(recursive=True), process]
    for each in family:
        each.send_signal(signal.SIGSTOP)
    yield
    for each in family:
        each.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("run", RUNS)
def test_a_second_run_in_a_folder_is_refused_and_the_first_goes_on(run, tmp_path):
    """Against a second one of each kind; the first rests while the second begins."""
    folder = tmp_path / "run"
    saves = ["--checkpoint_every", "1", "--validate_every", "0", "--sample_tokens", "5"]
    first = ["--preset", "tiny", "--steps", "100000", *saves, "--out", str(folder)]
    with runs.started([*RUNS[run], *first], folder) as process:
        others = [[*runs.TRAIN, "--resume", str(folder), "--engine", "own"]]
        others += [[*others[0], "--ranks", "2"]] if run == "one process" else []
        others += [[*RUNS["torchrun"], *first]] if run == "torchrun" else []
        holder = runs.children(process)[0].pid if run == "torchrun" else process.pid
        for other in others:
            with resting(process):
                said = refusal_of(other)
            assert f"{folder} is in use by process {holder} on {socket.gethostname()}" in said
        runs.wait_for_steps(folder, runs.steps_in(folder) + 3, process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert runs.saved_step(folder) == runs.steps_in(folder)


def test_the_lock_of_a_dead_process_is_in_nobodys_way(tmp_path):
    folder = tmp_path / "run"
    with runs.started(
        [*runs.TRAIN, *runs.LONG, "--checkpoint_every", "2", "--out", str(folder)], folder
    ) as run:
        run.kill()
        run.communicate()
    assert (folder / lock.LOCK).read_text().startswith(f"process {run.pid} on ")
    assert runs.command("--resume", folder, "--steps", runs.saved_step(folder) + 10) == 0


def test_a_process_may_ask_twice_and_lets_go_when_it_is_done(tmp_path):
    probe = (
        "import sys; from pathlib import Path; from llmcourse.base.lock import locked\n"
        "with locked(Path(sys.argv[1])): pass"
    )

    def is_free():
        words = [sys.executable, "-c", probe, str(tmp_path)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    with lock.locked(tmp_path):
        with lock.locked(tmp_path / "."):
            assert not is_free()
        assert not is_free()
    assert is_free()
    with lock.locked(tmp_path):
        expected = f"process {os.getpid()} on {socket.gethostname()}\n"
        assert (tmp_path / lock.LOCK).read_text() == expected


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_and_used(number, tmp_path, monkeypatch, caplog):
    without = mock.Mock(side_effect=OSError(number, os.strerror(number)))
    monkeypatch.setattr(lock.fcntl, "flock", without)
    with caplog.at_level(logging.WARNING), lock.locked(tmp_path):
        assert "nobody else must write there" in caplog.text


def test_two_starts_at_once_leave_one_run(tmp_path, monkeypatch):
    """The second comes while the first prepares its tokens."""
    config, folder = train.PRESETS["tiny"](), tmp_path / "run"

    def meanwhile(*_):
        (folder / "config.json").write_text("another run's")

    monkeypatch.setattr(lock, "_take", meanwhile)
    with pytest.raises(ValueError, match="already holds a run"):
        train.start(config, folder)
    assert (folder / "config.json").read_text() == "another run's"
