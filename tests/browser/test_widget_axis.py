"""The axis of losses of chapter 04: its arithmetic by definition, and every control obeys."""

import math

import pytest
import traitlets

from llmcourse.course import plots
from llmcourse.course.widgets.axis import LossAxis, Model
from tests.browser.kit import choose, enter, noted, pictured, said, table, value
from tests.browser.registry import BEGINNINGS, axis_models, loss_axis

FLOOR = plots.LOSS_FLOOR
NAMES = [each["name"] for each in axis_models()]


# --- arithmetic


def test_a_loss_is_like_guessing_among_so_many(arithmetic):
    counts = [1, 2, 7.5, 768]
    got = arithmetic(LossAxis, "guessesAmong", [[math.log(count)] for count in counts])
    assert got == pytest.approx(counts, rel=1e-12)


def test_what_is_learnt_is_the_share_of_the_way_to_the_floor(arithmetic):
    ends = {"floor": plots.LOSS_FLOOR, "nothing": math.log(768)}
    losses = [loss for _, loss, _ in plots.loss_rows(["equal chances", "table of pairs", "Llama"])]
    got = arithmetic(LossAxis, "learnt", [[loss, ends] for loss in [*losses, plots.LOSS_FLOOR]])
    way = math.log(768) - plots.LOSS_FLOOR
    assert got == pytest.approx([1 - (x - plots.LOSS_FLOOR) / way for x in losses] + [1], rel=1e-12)
    assert got[0] == pytest.approx(0, abs=1e-5)


# --- the page


def test_the_last_model_is_shown_first_and_another_is_chosen(show):
    page = show(loss_axis())
    assert said(page).startswith(f"{NAMES[2]}: 2.21 nats per token, as if it guessed among 9.2")
    assert "It can know what model 2 knows. It cannot know anything else." in page.content()
    choose(page, "model", NAMES[0])
    assert said(page).startswith(f"{NAMES[0]}: 6.64 nats per token, as if it guessed among 770")
    assert "That is below 0.1 % of the way from ln V down to the floor." in said(page)
    assert page.locator("blockquote").inner_text() == "Sample 1 of <b>model 0</b>.\nIt ends."
    assert pictured(page, 1) == "the likeliest next tokens: " + ", ".join(
        ["␣word0 33 %", "␣word1 17 %", "␣word2 8.3 %", "␣word3 4.2 %", "␣word4 2.1 %"]
    )


def test_a_press_on_a_row_chooses_its_model(show):
    for width in (760, 360):
        page = show(loss_axis(), width=width)
        for name in NAMES[:2]:
            page.locator(".lc-stage text", has_text=name).click()
            assert said(page).startswith(name)
            assert page.get_by_label("model", exact=True).input_value() == name


def test_the_picture_names_all_losses_and_the_table_has_them(show):
    page = show(loss_axis())
    assert pictured(page) == (
        f"losses of the models: {NAMES[0]} 6.64, {NAMES[1]} 4.43, {NAMES[2]} 2.21; "
        "the floor is 0.38"
    )
    assert table(page) == [
        [NAMES[0], "6.64", "0.00", "–", "770"],
        [NAMES[1], "4.43", "0.02", "2.21", "84"],
        [NAMES[2], "2.21", "0.04", "2.21", "9.2"],
    ]


def test_samples_and_beginnings_change(show):
    page = show(loss_axis())
    enter(page, "sample", "2")
    assert page.locator("blockquote").inner_text().startswith("Sample 2 of <b>model 2</b>.")
    enter(page, "sample", "3")
    assert value(page, "sample") == "2"
    assert "3 is not possible (from 1 to 2, whole); 2 is used" in noted(page)
    models = axis_models()
    models[2]["expects"][1] = [("\n", 0.94), ("\x00", 0.0004)]
    page = show(LossAxis(models, BEGINNINGS, floor=FLOOR))
    choose(page, "it reads", BEGINNINGS[1])
    assert pictured(page, 1) == "the likeliest next tokens: ↵ 94 %, � below 0.1 %"


# --- Python


def test_python_sets_the_state_and_is_clamped():
    made = loss_axis()
    assert (made.model, made.beginning, made.sample) == (NAMES[2], BEGINNINGS[0], 1)
    made.sample = 5
    assert made.sample == 2
    assert "2 is used" in made.note
    for name in ("model", "beginning"):
        with pytest.raises(traitlets.TraitError, match=f"{name} must be one of"):
            setattr(made, name, "nonsense")


def test_a_model_is_taken_in_either_form():
    models = axis_models()
    as_given, as_made = (
        LossAxis(each, BEGINNINGS, floor=FLOOR) for each in (models, [Model(**m) for m in models])
    )
    assert as_given.models == as_made.models
    assert as_made.models[1]["loss"] == round(models[1]["loss"], 6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"loss": math.nan}, "loss must be finite and at least 0, not nan"),
        ({"spread": -0.1}, "spread must be finite and at least 0, not -0.1"),
        ({"samples": []}, "give 1 to 5 samples, not 0"),
        ({"samples": ["a"]}, r"every model needs as many samples, not \[1, 2\]"),
        ({"expects": [[("a", 1.0)]]}, "after 1 beginnings, and there are 2"),
        ({"expects": [[("a", 1.0)], []]}, "give 1 to 8 tokens for each beginning, not 0"),
        ({"expects": [[("a", 1.5)], [("a", 1.0)]]}, "probabilities are from 0 to 1"),
        ({"name": "x" * 41}, "a name has 1 to 40 characters"),
        ({"name": NAMES[1]}, "every model needs a name of its own"),
    ],
)
def test_a_model_that_is_not_right_is_refused(changed, message):
    first, *others = axis_models()
    with pytest.raises(ValueError, match=message):
        LossAxis([first | changed, *others], BEGINNINGS, floor=FLOOR)


def test_too_few_or_many_models_or_equal_beginnings_are_refused():
    for count in (1, 13):
        with pytest.raises(ValueError, match=f"give 2 to 12 models, not {count}"):
            LossAxis(axis_models(count), BEGINNINGS, floor=FLOOR)
    for beginnings in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="one beginning or more, all different"):
            LossAxis(axis_models(beginnings=len(beginnings)), beginnings, floor=FLOOR)
