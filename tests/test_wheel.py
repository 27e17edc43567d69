"""The wheel: it holds the whole package, installs alone, and trains; every file says one version.

What the package depends on is borrowed from this environment, so nothing is downloaded.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from llmcourse import __version__

ROOT = Path(__file__).parents[1]
NEEDED = ("llmcourse", "pyproject.toml", "README.md", "LICENSE", "LICENSE-text")
JUNK = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
TINY = ["--preset", "tiny", "--steps", "3", "--warmup_steps", "1", "--sample_tokens", "5"]


def run(command, folder, status=0, **more):
    """Run a program away from the repository; return what it printed."""
    own = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=own | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr[-2_000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that this repository builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in NEEDED:
        source, copy = ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copytree(source, copy, ignore=JUNK) if source.is_dir() else shutil.copy(source, copy)
    building = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "made", "./source"]
    run([*PIP, *building], folder)
    (path,) = (folder / "made").iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of an environment with the wheel, and what it needs, alone."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "venv", symlinks=True)
    run([*PIP, "--python", "venv/bin/python", "install", "--no-deps", str(wheel)], folder)
    (packages,) = folder.glob("venv/lib/python*/site-packages")
    # Its modules are found there, the editable installation of the repository is not.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin"


def test_the_wheel_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert wheel.name == f"llmcourse-{__version__}-py3-none-any.whl"
    package = ROOT / "llmcourse"
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {f"llmcourse/{path.relative_to(package).as_posix()}" for path in files} == {
        name for name in names if name.startswith("llmcourse/")
    }
    others = {name.split("/", 1)[1] for name in names if not name.startswith("llmcourse/")}
    assert {"licenses/LICENSE", "licenses/LICENSE-text", "entry_points.txt"} <= others


def test_it_is_installed_alone_and_trains(installed, tmp_path):
    ask = "import llmcourse; print(llmcourse.__file__, llmcourse.__version__)"
    place, version = run([installed / "python", "-c", ask], tmp_path).split()
    assert installed.parent in Path(place).parents
    assert version == __version__
    assert "train" in run([installed / "llmcourse", "--help"], tmp_path)
    run([installed / "llmcourse", "train", *TINY, "--out", "run"], tmp_path, OMP_NUM_THREADS="1")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2, 3]
    words = ["sample", "--run", "run", "--tokens", "5"]
    assert run([installed / "llmcourse", *words], tmp_path).strip()


def test_every_file_says_the_same_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "llmcourse.__version__"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == __version__
    assert citation["license"] == project["project"]["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in project["project"]["authors"]
    ]
