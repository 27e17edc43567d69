"""What a run costs: every part is noted under its family, and the table adds up."""

import json
import subprocess
import sys
import time

import pytest

from tools.build import spent
from tools.build.build_book import ROOT

SPENT = [sys.executable, str(ROOT / "tools" / "build" / "spent.py")]
BUSY = "import time; t = time.process_time()\nwhile time.process_time() - t < {}: pass"


@pytest.fixture
def lines(tmp_path, monkeypatch):
    monkeypatch.setenv(spent.FILE, str(tmp_path / "spent"))
    return lambda: [json.loads(line) for line in (tmp_path / "spent").read_text().splitlines()]


def test_a_command_is_noted_with_its_processes_and_one_that_still_runs_counts(lines):
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(0.5)!r}])"
    command = [*SPENT, "style", "--", sys.executable, "-c", f"{inner}; sys.exit(3)"]
    assert subprocess.run(command, check=False).returncode == 3
    ((family, name, cpu_s, wall_s),) = lines()
    assert (family, name[: len(sys.executable)]) == ("style", sys.executable[:60])
    assert 0.5 <= cpu_s < 2 * wall_s
    with subprocess.Popen([sys.executable, "-c", BUSY.format(60)]) as process:
        before, limit = spent.family_used_s(), time.monotonic() + 60
        while spent.family_used_s() < before + 0.3 and time.monotonic() < limit:
            time.sleep(0.05)
        assert spent.family_used_s() >= before + 0.3 > spent.used_s()
        process.kill()


def test_files_of_tests_are_noted_by_their_folder(lines):
    plugin = spent.TestFiles()
    for test in ("base/test_a.py::one", "base/test_a.py::two", "loss/test_b.py::x"):
        plugin.pytest_runtest_logstart(f"tests/{test}")
    plugin.pytest_sessionfinish()
    files = [["tests/base", "tests/base/test_a.py"], ["tests/loss", "tests/loss/test_b.py"]]
    assert [row[:2] for row in lines()] == [["tests: collection", "collection"], *files]


def test_who_runs_for_several_files_is_counted_once(lines):
    """As a browser does, which is waited for when the last test has ended."""
    plugin = spent.TestFiles()
    plugin.pytest_runtest_logstart("tests/base/test_a.py::one")
    words = [sys.executable, "-c", f"{BUSY.format(1)}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runs:
        runs.stdout.readline()
        plugin.pytest_runtest_logstart("tests/loss/test_b.py::x")
        runs.communicate(b"\n")
    plugin.pytest_sessionfinish()
    _collection, first, second = (row[2] for row in lines())
    assert first > 0.8 > second


def test_the_table_adds_up_and_nothing_is_noted_where_no_file_is_named(monkeypatch, tmp_path):
    rows = [["pages", "pages", 3.0, 1], ["style", "ruff", 1.0, 1], ["style", "check", 1.5, 1]]
    rows += [["", "chapters/01_whole_run", 2.0, 1]]  # a part of another row
    said = spent.table([json.dumps(row) for row in rows], 10.0).split("\n")
    numbers = [(float(line[:8]), line[10:]) for line in said if line[:8].strip()]
    assert numbers[0] == (10, "seconds of processors, of these")
    assert [name for _, name in numbers[1:4]] == ["the rest", "pages", "style"]
    assert [name for _, name in numbers[4:]] == ["pages", "chapters/01_whole_run", "check", "ruff"]
    monkeypatch.delenv(spent.FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    spent.note("style", "ruff", 1.0, 1.0)
    assert list(tmp_path.iterdir()) == []
