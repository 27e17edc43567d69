"""Notebooks that pass under nbval reach the cache that the book reads; others do not."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import nbformat
import pytest
from filelock import FileLock
from jupyter_cache import get_cache

from tools.build import build_book, uses
from tools.check import check_notebooks

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


PACKAGE = {"__init__.py": "", "adam.py": "rate = 1", "muon.py": "rate = 2"}
PACKAGE |= {"command.py": "import llmcourse.loop", "loop.py": "steps = 3"}
PACKAGE |= {"ranks.py": "def work():\n    import llmcourse.sync", "sync.py": "sums = 4"}
PACKAGE |= {"shown.py": "def shown():\n    return 5", "script.py": "import pathlib"}
PACKAGE |= {"state.py": "def code_version():\n    return open('llmcourse/other.txt').read()"}
PACKAGE |= {"words.txt": "one two", "other.txt": "three", "quizzes/07.toml": "x = 1"}
PACKAGE |= {"quizzes/08.toml": "x = 2"}
USES = """
import inspect, multiprocessing, os, pathlib, subprocess, sys
from llmcourse import adam, ranks, shown, state
state.code_version()
pathlib.Path("llmcourse/words.txt").read_text(), pathlib.Path("llmcourse/absent.txt").exists()
subprocess.run([sys.executable, "-m", "llmcourse.command"], check=True)
subprocess.run([sys.executable, "llmcourse/script.py"], check=True)
process = multiprocessing.get_context("forkserver").Process(target=ranks.work)
process.start(), process.join()
assert process.exitcode == 0
try:
    import llmcourse.later
except ImportError:
    pass
try:
    open("llmcourse/later.txt")
except OSError:
    pass
