"""The widgets of chapters 10 and 16: the page counts and samples as the package, and they obey."""

import gzip
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import cost
from llmcourse.model import ModelConfig, next_token_probabilities
from llmcourse.model.config import PRESETS
from llmcourse.viz.widgets.model import ConfigExplorer, SamplingBoard, shape_of

TOKENS = [f"·w{n}" for n in range(300)]
CONTEXTS = ["The state of the", "We must"]


def scores():
    drawn = np.random.default_rng(0).normal(size=(2, len(TOKENS))) * 3
    drawn[0, 5] = drawn[0, 9] = drawn[0].max()  # a tie at the top
    return drawn


def board(**state):
    return SamplingBoard(CONTEXTS, scores(), TOKENS, **state)


def shapes():
    """Return every preset and a grid of other shapes."""
    grid = itertools.product(
        (1, 7), (48, 4096), (8,), (1, 4), (20, 128), (100, 14336), (True, False)
    )
    for layers, width, heads, kv, size, hidden, tied in grid:
        yield ModelConfig(
            num_layers=layers,
            width=width,
            num_heads=heads,
            num_kv_heads=kv,
            head_size=size,
            hidden=hidden,
            vocab_size=50_257,
            context_length=777,
            tied_head=tied,
        )
    yield from (make() for make in PRESETS.values())


def test_parameters_and_flop_are_the_packages_to_the_last_one(arithmetic):
    configs = list(shapes())
    given_shapes = [[shape_of(config)] for config in configs]
    counted = arithmetic(ConfigExplorer, "parameters", given_shapes)
    assert counted == [cost.parameters_by_part(config) for config in configs]
    flop = arithmetic(ConfigExplorer, "forwardFlop", given_shapes)
    assert flop == [cost.forward_flop_by_part(config) for config in configs]


def test_memory_is_the_packages(arithmetic):
    held = {"weights": 2, "gradients": 2, "master": 4, "moments": 8}
    configs = list(shapes())
    given_shapes = [[shape_of(config), held, 2] for config in configs]
    for config, got in zip(
        configs, arithmetic(ConfigExplorer, "memory", given_shapes), strict=True
    ):
        cache = got.pop("KV cache, one text")
        assert cache == config.context_length * cost.kv_cache_bytes_per_token(config)
        assert sum(got.values()) == cost.MIXED_TRAINING.total * cost.num_parameters(config)


def test_the_nearest_divisor(arithmetic):
    cases = [[32, 5], [32, 8], [7, 6], [12, 5], [1, 9], [64, 100]]
    assert arithmetic(ConfigExplorer, "nearestDivisor", cases) == [4, 8, 7, 4, 1, 64]


def test_distributions_are_the_packages(arithmetic):
    rows = board().scores()
    settings = [
        {"temperature": t, "top_k": k, "top_p": p}
        for t in (0.05, 0.7, 1.0, 3.0)
        for k in (1, 2, 40, len(TOKENS))
        for p in (0.01, 0.5, 0.9, 1.0)
    ]
    cases = [[row.tolist(), each] for row in rows for each in settings]
    for (row, each), got in zip(
        cases, arithmetic(SamplingBoard, "probabilities", cases), strict=True
    ):
        expected = next_token_probabilities(torch.tensor(row, dtype=torch.float64), **each)
        torch.testing.assert_close(
            torch.tensor(got, dtype=torch.float64), expected, rtol=1e-9, atol=1e-12
        )


def test_logits_come_through_to_half_a_quantum(arithmetic):
    made = board()
    got = arithmetic(SamplingBoard, "logits", [[text, made.quantum] for text in made.logits])
    assert np.abs(np.array(got) - scores()).max() <= made.quantum / 2 * (1 + 1e-9)
    assert np.array_equal(np.array(got), made.scores())


