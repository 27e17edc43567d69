"""pytest plugin: a notebook that passed under nbval is written into the cache that the book reads.

One execution serves tests and pages.  Loaded by tools/build_book.py with `-p tools.nbval_cache`.
"""

import copy
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
    error = None
    try:
        return (yield)
    except BaseException as raised:
        error = raised
        raise
    finally:
        if isinstance(item, IPyNbCell):
            outputs = list(getattr(item, "test_outputs", None) or [])
            ran = item.parent.__dict__.setdefault("_ran", {})
            ran[item.cell_num] = (outputs, error is None)


def _executed(file: IPyNbFile) -> nbformat.NotebookNode | None:
    """Return the notebook with its outputs, or None if a cell failed or did not run."""
    ran = file.__dict__.get("_ran", {})
    notebook = nbformat.read(str(file.path), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(ran) != len(code) or not all(passed for _, passed in ran.values()):
        return None
    for count, (_, (outputs, _)) in enumerate(sorted(ran.items())):
        code[count].outputs = [nbformat.from_dict(copy.deepcopy(output)) for output in outputs]
        code[count].execution_count = count + 1
    return notebook


_teardown = IPyNbFile.teardown


def _teardown_and_cache(self: IPyNbFile) -> None:
    _teardown(self)
    notebook = _executed(self)
    if notebook is None:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    bundle = CacheBundleIn(notebook, str(self.path), data={"execution_seconds": 0.0})
    get_cache(str(CACHE)).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


IPyNbFile.teardown = _teardown_and_cache
