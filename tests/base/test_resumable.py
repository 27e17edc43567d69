"""base.resumable: a folder that one call begins, another completes, and nobody else touches."""

import subprocess
import sys

import pytest

from llmcourse.base.files import LOCK
from llmcourse.base.lock import holds
from llmcourse.base.resumable import Resumable, read_record, write_record

WORK = {"files": "abc", "share": 0.5, "names": ("a", "b")}


def folder_of(path, **changes):
    return Resumable(path, WORK | changes, record="all.json", verb="cooked")


def refused(work, says):
    with pytest.raises(ValueError, match=says), work.alone():
        pytest.fail("was let in")


def begin(path, state, *payload):
    work = folder_of(path)
    with work.alone() as done:
        assert done is None
        work.save(state, *payload)
        assert holds(path)
    assert not holds(path)


def test_a_call_that_was_cut_short_is_taken_up_and_completed(tmp_path):
    path = tmp_path / "deep" / "out"
    begin(path, {"place": 3}, b"one\n", b"two")
    assert [each.name for each in path.iterdir()] == ["unfinished"]
    again = folder_of(path)
    with again.alone() as done:
        assert done is None
        assert read_record(again.unfinished) == (
            {"made_from": WORK | {"names": ["a", "b"]}, "place": 3}, b"one\ntwo",
        )  # fmt: skip
        again.finish({"left": 7})
    assert [each.name for each in path.iterdir()] == ["all.json"]
    with folder_of(path).alone() as done:
        assert done["left"] == 7
    write_record(tmp_path / "a.json", {"x": [1, {"y": None}]}, indent=1)
    assert read_record(tmp_path / "a.json") == ({"x": [1, {"y": None}]}, b"")


@pytest.mark.parametrize("complete", [False, True])
def test_other_work_is_refused_and_loses_nothing(tmp_path, complete):
    begin(tmp_path, {"place": 3})
    if complete:
        folder_of(tmp_path).finish({"left": 7})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    refused(folder_of(tmp_path, share=0.6), "cooked from other files or with other settings")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{", "is damaged"), (b"[]", "holds no record"), (b"[" * 100_000, "is damaged")],
    ids=["cut", "a list", "nests without end"],
)
@pytest.mark.parametrize("name", ["unfinished", "all.json"])
def test_a_damaged_record_is_said(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    refused(folder_of(tmp_path), says)


def test_a_folder_of_another_is_left_alone_and_nothing_stays_of_a_call_that_wrote_nothing(tmp_path):
    with pytest.raises(RuntimeError), folder_of(tmp_path / "out").alone():
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), folder_of(tmp_path).alone():
        raise RuntimeError
    assert tmp_path.is_dir()  # it was there before
    (tmp_path / "letter.txt").write_text("dear")
    refused(folder_of(tmp_path), "something else, letter")
    refused(folder_of(tmp_path / "letter.txt"), "is a file: name a new folder")
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


HOLD = """
import sys
from pathlib import Path
from llmcourse.base.resumable import Resumable
with Resumable(Path(sys.argv[1]), {}, record="all.json", verb="cooked").alone():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time_and_one_call(tmp_path):
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        refused(folder_of(tmp_path), f"in use by process {other.pid} on ")
        other.communicate(b"\n")
    with folder_of(tmp_path).alone():
        refused(folder_of(tmp_path), "in use by another call in this process")
        assert (tmp_path / LOCK).exists()
