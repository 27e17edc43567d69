"""The widget of chapter 12: the page counts as the package, and every control obeys."""

import itertools
from dataclasses import replace

from llmcourse.model import ModelConfig
from llmcourse.model.config import PRESETS
from llmcourse_classroom.widgets.shares import RULES, ShareBar
from llmcourse_labs.scale import cost
from tests.browser.hands import by_key, choose, enter, keys
from tests.browser.kit import holds, noted, per_cent, pictured, said, table, value
from tests.browser.twins import agrees


def configs():
    grid = itertools.product(
        (1, 7, 256), (1, 64, 256), (1, 4), (20, 128), (1, 28_673), (768, 128_256), (True, False)
    )
    for layers, heads, kv, size, hidden, vocab, tied in grid:
        shape = {"num_heads": heads, "num_kv_heads": min(kv, heads), "head_size": size}
        shape |= {"width": heads * size, "hidden": hidden, "vocab_size": vocab}
        yield ModelConfig(num_layers=layers, context_length=8, tied_head=tied, **shape)
    yield from (PRESETS[name]() for name in RULES)


def shape_of(config):
    names = ("num_layers", "width", "num_kv_heads", "head_size", "hidden", "vocab_size")
    return {name: getattr(config, name) for name in names} | {"tied_head": config.tied_head}


def test_parameters_and_three_wholes_are_the_packages_to_the_last_one(arithmetic):
    """The wholes leave out what they say."""
    shapes = list(configs())
    assert max(map(cost.num_parameters, shapes)) > 4e11
    given = [[shape_of(config)] for config in shapes]
    found = [arithmetic(ShareBar, name, given) for name in ("parameters", "wholes", "shares")]
    for config, counted, whole, share in zip(shapes, *found, strict=True):
        parts = cost.parameters_by_part(config)
        block_norms = 2 * config.num_layers * config.width
        expected = {
            "all": sum(parts.values()),
            "headless": sum(count for part, count in parts.items() if part != "head"),
            "blocks": parts["attention"] + parts["feed_forward"] + block_norms,
        }
        assert (counted, whole) == (parts, expected)
        assert share == {name: parts["feed_forward"] / count for name, count in expected.items()}


def test_the_70b_has_the_three_shares_of_the_accounts(arithmetic):
    given = [[shape_of(PRESETS["llama3_70b"]())]]
    (counted,), (shares,) = (arithmetic(ShareBar, name, given) for name in ("wholes", "shares"))
    assert (counted["all"], counted["headless"]) == (70_553_706_496, 69_503_033_344)
    assert [round(100 * share, 1) for share in shares.values()] == [79.9, 81.1, 82.4]


