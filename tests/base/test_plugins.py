"""plugins: what other packages offer is found by group and name, and what is missing is told."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from llmcourse import train
from llmcourse.base.command_line import Command
from llmcourse.base.plugins import names, plugin
from llmcourse.train import __main__ as train_command
from llmcourse.train.stage import TrainingStage, stage_of
from llmcourse_labs.tuning.fine_tuning import FineTuning

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
GROUPS = {g.removeprefix("llmcourse."): v for g, v in PROJECT["entry-points"].items()}
KINDS = {
    "commands": lambda found: isinstance(found, Command),
    "engines": lambda found: callable(found.fit_under_torchrun),
    "checkpoints": lambda found: callable(found.verify_all),
    "stages": lambda found: issubclass(found, TrainingStage),
    "models": callable,
}


@pytest.mark.parametrize(("group", "name"), [(g, n) for g, names in GROUPS.items() for n in names])
def test_what_is_named_is_there_and_of_its_kind(group, name):
    assert KINDS[group](plugin(group, name))
    assert name in names(group)


def test_what_nobody_offers_is_told(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"offers 'tpu' to llmcourse.engines; there is: torch\."):
        plugin("engines", "tpu")
    with pytest.raises(ValueError, match="there is: none"):
        plugin("kitchens", "oven")
    config = asdict(train.PRESETS["tiny"]()) | {"stage": "dreaming"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert train_command.main(["--resume", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("llmcourse train: nothing installed offers 'dreaming'")
    assert "there is: sft" in line


def test_a_stage_is_found_by_the_settings_of_a_run_or_its_file():
    config = train.PRESETS["tiny"]()
    for each in (config, asdict(config), {}):
        assert type(stage_of(each)) is TrainingStage
    assert type(stage_of({"stage": "sft"})) is FineTuning
