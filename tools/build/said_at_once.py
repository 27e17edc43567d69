"""A pytest plugin: failures when they happen, and how long each slow file took.

Workers' failures are otherwise printed at the end, which a run that is cut off never reaches.
"""

import time
from collections import defaultdict

import pytest

SLOW = 30  # seconds of a file that are worth a line


def pytest_configure(config):
    """Only the process that prints, not its workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SaidAtOnce(config))


class SaidAtOnce:
    """Follows the reports of all workers."""

    def __init__(self, config):
        self.config = config
        self.began = time.monotonic()
        self.seconds = defaultdict(float)
        self.current = {}  # worker -> the file it is in

    def say(self, text):
        """A line of its own, with the minutes since the start."""
        minutes = (time.monotonic() - self.began) / 60
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"[{minutes:5.1f} min] {text}")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        """One phase of one test has ended."""
        file = report.nodeid.split("::")[0]
        worker = getattr(report, "worker_id", "")
        before = self.current.get(worker, file)
        if before != file and (seconds := self.seconds.pop(before, 0.0)) > SLOW:
            self.say(f"{before}: {seconds:.0f} s")
        self.current[worker] = file
        self.seconds[file] += report.duration
        if report.failed:
            self.say(f"FAILED {report.nodeid}\n{report.longreprtext}")
