"""train --engine torch: the losses of one process; checkpoints that either engine reads."""

import json
import shutil
import sys
import time
from dataclasses import replace

import programs_torch as programs
import pytest
import torch
from parallel_kit import halfway, losses_of, saved_in

from llmcourse import checkpoint, train
from llmcourse.base import runtime
from llmcourse.data.corpus import stories
from llmcourse.parallel import world
from llmcourse.parallel.world import RankError
from llmcourse.train import __main__ as command_line
from llmcourse_labs.curation import prepare_text
from llmcourse_labs.torch_engine import dcp
from llmcourse_labs.torch_engine import engine as torch_engine
from tests import warm
from tests.train.runs import children, started

STEPS = 6
LAYOUTS = [("ddp", 2), ("fsdp", 2), ("ddp", 4), ("fsdp", 4), ("fsdp", 1)]
SMALL = ["--preset", "tiny", "--steps", "6", "--warmup_steps", "2", "--sample_tokens", "5"]


def settings(config, kind, ranks):
    """Of four ranks each learns from its two sequences one after the other."""
    accumulate = 2 if ranks == 4 else 1
    return config.replace(engine="torch", parallel=kind, ranks=ranks, accumulate=accumulate)


@pytest.fixture(scope="module")
def fit(pools):
    return lambda config, folder: pools(config.layout.ranks).run(programs.fit, config, folder)


@pytest.fixture(scope="module")
def spread_out(config, fit, tmp_path_factory):
    found = {}
    for kind, ranks in LAYOUTS:
        folder = tmp_path_factory.mktemp("runs") / f"{kind}-{ranks}"
        found[kind, ranks] = fit(settings(config, kind, ranks), folder), folder
    return found


def moments_of(saved):
    return {
        f"{number} {name}": value
        for number, state in saved.optimizer["state"].items()
        for name, value in state.items()
        if name != "step"
    }


def bits_of(saved):
    return list(map(runtime.fingerprint, (saved.model, saved.generators, moments_of(saved))))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torchs_engine_has_the_losses_and_weights_of_ours(layout, alone, spread_out):
    norms = [report.gradient_norm for report in alone.reports]
    results, theirs = spread_out[layout]
    for each in results:
        assert each[0] == pytest.approx(losses_of(alone), rel=1e-5)
        assert each[1] == pytest.approx(norms, rel=1e-4)
    ours, saved = saved_in(alone.run.folder), saved_in(theirs)
    assert saved.step == ours.step == STEPS
    assert saved.data == ours.data
    assert runtime.fingerprint(saved.generators) == runtime.fingerprint(ours.generators)
    torch.testing.assert_close(saved.model, ours.model, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(moments_of(saved), moments_of(ours), rtol=1e-3, atol=1e-6)
    steps = [state["step"] for state in saved.optimizer["state"].values()]
    assert steps == [STEPS] * len(ours.optimizer["state"])


def test_ranks_that_do_not_average_drift_apart(config, alone, pools, tmp_path):
    results = pools(2).run(programs.without_averaging, settings(config, "ddp", 2), tmp_path / "run")
    assert results[0] != pytest.approx(losses_of(alone), rel=1e-5)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("own", "ddp", 1), ("torch", "fsdp", 2)),
        (("own", "zero3", 2), ("torch", "ddp", 2)),
        (("torch", "fsdp", 4), ("torch", "fsdp", 2)),
        (("torch", "ddp", 2), ("torch", "fsdp", 4)),
        (("torch", "fsdp", 2), ("own", "ddp", 1)),
        (("torch", "ddp", 2), ("own", "zero2", 4)),
    ],
)
def test_a_run_goes_on_in_another_engine_and_layout(
    first, then, *, config, alone, fit, spread_out, tmp_path
):
    engine, kind, ranks = first
    if engine == "torch":
        folder = spread_out[kind, ranks][1]
    elif ranks == 1:
        folder = alone.run.folder
    else:
        folder = tmp_path / "whole"
        train.fit_on_ranks(config.replace(ranks=ranks, parallel=kind), folder)
    folder = halfway(folder, tmp_path / "run")
    assert saved_in(folder).step == 3
    engine, kind, ranks = then
    if engine == "torch":
        losses = fit(settings(config, kind, ranks), folder)[0][0]
    else:
        losses = train.resume_on_ranks(folder, ranks=ranks, parallel=kind).losses
    assert losses == pytest.approx(losses_of(alone)[3:], rel=1e-5)
    assert saved_in(folder).step == STEPS


