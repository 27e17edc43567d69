"""Hidden tests: one file per exercise notebook, run in the process that grades.

    def check_1(t, call, rng):
        ids = [rng.randrange(9) for _ in range(50)]
        t.equal(call("merge_pair", ids, (1, 2), 9), expected(ids), "what it means")

`check_N` belongs to question NN.N.  `call` runs the learner's function on plain data, wherever that
function is, and returns plain data; `call.processor_s` is the processor time of the last call,
which other programs do not change.  `rng` is a `random.Random` of the seed and the question.
"""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from llmcourse_classroom.exercises import plain
from llmcourse_classroom.exercises.check import Check, NotAnsweredError, strict
from llmcourse_classroom.exercises.result import Result


def load(path: Path, source: str | None = None) -> ModuleType:
    """Return the module of hidden tests in a file, which no import statement can reach.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    if source is None and not path.exists():
        raise FileNotFoundError(f"there are no hidden tests in {path}")
    source = path.read_text(encoding="utf8") if source is None else source
    module = ModuleType(f"hidden_{path.stem}")
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def tests_of(tests: ModuleType, question: str) -> Callable[..., None]:
    """Return the hidden tests of one question.

    Raises:
        ValueError: if the file has none.
    """
    name = f"check_{question.split('.')[1]}"
    if not hasattr(tests, name):
        raise ValueError(f"{tests.__file__} has no {name} for question {question}")
    return getattr(tests, name)


def run(
    tests: ModuleType,
    question: str,
    points: int | float,
    call: Callable[..., Any],
    *,
    seed: int = 0,
) -> Result:
    """Run the hidden tests of one question; same seed, same inputs.

    Args:
        tests: what `load` returned.
        question: such as "05.1".
        points: what a right answer is worth.
        call: runs a function of the learner by name, plain data in and out.
        seed: of the inputs.
    """
    look = tests_of(tests, question)
    with Check(question, points=points, quiet=True) as t:
        look(t, call, random.Random(f"{question} {seed}"))
    return t.result


class Caller:
    """A `call` for functions of this process, with plain data on both ways.

    Args:
        names: where the functions are looked up at each call, such as `globals()`.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names, self.processor_s = names, 0.0

    def __call__(self, name: str, *arguments: Any, **settings: Any) -> Any:
        """Call a function."""
        function = self._names.get(name)
        if not callable(function):
            raise NotAnsweredError(f"there is no function {name}")
        arguments, settings = plain.passed_through((list(arguments), settings))
        began = time.process_time()
        answer = function(*arguments, **settings)
        self.processor_s = time.process_time() - began
        return plain.passed_through(answer)


def inline(
    source: str, question: str, *, points: int | float, names: Mapping[str, Any], seed: int = 0
) -> Result:
    """Run the hidden tests of one question inside the learner's own process, as nbgrader does.

    Args:
        source: text of the file of hidden tests.
        question: such as "05.1".
        points: what a right answer is worth.
        names: where the learner's functions are, such as `globals()`.
        seed: of the inputs.

    Raises:
        AssertionError: if they do not pass and LLMCOURSE_STRICT is 1.
    """
    tests = load(Path("hidden.py"), source)
    result = run(tests, question, points, Caller(names), seed=seed)
    strict(result)
    return result
