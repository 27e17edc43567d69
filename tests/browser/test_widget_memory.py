"""The widget of chapter 20: the page counts as the package, and every control obeys."""

import itertools
import json

import pytest

from llmcourse.model import PRESETS
from llmcourse_classroom.widgets.memory import LABELS, MemoryTimeline
from llmcourse_labs.scale import cost
from llmcourse_labs.scale.cost.activations import extra_share, layer_costs, live_bytes
from llmcourse_labs.scale.cost.model import MENU
from tests.browser.hands import by_key, choose, enter, press, to_the_end
from tests.browser.kit import holds, noted, per_cent, pictured, said, table
from tests.browser.twins import agrees

SIZES = {"nothing": 100, "cheap": 80, "attention": 70, "block": 10}
CHOICES = [["nothing"] * 3, ["block", "nothing", "attention"], ["block"] * 12]
CHOICES += [["attention", "block", "cheap", "nothing", "block"]]
LAYERS = [f"layer {i}" for i in range(1, 9)]


def chosen(page):
    return [page.get_by_label(layer, exact=True).input_value() for layer in LAYERS]


# --- Python counts what autograd keeps


def test_the_formula_of_gpt3_is_the_published_one():
    costs, sbh = layer_costs("gpt3", 2_048), 2_048 * 12_288
    expected = {"nothing": 114 * sbh, "cheap": 102 * sbh, "attention": 34 * sbh, "block": 2 * sbh}
    assert costs["kept"] == expected
    assert costs["again"]["block"] == 24 * sbh * 12_288 + 4 * sbh * 2_048
    assert costs["again"]["attention"] == 4 * sbh * 2_048


@pytest.mark.parametrize("preset", [name for name in LABELS if name != "gpt3"])
def test_a_block_again_is_one_forward_pass(preset):
    config = PRESETS[preset]()
    flop = cost.forward_flop_by_part(config)
    blocks = sum(count for part, count in flop.items() if part != "head")
    again = layer_costs(preset, 8_192)["again"]
    assert again["block"] == pytest.approx(8_192 * blocks / config.num_layers, rel=1e-12)
    assert 0 < again["attention"] < 0.4 * again["block"]


@pytest.mark.parametrize("choices", CHOICES)
def test_live_bytes_are_those_of_a_ledger(choices):
    """Every layer's bytes entered, brought back and struck out, one at a time."""
    ledger, curve = {}, [0]
    for layer, choice in enumerate(choices):
        ledger[layer] = SIZES[choice]
        curve.append(sum(ledger.values()))
    for layer in reversed(range(len(choices))):
        ledger[layer] = SIZES["nothing"]
        curve.append(sum(ledger.values()))
        del ledger[layer]
    assert live_bytes(SIZES, choices) == [*curve, 0]


def test_recomputing_everything_is_a_third_of_a_step():
    for preset in LABELS:
        again = layer_costs(preset, 4_096)["again"]
        assert extra_share(again, ["block"] * 5) == pytest.approx(1 / 3, rel=1e-12)
        assert extra_share(again, ["nothing"] * 5) == 0
        assert extra_share(again, ["block", "nothing"]) == pytest.approx(1 / 6, rel=1e-12)


def test_bytes_and_flops_are_the_packages(arithmetic):
    presets = MemoryTimeline().presets
    names = {json.dumps(preset): name for name, preset in presets.items()}

    def costs(part):
        return lambda preset, length: layer_costs(names[json.dumps(preset)], length)[part]

    cases = [[presets[name], s] for name in LABELS for s in (256, 1_024, 8_192, 131_072)]
    agrees(arithmetic, MemoryTimeline, "kept", cases, costs("kept"))
    agrees(arithmetic, MemoryTimeline, "again", cases, costs("again"), rel=1e-12)


def test_the_curve_and_the_cost_are_the_packages(arithmetic):
    cases = [[SIZES, choices] for choices in CHOICES]
    agrees(arithmetic, MemoryTimeline, "live", cases, live_bytes)
    flop = {"nothing": 0, "cheap": 0, "attention": 3.0, "block": 10.0}
    cases = [[flop, choices] for choices in CHOICES]
    agrees(arithmetic, MemoryTimeline, "extra", cases, extra_share, rel=1e-12)


