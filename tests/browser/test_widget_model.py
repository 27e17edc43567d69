"""The widgets of chapters 10 and 16: the page counts and samples as the package, and they obey."""

import gzip
import itertools

import numpy as np
import pytest
import torch

from llmcourse.model import ModelConfig, next_token_probabilities
from llmcourse.model.config import PRESETS
from llmcourse_classroom.widgets.model import (
    MOST_TOKENS,
    SHAPES,
    ConfigExplorer,
    SamplingBoard,
    shape_of,
)
from llmcourse_labs.scale import cost
from tests.browser.hands import choose, enter, keys, press
from tests.browser.kit import holds, noted, pictured, said, table, value
from tests.browser.registry import BOARD_TOKENS, board_scores, sampling_board
from tests.browser.twins import each


def shapes():
    grid = itertools.product(
        (1, 7), (48, 4096), (8,), (1, 4), (20, 128), (100, 14336), (True, False)
    )
    names = ("num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden", "tied_head")
    for shape in grid:
        given = dict(zip(names, shape, strict=True))
        yield ModelConfig(vocab_size=50_257, context_length=777, **given)
    yield from (make() for make in SHAPES.values())


def test_parameters_and_flop_are_the_packages_to_the_last_one(arithmetic):
    configs = list(shapes())
    given_shapes = [[shape_of(config)] for config in configs]
    counted = arithmetic(ConfigExplorer, "parametersByPart", given_shapes)
    assert counted == [cost.parameters_by_part(config) for config in configs]
    flop = arithmetic(ConfigExplorer, "forwardFlop", given_shapes)
    assert flop == [cost.forward_flop_by_part(config) for config in configs]


def test_memory_is_the_packages(arithmetic):
    held, configs = ConfigExplorer().bytes, list(shapes())
    trained = arithmetic(ConfigExplorer, "trainingMemory", [[shape_of(c), held] for c in configs])
    written = arithmetic(ConfigExplorer, "writingMemory", [[shape_of(c), 2, 2] for c in configs])
    for config, training, writing in zip(configs, trained, written, strict=True):
        count = cost.num_parameters(config)
        assert training == {part: size * count for part, size in held.items()}
        assert sum(training.values()) == cost.MIXED_TRAINING.total * count
        cache = config.context_length * cost.kv_cache_bytes_per_token(config)
        assert writing == {"weights": 2 * count, "KV cache": cache}


def test_logits_are_right_to_half_a_quantum(arithmetic):
    made = sampling_board()
    got = arithmetic(SamplingBoard, "logits", [[text, made.quantum] for text in made.logits])
    assert np.abs(np.array(got) - board_scores()).max() <= made.quantum / 2 * (1 + 1e-9)


def test_distributions_are_the_packages(arithmetic):
    rows = [*board_scores(), np.zeros(10), np.zeros(16)]  # all equal: ties at every cut
    cuts = itertools.product((0.05, 0.7, 1.0, 3.0), (1, 2, 40, None), (0.01, 0.3, 0.5, 0.9, None))
    settings = [dict(zip(("temperature", "top_k", "top_p"), cut, strict=True)) for cut in cuts]
    cases = [[row.tolist(), setting] for row in rows for setting in settings]
    for (row, setting), got in each(arithmetic, SamplingBoard, "probabilities", cases):
        expected = next_token_probabilities(torch.tensor(row, dtype=torch.float64), **setting)
        ours = torch.tensor(got, dtype=torch.float64)
        assert torch.equal(ours > 0, expected > 0)
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_a_number_draws_the_token_in_whose_stretch_it_is(arithmetic):
    p = [0.5, 0.0, 0.3, 0.2]
    draws = {0: 0, 0.4999: 0, 0.5: 2, 0.7999: 2, 0.8001: 3, 0.9999999: 3}
    assert arithmetic(SamplingBoard, "draw", [[p, u] for u in draws]) == list(draws.values())
    assert arithmetic(SamplingBoard, "draw", [[[0.5, 0.4999999, 0], 1.0]]) == [1]
    assert arithmetic(SamplingBoard, "entropyBits", [[[0.25] * 4], [[1, 0]]]) == [2, 0]


@pytest.mark.parametrize("preset", ["llama3_8b", "llama3_405b"])
def test_the_picture_has_areas_as_large_as_the_weights(show, preset):
    config = PRESETS[preset]()
    page = show(ConfigExplorer(preset))
    boxes = page.locator(".lc-stage svg").first.locator("rect[data-key]")
    areas = boxes.evaluate_all(
        "all => Object.fromEntries(all.map((one) => [one.dataset.key, "
        "one.getAttribute('width') * one.getAttribute('height')]))"
    )
    parts = cost.parameters_by_part(config)
    attention = sum(areas[name] for name in "qokv")
    unit = areas["embedding"] / parts["embedding"]
    assert areas["head"] / parts["head"] == pytest.approx(unit, rel=0.01)
    assert attention / parts["attention"] == pytest.approx(unit, rel=0.05)  # less gaps
    assert areas["gate"] * 3 / parts["feed_forward"] == pytest.approx(unit, rel=0.05)
    assert page.locator("[data-key^='layer ']").count() == config.num_layers + 1


