"""Checkpoints of train in shards and in the background: those of one file, in every layout."""

import logging
import re
import shutil

import pytest
from parallel_kit import equal, halfway, losses_of, saved_in

from llmcourse import checkpoint, train
from llmcourse.checkpoint import shards
from tests.train.runs import SHORT

WAYS = {
    # parallel, ranks: in shards, in the background
    ("ddp", 1): [(True, False), (False, True), (True, True)],
    ("ddp", 2): [(False, True)],
    ("zero1", 2): [(True, False)],
    ("zero2", 3): [(True, True)],
    ("zero3", 4): [(False, True)],
}
"""Every way is that of an optimizer that is whole and of one that is shared."""
# The global generators are left out: in a test, type checks draw from Python's.


@pytest.fixture(scope="module")
def config():
    return SHORT.replace(steps=6, batch_size=12)


def fit(config, folder):
    if config.layout.num_ranks > 1:
        return train.fit_on_ranks(config, folder).losses
    return losses_of(train.fit(train.start(config, folder), show=lambda _: None))


def save(run, *, in_shards):
    run.layout.config = run.config.replace(save_in_shards=in_shards)
    return train.save(run)


@pytest.mark.parametrize(("kind", "ranks"), WAYS)
def test_any_way_of_saving_gives_one_state(kind, ranks, config, tmp_path):
    spread = config.replace(parallel=kind, ranks=ranks)
    losses = fit(spread, tmp_path / "whole")
    expected = saved_in(tmp_path / "whole")
    for in_shards, in_background in WAYS[kind, ranks]:
        made = spread.replace(save_in_shards=in_shards, save_in_background=in_background)
        folder = tmp_path / f"{in_shards} {in_background}"
        assert fit(made, folder) == losses
        saved = saved_in(folder)
        for field in ("step", "model", "optimizer", "schedule", "data", "generators"):
            assert equal(getattr(saved, field), getattr(expected, field)), field
        names = sorted(path.name for path in (folder / "checkpoints").iterdir())
        suffix = "shards" if in_shards else "ckpt"
        assert names == [f"step_{step:08d}.{suffix}" for step in (3, 6)]
        if in_shards:
            assert len(list((folder / "checkpoints" / names[1]).glob("rank_*"))) == ranks


@pytest.fixture(scope="module")
def of_four(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "four"
    return fit(config.replace(parallel="zero3", ranks=4, save_in_shards=True), folder), folder


def test_a_rank_writes_its_share_of_the_bytes(of_four):
    files = sorted(checkpoint.latest(of_four[1] / "checkpoints").glob("rank_*"))
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) < 1.3 * sum(sizes) / 4


@pytest.mark.parametrize(("kind", "ranks"), [("zero3", 2), ("zero1", 4), ("ddp", 1)])
def test_shards_of_four_ranks_go_on_in_another_layout(kind, ranks, of_four, tmp_path):
    losses, whole = of_four
    folder = halfway(whole, tmp_path / "run")
    again = train.resume_on_ranks(folder, ranks=ranks, parallel=kind)
    assert again.losses == pytest.approx(losses[3:], rel=1e-5)
    assert len(list(checkpoint.latest(folder / "checkpoints").glob("rank_*"))) == ranks
    assert saved_in(folder).step == 6


def test_a_step_that_is_saved_again_never_endangers_the_first(config, tmp_path, monkeypatch):
    run = train.start(config.replace(save_in_shards=True), tmp_path / "run")
    train.step(run)
    first = save(run, in_shards=True)
    monkeypatch.setattr(shards, "write_index", lambda *a, **k: (_ for _ in ()).throw(OSError(28)))
    with pytest.raises(OSError, match="28"):
        save(run, in_shards=True)  # the disk is full before the second one is whole
    assert checkpoint.latest(first.parent) == first
    monkeypatch.undo()
    third = save(run, in_shards=True)
    assert third.name == "step_00000001.2.shards"
    assert checkpoint.latest(first.parent) == third
    assert list(first.parent.iterdir()) == [third]  # the others are of no use any more
    assert saved_in(tmp_path / "run").step == 1


