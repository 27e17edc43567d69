"""train on several ranks: the losses of one, a checkpoint that fits any layout, clean ends."""

import contextlib
import os
import signal
import subprocess
import time

import programs_train
import pytest
import torch
from parallel_kit import assert_resumes_bit_for_bit, assert_runs_as, halfway, losses_of, saved_in

from llmcourse import loss, train
from llmcourse.train import __main__ as command_line
from llmcourse.train.layouts import Batch
from tests.train.runs import TRAIN, started, steps_in

LAYOUTS = [("ddp", 2), ("zero1", 2), ("zero2", 4), ("zero3", 2), ("zero3", 4)]


@pytest.fixture(scope="module")
def spread_out(config, tmp_path_factory):
    found = {}
    for kind, ranks in LAYOUTS:
        folder = tmp_path_factory.mktemp("runs") / f"{kind}-{ranks}"
        changed = config.replace(ranks=ranks, parallel=kind)
        found[kind, ranks] = train.fit_on_ranks(changed, folder), folder
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_losses_and_weights_of_one_rank(layout, alone, spread_out):
    result, folder = spread_out[layout]
    assert_runs_as(alone, result, folder)
    assert len(set(result.num_messages)) == 1


TOLD = {"load": [], "forward": ["forward"], "loss": [], "backward": ["backward"]}
TOLD |= {"sync": ["sync"], "optimizer": ["clip", "update"], "checkpoint": ["save"]}
"""What each of the seven words does, where a layout can tell them apart."""
JOINED = [
    ("load", [], None),
    ("forward_backward", ["forward", "backward"], None),
    *((word, [], "forward_backward") for word in ("forward", "loss", "backward")),
    *((word, TOLD[word], None) for word in ("sync", "optimizer", "checkpoint")),
]
WORDS = {
    "one process": {},
    "ddp": {"ranks": 2},
    "zero1": {"ranks": 2, "parallel": "zero1"},
    "zero3": {"ranks": 2, "parallel": "zero3"},
    "one process, accumulated": {"accumulate": 2},
    "ddp, accumulated": {"ranks": 2, "accumulate": 2},
    "mesh": {"mesh": "dp=2"},
    "pipeline": {"mesh": "pp=2"},
}


@pytest.mark.parametrize("layout", WORDS)
def test_each_word_of_a_step_does_what_it_says_and_no_other(layout, config, pools, tmp_path):
    """Mutants: backward passes in `forward`, a phase that is covered and does not say so."""
    changed = config.replace(checkpoint_every=1, **WORDS[layout])
    train.prepare(changed, tmp_path / "data")
    on_mesh, number = "mesh" in WORDS[layout], changed.layout.num_ranks
    pool = pools(number, changed.layout.split().sizes if on_mesh else {"dp": number})
    joined = "accumulated" in layout or on_mesh
    expected = JOINED if joined else [(word, did, None) for word, did in TOLD.items()]
    for told in pool.run(programs_train.words, changed, tmp_path):
        assert [tuple(each) for each in told] == expected


def test_ranks_that_do_not_agree_drift_apart(config, alone, pools, tmp_path):
    changed = config.replace(ranks=2)
    train.prepare(changed, tmp_path / "data")
    drifting = pools(2).run(programs_train.losses_without_sync, changed, tmp_path)[0]
    assert drifting[0] == pytest.approx(losses_of(alone)[0], rel=1e-5)
    assert abs(drifting[-1] - losses_of(alone)[-1]) > 1e-3


@pytest.fixture(scope="module")
def uneven():
    """Eight rows of which very different numbers of targets count."""
    ids = torch.randint(300, (8, 33), generator=torch.Generator().manual_seed(1))
    targets = ids[:, 1:].clone()
    for row, counted in enumerate((32, 1, 7, 0, 32, 30, 2, 3)):
        targets[row, counted:] = loss.IGNORE_INDEX
    return Batch(ids[:, :-1], targets)


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2", "zero3"])
def test_ranks_and_micro_batches_share_one_normaliser(kind, *, config, uneven, pools, tmp_path):
    train.prepare(config, tmp_path / "data")
    one = train.new_run(config, tmp_path, train.prepare(config, tmp_path / "data")).layout
    value = one.loss(one.forward(uneven), uneven)
    one.backward(value)
    expected = value.nats.item(), one.clip()
    changed = config.replace(ranks=2, parallel=kind, accumulate=2)
    for found in pools(2).run(programs_train.step_with_uneven_masks, changed, tmp_path, uneven):
        assert found == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("shares", [("ddp", 1, 1), ("zero1", 1, 2), ("zero3", 2, 2)])