def shape_chosen(page):
    return page.get_by_label("shape", exact=True).input_value()


def test_a_preset_fills_the_fields_and_a_change_makes_it_ones_own(show):
    page = show(ConfigExplorer("stories"))
    choose(page, "shape", "llama3_8b", "8.03 B parameters", values={"hidden width F": "14336"})
    enter(page, "layers L", "16")
    assert shape_chosen(page) == "your own"
    page.locator(".lc-table > summary").click()
    assert "14336" not in page.locator("tbody").text_content()


def is_mended(page):
    assert (value(page, "key/value heads G"), value(page, "head size K")) == ("4", "128")


def test_heads_that_do_not_divide_are_moved_and_said(show):
    page = show(ConfigExplorer("llama3_8b", num_kv_heads=5, head_size=127))
    is_mended(page)
    holds(noted(page), "must divide 32", "even")
    assert shape_chosen(page) == "your own"
    page = show(ConfigExplorer("llama3_8b"))
    enter(page, "key/value heads G", "5", note=["must divide 32"])
    enter(page, "head size K", "127", note=["even"])
    is_mended(page)


def test_arrow_keys_reach_every_shape_that_can_be_built(show):
    page = show(ConfigExplorer("llama3_8b"))
    keys(page, "key/value heads G", "ArrowRight", values={"key/value heads G": "16"})
    keys(page, "key/value heads G, number", "ArrowDown ArrowDown")
    assert (value(page, "key/value heads G"), shape_chosen(page)) == ("4", "your own")
    choose(page, "shape", "stories")
    keys(page, "head size K", "ArrowLeft " * 8)
    assert 2 <= int(value(page, "head size K")) < 20
    assert noted(page) == ""


def test_the_shares_of_training_leave_the_cache_out(show):
    page = show(ConfigExplorer("llama3_8b", context_length=131_072))
    assert "KV cache" not in pictured(page, 2)
    holds(pictured(page, 3), "weights 16.1 GB", "KV cache 17.2 GB")
    holds(page.locator(".lc-stage").nth(2).text_content(), "12.5 % · 16.1 GB")
    holds(said(page), "131,072 tokens takes 17.2 GB")


@pytest.mark.parametrize("end", [-20, -25])
def test_without_a_cut_every_token_can_be_drawn_at_low_temperature(show, end):
    falling = np.linspace(0, end, len(BOARD_TOKENS))[None]  # the running sum passes 1 half way
    page = show(SamplingBoard(["a"], falling, BOARD_TOKENS, temperature=0.3))
    holds(said(page), "300 of 300 tokens")


def test_temperature_and_cuts_move_the_distribution(show):
    page = show(sampling_board())
    enter(page, "temperature", "3")
    assert page.locator(".lc-stage text", has_text="285 others").count() == 1
    *_, likeliest, rest = table(page)
    assert (len(table(page)), rest[0]) == (30 + 1, "270 others")
    assert float(rest[3]) > 30 * float(likeliest[3])
    assert sum(float(row[3]) for row in table(page)) == pytest.approx(1, abs=1e-3)
    before, drawn = said(page), page.get_by_text("Drawn: “")
    press(page, "Draw 20")
    assert (drawn.text_content().count("“"), value(page, "tokens drawn")) == (20, "20")
    assert sum(int(row[-1]) for row in table(page)) == 20
    press(page, "Reset")
    holds(page.locator(".lc-stages").text_content(), "Nothing drawn")
    enter(page, "top-k", "3", "3 of 300 tokens")
    enter(page, "temperature", "0.05")
    assert said(page) != before
    press(page, "Step")
    keys(page, "tokens drawn", "ArrowRight")
    assert drawn.text_content().count("“") == 2
    assert page.get_by_text("cut", exact=True).count() == 12 + 1  # the likeliest, and all others


def test_the_largest_board_is_small():
    drawn = np.random.default_rng(0)
    letters = drawn.choice(list("abcdefghijklmnopqrstuvwxyz"), (MOST_TOKENS, 6))
    rows = drawn.normal(size=(6, MOST_TOKENS))
    made = SamplingBoard([f"text {n}" for n in range(6)], rows, ["".join(word) for word in letters])
    assert len(gzip.compress(made.page().encode())) < 60_000
    with pytest.raises(ValueError, match="at most 2048 tokens"):
        SamplingBoard(["a"], np.zeros((1, MOST_TOKENS + 1)), ["a"] * (MOST_TOKENS + 1))
