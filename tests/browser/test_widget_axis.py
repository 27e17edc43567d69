"""The axis of losses of chapter 04: its arithmetic by definition, and every control obeys."""

import math

import pytest

from llmcourse_classroom import plots
from llmcourse_classroom.widgets.axis import LossAxis, Model
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import BEGINNINGS, axis_models, loss_axis

FLOOR, NAMES = plots.LOSS_FLOOR, [each["name"] for each in axis_models()]


def test_a_loss_is_like_guessing_and_what_is_learnt_a_share_of_the_way_to_the_floor(arithmetic):
    counts = [1, 2, 7.5, 768]
    got = arithmetic(LossAxis, "guessesAmong", [[math.log(count)] for count in counts])
    assert got == pytest.approx(counts, rel=1e-12)
    ends = {"floor": plots.LOSS_FLOOR, "nothing": math.log(768)}
    losses = [loss for _, loss, _ in plots.loss_rows(["equal chances", "table of pairs", "Llama"])]
    got = arithmetic(LossAxis, "learnt", [[loss, ends] for loss in [*losses, plots.LOSS_FLOOR]])
    way = math.log(768) - plots.LOSS_FLOOR
    assert got == pytest.approx([1 - (x - plots.LOSS_FLOOR) / way for x in losses] + [1], rel=1e-12)
    assert got[0] == pytest.approx(0, abs=1e-5)


def test_a_press_on_a_row_chooses_its_model(show):
    for width in (760, 360):
        page = show(loss_axis(), width=width)
        for name in NAMES[:2]:
            page.locator(".lc-stage text", has_text=name).click()
            assert said(page).startswith(name)
            assert page.get_by_label("model", exact=True).input_value() == name


def test_models_samples_and_beginnings_change(show):
    page = show(loss_axis())
    losses = ["6.64", "4.43", "2.21"]
    named = [f"{name} {loss}" for name, loss in zip(NAMES, losses, strict=True)]
    holds(pictured(page), *named, "floor is 0.38")
    assert [row[:2] for row in table(page)] == [list(r) for r in zip(NAMES, losses, strict=True)]
    rest = [["0.00", "–", "770"], ["0.02", "2.21", "84"], ["0.04", "2.21", "9.2"]]
    assert [row[2:] for row in table(page)] == rest
    holds(said(page), f"{NAMES[2]}: 2.21 nats", "among 9.2")
    holds(page.content(), "can know what model 2 knows", "cannot know anything else")
    choose(page, "model", NAMES[0], f"{NAMES[0]}: 6.64 nats", "among 770", "under 0.1 %")
    assert page.locator("blockquote").inner_text() == "Sample 1 of <b>model 0</b>.\nIt ends."
    tokens = ["␣word0 33 %", "␣word1 17 %", "␣word2 8.3 %", "␣word3 4.2 %", "␣word4 2.1 %"]
    holds(pictured(page, 1), ", ".join(tokens))
    choose(page, "model", NAMES[2])
    enter(page, "sample", "2")
    holds(page.locator("blockquote").inner_text(), "Sample 2 of <b>model 2</b>.")
    models = axis_models()
    models[2]["expects"][1] = [("\n", 0.94), ("\x00", 0.0004)]
    page = show(LossAxis(models, BEGINNINGS, floor=FLOOR))
    choose(page, "it reads", BEGINNINGS[1])
    holds(pictured(page, 1), "↵ 94 %, � under 0.1 %")


def test_a_model_is_taken_in_either_form():
    models = axis_models()
    as_given, as_made = (
        LossAxis(each, BEGINNINGS, floor=FLOOR) for each in (models, [Model(**m) for m in models])
    )
    assert as_given.models == as_made.models
    assert as_made.models[1]["loss"] == round(models[1]["loss"], 6)
