"""The report of a run: what it says, what it refuses, and that it says the same twice."""

import json
from dataclasses import replace

import pytest

from llmcourse import __main__ as one_command
from llmcourse import train
from llmcourse.evaluate import load_model, report, weights_hash


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of four steps with an evaluation."""
    folder = tmp_path_factory.mktemp("first") / "run"
    make(folder)
    return folder


def make(folder):
    base = train.PRESETS["tiny"]()
    model = replace(base.model, context_length=192)
    base = replace(base, model=model, steps=4, warmup_steps=1, validate_every=2, sample_tokens=1)
    train.fit(train.start(base, folder))
    assert one_command.main(["evaluate", "--run", str(folder), "--items", "3"]) == 0


def test_a_report_is_two_files_that_say_what_is_there(folder, tmp_path):
    record = report(folder, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == record
    facts = record["sections"]["hashes"]["facts"]
    assert facts["weights"]["value"] == weights_hash(load_model(folder)[0].state_dict())
