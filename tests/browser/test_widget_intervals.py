"""The interval lab of chapter 43: its numbers are the package's, and every control obeys."""

import itertools

import pytest

from llmcourse_classroom.widgets import IntervalLab
from llmcourse_labs.evaluate import Pair, items_to_tell, mcnemar, wilson
from tests.browser.hands import enter, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.twins import agrees


def test_intervals_items_and_the_paired_test_are_the_packages(arithmetic):
    grid = [(right, total) for total in (1, 10, 137, 5_000) for right in {0, 1, total // 3, total}]
    agrees(arithmetic, IntervalLab, "wilson", grid, lambda *k: list(wilson(*k)), abs=1e-12)
    grid = itertools.product((0.01, 0.04, 0.3), (0.3, 0.5, 1.0))
    agrees(arithmetic, IntervalLab, "itemsToTell", grid, items_to_tell)
    grid = [(0, 0), (0, 6), (3, 9), (40, 71), (700, 800), (9, 2)]
    agrees(arithmetic, IntervalLab, "mcnemar", grid, lambda *k: mcnemar(Pair(1, *k, 1)), rel=1e-8)


def test_tests_are_drawn_with_the_shares_that_were_asked_for(arithmetic):
    given = [(0.64, 0.6, alike) for alike in (0, 0.5, 1)]
    drawn = arithmetic(IntervalLab, "test", [[20_000, *each, 7] for each in given])
    expected = arithmetic(IntervalLab, "disagree", [list(each) for each in given])
    for (p, q, _), (a, b, only_a, only_b), share in zip(given, drawn, expected, strict=True):
        assert a / 20_000 == pytest.approx(p, abs=0.012)
        assert b / 20_000 == pytest.approx(q, abs=0.012)
        assert (only_a + only_b) / 20_000 == pytest.approx(share, abs=0.012)
        assert only_a - only_b == a - b
    assert expected == pytest.approx([0.472, 0.256, 0.04])


def test_one_test_in_words_picture_and_table(show):
    page = show(IntervalLab(items=1_000, first=80, second=60))
    holds(said(page), "Of 40 tests A wins 40 and B 0", "sure of A in 40 and of B in 0")
    number = items_to_tell(0.2, 0.8 * 0.4 + 0.6 * 0.2)
    holds(said(page), f"takes {number} items")
    holds(pictured(page), "two intervals", "A has ", "shares are 80 % and 60 %")
    rows = table(page)
    assert len(rows) == 10
    a, b, only_a, only_b = (int(number.replace(",", "")) for number in rows[0][1:5])
    assert b == a - only_a + only_b


def test_every_control_changes_the_tests(show):
    page = show(IntervalLab())
    before = said(page)
    holds(before, "these 100 items")
    press(page, "Other items")
    assert said(page) != before
    enter(page, "items of the test", "5000", "these 5,000 items")
    enter(page, "model B, true share in %", "64", "models are equal")
    enter(page, "model A, true share in %", "66")
    apart = items_to_tell(0.02, 0.66 * 0.36 + 0.64 * 0.34)
    holds(said(page), f"takes {apart:,} items")
    enter(page, "items of equal luck, in %", "100", f"takes {items_to_tell(0.02, 0.02)} items")
