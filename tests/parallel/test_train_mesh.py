"""train --mesh: the losses of one process, a checkpoint that goes on anywhere, refusals first."""

from dataclasses import replace

import pytest
from parallel_kit import assert_resumes_bit_for_bit, assert_runs_as, halfway, losses_of, saved_in

from llmcourse import train
from llmcourse.model import tiny_moe
from llmcourse.train import __main__ as command_line

STEPS, SHARDS = 6, {"save_in_shards": True}
MESHES = {
    "dp=2,pp=2": {"micro_batches": 2, "parallel": "zero1", "pipeline": "zero_bubble", **SHARDS},
    "cp=2,tp=2": {"sequence_parallel": True, **SHARDS},
    "dp=2,tp=2,pp=2": {"micro_batches": 2, "save_in_background": True},
}


@pytest.fixture(scope="module")
def on_meshes(config, tmp_path_factory):
    found = {}

    def run(text):
        if text not in found:
            folder = tmp_path_factory.mktemp("runs") / text.replace(",", "-")
            changed = config.replace(mesh=text, **MESHES[text])
            found[text] = train.fit_on_ranks(changed, folder, timeout_s=120), folder
        return found[text]

    return run


@pytest.mark.parametrize("text", MESHES)
def test_a_mesh_has_the_losses_and_the_state_of_one_process(text, alone, on_meshes):
    assert_runs_as(alone, *on_meshes(text))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("dp=2,pp=2", {"mesh": "tp=2"}),
        ("cp=2,tp=2", {"ranks": 2, "parallel": "zero3"}),
        ("zero1", {"mesh": "dp=2,cp=2"}),
        ("dp=2,tp=2,pp=2", {}),
    ],
    ids=["pp to tp", "tp to zero3", "zero1 to dp x cp", "all to one process"],
)
def test_a_run_goes_on_in_another_layout(first, then, *, config, alone, on_meshes, tmp_path):
    if first == "zero1":
        folder = tmp_path / "whole"
        train.fit_on_ranks(config.replace(ranks=2, parallel="zero1"), folder)
    else:
        _, folder = on_meshes(first)
    folder = halfway(folder, tmp_path / "moved")
    assert saved_in(folder).step == 3
    if then:
        rest = train.resume_on_ranks(folder, **{"parallel": "ddp"} | then).losses
    else:
        rest = losses_of(train.fit(train.resume(folder)))
    assert rest == pytest.approx(losses_of(alone)[3:], rel=1e-5)


def test_resuming_on_the_same_mesh_is_bit_for_bit(on_meshes, tmp_path):
    assert_resumes_bit_for_bit(*on_meshes("dp=2,pp=2"), tmp_path / "run")


def test_in_bfloat16_the_losses_stay_near(config, tmp_path):
    """8 bits of precision: the mesh multiplies in bf16 as one process does, and sums otherwise."""
    narrow = config.replace(precision="bf16", steps=4, warmup_steps=1)
    expected = losses_of(train.fit(train.start(narrow, tmp_path / "alone")))
    split = narrow.replace(mesh="pp=2,tp=2", micro_batches=2)
    found = train.fit_on_ranks(split, tmp_path / "mesh", timeout_s=120).losses
    assert found == pytest.approx(expected, rel=5e-3)
    wide = losses_of(train.fit(train.start(replace(narrow, precision="fp32"), tmp_path / "wide")))
    assert found != wide


MIXTURE = replace(tiny_moe(), num_layers=2)


def test_a_mixture_trains_on_experts_and_stages(config, tmp_path):
    """Its balance loss is that of every share, so the run follows one process and is not it."""
    mixture = config.replace(model=MIXTURE, steps=4, warmup_steps=1)
    expected = losses_of(train.fit(train.start(mixture, tmp_path / "alone")))
    split = mixture.replace(mesh="ep=2,pp=2", micro_batches=2)
    found = train.fit_on_ranks(split, tmp_path / "mesh", timeout_s=120)
    assert found.losses[0] == pytest.approx(expected[0], rel=1e-5)
    assert found.losses == pytest.approx(expected, rel=1e-3)


