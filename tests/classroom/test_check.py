"""A check says what holds and what a mistake means, and never raises unless it is asked to."""

import os
import re
import subprocess
import sys
from unittest.mock import Mock

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from llmcourse_classroom.exercises import Check, check, progress
from llmcourse_classroom.exercises.result import Line, Result, State, as_html
from tests.classroom.small_exam import Reader

CHECKS = "llmcourse_classroom/exercises/checks"
pytestmark = pytest.mark.depends_on(f"{CHECKS}/c00_how_to_use.py", f"{CHECKS}/c21_pipelines.py")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("LLMCOURSE_PROGRESS", "off")
    monkeypatch.delenv("LLMCOURSE_STRICT", raising=False)


def cell(source, **names):
    exec(compile(source, "<cell answer>", "exec"), names)
    return names


def test_all_lines_that_hold_are_a_pass_and_one_that_does_not_names_the_misconception(capsys):
    with Check("05.1", points=2) as t:
        assert t(True, "you did x", "x holds")
        assert t.equal([1, 2], (1, 2), "you did y")
        assert t.close(1.0 + 1e-9, 1.0, "you did z")
    assert t.result.state is State.PASS
    assert t.result.score == 2
    told = "05.1 PASS, 2 points\n  PASS             x holds\n  PASS             check 2\n"
    assert capsys.readouterr().out.startswith(told)
    with Check("05.1") as t:
        assert not t.equal(3, 4, "you averaged the averages")
        assert t(True, "", "the next line is still looked at")
    assert t.result.state is State.NOT_YET
    assert t.result.score == 0
    out = capsys.readouterr().out
    assert "05.1 NOT YET, 1 of 2 checks hold" in out
    assert "NOT YET          you averaged the averages" in out
    assert "yours: 3, expected: 4" in out


CRASH = "y = 1 - 1\n    return g(y)\n\ndef g(y):\n    return 1 / y"
IN_A_LIBRARY = "torch.ones(2) @ torch.ones(3)"
ANSWERS = {
    "# YOUR CODE HERE\n    raise NotImplementedError()": "05.1 not answered yet, 1 point to win",
    "return undefined_name + 1": "NameError: name 'undefined_name' is not defined, at line 2",
    CRASH: "your code stopped with ZeroDivisionError: division by zero, at line 6 of",
    f"import torch\n    return {IN_A_LIBRARY}": "at line 3 of your cell",
}


@pytest.mark.parametrize("body", ANSWERS, ids=["a stub", "a name", "a crash", "in a library"])
def test_a_stub_is_not_answered_yet_and_a_crash_shows_its_line_and_no_trace(body, capsys):
    fact, answer = ANSWERS[body], cell(f"def f():\n    {body}")["f"]
    with Check("05.1") as t:
        t(answer() == 1, "no")
    assert t.result.state is (State.NOT_ANSWERED if "YOUR CODE" in body else State.NOT_YET)
    out = capsys.readouterr().out
    assert fact in out
    assert "Traceback" not in out


def test_a_function_that_is_not_there_and_a_check_without_a_line_are_not_answered(capsys):
    with Check("05.1") as t:
        t(missing_function() == 1, "no")  # noqa: F821  that is the test
    assert t.result.state is State.NOT_ANSWERED
    assert "missing_function is not defined: run the cell" in capsys.readouterr().out
    with Check("05.1") as t:
        pass
    assert t.result.state is State.NOT_ANSWERED


def test_an_interrupt_leaves_the_check_and_its_own_crash_says_that_it_used_the_answer():
    with Check("05.1") as t:
        nothing = dict.fromkeys([1])
        t(nothing[1][0] == 1, "no")
    assert "where the check used what you returned" in t.result.lines[0].meaning
    with pytest.raises(KeyboardInterrupt), Check("05.1"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [SystemExit(3), RecursionError(), MemoryError(), OSError("x")])
def test_whatever_an_answer_raises_nothing_leaves_the_check(error):
    with Check("05.1") as t:
        t(Mock(side_effect=error)(), "no")
    assert t.result.state is State.NOT_YET
    assert type(error).__name__ in t.result.lines[0].meaning


