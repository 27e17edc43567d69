"""SIGKILL at random moments of a run, and inside its writes: it ends as if nothing had been.

Three times here; `make soak` ends a hundred runs.
"""

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import programs_crash as programs
import psutil
import pytest

from llmcourse import checkpoint
from llmcourse.base import runtime

CONTEXT = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CONTEXT.set_forkserver_preload(["llmcourse.train", "programs_crash"])


def begin(folder, ranks, deadly_write=None):
    process = CONTEXT.Process(target=programs.live, args=(str(folder), ranks, deadly_write))
    process.start()
    return process


def left_behind(folder):
    """Hashes of all that a run's next step would depend on, and its losses and batches by step."""
    saved = checkpoint.load(checkpoint.latest(folder / "checkpoints"))
    moments = {
        f"{index} {name}": value
        for index, state in saved.optimizer["state"].items()
        for name, value in state.items()
        if hasattr(value, "shape")
    }
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    notes = folder / programs.NOTES
    lines = notes.read_text().splitlines() if notes.exists() else []
    return {
        "step": saved.step,
        "weights": runtime.fingerprint(saved.model),
        "moments": runtime.fingerprint(moments),
        "generators": runtime.fingerprint(saved.generators),
        "data": saved.data,
        "losses": [(row["step"], row["loss"], row.get("validation_loss")) for row in rows],
        "batches": dict(line.split() for line in lines),  # the last time a step was tried
    }


@pytest.fixture(scope="module")
def uninterrupted(request, tmp_path_factory):
    """The number of ranks, what a run leaves behind that nobody ends, and how long it takes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    begin(folder.with_name("first"), request.param).join()  # the forkserver imports torch
    started = time.monotonic()
    process = begin(folder, request.param)
    process.join()
    assert process.exitcode == 0
    return request.param, left_behind(folder), time.monotonic() - started


def a_third(pytestconfig):
    """Of the runs that are asked for: there are three tests."""
    return -(-pytestconfig.getoption("runs") // 3)


def end(process):
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:  # it has just ended by itself
        process.join()
        return
    family = [process.pid, *(child.pid for child in children)]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    deadline = time.monotonic() + 30
    while any(map(psutil.pid_exists, family)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, family)), "a rank outlived its parent"


@pytest.mark.parametrize("uninterrupted", [1, 2], indirect=True, ids=["one process", "two ranks"])
def test_ended_at_random_moments(uninterrupted, tmp_path, pytestconfig):
    ranks, expected, seconds = uninterrupted
    draw, folder, ended = random.Random(ranks), tmp_path / "run", 0
    wanted = a_third(pytestconfig)
    while ended < wanted:
        process = begin(folder, ranks)
        process.join(draw.uniform(0, 1.2 * seconds))
        if process.exitcode is None:
            end(process)
            ended += 1
        else:  # the run is over: look, and begin another
            assert process.exitcode == 0
            assert left_behind(folder) == expected
            folder = tmp_path / f"run {ended}"
    process = begin(folder, ranks)
    process.join()
    assert left_behind(folder) == expected


@pytest.mark.parametrize("uninterrupted", [1], indirect=True)  # a rank writes as this one does
def test_ended_inside_a_write(uninterrupted, tmp_path, pytestconfig):
    ranks, expected, _ = uninterrupted
    draw, folder = random.Random(0), tmp_path / "run"
    halves = 0
    for number in range(a_third(pytestconfig)):
        process = begin(folder, ranks, deadly_write=draw.randrange(200))
        process.join()
        if process.exitcode == 0:
            assert left_behind(folder) == expected
            folder = tmp_path / f"run {number}"
            continue
        assert process.exitcode == -signal.SIGKILL
        halves += len(list(Path(folder, "checkpoints").glob(".*.tmp")))
    assert halves > 0
    process = begin(folder, ranks)
    process.join()
    assert left_behind(folder) == expected
