"""The clocks of chapter 13: the page turns as the package rotates, and the controls obey."""

import math

import pytest
import torch

from llmcourse.model import attention
from llmcourse_classroom.widgets.rotary import RotaryClocks
from tests.browser.hands import by_key, enter, keys, press
from tests.browser.kit import holds, said, table

SHAPES = [(2, 10_000.0), (16, 10_000.0), (16, 500_000.0), (24, 37.5), (128, 500_000.0)]
PAIRS = [(0, 0), (7, 7), (12, 4), (4, 12), (63, 0), (1_000, 937), (8_191, 1), (8_191, 8_190)]


def exact(head_size, theta, positions):
    """Return angles t w_j in float64: an independent reference, finer than complex64."""
    speeds = [theta ** (-2 * j / head_size) for j in range(head_size // 2)]
    return torch.outer(
        torch.tensor(positions, dtype=torch.float64), torch.tensor(speeds, dtype=torch.float64)
    )


def close(got, expected, atol):
    torch.testing.assert_close(
        torch.tensor(got, dtype=torch.float64), expected.double(), rtol=0, atol=atol
    )


@pytest.mark.parametrize(("head_size", "theta"), SHAPES)
def test_hands_are_the_rotations_of_the_package(arithmetic, head_size, theta):
    positions = [0, 1, 2, 63, 500, 8_191]
    (speeds,) = arithmetic(RotaryClocks, "speeds", [[head_size, theta]])
    got = arithmetic(RotaryClocks, "hands", [[t, speeds] for t in positions])
    rotations = attention.rope_rotations(head_size, 8_192, theta=theta)[positions]
    close(got, rotations, atol=1e-7)  # float32 carries 24 bits
    angles = exact(head_size, theta, positions)
    close(got, torch.stack([angles.cos(), angles.sin()], -1), atol=1e-11)


@pytest.mark.parametrize(("head_size", "theta"), SHAPES)
def test_the_score_is_that_of_rotated_equal_vectors(arithmetic, head_size, theta):
    """q = k = (1, 0, 1, 0, ...), rotated by the package to their positions."""
    (speeds,) = arithmetic(RotaryClocks, "speeds", [[head_size, theta]])
    got = arithmetic(RotaryClocks, "score", [[i, j, speeds] for i, j in PAIRS])
    rotations = attention.rope_rotations(head_size, 8_192, theta=theta)
    equal = torch.tensor([1.0, 0.0]).repeat(head_size // 2).expand(8_192, 1, head_size)
    turned = attention.rope_adjacent(equal, rotations)[:, 0]
    close(got, torch.stack([turned[i] @ turned[j] for i, j in PAIRS]), atol=3e-7 * head_size)
    by_distance = arithmetic(RotaryClocks, "scoreAt", [[i - j, speeds] for i, j in PAIRS])
    close(by_distance, torch.tensor(got, dtype=torch.float64), atol=1e-9)


def test_the_angle_between_two_hands_is_the_smaller_one(arithmetic):
    cases = [[i, j, w] for i, j in PAIRS for w in (1.0, 0.5, 0.1, 0.0031)]
    got = arithmetic(RotaryClocks, "between", cases)
    expected = [math.degrees(math.acos(math.cos((i - j) * w))) for i, j, w in cases]
    assert got == pytest.approx(expected, abs=2e-5)  # acos is coarse where the hands meet
    assert all(0 <= angle <= 180 for angle in got)


@pytest.mark.parametrize(
    ("head_size", "theta", "length", "turns"),
    [(128, 10_000, 8_192, 50), (128, 500_000, 8_192, 35), (16, 10_000, 64, 3), (2, 10_000, 6, 0)],
)
def test_full_turns_are_wavelengths_within_the_length(arithmetic, head_size, theta, length, turns):
    (speeds,) = arithmetic(RotaryClocks, "speeds", [[head_size, theta]])
    lengths = arithmetic(RotaryClocks, "wavelength", [[speed] for speed in speeds])
    expected = [2 * math.pi * theta ** (2 * j / head_size) for j in range(head_size // 2)]
    assert lengths == pytest.approx(expected, rel=1e-12)
    assert arithmetic(RotaryClocks, "fullTurns", [[speeds, length]]) == [turns]
    assert sum(w <= length for w in expected) == turns


@pytest.mark.parametrize("length", [2, 64, 65, 999, 8_192])
def test_the_curve_holds_every_distance(arithmetic, length):
    (speeds,) = arithmetic(RotaryClocks, "speeds", [[16, 10_000]])
    (groups,) = arithmetic(RotaryClocks, "curve", [[speeds, length, 64]])
    scores = exact(16, 10_000, range(length)).cos().sum(-1)
    assert len(groups) <= 64
    covered = [d for group in groups for d in range(group["from"], group["to"] + 1)]
    assert covered == list(range(length))
    parts = [scores[group["from"] : group["to"] + 1] for group in groups]
    close([group["low"] for group in groups], torch.stack([p.min() for p in parts]), atol=1e-9)
    close([group["high"] for group in groups], torch.stack([p.max() for p in parts]), atol=1e-9)


def apart(page):
    return page.locator(".lc-stage").first.locator("text", has_text="apart").all_text_contents()


def test_play_turns_every_hand_and_no_angle_between(show):
    page = show(RotaryClocks())
    holds(said(page), "Query at 12, key at 4: distance 8", "score 4.7 of at most 8", "3 of 8 pairs")
    before, score = apart(page), page.get_by_role("img").last.get_attribute("aria-label")
    hands = page.locator(".lc-stage").first.inner_html()
    assert before[:3] == ["98° apart", "145° apart", "46° apart"]
    press(page, "Step", "Query at 13, key at 5: distance 8", "score 4.7 ")
    assert apart(page) == before
    assert page.get_by_role("img").last.get_attribute("aria-label") == score
    assert page.locator(".lc-stage").first.inner_html() != hands
    page.emulate_media(reduced_motion="reduce")
    press(page, "Reset", "Query at 8, key at 0")
    press(page, "To the end", "Query at 63, key at 55: distance 8", "score 4.7 ")
    assert apart(page) == before
    press(page, "Step", "Query at 8, key at 0")


def test_one_hand_moves_by_keys_and_the_angles_change(show):
    page = show(RotaryClocks())
    keys(page, "query position i", "ArrowRight", "Query at 13, key at 4: distance 9")
    assert apart(page)[0] == "156° apart"
    labels = [one.get_attribute("aria-label") for one in page.get_by_role("img").all()]
    holds(labels[0], "pair 0 156° apart")
    holds(labels[-1], "at distance 9 ")
    enter(page, "key position j", "20", "distance -7", "after the query")
    enter(page, "head size K", "15", used="16", note=["must be even", "16 is used in place of 15"])


def test_a_larger_base_slows_the_slow_clocks_and_sixteen_are_shown_at_a_time(show):
    page = show(RotaryClocks(128, length=8_192), says=["50 of 64 pairs", "8,192 tokens"])
    by_key(page, "500,000 (Llama 3)", "35 of 64 pairs", values={"base θ": "500000"})
    assert page.locator("button[aria-pressed=true]").all_text_contents() == ["500,000 (Llama 3)"]
    rows = table(page)
    assert ((len(rows), rows[-1][0], rows[-1][3]), len(apart(page))) == ((64, "63", "no"), 16)
    enter(page, "first pair shown", "30")
    assert page.get_by_text("pair 45", exact=True).is_visible()
    enter(page, "head size K", "16")
    assert len(apart(page)) == 8
    assert not page.get_by_label("first pair shown, number").is_visible()


def test_a_shorter_length_moves_the_positions_and_where_both_fill_it_a_step_nothing(show):
    page = show(RotaryClocks(query=50, key=40))
    enter(page, "length, tokens", "32", note=["i is 31 in place of 50", "j is 31 in place of 40"])
    holds(said(page), "Query at 31, key at 31: distance 0", "score 8 of at most 8")
    enter(page, "key position j", "0")
    press(page, "Step", "Query at 31, key at 0")
