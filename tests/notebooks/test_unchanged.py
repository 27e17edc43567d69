"""A test runs again when something changed that it depends on, and only then."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.build import closure

ROOT = Path(__file__).parents[2]
LAZY = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from llmcourse.optim.adamw import AdamW
    from llmcourse.optim.muon import Muon
"""
FILES = {
    "llmcourse/__init__.py": "",
    "llmcourse/optim/__init__.py": LAZY,
    "llmcourse/optim/adamw.py": "from llmcourse import base\nAdamW = 1",
    "llmcourse/optim/muon.py": "Muon = 2",
    "llmcourse/base.py": "",
    "llmcourse/corpus/__init__.py": "",
    "llmcourse/corpus/words.txt": "one",
    "llmcourse/train/__init__.py": "",
    "llmcourse/train/__main__.py": "import llmcourse.optim.adamw",
    "llmcourse/stage.py": "def stage(name):\n    return plugin('stages', name)",
    "llmcourse_labs/__init__.py": "",
    "llmcourse_labs/tuning.py": "Tuning = 1",
    "llmcourse_labs/rates.py": "from llmcourse.optim import Muon",
    "llmcourse_classroom/__init__.py": "",
    "llmcourse_classroom/board.py": "import llmcourse_labs.rates",
    "llmcourse_classroom/board.json": "{}",
    "book/data/figures.json": "{}",
    "requirements.txt": "",
    "pyproject.toml": """
[project.entry-points."llmcourse.stages"]
sft = "llmcourse_labs.tuning:Tuning"
""",
    "tests/conftest.py": "pytest_plugins = ['tools.build.unchanged']",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(closure, "ROOT", tmp_path)
    monkeypatch.setattr(closure, "IMPORTED_FROM", (tmp_path,))
    closure.forget()
    yield tmp_path
    closure.forget()


ADAM = {"optim/__init__.py", "optim/adamw.py", "base.py"}
MUON = {"optim/__init__.py", "optim/muon.py"}
BOTH, RATES = {*ADAM, *MUON}, {"llmcourse_labs/rates.py", *MUON}
BOARD = {"llmcourse_classroom/board.json", "llmcourse_classroom/board.py"}
LEADS_TO = {
    "from llmcourse.optim import AdamW": ADAM,
    "from llmcourse.optim import AdamW as A": ADAM,
    "from llmcourse import optim\noptim.AdamW()": ADAM,
    "from llmcourse import optim as o\no.AdamW()": ADAM,
    "import llmcourse.optim\nllmcourse.optim.AdamW()": ADAM,
    "import llmcourse.optim.adamw": ADAM,
    "def f():\n    from llmcourse.optim.adamw import AdamW": ADAM,
    "from llmcourse.optim import Muon": {"optim/__init__.py", "optim/muon.py"},
    "from llmcourse import optim\nmonkeypatch.setattr(optim, 'AdamW', 1)": BOTH,
    "from llmcourse import optim\ngetattr(optim, name)": BOTH,
    "from llmcourse.optim import *": BOTH,
    "run('-m', 'llmcourse.train')": {"train/__init__.py", "train/__main__.py", *ADAM},
    "run('-c', 'from llmcourse.optim import AdamW')": ADAM,
    "run('-c', f'from llmcourse import optim; optim.{name}')": BOTH,
    "patch('llmcourse.optim.AdamW')": ADAM,
    "patch('llmcourse.optim.muon.Muon')": {"optim/__init__.py", "optim/muon.py"},
    "from llmcourse import corpus": {"corpus/__init__.py", "corpus/words.txt"},
    "'''See llmcourse.optim.'''": set(),
    "from llmcourse import stage": {"stage.py", "llmcourse_labs/tuning.py"},
    "import llmcourse_labs.rates": RATES,
    "patch('llmcourse_labs.rates.Muon')": RATES,
    "run('-c', f'from llmcourse_labs import rates; rates.{name}')": RATES,
    "from llmcourse_classroom import board": {*RATES, *BOARD},
}
"""What code of a test leads to: below llmcourse, or from the root."""


@pytest.mark.parametrize("code", LEADS_TO)
def test_what_code_leads_to(repository, code):
    path = repository / "tests" / "test_it.py"
    path.write_text(code)
    found = closure.closure([path]) - {path, repository / "tests" / "conftest.py"}
    names = {p.relative_to(repository).as_posix().removeprefix("llmcourse/") for p in found}
    inits = {"__init__.py", "llmcourse_labs/__init__.py", "llmcourse_classroom/__init__.py"}
    assert names - inits == LEADS_TO[code]


def test_named_folders_are_followed(repository):
    path = repository / "tests" / "test_it.py"
    path.write_text("x = ROOT / 'book'")
    figures = repository / "book" / "data" / "figures.json"
    assert figures in closure.closure([path])
    assert figures not in closure.closure([path], paths=False)
    closure.forget()
    path.write_text("x = ROOT / 'book/data/figures.json'")
    assert figures in closure.closure([path])


TESTS = {
    "tests/test_adam.py": "import llmcourse.optim.adamw as it\ndef test_it():\n    assert it.AdamW",
    "tests/test_muon.py": "from llmcourse.optim import muon\ndef test_it():\n    assert muon.Muon",
    "tests/test_pages.py": """
import pytest
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.depends_on(f"_build/{name}")) for name in ("a", "b")])
def test_page(name):
    assert open(f"_build/{name}").read() != "wrong\\n"
""",
}


def run(folder, *options):
    env = os.environ | {"LLMCOURSE_ROOT": str(folder), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    ran = re.findall(r"(test_\w+\.py::\S+?)(?= (?:PASSED|FAILED))", done.stdout)
    ran += re.findall(r"(?:PASSED|FAILED) tests/(test_\w+\.py::\S+)", done.stdout)
    return {name.split("/")[-1].replace(".py::test_it", "") for name in ran}, done


PAGES = {"test_pages.py::test_page[a]", "test_pages.py::test_page[b]"}


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "two"])
def test_only_what_depends_on_a_change_runs(repository, workers):
    def ran(*options):
        return run(repository, *options, *workers)

    def write(name, text):
        (repository / name).write_text(text + "\n")

    (repository / "_build").mkdir()
    for name, text in {**TESTS, "_build/a": "a", "_build/b": "b"}.items():
        write(name, text)
    everything = {"test_adam", "test_muon", *PAGES}
    assert ran("--unchanged=skip")[0] == everything
    names, done = ran("--unchanged=skip")
    assert names == set()
    assert done.returncode == 0, done.stdout
    assert "2 of 3 test files, and 2 tests of others, did not run" in done.stdout
    assert "make test ALL=1" in done.stdout
    if workers:
        return  # the rest is the same
    write("llmcourse/optim/muon.py", "Muon = 3")
    assert ran("--unchanged=skip")[0] == {"test_muon"}
    write("_build/a", "wrong")
    for _ in range(2):  # what failed runs until it passes
        names, done = ran("--unchanged=skip")
        assert (names, done.returncode) == ({"test_pages.py::test_page[a]"}, 1)
    write("_build/a", "right")
    assert ran("--unchanged=skip")[0] == {"test_pages.py::test_page[a]"}
    assert ran("--unchanged=run")[0] == everything
    write("tests/test_adam.py", "def test_it():\n    pass\ndef test_no():\n    assert False")
    run(repository, "--unchanged=skip", "tests/test_adam.py::test_it")  # a part proves no file
    assert "test_adam" in ran("--unchanged=skip")[0]
    write("requirements.txt", "torch")
    assert ran("--unchanged=skip")[0] == {*everything, "test_adam.py::test_no"}
