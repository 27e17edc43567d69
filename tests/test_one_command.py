"""llmcourse: one command that names, explains and runs all others.

The help of each command loads its module: about 3 seconds in all, torch's import included.
"""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llmcourse.__main__ import commands, main
from llmcourse.base.settings import Settings, settings_of
from llmcourse.train import TrainConfig
from llmcourse.train import __main__ as train_command
from llmcourse_labs.scale.launch import LaunchConfig
from llmcourse_labs.scale.launch import __main__ as launch_command
from llmcourse_labs.tuning import tune
from llmcourse_labs.tuning.tune_config import TuneConfig

ROOT, COMMANDS = Path(__file__).parents[1], commands()


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_the_overview_has_a_line_for_each_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("  ")]
    assert lines == [[name, command.does] for name, command in COMMANDS.items()]
    assert shown.startswith("example: llmcourse train ")
    assert main([]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", shown)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("smaple", "there is no command 'smaple': did you mean sample?"),
        ("grades", "there is no command 'grades': did you mean grade?"),
        ("zzz", "there is no command 'zzz': choose from train, sample, capstone, chat, "),
        ("--preset", "there is no command '--preset': "),
    ],
)
def test_an_unknown_command_is_one_line(word, says, capsys):
    assert main([word, "--help"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"llmcourse: {says}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_begins_with_an_example(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, name, "--help").splitlines()
    assert lines[0] == f"example: llmcourse {name} {COMMANDS[name].example}"
    assert lines[2].startswith(f"usage: llmcourse {name} ")
    assert len(lines) < 40
    assert not any("==SUPPRESS==" in line for line in lines)


@pytest.mark.parametrize(
    ("config", "module"),
    [(TrainConfig, train_command), (TuneConfig, tune), (LaunchConfig, launch_command)],
    ids=["train", "tune", "launch"],
)
def test_help_all_explains_every_setting(config, module, capsys):
    name = config.__name__.removesuffix("Config").lower()
    skipped = getattr(module, "SKIPPED", {"stage", "model"})
    every = settings_of(config) if issubclass(config, Settings) else config.__annotations__
    names = set(every) - skipped
    usual, every = help_of(capsys, name, "-h"), help_of(capsys, name, "--help", "all")
    shown = [{n for n in names if f"\n  --{n} " in text} for text in (usual, every)]
    assert shown == [names & module.USUAL, names]
    assert "--help all shows every setting" in usual


def test_the_example_of_train_can_be_read_and_short_help_tells_its_defaults(capsys):
    assert "--steps STEPS         Optimizer steps. (600)" in help_of(capsys, "train", "--help")
    assert "(1500)" in help_of(capsys, "train", "--preset", "sotu", "--help")
    options = train_command._parser("stories").parse_args(shlex.split(COMMANDS["train"].example))
    assert (options.steps, options.out) == (300, "runs/a")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sample", "llmcourse sample: runs/a holds no run"),
        ("prepare", "llmcourse prepare: "),
        ("tune", "llmcourse tune: "),
        ("report", "llmcourse report: "),
        ("export", "llmcourse export: runs/a holds no run"),
        ("launch", "wrote job.sbatch; start it with: sbatch job.sbatch"),
        ("grade", "llmcourse grade: "),
        ("own", "llmcourse own: there is no folder exercises"),
        ("progress", "llmcourse progress: none is kept"),  # the tests keep none
    ],
)
def test_examples_say_what_is_missing_in_an_empty_folder(name, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = main([name, *shlex.split(COMMANDS[name].example)])
    printed = capsys.readouterr()
    (line,) = (printed.out + printed.err).splitlines()
    assert line.startswith(says)
    assert status == (0 if name == "launch" else 2)


def test_the_console_script_is_this_command_which_needs_no_torch_for_help():
    words = [sys.executable, "-X", "importtime", "-m", "llmcourse", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "sample" in done.stdout
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "llmcourse.base.command_line" in loaded
    assert not loaded & {"torch", "numpy", "jsonargparse"}
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"llmcourse": f"{main.__module__}:{main.__name__}"}


def test_a_reader_who_has_read_enough_gets_no_traceback():
    command = [sys.executable, "-m", "llmcourse", "--help"]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}  # or nothing is left for the end
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=buffered) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
