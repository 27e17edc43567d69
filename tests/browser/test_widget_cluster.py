"""The board of chapter 38: the page reckons as the package, and every control obeys.

Mutants that these tests reject: a spare that is counted for jobs that do not keep one, work since
the checkpoint that is kept, a replica that returns in the middle of a checkpoint's interval.
"""

import itertools

import pytest

from llmcourse_classroom.widgets.cluster import ClusterBoard
from llmcourse_labs.scale.scheduler import ANSWERS, Failure, after_failure, node_seconds
from tests.browser.hands import choose, enter, press
from tests.browser.kit import holds, per_cent, pictured, said, table

NAMES = ("replicas", "replica_nodes", "checkpoint_s", "fails_s", "restart_s", "repair_s")
CASES = [
    dict(zip(NAMES, case, strict=True), spares=2, until_s=400)
    for case in itertools.product((1, 3), (1, 4), (7, 60), (5, 140, 399), (0, 30), (0, 90, 500))
]
PAGE = {"replica_nodes": "replicaNodes", "checkpoint_s": "checkpoint", "fails_s": "fails"}
PAGE |= {"restart_s": "restart", "repair_s": "repair", "until_s": "until"}


def pages(case):
    return {PAGE.get(name, name): number for name, number in case.items()}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_stretches_are_the_packages(arithmetic, answer):
    cases = [case for case in CASES if answer != "shrink" or case["replicas"] > 1]
    found = arithmetic(ClusterBoard, "afterFailure", [[pages(case), answer] for case in cases])
    for case, stretches in zip(cases, found, strict=True):
        assert stretches == [list(s) for s in after_failure(Failure(**case), answer)]


def test_the_sums_are_the_packages(arithmetic):
    stretches = [after_failure(Failure(**case), "wait") for case in CASES]
    found = arithmetic(ClusterBoard, "nodeSeconds", [[[list(s) for s in x]] for x in stretches])
    assert found == [node_seconds(each) for each in stretches]


def share(page, answer, column):
    return {row[0]: row[1:] for row in table(page)}[answer][column]


def test_the_table_has_the_three_answers_and_the_board_the_chosen_hour(show):
    page = show(ClusterBoard())
    board = {"replicas": 4, "replica_nodes": 2, "checkpoint_s": 120, "fails_s": 420}
    board |= {"restart_s": 30, "repair_s": 360, "until_s": 1_440}
    rows = ("takes a spare", "waits for the repair", "goes on with fewer replicas")
    for answer, words in zip(ANSWERS, rows, strict=True):
        spares = int(answer == "spare")
        kept = node_seconds(after_failure(Failure(**board, spares=spares), answer))["working"]
        assert share(page, words, 0) == str(8 + spares)
        assert share(page, words, 1) == per_cent(kept / (8 + spares) / 1_440)
    assert "replica 0 down restarting" not in pictured(page)
    enter(page, "shown hour", "7.25")
    holds(pictured(page), "replica 0 down restarting; replica 1 restarting restarting")
    assert pictured(page).endswith("spares restarting")
    choose(page, "the job", "shrink")
    enter(page, "shown hour", "10", picture=["replica 0 down reserved; replica 1 working working"])
    holds(pictured(page, 1), "working 0 to 6, lost 6 to 7, restarting 7 to 7.5")
    enter(page, "replicas", "1")  # one cannot shrink
    holds(said(page), "one replica cannot shrink", "waits")
    assert share(page, "goes on with fewer replicas", 1) == "–"
    enter(page, "shown hour", "23")
    for times, hour in ((1, "23.5"), (2, "24")):
        press(page, "Step", times=times, values={"shown hour": hour})
    press(page, "Reset", values={"shown hour": "0"})
