"""make help, the README, the workflows and .ci/run name the same commands."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.machine import set_up

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, flags=re.MULTILINE)[0].split())
RULES = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, flags=re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]


def test_help_lists_every_target_and_every_rule_is_a_declared_command():
    make = shutil.which("make")
    assert make is not None
    command = [make, "--no-print-directory", "help"]  # a make that runs the tests would add lines
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in shown.stdout.strip().split("\n")]
    assert {line[1] for line in lines} == TARGETS
    assert all(line[0] == "make" and len(line[2]) > 10 for line in lines)
    assert RULES == TARGETS
    assert {"help", "book", "test", "lint", "bench", "clean"} <= TARGETS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_commands_in_the_text_exist(page):
    text = (ROOT / page).read_text(encoding="utf8")
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE))
    assert named
    assert named <= TARGETS


def test_the_readme_names_files_that_exist_and_commands_that_are_run():
    text = (ROOT / "README.md").read_text(encoding="utf8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    for name in links + re.findall(r"(?<=python )tools/[\w/]+\.py", text):
        assert (ROOT / name).exists(), name
    for folder in re.findall(r"^\| `([\w/]+)/` \|", text, flags=re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder
    script = (ROOT / ".ci" / "run").read_text()
    (command,) = re.findall(r"^(?:python3 tools/build/spent\.py -- )?(make .+)$", script, re.M)
    assert command == "make -j2 test ALL=1"
    assert "set -euo pipefail" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert "make test ALL=1" in (ROOT / "README.md").read_text(encoding="utf8")


def steps_of(path):
    workflow = yaml.safe_load(path.read_text())
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_make_and_nothing_else(path):
    """Besides what the README names for Linux, bubblewrap."""
    runs = [step["run"] for step in steps_of(path) if "run" in step and "if" not in step]
    assert runs
    for command in runs:
        words = command.split()
        assert words[0] == "make"
        assert words[1] in TARGETS
        assert all("=" in word for word in words[2:])


def test_the_jobs_together_test_everything_with_every_supported_python():
    first, after = set_up.SUPPORTED
    for name in ("package", "exercises"):
        matrix = JOBS[name]["strategy"]["matrix"]
        assert matrix["python"] == [f"3.{minor}" for minor in range(first[1], after[1])]
        assert {"ubuntu-latest", "macos-latest"} <= set(matrix["os"])
    assert "strategy" not in JOBS["book"]
    runs = [step.get("run", "").split() for job in JOBS.values() for step in job["steps"]]
    commands = {words[1] for words in runs if words[:1] == ["make"]}
    assert commands == {"test", "test-package", "test-exercises", "test-book", "peers"}
    parts = re.findall(r"^OF_\w+ := (.+)$", MAKEFILE, flags=re.MULTILINE)
    folders = [folder for part in parts for folder in part.split()]
    assert len(set(folders)) == len(folders) == 5
    assert all((ROOT / folder).is_dir() for folder in folders)
    package = re.search(r"^test-package:.*\n\t(.+)$", MAKEFILE, flags=re.MULTILINE)[1]
    assert "$(OF_BOOK) $(OF_EXERCISES),--ignore" in package


def test_the_jobs_keep_notebooks_and_packages_whose_pins_and_floors_agree():
    for path in WORKFLOWS:
        pythons = [step for step in steps_of(path) if "setup-python" in step.get("uses", "")]
        assert {step["with"].get("cache") for step in pythons} == {"pip"}, path.name
    for job, action in (("book", "actions/cache@"), ("changed", "actions/cache/restore@")):
        (kept,) = [step["with"] for step in JOBS[job]["steps"] if action in step.get("uses", "")]
        assert kept["path"].split() == ["_build/.jupyter_cache", "_build/passed.json"]
        assert kept["restore-keys"] == "executed-"
    assert JOBS["changed"]["if"] == "github.event_name == 'pull_request'"
    # Everything that an extra asks for is pinned; a pin without a floor would go unnoticed.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["book"], *extras["test"], *extras["notebook"]]
    wanted += extras["instructor"]
    names = {re.match(r"[\w-]+", entry)[0].lower() for entry in wanted} - {"llmcourse"}
    lines = (ROOT / "requirements.txt").read_text().split("\n")
    assert names <= {line.split("==")[0].split("[")[0].lower() for line in lines if "==" in line}
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.]+", line) for line in lines if line[:1].isalnum())


def test_set_up_shows_what_pip_fetches_and_refuses_another_python(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(set_up, "interpreter", lambda _folder: shutil.which("python3"))
    with pytest.raises(SystemExit, match="pip failed"):
        set_up.pip(tmp_path, "--no-index", "no-such-package-anywhere")
    assert "ERROR" in capsys.readouterr().out
    monkeypatch.setattr(set_up.sys, "version_info", (3, 14, 0))
    with pytest.raises(SystemExit, match=r"Python 3\.14, the course needs 3\.11"):
        set_up.main([])
