"""The same notebooks in nbgrader: the same learner's version, and the same scores."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.grader import alone, session, submission
from llmcourse_labs.sandbox import sandbox
from tests.exercises import gates
from tools.pages import exercises, nbgrader_course

TOPIC, BIN = "00_how_to_use", Path(sys.executable).parent


def nbgrader(course, *arguments):
    home = {"HOME": str(course.parent), "IPYTHONDIR": str(course.parent / "ipython")}
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "JUPYTER_PLATFORM_DIRS": "1"}
    where = {"cwd": course, "env": os.environ | home | path, "timeout": 600}
    command = [str(BIN / "nbgrader"), *arguments]
    done = subprocess.run(command, stderr=-1, text=True, check=False, **where)
    assert done.returncode == 0, done.stderr[-3000:]


def answered(mutants):
    notebook = gates.notebook_of(TOPIC)
    for cell in notebook.cells:
        for mutant in mutants:
            if exercise.grade_id(cell) == f"{mutant.question.replace('.', '-')}-answer":
                cell.source = mutant.source
    return notebook


@pytest.fixture(scope="module")
def handed_in():
    _, *others = {m.question: m for m in gates.mutants_of(TOPIC)}.values()
    return {"ada": answered([]), "dan": answered(others)}


@pytest.fixture(scope="module")
def course(tmp_path_factory, handed_in):
    folder = tmp_path_factory.mktemp("class") / "course"
    assert nbgrader_course.main([str(folder)]) == 0
    nbgrader(folder, "generate_assignment", TOPIC)
    for name, notebook in handed_in.items():
        place = folder / "submitted" / name / TOPIC
        place.mkdir(parents=True)
        nbformat.write(notebook, place / f"{TOPIC}.ipynb")
    nbgrader(folder, "autograde", TOPIC)
    nbgrader(folder, "export")
    return folder


def test_nbgrader_makes_the_same_notebook_for_learners(course):
    theirs = exercise.read(course / "release" / TOPIC / f"{TOPIC}.ipynb")
    ours = exercise.read(exercises.FOLDER / f"{TOPIC}.ipynb")
    assert [cell.source for cell in theirs.cells] == [cell.source for cell in ours.cells]


def test_honest_submissions_get_the_same_scores(course, handed_in, tmp_path):
    with (course / "grades.csv").open(newline="") as file:
        theirs = {row["student_id"]: float(row["raw_score"]) for row in csv.DictReader(file)}
    exam = submission.exam(exercises.FOLDER / f"{TOPIC}.ipynb", exercises.FOLDER / "hidden", seed=0)
    place = sandbox.Place(sandbox.detect([], worker=session.WORKER), sandbox.Limits())
    ours = {}
    for name, notebook in handed_in.items():
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(notebook, path)
        ours[name] = alone.grade(path, exam, place)["score"]
    assert ours == theirs
    assert 0 < ours["dan"] < ours["ada"] == exam.points
