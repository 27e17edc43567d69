"""pytest plugin: a notebook that passed under nbval is written into the cache that the book reads.

One execution serves tests and pages.  Loaded by tools/build_book.py with `-p tools.nbval_cache`.
A notebook of which a cell failed, was skipped or shows a widget that only a kernel can draw is
not written; Jupyter Book then executes it itself.
"""

import copy
import os
from pathlib import Path

import nbformat
import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbval.plugin import IPyNbCell, IPyNbFile

CACHE = Path("_build/.jupyter_cache")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Keep what every notebook cell printed, and whether it passed."""
    passed = False
    try:
        result = yield
        passed = True
        return result
    finally:
        if isinstance(item, IPyNbCell):
            outputs = list(getattr(item, "test_outputs", None) or [])
            item.parent.__dict__.setdefault("_ran", {})[item.cell_num] = (outputs, passed)


def executed(file: IPyNbFile) -> nbformat.NotebookNode | None:
    """Return the notebook with its outputs, or None if the book has to run it."""
    ran = file.__dict__.get("_ran", {})
    notebook = nbformat.read(str(file.path), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(ran) != len(code) or not all(passed for _, passed in ran.values()):
        return None
    for count, (_, (outputs, _)) in enumerate(sorted(ran.items())):
        # nbval keeps no widget state, without which such an output is empty in a page.
        if any(WIDGET_VIEW in o.get("data", {}) and "text/html" not in o["data"] for o in outputs):
            return None
        code[count].outputs = [nbformat.from_dict(copy.deepcopy(output)) for output in outputs]
        code[count].execution_count = count + 1
    return notebook


_setup, _teardown = IPyNbFile.setup, IPyNbFile.teardown


def _setup_strictly(self: IPyNbFile) -> None:
    # Only a notebook with solutions has to pass its own checks; the learner's is still open.
    os.environ["LLMCOURSE_STRICT"] = str(int(self.path.parent.name == "solutions"))
    _setup(self)


def _teardown_and_cache(self: IPyNbFile) -> None:
    _teardown(self)
    notebook = executed(self)
    if notebook is None:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    bundle = CacheBundleIn(notebook, str(self.path), data={"execution_seconds": 0.0})
    get_cache(str(CACHE)).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


IPyNbFile.setup, IPyNbFile.teardown = _setup_strictly, _teardown_and_cache


class Progress:
    """A line when a notebook starts and when it ends, instead of a dot for each cell."""

    def __init__(self):
        self.cells, self.seconds, self.started = {}, {}, set()

    def pytest_report_teststatus(self, report):
        """Print nothing for a cell that passed."""
        if report.passed:
            return ("passed", "", "") if report.when == "call" else ("", "", "")
        return None

    def pytest_runtest_logstart(self, nodeid):
        """Name a notebook when its first cell starts."""
        name = nodeid.split("::")[0]
        if name not in self.started:
            self.started.add(name)
            print(f"  {name} ...", flush=True)

    def pytest_runtest_logreport(self, report):
        """Count a cell, and name its notebook when it was the last one."""
        if report.when != "call":
            return
        name = report.nodeid.split("::")[0]
        self.cells[name] = self.cells.get(name, 0) + 1
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        cells = nbformat.read(name, as_version=4).cells
        if self.cells[name] == sum(cell.cell_type == "code" for cell in cells):
            print(f"  {name} {self.cells[name]} cells, {self.seconds[name]:.0f} s", flush=True)


def pytest_configure(config):
    """Show progress in the process that a person looks at."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(), "notebook-progress")
