"""The board of chapter 38: the page reckons as the package, and every control obeys.

Mutants that these tests reject: a spare that is counted for jobs that do not keep one, work since
the checkpoint that is kept, a replica that returns in the middle of a checkpoint's interval.
"""

import itertools

import pytest

from llmcourse.course.widgets.cluster import ClusterBoard
from llmcourse.scale.scheduler import ANSWERS, Failure, after_failure, node_seconds
from tests.browser.kit import choose, enter, noted, pictured, said, table, value

CASES = [
    {
        "replicas": replicas,
        "replica_nodes": nodes,
        "spares": 2,
        "checkpoint_s": checkpoint,
        "fails_s": fails,
        "restart_s": restart,
        "repair_s": repair,
        "until_s": 400,
    }
    for replicas, nodes, checkpoint, fails, restart, repair in itertools.product(
        (1, 3), (1, 4), (7, 60), (5, 140, 399), (0, 30), (0, 90, 500)
    )
]
PAGE = {
    "replica_nodes": "replicaNodes",
    "checkpoint_s": "checkpoint",
    "fails_s": "fails",
    "restart_s": "restart",
    "repair_s": "repair",
    "until_s": "until",
}


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
    found = arithmetic(
        ClusterBoard, "nodeSeconds", [[[list(s) for s in each]] for each in stretches]
    )
    assert found == [node_seconds(each) for each in stretches]


def share(page, answer, column):
    """A number of the table."""
    rows = {row[0]: row[1:] for row in table(page)}
    return rows[answer][column]


def test_the_table_has_the_three_answers(show):
    page = show(ClusterBoard())
    board = {"replicas": 4, "replica_nodes": 2, "checkpoint_s": 120, "fails_s": 420}
    board |= {"restart_s": 30, "repair_s": 360, "until_s": 1_440}
    for answer, words in zip(
        ANSWERS,
        ("takes a spare", "waits for the repair", "goes on with fewer replicas"),
        strict=True,
    ):
        spares = int(answer == "spare")
        kept = node_seconds(after_failure(Failure(**board, spares=spares), answer))["working"]
        assert share(page, words, 0) == str(8 + spares)
        assert share(page, words, 1) == f"{100 * kept / (8 + spares) / 1_440:.1f} %"


def test_the_board_shows_the_chosen_hour(show):
    page = show(ClusterBoard())
    assert "replica 0 down restarting" not in pictured(page)
    enter(page, "shown hour", "7.25")
    assert "replica 0 down restarting; replica 1 restarting restarting" in pictured(page)
    assert pictured(page).endswith("spares restarting")
    choose(page, "the job", "shrink")
    enter(page, "shown hour", "10")
    assert "replica 0 down reserved; replica 1 working working" in pictured(page)
    assert "other replicas working 0 to 6, lost 6 to 7, restarting 7 to 7.5" in pictured(page, 1)


def test_one_replica_cannot_shrink(show):
    page = show(ClusterBoard(answer="shrink", replicas=1))
    assert said(page).startswith("A job of one replica cannot shrink, so it waits.")
    assert share(page, "goes on with fewer replicas", 1) == "–"


def test_play_goes_to_the_end_of_the_day_and_reset_to_its_start(show):
    page = show(ClusterBoard(hour=23))
    page.get_by_role("button", name="Step").click()
    assert value(page, "shown hour") == "23.5"
    page.get_by_role("button", name="Step").click()
    page.get_by_role("button", name="Step").click()
    assert value(page, "shown hour") == "24"
    page.get_by_role("button", name="Reset").click()
    assert value(page, "shown hour") == "0"


def test_what_is_impossible_is_clamped_and_said(show):
    page = show(ClusterBoard())
    enter(page, "replicas", "99")
    assert "99 is not possible" in noted(page)
    assert value(page, "replicas") == "8"
    with pytest.raises(ValueError, match="answer must be one of spare, wait, shrink"):
        ClusterBoard(answer="hope")
