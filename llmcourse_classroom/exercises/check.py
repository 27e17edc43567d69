"""The check of an exercise: what is right so far, in words.

A notebook has one line, which finds the answer among the notebook's names::

    check("05.1")

The code of that check is a function in `checks`, which gets what it uses of the notebook::

    def check_1(t, first_merge):
        t.equal(first_merge(text), (98, 97), "you took ...", "the greater of two tied pairs")

A question that the package does not have brings its check along, as a block in the notebook::

    with Check("90.1", points=2) as t:
        t.equal(add_all([1, 2]), 3, "not the sum", "the sum of two")

Nothing raises, so that a notebook with open exercises runs to its end; with the environment
variable LLMCOURSE_STRICT set to 1, a check that does not pass does raise.
"""

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, no_type_check

import numpy as np
import torch

from llmcourse_classroom.exercises import compare, progress
from llmcourse_classroom.exercises.compare import one_line
from llmcourse_classroom.exercises.result import Line, Result, State, as_text, show

STRICT = "LLMCOURSE_STRICT"
WAY_ON = "Stuck? Question {} has two hints, folded at the end of its text, above your answer."
QUESTION = re.compile(r"[0-9]{2}\.[1-9][0-9]?")


class AnswerError(Exception):
    """An answer could not be used; the message says why, in the words for the learner."""


class NotAnsweredError(AnswerError):
    """There is no answer yet."""


class Check:
    """Look at an answer and say, line by line, what holds and what a mistake means.

    After the block, `result` is what was found.

    Args:
        question: chapter and number, such as "05.1".
        points: what a right answer is worth; more than 0.
        quiet: neither show nor record the result.
        record: keep the result in the learner's progress.

    Raises:
        ValueError: for a question or points of another form.
    """

    def __init__(
        self, question: str, *, points: int | float = 1, quiet: bool = False, record: bool = True
    ) -> None:
        if not QUESTION.fullmatch(question):
            raise ValueError(f"a question is a chapter and a number such as '05.1': {question!r}")
        if not points > 0:
            raise ValueError(f"points must be more than 0, not {points!r}")
        self.result = Result(question, points)
        self._quiet, self._record = quiet, record

    def __enter__(self) -> "Check":
        return self

    def __call__(self, condition: object, meaning: str, right: str = "") -> bool:
        """Look at one thing, and return whether it holds.

        Args:
            condition: whether it holds: True or False, or a tensor or array of one truth value.
            meaning: what it means when it does not hold, in the words of the misconception.
            right: what holds, when it does.
        """
        return self._add(_truth(condition), meaning, right)

    def equal(self, answer: object, expected: object, meaning: str, right: str = "") -> bool:
        """Look whether an answer is what is expected: same kind, shape, dtype and values."""
        return self.close(answer, expected, meaning, right, relative=0.0)

    def close(
        self, answer: object, expected: object, meaning: str, right: str = "",
        *, relative: int | float = 1e-6, absolute: int | float = 0.0,
    ) -> bool:  # fmt: skip
        """Look whether an answer is near what is expected (`compare.difference`)."""
        if answer is None and expected is not None:
            return self._add(False, "your function returned None: is there a return?", right)
        found = compare.difference(answer, expected, relative=relative, absolute=absolute)
        if found and compare.is_other_kind(answer, expected):
            meaning = "your answer is of another kind than the one asked for"
        return self._add(not found, meaning, right, found)

    def _add(self, holds: bool, meaning: str, right: str, detail: str = "") -> bool:
        right = right or f"check {len(self.result.lines) + 1}"
        line = Line(State.PASS, right) if holds else Line(State.NOT_YET, meaning, detail, right)
        self.result.lines.append(line)
        return holds

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            return False
        if error is not None:
            self.result.lines.append(_line_of(error))
        if not self._quiet:
            show(self.result)
            if self._record:
                progress.record(self.result)
            strict(self.result, error)
        return True


@no_type_check  # a type checker's frame would stand between this one and the caller's
def check(question):
    """Check the answer to a question, and show what holds and what a mistake means.

    Args:
        question: such as "05.1"; its answer is found among the caller's global names.

    Raises:
        AssertionError: if it does not pass and LLMCOURSE_STRICT is 1.
        ValueError: if there is no such question and LLMCOURSE_STRICT is 1.
    """
    try:
        result_of(question, sys._getframe(1).f_globals)
    except ValueError as error:
        if os.environ.get(STRICT) == "1":
            raise
        print(error)