def test_the_rule_is_that_of_the_released_code_and_gives_every_preset(arithmetic):
    def released(width, rule):
        hidden = int(rule["factor"] * int(2 * (4 * width) / 3))
        return rule["multiple"] * ((hidden + rule["multiple"] - 1) // rule["multiple"])

    rules = ((1.0, 32), (1.3, 1_024), (1.3, 4_096), (1.2, 4_096), (1.0, 1))
    widths = (*range(20, 2_000, 20), 4_096, 8_192, 16_384, 32_768)
    rules = [{"factor": factor, "multiple": multiple} for factor, multiple in rules]
    agrees(arithmetic, ShareBar, "ruleHidden", itertools.product(widths, rules), released)
    presets = ShareBar().presets
    cases = [[preset["width"], preset["rule"]] for preset in presets.values()]
    assert arithmetic(ShareBar, "ruleHidden", cases) == [PRESETS[name]().hidden for name in presets]


def test_the_nearest_that_can_be_built(arithmetic):
    cases = [[64, 5], [65, 8], [7, 6], [1, 9], [64, 100]]
    assert arithmetic(ShareBar, "nearestDivisor", cases) == [4, 5, 7, 1, 64]
    cases = [[64, 8, 1], [64, 8, -1], [64, 64, 1], [64, 1, -1], [7, 1, 1]]
    assert arithmetic(ShareBar, "nextDivisor", cases) == [16, 4, 64, 1, 7]
    cases = [[128, 8_200, 32_768], [128, 3, 32_768], [1_024, 90_000, 32_768], [20, 99_999, 32_768]]
    assert arithmetic(ShareBar, "nearestMultiple", cases) == [8_192, 128, 32_768, 32_760]


def test_the_70b_in_words_table_and_a_line_that_ends_where_the_package_says(show):
    page = show(ShareBar())
    holds(said(page), "79.9 % of 70.55 B", "81.1 % of 69.5 B", "82.4 %", "4.67 times attention")
    holds(pictured(page), "feed-forward 56.37 B")
    holds(pictured(page, 1), "79.9 %", "width 8,192")
    rows, parts = table(page), cost.parameters_by_part(PRESETS["llama3_70b"]())
    assert [row[1] for row in rows[:5]] == [f"{count:,}" for count in parts.values()]
    assert rows[2][2:] == ["79.9 %", "81.1 %", "82.4 %"]
    assert rows[0][2:] == ["1.49 %", "1.51 %", "not counted"]
    assert rows[4][2:] == ["1.49 %", "not counted", "not counted"]
    assert rows[5][1:] == ["70,553,706,496"] * 2 + ["69,503,033,344", "68,452,352,000"]
    ends = []
    for width, hidden in ((1_024, 4_096), (32_768, 114_688)):
        moved = replace(PRESETS["llama3_70b"](), width=width, num_heads=width // 128, hidden=hidden)
        share = cost.parameters_by_part(moved)["feed_forward"] / cost.num_parameters(moved)
        ends.append(f"{per_cent(share)} at width {width:,}")
    holds(pictured(page, 1), f"from {ends[0]} to {ends[1]}")
    enter(page, "hidden size F", "4096")  # chosen freely: the line keeps it
    holds(pictured(page, 1), f"from {ends[0]} to")
    assert ends[1] not in pictured(page, 1)


def test_every_preset_starts_as_it_is(show):
    page = show(ShareBar())
    for name, (label, *_) in RULES.items():
        choose(page, "start from", name)
        config = PRESETS[name]()
        assert value(page, "hidden size F") == str(config.hidden)
        assert value(page, "width D") == str(config.width)
        assert said(page).startswith(f"{label}: ")
        share = cost.parameters_by_part(config)["feed_forward"] / cost.num_parameters(config)
        holds(said(page), f"hold {per_cent(share)}")
        assert noted(page) == ""
    choose(page, "start from", "stories")  # a tied head cannot be forgotten
    holds(said(page), "none can be forgotten")
    holds(page.locator(".lc-stage svg").first.text_content(), "no output head of its own")


def test_the_hidden_size_follows_the_width_until_it_is_moved(show):
    page = show(ShareBar())
    words, follows = page.locator(".lc-stages"), page.get_by_label("F follows the 8/3 rule")
    enter(page, "width D", "4096", values={"hidden size F": "16384"})
    holds(words.text_content(), "F = 16,384 = 4 D", "8/3 D × 1.3")
    enter(page, "hidden size F", "1000")
    assert not follows.is_checked()
    assert value(page, "hidden size F") == "1000"
    holds(words.text_content(), "F = 1,000 = 0.244 D", "chosen freely")
    enter(page, "width D", "8192", values={"hidden size F": "1000"})
    follows.press("Space")
    assert value(page, "hidden size F") == "28672"
    assert said(page).startswith("Llama 3 70B: ")


def test_the_way_back(show):
    page = show(ShareBar("llama3_8b"))
    for name, text in (("layers L", "3"), ("hidden size F", "5"), ("key/value heads G", "7")):
        enter(page, name, text)
    holds(said(page), "Changed from Llama 3 8B")
    assert noted(page) != ""
    by_key(page, "Back to the model")
    assert said(page).startswith("Llama 3 8B: ")
    assert noted(page) == ""
    assert page.get_by_label("F follows the 8/3 rule").is_checked()


def test_a_shape_that_cannot_be_is_moved_and_said(show):
    page = show(ShareBar(width=1_000, num_kv_heads=3))
    assert (value(page, "width D"), value(page, "key/value heads G")) == ("1024", "2")
    holds(noted(page), "head size 128", "must divide 8 query heads")
    page = show(ShareBar())
    enter(page, "width D", "8200", used="8192")
    holds(noted(page), "head size 128 of Llama 3 70B", "8,192 is used")
    enter(page, "key/value heads G", "5", used="4")
    holds(noted(page), "must divide 64 query heads", "4 is used in place of 5")
    enter(page, "width D", "8320", values={"key/value heads G": "5"})
    holds(noted(page), "must divide 65 query heads")


def test_arrow_keys_go_to_the_next_that_can_be_and_the_slider_keeps_the_groups(show):
    page = show(ShareBar())
    for key in ("PageDown", "PageDown", "Home", "PageUp", "End"):
        keys(page, "width D", key)
        assert int(value(page, "width D")) % 1_024 == 0
        assert (value(page, "key/value heads G"), noted(page)) == ("8", "")
    assert value(page, "width D") == "32768"
    enter(page, "width D", "8192")
    moves = [
        ("width D", "ArrowRight", "9216"),
        ("width D, number", "ArrowDown ArrowDown", "7168"),
        ("key/value heads G", "ArrowUp", "14"),
        ("key/value heads G, number", "ArrowDown ArrowDown", "7"),
    ]
    for control, pressed, expected in moves:
        keys(page, control, pressed, values={control.removesuffix(", number"): expected})
    assert noted(page) == ""