def cheapest(kept, again, num_layers, target):
    room = (target / 100) * (num_layers * kept["nothing"])
    fits = [
        extra_share(again, choices)
        for choices in itertools.product(MENU, repeat=num_layers)
        if max(live_bytes(kept, choices)) <= room
    ]
    return min(fits, default=None)


def test_the_cheapest_is_the_cheapest_of_all(arithmetic):
    given = []
    for preset, s in (("llama3_70b", 8_192), ("gpt3", 2_048), ("llama3_8b", 131_072)):
        costs = layer_costs(preset, s)
        for num_layers, target in itertools.product((2, 3, 5), (5, 25, 40, 60, 75, 90, 100)):
            given.append([costs["kept"], costs["again"], num_layers, target])
    found, reached = arithmetic(MemoryTimeline, "best", given), 0
    for (kept, again, num_layers, target), choices in zip(given, found, strict=True):
        least = cheapest(kept, again, num_layers, target)
        if choices is None:
            assert least is None
            continue
        reached += 1
        assert max(live_bytes(kept, choices)) <= (target / 100) * (num_layers * kept["nothing"])
        assert extra_share(again, choices) == pytest.approx(least, rel=1e-9, abs=1e-15)
    assert 30 < reached < len(given)


def test_a_choice_changes_all_that_is_shown_and_the_cheapest_is_named(show):
    page = show(MemoryTimeline())
    assert chosen(page) == ["nothing"] * 8
    holds(said(page), "Peak 18 GB", "layer 8 forward", "target 10.8 GB: 7.2 GB too much", ": 0 %")
    holds(pictured(page), "target 10.8 GB, missed")
    for layer in LAYERS[:4]:
        choose(page, layer, "block")
    expected = live_bytes(layer_costs("llama3_70b", 8_192)["kept"], ["block"] * 4 + ["nothing"] * 4)
    holds(said(page), "reached", ": 16.7 % of the step")
    assert pictured(page).endswith("kept")
    rows = table(page)
    assert [row[2] for row in rows] == [f"{size:,}" for size in expected]
    assert [rows[9][0], rows[16][0]] == ["in layer 8 backward", "in layer 1 backward"]
    by_key(page, "All: recompute block")
    assert chosen(page) == ["block"] * 8
    holds(said(page), "would be enough", "Layer 8 recomputes for nothing")
    by_key(page, "Show the cheapest", "cannot be had for less")
    assert "recomputes for nothing" not in said(page)
    costs = layer_costs("llama3_70b", 8_192)
    least = cheapest(costs["kept"], costs["again"], 8, 60)
    holds(said(page), f": {per_cent(least)} of the step")


def test_a_target_below_one_layer_is_not_reached_and_forgetting_attention_is_enough_for_gpt3(show):
    page = show(MemoryTimeline(target=10), says=["No choice reaches it"])
    press(page, "Show the cheapest")
    holds(noted(page), "No choice reaches")
    press(page, "All: recompute block")
    assert noted(page) == ""
    holds(said(page), "No choice reaches it")
    enter(page, "target, % of the full peak", "45")
    press(page, "All: recompute attention", "too much")
    choose(page, "layers of", "gpt3")
    enter(page, "tokens", "2048", "reached", ": 0.901 % of the step")


def test_the_player_walks_through_the_step(show):
    page = show(MemoryTimeline(choices=["block", "attention", "nothing"]))
    text = page.locator(".lc-stages > p")
    step = page.get_by_role("button", name="Step", exact=True)
    holds(text.text_content(), "Step or play")
    step.press("Enter")
    holds(text.text_content(), "After layer 1 forward", "recomputes its insides", "134 MB")
    step.click(click_count=3)
    holds(text.text_content(), "In layer 3 backward", "all there")
    step.click()
    holds(text.text_content(), "In layer 2 backward", "ran again")
    step.click(click_count=5)
    holds(text.text_content(), "Step or play")
    press(page, "Reset")
    step.click()
    holds(text.text_content(), "After layer 1 forward")
    to_the_end(page)
    holds(text.text_content(), "Step or play")


def test_python_reads_the_curve_and_the_cost():
    made = MemoryTimeline("llama3_8b", ["block", "nothing", "attention"], context_length=512)
    costs = layer_costs("llama3_8b", 512)
    assert made.live() == live_bytes(costs["kept"], made.choices)
    assert made.extra() == extra_share(costs["again"], made.choices)
