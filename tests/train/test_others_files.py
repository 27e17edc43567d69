"""A folder of somebody else's is left as it is, and a start that fails leaves none behind."""

import re
import shutil
from pathlib import Path

import pytest

from llmcourse import train
from llmcourse.__main__ import main
from llmcourse.train import __main__ as command_line

EXERCISES = Path(__file__).parents[2] / "exercises"
SMALL = ["--preset", "tiny", "--steps", "2", "--warmup_steps", "1"]


def contents(folder):
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "own"
    (folder / "data" / "training").mkdir(parents=True)
    for name in ("lock", "metrics.jsonl", "data/training/shard_00000.bin", "notes.txt"):
        (folder / name).write_text(f"my {name}")
    return folder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "river {i} of the mill"}}\n' for i in range(20)))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["train", *SMALL, "--out", "own"],
        ["train", *SMALL, "--out", "own", "--ranks", "2"],
        ["prepare", "a.jsonl", "--out", "own", "--processes", "1"],
        ["curate", "a.jsonl", "--out", "own", "--processes", "1"],
        ["report", "--run", "run", "--out", "own"],
        ["export", "--run", "run", "--to", "own"],
        ["grade", "05_tokens.ipynb", "submissions", "--out", "own"],
        ["capstone", "--out", "own"],
    ],
    ids=lambda words: f"{words[0]}{len(words)}",
)
@pytest.mark.usefixtures("text")
def test_no_command_writes_into_it(words, own, tmp_path, monkeypatch, capfd):
    shutil.copy(EXERCISES / "05_tokens.ipynb", tmp_path / "05_tokens.ipynb")
    shutil.copytree(EXERCISES / "hidden", tmp_path / "hidden")
    (tmp_path / "submissions").mkdir()
    monkeypatch.chdir(tmp_path)
    before = contents(own)
    assert main(words) == 2
    assert re.search("holds something else|exists: choose another", capfd.readouterr().err)
    assert contents(own) == before


def test_a_file_of_the_name_is_no_folder(text, capfd):
    assert command_line.main([*SMALL, "--out", str(text)]) == 2
    assert "is a file: name a new folder" in capfd.readouterr().err


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("ranks", ["1", "2"])
def test_after_a_start_that_fails_the_corrected_command_runs(ranks, exists, tmp_path, capfd):
    folder = tmp_path / "run"
    if exists:
        folder.mkdir()
        (folder / ".DS_Store").touch()  # of a file manager, and in nobody's way
    given = [*SMALL, "--ranks", ranks, "--out", str(folder)]
    assert command_line.main([*given, "--model.vocab_size", "30000"]) == 2
    assert "for a vocabulary of" in capfd.readouterr().err
    assert folder.exists() == exists
    assert not (folder / "config.json").exists()
    assert command_line.main(given) == 0


def test_a_run_that_fails_in_its_first_step_leaves_nothing(tmp_path, monkeypatch, capfd):
    """After its settings were written."""

    def failing(*_):
        raise RuntimeError("not enough memory: you tried to allocate 10 TB")

    monkeypatch.setattr("llmcourse.train.loop.step", failing)
    assert command_line.main([*SMALL, "--out", str(tmp_path / "run")]) == 2
    assert "not enough memory" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_later_is_kept(tmp_path):
    run = train.start(train.PRESETS["tiny"](), tmp_path / "run")

    def fail(run, _report):
        if run.steps_done == 2:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        train.fit(run, on_step=fail)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_what_an_earlier_call_has_left_is_kept(tmp_path, monkeypatch):
    """Its data took time, and the next call goes on with them."""
    folder = tmp_path / "run"

    def interrupted(_prepared):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("llmcourse.train.loop.verify", interrupted)
        assert command_line.main([*SMALL, "--out", str(folder)]) == 130
    made = contents(folder / "data")
    assert made
    assert command_line.main([*SMALL, "--corpus_bytes", "3000", "--out", str(folder)]) == 2
    assert contents(folder / "data") == made
    assert command_line.main([*SMALL, "--out", str(folder)]) == 0
