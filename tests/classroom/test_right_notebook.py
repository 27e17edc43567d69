"""The notebook that was meant is taken, and a learner's code is what it was."""

import logging
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from llmcourse_classroom.grader.batch import submissions
from llmcourse_classroom.grader.reader import Cell
from llmcourse_classroom.grader.submission import _oddities
from llmcourse_classroom.own import assemble


def notebook(path, *sources, mark=""):
    cells = [new_code_cell(source, id=f"c{number}") for number, source in enumerate(sources)]
    cells[0].metadata = {"nbgrader": {"grade_id": mark}} if mark else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)


PIECE = next(p for p in assemble.pieces(assemble.template()) if p.number == "26.1")
RATE = "def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):\n"


def source_of(folder):
    found = assemble.answer(folder, PIECE)
    assert found.problem == ""
    return "\n".join([*found.helpers.values(), found.source])


@pytest.mark.parametrize(
    "body",
    [
        "    return (\n        peak\n        % num_steps\n    )\n",
        "    a = step\n    return (peak\n            != a)\n",
        '    text = """\n%time is no magic here\n!ls neither\n    """\n    return len(text)\n',
        "    return peak  # 100 % of it\n",
    ],
)
def test_no_line_of_an_answer_is_taken_for_a_magic(body, tmp_path):
    notebook(tmp_path / "26_learning_rate.ipynb", RATE + body)
    assert source_of(tmp_path) == (RATE + body).rstrip()


@pytest.mark.parametrize("before", ["%config x", "!ls", "files = !ls", "%%time", "len?", "\n"])
def test_magics_beside_an_answer_do_not_stand_in_its_way(before, tmp_path):
    notebook(tmp_path / "26_learning_rate.ipynb", f"{before}\n{RATE}    return peak\n")
    assert source_of(tmp_path) == f"{RATE}    return peak"


def test_a_copy_is_not_taken_in_place_of_the_original(tmp_path):
    names = ("26_learning_rate.ipynb", "26_learning_rate-Copy1.ipynb", "26_learning_rate (1).ipynb")
    for name in names:
        notebook(tmp_path / name, f"{RATE}    return {name!r}\n")
    assert names[0] in source_of(tmp_path)


def test_a_notebook_of_another_name_is_known_by_its_questions(tmp_path):
    notebook(tmp_path / "a.ipynb", f"{RATE}    return 0\n", mark="25-1-answer")
    notebook(tmp_path / "my answers.ipynb", f"{RATE}    return peak\n", mark="26-1-answer")
    (tmp_path / "b.ipynb").write_text("{}")
    assert "return peak" in source_of(tmp_path)


def taken(folder):
    found = submissions(folder, "05_tokens")
    return {name: str(path.relative_to(folder)) for name, path in found.items()}


@pytest.mark.parametrize(
    ("files", "right"),
    [
        ({"04_pairs.ipynb": "04", "my answers.ipynb": "05"}, "my answers.ipynb"),
        ({"04_pairs.ipynb": "04", "05_tokens (1).ipynb": ""}, "05_tokens (1).ipynb"),
        ({"05_tokens-Copy1.ipynb": "05", "05_tokens.ipynb": "05"}, "05_tokens.ipynb"),
        ({"05_tokens.ipynb": "04", "zz.ipynb": "05"}, "zz.ipynb"),
        ({"05_tokens/05_tokens.ipynb": "05"}, "05_tokens/05_tokens.ipynb"),
        ({"04_pairs/04_pairs.ipynb": "04", "05_tokens/x.ipynb": "05"}, "05_tokens/x.ipynb"),
        ({"04_pairs.ipynb": "04"}, "04_pairs.ipynb"),
        ({}, "05_tokens.ipynb"),
    ],
)
def test_the_notebook_with_the_questions_is_taken(files, right, tmp_path):
    (tmp_path / "ann").mkdir()
    for name, chapter in files.items():
        notebook(tmp_path / "ann" / name, "x = 1", mark=f"{chapter}-1-answer" if chapter else "")
    assert taken(tmp_path) == {"ann": f"ann/{right}"}


def test_what_nobody_has_submitted_is_named_and_not_graded(tmp_path, caplog):
    notebook(tmp_path / "ann" / "05_tokens.ipynb", "x = 1")
    notebook(tmp_path / "bob.ipynb", "x = 1")
    (tmp_path / "carol.txt").write_text("my notebook does not open")
    (tmp_path / "__MACOSX").mkdir()
    for name in ("Thumbs.db", "grades.csv", ".DS_Store"):
        (tmp_path / name).write_text("")
    with caplog.at_level(logging.WARNING):
        found = taken(tmp_path)
    assert list(found) == ["ann", "bob", "carol.txt"]  # a wrong file is somebody's, too
    (said,) = caplog.messages
    assert said == f"not taken for submissions in {tmp_path}: Thumbs.db, __MACOSX, grades.csv"


def test_an_answer_that_is_no_code_is_told():
    cells = [Cell("x", "a", "05-1-answer", False), Cell("y", "b", "05-2-answer", False, "markdown")]
    (said,) = _oddities(cells, "05_tokens")
    assert said.startswith("the answer 05-2-answer is a cell of markdown, not of code")


def test_a_link_that_may_not_be_followed_is_one_submission_and_no_end(tmp_path, monkeypatch):
    """As root nothing is forbidden, so the answer of the system stands in for it."""
    notebook(tmp_path / "ann" / "05_tokens.ipynb", "x = 1")
    (tmp_path / "bob").symlink_to("/proc/1/cwd")
    (tmp_path / "carol").mkdir()
    (tmp_path / "carol" / "05_tokens").symlink_to("/proc/1/cwd")
    is_dir = Path.is_dir

    def forbidden(path):
        if path.is_symlink():
            raise PermissionError(13, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", forbidden)
    assert list(taken(tmp_path)) == ["ann", "bob", "carol"]
