"""Exercise notebooks: their questions, the learner's version, hidden tests and mutants."""

import types

import nbformat
import pytest

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.exercises.check import AnswerError, NotAnsweredError
from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.grader import hidden, reader
from tests.classroom import small_exam
from tools.check import mutants

SOLVED = """\
def f(x):
    y = 1
    ### BEGIN SOLUTION
    if x:
        return 2
    ### END SOLUTION"""
OPEN = """\
def f(x):
    y = 1
    # YOUR CODE HERE
    raise NotImplementedError()"""


def test_a_stub_stands_where_the_solution_was():
    assert exercise.without_solution(SOLVED) == OPEN
    assert exercise.without_solution(OPEN) == OPEN
    assert "BEGIN" not in exercise.solution_of(SOLVED)
    assert "return 2" in exercise.solution_of(SOLVED)


@pytest.mark.parametrize("marks", ["BEGIN", "END", "BEGIN BEGIN END"])
def test_marks_come_in_pairs(marks):
    source = "\n".join(f"### {mark} SOLUTION\nx = 1" for mark in marks.split())
    with pytest.raises(exercise.ExerciseError, match="SOLUTION"):
        exercise.without_solution(source)


def test_questions_are_read_from_text_and_marks():
    first, second = exercise.questions(small_exam.notebook())
    assert (first.number, first.title, first.points, first.key) == ("90.1", "add", 2.0, "90-1")
    assert (second.difficulty, second.minutes, second.trains) == (1, 5, "double")
    assert first.answer == small_exam.ADD
    assert second.answer == small_exam.DOUBLE


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("**Minutes** 5", "Minutes 5", "does not state its facts"),
        ("**Difficulty** 1 of 5", "**Difficulty** 9 of 5", "does not state its facts"),
        ("## 90.", "## Question ", "no question"),
        ("90-2-check", "", r"90\.2 has no cell 90-2-answer or -check"),
    ],
)
def test_a_text_without_its_facts_and_a_question_without_a_check_are_refused(old, new, says):
    notebook = nbformat.reads(small_exam.text().replace(old, new), as_version=4)
    with pytest.raises(exercise.ExerciseError, match=says):
        exercise.questions(notebook)


OWN = "def helper(x):\n    return 2 * x"


@pytest.mark.parametrize("check", ['check("90.1")', "check('90.1')  # again", small_exam.CHECK_1])
def test_a_check_is_not_run_with_a_submission_but_what_stands_beside_it_is(check):
    for cell in (f"{check}\n{OWN}", f"{OWN}\n{check}"):
        assert reader.to_run(reader.Cell(cell, "", "", is_check=False)) == OWN
    assert reader.to_run(reader.Cell(check, "", "90-1-check", is_check=True)) == ""


@pytest.mark.parametrize("own", ["check(numbers)", 'found = check("90.1")', "def check(x): ..."])
def test_a_function_of_the_learner_s_own_that_is_called_check_is_run(own):
    assert reader.to_run(reader.Cell(own, "", "", is_check=False)) == own


def test_same_seed_same_inputs_and_each_question_its_own():
    drawn, tests = [], types.ModuleType("tests")
    tests.check_1 = tests.check_2 = lambda t, call, rng: drawn.append(rng.random())
    for question in ("05.1", "05.2"):
        for seed in (0, 0, 1):
            hidden.run(tests, question, 1, print, seed=seed)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 4


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (small_exam.ADD, State.PASS),
        (small_exam.STUB, State.NOT_ANSWERED),
        ("pass", State.NOT_ANSWERED),
        ("add_all = 5", State.NOT_ANSWERED),
        ("def add_all(numbers):\n    return 0", State.NOT_YET),
        ("def add_all(numbers):\n    return object()", State.NOT_YET),
        ("def add_all(numbers):\n    return 1 / 0", State.NOT_YET),
    ],
)
def test_hidden_tests_in_one_process(tmp_path, answer, state):
    names, path = {}, tmp_path / "90_small.py"
    exec(answer, names)
    path.write_text(small_exam.HIDDEN)
    assert hidden.run(hidden.load(path), "90.1", 2, hidden.Caller(names)).state is state


def test_an_answer_cannot_change_the_inputs_of_the_tests_and_a_missing_function_is_named():
    given = [3, 1, 2]
    assert hidden.Caller({"f": lambda x: x.sort()})("f", given) is None
    assert given == [3, 1, 2]
    with pytest.raises(NotAnsweredError, match="no function f"):
        hidden.Caller({})("f", 1)
    assert issubclass(NotAnsweredError, AnswerError)


