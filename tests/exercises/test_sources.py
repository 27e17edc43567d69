"""The notebooks with solutions keep the form, and what is made from them is fresh."""

import ast
import importlib
import inspect
import json
import re
import shutil
import symtable

import nbformat
import pytest

from llmcourse_classroom.exercises import Check, checks, exercise
from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.grader import hidden
from tests.exercises import gates
from tools.build import build_book
from tools.check import check_notebooks, mutants
from tools.pages import exercises, new_exercise, setup_cells

CHAPTERS = [path.stem for path in build_book.chapters()]
FEWEST, MOST = 3, 7
MARKS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
each_topic = pytest.mark.parametrize("topic", gates.TOPICS)


def test_every_chapter_has_exercises_and_they_follow_it_in_the_book_and_are_listed():
    assert gates.TOPICS == CHAPTERS
    documents = build_book.documents()
    for topic in gates.TOPICS:
        assert documents[documents.index(f"chapters/{topic}") + 1] == f"exercises/{topic}"
    found = json.loads(exercises.CATALOGUE.read_text(encoding="utf8"))
    numbers = [q.number for t in gates.TOPICS for q in exercise.questions(gates.notebook_of(t))]
    assert [question["number"] for question in found["questions"]] == numbers


def test_what_is_generated_is_fresh(capsys):
    assert exercises.main(["--check"]) == 0
    assert "fresh" in capsys.readouterr().out


def test_a_stale_notebook_is_found_and_mended(tmp_path, monkeypatch, capsys):
    root = tmp_path / "root"
    for folder in ("exercises/solutions", "chapters", "llmcourse_classroom/exercises", "book"):
        (root / folder).mkdir(parents=True)
    source = exercises.SOLUTIONS / "05_tokens.ipynb"
    (root / "exercises" / "solutions" / source.name).write_text(source.read_text())
    chapter = build_book.ROOT / "chapters" / source.name
    (root / "chapters" / source.name).write_text(chapter.read_text())
    places = {"ROOT": ".", "FOLDER": "exercises", "SOLUTIONS": "exercises/solutions"}
    places |= {"CATALOGUE": "llmcourse_classroom/exercises/catalogue.json"}
    for name, place in (places | {"PAGE": "book/solutions.md"}).items():
        monkeypatch.setattr(exercises, name, root / place)
    exercises.PAGE.write_text("# Solutions\n\nTry first.\n")
    assert exercises.main(["--check"]) == 1
    assert "exercises/05_tokens.ipynb" in capsys.readouterr().out
    assert (exercises.main([]), exercises.main(["--check"])) == (0, 0)
    learners = root / "exercises" / source.name
    learners.write_text(learners.read_text().replace("YOUR CODE HERE", "your code"))
    assert (exercises.main(["--check"]), exercises.main([])) == (1, 0)
    first, *rows = re.findall(r"^\| .*", exercises.PAGE.read_text(), re.MULTILINE)
    assert first == "| exercises | questions | minutes | points | all solutions |"
    (row,) = rows
    assert row.startswith("| [05 Exercises: from text to token IDs](../exercises/05_tokens.ipynb)")
    link = "{download}`05_tokens <../exercises/solutions/05_tokens.ipynb>`"
    assert row.endswith(f"| 4 | 100 | 8 | {link} |")
    assert exercises.PAGE.read_text().startswith("# Solutions\n\nTry first.\n")
    exercises.PAGE.write_text(exercises.PAGE.read_text().replace("| 100 |", "| 1 |"))
    capsys.readouterr()
    assert exercises.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("stale: book/solutions.md:")


