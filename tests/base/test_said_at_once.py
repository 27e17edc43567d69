"""tools.build.said_at_once: a failure is printed when it happens, and so is a slow file's time."""

from types import SimpleNamespace

import pytest

from tools.build.said_at_once import SLOW, SaidAtOnce


@pytest.fixture
def said(monkeypatch):
    lines = []
    terminal = SimpleNamespace(write_line=lines.append)
    plugins = SimpleNamespace(get_plugin={"terminalreporter": terminal}.get)
    clock = SimpleNamespace(monotonic=iter([0, 90]).__next__)
    monkeypatch.setattr("tools.build.said_at_once.time", clock)
    return SaidAtOnce(SimpleNamespace(pluginmanager=plugins)), lines


def report(nodeid, duration, *, worker="gw0", failed=False):
    about = {"nodeid": nodeid, "duration": duration, "worker_id": worker, "failed": failed}
    return SimpleNamespace(**about, longreprtext="1 != 2")


def test_a_failure_is_printed_with_its_minute_and_reason(said):
    plugin, lines = said
    plugin.pytest_runtest_logreport(report("a.py::one", 1))
    assert lines == []
    plugin.pytest_runtest_logreport(report("a.py::two", 1, failed=True))
    assert lines == ["[  1.5 min] FAILED a.py::two\n1 != 2"]


def test_a_slow_file_is_printed_when_its_worker_begins_another(said):
    plugin, lines = said
    for nodeid, seconds, worker in [
        ("a.py::one", SLOW - 5, "gw0"),
        ("quick.py::one", SLOW - 5, "gw1"),
        ("a.py::two", 10, "gw0"),
        ("b.py::one", 1, "gw1"),
        ("c.py::one", 1, "gw0"),
    ]:
        assert lines == []
        plugin.pytest_runtest_logreport(report(nodeid, seconds, worker=worker))
    assert lines == [f"[  1.5 min] a.py: {SLOW + 5} s"]
