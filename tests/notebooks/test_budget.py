"""Chapters from now on keep the budget of lines; seconds are for `python -m tools.check.budget`."""

import math

import nbformat

from tools.build import build_book, closure
from tools.check import budget

TOPICS = [path.stem for path in build_book.chapters()]


def test_every_chapter_keeps_its_budget():
    found = budget.costs(TOPICS)
    assert budget.too_much(found, without={"seconds"}) == [], budget.table(found)


def test_a_chapter_over_the_budget_is_named():
    most = budget.LIMIT
    assert budget.too_much({"06_new": most}) == []
    over = budget.Cost(501, 251, 501, 36)
    told = [line.split(",")[0] for line in budget.too_much({"06_new": over})]
    costs = ("package 501", "script 251", "tests 501", "seconds 36")
    assert told == [f"06_new: {cost}" for cost in costs]
    assert len(budget.too_much({"06_new": over}, without={"seconds"})) == 3
    assert budget.too_much({"06_new": most._replace(seconds=math.nan)})  # never executed
    assert budget.too_much({budget.BUILT_BEFORE[0]: over}) == []


def test_modules_scripts_and_tests_belong_to_the_first_that_needs_them(tmp_path, monkeypatch):
    files = {"llmcourse/__init__.py": "", "llmcourse/old.py": ""}
    files |= {"llmcourse/new.py": "import llmcourse.old, llmcourse.below\nscript = 'board'"}
    files |= {"llmcourse/below.py": "", "llmcourse/later.py": "import llmcourse.new"}
    files |= {"llmcourse/board.js": "", "llmcourse/other.js": ""}
    files |= {"tests/test_new.py": "import llmcourse.new, llmcourse.below, llmcourse.old"}
    files |= {"tests/test_old.py": "import llmcourse.new, llmcourse.old"}
    files |= {"exercises/hidden/06_new.py": "import llmcourse.below"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    cells = {"05_tokens": "import llmcourse.old", "06_new": "import llmcourse.new"}
    cells |= {"07_later": "import llmcourse.later"}
    (tmp_path / "chapters").mkdir()
    for topic, code in cells.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        nbformat.write(notebook, tmp_path / "chapters" / f"{topic}.ipynb")
    monkeypatch.setattr(closure, "ROOT", tmp_path)
    monkeypatch.setattr(closure, "IMPORTED_FROM", (tmp_path,))
    closure.forget()
    modules = budget.modules_of(["06_new", "07_later", "05_tokens"])
    names = {topic[:2]: {path.name for path in paths} for topic, paths in modules.items()}
    first = {"__init__.py", "old.py"}
    assert names == {"05": first, "06": {"new.py", "below.py"}, "07": {"later.py"}}
    assert [path.name for path in budget.scripts_of(modules["06_new"])] == ["board.js"]
    assert [path.name for path in budget.tests_of(modules["06_new"])] == ["test_new.py"]
    assert budget.tests_of(modules["07_later"]) == []
    closure.forget()
