"""Progress: nothing is lost, whoever writes, dies or damages the file; and it is told clearly."""

import errno
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import filelock
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.grading import catalogue, progress, progress_file, progress_table
from llmcourse.grading.check import Check
from llmcourse.grading.progress_file import Entry, ProgressError
from llmcourse.grading.result import Line, Result, State

LISTED = [
    ("05.1", "One merge", 2, 15, 2),
    ("05.2", "An encoder", 4, 25, 3),
    ("05.3", "Bytes of 15 T tokens", 1, 5, 1),
    ("09.1", "A sampler", 1, 10, 1),
    ("09.10", "Packing", 1, 10, 1),
    ("09.2", "Resume", 1, 10, 0.5),
]
NAMES = ("number", "title", "difficulty", "minutes", "points")
TOPICS = {"05": "05_tokens", "09": "09_data_loading"}


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    """A catalogue of its own, in an order that is not the book's."""
    questions = [
        dict(zip(NAMES, row, strict=True))
        | {"trains": f"what {row[0]} trains", "notebook": TOPICS[row[0][:2]]}
        for row in reversed(LISTED)
    ]
    listed = catalogue.loads(json.dumps({"format": 1, "questions": questions}))
    monkeypatch.setattr(catalogue, "questions", lambda: listed)
    return listed


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The file that checks write to."""
    path = tmp_path / "home" / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, str(path))
    progress._say_once.cache_clear()
    return path


def result(question="05.1", state=State.PASS, points=2):
    return Result(question, points, [Line(state, "a line")])


def entries(path):
    return json.loads(path.read_text())["questions"]


# --- one question


def test_each_run_counts_and_what_is_passed_stays_passed(path, monkeypatch):
    seen = []
    runs = [State.NOT_ANSWERED, State.NOT_YET, State.PASS, State.NOT_YET, State.NOT_ANSWERED]
    for state in runs:
        progress.record(result(state=state))
        seen.append(entries(path)["05.1"])
    assert [(e["state"], e["tries"]) for e in seen] == [
        ("not answered yet", 0),
        ("NOT YET", 1),
        ("PASS", 2),
        ("PASS", 3),
        ("PASS", 3),
    ]
    assert [e["passed"] is None for e in seen] == [True, True, False, False, False]
    assert seen[2]["passed"] == seen[4]["passed"] <= seen[4]["last"]
    assert list(entries(path)) == ["05.1"]


def test_a_check_is_kept_unless_it_is_quiet(path, capsys):
    for number, quiet in (("05.1", False), ("05.2", True)):
        with Check(number, points=3, quiet=quiet) as t:
            t(True, "what it means")
    assert {n: (e["state"], e["points"]) for n, e in entries(path).items()} == {"05.1": ("PASS", 3)}


def test_times_of_first_pass_and_last_run():
    entry = progress_file.first(State.NOT_YET, 2, "2026-01-01T00:00:00Z")
    for day, state in (("02", State.PASS), ("03", State.PASS), ("04", State.NOT_ANSWERED)):
        entry = entry.then(state, 2, f"2026-01-{day}T00:00:00Z")
    assert (entry.passed, entry.last) == ("2026-01-02T00:00:00Z", "2026-01-04T00:00:00Z")


def test_questions_are_in_the_order_of_the_book(path):
    for number in ("09.10", "09.2", "05.1"):
        progress.record(result(number))
    assert list(entries(path)) == ["05.1", "09.2", "09.10"]


def test_the_variable_names_the_file_or_switches_it_off(path, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "learner"))
    monkeypatch.setenv(progress.VARIABLE, "off")
    progress.record(result())
    assert not (tmp_path / "learner").exists()
    assert progress.summary()["chapters"]["05"]["passed"] == 0
    monkeypatch.delenv(progress.VARIABLE)
    progress.record(result())
    assert "05.1" in entries(tmp_path / "learner" / ".llmcourse" / "progress.json")
    monkeypatch.setenv(progress.VARIABLE, "~/other.json")
    progress.record(result())
    assert "05.1" in entries(tmp_path / "learner" / "other.json")
    assert not path.exists()


def test_a_link_stays_a_link(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "synchronised.json")
    progress.record(result())
    assert path.is_symlink()
    assert "05.1" in entries(tmp_path / "synchronised.json")


# --- several processes, and processes that die

RECORDS = """
    import multiprocessing, sys
    from llmcourse.grading import progress
    from llmcourse.grading.result import Line, Result, State

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
    from llmcourse.grading import progress
    from llmcourse.grading.result import Line, Result, State

    pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    progress.record(Result("05.2", 2, [Line(State.PASS, "never kept")]))
