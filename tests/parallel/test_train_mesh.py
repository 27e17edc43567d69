"""train --mesh: the losses of one process, a checkpoint that goes on anywhere, refusals first."""

from dataclasses import replace

import pytest
import torch
from parallel_kit import assert_close_states, halfway, losses_of, saved_in

from llmcourse import train
from llmcourse.model import tiny, tiny_moe
from llmcourse.parallel.world import RankError
from llmcourse.train import __main__ as command_line

STEPS = 6
MESHES = {
    "dp=2,pp=2": {
        "micro_batches": 2,
        "parallel": "zero1",
        "pipeline": "zero_bubble",
        "save_in_shards": True,
    },
    "cp=2,tp=2": {"sequence_parallel": True, "save_in_shards": True},
    "dp=2,tp=2,pp=2": {"micro_batches": 2, "save_in_background": True},
}


@pytest.fixture(scope="module")
def on_meshes(config, tmp_path_factory):
    """A finished run on each mesh: its result, and its folder."""
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
    result, folder = on_meshes(text)
    assert result.losses == pytest.approx(losses_of(alone), rel=1e-5)
    assert result.steps_done == STEPS
    assert min(result.num_messages) > 0
    last = result.validations[STEPS].nats_per_token
    assert last == pytest.approx(alone.validations[STEPS].nats_per_token, rel=1e-5)
    saved, reference = saved_in(folder), saved_in(alone.run.folder)
    assert_close_states(saved, reference)
    assert saved.data == reference.data
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == STEPS  # one rank writes for all


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
        parallel = then.get("parallel", "ddp")
        after = train.resume_on_ranks(folder, **then | {"parallel": parallel}, timeout_s=120)
        rest = after.losses
    else:
        rest = losses_of(train.fit(train.resume(folder)))
    assert rest == pytest.approx(losses_of(alone)[3:], rel=1e-5)


def test_resuming_on_the_same_mesh_is_bit_for_bit(on_meshes, tmp_path):
    uninterrupted, whole = on_meshes("dp=2,pp=2")
    folder = halfway(whole, tmp_path / "run")
    rest = train.resume_on_ranks(folder, timeout_s=120)
    assert rest.losses == uninterrupted.losses[3:]
    saved, reference = saved_in(folder), saved_in(whole)
    assert all(torch.equal(saved.model[name], x) for name, x in reference.model.items())


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
    model = replace(MIXTURE, balance_weight=0.0)
    mixture = config.replace(model=model, steps=3, warmup_steps=1)
    folder = tmp_path_factory.mktemp("runs") / "mixture"
    return mixture, losses_of(train.fit(train.start(mixture, folder)))


@pytest.mark.parametrize("parallel", ["ddp", "zero2", "zero3"])
def test_a_mixture_trains_in_every_layout(parallel, mixture_alone, tmp_path):
    """Without a balance loss, whose mean over shares is another, the losses are those of one."""
    mixture, expected = mixture_alone
    found = train.fit_on_ranks(
        mixture.replace(ranks=2, parallel=parallel), tmp_path / "ranks", timeout_s=120
    )
    assert found.losses == pytest.approx(expected, rel=1e-5)
    balanced = replace(mixture, model=replace(mixture.model, balance_weight=0.01))
    with_loss = train.fit_on_ranks(
        balanced.replace(ranks=2, parallel=parallel), tmp_path / "balanced", timeout_s=120
    )
    assert with_loss.losses[0] == pytest.approx(expected[0], rel=1e-5)  # nats per token alone
    assert with_loss.losses[-1] != found.losses[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mesh": "tp=3"}, "num_heads must be divisible, got 4"),
        ({"mesh": "pp=3", "micro_batches": 4}, "3 stages, more than the 2 layers"),
        ({"mesh": "pp=2", "micro_batches": 1}, "at least the 2 stages of pp, got 1; nearest: 2"),
        ({"mesh": "pp=2,dp=8"}, "at least the 2 stages of pp, which no .* = 8; nearest: 16"),
        ({"mesh": "pp=2", "micro_batches": -1}, "micro_batches must be 0 or greater, got -1"),
        ({"mesh": "cp=5"}, "multiple of 10"),
        ({"mesh": "tp=4"}, "num_kv_heads must be divisible, got 2"),
        ({"mesh": "dp=3"}, "batch_size must be a multiple of dp x ep = 3, got 8"),
        ({"mesh": "zz=3"}, "an axis 'zz'"),
        ({"mesh": "dp=2", "ranks": 2}, "leave out ranks"),
        (
            {"mesh": "dp=2", "parallel": "zero3"},
            "zero3 with a mesh, such as mesh = dp=2,pp=2: choose from",
        ),
        ({"mesh": "tp=2", "parallel": "zero1"}, "no effect with dp = 1"),
        ({"mesh": "tp=2", "device": "auto"}, "run on the cpu"),
        ({"mesh": "tp=2", "without": "position"}, "leave out without"),
        ({"mesh": "tp=2", "engine": "torch"}, "for engine = own"),
        ({"micro_batches": 2}, "micro_batches = 2 has no effect without a mesh"),
        ({"sequence_parallel": True}, "no effect without a mesh"),
    ],
)
def test_settings_that_cannot_run_are_refused(changes, message, config):
    with pytest.raises(ValueError, match=message):
        config.replace(**changes)


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
    deep = replace(config.model, num_layers=6)
    changed = config.replace(**{"model": deep, **layout})
    assert changed.layout.split(changed.batch_size).micro_batches == number


def test_a_wide_mesh_of_a_wide_model_is_legal(config):
    wide = replace(tiny(), num_layers=8, num_heads=8, num_kv_heads=8)
    changed = config.replace(model=wide, mesh="dp=2,pp=2,cp=2,tp=4", micro_batches=2)
    assert changed.layout.num_ranks == 32
    assert config.layout.num_ranks == 1


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


def test_a_wrong_mesh_is_one_line_and_starts_nothing(tmp_path, capfd):
    folder = tmp_path / "run"
    assert command_line.main([*SMALL, "--mesh", "tp=3", "--out", str(folder)]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "num_heads must be divisible" in lines[0]
    assert not folder.exists()


def test_a_diverging_run_names_the_rank(config, tmp_path):
    wild = config.replace(mesh="pp=2", micro_batches=2, learning_rate=1e30, warmup_steps=0)
    with pytest.raises(RankError, match="TrainingDivergedError"):
        train.fit_on_ranks(wild, tmp_path / "run", timeout_s=60)