@each_topic
def test_questions_are_three_to_seven_and_numbered_in_a_notebook_that_keeps_the_form(topic):
    notebook = gates.notebook_of(topic)
    nbformat.validate(notebook)
    first = notebook.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith(f"# {topic[:2]} ")
    assert f"(../chapters/{topic}.ipynb)" in first.source
    assert setup_cells.is_stamped(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code" and c.id != setup_cells.CELL_ID]
    assert "set_up(num_threads=1" in code[0].source
    for cell in code:
        assert list(check_notebooks.code_problems(cell, set())) == []
    questions = exercise.questions(notebook)
    assert FEWEST <= len(questions) <= MOST
    numbers = [f"{topic[:2]}.{n}" for n in range(1, len(questions) + 1)]
    assert [question.number for question in questions] == numbers


@each_topic
def test_a_question_is_a_text_an_answer_of_documented_functions_and_a_check_in_one_line(topic):
    cells = gates.notebook_of(topic).cells
    by_id = {exercise.grade_id(cell): place for place, cell in enumerate(cells)}
    for question in exercise.questions(gates.notebook_of(topic)):
        place = by_id[f"{question.key}-answer"]
        text, answer, check = cells[place - 1 : place + 2]
        assert text.source.startswith(f"## {question.number} ")
        assert re.findall(r"<summary>(Hint \d)</summary>", text.source) == ["Hint 1", "Hint 2"]
        assert text.source.count("</details>") == 2
        assert exercise.grade_id(check) == f"{question.key}-check"
        assert set(answer.metadata["nbgrader"]) == MARKS
        assert set(check.metadata["nbgrader"]) == MARKS | {"points"}
        assert not answer.metadata["nbgrader"]["grade"]
        assert not check.metadata["nbgrader"]["solution"]
        stub = exercise.without_solution(question.answer)
        # A question that changes something asks for what changes, and for the conclusion.
        assert 1 <= stub.count("raise NotImplementedError()") <= 4
        functions = [n for n in ast.parse(stub).body if isinstance(n, ast.FunctionDef)]
        assert functions, question.number
        assert all(ast.get_docstring(function) for function in functions)
    for notebook in (gates.notebook_of(topic), exercise.read(exercises.FOLDER / f"{topic}.ipynb")):
        seen = {exercise.grade_id(cell): cell for cell in notebook.cells}
        for question in exercise.questions(notebook):
            cell = seen[f"{question.key}-check"]
            assert cell.source == f'check("{question.number}")'
            assert set(cell.metadata) == {"nbgrader"}


@each_topic
def test_each_question_has_a_check_that_takes_what_its_notebook_defines(topic):
    module = importlib.import_module(f"{checks.__name__}.c{topic}")
    found = {n: f for n, f in vars(module).items() if n.startswith("check_")}
    questions = exercise.questions(gates.notebook_of(topic))
    assert list(found) == [f"check_{q.number[3:]}" for q in questions]
    for question, check in zip(questions, found.values(), strict=True):
        assert check.__doc__ == f"{question.number} {question.title}"
        t, *parameters = inspect.signature(check).parameters.values()
        assert t.name == "t"
        answer = symtable.symtable(question.answer, "", "exec").get_identifiers()
        for parameter in parameters:  # the message for a missing name says which cell to run
            of_answer = parameter.kind is not parameter.KEYWORD_ONLY
            assert (parameter.name in answer) == of_answer, (question.number, parameter.name)
            assert of_answer or parameter.name in gates.setting_of(topic)


def test_a_new_question_is_empty_until_it_is_filled_in(tmp_path):
    """The form is refused by the gates; with one line for each mark it passes them."""
    for folder in ("exercises/solutions", "exercises/hidden", "exercises/mutants"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "llmcourse_classroom" / "exercises" / "checks").mkdir(parents=True)
    with pytest.raises(ValueError, match="write it before its questions"):
        new_exercise.add_question("26", tmp_path)
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "26_learning_rate.ipynb").touch()
    for nth in (1, 2):
        notebook, checks_file, hidden_file, wrong = new_exercise.add_question("26", tmp_path)
        found = exercise.questions(exercise.read(notebook))
        assert [question.number for question in found] == ["26.1", "26.2"][:nth]
    with pytest.raises(NotImplementedError):
        exec(f"{exercise.solution_of(found[1].answer)}\nanswer([1])", {})
    answer = found[1].answer.replace("raise NotImplementedError", "return sum(values)")
    solutions = dict.fromkeys(("26.1", "26.2"), exercise.solution_of(answer))
    with pytest.raises(ValueError, match=r"26\.1 mistake_1: this line is not in the solution"):
        mutants.read(wrong, solutions)
    edited = wrong.read_text().replace("a line of the solution", "return sum(values)")
    wrong.write_text(edited.replace("what is wrong in its place", "return len(values)"))
    names, broken = {}, {}
    exec(solutions["26.2"], names)
    exec(mutants.read(wrong, solutions)[-1].source, broken)
    tests = hidden.load(hidden_file)
    assert hidden.run(tests, "26.2", 2, hidden.Caller(names)).state is State.PASS
    assert hidden.run(tests, "26.2", 2, hidden.Caller(broken)).state is State.NOT_YET
    look = {}
    exec(checks_file.read_text(), look)
    for answers, state in ((names, State.PASS), (broken, State.NOT_YET)):
        with Check("90.1", quiet=True) as t:
            look["check_2"](t, answers["answer"])
        assert t.result.state is state


def test_a_question_that_has_no_place_is_refused(tmp_path, monkeypatch, capsys):
    for name in ("chapters", "exercises/solutions"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(exercises.SOLUTIONS / "26_learning_rate.ipynb", tmp_path / name)
    monkeypatch.setattr(exercises, "ROOT", tmp_path)
    monkeypatch.setattr(new_exercise, "MOST", 2)
    with pytest.raises(SystemExit):
        exercises.main(["--new", "26"])
    assert "at most 2: replace one" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        exercises.main(["--new", "99"])
    assert "no chapter '99'" in capsys.readouterr().err