def result_of(question: object, names: Mapping[str, Any], *, quiet: bool = False) -> Result:
    """Run the check of a question of the course.

    Args:
        question: such as "05.1".
        names: where the answer is, and what else the notebook gives.
        quiet: neither show nor record the result.

    Raises:
        ValueError: if there is no such question.
    """
    listed = {entry["number"]: entry for entry in progress.catalogue()}
    if question not in list(listed):
        near = [number for number in listed if number[:2] == str(question)[:2]] or list(listed)
        raise ValueError(f"there is no exercise {question!r}: use {near[0]!r} to {near[-1]!r}")
    entry = listed[question]
    checks = importlib.import_module(f"{__package__}.checks.c{entry['notebook']}")
    run = getattr(checks, f"check_{question[3:]}")
    with Check(question, points=entry["points"], quiet=quiet) as t:
        t.result.way_on = WAY_ON.format(question)
        run(t, **_needed(run, names))
    return t.result


def _needed(run: Callable[..., None], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a check uses of a notebook: its parameters, behind `t`; the answer's come first.

    Raises:
        NotAnsweredError: if a cell has not been run.
    """
    _, *parameters = inspect.signature(run).parameters.values()
    for parameter in parameters:
        if parameter.name not in names:
            answer = parameter.kind is not parameter.KEYWORD_ONLY
            cell = "the cell with your answer" if answer else "all cells above"
            raise NotAnsweredError(f"{parameter.name} is not defined: run {cell} first")
    return {parameter.name: names[parameter.name] for parameter in parameters}


def strict(result: Result, error: BaseException | None = None) -> None:
    """Raise if a result is no pass and the environment asks for that (LLMCOURSE_STRICT=1)."""
    if result.state is not State.PASS and os.environ.get(STRICT) == "1":
        raise AssertionError(as_text(result)) from error


def _truth(condition: object) -> bool:
    """Return the truth value of a condition; refuse what has none of its own."""
    if isinstance(condition, torch.Tensor) and condition.numel() == 1:
        condition = condition.item()
    if isinstance(condition, np.ndarray | np.generic) and condition.size == 1:
        condition = condition.item()
    if isinstance(condition, bool):
        return condition
    raise TypeError(
        f"a check needs True or False, and a comparison with your answer gives "
        f"{compare.described(condition)}: does it hold arrays where numbers or lists are asked for?"
    )


def _line_of(error: BaseException) -> Line:
    """Return the line for an error that the answer raised."""
    if isinstance(error, NotImplementedError | NotAnsweredError):
        return Line(State.NOT_ANSWERED, str(error) or "the answer is still the empty stub")
    if isinstance(error, NameError) and _own_frame(error) is None:
        missing = f"{error.name} is not defined: run the cell with your answer first"
        return Line(State.NOT_ANSWERED, missing)
    if isinstance(error, AnswerError):
        return Line(State.NOT_YET, str(error))
    return Line(State.NOT_YET, crash(error))


def crash(error: BaseException) -> str:
    """Return an error in one line, with the learner's own line of code."""
    text = f"your code stopped with {type(error).__name__}"
    if message := one_line(str(error)):
        text += f": {message}"
    frame = _own_frame(error)
    if frame is None:
        return text + ", where the check used what you returned"
    kind = "cell" if is_cell(frame.filename) else "file"
    return text + f", at line {frame.lineno} of your {kind}: {one_line(frame.line or '')}"


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame in a cell or script, other than the cell that holds the check."""
    frames = traceback.extract_tb(error.__traceback__)
    script = getattr(sys.modules["__main__"], "__file__", "")
    own = [
        frame
        for frame in frames[1:]
        if frame.filename != frames[0].filename
        and (is_cell(frame.filename) or frame.filename == script)
    ]
    return own[-1] if own else None


def is_cell(filename: str) -> bool:
    """Say whether a file name is that of a notebook's cell, not of an installed package."""
    return "ipykernel_" in filename or filename.startswith(("<ipython-input", "<cell"))
