"""The wheel: it holds the whole package, installs alone, and trains; every file says one version.

What the package depends on is borrowed from this environment, so nothing is downloaded.
"""

import csv
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
from datetime import date
from pathlib import Path

import pytest
import yaml

from llmcourse import __version__
from tests.classroom import small_exam

ROOT = Path(__file__).parents[1]
PACKAGES = ("llmcourse", "llmcourse_labs", "llmcourse_classroom")
JUNK = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
TINY = ["--preset", "tiny", "--steps", "3", "--warmup_steps", "1", "--sample_tokens", "5"]


def run(command, folder, status=0, **more):
    own = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    where = {"cwd": folder, "env": own | more}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **where)
    assert done.returncode == status, done.stderr[-2_000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
        source, copy = ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copytree(source, copy, ignore=JUNK) if source.is_dir() else shutil.copy(source, copy)
    building = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "made", "./source"]
    run([*PIP, *building], folder)
    (path,) = (folder / "made").iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
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
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    ours = {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".pyc"}
    assert ours == {name for name in names if name.split("/")[0] in PACKAGES}
    others = {name.split("/", 1)[1] for name in names if name not in ours}
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


def test_it_tunes_and_grades(installed, tmp_path):
    """The commands of the other two packages, which the first finds by their entry points."""
    command, quiet = installed / "llmcourse", {"OMP_NUM_THREADS": "1"}
    long = ["--model.context_length", "192"]
    run([command, "train", *TINY, *long, "--out", "run"], tmp_path, **quiet)
    few = ["--examples", "80", "--steps", "2", "--batch_size", "2", "--warmup_steps", "1"]
    tune = ["tune", "--stage", "sft", "--start", "run", *few, "--out", "chat"]
    said = run([command, *tune], tmp_path, **quiet)
    assert "stage: sft" in said
    assert "done: " in said
    (tmp_path / "class").mkdir()
    exam = small_exam.write_exam(tmp_path / "exam")
    (tmp_path / "class" / "ada.ipynb").write_text(small_exam.text())
    words = ["class", "--out", "report", "--hidden", exam.parent / "hidden"]
    run([command, "grade", exam, *words, "--isolation", "limits"], tmp_path, **quiet)
    (row,) = csv.DictReader((tmp_path / "report" / "scores.csv").read_text().splitlines())
    assert float(row["score"]) == sum(small_exam.FULL)


def versions_of(changelog):
    found = []
    for heading in re.findall(r"^## (.*)$", changelog, re.MULTILINE):
        unreleased = re.fullmatch(r"Unreleased \((\d+\.\d+\.\d+)\)", heading)
        released = re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", heading)
        assert released or (unreleased and not found), heading
        if released:
            date.fromisoformat(released[2])
        found.append((released or unreleased)[1])
    assert found == sorted(found, key=lambda name: [*map(int, name.split("."))], reverse=True)
    assert len(set(found)) == len(found)
    return found


def test_every_file_says_the_same_version_and_the_changelog_what_is_not_released():
    old = "## 1.10.0 (2026-11-27)\n## 1.9.0 (2026-11-20)\n### If\n"
    assert versions_of(old) == ["1.10.0", "1.9.0"]
    assert versions_of(f"## Unreleased (2.0.0)\n{old}") == ["2.0.0", "1.10.0", "1.9.0"]
    for heading in ("Unreleased", "Unreleased (1.10.0)", "Unreleased (1.9.5)", "2.0.0 (in work)"):
        with pytest.raises(AssertionError):
            versions_of(f"## {heading}\n{old}")
    with pytest.raises(AssertionError):
        versions_of(f"{old}## Unreleased (2.0.0)\n")
    with pytest.raises(ValueError, match="month"):
        versions_of("## 1.0.0 (2026-13-27)")
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "llmcourse.__version__"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert versions_of((ROOT / "CHANGELOG.md").read_text())[0] == __version__
    assert citation["license"] == project["project"]["license"]
    said, told = ([a["name"] for a in each["authors"]] for each in (citation, project["project"]))
    assert said == told
