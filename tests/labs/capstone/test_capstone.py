"""The whole machine: the same hashes with and without a crash, whenever it comes.

In an ordinary run one crash at one random moment; `make soak` tries ten of each kind.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from tiny_machine import TINY, facts, tiny

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.train.sampling import load
from llmcourse_labs.capstone import hashes, read_log, run_capstone
from llmcourse_labs.capstone.run import STAGES


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run_capstone(tiny(), folder)
    return folder


def begun_like(whole, folder):
    for name in ("01_crawl", "02_funnel", "03_mixture", "04_tokens"):
        shutil.copytree(whole / name, folder / name)
    return folder


def test_every_stage_has_left_its_hashes(whole):
    found = hashes(whole)
    stages = [stage.name for stage in STAGES]
    assert len(stages) == 9
    weights = ["train weights", "sft weights", "dpo weights"]
    assert sorted(found) == sorted([*stages, *weights])
    assert len({found[name] for name in weights}) == 3
    for stage in ("train", "sft", "dpo"):
        (run,) = whole.glob(f"*_{stage}/run")
        model, _ = load(run)
        assert runtime.fingerprint(model.state_dict()) == found[f"{stage} weights"]


def test_what_was_done_is_kept(whole):
    before = hashes(whole)
    shown = []
    run_capstone(tiny(), whole, show=shown.append)
    assert sum("done before" in line for line in shown) == 9
    assert [e["event"] for e in read_log(whole)][-9:] == ["kept"] * 9
    assert hashes(whole) == before


@pytest.fixture
def rank_of_another():
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=time.sleep, args=(600,), name="rank 0", daemon=True)
    process.start()
    yield process
    process.kill()
    process.join()


def test_a_crash_at_a_random_moment_changes_nothing(nth_seed, whole, tmp_path, rank_of_another):
    draw = random.Random(f"crash {nth_seed}")
    step, delay_s = draw.randrange(4, 11), draw.random() * 0.3
    folder = begun_like(whole, tmp_path / "killed")
    run_capstone(tiny().with_kill(step, delay_s=delay_s), folder)
    story = f"killed {delay_s:.2f} s after step {step}"
    assert rank_of_another.is_alive(), story
    assert hashes(folder) == hashes(whole), story
    events = read_log(folder)
    (kill,), (resume,) = ([e for e in events if e["event"] == each] for each in ("kill", "resume"))
    assert kill["ranks"] == 4, story
    assert resume["step"] % 3 == 0, story
    assert resume["step"] > 0, story  # it has gone on, and not begun anew
    states = [e["state"] for e in events if e["event"] == "ranks" and e["stage"] == "train"]
    assert states == ["starting", "training", "killed", "starting", "training", "ended"]
    assert facts(folder, "train")["losses"] == facts(whole, "train")["losses"]


@pytest.mark.parametrize("mutant", ["", "has lost its moments"])
def test_the_hashes_notice_a_run_that_goes_on_without(mutant, whole, tmp_path):
    """A checkpoint without a part of the state ends in other weights; with all of it, in these."""
    folder = begun_like(whole, tmp_path)
    shutil.copytree(whole / "05_train", folder / "05_train")
    (folder / "05_train" / "done.json").unlink()
    run = folder / "05_train" / "run"
    data = {"data": str((folder / "04_tokens" / "data").resolve())}
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | data))
    checkpoints.latest(run / "checkpoints").unlink()
    saved = checkpoints.load(checkpoints.latest(run / "checkpoints"))
    assert saved.step == 9
    if mutant:
        for state in saved.optimizer["state"].values():
            state["mean"].zero_()
    generators = {n: torch.Generator().set_state(s) for n, s in saved.generators.items()}
    parts = {name: getattr(saved, name) for name in ("model", "optimizer", "schedule", "data")}
    config = saved.config | data
    checkpoints.save(run / "checkpoints", step=9, generators=generators, config=config, **parts)
    run_capstone(tiny(), folder, until="train")
    same = hashes(folder)["train weights"] == hashes(whole)["train weights"]
    assert same == (not mutant)


def test_the_command_itself_is_ended_at_a_random_moment(nth_seed, whole, tmp_path):
    """By SIGKILL, or by Ctrl-C; no process stays, and the next call ends with the same hashes."""
    draw = random.Random(f"command {nth_seed}")
    lines = draw.randrange(10, 40) if nth_seed else 22  # 22: in the training
    number = signal.SIGINT if nth_seed % 2 else signal.SIGKILL
    folder = tmp_path / "ended"
    (tmp_path / "tiny.toml").write_text(TINY)
    with subprocess.Popen(
        [sys.executable, "-m", "llmcourse", "capstone", "--config", "tiny.toml", "--out", "ended"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        wait_for(folder / "log.jsonl", lines, process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    _, alive = psutil.wait_procs([c for c in children if c.is_running()], timeout=20)
    assert not alive
    if number == signal.SIGINT:
        assert process.returncode in (0, 130), said
        assert "the same command goes on from there" in said or process.returncode == 0
    assert not (folder / "hashes.txt").exists() or number == signal.SIGINT
    run_capstone(tiny(), folder)
    assert hashes(folder) == hashes(whole)


def wait_for(path: Path, lines: int, process: subprocess.Popen) -> None:
    limit = time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < lines:
        assert time.monotonic() < limit, "the machine does not get on"
        if process.poll() is not None:
            assert process.returncode == 0, process.stderr.read()
            return
        time.sleep(0.02)


def test_the_report_is_the_same_but_for_its_times(whole, nth_seed, tmp_path):
    record = json.loads((whole / "09_report" / "report" / "report.json").read_text())
    sections = record["sections"]
    assert {"funnel", "mixture", "sft", "dpo", "exam", "machine", "contamination"} <= set(sections)
    assert str(whole) not in json.dumps(record)
    rows = {row[0]: row[1] for row in sections["machine"]["tables"][0]["rows"]}
    assert rows == {name: hashes(whole)[f"{name} weights"] for name in ("train", "sft", "dpo")}
    again = tmp_path / "again"
    shutil.copytree(whole, again)
    (again / "09_report" / "done.json").unlink()
    run_capstone(tiny(), again)
    assert hashes(again) == hashes(whole)


def test_the_funnel_has_dropped_what_leaks(whole):
    found = facts(whole, "evaluate")["contamination"]
    assert found["marbles"]["in the training text"] == 0
    crawled = facts(whole, "crawl")["pages that hold an item of the exam"]
    assert (found["marbles"]["in the crawl"] > 0) == (crawled > 0)
    assert torch.tensor(facts(whole, "dpo")["losses"]).isfinite().all()