def test_the_same_layout_goes_on_bit_for_bit(config, fit, spread_out, tmp_path):
    for layout in (("fsdp", 2), ("ddp", 2)):
        results, whole = spread_out[layout]
        folder = halfway(whole, tmp_path / layout[0])
        assert fit(settings(config, *layout), folder)[0][0] == results[0][0][3:]
        assert bits_of(saved_in(folder)) == bits_of(saved_in(whole))


def test_a_background_save_is_the_same_and_does_not_tear(config, fit, spread_out, tmp_path):
    fit(settings(config, "fsdp", 2).replace(save_in_background=True), tmp_path / "run")
    for step in (3, 6):
        name = f"checkpoints/step_{step:08d}.dcp"
        folders = tmp_path / "run", spread_out["fsdp", 2][1]
        now, before = (bits_of(checkpoint.load(folder / name)) for folder in folders)
        assert now == before


def test_a_background_save_begins_when_the_one_before_has_ended(config, tmp_path, monkeypatch):
    """They share a group of processes: two at once would mix up its messages."""
    begin_write, under_way, ended = dcp.begin_write, [], []

    def slow(*given, **settings):
        assert not under_way
        finish = begin_write(*given, **settings)
        under_way.append(finish)

        def later():
            time.sleep(0.2)
            finish()
            ended.append(under_way.pop())

        return later

    monkeypatch.setattr(dcp, "begin_write", slow)
    made = settings(config, "ddp", 1).replace(save_in_background=True, checkpoint_every=2)
    torch_engine.fit_under_torchrun(made, tmp_path / "run")
    assert len(ended) == 3


def test_what_changes_after_the_snapshot_is_not_in_it(pools, tmp_path):
    folder, size = tmp_path / "step_00000001.dcp", 2_000_000
    pools(2).run(programs.save_and_change, folder)
    dcp.write_index(folder, {"w0": (size,), "w1": (size,)}, {}, num_ranks=2)
    read = dcp.read_tensors(folder)
    for rank in range(2):
        assert torch.equal(read[f"w{rank}"], torch.arange(float(size)) + rank)


def test_damage_is_found_and_an_earlier_one_is_taken(spread_out, tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    shutil.copytree(spread_out["fsdp", 2][1] / "checkpoints", folder)
    newest = folder / "step_00000006.dcp"
    part = next(newest.glob("__1_*"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    assert checkpoint.latest(folder).name == "step_00000003.dcp"
    assert "damaged" in caplog.text
    with pytest.raises(ValueError, match="damaged: its content does not match its hash"):
        checkpoint.load(newest)
    part.unlink()
    with pytest.raises(ValueError, match="not whole any more: __1_"):
        checkpoint.load(newest)
    (newest / "index.ckpt").unlink()
    with pytest.raises(ValueError, match="no whole checkpoint"):
        checkpoint.load(newest)


def test_a_write_that_fails_is_the_systems_own_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RankError) as failed:
        world.run(programs.save_and_change, 2, tmp_path / "file" / "step_00000001.dcp")
    assert "NotADirectoryError" in failed.value.cause


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "torch", "parallel": "zero2"}, "choose from ddp, fsdp"),
        ({"engine": "own", "parallel": "fsdp", "ranks": 2}, "choose from ddp, zero1"),
        ({"engine": "torch", "save_in_shards": True}, "leave out save_in_shards"),
        ({"engine": "torch", "ranks": 3}, "choose a multiple"),
    ],
)
def test_settings_that_do_not_fit_the_engine_are_refused(changes, message, config):
    with pytest.raises(ValueError, match=message):
        config.replace(**changes)