def test_inline_raises_only_when_it_is_asked_to(monkeypatch):
    names = {"add_all": lambda numbers: 0}
    monkeypatch.delenv("LLMCOURSE_STRICT", raising=False)
    assert hidden.inline(small_exam.HIDDEN, "90.1", points=2, names=names).score == 0
    monkeypatch.setenv("LLMCOURSE_STRICT", "1")
    with pytest.raises(AssertionError, match="the sum is another one"):
        hidden.inline(small_exam.HIDDEN, "90.1", points=2, names=names)
    names = {"add_all": sum}
    assert hidden.inline(small_exam.HIDDEN, "90.1", points=2, names=names).score == 2


SOLUTIONS = {
    "90.1": """\
def add_all(numbers):
    total = 0

    for x in numbers:
        total += x
    return total
""",
    "90.2": "def double(x):\n    return 2 * x\n",
}
MUTANTS = """\
# Wrong answers.

# %% 90.1 products
# says: you began with
# nothing and stayed there
      for x in numbers:
-         total += x
+         total *= x

-     return total
+     return int(total)

# %% 90.1 one_more
# says: 1 too many
      total = 0
+     total += 1

# %% 90.2 same
# says: twice is not once
def double(x):
    return x
"""


@pytest.fixture
def written(tmp_path):

    def read(*change):
        assert not change or change[0] in MUTANTS
        path = tmp_path / "90_small.diff"
        path.write_text(MUTANTS.replace(*change) if change else MUTANTS)
        return mutants.read(path, SOLUTIONS)

    return read


def test_mutants_are_edits_or_cells_with_a_message(written):
    products, more, same = written()
    assert (products.question, products.name) == ("90.1", "products")
    assert products.says == "you began with nothing and stayed there"
    head = "def add_all(numbers):\n    total = 0\n"
    loop = "    for x in numbers:\n        total {}= x\n"
    assert products.source == head + loop.format("*") + "    return int(total)\n"
    assert more.source == head + "    total += 1\n" + loop.format("+") + "    return total\n"
    assert (same.says, same.source) == ("twice is not once", "def double(x):\n    return x\n")
    twice = "a = 1\nb = 2\na = 1\n"
    with pytest.raises(ValueError, match="more than once:\na = 1"):
        mutants.edited(twice, "- a = 1")
    assert mutants.edited(twice, "  b = 2\n- a = 1\n+ a = 3") == "a = 1\nb = 2\na = 3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("# says: twice", "# twice"), "a mutant begins"),
        (("90.2 same", "90.2"), "a mutant begins"),
        (("90.2 same", "second same"), "a mutant begins"),
        (("-         total += x", "-         total += y"), r"solution: '        total \+= y'"),
        (("-         total += x", "-     total += x"), r"not in the solution: '    total \+= x'"),
        (("      for x in numbers:", "      for y in numbers:"), "not in the solution: '    for y"),
        (("      for x in numbers:\n", "      total = 0\n"), "do not follow each other"),
        (("      total = 0\n", ""), "new lines alone"),
        (("\n-     return total", "-     return sum"), "not in the solution"),
        (("+     return int(total)", "      return int(total)"), "not in the solution"),
        (("+     return int(total)", "return int(total)"), "begin a line with"),
        (("-     return total\n", "      total = 0\n"), "before the edit above"),
        (("-     return total\n", "-         total += x\n"), "before the edit above"),
        (("90.2 same", "90.3 same"), "90.3, which has no solution"),
    ],
)
def test_a_mutant_without_its_head_or_with_an_edit_that_does_not_fit(written, change, message):
    with pytest.raises(ValueError, match=r"90_small.diff: .*" + message):
        written(*change)


GIVEN = "import os\nx = 1\ndef helper():\n    return os"
BESIDE = small_exam.STUB + "\n\ndef observed(numbers):\n    return add_all(numbers)"


def test_functions_beside_a_stub_are_given_and_answers_are_not():
    cells = small_exam.cells(add=BESIDE, extra=[GIVEN, "%pip install x"])
    source, names = exercise.given(small_exam.notebook(cells))
    assert names == {"observed"}
    assert "import os" in source
    assert "def helper" in source
    for word in ("x = 1", "def add_all", "def double"):
        assert word not in source