@pytest.fixture(scope="module")
def mixture_alone(config, tmp_path_factory):
    """Settings of a mixture without a balance loss, and its losses in one process."""
    mixture = config.replace(model=replace(MIXTURE, balance_weight=0.0), steps=3, warmup_steps=1)
    folder = tmp_path_factory.mktemp("runs") / "mixture"
    return mixture, losses_of(train.fit(train.start(mixture, folder)))


@pytest.mark.parametrize("parallel", ["ddp", "zero2", "zero3"])
def test_a_mixture_trains_in_every_layout(parallel, mixture_alone, tmp_path):
    """Without a balance loss, whose mean over shares is another, the losses are those of one."""
    mixture, expected = mixture_alone
    mixture = mixture.replace(ranks=2, parallel=parallel)
    found = train.fit_on_ranks(mixture, tmp_path / "ranks")
    assert found.losses == pytest.approx(expected, rel=1e-5)
    balanced = replace(mixture, model=replace(mixture.model, balance_weight=0.01))
    with_loss = train.fit_on_ranks(balanced, tmp_path / "balanced")
    assert with_loss.losses[0] == pytest.approx(expected[0], rel=1e-5)  # nats per token alone
    assert with_loss.losses[-1] != found.losses[-1]


@pytest.mark.parametrize(
    ("layout", "number"),
    [
        ({"mesh": "tp=2"}, 1),
        ({"mesh": "dp=2,pp=2"}, 2),
        ({"mesh": "pp=3"}, 4),  # of 8 sequences
        ({"mesh": "pp=3,dp=2"}, 4),
        ({"mesh": "pp=2", "pipeline": "interleaved", "chunks": 2}, 2),
        ({"mesh": "pp=3", "pipeline": "interleaved", "chunks": 2, "batch_size": 24}, 3),
        ({"mesh": "pp=3", "pipeline": "interleaved", "chunks": 2, "batch_size": 20 * 3}, 3),
        ({"mesh": "pp=2", "micro_batches": 8}, 8),
    ],
)
def test_a_mesh_takes_the_fewest_micro_batches_that_give_every_stage_work(config, layout, number):
    changed = config.replace(**{"model": replace(config.model, num_layers=6), **layout})
    assert changed.layout.split(changed.batch_size).micro_batches == number


SMALL = ["--preset", "tiny", "--steps", "4", "--warmup_steps", "1", "--sample_tokens", "5"]


def test_the_command_line_trains_on_a_mesh_and_moves(tmp_path, capfd):
    folder = str(tmp_path / "run")
    layout = ["--mesh", "tp=2,pp=2"]
    assert command_line.main([*SMALL, *layout, "--out", folder]) == 0
    assert f"run {folder} on 4 ranks" in capfd.readouterr().out
    assert command_line.main(["--resume", folder, "--steps", "5"]) == 0
    moved = ["--mesh", "dp=2", "--parallel", "zero1"]
    assert command_line.main(["--resume", folder, "--steps", "6", *moved]) == 0
    alone = ["--ranks", "1", "--parallel", "ddp"]
    assert command_line.main(["--resume", folder, "--steps", "7", *alone]) == 0
    saved = saved_in(tmp_path / "run")
    assert (saved.step, saved.config["mesh"]) == (7, "")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 7


def test_a_run_moves_from_a_mesh_to_torchs_engine_and_back(tmp_path, capfd):
    folder = str(tmp_path / "run")
    assert command_line.main([*SMALL, "--mesh", "dp=2,tp=2", "--out", folder]) == 0
    on_torch = ["--resume", folder, "--engine", "torch", "--parallel", "fsdp"]
    assert command_line.main([*on_torch, "--steps", "5"]) == 0
    refused = ["--resume", folder, "--steps", "6", "--mesh", "dp=2,tp=2", "--micro_batches", "2"]
    assert command_line.main(refused) == 2
    assert "--mesh, --micro_batches would have no effect on torch's" in capfd.readouterr().err
    back = ["--resume", folder, "--engine", "own", "--mesh", "tp=2", "--steps", "6"]
    assert command_line.main(back) == 0
    assert command_line.main([*on_torch, "--steps", "7"]) == 0
    saved = saved_in(tmp_path / "run")
    assert (saved.step, saved.config["engine"], saved.config["mesh"]) == (7, "torch", "")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 7
