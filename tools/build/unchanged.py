"""pytest plugin: do not run again what depends on nothing that changed since it passed.

    pytest --unchanged=skip     what `make test` does
    pytest --unchanged=run      run all, and note what passed (`make test ALL=1`)

A test file depends on its closure (tools/build/closure.py): on what it imports, names and lies beside.
A test marked `depends_on(path, ...)` depends on these files and their closures, and on the code
that its file imports, but not on folders named there.  Without the option the plugin does nothing.
"""

import functools
import hashlib
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tools.build import closure

NOTES = closure.ROOT / "_build" / "passed.json"
EVERYWHERE = (closure.ROOT / "requirements.txt", closure.ROOT / "pyproject.toml")
ALL = "all: make test ALL=1, or --unchanged=run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    says = "test files of which nothing changed since they passed: skip or run them; note passes"
    parser.addoption("--unchanged", choices=("skip", "run"), default=None, help=says)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; begin to skip and to note if asked to."""
    config.addinivalue_line("markers", "depends_on(*paths): files whose change runs the test again")
    if config.getoption("unchanged"):
        config.pluginmanager.register(Unchanged(config), "unchanged-tests")


def key_of(path: Path, *, paths: bool = True) -> str:
    """Return a key of all that a test file depends on, Python's version included."""
    files = closure.closure([path, *EVERYWHERE], paths=paths)
    text = f"{sys.version_info[:3]} {closure.key(files)}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def key_of_marked(paths: tuple[str, ...]) -> str:
    """Return a key of all that a mark names; many tests have the same."""
    return closure.key(closure.closure(closure.ROOT / path for path in paths))


def is_part(config: pytest.Config) -> bool:
    """Say whether a run was asked for some tests of a file alone, which proves no file."""
    option = config.option
    named = [option.keyword, option.markexpr, getattr(option, "deselect", None)]
    named += [getattr(option, "lf", None), *("::" in str(argument) for argument in config.args)]
    return any(named)


class Unchanged:
    """What passed before, what is left out now, and what passes now."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.skips = config.getoption("unchanged") == "skip"
        self.given = getattr(config, "workerinput", {}).get("unchanged")
        if self.given is None:
            self.before = read_notes()
            tests = sorted((closure.ROOT / "tests").rglob("test_*.py"))
            self.keys = {self._name(path): key_of(path) for path in tests}
            self.code = {self._name(path): key_of(path, paths=False) for path in tests}
        else:
            self.before, self.keys, self.code = self.given
        self.left_out: set[str] = set()
        self.items_left_out = 0
        self.collected: set[str] = set()
        self.marked: dict[str, str] = {}
        self.outcomes: dict[str, bool] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @staticmethod
    def _name(path: Path) -> str:
        return path.relative_to(closure.ROOT).as_posix()

    def _holds(self, name: str) -> bool:
        return self.before["files"].get(name, {}).get("key") == self.keys.get(name, "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker of xdist what this process found out."""
        node.workerinput["unchanged"] = (self.before, self.keys, self.code)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file that has no marked tests and did not change since all of it passed."""
        if not self.skips or not collection_path.is_relative_to(closure.ROOT):
            return None
        name = self._name(collection_path)
        if name in self.keys and self._holds(name) and not self.before["files"][name]["marked"]:
            self.left_out.add(name)
            return True
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out marked tests whose files did not change, and their unmarked neighbours."""
        kept, gone = [], []
        for item in items:
            if mark := item.get_closest_marker("depends_on"):
                key = f"{self.code[self._name(item.path)]} {key_of_marked(mark.args)}"
                item.user_properties.append(("depends_on", key))
                held = self.before["items"].get(item.nodeid) == key
            else:
                held = item.path.is_relative_to(closure.ROOT) and self._holds(self._name(item.path))
            (gone if held and self.skips else kept).append(item)
        self.items_left_out = len(gone)
        if gone:
            items[:] = kept
            self.config.hook.pytest_deselected(items=gone)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what is going to run."""
        self.collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note what is going to run in the workers."""
        self.collected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn from a worker what it left out; all leave out the same."""
        names, items = getattr(node, "workeroutput", {}).get("unchanged", ([], 0))
        self.left_out.update(names)
        self.items_left_out = max(self.items_left_out, items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended, and how long it took."""
        self.seconds[report.nodeid.split("::")[0]] += report.duration
        if key := dict(report.user_properties).get("depends_on"):
            self.marked[report.nodeid] = str(key)
        if not report.passed and not hasattr(report, "wasxfail"):  # a skipped test proved nothing
            self.outcomes[report.nodeid] = False
        elif report.when == "teardown":
            self.outcomes.setdefault(report.nodeid, True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this one what was left out, or write what passed."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        if self.given is not None:
            self.config.workeroutput["unchanged"] = (sorted(self.left_out), self.items_left_out)
        else:
            self._write()

    def _write(self) -> None:
        notes = read_notes()
        files, items = notes["files"], notes["items"]
        by_file = defaultdict(list)
        for nodeid in self.collected:
            by_file[nodeid.split("::")[0]].append(nodeid)
        for name, nodeids in by_file.items():
            passed = {nodeid: self.outcomes.get(nodeid) for nodeid in nodeids}
            for nodeid, how in passed.items():
                items.pop(nodeid, None)
                if how and nodeid in self.marked:
                    items[nodeid] = self.marked[nodeid]
            plain = [passed[nodeid] for nodeid in nodeids if nodeid not in self.marked]
            if plain and not all(plain):
                files.pop(name, None)
            elif name in self.keys and not is_part(self.config):
                marked = any(nodeid.startswith(f"{name}::") for nodeid in [*items, *self.marked])
                seconds = self.seconds[name] if plain else files.get(name, {}).get("seconds", 0.0)
                files[name] = {"key": self.keys[name], "marked": marked, "seconds": seconds}
        NOTES.parent.mkdir(exist_ok=True)
        scratch = NOTES.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(notes, indent=0, sort_keys=True))
        scratch.replace(NOTES)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out."""
        if self.left_out or self.items_left_out:
            terminalreporter.write_line(
                f"{len(self.left_out)} of {len(self.keys)} test files, and {self.items_left_out} "
                "tests of others, did not run: nothing that they depend on changed since they "
                f"passed ({ALL})"
            )


def read_notes() -> dict[str, dict]:
    """Return what passed before, with its key: `files` by name, `items` by node id."""
    try:
        return json.loads(NOTES.read_text())
    except (OSError, json.JSONDecodeError):
        return {"files": {}, "items": {}}