TRUTHS = [torch.tensor(True), np.bool_(True), np.array(True), True]
OTHERS = [1, "yes", [1], None, torch.ones(2) == 1, np.ones(1)]


@pytest.mark.parametrize("condition", [*TRUTHS, *OTHERS])
def test_a_truth_value_may_be_an_array_of_one_and_nothing_else(condition):
    with Check("05.1") as t:
        t(condition, "no")
    is_truth = any(condition is truth for truth in TRUTHS)
    assert t.result.state is (State.PASS if is_truth else State.NOT_YET)
    assert is_truth or "a check needs True or False" in t.result.lines[0].meaning


def test_an_open_question_and_a_wrong_one_raise_if_it_is_strict(monkeypatch):
    monkeypatch.setenv("LLMCOURSE_STRICT", "1")
    with pytest.raises(AssertionError, match="you averaged"), Check("05.1") as t:
        t(False, "you averaged")
    with pytest.raises(AssertionError, match="not answered yet"), Check("05.1") as t:
        raise NotImplementedError
    with Check("05.1") as t:
        t(True, "no")
    with pytest.raises(AssertionError, match="your loss is not above 0"):
        exec('check("00.1")', cell(MEAN.replace("-sum", "sum"), check=check))


@pytest.mark.parametrize("value", ["0", "", "yes", "true"])
def test_only_the_value_1_is_strict(monkeypatch, value):
    monkeypatch.setenv("LLMCOURSE_STRICT", value)
    with Check("05.1") as t:
        t(False, "no")
    assert t.result.state is State.NOT_YET


@pytest.mark.parametrize(
    ("question", "points", "fact"),
    [(n, 1, r"such as '05\.1'") for n in ("5.1", "05", "05.0", "05-1", "", "005.1")]
    + [("05.1", points, "points must be more than 0") for points in (0, -1, float("nan"))],
)
def test_a_question_has_a_chapter_a_number_and_points(question, points, fact):
    with pytest.raises(ValueError, match=fact):
        Check(question, points=points)


SCRIPT = Line(State.NOT_YET, "you <script>alert(1)</script>", "yours: '<b>'")
RESULT = Result("05.1", 2, [Line(State.PASS, "a < b & c"), SCRIPT])


def test_the_html_says_the_state_in_words_without_colours_and_escapes_the_rest():
    read = Reader(as_html(RESULT))
    assert "script" not in [tag for tag, _ in read.tags]
    assert {"NOT YET", "PASS"} <= set(read.texts)
    assert any(attrs.get("role") == "status" for _, attrs in read.tags)
    assert [tag for tag, _ in read.tags].count("li") == 2
    assert "you <script>alert(1)</script>" in " ".join(read.texts)
    for _, attrs in read.tags:
        assert not re.search(r"(^|;)\s*(color|background)", attrs.get("style", ""))


def test_a_notebook_shows_html_and_text():
    sources = [
        "from llmcourse_classroom.exercises import Check, check",
        "def mean_surprise(probabilities):\n    return 1 / 0",
        'check("00.1")',
        'with Check("05.1") as t:\n    t(False, "you did")',
    ]
    cells = [new_code_cell(source, id=f"c{len(source)}") for source in sources]
    notebook = new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[:2] == [[], []]
    says = ["ZeroDivisionError: division by zero, at line 2 of your cell: return 1 / 0", "you did"]
    for (output,), words in zip(outputs[2:], says, strict=True):
        assert output.output_type == "display_data"
        assert words in output.data["text/plain"]
        assert 'role="status"' in output.data["text/html"]
    nbformat.validate(notebook)


MEAN = "import math\n\ndef mean_surprise(p):\n    return -sum(map(math.log, p)) / len(p)"
HINTS = "Question 00.1 has two hints, folded at the end of its text, above your answer."