def test_text_of_ones_own_is_read_where_it_is(config, fit, tmp_path):
    """And stays what it was: about two seconds."""
    (tmp_path / "a.txt").write_text(stories(40_000, seed=1))
    data = prepare_text([tmp_path / "a.txt"], tmp_path / "data", vocab_size=290).folder
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    shape = replace(config.model, vocab_size=290)
    config = config.replace(corpus="prepared", data=str(data), model=shape)
    alone = train.fit(train.start(config, tmp_path / "alone"))
    for each in fit(settings(config, "fsdp", 2), tmp_path / "two"):
        assert each[0] == pytest.approx(losses_of(alone), rel=1e-5)
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before
    assert not (tmp_path / "two" / "data" / "training").exists()


def test_ranks_are_torchruns_to_choose(tmp_path, capfd):
    given = [*SMALL, "--engine", "torch", "--ranks", "2", "--out", str(tmp_path / "run")]
    assert command_line.main(given) == 2
    assert "torchrun --nproc_per_node 2" in capfd.readouterr().err


def torchrun(*arguments, ranks=2, restarts=0):
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)),
        *("--max-restarts", str(restarts), "--monitor-interval", "0.1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
        *("-m", "llmcourse.train", "--engine", "torch", *arguments),
    ]


def test_the_same_command_goes_on_and_another_run_is_refused(pools, tmp_path):
    folder = tmp_path / "run"
    given = [*SMALL, "--checkpoint_every", "3", "--validate_every", "0"]
    command = torchrun(*given, "--out", str(folder), "--parallel", "fsdp")
    done = warm.run(command, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 6: validation") == 1  # one rank speaks for all
    assert f"run {folder} on 2 ranks of torch's" in done.stdout
    other = [*given, "--out", str(folder), "--parallel", "fsdp", "--seed", "4"]
    for status, told in pools(2).run(programs.command, "--engine", "torch", *other):
        assert status == 2
        assert "holds a run with seed = 0, this one has 4" in told
    assert saved_in(folder).step == 6
    assert command_line.main(["--resume", str(folder), "--engine", "own", "--parallel", "ddp",
                              "--ranks", "1", "--steps", "7"]) == 0  # fmt: skip
    assert saved_in(folder).step == 7


def test_one_process_of_torch_keeps_its_layout(pools, tmp_path):
    """Shards on a single process are what will be shards on many."""
    folder = tmp_path / "run"
    first = [*SMALL, "--parallel", "fsdp", "--out", str(folder)]
    for arguments in (first, ["--resume", str(folder), "--steps", "7"]):
        assert pools(1).run(programs.command, "--engine", "torch", *arguments)[0][0] == 0
    saved = saved_in(folder)
    assert (saved.step, saved.config["engine"], saved.config["parallel"]) == (7, "torch", "fsdp")


def test_torchrun_starts_again_after_a_killed_rank(config, fit, tmp_path):
    folder = tmp_path / "run"
    given = [*SMALL, "--steps", "40", "--checkpoint_every", "2", "--validate_every", "0"]
    given += ["--parallel", "fsdp", "--keep_checkpoints", "3", "--out", str(folder)]
    metrics = folder / "metrics.jsonl"
    with started(torchrun(*given, restarts=3), folder, steps=5) as process:
        children(process)[1].kill()
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 41))
    assert saved_in(folder).step == 40
    whole = config.replace(steps=40, warmup_steps=2, checkpoint_every=0, keep_checkpoints=3)
    fit(settings(whole, "fsdp", 2), tmp_path / "whole")
    assert bits_of(saved_in(folder)) == bits_of(saved_in(tmp_path / "whole"))
