"""Grading a folder: reports, resuming, seeds, private tests, and errors in what is asked for."""

import contextlib
import csv
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest

from llmcourse.base import files
from llmcourse_classroom import __main__ as command_line
from llmcourse_classroom.grader import alone, batch, report, submission
from llmcourse_labs.sandbox import sandbox
from tests.classroom import here, small_exam

WAITING = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"waiting", 0, 0, 0)  # PR_SET_NAME
time.sleep(900)
"""
"""A cell whose process says that it has come so far."""


SCORES = {"ada": "5", "bob": "3", "nobody": "0"}


@pytest.fixture
def place(tmp_path):
    """An exam, and a folder with three submissions in the two forms that are read."""
    exam = small_exam.write_exam(tmp_path / "exam")
    folder = tmp_path / "submissions"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / f"{small_exam.TOPIC}.ipynb").write_text(small_exam.text())
    (folder / "bob.ipynb").write_text(small_exam.text(add=small_exam.STUB))
    (folder / "nobody").mkdir()
    return exam, folder, tmp_path / "report"


@pytest.fixture
def grade(monkeypatch):
    """The command, run in this process, and so are the cells; returns its exit code."""
    monkeypatch.setattr(submission, "Session", here.Here)
    monkeypatch.setattr(alone, "grade", submission.grade)
    # this process keeps its children
    monkeypatch.setattr(alone, "adopted_orphans", contextlib.nullcontext)
    return lambda place, *options: command_line.main(arguments(place, *options))


def arguments(place, *options):
    exam, folder, out = map(str, place)
    return ["grade", exam, folder, "--out", out, "--isolation", "limits", *options]


def in_a_process(place, *options):
    return [sys.executable, "-m", "llmcourse_classroom", *arguments(place, *options)]


def graded(place, *options):
    command = in_a_process(place, *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done


def rows(out):
    with (out / "scores.csv").open(newline="") as file:
        return {row["submission"]: row for row in csv.DictReader(file)}


def test_a_folder_is_graded_into_json_csv_and_a_page(place):
    done = graded(place, "--jobs", "2")
    found = rows(place[2])
    assert {name: row["score"] for name, row in found.items()} == SCORES
    assert (found["bob"]["90.1"], found["bob"]["90.2"]) == ("0", "3")
    ada = json.loads((place[2] / "ada.json").read_text())
    assert [q["state"] for q in ada["questions"]] == ["PASS", "PASS"]
    assert [len(q["checks"]) for q in ada["questions"]] == [4, 1]
    bob = json.loads((place[2] / "bob.json").read_text())
    assert [q["state"] for q in bob["questions"]] == ["not answered yet", "PASS"]
    assert (place[2] / "index.html").read_text().count("<tr>") == 1 + 1 + 3
    assert "3 submissions, median 3 of 5 points" in done.stdout
    assert "not enforced" in done.stderr


def test_a_run_that_was_cut_short_grades_only_what_is_new_or_changed_or_truncated(place, grade):
    grade(place)
    before = {p.name: p.stat().st_mtime_ns for p in place[2].glob("*.json")}
    (place[1] / "bob.ipynb").write_text(small_exam.text())
    (place[1] / "eve.ipynb").write_text(small_exam.text())
    assert grade(place) == 0
    after = {p.name: p.stat().st_mtime_ns for p in place[2].glob("*.json")}
    assert {name for name in after if after[name] != before.get(name)} == {"bob.json", "eve.json"}
    assert rows(place[2])["bob"]["score"] == "5"
    path = place[2] / "ada.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    grade(place)
    assert json.loads(path.read_text())["score"] == 5.0


def test_another_seed_and_other_hidden_tests_grade_again(place, grade):
    grade(place)
    first = json.loads((place[2] / "ada.json").read_text())
    private = place[0].parent / "private"
    private.mkdir()
    harder = small_exam.HIDDEN.replace("(0, 1, 5)", "(0, 1, 5, 9)")
    (private / f"{small_exam.TOPIC}.py").write_text(harder)
    grade(place, "--hidden", str(private), "--seed", "7")
    second = json.loads((place[2] / "ada.json").read_text())
    assert second["seed"] == 7
    assert second["key"] != first["key"]
    assert len(second["questions"][0]["checks"]) == len(first["questions"][0]["checks"]) + 1


def names_below(pid):
    names = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            names.add(process.name())
    return names


@pytest.mark.skipif(sys.platform != "linux", reason="a process can say nothing of itself elsewhere")
@pytest.mark.parametrize("kind", ["namespaces", "limits"])
def test_a_killed_run_leaves_no_process_and_goes_on_where_it_was(place, grade, kind, soaking):
    if kind == "limits" and not soaking:
        pytest.skip("a minute, for what comes where namespaces are missing: make soak")
    _, folder, out = place
    (folder / "ada" / f"{small_exam.TOPIC}.ipynb").unlink()  # one real process is enough
    (folder / "bob.ipynb").write_text("")
    (folder / "zoe.ipynb").write_text(small_exam.text(extra=[WAITING]))
    command = in_a_process(place, "--isolation", kind)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until = time.monotonic() + 300
        while "waiting" not in names_below(run.pid):
            assert time.monotonic() < until
            time.sleep(0.1)
        family = psutil.Process(run.pid).children(recursive=True)
        os.kill(run.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    graded = {p.name: p.stat().st_mtime_ns for p in out.glob("*.json")}
    assert set(graded) == {"ada.json", "bob.json", "nobody.json"}
    (folder / "zoe.ipynb").write_text(small_exam.text())
    assert grade(place, "--isolation", kind) == 0
    assert rows(out)["zoe"]["score"] == "5"
    for name, when in graded.items():
        assert (out / name).stat().st_mtime_ns == when
    assert not list(out.glob(".*"))


def test_what_ran_before_a_batch_goes_on_after_it(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        missing = str(tmp_path / "no.ipynb")
        assert command_line.main(["grade", missing, str(tmp_path), "--out", missing]) == 2
        assert other.poll() is None
        other.communicate(b"\n", timeout=60)
    assert other.returncode == 0
    # nor does an orphan become the child of this process, which would never ask how it ended
    done = subprocess.run(["sh", "-c", "sleep 60 >&- 2>&- & echo $!"], stdout=-1, check=True)
    orphan = psutil.Process(int(done.stdout))
    assert orphan.ppid() != os.getpid()
    orphan.kill()


NO_CELLS = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
ONE_CHECK = small_exam.HIDDEN.split("def check_2")[0]
WRONG = {
    "no such notebook": (lambda exam, *_: exam.unlink(), "not a notebook"),
    "not an exercise": (lambda exam, *_: exam.write_text(NO_CELLS), "no question"),
    "no hidden tests": (lambda exam, *_: hidden_of(exam).unlink(), "no hidden tests"),
    "a question less": (lambda exam, *_: hidden_of(exam).write_text(ONE_CHECK), "has no check_2"),
    "no folder": (lambda exam, _, out: (exam, exam, out), "is no folder"),
    "report is a file": (lambda exam, folder, _: (exam, folder, exam), "is a file: name a new"),
    "no jobs": (lambda *place: (*place, "--jobs", "0"), "jobs must be 1 or more"),
    "no time": (lambda *place: (*place, "--cell-s", "0"), "cell_s must be above 0"),
}


def hidden_of(exam):
    return exam.parent / "hidden" / f"{small_exam.TOPIC}.py"


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_graded_is_said_in_one_line(place, grade, capsys, what):
    change, says = WRONG[what]
    changed = change(*place)
    asked = changed if isinstance(changed, tuple) else place
    assert grade(asked[:3], *asked[3:]) == 2
    last = capsys.readouterr().err.strip().split("\n")[-1]
    assert last.startswith("llmcourse grade: ")
    assert says in last


@pytest.mark.parametrize("name", ["cell_s", "memory_bytes", "processes"])
def test_limits_are_more_than_nothing(name):
    with pytest.raises(ValueError, match=name):
        sandbox.Limits(**{name: type(getattr(sandbox.Limits(), name))(0)})


def test_the_commands_are_named_when_none_is_given(capsys):
    assert command_line.main([]) == 2
    said = capsys.readouterr().err
    assert "grade exercises/05_tokens.ipynb" in said
    assert "\n    llmcourse progress [export FILE" in said


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(place, grade, monkeypatch, capsys):
    with monkeypatch.context() as full:
        error = OSError(errno.ENOSPC, "cannot write: No space left on device", str(place[2]))
        full.setattr(files, "write_atomically", mock.Mock(side_effect=error))
        assert grade(place) == 2
    said = capsys.readouterr().err
    assert "llmcourse grade: " in said
    assert "No space left on device" in said
    assert grade(place) == 0
    assert rows(place[2])["ada"]["score"] == "5"


def test_a_fault_of_the_grader_costs_one_report_and_is_tried_again(place, grade, monkeypatch):
    whole = alone.grade

    def broken(path, exam, where):
        if path.name == "bob.ipynb":
            raise RuntimeError("out of ideas")
        return whole(path, exam, where)

    monkeypatch.setattr(alone, "grade", broken)
    assert grade(place) == 0
    assert rows(place[2])["ada"]["score"] == "5"
    assert "out of ideas" in rows(place[2])["bob"]["problems"]
    monkeypatch.setattr(alone, "grade", whole)
    assert grade(place) == 0
    assert rows(place[2])["bob"]["score"] == "3"


CELLS = [("=1+1", "'=1+1"), ("-x", "'-x"), ("@a", "'@a"), ("ada", "ada"), ("", "")]


@pytest.mark.parametrize(("cell", "harmless"), CELLS)
def test_no_cell_of_the_table_is_a_formula(cell, harmless):
    assert report.harmless(cell) == harmless


@pytest.fixture
def close(monkeypatch):
    """Close a file or a folder, also to root, whom the system refuses nothing."""

    def refusing(whole, path, looks_inside):
        def call(asked, *rest, **settings):
            file = Path(os.fsdecode(asked)) if not isinstance(asked, int) else Path()
            if path in file.parents or (looks_inside and file == path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return whole(asked, *rest, **settings)

        return call

    def close(path):
        path.chmod(0)
        for module, name in ((os, "stat"), (os, "lstat"), (os, "scandir"), (io, "open")):
            refused = refusing(getattr(module, name), path, name in ("scandir", "open"))
            monkeypatch.setattr(module, name, refused)

    return close


@pytest.mark.parametrize("name", ["bob", "ada"])
def test_what_cannot_be_read_costs_its_own_submission(place, grade, close, name):
    close(place[1] / {"bob": "bob.ipynb", "ada": "ada"}[name])
    assert grade(place) == 0
    found = rows(place[2])
    assert found[name]["problems"] == "the file cannot be read: Permission denied"
    assert {each: row["score"] for each, row in found.items()} == SCORES | {name: "0"}


def test_odd_names_cost_nobody_anything(place, grade):
    _, folder, out = place
    for name in (b"M\xfcller.ipynb", b"x" * 244 + b".ipynb", b"line\nbreak.ipynb", b"ada.ipynb"):
        with open(os.path.join(os.fsencode(folder), name), "w") as file:  # noqa: PTH118, PTH123
            file.write(small_exam.text())
    assert grade(place, "--jobs", "2") == 0
    found = rows(out)
    assert len(found) == 3 + 4
    scores = {name: row["score"] for name, row in found.items()}
    assert (scores.pop("bob"), scores.pop("nobody")) == ("3", "0")
    assert set(scores.values()) == {"5"}
    assert {"ada", "ada (2)", "M\\xfcller", "line break"} <= set(scores)
    assert len(list(out.glob("*.json"))) == 7


def test_submissions_have_one_name_each_and_those_that_differ_by_case_get_two(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("05_tokens.ipynb", "other.ipynb", "._other.ipynb"):
        (tmp_path / "a" / name).write_text("{}")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.ipynb").write_text("{}")
    (tmp_path / "c.ipynb").write_text("{}")
    (tmp_path / ".hidden").write_text("")
    found = batch.submissions(tmp_path, "05_tokens")
    names = {name: path.name for name, path in found.items()}
    assert names == {"a": "05_tokens.ipynb", "b": "mine.ipynb", "c": "c.ipynb"}
    for name in ("Bob.ipynb", "bob.ipynb"):
        (tmp_path / name).write_text("{}")
    assert {"Bob", "bob (2)"} < set(batch.submissions(tmp_path, "05_tokens"))


FRAGILE = """\
import os
import signal