"""

WAITS = """
    from llmcourse.grading import progress, progress_file
    from llmcourse.grading.result import Result

    progress_file.LOCK_S = 0.05
    for _ in range(2):
        progress.record(Result("05.1", 1))
"""

UNLOCKED = """
    import contextlib, filelock
    filelock.FileLock = lambda *_, **__: contextlib.nullcontext()
"""


def run(script, path):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"LLMCOURSE_PROGRESS": str(path), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def lost(path):
    """How many of the 48 shared and 48 own runs the file does not know."""
    if not path.exists():
        return 96
    known = entries(path)
    own = {f"{c}.{r + 1}" for c in range(10, 14) for r in range(12)}
    return 48 - known["05.1"]["tries"] + len(own - set(known))


def test_four_processes_at_once_lose_nothing(path):
    done = run(RECORDS, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert lost(path) == 0


def test_without_the_lock_something_would_be_lost(path):
    run(textwrap.dedent(UNLOCKED) + textwrap.dedent(RECORDS), path)
    assert lost(path) > 0


def test_a_process_killed_before_the_rename_loses_nothing(path):
    progress.record(result())
    before = path.read_bytes()
    assert run(DIES, path).returncode == -9
    assert path.read_bytes() == before
    progress.record(result("05.3"))  # the lock died with its process
    assert list(entries(path)) == ["05.1", "05.3"]


def test_a_lock_that_another_holds_is_waited_for_and_said(path):
    progress.record(result())
    with filelock.FileLock(f"{path}.lock"):
        done = run(WAITS, path)
    assert done.stdout.count("\n") == 1
    assert f"another process has held {path}.lock" in done.stdout
    assert progress.VARIABLE in done.stdout
    assert entries(path)["05.1"]["tries"] == 1


def test_five_seconds_is_the_longest_wait():
    assert progress_file.LOCK_S == 5


# --- files that are not as they should be

GOOD = {
    "state": "PASS",
    "points": 2,
    "tries": 3,
    "passed": "2026-11-21T09:30:00Z",
    "last": "2026-11-21T09:30:00Z",
}


def holding(number="05.1", **changed):
    return json.dumps({"format": 1, "questions": {number: GOOD | changed}})


BROKEN = {
    "empty": "",
    "truncated": holding()[:-9],
    "not JSON": "progress",
    "deep": "[" * 100_000,
    "a list": "[]",
    "another kind": '{"format": 1, "cells": []}',
    "no format": '{"questions": {}}',
    "format of another kind": '{"format": "1", "questions": {}}',
    "an old format": '{"format": 0, "questions": {}}',
    "more than it should have": '{"format": 1, "questions": {}, "more": 1}',
    "a list of questions": '{"format": 1, "questions": []}',
    "a summary": '{"format": 1, "chapters": {}}',
    "marks": '{"format": "llmcourse-progress", "version": 1, "progress": {}}',
    "a strange number": holding(number="5.1"),
    "a key too few": '{"format": 1, "questions": {"05.1": {"state": "PASS"}}}',
    "an unknown state": holding(state="DONE"),
    "a list as a state": holding(state=[]),
    "negative points": holding(points=-2),
    "true points": holding(points=True),
    "endless points": holding(points=float("inf")),
    "points that are none": holding(points=float("nan")),
    "huge points": holding(points=10**400),
    "half a try": holding(tries=1.5),
    "a pass without a try": holding(tries=0),
    "a pass without a time": holding(passed=None),
    "a time without a pass": holding(state="NOT YET"),
    "a strange time": holding(last="yesterday"),
    "an impossible time": holding(last="2026-13-41T09:30:00Z"),
    "no time": holding(last=None),
    "a byte that is no text": "\udcff",
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_kept_aside_and_said(kind, path, capsys):
    write(path, BROKEN[kind])
    before = path.read_bytes()
    progress.record(result())
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{path} does not hold progress" in said
    assert f"it is kept as {path}.broken-1" in said
    assert Path(f"{path}.broken-1").read_bytes() == before
    assert entries(path)["05.1"]["state"] == "PASS"


def test_a_second_broken_file_leaves_the_first(path, capsys):
    for number in (1, 2, 3):
        write(path, f"broken {number}")
        progress.record(result())
    kept = [Path(f"{path}.broken-{number}").read_text() for number in (1, 2, 3)]
    assert kept == ["broken 1", "broken 2", "broken 3"]
    assert capsys.readouterr().out.count("\n") == 3


def test_a_newer_file_is_left_alone(path, capsys):
    write(path, '{"format": 2, "other": 1}')
    progress.record(result())
    progress.record(result())
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{path}: it has format 2" in said
    assert "upgrade llmcourse" in said
    assert path.read_text() == '{"format": 2, "other": 1}'
    assert [p.name for p in path.parent.iterdir() if "broken" in p.name] == []


def test_a_good_file_is_taken():
    assert progress_file.loads(holding().encode())["05.1"].tries == 3
    assert progress_file.loads(b'{"format": 1, "questions": {}}') == {}


def test_a_file_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(progress_file, "MOST_BYTES", 10)
    with pytest.raises(ProgressError, match="more than 10"):
        progress_file.loads(holding().encode())


def fails(code):
    def failing(*_):
        raise OSError(code, "as it was made to")

    return failing


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_write_that_fails_loses_nothing_and_is_said_once(code, path, monkeypatch, capsys):
    progress.record(result())
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", fails(code))
    progress.record(result("05.2"))
    progress.record(result("05.3"))
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"your progress is not kept: {path} cannot be" in said
    assert "as it was made to" in said
    assert progress.VARIABLE in said
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["progress.json", "progress.json.lock"]


def test_a_folder_that_cannot_be_is_said(path, capsys):
    write(path.parent.parent / "home", "a file where the folder should be")
    progress.record(result())
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert str(path.parent) in said


def test_what_is_no_file_is_said(path, capsys):
    path.mkdir(parents=True)
    progress.record(result())
    assert "it is not a file" in capsys.readouterr().out


def test_points_that_cannot_be_kept_are_said(path, capsys):
    progress.record(result(points=float("inf")))
    assert "points must be above 0" in capsys.readouterr().out
    assert not path.exists()


def test_no_home_is_said(path, monkeypatch, capsys):
    monkeypatch.setenv(progress.VARIABLE, "~nobody-of-that-name/progress.json")
    progress.record(result())
    assert "your progress is not kept" in capsys.readouterr().out


# --- merging

TIMES = st.integers(1, 28).map(lambda day: f"2026-02-{day:02d}T00:00:00Z")


@st.composite
def an_entry(draw):
    state = draw(st.sampled_from(State))
    return Entry(
        state=state,
        points=draw(st.sampled_from([1, 2, 0.5])),
        tries=0 if state is State.NOT_ANSWERED else draw(st.integers(1, 9)),
        passed=draw(TIMES) if state is State.PASS else None,
        last=draw(TIMES),
    )


NUMBERS = st.sampled_from(["05.1", "05.2", "05.10", "09.1"])
SOME = st.dictionaries(NUMBERS, an_entry())


@given(mine=SOME, theirs=SOME, others=SOME)
def test_merging_is_idempotent_commutative_and_associative(mine, theirs, others):
    both = progress_file.merged(mine, theirs)
    assert progress_file.merged(both, theirs) == both
    assert progress_file.merged(theirs, mine) == both
    assert progress_file.merged(mine, mine) == mine
    three = progress_file.merged(both, others)
    assert progress_file.merged(mine, progress_file.merged(theirs, others)) == three


def keeps_the_better(mine, theirs, both):
    """Say whether an entry is what two others know together."""
    times = [e.passed for e in (mine, theirs) if e.passed]
    rank = [State.NOT_ANSWERED, State.NOT_YET, State.PASS]
    return (
        rank.index(both.state) == max(rank.index(mine.state), rank.index(theirs.state))
        and both.tries == max(mine.tries, theirs.tries)
        and both.last == max(mine.last, theirs.last)
        and both.passed == (min(times) if times else None)
    )


@given(mine=SOME, theirs=SOME)
def test_merging_keeps_the_better_of_each(mine, theirs):
    both = progress_file.merged(mine, theirs)
    assert set(both) == set(mine) | set(theirs)
    for number, entry in both.items():
        here = [known[number] for known in (mine, theirs) if number in known]
        assert keeps_the_better(here[0], here[-1], entry)


@given(questions=SOME)
def test_a_file_comes_back_as_it_went(questions):
    assert progress_file.loads(progress_file.dumps(questions).encode()) == questions


MUTANTS = {
    "adds the tries": lambda a, b: {"tries": a.tries + b.tries},
    "takes the later tries": lambda a, b: {"tries": max(a, b, key=lambda e: e.last).tries},
    "takes their state": lambda a, b: {"state": b.state, "tries": b.tries, "passed": b.passed},
    "takes the later pass": lambda a, b: {"passed": max(filter(None, (a.passed, b.passed)))},
    "takes their last run": lambda a, b: {"last": b.last},
}


def entry(state, tries, last, passed=None):
    def day(number):
        return number and f"2026-02-{number:02d}T00:00:00Z"

    return Entry(state=state, points=2, tries=tries, passed=day(passed), last=day(last))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_check_notices_a_merge_that(mutant):
    mine, theirs = entry(State.PASS, 5, 9, passed=3), entry(State.PASS, 2, 12, passed=8)
    tried = entry(State.NOT_YET, 1, 4)
    accepted = []
    for a, b in ((mine, theirs), (theirs, mine), (mine, tried)):
        assert keeps_the_better(a, b, a.merged(b))
        broken = Entry(**vars(a.merged(b)) | MUTANTS[mutant](a, b))
        accepted.append(keeps_the_better(a, b, broken))
    assert not all(accepted)


# --- the table and what comes next


def known(**states):
    return {
        number.replace("_", ".")[1:]: progress_file.first(state, 1, "2026-01-01T00:00:00Z")
        for number, state in states.items()
    }


def test_the_table(sample):
    states = known(_05_1=State.PASS, _05_2=State.NOT_YET, _05_3=State.NOT_ANSWERED)
    assert progress_table.table(states, sample) == textwrap.dedent("""\
        chapter  passed  points    minutes left
        05       1 of 3  2 of 6              30
        09       0 of 3  0 of 2.5            30
        all      1 of 6  2 of 8.5            60

        05.1   PASS              1 try  One merge
        05.2   NOT YET           1 try  An encoder
        05.3   not answered yet         Bytes of 15 T tokens
        09.1   not answered yet         A sampler
        09.2   not answered yet         Resume
        09.10  not answered yet         Packing

        next: 05.3 Bytes of 15 T tokens, difficulty 1 of 5, 5 minutes
              trains what 05.3 trains
              open exercises/05_tokens.ipynb""")


def test_the_next_is_the_easiest_of_the_first_open_chapter(sample):
    seen, states = [], {}
    while (question := progress_table.next_question(states, sample)) is not None:
        seen.append(question.number)
        states |= known(**{f"_{question.number.replace('.', '_')}": State.PASS})
    assert seen == ["05.3", "05.1", "05.2", "09.1", "09.2", "09.10"]
    assert progress_table.table(states, sample).endswith("next: nothing, every question is passed")


def test_a_question_of_another_edition_is_kept_and_named(sample):
    text = progress_table.table(known(_77_1=State.PASS), sample)
    assert "of another edition, kept: 77.1" in text
    assert "all      0 of 6" in text


def test_the_summary_of_the_issue(path):
    progress.record(result("05.1"))
    progress.record(result("05.2", State.NOT_YET))
    assert progress.summary() == {
        "format": 1,
        "chapters": {
            "05": {"passed": 1, "of": 3, "points": 2, "of_points": 6},
            "09": {"passed": 0, "of": 3, "points": 0, "of_points": 2.5},
        },
    }


# --- the command


def test_the_command_shows_the_table(path, capsys):
    assert progress.main([]) == 0
    assert f"There is no progress in {path} yet." in capsys.readouterr().out
    progress.record(result())
    assert progress.main([]) == 0
    shown = capsys.readouterr().out
    assert "05.1   PASS" in shown
    assert "There is no progress" not in shown


def test_another_file_is_shown(path, tmp_path, capsys):
    write(tmp_path / "other.json", holding("05.2"))
    for place in ([], ["summary", str(tmp_path / "map.json")]):
        assert progress.main([*place, "--file", str(tmp_path / "other.json")]) == 0
    assert "05.2   PASS" in capsys.readouterr().out
    assert json.loads((tmp_path / "map.json").read_text())["chapters"]["05"]["points"] == 3


def test_export_and_import(path, tmp_path, capsys, monkeypatch):
    progress.record(result())
    copy = tmp_path / "copy.json"
    assert progress.main(["export", str(copy)]) == 0
    assert copy.read_bytes() == path.read_bytes()
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "second.json"))
    progress.record(result("05.1", State.NOT_YET))
    progress.record(result("05.2"))
    for news in (1, 0):
        assert progress.main(["import", str(copy)]) == 0
        assert f"1 question; {news} of them new" in capsys.readouterr().out
        states = {n: e["state"] for n, e in entries(tmp_path / "second.json").items()}
        assert states == {"05.1": "PASS", "05.2": "PASS"}


def refused(capsys, *arguments):
    assert progress.main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("progress: ")
    assert said.count("\n") == 1
    return said


def test_export_overwrites_only_when_told(path, tmp_path, capsys):
    assert "nothing is exported" in refused(capsys, "export", tmp_path / "copy.json")
    progress.record(result())
    copy = write(tmp_path / "copy.json", "a diary")
    assert "--force" in refused(capsys, "export", copy)
    assert copy.read_text() == "a diary"
    assert progress.main(["export", str(copy), "--force"]) == 0
    assert copy.read_bytes() == path.read_bytes()
    assert "is the progress itself" in refused(capsys, "export", path, "--force")


def test_a_summary_is_replaced_but_nothing_else(path, tmp_path, capsys):
    target = tmp_path / "map.json"
    for _ in range(2):
        assert progress.main(["summary", str(target)]) == 0
    assert json.loads(target.read_text()) == progress.summary()
    write(target, "a diary")
    assert "--force" in refused(capsys, "summary", target)
    assert progress.main(["summary", str(target), "--force"]) == 0


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_file_is_not_imported(kind, path, tmp_path, capsys):
    progress.record(result())
    before = path.read_bytes()
    bad = write(tmp_path / "bad.json", BROKEN[kind])
    assert "nothing has changed" in refused(capsys, "import", bad)
    assert path.read_bytes() == before


def test_the_right_place_for_other_files_is_named(path, tmp_path, capsys):
    bad = write(tmp_path / "bad.json", BROKEN["a summary"])
    assert "a summary for the book's map" in refused(capsys, "import", bad)
    bad = write(tmp_path / "bad.json", BROKEN["marks"])
    assert "import it there" in refused(capsys, "import", bad)
    bad = write(tmp_path / "bad.json", '{"format": 7}')
    assert "upgrade llmcourse" in refused(capsys, "import", bad)
    assert "there is no file" in refused(capsys, "import", tmp_path / "none.json")


@pytest.mark.parametrize("arguments", [(), ("export", "x.json"), ("summary", "x.json")])
def test_to_look_at_a_broken_file_changes_nothing(arguments, path, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(path, "broken")
    assert f"{path} does not hold progress: it is not JSON" in refused(capsys, *arguments)
    assert path.read_text() == "broken"
    assert not (tmp_path / "x.json").exists()


def test_to_import_into_a_broken_file_moves_it_aside(path, tmp_path, capsys):
    write(path, "broken")
    assert progress.main(["import", str(write(tmp_path / "copy.json", holding()))]) == 0
    assert "broken-1" in capsys.readouterr().out
    assert list(entries(path)) == ["05.1"]


def test_switched_off_there_is_nothing_to_show(path, monkeypatch, capsys):
    monkeypatch.setenv(progress.VARIABLE, "OFF")
    assert "is off" in refused(capsys)


def test_a_disk_that_is_full_is_said(path, tmp_path, monkeypatch, capsys):
    progress.record(result())
    monkeypatch.setattr("os.fsync", fails(errno.ENOSPC))
    assert "as it was made to" in refused(capsys, "export", tmp_path / "copy.json")
    assert not (tmp_path / "copy.json").exists()


# --- the catalogue


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"questions": [{}]}', '{"questions": [{"number": "05.1"}]}']
)
def test_a_list_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="run make exercises"):
        catalogue.loads(text)


def test_a_question_twice_is_refused(sample):
    twice = [vars(sample[0])] * 2
    with pytest.raises(ValueError, match="twice"):
        catalogue.loads(json.dumps({"format": 1, "questions": twice}))


def test_a_package_without_its_list_says_so(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(catalogue, "NAME", "none.json")
    with pytest.raises(ValueError, match="lacks its list"):
        catalogue.questions()
