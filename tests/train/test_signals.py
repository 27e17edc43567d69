"""train and the signals of a cluster: what was warned saves and says "go on", with real processes.

One run of ranks, whose group is signalled, and one torchrun start as a cluster would start them,
for 5 and 15 s of a core; the others are copies of a warm process.
"""

import os
import re
import signal
import sys
import time

import pytest

from llmcourse.base.command_line import GO_ON
from llmcourse.parallel.world import pool
from llmcourse.train.signals import EndedEarlyError, StopRequest
from tests import warm
from tests.train.runs import LONG, TORCHRUN, TRAIN, children, saved_step, started, steps_in

ON_TORCHRUN = [*TORCHRUN, "-m", "llmcourse.train", "--engine", "torch", *LONG]


RUNS = {
    "one process": [],
    "two ranks": ["--ranks", "2", "--parallel", "zero1"],
    "one process of torch's": ["--engine", "torch"],
}


@pytest.mark.parametrize(
    ("run", "number", "to"),
    [
        ("one process", signal.SIGTERM, "all"),
        ("two ranks", signal.SIGTERM, "all"),
        ("two ranks", signal.SIGUSR1, "one"),
        ("one process of torch's", signal.SIGUSR1, "one"),
    ],
)
def test_a_warned_run_saves_and_says_go_on(run, number, to, tmp_path):
    """Slurm signals every process of a job, Kubernetes the first one alone."""
    folder = tmp_path / "run"
    words = [*TRAIN, *LONG, *RUNS[run], "--out", str(folder)]
    with started(words, folder, fresh=run == "two ranks" and to == "all") as process:
        (os.killpg if to == "all" else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == GO_ON == 75, err
    assert err == ""
    assert f"interrupted after step {saved_step(folder)}; saved" in out
    assert saved_step(folder) == steps_in(folder) >= 3


def test_a_warm_process_hears_though_who_started_it_was_deaf():
    """As the server of ranks is, when a pool has started it first."""
    words = [sys.executable, "-m", "timeit", "-n1", "-r1", "import time; time.sleep(60)"]
    with pool._deaf():
        process = warm.Process(words, method="fork")
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM


def test_a_second_warning_does_not_hurt_the_save(tmp_path):
    folder = tmp_path / "run"
    with started([*TRAIN, *LONG, "--out", str(folder)], folder) as process:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (GO_ON, "")
    assert saved_step(folder) == steps_in(folder)


def test_all_ranks_of_torchrun_save_when_one_of_them_is_warned(tmp_path):
    """torchrun takes any status but 0 for a failure, and would start all ranks anew."""
    folder = tmp_path / "run"
    command = [*TORCHRUN, "--max-restarts", "3", "-m", "llmcourse.train", "--engine", "torch"]
    with started([*command, *LONG, "--out", str(folder)], folder) as process:
        children(process)[1].send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("; saved.") == 1
    assert saved_step(folder) == steps_in(folder) >= 3


def test_torchrun_passes_the_warning_on_and_its_ranks_save(tmp_path):
    folder = tmp_path / "run"
    with started([*ON_TORCHRUN, "--out", str(folder)], folder, fresh=True) as process:
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1  # torchrun's own: it knows nothing of going on
    assert out.count("; saved.") == 1
    assert saved_step(folder) == steps_in(folder) >= 3


def test_ranks_that_end_because_another_one_died_save_nothing(tmp_path):
    folder = tmp_path / "run"
    with started([*ON_TORCHRUN, "--out", str(folder)], folder) as process:
        children(process)[1].kill()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "saved" not in out
    assert re.search("exitcode *: -9 ", err)  # in the line of the first to fail, or its table
    assert "exitcode  : 75" not in err
    assert saved_step(folder) is None


def test_a_rank_that_was_told_and_cannot_save_says_so_in_one_line(tmp_path):
    folder = tmp_path / "run"
    with started([*ON_TORCHRUN, "--out", str(folder)], folder) as process:
        told, dies = children(process)
        dies.suspend()
        told.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        dies.kill()
        out, err = process.communicate(timeout=60)
    assert "saved" not in out
    assert "ended by SIGTERM; nothing is saved, since another rank is gone" in err
    assert "[rank0]" not in err  # no traceback of its own
    assert saved_step(folder) is None


def test_a_signal_before_the_first_step_ends_the_run_at_once():
    asked = StopRequest(listens=False)
    with pytest.raises(EndedEarlyError, match="SIGTERM before the first step") as ended:
        asked.hear(signal.SIGTERM)
    assert ended.value.status == GO_ON
    with pytest.raises(KeyboardInterrupt):
        StopRequest(listens=False).hear(signal.SIGINT)


def test_between_steps_the_first_signal_is_a_question_and_ctrl_c_after_it_is_not():
    pressed = []
    asked = StopRequest(lambda: pressed.append(1), listens=True)
    assert not asked()
    asked.hear(signal.SIGTERM)
    asked.hear(signal.SIGUSR1)
    assert asked()
    assert (asked.by, asked.status, pressed) == (signal.SIGTERM, GO_ON, [1])
    with pytest.raises(KeyboardInterrupt):
        asked.hear(signal.SIGINT)
    assert StopRequest(listens=True).status == GO_ON  # the file STOP ends a run without a signal


def test_under_torchrun_no_rank_fails_because_it_was_warned(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    asked = StopRequest(listens=True)
    asked.hear(signal.SIGTERM)
    assert asked.status == 0
    with pytest.raises(EndedEarlyError) as ended:
        StopRequest(listens=False).hear(signal.SIGTERM)
    assert ended.value.status == 128 + signal.SIGTERM
