"""The widget of chapter 44: intervals, rows and alarms are those of Python."""

import math

import pytest
import traitlets

from llmcourse.course.recorded import recorded_runs
from llmcourse.course.widgets import LeakBoard
from tests.browser.kit import choose, enter, noted, pictured, said, table
from tests.browser.registry import leak_board, leak_rows

# --- the shipped arithmetic, in Chromium


def test_intervals_are_the_roots_of_wilsons_equation(arithmetic):
    """Mutants: the plain interval, a root without the quarter of z squared."""
    grid = [[k, n] for n in (1, 3, 50, 150) for k in (0, 1, n // 2, n)]
    z2 = 1.959964**2
    for (k, n), found in zip(grid, arithmetic(LeakBoard, "wilson", grid), strict=True):
        # (p - k/n)^2 = z^2 p (1 - p) / n, a quadratic equation in p
        a, b, c = 1 + z2 / n, -(2 * k / n + z2 / n), (k / n) ** 2
        root = math.sqrt(b * b - 4 * a * c)
        right = [(-b - root) / (2 * a), (-b + root) / (2 * a)]
        assert found == pytest.approx(right, abs=1e-9)


def test_the_row_of_a_number_of_copies_is_the_last_that_has_no_more(arithmetic):
    """Mutants: the nearest row, the next one, a row that is retold."""
    rows = leak_rows()
    grid = [[rows, copies] for copies in (0, 1, 15, 16, 63, 64)]
    assert arithmetic(LeakBoard, "rowAt", grid) == [0, 0, 0, 1, 1, 2]
    assert arithmetic(LeakBoard, "rowAt", [[rows[1:], 3], [rows[::-1], 0]]) == [0, 3]


def test_alarms_are_p_values_up_to_the_level(arithmetic):
    grid = [[[0.001, 0.05, 0.2], level] for level in (0.0005, 0.001, 0.05, 0.1, 0.5)]
    assert arithmetic(LeakBoard, "alarms", grid) == [0, 1, 2, 2, 3]
    assert arithmetic(LeakBoard, "meanOf", [[[1, 2, 6]]]) == [3]
    assert arithmetic(LeakBoard, "total", [[[]], [[1, 2]]]) == [0, 3]


# --- the page


def test_the_state_is_said_in_words_and_numbers(show):
    page = show(leak_board(copies=20))
    assert said(page) == (
        "Recorded: 16 copies, 3 seeds. Leaked half 42 % (34 to 50), fresh half 8 % (5 to 13), "
        "loss on clean text 0.88. Without what runs of 13 words flag, the score is 8 % of 150 "
        "answers; of all 300 it is 25 %."
    )
    assert "64 copies: leaked half 84 %, fresh half 10 %" in pictured(page)
    assert "64 copies in other words: 0.90" in pictured(page, 1)
    rows = table(page)
    assert rows[0] == ["runs of 13 words", "100 % of leaked questions", "0 % of fresh questions"]
    assert rows[1][:2] == ["canary", "3 of 3 seeds"]
    assert rows[2][1:] == ["20 % of leaked questions", "4 % of fresh questions"]
    assert rows[3] == ["order of the questions", "3 of 3 seeds", "5 %"]


def test_every_control_changes_what_is_said(show):
    page = show(leak_board())
    assert said(page).startswith("Recorded: 0 copies")
    enter(page, "copies", "64")
    assert said(page).startswith("Recorded: 64 copies, 3 seeds. Leaked half 84 %")
    choose(page, "runs of so many words", "3")
    assert "Runs of 3 words flag every question: there is no clean subset." in said(page)
    enter(page, "level", "0.01")
    assert table(page)[3][1:] == ["0 of 3 seeds", "1 %"]
    enter(page, "copies", "65")
    assert "copies: 65 is not possible" in noted(page)
    page.get_by_label("retold (64 copies in other words)").check()
    assert said(page).startswith("Recorded: 64 copies in other words")
    assert table(page)[1][1] == "0 of 3 seeds"


def test_it_shows_what_the_chapter_has_recorded(show):
    found = recorded_runs("contamination")
    row = found["runs"]["64"][0]
    shown = {
        "copies": 64,
        "retold": False,
        "losses": [row["loss"]],
        "leaked": [row["leaked"]],
        "fresh": [row["fresh"]],
        "canary_p": [row["canary"]["rank"] / found["settings"]["candidates"]],
        "order_p": [row["order"]["leaked"]],
        "min_k_hits": [row["min_k"]["hits"]],
        "min_k_false": [row["min_k"]["false"]],
        "overlap_leaked": [row["overlap"]["leaked"]],
        "overlap_fresh": [row["overlap"]["fresh"]],
        "clean_right": [row["overlap"]["clean right"]],
        "clean_items": [row["overlap"]["clean items"]],
    }
    made = LeakBoard(
        [{**shown, "copies": 0}, shown],
        half=found["settings"]["half"],
        options=found["settings"]["options"],
        lengths=found["settings"]["lengths"],
        copies=64,
    )
    page = show(made)
    assert f"Leaked half {2 * row['leaked']} %" in said(page)
    assert f"loss on clean text {row['loss']:.2f}" in said(page)


# --- Python

WRONG = [
    ({"copies": -1}, "copies are 0 to 1000, not -1"),
    ({"losses": [0.9, 0.9]}, "for the same 1 to 5 seeds"),
    ({"losses": []}, "for the same 1 to 5 seeds"),
    ({"losses": [0.9, 0.9, math.nan]}, "losses are above 0"),
    ({"leaked": [1, 2, 51]}, "right answers are 0 to 50"),
    ({"overlap_fresh": [[0.1]] * 3}, "for each of the lengths"),
    ({"clean_items": [[0, 101]] * 3}, "clean_right is at most clean_items, these 100"),
    ({"clean_right": [[1, 0]] * 3}, "clean_right is at most clean_items"),
    ({"order_p": [0.1, 0.1, 1.1]}, "shares and p-values are 0 to 1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_rows_that_do_not_fit_are_refused(change, message):
    rows = leak_rows()
    with pytest.raises(ValueError, match=message):
        leak_board([rows[0] | change, *rows[1:]])


def test_boards_that_do_not_fit_are_refused():
    rows = leak_rows()
    with pytest.raises(ValueError, match="give 2 to 8 rows, at most one of them retold"):
        leak_board(rows[:1])
    with pytest.raises(ValueError, match="at most one of them retold"):
        leak_board([*rows, rows[-1]])
    with pytest.raises(ValueError, match="copies increase from row to row"):
        leak_board([rows[1], rows[0]])
    with pytest.raises(ValueError, match="half is 1 to 1000, options 2 to 1000; not 0, 10"):
        leak_board(half=0)
    with pytest.raises(ValueError, match="lengths of runs, each once"):
        leak_board(lengths=[3, 3])
    with pytest.raises(ValueError, match=r"a row has no \['order_p'\]"):
        leak_board([{k: v for k, v in rows[0].items() if k != "order_p"}, rows[1]])


def test_state_is_checked():
    made = leak_board()
    assert (made.copies, made.words, made.level) == (0, "13", 0.05)
    made.copies = 999
    assert (made.copies, made.note) == (
        64,
        "copies: 999 is not possible (from 0 to 64, whole); 64 is used.",
    )
    with pytest.raises(traitlets.TraitError, match="words must be one of 3, 13"):
        made.words = "5"
