"""Widgets as Python sees them: state that clamps, a page form that carries itself."""

import gzip
import json
import math
import re
from dataclasses import replace

import pytest
import traitlets

from llmcourse import model as models
from llmcourse import train
from llmcourse.base import runtime
from llmcourse_classroom import widget as widget_module
from llmcourse_classroom.measured import phases_of_step
from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget, as_json, module, source
from llmcourse_classroom.widgets import Bowl, StepByHand

WORDS = ["a", "mat", "floor", "on", "the"]
SHARES = [0.15, 0.10, 0.05, 0.20, 0.50]


def by_hand(**state):
    return StepByHand(**({"probabilities": SHARES, "words": WORDS, "target": "on"} | state))


def payload(page):
    found = re.search(r'<script type="application/json" id="[^"]+">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_python_reads_and_sets_the_state_which_ends_no_script():
    bowl = Bowl(learning_rate=0.1)
    bowl.steps = 7
    assert (bowl.learning_rate, bowl.steps, bowl.note) == (0.1, 7, "")
    assert payload(bowl.page())["state"]["steps"] == 7
    assert "</script>" not in as_json({"text": "</script><script>alert(1)</script>"})
    assert json.loads(as_json("</script>")) == "</script>"


@pytest.mark.parametrize(("given", "used"), [(99, 3), (-1, 0.001), (math.inf, 3)])
def test_an_impossible_number_is_clamped_and_said(given, used):
    bowl = Bowl()
    bowl.learning_rate = given
    assert bowl.learning_rate == used
    assert "learning rate" in bowl.note
    assert f"{used:g} is used" in bowl.note


@pytest.mark.parametrize("value", ["1", None, math.nan, True])
def test_what_is_no_number_is_refused(value):
    bowl = Bowl()
    with pytest.raises(traitlets.TraitError, match=r"learning rate must be a number from 0\.001"):
        bowl.learning_rate = value
    assert bowl.learning_rate == 0.15


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: Bowl(speed=1), r"Bowl has no \['speed'\]; it has .*'learning_rate'"),
        (lambda: Limited(5, low=0, high=1, step=0.1, label="rate"), "rate: 5 must be from 0 to 1"),
        (lambda: by_hand(probabilities=[0.5, 0.5]), "five of each"),
        (lambda: by_hand(probabilities=[0.5] * 5), r"add up to 1, not 2\.5"),
        (lambda: by_hand(target="dog"), "target must be one of"),
    ],
)
def test_a_state_that_cannot_be_is_refused(call, fact):
    with pytest.raises((TypeError, ValueError), match=fact):
        call()


def test_a_choice_is_one_of_its_options_a_fraction_is_rounded_and_outputs_have_three_forms():
    class Small(Widget):
        script, alt = "bowl.js", "A widget."
        kind = Choice(("a", "b"))

    small = Small()
    assert small.limits["kind"] == {"options": ["a", "b"]}
    with pytest.raises(traitlets.TraitError, match="kind must be one of a, b, not 'c'"):
        small.kind = "c"
    bowl = Bowl(steps=3.6)
    assert bowl.steps == 4
    assert "whole" in bowl.note
    assert Whole(1, low=0, high=2, step=1, label="n").limits()["whole"]
    data, _ = Bowl()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("Bowl(adam=False, lambda_x=1.0")
    assert Bowl.alt[:20] in data["text/html"]
    assert len({re.search(r'id="([^"]+)"', Bowl().page())[1] for _ in range(2)}) == 2


@pytest.mark.parametrize("made", [Bowl, by_hand])
def test_a_page_form_carries_itself_and_is_small(made):
    page = made().page()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert payload(page)["esm"] == module(made().script)
    assert len(gzip.compress(page.encode())) < 60_000


def test_a_module_begins_with_the_kit_or_is_refused(monkeypatch):
    assert module("bowl.js").startswith(source("kit.js"))
    assert "\nimport " not in module("bowl.js")
    monkeypatch.setattr(widget_module, "source", lambda _name: "const a = 1;\nrest")
    with pytest.raises(ValueError, match="must begin with one line"):
        module("broken.js")


@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_the_training_loop_shows_the_numbers_of_the_step(kind, tmp_path):
    config = train.PRESETS["tiny"]()
    if kind == "mixture":
        shape = replace(models.tiny_moe(), vocab_size=config.model.vocab_size, balance_weight=2.0)
        config = replace(config, model=shape)
    run = train.start(config, tmp_path / "run")
    before = runtime.fingerprint(run.model.state_dict())
    facts = {phase["name"]: dict(phase["facts"]) for phase in phases_of_step(run, repeats=1)}
    assert runtime.fingerprint(run.model.state_dict()) == before
    report = train.step(run)
    assert facts["loss"]["loss"] == f"{report.loss:.4f} nats per token"
    assert facts["optimizer"]["gradient norm"].startswith(f"{report.gradient_norm:.3f}, clipped")
    assert facts["optimizer"]["learning rate"] == f"{report.learning_rate:.2e}"
