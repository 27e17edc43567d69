"""The widgets of chapters 10 and 16: the page counts and samples as the package, and they obey."""

import gzip
import itertools

import numpy as np
import pytest
import torch
import traitlets

from llmcourse.course.widgets.model import (
    MOST_TOKENS,
    SHAPES,
    ConfigExplorer,
    SamplingBoard,
    shape_of,
)
from llmcourse.model import ModelConfig, next_token_probabilities
from llmcourse.model.config import PRESETS
from llmcourse.scale import cost
from tests.browser.kit import enter, noted, said, table, value
from tests.browser.registry import BOARD_TOKENS, CONTEXTS, board_scores, sampling_board


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
    yield from (make() for make in SHAPES.values())


def test_parameters_and_flop_are_the_packages_to_the_last_one(arithmetic):
    configs = list(shapes())
    given_shapes = [[shape_of(config)] for config in configs]
    counted = arithmetic(ConfigExplorer, "parametersByPart", given_shapes)
    assert counted == [cost.parameters_by_part(config) for config in configs]
    flop = arithmetic(ConfigExplorer, "forwardFlop", given_shapes)
    assert flop == [cost.forward_flop_by_part(config) for config in configs]


def test_memory_is_the_packages(arithmetic):
    held = ConfigExplorer().bytes
    configs = list(shapes())
    trained = arithmetic(ConfigExplorer, "trainingMemory", [[shape_of(c), held] for c in configs])
    written = arithmetic(ConfigExplorer, "writingMemory", [[shape_of(c), 2, 2] for c in configs])
    for config, training, writing in zip(configs, trained, written, strict=True):
        count = cost.num_parameters(config)
        assert training == {part: size * count for part, size in held.items()}
        assert sum(training.values()) == cost.MIXED_TRAINING.total * count
        cache = config.context_length * cost.kv_cache_bytes_per_token(config)
        assert writing == {"weights": 2 * count, "KV cache": cache}


def test_the_nearest_divisor(arithmetic):
    cases = [[32, 5], [32, 8], [7, 6], [12, 5], [1, 9], [64, 100]]
    assert arithmetic(ConfigExplorer, "nearestDivisor", cases) == [4, 8, 7, 4, 1, 64]
    cases = [[32, 8, 1], [32, 8, -1], [32, 32, 1], [32, 1, -1], [7, 1, 1]]
    assert arithmetic(ConfigExplorer, "nextDivisor", cases) == [16, 4, 32, 1, 7]


def test_distributions_are_the_packages(arithmetic):
    rows = [*board_scores(), np.zeros(10), np.zeros(16)]  # all equal: ties at every cut
    settings = [
        {"temperature": t, "top_k": k, "top_p": p}
        for t in (0.05, 0.7, 1.0, 3.0)
        for k in (1, 2, 40, None)
        for p in (0.01, 0.3, 0.5, 0.9, None)
    ]
    cases = [[row.tolist(), each] for row in rows for each in settings]
    for (row, each), got in zip(
        cases, arithmetic(SamplingBoard, "probabilities", cases), strict=True
    ):
        expected = next_token_probabilities(torch.tensor(row, dtype=torch.float64), **each)
        ours = torch.tensor(got, dtype=torch.float64)
        assert torch.equal(ours > 0, expected > 0)
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_logits_come_through_to_half_a_quantum(arithmetic):
    made = sampling_board()
    got = arithmetic(SamplingBoard, "logits", [[text, made.quantum] for text in made.logits])
    assert np.abs(np.array(got) - board_scores()).max() <= made.quantum / 2 * (1 + 1e-9)


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


@pytest.mark.parametrize("preset", ["llama3_8b", "llama3_405b"])
def test_the_picture_has_areas_as_large_as_the_weights(show, preset):
    config = PRESETS[preset]()
    page = show(ConfigExplorer(preset))
    areas = (
        page.locator(".lc-stage svg")
        .first.locator("rect[data-key]")
        .evaluate_all(
            "all => Object.fromEntries(all.map((one) => [one.dataset.key, "
            "one.getAttribute('width') * one.getAttribute('height')]))"
        )
    )
    parts = cost.parameters_by_part(config)
    attention = sum(areas[name] for name in "qokv")
    unit = areas["embedding"] / parts["embedding"]
    assert areas["head"] / parts["head"] == pytest.approx(unit, rel=0.01)
    assert attention / parts["attention"] == pytest.approx(unit, rel=0.05)  # less gaps
    assert areas["gate"] * 3 / parts["feed_forward"] == pytest.approx(unit, rel=0.05)
    lines = page.locator("[data-key^='layer ']")
    assert lines.count() == config.num_layers + 1


def test_a_preset_fills_the_fields_and_a_change_makes_it_ones_own(show):
    page = show(ConfigExplorer("stories"))
    page.get_by_label("shape", exact=True).select_option("llama3_8b")
    assert value(page, "hidden width F") == "14336"
    assert "8.03 B parameters" in said(page)
    enter(page, "layers L", "16")
    assert page.get_by_label("shape", exact=True).input_value() == "your own"
    page.locator(".lc-table > summary").click()
    assert "14336" not in page.locator("tbody").text_content()


def test_heads_that_do_not_divide_are_moved_and_said(show):
    page = show(ConfigExplorer("llama3_8b"))
    enter(page, "key/value heads G", "5")
    assert value(page, "key/value heads G") == "4"
    assert "must divide 32" in noted(page)
    enter(page, "head size K", "127")
    assert value(page, "head size K") == "128"
    assert "even" in noted(page)


