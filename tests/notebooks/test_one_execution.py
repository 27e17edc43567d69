"""Notebooks that pass under nbval reach the cache that the book reads; others do not."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_cache import get_cache

from tools import build_book, check_notebooks

ROOT = Path(__file__).parents[2]


ACCOUNT = """
import json, os, sys, tempfile
import torch
json.dumps([sys.executable, torch.get_num_threads(), tempfile.gettempdir(), "marker" in globals()])
"""


def notebook_of(*sources, tags=None):
    cells = [nbformat.v4.new_markdown_cell("# Title")]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    if tags:
        cells[-1].metadata["tags"] = tags
    return nbformat.v4.new_notebook(cells=cells, metadata=check_notebooks.TOP_METADATA)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run notebooks in one nbval session; return its output, the cache and the folder.

    The account they run in is not a clean one: it has a profile that defines a name in every
    session, and a kernel called python3 that does not start.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    mark = folder / "ran.txt"
    notebooks = {
        "good": notebook_of(
            f"with open({str(mark)!r}, 'a') as file:\n    file.write('x')", "print(6 * 7)", "6 * 8"
        ),
        "failing": notebook_of("print('before')", "assert 1 > 2, 'a claim'", "print('after')"),
        "skipped": notebook_of("print(1)", "1 / 0", tags=["nbval-skip"]),
        "widget": notebook_of("import ipywidgets\nipywidgets.IntSlider()"),
        "raises": notebook_of("1 / 0", tags=["raises-exception"]),
        "account": notebook_of(ACCOUNT),
    }
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q"]
    command += ["-p", "tools.nbval_cache", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", "-n", "2", "--dist", "loadfile"]
    env = build_book.environment(folder / "scratch") | {"PYTHONPATH": str(ROOT)}
    env |= {"TMPDIR": str(folder), "MPLCONFIGDIR": str(folder / "matplotlib")}
    env |= {"HOME": str(folder / "home")}
    startup = folder / "home" / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("marker = 1\n")
    kernel = folder / "home" / ".local" / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(
        '{"argv": ["false"], "display_name": "Python 3", "language": "python"}'
    )
    (folder / "scratch").mkdir()
    done = subprocess.run(
        [*command, *(f"{name}.ipynb" for name in notebooks)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    cache = get_cache(str(folder / "_build" / ".jupyter_cache"))
    return done, cache, folder


def in_cache(cache, path):
    try:
        return cache.match_cache_file(str(path))
    except KeyError:
        return None


def test_a_passing_notebook_is_cached_with_its_outputs(executed):
    _, cache, folder = executed
    record = in_cache(cache, folder / "good.ipynb")
    assert record is not None
    cells = cache.get_cache_bundle(record.pk).nb.cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert code[0].outputs == []
    assert code[1].outputs[0].text == "42\n"
    assert code[2].outputs[0].data["text/plain"] == "48"


def test_it_ran_once(executed):
    _, _, folder = executed
    assert (folder / "ran.txt").read_text() == "x"


def test_an_expected_exception_is_cached(executed):
    _, cache, folder = executed
    record = in_cache(cache, folder / "raises.ipynb")
    assert record is not None
    (code,) = cache.get_cache_bundle(record.pk).nb.cells  # it keeps code cells alone
    outputs = code.outputs
    assert outputs[0].ename == "ZeroDivisionError"


def test_the_account_leaves_no_trace(executed):
    _, cache, folder = executed
    (code,) = cache.get_cache_bundle(in_cache(cache, folder / "account.ipynb").pk).nb.cells
    shown = json.loads(ast.literal_eval(code.outputs[0].data["text/plain"]))
    assert shown == [sys.executable, 1, str(folder), False]


@pytest.mark.parametrize("name", ["failing", "skipped", "widget"])
def test_others_are_left_to_the_book(executed, name):
    _, cache, folder = executed
    assert in_cache(cache, folder / f"{name}.ipynb") is None


def test_a_failing_cell_fails_the_run_and_is_shown(executed):
    done, _, _ = executed
    assert done.returncode == 1
    assert "a claim" in done.stdout
    assert "1 failed" in done.stdout


def test_progress_names_notebooks(executed):
    done, _, _ = executed
    assert "good.ipynb ..." in done.stdout
    assert "good.ipynb 3 cells" in done.stdout


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one chapter, an empty package and an empty cache."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "llmcourse").mkdir()
    (tmp_path / "llmcourse" / "loss.py").write_text("unit = 'nat'\n")
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nparts:\n"
        "  - chapters:\n      - file: chapters/07_title\n        sections:\n"
        "          - file: chapters/08_other\n      - file: book/glossary\n"
    )
    for name in ("07_title", "08_other", "09_absent_from_toc"):
        nbformat.write(notebook_of(f"print({name!r})"), tmp_path / "chapters" / f"{name}.ipynb")
    monkeypatch.setattr(build_book, "ROOT", tmp_path)
    monkeypatch.setattr(build_book, "BUILD", tmp_path / "_build")
    monkeypatch.setattr(build_book, "CACHE", tmp_path / "_build" / ".jupyter_cache")
    monkeypatch.setattr(build_book, "PAGE_KEY", tmp_path / "_build" / "page_key")
    monkeypatch.setattr(build_book, "INDEX", tmp_path / "_build" / "html" / "index.html")
    (tmp_path / "_config.yml").write_text("title: One\n")
    return tmp_path


def pretend_to_execute(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].execution_count = 1
    get_cache(str(build_book.CACHE)).cache_notebook_file(str(path), check_validity=False)


def test_the_chapters_are_those_of_the_table_of_contents(project):
    assert [path.stem for path in build_book.chapters()] == ["07_title", "08_other"]
    assert build_book.documents() == [
        "book/intro",
        "chapters/07_title",
        "chapters/08_other",
        "book/glossary",
    ]


def test_only_what_changed_is_executed(project):
    first, second = build_book.chapters()
    assert build_book.not_executed([first, second]) == [first, second]
    pretend_to_execute(first)
    assert build_book.not_executed([first, second]) == [second]
    pretend_to_execute(second)
    assert build_book.not_executed([first, second]) == []

    prose = nbformat.read(first, as_version=4)
    prose.cells[0].source = "# Another title"
    nbformat.write(prose, first)
    assert build_book.not_executed([first, second]) == []

    nbformat.write(notebook_of("print('changed')"), second)
    assert build_book.not_executed([first, second]) == [second]


def _change_package(project):
    (project / "llmcourse" / "loss.py").write_text("unit = 'bit'\n")


def _add_module(project):
    (project / "llmcourse" / "model").mkdir()
    (project / "llmcourse" / "model" / "config.py").write_text("")


def _rename_module(project):
    (project / "llmcourse" / "loss.py").rename(project / "llmcourse" / "cost.py")


def _change_pins(project):
    (project / "requirements.txt").write_text("torch==2.13.1\n")


@pytest.mark.parametrize("change", [_change_package, _add_module, _rename_module, _change_pins])
def test_another_package_empties_the_cache(project, change):
    notebooks = build_book.chapters()
    build_book.not_executed(notebooks)
    for path in notebooks:
        pretend_to_execute(path)
    assert build_book.not_executed(notebooks) == []
    change(project)
    assert build_book.not_executed(notebooks) == notebooks
    assert build_book.not_executed(notebooks) == notebooks  # nothing came back


def test_what_code_says_about_itself_changes_nothing(project):
    module = project / "llmcourse" / "loss.py"
    module.write_text("unit = 'nat'\n\n\ndef f(x):\n    return x\n")
    before, pages = build_book.execution_key(), build_book.page_key()
    module.write_text(
        '"""Loss."""\n\nunit = "nat"  # natural\n"""The unit."""\n\n\n'
        'def f(x):\n    """Return x."""\n    return x\n'
    )
    assert build_book.execution_key() == before
    assert build_book.page_key() != pages
    for code in ("return x + 1", "return y", "print('text')\n    return x", "'a'.upper()"):
        module.write_text(f"unit = 'nat'\n\n\ndef f(x):\n    {code}\n")
        assert build_book.execution_key() != before


def test_compiled_files_change_nothing(project):
    before = build_book.execution_key()
    (project / "llmcourse" / "__pycache__").mkdir()
    (project / "llmcourse" / "__pycache__" / "loss.cpython-311.pyc").write_bytes(b"x")
    assert build_book.execution_key() == before


def test_pages_depend_on_prose_and_settings(project):
    (project / "book").mkdir()
    keys = {build_book.page_key()}
    (project / "_config.yml").write_text("title: Two\n")
    keys.add(build_book.page_key())
    (project / "book" / "intro.md").write_text("# Hello\n")
    keys.add(build_book.page_key())
    (project / "chapters" / "07_title.ipynb").write_text("{}")
    keys.add(build_book.page_key())
    assert len(keys) == 4


def test_a_failing_chapter_stops_the_build(project, monkeypatch, capsys):
    monkeypatch.setattr(build_book, "execute", lambda _notebooks, _env: 1)
    monkeypatch.setattr(build_book, "build", lambda _env: pytest.fail("built all the same"))
    assert build_book.main([]) == 1
    assert "a chapter failed" in capsys.readouterr().err


def test_nothing_is_built_twice(project, monkeypatch):
    builds = []

    def execute(notebooks, _env):
        for path in notebooks:
            pretend_to_execute(path)
        return 0

    def build(_env):
        builds.append(1)
        build_book.INDEX.parent.mkdir(parents=True, exist_ok=True)
        build_book.INDEX.write_text("<html>")
        return 0

    monkeypatch.setattr(build_book, "execute", execute)
    monkeypatch.setattr(build_book, "build", build)
    assert not build_book.is_current()
    assert build_book.main([]) == 0
    assert build_book.is_current()
    assert build_book.main([]) == 0
    assert len(builds) == 1
    (project / "_config.yml").write_text("title: Two\n")
    assert build_book.main([]) == 0
    assert len(builds) == 2
    monkeypatch.setattr(build_book, "build", lambda _env: 1)
    (project / "_config.yml").write_text("title: Three\n")
    assert build_book.main([]) == 1
    assert not build_book.is_current()
    assert build_book.main([]) == 1  # a failed build is not taken for a finished one


def test_pages_are_built_from_nothing(project, monkeypatch):
    for name in (".doctrees", "html", "jupyter_execute"):
        (project / "_build" / name).mkdir(parents=True)
        (project / "_build" / name / "stale").write_text("")
    commands = []

    def run(command, **_settings):
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode=7)

    monkeypatch.setattr(build_book.subprocess, "run", run)
    assert build_book.build({}) == 7
    assert not list((project / "_build").rglob("stale"))
    assert commands[0][1:] == ["build", ".", "-W", "--keep-going", "-n"]
