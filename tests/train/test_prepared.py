"""train --data: a run on text of one's own reads it where it is, and goes on with no other.

The runs are those of the preset tiny, of a few steps: about a second each.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from llmcourse import train
from llmcourse.data import TokenShards, prepare_text
from llmcourse.data.corpus import stories
from llmcourse.train import __main__ as command_line
from llmcourse.train.export import folder as exporting

TINY = ["--preset", "tiny", "--steps", "6", "--warmup_steps", "2", "--validate_every", "0"]
TINY += ["--checkpoint_every", "3", "--sample_tokens", "5"]


def prepared(folder, seed=1):
    """Text of one's own, prepared."""
    folder.mkdir()
    (folder / "a.txt").write_text(stories(40_000, seed=seed))
    return prepare_text([folder / "a.txt"], folder / "data", vocab_size=290).folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("text") / "one")


@pytest.fixture(scope="module")
def config(data):
    tiny = train.PRESETS["tiny"]()
    return replace(
        tiny,
        corpus="prepared",
        data=str(data),
        model=replace(tiny.model, vocab_size=290),
        steps=6,
        warmup_steps=2,
        validate_every=0,
        checkpoint_every=3,
        sample_tokens=5,
    )


def command(*arguments):
    return command_line.main([str(word) for word in arguments])


def said(capfd):
    (line,) = capfd.readouterr().err.splitlines()
    return line


def test_a_run_trains_on_a_folder_that_is_named(data, tmp_path, monkeypatch, capfd):
    """Also where the path is relative; vocabulary and corpus follow, and no token is copied."""
    monkeypatch.chdir(data.parent)
    assert command(*TINY, "--data", data.name, "--out", tmp_path / "run") == 0
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    run = train.resume(tmp_path / "run", steps=8)
    assert run.steps_done == 6
    assert run.config.model.vocab_size == run.prepared.tokenizer.vocab_size == 290
    assert np.array_equal(run.prepared.training[:], TokenShards(data / "training")[:])
    assert {path.name for path in (tmp_path / "run" / "data").iterdir()} == {
        *("tokenizer", "complete")
    }
    assert 0 < train.fit(run).validations[8].bits_per_byte < 20


def test_a_run_goes_on_with_its_data_wherever_it_is_now_and_with_no_other(
    config, data, tmp_path, capfd
):
    once = train.fit(train.start(replace(config, steps=7), tmp_path / "once"))
    folder = tmp_path / "run"
    train.fit(train.start(config, folder))
    other = prepared(tmp_path / "other", seed=2)
    assert command("--resume", folder, "--steps", "7", "--data", other) == 2
    assert "holds other tokens than the run in" in said(capfd)
    moved = shutil.copytree(data, tmp_path / "moved")
    shards = moved / "training" / "shard_00000.bin"
    whole = shards.read_bytes()
    shards.write_bytes(whole[:-2] + b"\0\0")
    assert command("--resume", folder, "--steps", "7", "--data", moved) == 2
    assert "is damaged: its tokens do not match its hash" in said(capfd)
    shards.write_bytes(whole)
    assert command("--resume", folder, "--steps", "7", "--data", moved) == 0
    capfd.readouterr()
    here = train.resume(folder, data=str(moved))
    assert here.steps_done == once.run.steps_done == 7
    capfd.readouterr()
    assert command("--resume", folder, "--steps", "9", "--data", tmp_path / "gone") == 2
    assert "gone holds no prepared text: make it with llmcourse prepare" in said(capfd)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "sotu"], "corpus = prepared and data go together"),
        (["--model.vocab_size", "300"], "vocabulary of 290, and the model has 300"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(arguments, message, data, tmp_path, capfd):
    assert command(*TINY, "--data", data, "--out", tmp_path / "run", *arguments) == 2
    assert message in said(capfd)


def test_an_unfinished_folder_is_refused(data, tmp_path, capfd):
    cut = shutil.copytree(data, tmp_path / "data")
    (cut / "prepared.json").rename(cut / "unfinished")
    assert command(*TINY, "--data", cut, "--out", tmp_path / "run") == 2
    assert "is not complete: make it with llmcourse prepare FILES --out" in said(capfd)
    assert not (tmp_path / "run").exists()


def test_two_ranks_read_what_one_reads_and_write_nothing_beside_it(config, data, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    alone = train.fit(train.start(config, tmp_path / "one"))
    both = train.fit_on_ranks(replace(config, ranks=2), tmp_path / "two")
    assert both.losses == pytest.approx([report.loss for report in alone.reports], rel=1e-5)
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before


def test_an_export_says_what_it_was_trained_on_also_without_the_data(config, data, tmp_path):
    here = shutil.copytree(data, tmp_path / "data")
    train.fit(train.start(replace(config, data=str(here)), tmp_path / "run"))
    record = json.loads((here / "prepared.json").read_bytes())["training"]
    shutil.rmtree(here)
    exporting.export(tmp_path / "run", tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert f"{record['num_bytes']:,} bytes, {record['tokens']:,} tokens" in card
