"""pytest plugin: a notebook that passed under nbval is written into the cache that the book reads.

One execution serves tests and pages.  Loaded by tools/build/build_book.py with `-p tools.build.nbval_cache`.
A notebook of which a cell failed, was skipped or shows a widget that only a kernel can draw is
not written.  With it are written what its kernel used (tools/build/uses.py), and the CPU seconds that
kernel and ranks took.  A kernel that dies before it answers is started once more.
"""

import copy
import tempfile
import time
import warnings
from pathlib import Path

import nbformat
import psutil
import pytest
from filelock import FileLock
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_client.provisioning import local_provisioner
from nbval import plugin
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile

from tools.build import by_code, spent, uses, warm_kernel  # noqa: F401 - what an execution belongs to

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


class Execution:
    """What a notebook's kernel is given, and what is known of it afterwards."""

    def __init__(self, path: Path):
        self.path, self.begin = path, time.time()
        self.folder = tempfile.TemporaryDirectory(prefix="notes-")
        self.notes = Path(self.folder.name) / "notes"

    def launch(self, cmd, *, env, **settings):
        """Start the kernel; jupyter_client calls this."""
        # Only a notebook with solutions has to pass its own checks; the learner's is still open.
        strict = str(int(self.path.parent.name == "solutions"))
        own = {"LLMCOURSE_STRICT": strict, "LLMCOURSE_NOTES": str(self.notes)}
        return warm_kernel.launch(cmd, env=env | own, **settings)

    def facts(self, cpu_seconds: float) -> dict | None:
        """Return what is cached beside the outputs, or None if a file changed meanwhile."""
        root = Path.cwd()
        used = uses.read(self.notes)
        if any(path.stat().st_mtime > self.begin for path in uses.paths(used, root)):
            return None
        seconds = {"execution_seconds": time.time() - self.begin, "cpu_seconds": cpu_seconds}
        return {**seconds, "uses": used, "key": uses.key(used, root)}


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of all it started, those that ended included."""
    try:
        process = psutil.Process(pid)
        return sum(
            sum(each.cpu_times()[:4]) for each in (process, *process.children(recursive=True))
        )
    except psutil.NoSuchProcess:
        return 0.0


def started(*arguments, **settings) -> RunningKernel:
    """Start a kernel; once more, and with a warning, if it dies before it answers."""
    try:
        return RunningKernel(*arguments, **settings)
    except RuntimeError as error:
        warnings.warn(f"a kernel was started a second time: {error}", stacklevel=1)
        return RunningKernel(*arguments, **settings)


_setup, _teardown = IPyNbFile.setup, IPyNbFile.teardown


def _setup_and_note(self: IPyNbFile) -> None:
    self._execution = Execution(self.path)
    local_provisioner.launch_kernel = self._execution.launch
    _setup(self)


def _teardown_and_cache(self: IPyNbFile) -> None:
    running = self.kernel is not None and self.kernel.is_alive()
    seconds = cpu_seconds(self.kernel.km.provisioner.pid) if running else 0.0
    _teardown(self)
    wall_s = time.time() - self._execution.begin
    spent.note("", f"{self.path.parent.name}/{self.path.stem}", seconds, wall_s)
    notebook, facts = executed(self), self._execution.facts(seconds)
    self._execution.folder.cleanup()
    if notebook is None or facts is None:
        return
    keep(CacheBundleIn(notebook, str(self.path), data=facts))


def keep(bundle: CacheBundleIn) -> None:
    """Put an execution into the cache, one worker at a time.

    The cache looks for records beyond its limit in two questions: one that another worker makes in
    between is taken for such a record, and is missed while it is written.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / ".lock"):
        get_cache(str(CACHE)).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


IPyNbFile.setup, IPyNbFile.teardown = _setup_and_note, _teardown_and_cache
plugin.RunningKernel = started


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
