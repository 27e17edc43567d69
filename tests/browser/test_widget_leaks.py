"""The widget of chapter 44: intervals, rows and alarms are those of Python."""

from statistics import NormalDist

import pytest

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets import LeakBoard
from llmcourse_labs.evaluate import wilson
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import leak_board, leak_rows


def test_intervals_are_the_packages(arithmetic):
    """Mutants: the plain interval, a root without the quarter of z squared."""
    within = 2 * NormalDist().cdf(1.959964) - 1
    grid = [[k, n] for n in (1, 3, 50, 150) for k in (0, 1, n // 2, n)]
    right = [list(wilson(*each, confidence=within)) for each in grid]
    got = arithmetic(LeakBoard, "wilson", grid)
    assert got == [pytest.approx(each, abs=1e-9) for each in right]


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


def test_every_control_changes_what_is_said(show):
    page = show(leak_board(copies=20))
    holds(
        said(page), "16 copies, 3 seeds", "Leaked half 42 % (34 to 50)", "fresh half 8 % (5 to 13)"
    )
    holds(said(page), "clean text 0.88", "runs of 13 words", "8 % of 150", "all 300 it is 25 %")
    holds(pictured(page), "64 copies: leaked half 84 %, fresh half 10 %")
    holds(pictured(page, 1), "64 copies in other words: 0.90")
    rows = table(page)
    assert rows[0] == ["runs of 13 words", "100 % of leaked questions", "0 % of fresh questions"]
    assert rows[1][:2] == ["canary", "3 of 3 seeds"]
    assert rows[2][1:] == ["20 % of leaked questions", "4 % of fresh questions"]
    assert rows[3] == ["order of the questions", "3 of 3 seeds", "5 %"]
    enter(page, "copies", "0", "Recorded: 0 copies")
    enter(page, "copies", "64", "Recorded: 64 copies, 3 seeds", "Leaked half 84 %")
    choose(page, "runs of so many words", "3", "Runs of 3 words", "no clean subset")
    enter(page, "level", "0.01")
    assert table(page)[3][1:] == ["0 of 3 seeds", "1 %"]
    page.get_by_label("retold (64 copies in other words)").check()
    holds(said(page), "Recorded: 64 copies in other words")
    assert table(page)[1][1] == "0 of 3 seeds"


def test_it_shows_what_the_chapter_has_recorded(show):
    found = recorded_runs("contamination")
    row, settings = found["runs"]["64"][0], found["settings"]
    overlap = row["overlap"]
    shown = {
        "copies": 64,
        "retold": False,
        "losses": [row["loss"]],
        "leaked": [row["leaked"]],
        "fresh": [row["fresh"]],
        "canary_p": [row["canary"]["rank"] / settings["candidates"]],
        "order_p": [row["order"]["leaked"]],
        "min_k_hits": [row["min_k"]["hits"]],
        "min_k_false": [row["min_k"]["false"]],
    }
    for part in ("leaked", "fresh"):
        shown[f"overlap_{part}"] = [overlap[part]]
    for part in ("right", "items"):
        shown[f"clean_{part}"] = [overlap[f"clean {part}"]]
    given = {name: settings[name] for name in ("half", "options", "lengths")}
    page = show(LeakBoard([{**shown, "copies": 0}, shown], copies=64, **given))
    holds(said(page), f"Leaked half {2 * row['leaked']} %", f"clean text {row['loss']:.2f}")
    made = leak_board()
    assert (made.copies, made.words, made.level) == (0, "13", 0.05)
