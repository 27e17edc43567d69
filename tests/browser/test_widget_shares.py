"""The widget of chapter 12: the page counts as the package, and every control obeys."""

import itertools
from dataclasses import replace

import pytest
import traitlets

from llmcourse.course.widgets.shares import FIELDS, RULES, ShareBar
from llmcourse.model import ModelConfig
from llmcourse.model.config import PRESETS
from llmcourse.scale import cost
from tests.browser.kit import enter, noted, pictured, said, table, value


def configs():
    """Return every preset and a grid of other shapes, up to 4e11 parameters and beyond."""
    grid = itertools.product(
        (1, 7, 256), (1, 64, 256), (1, 4), (20, 128), (1, 28_673), (768, 128_256), (True, False)
    )
    for layers, heads, kv, size, hidden, vocab, tied in grid:
        yield ModelConfig(
            num_layers=layers,
            width=heads * size,
            num_heads=heads,
            num_kv_heads=min(kv, heads),
            head_size=size,
            hidden=hidden,
            vocab_size=vocab,
            context_length=8,
            tied_head=tied,
        )
    yield from (PRESETS[name]() for name in RULES)


def shape_of(config):
    names = ("num_layers", "width", "num_kv_heads", "head_size", "hidden", "vocab_size")
    return {name: getattr(config, name) for name in names} | {"tied_head": config.tied_head}


# --- arithmetic


def test_parameters_are_the_packages_to_the_last_one(arithmetic):
    shapes = list(configs())
    counted = arithmetic(ShareBar, "parameters", [[shape_of(config)] for config in shapes])
    assert counted == [cost.parameters_by_part(config) for config in shapes]
    assert max(map(cost.num_parameters, shapes)) > 4e11


def test_the_three_wholes_leave_out_what_they_say(arithmetic):
    shapes = list(configs())
    given = [[shape_of(config)] for config in shapes]
    counted, shares = (arithmetic(ShareBar, name, given) for name in ("wholes", "shares"))
    for config, whole, share in zip(shapes, counted, shares, strict=True):
        parts = cost.parameters_by_part(config)
        block_norms = 2 * config.num_layers * config.width
        expected = {
            "all": sum(parts.values()),
            "headless": sum(count for part, count in parts.items() if part != "head"),
            "blocks": parts["attention"] + parts["feed_forward"] + block_norms,
        }
        assert whole == expected
        assert share == {name: parts["feed_forward"] / count for name, count in expected.items()}


def test_the_70b_has_the_three_shares_of_the_accounts(arithmetic):
    given = [[shape_of(PRESETS["llama3_70b"]())]]
    (counted,), (shares,) = (arithmetic(ShareBar, name, given) for name in ("wholes", "shares"))
    assert counted["all"] == 70_553_706_496
    assert counted["headless"] == 69_503_033_344
    assert [round(100 * share, 1) for share in shares.values()] == [79.9, 81.1, 82.4]


def test_the_rule_gives_the_hidden_size_of_every_preset(arithmetic):
    presets = ShareBar().presets
    cases = [[each["width"], each["rule"]] for each in presets.values()]
    got = arithmetic(ShareBar, "ruleHidden", cases)
    assert got == [PRESETS[name]().hidden for name in presets]


