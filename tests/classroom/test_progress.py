"""Progress: nothing is lost, whoever writes, dies or damages the file; and it is told clearly."""

import errno
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import filelock
import pytest

from llmcourse_classroom.exercises import progress
from llmcourse_classroom.exercises.check import Check
from llmcourse_classroom.exercises.result import Line, Result, State

LISTED = [
    ("05.1", "One merge", 2, 15, 2, "05_tokens"),
    ("05.2", "An encoder", 4, 25, 3, "05_tokens"),
    ("05.3", "Bytes of 15 T tokens", 1, 5, 1, "05_tokens"),
    ("09.2", "Resume", 1, 10, 0.5, "09_data_loading"),
    ("09.10", "Packing", 1, 10, 1, "09_data_loading"),
]
NAMES = ("number", "title", "difficulty", "minutes", "points", "notebook", "trains")
SAMPLE = [dict(zip(NAMES, (*row, f"what {row[0]} trains"), strict=True)) for row in LISTED]


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    path = tmp_path / "home" / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, str(path))
    monkeypatch.setattr(progress, "catalogue", lambda: SAMPLE)
    progress._say_once.cache_clear()
    return path


def record(question="05.1", state=State.PASS, points=2):
    progress.record(Result(question, points, [Line(state, "a line")]))


def entries(path):
    return json.loads(path.read_text())["questions"]


def test_each_run_counts_and_what_is_passed_stays_passed(path):
    seen = []
    for state in (State.NOT_ANSWERED, State.NOT_YET, State.PASS, State.NOT_YET):
        record(state=state)
        seen.append(entries(path)["05.1"])
    assert [e["state"] for e in seen] == ["not answered yet", "NOT YET", "PASS", "PASS"]
    assert [e["tries"] for e in seen] == [0, 1, 2, 3]
    assert [e["passed"] is None for e in seen] == [True, True, False, False]
    assert seen[2]["passed"] == seen[3]["passed"] <= seen[3]["last"]


def test_a_check_is_kept_unless_it_is_quiet_and_in_the_order_of_the_book(path, capsys):
    for number, quiet in (("09.10", False), ("09.2", False), ("05.1", False), ("05.2", True)):
        with Check(number, points=3, quiet=quiet) as t:
            t(True, "what it means")
    kept = [(n, e["state"]) for n, e in entries(path).items()]
    assert kept == [(number, "PASS") for number in ("05.1", "09.2", "09.10")]


def test_the_variable_names_the_file_or_switches_it_off(path, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path / "learner"))
    monkeypatch.setenv(progress.VARIABLE, "off")
    record()
    assert not (tmp_path / "learner").exists()
    assert (progress.summary()["chapters"]["05"]["passed"], progress.main([])) == (0, 2)
    assert "is off" in capsys.readouterr().err
    for named, file in (("", ".llmcourse/progress.json"), ("~/other.json", "other.json")):
        monkeypatch.setenv(progress.VARIABLE, named)
        record()
        assert "05.1" in entries(tmp_path / "learner" / file)
    assert not path.exists()


def test_a_link_stays_a_link(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "synchronised.json")
    record()
    assert path.is_symlink()
    assert "05.1" in entries(tmp_path / "synchronised.json")


RECORDS = """
    import multiprocessing, sys
    from llmcourse_classroom.exercises import progress
    from llmcourse_classroom.exercises.result import Line, Result, State

    def work(chapter):
        for run in range(12):
            progress.record(Result("05.1", 2, [Line(State.NOT_YET, "shared")]))
            progress.record(Result(f"{chapter:02d}.{run + 1}", 1, [Line(State.PASS, "own")]))

    started = [multiprocessing.get_context("fork").Process(target=work, args=(chapter,))
               for chapter in range(10, 14)]
    [process.start() for process in started]
    [process.join() for process in started]
    sys.exit(max(process.exitcode for process in started))
"""
DIES = """
    import os, pathlib, signal
    from llmcourse_classroom.exercises import progress
    from llmcourse_classroom.exercises.result import Line, Result, State

    pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    progress.record(Result("05.2", 2, [Line(State.PASS, "never kept")]))
"""