pathlib.Path("made.txt").write_text("x")
os.listdir("llmcourse/quizzes"), inspect.getsource(shown.shown)
"""
TOUCHES = """
import os
from llmcourse import muon
os.utime(muon.__file__)
"""


def run_notebooks(folder, names, *options):
    """Run notebooks of a folder in one nbval session, with the package that stands there."""
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q"]
    command += ["-p", "tools.build.nbval_cache", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", *options]
    scratch = folder / "_build" / "tmp"  # in the course's own builds it stands elsewhere
    scratch.mkdir(parents=True)
    env = build_book.environment(scratch)
    path = os.pathsep.join(map(str, (build_book.NOTING, folder, ROOT)))
    env |= {"PYTHONPATH": path, "LLMCOURSE_ROOT": str(folder)}
    env |= {"MPLCONFIGDIR": str(scratch / "matplotlib"), "HOME": str(folder / "home")}
    command += [f"{name}.ipynb" for name in names]
    settings = {"cwd": folder, "env": env, "capture_output": True, "text": True}
    return subprocess.run(command, check=False, **settings)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run notebooks in one nbval session; return its output, the cache and the folder.

    The account they run in is not a clean one: it has a profile that defines a name in every
    session, and a kernel called python3 that does not start.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    mark = folder / "ran.txt"
    notebooks = {
        "good": notebook_of(f"_ = open({str(mark)!r}, 'a').write('x')", "print(6 * 7)", "6 * 8"),
        "failing": notebook_of("print('before')", "assert 1 > 2, 'a claim'", "print('after')"),
        "skipped": notebook_of("print(1)", "1 / 0", tags=["nbval-skip"]),
        "widget": notebook_of("import ipywidgets\nipywidgets.IntSlider()"),
        "raises": notebook_of("1 / 0", tags=["raises-exception"]),
        "account": notebook_of(ACCOUNT),
        "uses": notebook_of(USES),
        "uses_nothing": notebook_of("6 * 9"),
        "meanwhile": notebook_of(TOUCHES),
    }
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    (folder / "llmcourse" / "quizzes").mkdir(parents=True)
    for name, text in PACKAGE.items():
        (folder / "llmcourse" / name).write_text(f"{text}\n")
    (folder / "requirements.txt").write_text("torch==2.13.0\n")
    startup = folder / "home" / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("marker = 1\n")
    kernel = folder / "home" / ".local" / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    dead = {"argv": ["false"], "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(dead))
    return run_notebooks(folder, notebooks, "-n", "2", "--dist", "loadfile"), Cache(folder), folder


class Cache:
    def __init__(self, folder):
        self.folder, self.cache = folder, get_cache(str(folder / "_build" / ".jupyter_cache"))

    def record(self, name):
        try:
            return self.cache.match_cache_file(str(self.folder / f"{name}.ipynb"))
        except KeyError:
            return None

    def code(self, name):
        cells = self.cache.get_cache_bundle(self.record(name).pk).nb.cells
        return [cell for cell in cells if cell.cell_type == "code"]


def test_a_passing_notebook_ran_once_and_is_cached_with_its_outputs(executed):
    _, cache, folder = executed
    code = cache.code("good")
    assert ([cell.execution_count for cell in code], code[0].outputs) == ([1, 2, 3], [])
    assert (code[1].outputs[0].text, code[2].outputs[0].data["text/plain"]) == ("42\n", "48")
    assert (folder / "ran.txt").read_text() == "x"


KEEP = """
import sys
import nbformat
from jupyter_cache.base import CacheBundleIn
from tools.build import nbval_cache
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1", id="x")])
nbval_cache.keep(CacheBundleIn(notebook, "a.ipynb", data={}))
print("kept", flush=True)
"""


def test_one_worker_at_a_time_writes_the_cache(tmp_path):
    folder = tmp_path / "_build" / ".jupyter_cache"
    folder.mkdir(parents=True)
    words = [sys.executable, "-c", KEEP]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with FileLock(folder / ".lock"):
        other = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=5)
    assert other.communicate(timeout=60)[0] == b"kept\n"


def test_an_expected_exception_is_cached_and_the_account_leaves_no_trace(executed):
    _, cache, folder = executed
    (code,) = cache.code("raises")
    assert code.outputs[0].ename == "ZeroDivisionError"
    (code,) = cache.code("account")
    shown = json.loads(ast.literal_eval(code.outputs[0].data["text/plain"]))
    assert shown == [sys.executable, 1, str(folder / "_build" / "tmp"), False]


@pytest.mark.parametrize("name", ["failing", "skipped", "widget", "meanwhile"])
def test_others_are_not_cached(executed, name):
    """Nor is one that used a file which changed during the execution."""
    assert executed[1].record(name) is None


def test_a_failing_cell_fails_the_run_and_progress_names_notebooks(executed):
    done, _, _ = executed
    assert done.returncode == 1
    told = ("good.ipynb ...", "good.ipynb 3 cells", "meanwhile.ipynb 1 cells")
    for said in ("a claim", "1 failed", *told):
        assert said in done.stdout


@pytest.fixture
def holds(executed, monkeypatch):
    _, _, folder = executed
    monkeypatch.setattr(build_book, "ROOT", folder)
    monkeypatch.setattr(build_book, "CACHE", folder / "_build" / ".jupyter_cache")
    return lambda name: build_book.execution(folder / f"{name}.ipynb") is not None


def test_what_a_notebook_used_is_noted_with_the_seconds_of_its_kernel(executed):
    _, cache, _ = executed
    facts = cache.record("uses").data
    assert 0 < facts["cpu_seconds"] < 60
    assert facts["execution_seconds"] > 0
    used = facts["uses"]
    names = ["adam", "command", "later", "loop", "ranks", "shown", "state", "sync"]
    assert used["name"] == ["llmcourse", *(f"llmcourse.{name}" for name in names)]
    read = ["later.txt", "script.py", "shown.py", "words.txt"]
    assert used["file"] == [*(f"llmcourse/{name}" for name in read), "requirements.txt"]
    assert used["folder"] == ["llmcourse/quizzes"]
    nothing = cache.record("uses_nothing").data["uses"]
    assert nothing == {"name": [], "file": ["requirements.txt"], "folder": []}


CHANGES = {
    # what changes: its new text, and whether the notebook runs again
    "llmcourse/adam.py": ("rate = 7", True),
    "llmcourse/adam.py ": ("'What it is.'\nrate = 1  # per step", False),
    "llmcourse/muon.py": ("rate = 7", False),
    "llmcourse/command.py": ("import llmcourse.loop, llmcourse.muon", True),
    "llmcourse/loop.py": ("steps = 7", True),
    "llmcourse/sync.py": ("sums = 7", True),
    "llmcourse/shown.py": (PACKAGE["shown.py"] + "  # a page shows this", True),
    "llmcourse/words.txt": ("one, two", True),
    "llmcourse/other.txt": ("three, four", False),
    "llmcourse/later.py": ("", True),
    "llmcourse/later.txt": ("", True),
    "llmcourse/unasked.py": ("", False),
    "llmcourse/adam/__init__.py": ("rate = 1", True),
    "llmcourse/quizzes/07.toml": ("x, = 1", False),
    "llmcourse/quizzes/09.toml": ("", True),
    "requirements.txt": ("torch==2.13.1", True),
    "_config.yml": ("title: One", False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_runs_again_what_used_it(executed, holds, name):
    _, _, folder = executed
    text, again = CHANGES[name]
    path = folder / name.strip()
    before = path.read_bytes() if path.exists() else None
    assert holds("uses")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    try:
        assert holds("uses") is not again
        assert holds("uses_nothing") is (name != "requirements.txt")
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        if path.parent.name == "adam":
            path.parent.rmdir()
    assert holds("uses")


DIES = """
from jupyter_client import launcher
from tools.build import warm_kernel
launches, launch = [], warm_kernel.launch
def dying(cmd, **settings):
    launches.append(1)
    if len(launches) > {times}:
        return launch(cmd, **settings)
    return launcher.launch_kernel([cmd[0], "-c", "raise SystemExit(1)"], **settings)
