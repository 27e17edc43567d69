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


def begin(path, state, *payload):
    """A call that is cut short."""
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


@pytest.mark.parametrize("complete", [False, True])
def test_other_work_is_refused_and_loses_nothing(tmp_path, complete):
    begin(tmp_path, {"place": 3})
    if complete:
        folder_of(tmp_path).finish({"left": 7})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    refused = pytest.raises(ValueError, match="cooked from other files or with other settings")
    with refused, folder_of(tmp_path, share=0.6).alone():
        pytest.fail("was let in")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{", "is damaged"), (b"[]", "holds no record"), (b"[" * 100_000, "is damaged")],
    ids=["cut", "a list", "nests without end"],
)
@pytest.mark.parametrize("name", ["unfinished", "all.json"])
def test_a_damaged_record_is_said(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says), folder_of(tmp_path).alone():
        pytest.fail("was let in")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="something else, letter"), folder_of(tmp_path).alone():
        pytest.fail("was let in")
    file = tmp_path / "letter.txt"
    with pytest.raises(ValueError, match="is a file: name a new folder"), folder_of(file).alone():
        pytest.fail("was let in")
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


def test_nothing_stays_of_a_call_that_wrote_nothing(tmp_path):
    with pytest.raises(RuntimeError), folder_of(tmp_path / "out").alone():
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), folder_of(tmp_path).alone():
        raise RuntimeError
    assert tmp_path.is_dir()  # it was there before


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
        refused = pytest.raises(ValueError, match=f"in use by process {other.pid} on ")
        with refused, folder_of(tmp_path).alone():
            pytest.fail("was let in")
        other.communicate(b"\n")
    with folder_of(tmp_path).alone():
        refused = pytest.raises(ValueError, match="in use by another call in this process")
        with refused, folder_of(tmp_path).alone():
            pytest.fail("was let in")
        assert (tmp_path / LOCK).exists()


def test_a_record_is_read_as_it_was_written(tmp_path):
    write_record(tmp_path / "a.json", {"x": [1, {"y": None}]}, indent=1)
    assert read_record(tmp_path / "a.json") == ({"x": [1, {"y": None}]}, b"")
