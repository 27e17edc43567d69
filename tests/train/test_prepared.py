"""train --data: a run on text of one's own reads it where it is, and goes on with no other.

The runs are those of the preset tiny, of a few steps: about a second each.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from llmcourse import train
from llmcourse.data import TokenShards
from llmcourse.data.corpus import stories
from llmcourse_labs.curation import prepare_text
from llmcourse_labs.export import folder as exporting
from tests.train.runs import SHORT, command, losses, refused
from tests.train.runs import WORDS as SHORT_WORDS

WORDS = [*SHORT_WORDS, "--checkpoint_every", "3"]


def prepared(folder, seed=1):
    folder.mkdir()
    (folder / "a.txt").write_text(stories(40_000, seed=seed))
    return prepare_text([folder / "a.txt"], folder / "data", vocab_size=290).folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("text") / "one")


@pytest.fixture(scope="module")
def config(data):
    model = replace(SHORT.model, vocab_size=290)
    return SHORT.replace(steps=6, corpus="prepared", data=str(data), model=model)


def test_a_run_trains_on_a_folder_that_is_named(data, tmp_path, monkeypatch, capfd):
    """Also where the path is relative; vocabulary and corpus follow, and no token is copied."""
    monkeypatch.chdir(data.parent)
    assert command(*WORDS, "--data", data.name, "--out", tmp_path / "run") == 0
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    run = train.resume(tmp_path / "run", steps=8)
    assert run.steps_done == 6
    assert run.config.model.vocab_size == run.prepared.tokenizer.vocab_size == 290
    assert np.array_equal(run.prepared.training[:], TokenShards(data / "training")[:])
    inside = {path.name for path in (tmp_path / "run" / "data").iterdir()}
    assert inside == {"tokenizer", "complete"}
    assert 0 < train.fit(run).validations[8].bits_per_byte < 20


def test_a_run_goes_on_with_its_data_wherever_it_is_and_no_other(config, data, tmp_path, capfd):
    once = train.fit(train.start(replace(config, steps=7), tmp_path / "once"))
    folder = tmp_path / "run"
    train.fit(train.start(config, folder))
    other = prepared(tmp_path / "other", seed=2)
    resume = ("--resume", folder, "--steps", "7", "--data")
    assert "holds other tokens than the run in" in refused(capfd, *resume, other)
    moved = shutil.copytree(data, tmp_path / "moved")
    shards = moved / "training" / "shard_00000.bin"
    whole = shards.read_bytes()
    shards.write_bytes(whole[:-2] + b"\0\0")
    assert "is damaged: its tokens do not match its hash" in refused(capfd, *resume, moved)
    shards.write_bytes(whole)
    assert command(*resume, moved) == 0
    assert train.resume(folder, data=str(moved)).steps_done == once.run.steps_done == 7
    line = refused(capfd, "--resume", folder, "--steps", "9", "--data", tmp_path / "gone")
    assert "gone holds no prepared text" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "sotu"], "no effect without corpus = prepared: give both"),
        (["--model.vocab_size", "300"], "vocabulary of 290, and the model has 300"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(arguments, message, data, tmp_path, capfd):
    words = [*WORDS, "--data", data, "--out", tmp_path / "run", *arguments]
    assert message in refused(capfd, *words)


def test_an_unfinished_folder_is_refused(data, tmp_path, capfd):
    cut = shutil.copytree(data, tmp_path / "data")
    (cut / "prepared.json").rename(cut / "unfinished")
    line = refused(capfd, *WORDS, "--data", cut, "--out", tmp_path / "run")
    assert "is not complete: make it with llmcourse prepare" in line
    assert not (tmp_path / "run").exists()


def test_two_ranks_read_what_one_reads_and_write_nothing_beside_it(config, data, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    alone = train.fit(train.start(config, tmp_path / "one"))
    both = train.fit_on_ranks(config.replace(ranks=2), tmp_path / "two")
    assert both.losses == pytest.approx(losses(alone), rel=1e-5)
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before


def test_an_export_says_what_it_was_trained_on_also_without_the_data(config, data, tmp_path):
    here = shutil.copytree(data, tmp_path / "data")
    train.fit(train.start(config.replace(data=str(here)), tmp_path / "run"))
    record = json.loads((here / "prepared.json").read_bytes())["training"]
    shutil.rmtree(here)
    exporting.export(tmp_path / "run", tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert f"{record['num_bytes']:,} bytes, {record['tokens']:,} tokens" in card