def test_the_rule_is_that_of_the_released_code(arithmetic):
    cases = [
        [width, {"factor": factor, "multiple": multiple}]
        for width in (*range(20, 2_000, 20), 4_096, 8_192, 16_384, 32_768)
        for factor, multiple in ((1.0, 32), (1.3, 1_024), (1.3, 4_096), (1.2, 4_096), (1.0, 1))
    ]

    def released(width, rule):
        hidden = int(rule["factor"] * int(2 * (4 * width) / 3))
        return rule["multiple"] * ((hidden + rule["multiple"] - 1) // rule["multiple"])

    assert arithmetic(ShareBar, "ruleHidden", cases) == [released(*case) for case in cases]


def test_the_nearest_that_can_be_built(arithmetic):
    cases = [[64, 5], [65, 8], [7, 6], [1, 9], [64, 100]]
    assert arithmetic(ShareBar, "nearestDivisor", cases) == [4, 5, 7, 1, 64]
    cases = [[64, 8, 1], [64, 8, -1], [64, 64, 1], [64, 1, -1], [7, 1, 1]]
    assert arithmetic(ShareBar, "nextDivisor", cases) == [16, 4, 64, 1, 7]
    cases = [[128, 8_200, 32_768], [128, 3, 32_768], [1_024, 90_000, 32_768], [20, 99_999, 32_768]]
    assert arithmetic(ShareBar, "nearestMultiple", cases) == [8_192, 128, 32_768, 32_760]


# --- the page


def test_the_70b_in_words_picture_and_table(show):
    page = show(ShareBar())
    for share in (
        "79.9 % of 70.55 B parameters",
        "81.1 % of 69.5 B where the output head is forgotten",
        "82.4 % of the blocks alone",
        "4.67 times attention",
    ):
        assert share in said(page)
    assert "feed-forward 56.37 B" in pictured(page)
    assert "now 79.9 % of all at width 8,192" in pictured(page, 1)
    rows = table(page)
    parts = cost.parameters_by_part(PRESETS["llama3_70b"]())
    assert [row[1] for row in rows[:5]] == [f"{count:,}" for count in parts.values()]
    assert rows[2][2:] == ["79.9 %", "81.1 %", "82.4 %"]
    assert rows[0][2:] == ["1.5 %", "1.5 %", "not counted"]
    assert rows[4][2:] == ["1.5 %", "not counted", "not counted"]
    assert rows[5][1:] == ["70,553,706,496"] * 2 + ["69,503,033,344", "68,452,352,000"]


def test_the_line_ends_where_the_package_says(show):
    page = show(ShareBar())
    ends = []
    for width, hidden in ((1_024, 4_096), (32_768, 114_688)):
        moved = replace(PRESETS["llama3_70b"](), width=width, num_heads=width // 128, hidden=hidden)
        share = cost.parameters_by_part(moved)["feed_forward"] / cost.num_parameters(moved)
        ends.append(f"{100 * share:.1f} % at width {width:,}")
    assert pictured(page, 1).endswith(f"from {ends[0]} to {ends[1]}")
    enter(page, "hidden size F", "4096")  # chosen freely: the line keeps it
    assert f"from {ends[0]} to" in pictured(page, 1)
    assert ends[1] not in pictured(page, 1)


def test_every_preset_starts_as_it_is(show):
    page = show(ShareBar())
    for name, (label, *_) in RULES.items():
        page.get_by_label("start from", exact=True).select_option(name)
        config = PRESETS[name]()
        assert value(page, "hidden size F") == str(config.hidden)
        assert value(page, "width D") == str(config.width)
        assert said(page).startswith(f"{label}: ")
        share = cost.parameters_by_part(config)["feed_forward"] / cost.num_parameters(config)
        assert f"hold {100 * share:.1f} %" in said(page)
        assert noted(page) == ""


def test_a_tied_head_cannot_be_forgotten(show):
    page = show(ShareBar("stories"))
    assert "none can be forgotten" in said(page)
    assert "it has no output head of its own" in page.locator(".lc-stage svg").first.text_content()


def test_the_hidden_size_follows_the_width_until_it_is_moved(show):
    page = show(ShareBar())
    enter(page, "width D", "4096")
    assert value(page, "hidden size F") == "16384"
    assert "F = 16,384 = 4 D, by the rule 8/3 D × 1.3" in page.locator(".lc-stages").text_content()
    enter(page, "hidden size F", "1000")
    assert not page.get_by_label("F follows the 8/3 rule").is_checked()
    assert value(page, "hidden size F") == "1000"
    assert "F = 1,000 = 0.244 D, chosen freely" in page.locator(".lc-stages").text_content()
    enter(page, "width D", "8192")
    assert value(page, "hidden size F") == "1000"
    page.get_by_label("F follows the 8/3 rule").press("Space")
    assert value(page, "hidden size F") == "28672"
    assert said(page).startswith("Llama 3 70B: ")


def test_the_way_back(show):
    page = show(ShareBar("llama3_8b"))
    enter(page, "layers L", "3")
    enter(page, "hidden size F", "5")
    enter(page, "key/value heads G", "7")
    assert said(page).startswith("Changed from Llama 3 8B: ")
    assert noted(page) != ""
    page.get_by_role("button", name="Back to the model").press("Enter")
    assert said(page).startswith("Llama 3 8B: ")
    assert noted(page) == ""
    assert page.get_by_label("F follows the 8/3 rule").is_checked()


def test_a_shape_that_cannot_be_is_moved_and_said(show):
    page = show(ShareBar())
    enter(page, "width D", "8200")
    assert value(page, "width D") == "8192"
    assert "a multiple of the head size 128 of Llama 3 70B: 8,192 is used" in noted(page)
    enter(page, "key/value heads G", "5")
    assert value(page, "key/value heads G") == "4"
    assert "must divide 64 query heads: 4 is used in place of 5" in noted(page)
    enter(page, "width D", "8320")
    assert value(page, "key/value heads G") == "5"
    assert "must divide 65 query heads" in noted(page)
    enter(page, "layers L", "0")
    assert value(page, "layers L") == "1"
    assert "0 is not possible (from 1 to 256, whole); 1 is used" in noted(page)


def test_a_start_that_cannot_be_is_moved_and_said(show):
    page = show(ShareBar(width=1_000, num_kv_heads=3))
    assert value(page, "width D") == "1024"
    assert value(page, "key/value heads G") == "2"
    assert "head size 128" in noted(page)
    assert "must divide 8 query heads" in noted(page)


def test_arrow_keys_go_to_the_next_that_can_be(show):
    page = show(ShareBar())
    page.get_by_role("slider", name="width D").press("ArrowRight")
    assert value(page, "width D") == "9216"
    page.get_by_label("width D, number").press("ArrowDown")
    page.get_by_label("width D, number").press("ArrowDown")
    assert value(page, "width D") == "7168"
    page.get_by_role("slider", name="key/value heads G").press("ArrowUp")
    assert value(page, "key/value heads G") == "14"
    page.get_by_label("key/value heads G, number").press("ArrowDown")
    page.get_by_label("key/value heads G, number").press("ArrowDown")
    assert value(page, "key/value heads G") == "7"
    assert noted(page) == ""


def test_the_slider_keeps_the_groups(show):
    page = show(ShareBar())
    slider = page.get_by_role("slider", name="width D")
    for key in ("PageDown", "PageDown", "Home", "PageUp", "End"):
        slider.press(key)
        assert int(value(page, "width D")) % 1_024 == 0
        assert value(page, "key/value heads G") == "8"
        assert noted(page) == ""
    assert value(page, "width D") == "32768"


# --- Python


@pytest.mark.parametrize("name", RULES)
def test_python_reads_the_shape(name):
    made, config = ShareBar(name), PRESETS[name]()
    assert all(getattr(made, field) == getattr(config, field) for field in FIELDS)
    for field in {*vars(config)} & {*made.presets[name]}:
        assert made.presets[name][field] == getattr(config, field)


def test_a_hidden_size_given_is_kept():
    assert not ShareBar(hidden=5).follow_rule
    assert ShareBar(width=1_024).follow_rule
    assert ShareBar(hidden=5, follow_rule=True).follow_rule


def test_python_clamps_and_says_so():
    made = ShareBar()
    made.num_layers = 1_000
    assert made.num_layers == 256
    assert "256 is used" in made.note


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        ShareBar("tiny")
    made = ShareBar()
    with pytest.raises(traitlets.TraitError, match="preset must be one of"):
        made.preset = "gpt2"
    assert made.preset == "llama3_70b"
