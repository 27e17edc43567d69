"""scale.laws.grid: the table of runs on the stories, what it may be, and a row of it again."""

import json
from dataclasses import replace

import pytest

from llmcourse_classroom.plots import LOSS_FLOOR
from llmcourse_labs.scale.laws import grid, recorded_grid
from llmcourse_labs.scale.laws.__main__ import main

QUICK = grid.Plan(2e10, 32, 0)
"""The run of the grid that takes least."""


def test_every_planned_run_is_recorded():
    found = recorded_grid()
    assert [(r.flop, r.width, r.seed, r.held_out) for r in found.runs] == [
        tuple(plan) for plan in grid.plans()
    ]
    assert 25 <= len(found.fitted) <= 40
    assert found.settings == grid.settings()
    assert found.entropy == pytest.approx(LOSS_FLOOR, abs=2e-4)
    for run in found.runs:
        assert run.counted_flop == pytest.approx(run.flop, rel=2e-3), run
        assert run.loss > found.entropy, run


def test_a_row_again_has_the_recorded_loss():
    """On another processor a run ends nearby; another rate or twice the text would not."""
    again = grid.train(QUICK, grid.stories_of(grid.needed_bytes([QUICK]), grid.SEED_OF_READ))
    (row,) = [r for r in recorded_grid().fitted if (r.flop, r.width) == (QUICK.flop, QUICK.width)]
    exact = ("num_parameters", "num_non_embedding", "num_tokens", "num_steps", "counted_flop")
    for name in (*exact, "learning_rate"):
        assert getattr(again, name) == getattr(row, name), name
    assert again.loss == pytest.approx(row.loss, abs=0.15)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"corpus": "addresses"}, "corpus"), ({"tokenizer": "0" * 64}, "tokenizer")],
)
def test_a_table_of_another_text_is_refused(tmp_path, capsys, change, told):
    table = json.loads((grid.Path(grid.__file__).parent / "stories.json").read_text())
    table["settings"] |= change
    path = tmp_path / "other.json"
    path.write_text(json.dumps(table))
    assert main(["fit", "--table", str(path)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1
    with pytest.raises(ValueError, match=told):
        grid.run_all(path, planned=[QUICK])
    assert json.loads(path.read_text()) == table


def test_a_call_that_was_cut_short_goes_on(tmp_path):
    done = []

    def train(plan, stories):
        done.append(plan)
        return replace(recorded_grid().runs[0], **plan._asdict())

    path = tmp_path / "table.json"
    first, second = QUICK, grid.Plan(2e10, 24, 0)
    grid.run_all(path, planned=[first], train_one=train)
    found = grid.run_all(path, planned=[first, second], train_one=train)
    assert done == [first, second]
    assert {run.width for run in found.runs} == {32, 24}
    assert len(grid.read_grid(path).runs) == 2


def test_what_is_no_table_is_told(tmp_path, capsys):
    path = tmp_path / "empty.json"
    path.write_text("{}")
    assert main(["fit", "--table", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert main(["fit", "--table", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_stories_that_do_not_suffice_are_told():
    with pytest.raises(ValueError, match="give more stories"):
        grid.train(QUICK, grid.stories_of(5_000, 0))
