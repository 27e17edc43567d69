"""Every subject of the source texts has its chapter, its cell and its exercise."""

import pytest

from tools.check import seed_rows

ROWS = seed_rows.rows()
BACKWARD_TEST = "tests/backward/test_backprop.py::test_gradients_equal_autograd"
GONE = "tests/backward/test_backprop.py::test_gone"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['row']}-{row['name']}")
def test_a_row_names_what_exists_and_lacks_nothing(row):
    assert list(seed_rows.problems(row)) == []


def test_there_are_70_rows_in_order_and_every_chapter_is_asked_for():
    assert [row["row"] for row in ROWS] == list(range(1, 71))
    assert len({row["name"] for row in ROWS}) == 70
    asked = set().union(*(seed_rows.numbers(row["chapters"]) for row in ROWS))
    assert asked == {f"{number:02d}" for number in range(1, 45) if number != 4}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"places": []}, "has no place"),
        ({"places": ["19_llama_backward#model-md"]}, "has no cell of chapter 18, 20"),
        ({"places": ["18_backpropagation#gone"]}, "there is no cell gone in 18_backpropagation"),
        ({"places": ["46_more#why"]}, "there is no cell why in 46_more"),
        ({"exercises": []}, "needs exercises, or the reason for having none"),
        ({"reason": "none fits"}, "needs exercises, or the reason for having none"),
        ({"exercises": ["18.9"]}, "there is no exercise 18.9"),
        ({"exercises": ["30.1"]}, "exercise 30.1 is of none of its chapters"),
        ({"widgets": ["CrashLab"]}, "none of its chapters shows the widget CrashLab"),
        ({"tests": ["tests/gone.py::test_x"]}, "there is no test tests/gone.py::test_x"),
        ({"tests": [GONE]}, f"there is no test {GONE}"),
        ({"words": "never said"}, "18_backpropagation#order-md says nothing of never said"),
        ({"words": "never said"}, "BlockTapper says nothing of never said"),
        ({"words": "never", "places": []}, f"{BACKWARD_TEST} says nothing of never"),
    ],
)
def test_what_is_missing_is_said(change, problem):
    backward = next(row for row in ROWS if row["name"] == "P4 backward")
    assert problem in list(seed_rows.problems(backward | change))


def test_the_table_has_a_line_for_each_row_and_its_chapters(capsys, monkeypatch):
    assert seed_rows.numbers("09, 36") == {"09", "36"}
    assert seed_rows.numbers("05-07, 44") == {"05", "06", "07", "44"}
    assert (seed_rows.numbers("all"), seed_rows.main([])) == (set(), 0)
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == [row["name"] for row in ROWS]
    assert all(line.count("|") == 7 for line in lines)
    assert seed_rows.main(["--check"]) == 0
    monkeypatch.setattr(seed_rows, "rows", lambda: [ROWS[1] | {"exercises": ["09.9"]}])
    assert seed_rows.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["row 2 there is no exercise 09.9"]