def test_arrow_keys_reach_every_shape_that_can_be_built(show):
    page = show(ConfigExplorer("llama3_8b"))
    kv, size = (
        page.get_by_label("key/value heads G, number"),
        page.get_by_label("head size K, number"),
    )
    page.get_by_role("slider", name="key/value heads G").press("ArrowRight")
    assert kv.input_value() == "16"
    kv.press("ArrowDown")
    kv.press("ArrowDown")
    assert kv.input_value() == "4"
    assert page.get_by_label("shape", exact=True).input_value() == "your own"
    page.get_by_label("shape", exact=True).select_option("stories")
    for _ in range(8):
        page.get_by_role("slider", name="head size K").press("ArrowLeft")
    assert 2 <= int(size.input_value()) < 20
    assert noted(page) == ""


def test_a_start_that_cannot_be_built_is_mended_and_said(show):
    page = show(ConfigExplorer("llama3_8b", num_kv_heads=5, head_size=127))
    assert value(page, "key/value heads G") == "4"
    assert value(page, "head size K") == "128"
    assert "must divide 32" in noted(page)
    assert "even" in noted(page)
    assert page.get_by_label("shape", exact=True).input_value() == "your own"


def test_the_shares_of_training_leave_the_cache_out(show):
    page = show(ConfigExplorer("llama3_8b", context_length=131_072))
    pictures = page.locator(".lc-stage svg").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert "KV cache" not in pictures[2]
    assert pictures[3] == "memory of writing: weights 16.1 GB, KV cache 17.2 GB"
    assert "12.5 % · 16.1 GB" in page.locator(".lc-stage").nth(2).text_content()
    assert "131,072 tokens takes 17.2 GB" in said(page)


@pytest.mark.parametrize("end", [-20, -25])
def test_without_a_cut_every_token_can_be_drawn_at_low_temperature(show, end):
    falling = np.linspace(0, end, len(BOARD_TOKENS))[None]  # the running sum passes 1 half way
    page = show(SamplingBoard(["a"], falling, BOARD_TOKENS, temperature=0.3))
    assert "300 of 300 tokens" in said(page)


def test_a_press_draws_twenty_and_counts_them(show):
    page = show(sampling_board())
    page.get_by_role("button", name="Draw 20").click()
    assert page.get_by_text("Drawn: “").text_content().count("“") == 20
    assert value(page, "tokens drawn") == "20"
    page.locator(".lc-table > summary").click()
    counts = page.locator("tbody tr td:last-child").all_text_contents()
    assert sum(map(int, counts)) == 20


def test_temperature_and_cuts_move_the_distribution(show):
    page = show(sampling_board())
    before = said(page)
    enter(page, "top-k", "3")
    assert "3 of 300 tokens" in said(page)
    enter(page, "temperature", "0.05")
    assert said(page) != before
    page.get_by_role("button", name="Step").click()
    page.get_by_role("slider", name="tokens drawn").press("ArrowRight")
    assert page.get_by_text("Drawn: “").text_content().count("“") == 2
    assert page.get_by_text("cut", exact=True).count() == 12 + 1  # the likeliest, and all others
    page.get_by_role("button", name="Reset").click()
    assert "Nothing drawn" in page.locator(".lc-stages").text_content()


def test_what_the_likeliest_do_not_have_is_shown(show):
    page = show(sampling_board())
    enter(page, "temperature", "3")
    assert page.locator(".lc-stage text", has_text="285 others").count() == 1
    *_, likeliest, rest = table(page)
    assert len(table(page)) == 30 + 1
    assert rest[0] == "270 others"
    assert float(rest[3]) > 30 * float(likeliest[3])
    assert sum(float(row[3]) for row in table(page)) == pytest.approx(1, abs=1e-3)


def test_the_largest_board_is_small():
    drawn = np.random.default_rng(0)
    letters = drawn.choice(list("abcdefghijklmnopqrstuvwxyz"), (MOST_TOKENS, 6))
    rows = drawn.normal(size=(6, MOST_TOKENS))
    made = SamplingBoard([f"text {n}" for n in range(6)], rows, ["".join(word) for word in letters])
    assert len(gzip.compress(made.page().encode())) < 60_000
    with pytest.raises(ValueError, match="at most 2048 tokens"):
        SamplingBoard(["a"], np.zeros((1, MOST_TOKENS + 1)), ["a"] * (MOST_TOKENS + 1))


def test_python_clamps_top_k_to_the_vocabulary_and_refuses_an_unknown_context():
    made = sampling_board()
    made.top_k = 1_000
    assert made.top_k == 300
    assert "300 is used" in made.note
    with pytest.raises(traitlets.TraitError, match="context must be one of"):
        made.context = "nowhere"
    assert made.context == CONTEXTS[0]


@pytest.mark.parametrize("name", SHAPES)
def test_the_state_is_the_shape(name):
    made = ConfigExplorer(name)
    shape = shape_of(SHAPES[name]())
    assert {field: getattr(made, field) for field in shape} == shape


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
    arguments = {"contexts": CONTEXTS, "logits": board_scores(), "tokens": BOARD_TOKENS} | wrong
    with pytest.raises(ValueError, match=message):
        SamplingBoard(**arguments)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        ConfigExplorer("llama9")
