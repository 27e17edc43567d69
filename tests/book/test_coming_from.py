"""The page for those who come from elsewhere: every name of ours exists, every listing runs."""

import importlib
import inspect
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import torch

from llmcourse.model import Transformer, tiny
from llmcourse.optim import warmup_cosine
from llmcourse_labs.real import to_huggingface

PAGE = (Path(__file__).parents[2] / "book" / "coming_from.md").read_text(encoding="utf8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and "---" not in line
]
NAMES = [row for row in ROWS if len(row) == 5 and row[3] != "Here"]
WEIGHTS = [[cell.strip("`") for cell in row] for row in ROWS if row[1].startswith("`model.")]
ROOMS = "model|loss|optim|train|parallel|data|checkpoint|llmcourse_labs"
OURS = re.compile(rf"`((?:{ROOMS})\.[\w.]+(?:\(\w+=\))?)`")
MENTIONED = sorted(set(OURS.findall(PAGE)) - {"train.bin", *(face for _, face, _ in WEIGHTS)})


def found(name):
    """Return what a dotted name stands for; a field of a dataclass is its name."""
    prefix = "" if name.startswith("llmcourse") else "llmcourse."
    package, *parts = f"{prefix}{name}".split(".")
    here = importlib.import_module(package)
    for part in parts:
        if is_dataclass(here) and part in {field.name for field in fields(here)}:
            return part
        if inspect.ismodule(here) and not hasattr(here, part):
            importlib.import_module(f"{here.__name__}.{part}")
        here = getattr(here, part)
    return here


@pytest.mark.parametrize("mentioned", MENTIONED)
def test_every_name_of_ours_exists(mentioned):
    name, _, argument = mentioned.partition("(")
    thing = found(name)
    if argument:
        assert argument.removesuffix("=)") in inspect.signature(thing).parameters


def test_every_row_names_what_is_ours_and_another_s_and_the_weights_are_the_model_s():
    assert len(NAMES) > 40
    for theirs, cs336, face, ours, _ in NAMES:
        assert OURS.fullmatch(ours), ours
        assert {theirs, cs336, face} - {"", "–"}
    shares = [warmup_cosine(t, peak=1.0, num_steps=100, warmup_steps=4) for t in range(4)]
    assert shares == [(t + 1) / 4 for t in range(4)]
    # Ours, and beside them Hugging Face's, for a model with a head of its own.
    config = replace(tiny(), num_layers=1, tied_head=False)
    state = Transformer(config, generator=torch.Generator().manual_seed(0)).state_dict()
    assert {ours for *_, ours in WEIGHTS} | {"head"} == set(state)
    theirs = to_huggingface(state, config)
    for _, their_name, our_name in WEIGHTS:
        assert theirs[their_name].shape == state[our_name].shape
    assert {their_name for _, their_name, _ in WEIGHTS} | {"lm_head.weight"} == set(theirs)


@pytest.mark.parametrize("listing", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_every_listing_runs(listing, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    torch.manual_seed(0)  # transformers draws its weights from the global generator
    exec(compile(listing, "coming_from.md", "exec"), {})