def check_1(t, call, rng):
    answer = call("add_all", [1, 2])
    if answer == 777:
        assert not [0] * 500_000_000  # 4 GB
    if answer == 666:
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does when there is no memory
    t(True, "")


def check_2(t, call, rng):
    while call("double", 1) == 666:
        while True:
            pass
    t(True, "")
"""


def test_what_the_hidden_tests_die_of_costs_its_question(place):
    exam, folder, out = place
    hidden_of(exam).write_text(FRAGILE)
    add, double = "def add_all(numbers):\n    return 666", "def double(x):\n    return 666"
    (folder / "bob.ipynb").write_text(small_exam.text(add=add.replace("666", "777")))
    (folder / "eve.ipynb").write_text(small_exam.text(add=add, double=double))
    graded(place, "--tests-s", "3", "--jobs", "2")
    scores = {name: row["score"] for name, row in rows(out).items()}
    assert scores == {"ada": "5", "bob": "3", "eve": "0", "nobody": "0"}
    if sys.platform == "linux":
        assert "MemoryError" in (out / "bob.json").read_text()
    eve = json.loads((out / "eve.json").read_text())
    assert eve["key"] == ""  # it may have been the machine: the next run tries again
    said = [question["checks"][0]["meaning"] for question in eve["questions"]]
    assert "the process of the hidden tests ended with -9" in said[0]
    assert "more than 3 s of processor time" in said[1]
    assert not list(out.glob(".*"))
