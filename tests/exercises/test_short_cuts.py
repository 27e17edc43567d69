"""Answers that would get full marks without solving the exercise fail the hidden tests."""

import nbformat
import pytest

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.grader import submission
from llmcourse_labs.sandbox import sandbox
from tests.classroom import here
from tests.exercises import gates

NOTHING_FOR_LONG_WORDS = """
solved = encode_word
def encode_word(word, merges):
    return solved(word, merges) if len(word) != {length} else []
"""
SHORT_CUTS = {
    "05.2 nothing for 24,000 letters": NOTHING_FOR_LONG_WORDS.format(length=24_000),
    "05.2 nothing for 200,000 letters": NOTHING_FOR_LONG_WORDS.format(length=200_000),
}


def graded(number, more):
    topic = next(topic for topic in gates.TOPICS if topic.startswith(number[:2]))
    question = gates.questions_of(topic)[number]
    answer = exercise.solution_of(question.answer) + "\n" + more
    return gates.unseen(topic, question, answer, gates.setting_of(topic))


@pytest.mark.parametrize("what", SHORT_CUTS)
def test_a_short_cut_fails_the_hidden_tests(what):
    assert graded(what[:4], SHORT_CUTS[what]).score == 0


def test_an_encoder_that_waits_or_is_fast_in_one_call_of_three_is_not_slow():
    waiting = """
import time
solved = encode_word
def encode_word(word, merges):
    time.sleep(0.5 if len(word) > 1000 else 0)
    return solved(word, merges)
"""
    assert graded("05.2", waiting).score > 0
    module = gates.hidden_tests_of("05_tokens")
    assert not module.is_slow(Bursts(module), b"abab" * 50, [(b"a", b"b")])


class Bursts:
    """An encoder whose processor time is far too long, but for one call of three."""

    def __init__(self, module):
        self._encode, self._calls = module.encoded_fast, 0

    def __call__(self, _name, word, merges):
        self._calls += 1
        return self._encode(word, merges)

    @property
    def processor_s(self):
        return 0.0 if self._calls % 3 == 0 else 1e9


WRONG_ANSWERS = {
    "30-1-answer": """
right_save = atomic_save
def atomic_save(path, parts):
    path.write_bytes(b"".join(parts))
def observed_save(old, parts, fails="", beside=None):
    return watch_save(right_save, old, parts, fails, beside or {})
""",
    "30-4-answer": """
right_begin, watch = begin_save, watch_saves
def begin_save(state, write, earlier):
    write(state)
    return lambda: None
def watch_saves(begin, num_saves, failing):
    return watch(right_begin, num_saves, failing)
""",
}


def test_functions_that_only_observe_are_the_exam_s_own(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "Session", here.Here)
    notebook = gates.notebook_of("30_checkpoints")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            more = WRONG_ANSWERS.get(exercise.grade_id(cell), "")
            cell.source = exercise.solution_of(cell.source) + more
    path = tmp_path / "30_checkpoints.ipynb"
    nbformat.write(notebook, path)
    folder = gates.ROOT / "exercises"
    exam = submission.exam(folder / path.name, folder / "hidden")
    place = sandbox.Place(sandbox.Isolation("none", ()), sandbox.Limits())
    report = submission.grade(path, exam, place)
    assert report["problems"] == []
    scores = {question["question"]: question["score"] > 0 for question in report["questions"]}
    assert scores == {"30.1": False, "30.2": True, "30.3": True, "30.4": False, "30.5": True}