def run(script, path):
    words = [sys.executable, "-c", textwrap.dedent(script)]
    env = {"LLMCOURSE_PROGRESS": str(path), "OMP_NUM_THREADS": "1", "PATH": ""}
    return subprocess.run(words, env=env, capture_output=True, check=False, text=True)


def test_four_processes_at_once_lose_nothing(path):
    done = run(RECORDS, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert entries(path)["05.1"]["tries"] == 48
    assert entries(path).keys() >= {f"{c}.{r + 1}" for c in range(10, 14) for r in range(12)}


def test_a_process_killed_before_the_rename_loses_nothing(path):
    record()
    before = path.read_bytes()
    assert run(DIES, path).returncode == -9
    assert path.read_bytes() == before
    record("05.3")  # the lock died with its process
    assert list(entries(path)) == ["05.1", "05.3"]


def test_a_lock_that_another_holds_is_waited_for_and_said(path, monkeypatch, capsys):
    record()
    assert progress.LOCK_S == 5
    monkeypatch.setattr(progress, "LOCK_S", 0.05)
    with filelock.FileLock(f"{path}.lock"):
        record()
    assert f"not kept: The file lock '{path}.lock' could not be acquired" in capsys.readouterr().out
    assert entries(path)["05.1"]["tries"] == 1


GOOD = {"state": "PASS", "points": 2, "tries": 3, "passed": "2026-11-21T09:30:00Z", "last": "then"}


def holding(number="05.1", **changed):
    return json.dumps({"format": 1, "questions": {number: GOOD | changed}})


BROKEN = {
    "empty": "",
    "truncated": holding()[:-9],
    "deep": "[" * 100_000,
    "a list": "[]",
    "a summary": '{"format": 1, "chapters": {}}',
    "marks of the map": '{"format": "llmcourse-progress", "version": 1, "progress": {}}',
    "a list of questions": '{"format": 1, "questions": []}',
    "a strange number": holding(number="5.1"),
    "a key too few": '{"format": 1, "questions": {"05.1": {"state": "PASS"}}}',
    "an unknown state": holding(state="DONE"),
    "negative points": holding(points=-2),
    "endless points": holding(points=float("inf")),
    "half a try": holding(tries=1.5),
    "a pass without a time": holding(passed=None),
    "a time without a pass": holding(state="NOT YET"),
    "no time": holding(last=None),
    "a byte that is no text": "\udcff",
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


def refused(capsys, *arguments):
    assert progress.main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("llmcourse progress: ")
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_kept_aside_and_said(kind, path, tmp_path, capsys):
    before = write(path, BROKEN[kind]).read_bytes()
    assert f"{path} does not hold progress" in refused(capsys)  # to look changes nothing
    assert path.read_bytes() == before
    Path(f"{path}.broken-1").write_text("the one before")
    record()
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"it is kept as {path}.broken-2" in said
    assert Path(f"{path}.broken-2").read_bytes() == before
    assert Path(f"{path}.broken-1").read_text() == "the one before"
    assert entries(path)["05.1"]["state"] == "PASS"
    assert "does not hold progress" in refused(capsys, "import", f"{path}.broken-2")


def test_a_newer_file_is_left_alone(path, capsys):
    write(path, '{"format": 2, "other": 1}')
    record()
    record()
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{path} has format 2, not 1: upgrade llmcourse" in said
    assert path.read_text() == '{"format": 2, "other": 1}'


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_write_that_fails_loses_nothing_and_is_said_once(code, path, monkeypatch, capsys):
    record()
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", mock.Mock(side_effect=OSError(code, "as it was made to")))
    record("05.2")
    record("05.3")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "your progress is not kept: " in said
    assert "as it was made to" in said
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["progress.json", "progress.json.lock"]


def test_what_cannot_be_kept_is_said_and_nothing_raises(path, monkeypatch, capsys):
    record(points=float("inf"))
    write(path.parent / "file", "where a folder should be")
    for named in (path.parent / "file" / "progress.json", path.parent, "~nobody-at-all/p.json"):
        monkeypatch.setenv(progress.VARIABLE, str(named))
        record()
    assert capsys.readouterr().out.count("your progress is not kept: ") == 4


def test_the_table_and_what_comes_next(path, capsys):
    assert progress.main([]) == 0
    assert f"There is no progress in {path} yet." in capsys.readouterr().out
    for number, state in (("05.1", State.PASS), ("05.2", State.NOT_YET), ("77.1", State.PASS)):
        record(number, state)
    record("05.1")
    assert progress.main([]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    facts = ("05 1 of 3 2 of 6 30", "09 0 of 2 0 of 1.5 20", "05.1 PASS 2 tries One merge")
    facts += ("05.2 NOT YET 1 try An encoder", "05.3 not answered yet Bytes of 15 T tokens")
    facts += ("09.2 not answered yet Resume", "09.10 not answered yet Packing")
    facts += ("open exercises/05_tokens.ipynb", "trains what 05.3 trains")
    assert [fact for fact in facts if fact.split() not in rows] == []
    listed = [row[0] for row in rows if row and row[0][:3] in ("05.", "09.")]
    assert listed == [row[0] for row in LISTED]
    assert "of another edition, kept: 77.1" in out
    assert "next: 05.3 Bytes of 15 T tokens, difficulty 1 of 5, 5 minutes" in out
    for number in ("05.3", "05.2", "09.2"):
        assert f"next: {number} " in progress.table(progress.read(path))
        record(number)
    record("09.10")
    assert progress.table(progress.read(path)).endswith("next: nothing, every question is passed")


def test_the_summary_is_what_the_map_loads_and_no_file_is_replaced(path, tmp_path, capsys):
    record("05.1")
    record("05.2", State.NOT_YET)
    assert progress.main(["summary", str(tmp_path / "map.json")]) == 0
    chapters = {"05": {"passed": 1, "of": 3, "points": 2, "of_points": 6}}
    chapters["09"] = {"passed": 0, "of": 2, "points": 0, "of_points": 1.5}
    assert progress.summary() == {"format": 1, "chapters": chapters}
    assert json.loads((tmp_path / "map.json").read_text()) == progress.summary()
    diary = write(tmp_path / "diary.json", "dear diary")
    for command in ("export", "summary"):
        assert "is there already" in refused(capsys, command, diary)
    assert diary.read_text() == "dear diary"
    assert "is not there" in refused(capsys, "import", tmp_path / "none.json")
    with pytest.raises(SystemExit):
        progress.main(["export"])


def test_export_and_import_join_two_machines(path, tmp_path, monkeypatch):
    record("05.1")
    record("05.2", State.NOT_YET)
    copy, second = tmp_path / "copy.json", tmp_path / "second.json"
    assert progress.main(["export", str(copy)]) == 0
    assert copy.read_bytes() == path.read_bytes()
    monkeypatch.setenv(progress.VARIABLE, str(second))
    for number in ("05.1", "05.2", "05.3"):
        record(number, State.NOT_YET if number == "05.1" else State.PASS)
    for _ in range(2):
        assert progress.main(["import", str(copy)]) == 0
        states = {n: e["state"] for n, e in entries(second).items()}
        assert states == dict.fromkeys(("05.1", "05.2", "05.3"), "PASS")


def test_the_list_of_questions_comes_with_the_package(monkeypatch):
    monkeypatch.undo()
    assert {"05.1", "11.1"} <= {question["number"] for question in progress.catalogue()}
    assert all(question.keys() == set(NAMES) for question in progress.catalogue())
