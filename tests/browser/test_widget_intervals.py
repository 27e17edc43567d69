"""The interval lab of chapter 43: its numbers are the package's, and every control obeys."""

import pytest

from llmcourse.course.widgets import IntervalLab
from llmcourse.evaluate import Pair, items_to_tell, mcnemar, wilson
from tests.browser.kit import enter, noted, pictured, said, table, value


def test_intervals_are_the_packages(arithmetic):
    grid = [(right, total) for total in (1, 10, 137, 5_000) for right in {0, 1, total // 3, total}]
    got = arithmetic(IntervalLab, "wilson", [list(each) for each in grid])
    assert got == [pytest.approx(list(wilson(*each)), abs=1e-12) for each in grid]


def test_the_number_of_items_is_the_packages(arithmetic):
    grid = [(d, s) for d in (0.01, 0.04, 0.3) for s in (0.3, 0.5, 1.0)]
    got = arithmetic(IntervalLab, "itemsToTell", [list(each) for each in grid])
    assert got == [items_to_tell(*each) for each in grid]


def test_the_paired_test_is_the_packages(arithmetic):
    grid = [(0, 0), (0, 6), (3, 9), (40, 71), (700, 800), (9, 2)]
    got = arithmetic(IntervalLab, "mcnemar", [list(each) for each in grid])
    assert got == pytest.approx([mcnemar(Pair(1, *each, 1)) for each in grid], rel=1e-8)


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
    assert "Of 40 tests A wins 40 and B 0; a paired test is sure of A in 40 and of B in 0" in said(
        page
    )
    number = items_to_tell(0.2, 0.8 * 0.4 + 0.6 * 0.2)
    assert f"To be sure in four tests of five takes {number} items." in said(page)
    assert pictured(page).startswith("two intervals: one test: A has ")
    assert "the true shares are 80 % and 60 %" in pictured(page)
    rows = table(page)
    assert len(rows) == 10
    a, only_a, only_b = (int(rows[0][k].replace(",", "")) for k in (1, 3, 4))
    assert int(rows[0][2].replace(",", "")) == a - only_a + only_b


def test_every_control_changes_the_tests(show):
    page = show(IntervalLab())
    before = said(page)
    assert before.startswith("On these 100 items A has ")
    page.get_by_role("button", name="Other items").click()
    assert said(page) != before
    enter(page, "items of the test", "5000")
    assert said(page).startswith("On these 5,000 items A has ")
    enter(page, "model B, true share in %", "64")
    assert "The models are equal" in said(page)
    enter(page, "model A, true share in %", "66")
    apart = items_to_tell(0.02, 0.66 * 0.36 + 0.64 * 0.34)
    assert f"takes {apart:,} items" in said(page)
    enter(page, "items of equal luck, in %", "100")
    assert f"takes {items_to_tell(0.02, 0.02)} items" in said(page)
    enter(page, "items of the test", "9")
    assert "9 is not possible" in noted(page)
    assert value(page, "items of the test") == "10"
