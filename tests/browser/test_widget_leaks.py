"""The widget of chapter 44: intervals, rows and alarms are those of Python."""

from statistics import NormalDist

from llmcourse_classroom.widgets import LeakBoard
from llmcourse_labs.evaluate import wilson
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import leak_board
from tests.browser.twins import compared, twin

COUNTS = [[k, n] for n in (1, 3, 50, 150) for k in (0, 1, n // 2, n)]
WITHIN = 2 * NormalDist().cdf(1.959964) - 1
P_VALUES, ALARMS = [0.001, 0.05, 0.2], {0.0005: 0, 0.001: 1, 0.05: 2, 0.1: 2, 0.5: 3}
test_the_page_reckons_as_python = compared(
    LeakBoard,
    twin("wilson", COUNTS, lambda *count: wilson(*count, confidence=WITHIN), abs=1e-9),
    twin("alarms", [([P_VALUES, level], n) for level, n in ALARMS.items()]),
    twin("meanOf", [([[1, 2, 6]], 3)]),
    twin("total", [([[]], 0), ([[1, 2]], 3)]),
)


def test_every_control_changes_what_is_said(show):
    page = show(leak_board(copies="16"))
    holds(
        said(page), "16 copies, 3 seeds", "Leaked half 42 % (34 to 50)", "fresh half 8 % (5 to 13)"
    )
    holds(said(page), "clean text 0.88", "runs of 13 words", "8 % of 150", "all 300 it is 25 %")
    holds(pictured(page), "64 copies: leaked half 84 %, fresh half 10 %")
    holds(pictured(page, 1), "64 retold copies: 0.90")
    rows = table(page)
    assert rows[0] == ["runs of 13 words", "100 % of leaked questions", "0 % of fresh questions"]
    assert rows[1][:2] == ["canary", "3 of 3 seeds"]
    assert rows[2][1:] == ["20 % of leaked questions", "4 % of fresh questions"]
    assert rows[3] == ["order of the questions", "3 of 3 seeds", "5 %"]
    choose(page, "copies", "0", "Recorded: 0 copies")
    choose(page, "copies", "64", "Recorded: 64 copies, 3 seeds", "Leaked half 84 %")
    choose(page, "runs of so many words", "3", "Runs of 3 words", "no clean subset")
    enter(page, "level", "0.01")
    assert table(page)[3][1:] == ["0 of 3 seeds", "1 %"]
    choose(page, "copies", "64 retold", "Recorded: 64 retold copies")
    assert table(page)[1][1] == "0 of 3 seeds"