def test_draws_follow_the_distribution_and_repeat(arithmetic):
    p = [0.5, 0.0, 0.3, 0.2]
    uniforms = arithmetic(SamplingBoard, "uniform", [[1, n] for n in range(4000)])
    assert uniforms == arithmetic(SamplingBoard, "uniform", [[1, n] for n in range(4000)])
    drawn = arithmetic(SamplingBoard, "draw", [[p, u] for u in uniforms])
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert shares[1] == 0
    assert np.abs(shares - p).max() < 4 * 0.5 / np.sqrt(len(drawn))
    assert arithmetic(SamplingBoard, "draw", [[p, 0.9999999], [[0.5, 0.4999999, 0], 1.0]]) == [3, 1]


def test_entropy_in_bits(arithmetic):
    assert arithmetic(SamplingBoard, "entropyBits", [[[0.25] * 4], [[1, 0]]]) == [2, 0]


def test_a_preset_fills_the_fields_and_a_change_makes_it_ones_own(show):
    page = show(ConfigExplorer("stories"))
    page.get_by_label("shape", exact=True).select_option("llama3_8b")
    assert page.get_by_label("hidden width F, number").input_value() == "14336"
    assert "8.03 B parameters" in page.get_by_role("status").text_content()
    assert "8.03" in page.get_by_role("status").text_content()
    page.get_by_label("layers L, number").fill("16")
    page.keyboard.press("Tab")
    assert page.get_by_label("shape", exact=True).input_value() == "your own"
    page.locator("summary").click()
    assert "14336" not in page.locator("tbody").text_content()


def test_heads_that_do_not_divide_are_moved_and_said(show):
    page = show(ConfigExplorer("llama3_8b"))
    page.get_by_label("key/value heads G, number").fill("5")
    page.keyboard.press("Tab")
    assert page.get_by_label("key/value heads G, number").input_value() == "4"
    assert "must divide 32" in page.get_by_role("alert").text_content()
    page.get_by_label("head size K, number").fill("127")
    page.keyboard.press("Tab")
    assert page.get_by_label("head size K, number").input_value() == "128"
    assert "even" in page.get_by_role("alert").text_content()


def test_temperature_and_cuts_move_the_distribution(show):
    page = show(board())
    before = page.get_by_role("status").text_content()
    page.get_by_label("top-k, number").fill("3")
    page.keyboard.press("Tab")
    assert "3 of 300 tokens" in page.get_by_role("status").text_content()
    page.get_by_label("temperature, number").fill("0.05")
    page.keyboard.press("Tab")
    assert page.get_by_role("status").text_content() != before
    page.get_by_role("button", name="Step").click()
    page.get_by_role("slider", name="tokens drawn").press("ArrowRight")
    assert page.get_by_text("Drawn: “").text_content().count("“") == 2
    assert page.get_by_text("cut", exact=True).count() == 12
    page.get_by_role("button", name="Reset").click()
    assert "Nothing drawn" in page.locator(".lc-stages").text_content()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(show, theme):
    page = show(ConfigExplorer(), board(draws=9), theme=theme, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("made", [ConfigExplorer, board])
def test_the_page_form_is_small(made):
    assert len(gzip.compress(made().page().encode())) < 60_000


@given(st.sampled_from(sorted(PRESETS)))
def test_python_reads_the_shape(name):
    assert shape_of(ConfigExplorer(name).config()) == shape_of(PRESETS[name]())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contexts": ["a"]}, "must be 1 contexts x 300 tokens"),
        ({"contexts": ["a", "a"]}, "all differ"),
        ({"logits": np.full((2, 300), np.nan)}, "finite"),
        ({"tokens": ["a"]}, "2 contexts x 1 tokens"),
    ],
)
def test_a_board_that_does_not_fit_is_refused(wrong, message):
    arguments = {"contexts": CONTEXTS, "logits": scores(), "tokens": TOKENS} | wrong
    with pytest.raises(ValueError, match=message):
        SamplingBoard(**arguments)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        ConfigExplorer("llama9")