warm_kernel.launch = dying
"""


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 1)])
def test_a_kernel_that_dies_at_its_start_is_started_once_more(tmp_path, times, code):
    nbformat.write(notebook_of("6 * 7"), tmp_path / "some.ipynb")
    (tmp_path / "dies.py").write_text(DIES.format(times=times))
    (tmp_path / "requirements.txt").write_text("")
    done = run_notebooks(tmp_path, ["some"], "-p", "dies")
    assert done.returncode == code, done.stdout + done.stderr
    assert "a kernel was started a second time: Kernel died before replying" in done.stdout


@pytest.fixture
def project(tmp_path, monkeypatch):
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
    places = {"ROOT": ".", "BUILD": "_build", "CACHE": "_build/.jupyter_cache"}
    places |= {"PAGE_KEY": "_build/page_key", "INDEX": "_build/html/index.html"}
    for name, place in places.items():
        monkeypatch.setattr(build_book, name, tmp_path / place)
    (tmp_path / "_config.yml").write_text("title: One\n")
    return tmp_path


def pretend_to_execute(path):
    used = {"name": ["llmcourse.loss"], "file": ["requirements.txt"], "folder": []}
    facts = {"uses": used, "key": uses.key(used, build_book.ROOT)}
    cache = get_cache(str(build_book.CACHE))
    cache.cache_notebook_file(str(path), data=facts, check_validity=False, overwrite=True)


FIGURE = """
import io, sys
import matplotlib.pyplot as plt
_, ax = plt.subplots()
ax.plot([1, 2], "o-")
drawn = io.StringIO()
plt.savefig(drawn, format="svg")
sys.stdout.write(drawn.getvalue())
"""


def test_the_same_figure_is_the_same_svg(tmp_path, monkeypatch):
    run = mock.Mock(return_value=subprocess.CompletedProcess([], 0))
    with monkeypatch.context() as patched:
        patched.setattr(build_book.subprocess, "run", run)
        build_book.execute([], build_book.environment(tmp_path))
    command = [sys.executable, "-c", FIGURE]
    given = run.call_args.kwargs["env"] | {"MPLBACKEND": "agg"}
    drawn = [subprocess.run(command, env=given, stdout=-1, check=True).stdout for _ in range(2)]
    first, second = drawn
    assert first.startswith(b"<?xml")
    assert first == second


def test_the_chapters_are_those_of_the_table_of_contents(project):
    assert [path.stem for path in build_book.chapters()] == ["07_title", "08_other"]
    chapters = ["chapters/07_title", "chapters/08_other"]
    assert build_book.documents() == ["book/intro", *chapters, "book/glossary"]


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


def test_what_is_not_executed_is_forgotten(project):
    first, second = build_book.chapters()
    for path in (first, second):
        pretend_to_execute(path)
    (project / "requirements.txt").write_text("torch==2.13.1\n")
    assert build_book.not_executed([first, second]) == [first, second]
    build_book.forget([first])
    cache = Cache(project)
    assert cache.record("chapters/07_title") is None
    assert cache.record("chapters/08_other") is not None
    build_book.forget([first])
    # an execution without notes does not count
    cache.cache.cache_notebook_file(str(first), check_validity=False)
    assert build_book.not_executed([first]) == [first]


def test_pages_depend_on_prose_settings_and_what_code_says_about_itself(project):
    module = project / "llmcourse" / "loss.py"
    module.write_text("unit = 'nat'\n\n\ndef f(x):\n    return x\n")
    before, pages = uses.meaning_of(module), build_book.page_key()
    module.write_text(
        '"""Loss."""\n\nunit = "nat"  # natural\n"""The unit."""\n\n\n'
        'def f(x):\n    """Return x."""\n    return x\n'
    )
    assert uses.meaning_of(module) == before
    assert build_book.page_key() != pages
    for code in ("return x + 1", "return y", "print('text')\n    return x", "'a'.upper()"):
        module.write_text(f"unit = 'nat'\n\n\ndef f(x):\n    {code}\n")
        assert uses.meaning_of(module) != before
    (project / "book").mkdir()
    keys = {build_book.page_key()}
    for name in ("_config.yml", "book/intro.md", "chapters/07_title.ipynb"):
        (project / name).write_text("title: Two\n")
        keys.add(build_book.page_key())
    assert len(keys) == 4


UNSHOWN = "no execution to show of chapters/07_title.ipynb, chapters/08"


@pytest.mark.parametrize(("status", "says"), [(1, "a chapter failed"), (0, UNSHOWN)])
def test_a_failing_chapter_or_one_that_cannot_be_shown_stops_the_build(
    project, status, says, monkeypatch, capsys
):
    monkeypatch.setattr(build_book, "execute", lambda _notebooks, _env: status)
    monkeypatch.setattr(build_book, "build", lambda _env: pytest.fail("built all the same"))
    assert build_book.main([]) == 1
    assert says in capsys.readouterr().err


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
    assert (build_book.main([]), len(builds)) == (0, 1)
    (project / "_config.yml").write_text("title: Two\n")
    assert (build_book.main([]), len(builds)) == (0, 2)
    (project / "llmcourse" / "loss.py").write_text("unit = 'bit'\n")
    assert not build_book.is_current()
    assert (build_book.main([]), len(builds)) == (0, 3)
    monkeypatch.setattr(build_book, "build", lambda _env: 1)
    (project / "_config.yml").write_text("title: Three\n")
    assert build_book.main([]) == 1
    assert not build_book.is_current()
    assert build_book.main([]) == 1  # a failed build is not taken for a finished one


def test_pages_are_built_from_nothing(project, monkeypatch):
    for name in (".doctrees", "html", "jupyter_execute"):
        (project / "_build" / name).mkdir(parents=True)
        (project / "_build" / name / "stale").write_text("")
    run = mock.Mock(return_value=subprocess.CompletedProcess([], 7))
    monkeypatch.setattr(build_book.subprocess, "run", run)
    assert build_book.build({}) == 7
    assert not list((project / "_build").rglob("stale"))
    assert run.call_args.args[0][1:] == ["build", ".", "-W", "--keep-going", "-n"]
