"""Run the cells of an exercise notebook in one process, with one answer in another's place."""

import contextlib
import functools
import io
import zlib
from pathlib import Path

import cloudpickle

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.exercises.check import Check, result_of
from llmcourse_classroom.grader import hidden
from tools.check import mutants
from tools.pages import exercises, setup_cells

ROOT = Path(__file__).parents[2]
LONG_RUNS = {"train_letters"}
"""Functions of notebooks that train, and hang on nothing but their arguments."""
TOPICS = [path.stem for path in exercises.sources()]


def notebook_of(topic):
    return exercise.read(exercises.SOLUTIONS / f"{topic}.ipynb")


@functools.cache
def questions_of(topic):
    return {question.number: question for question in exercise.questions(notebook_of(topic))}


def run_cell(source, names, place):
    """Run a cell as a notebook would, with a file name that the checks recognise as a cell's."""
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, f"<cell {place}>", "exec"), names)


@functools.cache
def setting_of(topic):
    names = {"__name__": "__main__"}
    for place, cell in enumerate(notebook_of(topic).cells):
        own = cell.cell_type == "code" and cell.get("id") != setup_cells.CELL_ID
        if own and not exercise.grade_id(cell):
            run_cell(cell.source, names, place)
    for name in LONG_RUNS & names.keys():
        names[name] = remembered(names[name])
    return names


def remembered(function):
    """Return a function that runs once for the same arguments; functions are the same by code.

    Answers differ by a line, so that most of their runs are those of the answer before.
    """
    found = {}

    def once(*given):
        key = cloudpickle.dumps(given)  # with what functions enclose and name
        if key not in found:
            found[key] = function(*given)
        return found[key]

    return once


@functools.cache
def hidden_tests_of(topic):
    return hidden.load(ROOT / "exercises" / "hidden" / f"{topic}.py")


class FoundError(Exception):
    """A line does not hold."""


def stop_at_the_first_mistake(monkeypatch):
    """End every check at its first line that does not hold, which is all that a mutant needs."""
    add = Check._add

    def add_and_stop(check, holds, meaning, right, detail=""):
        if not add(check, holds, meaning, right, detail):
            raise FoundError(meaning)
        return True

    monkeypatch.setattr(Check, "_add", add_and_stop)


def visible(question, answer, setting):
    names = dict(setting)
    run_cell(answer, names, f"{question.key}-answer")
    return result_of(question.number, names, quiet=True)


def unseen(topic, question, answer, setting, *, seed=0):
    names = dict(setting)
    run_cell(answer, names, f"{question.key}-answer")
    call = hidden.Caller(names)
    return hidden.run(hidden_tests_of(topic), question.number, question.points, call, seed=seed)


def seed_of(answer, nth=0):
    """Return the nth seed for an answer: another one for each answer, the same in every run."""
    return zlib.crc32(answer.encode()) + nth


@functools.cache
def mutants_of(topic):
    solutions = {n: exercise.solution_of(q.answer) for n, q in questions_of(topic).items()}
    return mutants.read(ROOT / "exercises" / "mutants" / f"{topic}.diff", solutions)