def test_retention_counts_whole_checkpoints_of_every_kind(config, tmp_path, caplog):
    run = train.start(config.replace(keep_checkpoints=2), tmp_path / "run")
    target = run.folder / "checkpoints"
    for number in range(4):
        train.step(run)
        save(run, in_shards=bool(number % 2))
        if number == 2:
            half = target / "step_00000002.5.shards"
            half.mkdir()
            (half / "rank_00000_of_00002.ckpt").write_bytes(b"half")
            with caplog.at_level(logging.WARNING):
                assert checkpoint.load(checkpoint.latest(target)).step == 3
    names = [path.name for path in checkpoint.list_checkpoints(target)]
    assert names == ["step_00000003.ckpt", "step_00000004.shards"]
    later = target / "step_00000009.shards"
    later.mkdir()  # of a run that was taken back
    save(run, in_shards=False)
    assert later.exists()


DAMAGES = {
    "cut short": lambda path, other: path.write_bytes(path.read_bytes()[:-1]),
    "one bit": lambda path, other: path.write_bytes(
        path.read_bytes()[:-9] + bytes([path.read_bytes()[-9] ^ 4]) + path.read_bytes()[-8:]
    ),
    "emptied": lambda path, other: path.write_bytes(b""),
    "removed": lambda path, other: path.unlink(),
    "another run's": lambda path, other: path.write_bytes(other.read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_damaged_shards_are_passed_over(damage, place, two_runs, tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two_runs[0] / "checkpoints", folder)
    newest, earlier = folder / "step_00000006.shards", folder / "step_00000003.shards"
    assert checkpoint.latest(folder) == newest
    path = sorted(newest.iterdir())[place]  # the index, or a rank's file
    other = two_runs[1] / "checkpoints" / newest.name / path.name
    before = {p: p.read_bytes() for p in sorted(earlier.iterdir())}
    DAMAGES[damage](path, other)
    assert checkpoint.latest(folder) == earlier
    assert f"skipping {newest.name}" in caplog.text
    with pytest.raises(ValueError, match=re.escape(newest.name)):
        checkpoint.load(newest)
    assert {p: p.read_bytes() for p in sorted(earlier.iterdir())} == before


@pytest.fixture(scope="module")
def two_runs(config, tmp_path_factory):
    folders = [tmp_path_factory.mktemp("runs") / str(seed) for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        fit(config.replace(ranks=2, save_in_shards=True, seed=seed), folder)
    return folders


def test_a_file_of_another_kind_in_the_place_of_the_index(two_runs, tmp_path, caplog):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two_runs[0] / "checkpoints", folder)
    newest = folder / "step_00000006.shards"
    shutil.copy(newest / "rank_00000_of_00002.ckpt", newest / shards.INDEX)  # whole, and no index
    assert checkpoint.latest(folder) == folder / "step_00000003.shards"
    assert "is another kind of file, and no index" in caplog.text


def test_a_rank_that_never_writes_is_named(tmp_path):
    with pytest.raises(TimeoutError, match=r"did not come in 0.05 s: rank 1 has failed"):
        shards.write_parts(tmp_path / "c", {}, {}, {}, rank=0, num_ranks=2, timeout_s=0.05)
    assert not (tmp_path / "c" / shards.INDEX).exists()


def test_an_error_in_the_background_ends_the_run(config, tmp_path, monkeypatch):
    run = train.start(config.replace(save_in_background=True), tmp_path / "run")

    def on_full_disk(*_given, **_settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.background, "write", on_full_disk)
    with pytest.raises(OSError, match="No space left"):
        train.fit(run, show=lambda _: None)
    assert run.steps_done == 6  # the next save, or the end of the run, says so