def test_shards_are_a_share_of_the_bytes(shares, config, alone, pools, tmp_path):
    kind, weights, moments = shares
    changed = config.replace(ranks=2, parallel=kind)
    train.prepare(changed, tmp_path / "data")
    num_bytes = sum(p.nbytes for p in alone.run.model.parameters())
    for held, of_moments in pools(2).run(programs_train.state_bytes, changed, tmp_path):
        assert held == pytest.approx(num_bytes / weights, rel=0.02)
        assert of_moments == pytest.approx(2 * num_bytes / moments, rel=0.02)


@pytest.mark.parametrize(("first", "then"), [(0, 4), (3, 1), (4, None), (None, 2)])
def test_a_run_goes_on_in_another_layout(first, then, alone, spread_out, tmp_path):
    """Half of the steps in one layout, the rest in another, None being a single process."""
    whole = alone.run.folder if first is None else spread_out[LAYOUTS[first]][1]
    folder = halfway(whole, tmp_path / "moved")
    assert saved_in(folder).step == 3
    if then is None:
        rest = losses_of(train.fit(train.resume(folder)))
    else:
        kind, ranks = LAYOUTS[then]
        rest = train.resume_on_ranks(folder, ranks=ranks, parallel=kind).losses
    assert rest == pytest.approx(losses_of(alone)[3:], rel=1e-5)


def test_resuming_in_the_same_layout_is_bit_for_bit(spread_out, tmp_path):
    assert_resumes_bit_for_bit(*spread_out["zero3", 2], tmp_path / "run")


SMALL = ["--preset", "tiny", "--steps", "4", "--warmup_steps", "1", "--sample_tokens", "5"]


def test_the_command_line_trains_on_ranks_and_resumes(tmp_path, capfd):
    folder = str(tmp_path / "run")
    layout = ["--ranks", "2", "--parallel", "zero2"]
    done = subprocess.run(
        [*TRAIN, *SMALL, *layout, "--out", folder],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"run {folder} on 2 ranks" in done.stdout
    assert done.stdout.count("step 4: validation") == 1  # one rank speaks for all
    assert "checkpoints and metrics.jsonl are in" in done.stdout
    assert command_line.main(["--resume", folder, "--steps", "6"]) == 0
    assert command_line.main(["--resume", folder, "--steps", "7", "--ranks", "1"]) == 0
    assert saved_in(tmp_path / "run").step == 7
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 7
    assert command_line.main([*SMALL, *layout, "--out", folder]) == 2
    assert "already holds a run" in capfd.readouterr().err


def test_a_failing_rank_is_one_line(tmp_path, capfd):
    wild = ["--learning_rate", "1e30", "--ranks", "2", "--out", str(tmp_path / "run")]
    assert command_line.main([*SMALL, *wild]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert "rank" in lines[-1]
    assert "TrainingDivergedError" in lines[-1]


def begun(folder, **how):
    """A run on two ranks that would take for ever, as soon as it has taken a step."""
    words = [*SMALL, "--steps", "100000", "--ranks", "2", "--out", folder]
    return started([*TRAIN, *map(str, words)], folder, steps=1, **how)


def test_ctrl_c_saves_on_all_ranks(tmp_path):
    with begun(tmp_path / "run") as process:
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "interrupted after step" in out
    assert saved_in(tmp_path / "run").step == steps_in(tmp_path / "run")


def test_ctrl_c_twice_ends_the_ranks_without_a_traceback(tmp_path):
    with begun(tmp_path / "run", fresh=True) as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
        while process.poll() is None and not (tmp_path / "run" / "stop").exists():
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    # The command may have ended by itself in between: what counts is that no rank heard it.
    assert "_fit_one" not in errors
