"""The widget of chapter 20: the page counts as the package, and every control obeys."""

import itertools

import pytest
import traitlets

from llmcourse.course.widgets.memory import LABELS, MemoryTimeline
from llmcourse.model import PRESETS
from llmcourse.scale import cost
from llmcourse.scale.cost.activations import extra_share, layer_costs, live_bytes
from llmcourse.scale.cost.model import MENU
from tests.browser.kit import enter, noted, pictured, said, table

SIZES = {"nothing": 100, "cheap": 80, "attention": 70, "block": 10}
CHOICES = [
    ["nothing"] * 3,
    ["block", "nothing", "attention"],
    ["block"] * 12,
    ["attention", "block", "cheap", "nothing", "block"],
]


def chosen(page, num_layers=8):
    return [
        page.get_by_label(f"layer {i}", exact=True).input_value() for i in range(1, num_layers + 1)
    ]


# --- Python counts what autograd keeps


def test_the_formula_of_gpt3_is_the_published_one():
    costs = layer_costs("gpt3", 2_048)
    sbh = 2_048 * 12_288
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


# --- the page counts as Python


def cases():
    return list(itertools.product(LABELS, (256, 1_024, 8_192, 131_072)))


def test_bytes_are_the_packages(arithmetic):
    presets = MemoryTimeline().presets
    got = arithmetic(MemoryTimeline, "kept", [[presets[name], s] for name, s in cases()])
    assert got == [layer_costs(name, s)["kept"] for name, s in cases()]


def test_flops_are_the_packages(arithmetic):
    presets = MemoryTimeline().presets
    got = arithmetic(MemoryTimeline, "again", [[presets[name], s] for name, s in cases()])
    for found, (name, s) in zip(got, cases(), strict=True):
        assert found == pytest.approx(layer_costs(name, s)["again"], rel=1e-12)


def test_the_curve_and_the_cost_are_the_packages(arithmetic):
    curves = arithmetic(MemoryTimeline, "live", [[SIZES, choices] for choices in CHOICES])
    assert curves == [live_bytes(SIZES, choices) for choices in CHOICES]
    flop = {"nothing": 0, "cheap": 0, "attention": 3.0, "block": 10.0}
    shares = arithmetic(MemoryTimeline, "extra", [[flop, choices] for choices in CHOICES])
    assert shares == pytest.approx([extra_share(flop, choices) for choices in CHOICES], rel=1e-12)


def cheapest(kept, again, num_layers, target):
    """The least cost over every choice for every layer, or None."""
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
    found = arithmetic(MemoryTimeline, "best", given)
    reached = 0
    for (kept, again, num_layers, target), choices in zip(given, found, strict=True):
        least = cheapest(kept, again, num_layers, target)
        if choices is None:
            assert least is None
            continue
        reached += 1
        assert max(live_bytes(kept, choices)) <= (target / 100) * (num_layers * kept["nothing"])
        assert extra_share(again, choices) == pytest.approx(least, rel=1e-9, abs=1e-15)
    assert 30 < reached < len(given)


# --- the page


def test_the_start_says_what_is_missing(show):
    page = show(MemoryTimeline())
    assert chosen(page) == ["nothing"] * 8
    assert said(page).startswith(
        "Peak 18 GB, after layer 8 forward; target 10.8 GB: 7.2 GB too much."
    )
    assert "Extra arithmetic: 0.0 % of the step" in said(page)
    assert pictured(page).endswith("target 10.8 GB, missed")


def test_a_choice_changes_picture_sentence_and_table(show):
    made = MemoryTimeline()
    page = show(made)
    for layer in range(1, 5):
        page.get_by_label(f"layer {layer}", exact=True).select_option("block")
    expected = live_bytes(layer_costs("llama3_70b", 8_192)["kept"], ["block"] * 4 + ["nothing"] * 4)
    assert "reached. Extra arithmetic: 16.7 % of the step." in said(page)
    assert pictured(page).endswith("kept")
    rows = table(page)
    assert [row[2] for row in rows] == [f"{size:,}" for size in expected]
    assert rows[9][0] == "in layer 8 backward"
    assert rows[16][0] == "in layer 1 backward"


def test_the_cheapest_is_shown_and_named(show):
    page = show(MemoryTimeline())
    page.get_by_role("button", name="All: recompute block").press("Enter")
    assert chosen(page) == ["block"] * 8
    assert "would be enough." in said(page)
    assert "Layer 8 recomputes for nothing" in said(page)
    page.get_by_role("button", name="Show the cheapest").press("Enter")
    assert "It cannot be had for less." in said(page)
    assert "recomputes for nothing" not in said(page)
    costs = layer_costs("llama3_70b", 8_192)
    least = cheapest(costs["kept"], costs["again"], 8, 60)
    assert f"Extra arithmetic: {100 * least:.1f} % of the step." in said(page)


def test_forgetting_attention_is_enough_for_gpt3_alone(show):
    page = show(MemoryTimeline(target=45))
    page.get_by_role("button", name="All: recompute attention").click()
    assert "too much" in said(page)
    page.get_by_label("layers of", exact=True).select_option("gpt3")
    enter(page, "tokens", "2048")
    assert "reached. Extra arithmetic: 0.9 % of the step." in said(page)


def test_a_target_below_one_layer_cannot_be_reached(show):
    page = show(MemoryTimeline(target=10))
    assert "No choice reaches it" in said(page)
    page.get_by_role("button", name="Show the cheapest").click()
    assert "No choice reaches this target" in noted(page)
    page.get_by_role("button", name="All: recompute block").click()
    assert noted(page) == ""
    assert "No choice reaches it" in said(page)


def test_the_player_walks_through_the_step(show):
    page = show(MemoryTimeline(choices=["block", "attention", "nothing"]))
    text = page.locator(".lc-stages > p")
    assert text.text_content().startswith("Step or play")
    step = page.get_by_role("button", name="Step", exact=True)
    step.press("Enter")
    assert (
        "After layer 1 forward, which recomputes its insides and keeps 134 MB"
        in text.text_content()
    )
    step.click(click_count=3)
    assert "In layer 3 backward: it is all there." in text.text_content()
    step.click()
    assert "In layer 2 backward: it ran again, and" in text.text_content()
    step.click(click_count=5)
    assert text.text_content().startswith("Step or play")
    page.get_by_role("button", name="Reset").click()
    step.click()
    assert "After layer 1 forward" in text.text_content()


def test_reduced_motion_goes_to_the_end(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(MemoryTimeline(moment=3))
    page.get_by_role("button", name="To the end").click()
    assert page.locator(".lc-stages > p").text_content().startswith("Step or play")


# --- Python


def test_python_reads_the_curve_and_the_cost():
    made = MemoryTimeline("llama3_8b", ["block", "nothing", "attention"], context_length=512)
    costs = layer_costs("llama3_8b", 512)
    assert made.live() == live_bytes(costs["kept"], made.choices)
    assert made.extra() == extra_share(costs["again"], made.choices)


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        MemoryTimeline("tiny")
    with pytest.raises(traitlets.TraitError, match="2 to 12"):
        MemoryTimeline(choices=["block"])
    with pytest.raises(traitlets.TraitError, match="not 'half'"):
        MemoryTimeline(choices=["block", "half"])