def test_one_line_finds_the_answer_and_keeps_what_it_found(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LLMCOURSE_PROGRESS", str(tmp_path / "progress.json"))
    exec('check("00.1")', cell(MEAN, check=check))
    out = capsys.readouterr().out
    assert out.startswith("00.1 PASS, 1 point\n")
    assert "hints" not in out
    assert progress.read(tmp_path / "progress.json")["00.1"]["state"] == State.PASS


def test_one_line_says_what_a_mistake_means_and_where_the_hints_are(capsys):
    exec('check("00.1")', cell(MEAN.replace("-sum", "sum"), check=check))
    out = capsys.readouterr().out
    assert "your loss is not above 0: ln 0.2 is negative" in out
    assert out.endswith(f"\nStuck? {HINTS}\n")
    assert HINTS in as_html(Result("00.1", 2, [Line(State.NOT_YET, "no")], HINTS))
    assert HINTS not in as_html(Result("00.1", 2, [Line(State.NOT_ANSWERED, "no")], HINTS))


@pytest.mark.parametrize(
    ("question", "given", "says"),
    [
        ("00.1", "", "mean_surprise is not defined: run the cell with your answer first"),
        ("21.2", "bubble = str", "row is not defined: run all cells above first"),
    ],
)
def test_one_line_names_the_cell_that_has_not_been_run(question, given, says, capsys):
    exec(f'check("{question}")', cell(given, check=check))
    assert capsys.readouterr().out.endswith(f"  not answered yet {says}\n")


@pytest.mark.parametrize(
    ("question", "says"),
    [("99.9", "use '00.1' to"), ("00.9", "use '00.1' to '00.4'"), (0.1, "use"), ([], "use")],
)
def test_a_question_that_is_not_there_is_one_line(question, says, capsys, monkeypatch):
    check(question)
    out = capsys.readouterr().out
    assert out.startswith(f"there is no exercise {question!r}: {says}")
    assert out.count("\n") == 1
    monkeypatch.setenv("LLMCOURSE_STRICT", "1")
    with pytest.raises(ValueError, match="there is no exercise"):
        check(question)


def run_python(*words):
    env = os.environ | {"LLMCOURSE_PROGRESS": "off"}
    words = [sys.executable, *words]
    return subprocess.run(words, capture_output=True, text=True, env=env, check=True).stdout


def test_a_script_may_check_its_answer_and_a_terminal_needs_no_ipython(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from llmcourse_classroom.exercises import check\n\n\n"
        'def mean_surprise(p):\n    return 1 / 0\n\n\ncheck("00.1")\n'
    )
    assert "division by zero, at line 5 of your file: return 1 / 0" in run_python(str(path))
    code = (
        "import sys\nfrom llmcourse_classroom.exercises import Check\n"
        "assert 'IPython' not in sys.modules\n"
        "with Check('05.1') as t:\n    t(True, 'no')\n"
    )
    assert run_python("-c", code).startswith("05.1 PASS, 1 point\n")


def test_only_the_first_line_that_fails_says_what_it_means(capsys):
    with Check("05.1") as t:
        t(True, "a", "first holds")
        t(False, "you forgot the minus", "the sign is right")
        t(False, "you forgot the minus", "the sign is right")
        t(False, "you took another logarithm", "the logarithm is natural")
        raise ValueError("too much")
    out = capsys.readouterr().out
    assert out.count("NOT YET          you forgot the minus") == 1
    assert "does not hold either: the sign is right" in out
    assert "does not hold either: the logarithm is natural" in out
    assert "another logarithm" not in out
    assert "ValueError: too much" in out
    assert [line.meaning for line in t.result.lines][3] == "you took another logarithm"


def test_an_answer_without_return_or_of_another_dtype_is_told_before_the_misconception():
    with Check("05.1") as t:
        t.equal(None, [1], "you averaged")
        t.equal(None, None, "you averaged")
    assert t.result.lines[0].meaning == "your function returned None: is there a return?"
    assert t.result.lines[1].state is State.PASS
    with Check("05.1") as t:
        t.equal(torch.zeros(2), torch.zeros(2).double(), "you averaged")
    assert "of another kind" in t.result.lines[0].meaning
    assert "dtype float32" in t.result.lines[0].detail
