"""What the page does between backward and the optimizer."""

import re

import pytest
import torch

from llmcourse.model import Transformer
from llmcourse_classroom.widgets import LiveGradient
from llmcourse_classroom.widgets.live_gradient import shapes_of
from tests.browser import hands, kit
from tests.browser.hands import press
from tests.browser.kit import holds
from tests.browser.registry import TINY_LLAMA, tiny_live
from tests.browser.test_widget_live import press_until, wait_to_say

W_Q = "blocks.0.attention.w_q"
CHECK = re.compile(r"Row (\d+), column (\d+): .* says (\S+?)\. .* slope of (\S+)\.")


def check(page):
    found = page.get_by_text(CHECK)
    found.wait_for(timeout=20_000)
    row, column, gradient, slope = CHECK.search(found.text_content()).groups()
    return int(row), int(column), float(gradient), float(slope)


def picture(page):
    return page.locator("canvas").get_attribute("aria-label")


def test_it_stops_shows_and_finishes_a_step(show):
    page = show(tiny_live(LiveGradient))
    assert picture(page) == "no gradient yet"
    press(page, "Stop after backward")
    wait_to_say(page, re.compile("Step 1 stands after its fourth phase.* loss 5.7"))
    row, column, gradient, slope = check(page)
    holds(picture(page), f"gradient of {W_Q}, 16 rows and 16 columns")
    holds(picture(page), f"row {row}, column {column}")  # the largest at first
    assert slope == pytest.approx(gradient, rel=0.1)
    rows = kit.table(page, "The length of every gradient")
    assert [name for name, _, _ in rows] == list(shapes_of(TINY_LLAMA))
    assert rows[0][1] == "300 x 16"
    press_until(page, "Finish the step", re.compile(r"Step 1 of 60: loss 5\.7"))
    page.get_by_text("Stop again").wait_for()
    press_until(page, "Stop after backward", "Step 2 stands")


def test_any_weight_can_be_nudged(show):
    page = show(tiny_live(LiveGradient, nudge=0.01))
    press(page, "Stop after backward")
    check(page)
    hands.choose(page, "gradient of", "embedding")
    page.get_by_text("The gradient of embedding in step 1").wait_for()
    row, column, gradient, slope = check(page)
    assert gradient == pytest.approx(slope, rel=0.1)
    box = page.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 2.5 / 16, box["y"] + box["height"] * 46.5 / 300)
    page.get_by_text("Row 46, column 2: ").and_(page.get_by_text(CHECK)).wait_for()
    row, column, gradient, slope = check(page)
    assert ((row, column), gradient) == ((46, 2), pytest.approx(slope, rel=0.1))
    hands.choose(page, "gradient of", "norm.gain")  # a single row: the largest is taken
    page.get_by_text("The gradient of norm.gain in step 1").wait_for()
    assert check(page)[0] == 0
    hands.enter(page, "row", "7")
    page.get_by_role("alert").filter(has_text="row: 7 is not possible (from 0 to 0)").wait_for()
    assert check(page)[0] == 0


def test_training_goes_on_from_a_stop_and_back(show):
    page = show(tiny_live(LiveGradient))
    press_until(page, "Train", "Step 60 of 60")
    hands.enter(page, "step", "20")
    wait_to_say(page, "Step 20 of 60")
    press_until(page, "Stop after backward", "Step 21 stands")
    hands.enter(page, "step", "10")  # what stopped is given up
    wait_to_say(page, re.compile(r"^Step 10 of 60((?!stands).)*$"))
    press_until(page, "Stop after backward", "Step 11 stands")
    press_until(page, "Start anew", "Everything is computed here")
    assert picture(page) == "no gradient yet"


def test_the_weights_are_those_of_the_model():
    model = Transformer(TINY_LLAMA, generator=torch.Generator())
    expected = {name: tuple(torch.atleast_2d(p).shape) for name, p in model.named_parameters()}
    assert shapes_of(TINY_LLAMA) == expected
    assert list(expected) == tiny_live(LiveGradient).weights
    with pytest.raises(ValueError, match="weight must be one of embedding"):
        tiny_live(LiveGradient, weight="blocks.1.attention.w_q")
