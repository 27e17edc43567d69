"""The widget of chapter 06: the page counts as plain Python does, and every control obeys."""

import random

import pytest

from llmcourse_classroom.widgets.funnel import FunnelBoard
from tests.browser.hands import enter
from tests.browser.kit import holds, pictured, table

PAGES = [
    [120, 0.99, 0.0, 0.9, 1],
    [40, 0.99, 0.1, 0.8, 1],  # wanted, but short
    [200, 0.98, 0.95, 0.9, 0],  # a copy
    [90, 0.02, 0.0, 0.4, 0],  # another language
    [30, 0.60, 0.0, 0.1, 0],
    [150, 0.97, 0.2, 0.2, 0],  # spam
    [150, 0.97, 0.2, 0.55, 0],  # spam that passes
]


def many_pages(count=400):
    draws = random.Random(6)
    return [
        [draws.randrange(300), *(round(draws.random(), 3) for _ in range(3)), draws.randrange(2)]
        for _ in range(count)
    ]


def left_after(rows, english, words, similarity, quality):
    after = [rows]
    for keeps in (
        lambda row: row[1] >= english,
        lambda row: row[0] >= words,
        lambda row: row[2] < similarity,
        lambda row: row[3] >= quality,
    ):
        after.append([row for row in after[-1] if keeps(row)])
    return after


@pytest.mark.parametrize("thresholds", [(0.5, 50, 0.7, 0.5), (0, 0, 1.05, 0), (1, 300, 0.1, 1)])
def test_every_step_is_counted_as_python_counts_it(arithmetic, thresholds):
    rows = many_pages()
    named = dict(zip(("english", "words", "similarity", "quality"), thresholds, strict=True))
    steps = arithmetic(FunnelBoard, "funnel", [[rows, named]])[0]
    after = left_after(rows, **named)
    wanted = [sum(row[4] for row in some) for some in after]
    for number, step in enumerate(steps):
        assert (step["taken"], step["kept"]) == (len(after[number]), len(after[number + 1]))
        assert (step["takenWanted"], step["keptWanted"]) == tuple(wanted[number : number + 2])


def test_precision_and_recall_from_their_definitions(arithmetic):
    rows = many_pages()
    named = {"english": 0.3, "words": 80, "similarity": 0.9, "quality": 0.4}
    (steps,) = arithmetic(FunnelBoard, "funnel", [[rows, named]])
    after = left_after(rows, **named)
    found = arithmetic(FunnelBoard, "grades", [[step] for step in steps])
    for grade, before, kept in zip(found, after, after[1:], strict=False):
        dropped = [row for row in before if row not in kept]
        bad = [row for row in before if not row[4]]
        right = sum(not row[4] for row in dropped)
        assert grade["precision"] == pytest.approx(right / len(dropped), abs=0.01)
        assert grade["recall"] == pytest.approx(right / len(bad), abs=0.01)
    nothing = {"taken": 5, "takenWanted": 5, "kept": 5, "keptWanted": 5}  # is dropped
    assert arithmetic(FunnelBoard, "grades", [[nothing]]) == [{"precision": None, "recall": None}]


def test_the_pages_in_words_picture_and_table(show):
    page = show(FunnelBoard(PAGES), says=["2 of 7 pages", "50 % of them", "1 of the 2 wanted"])
    holds(pictured(page), "with prose: 7 pages, 2 wanted; after English: 6 pages, 2 wanted")
    assert table(page) == [
        ["English", "7", "1", "0", "100 %", "20 %"],
        ["length", "6", "2", "1", "50 %", "25 %"],
        ["no copy", "4", "1", "0", "100 %", "33.3 %"],
        ["quality", "3", "1", "0", "100 %", "50 %"],
    ]
    enter(page, "least number of words", "0", "3 of 7 pages", "66.7 %")
    enter(page, "least quality", "1", "0 of 7 pages", "Nothing is left")
