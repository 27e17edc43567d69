"""Settings that cannot be, folders that cannot be used: one clear line, and nothing is written."""

import os
import shutil
from collections import namedtuple

import pytest
from tiny_machine import TINY, tiny

from llmcourse.base.lock import locked
from llmcourse.parallel.world import RankError
from llmcourse_labs.capstone import CapstoneConfig, marbles, run_capstone, shipped
from llmcourse_labs.capstone import __main__ as command_line
from llmcourse_labs.capstone import run as machine
from llmcourse_labs.curation.crawl import Crawl

BAD = {
    "no TOML": ("[train\n", "is no TOML: Expected ']'"),
    "an unknown section": ("[trian]\nsteps = 3\n", "no setting 'trian': did you mean train?"),
    "an unknown setting": ("[train]\nstepps = 3\n", "no setting 'stepps': did you mean steps?"),
    "a setting of another's": ("[train]\nseed = 3\n", "[train] has no setting 'seed'"),
    "no section": ("train = 3\n", "train = 3 must be a section: write [train]"),
    "another type": ('[crawl]\npages = "many"\n', "[crawl] pages must be of type int, got 'many'"),
    "true as a number": ("[crawl]\npages = true\n", "[crawl] pages must be of type int, got True"),
    "another precision": ('[train]\nprecision = "fp8"\n', "[train] precision must be one of fp32"),
    "too few pages": ("[crawl]\npages = 1\n", "[crawl] pages must be 10 or greater, got 1"),
    "a mesh that does not fit": ('[train]\nmesh = "dp=2,pp=3"\nmicro_batches = 3\n', "[train] "),
    "a mesh of nothing": ('[train]\nmesh = "up=2"\n', "[train] "),
    "one source": ('[mixture]\nshares = "web=1.0"\n', "must name two sources of web, stories"),
    "a strange source": ('[mixture]\nshares = "web=0.5,books=0.5"\n', "of web, stories, got"),
    "shares that do not add up": ('[mixture]\nshares = "web=0.5,stories=0.6"\n', "the shares add"),
    "a crash after the end": ("[kill]\nstep = 600\n", "[kill] step = 600 must be below the 600"),
    "another vocabulary": ("[model]\nvocab_size = 9\n", "vocab_size is that of [tokens]"),
    "no model": ("seed = 3\n", "[model] needs num_layers"),
    "a negative seed": ("seed = -1\n", "seed must be 0 or greater"),
}
MODEL = "\n".join(TINY.partition("[model]")[2].partition("[train]")[0].splitlines())


@pytest.fixture
def refused(tmp_path, capsys):
    """The one line of a call that fails; its settings are in capstone.toml, its folder is out."""

    def call(*more, text=TINY, out="out", status=2):
        file = tmp_path / "capstone.toml"
        file.write_text(text)
        words = ["--config", str(file), "--out", str(tmp_path / out), *more]
        assert command_line.main(words) == status
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_in_one_line(name, refused, tmp_path):
    text, said = BAD[name]
    if "[model]" not in said and "no model" not in name and "vocab" not in said:
        text += f"\n[model]\n{MODEL}\n"
    line = refused(text=text)
    assert said in line
    assert line.count("\n") == 1
    assert str(tmp_path / "capstone.toml") in line
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_said_with_what_to_do(tmp_path, capsys):
    assert command_line.main(["--config", str(tmp_path / "x.toml")]) == 2
    said = "x.toml is not there: give a file, small or overnight\n"
    assert capsys.readouterr().err.endswith(said)


def test_the_sizes_that_come_along_can_be_read():
    small, overnight = (CapstoneConfig.read(size) for size in ("small", "overnight"))
    assert small.train.layout.split().sizes == {"dp": 2, "pp": 2, "cp": 1, "ep": 1, "tp": 1}
    assert (small.train.layout.parallel, small.train.precision) == ("zero1", "bf16")
    assert small.train.text.order == "packed"
    assert 0 < small.kill.step < small.train.steps
    assert overnight.train.num_tokens > 20 * small.train.num_tokens
    with pytest.raises(ValueError, match="no settings 'huge': choose from small, overnight"):
        shipped("huge")


def test_without_a_file_the_small_one_is_written_and_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = []
    monkeypatch.setattr(command_line, "run_capstone", lambda c, *_, **__: ran.append(c))
    monkeypatch.setattr(command_line, "hashes", lambda _: {})
    assert command_line.main([]) == 0
    assert (tmp_path / "capstone.toml").read_text() == shipped("small")
    assert "capstone.toml was not there: it has the small size now" in capsys.readouterr().out
    (tmp_path / "capstone.toml").write_text(TINY)
    assert command_line.main([]) == 0
    assert ran == [CapstoneConfig.read("small"), tiny()]


def test_a_folder_in_use_is_left_alone(refused, tmp_path):
    process = os.fork()
    if process == 0:
        with locked(tmp_path / "out"):
            (tmp_path / "held").touch()
            while (tmp_path / "held").exists():
                pass
        os._exit(0)
    while not (tmp_path / "held").exists():
        pass
    assert f"is in use by process {process}" in refused()
    assert not (tmp_path / "out" / "log.jsonl").exists()
    (tmp_path / "held").unlink()
    os.waitpid(process, 0)


def test_a_full_disk_a_file_and_a_strange_stage_are_told(refused, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(out="file")
    assert "no stage 'end': choose from crawl, funnel" in refused("--until", "end")
    usage = namedtuple("usage", "free")(1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "has 1,000 bytes of room left, and the machine needs" in refused()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RankError(2, "ended by SIGKILL"), 2, "rank 2: ended by SIGKILL; the same command goes on"),
        (KeyboardInterrupt(), 130, "interrupted; the same command goes on from there"),
        (OSError(28, "No space left on device", "x"), 2, "No space left on device: x"),
    ],
)
def test_how_a_call_that_fails_ends(error, status, said, *, refused, tmp_path, monkeypatch):
    def fails(*_):
        raise error

    monkeypatch.setattr(machine.ArtifactStore, "bring", fails)
    assert said in refused(status=status)
    assert '"event": "stop"' in (tmp_path / "out" / "log.jsonl").read_text()


def test_a_vocabulary_that_the_text_has_not(tmp_path):
    config = tiny(tokens={"vocab_size": 20_000})
    with pytest.raises(ValueError, match="stage tokens: this text has pairs for a vocabulary of"):
        run_capstone(config, tmp_path, until="tokens")


def test_the_marbles_are_the_crawl_s_own_questions():
    items = marbles(seed=3)
    assert [item.prompt for item in items] == Crawl(10, seed=3).test_items
    for item in items:
        red, blue, given = (int(w) for w in item.prompt.split() if w.isdigit())
        assert item.choices[item.right] == f" {red + blue - given}"
        assert len(set(item.choices)) == 4
    assert {item.right for item in items} == {0, 1, 2, 3}
