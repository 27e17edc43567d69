"""Every exercise: the solution passes, the stub is not answered, each mutant is told why."""

import functools

import pytest

from llmcourse.grading import exercise
from llmcourse.grading.result import State
from tests.exercises import gates

QUESTIONS = [(t, q) for t in gates.TOPICS for q in exercise.questions(gates.notebook_of(t))]
MUTANTS = [(t, m) for t in gates.TOPICS for m in gates.mutants_of(t)]
FEWEST, MOST = 3, 6
SEEDS = range(5)
each_question = pytest.mark.parametrize(
    ("topic", "question"), QUESTIONS, ids=[q.number for _, q in QUESTIONS]
)
each_mutant = pytest.mark.parametrize(
    ("topic", "mutant"), MUTANTS, ids=[f"{m.question}-{m.name}" for _, m in MUTANTS]
)


@pytest.fixture(autouse=True)
def _gentle(monkeypatch):
    monkeypatch.delenv("LLMCOURSE_STRICT", raising=False)
    monkeypatch.setenv("LLMCOURSE_PROGRESS", "off")


@functools.cache
def setting_of(topic):
    return gates.setting_of(topic)


def told(result):
    return [line.meaning for line in result.lines if line.state is State.NOT_YET]


@each_question
def test_the_solution_passes(topic, question):
    result = gates.visible(question, question.answer, setting_of(topic))
    assert result.state is State.PASS, result
    assert len(result.lines) >= 2


@each_question
def test_the_solution_passes_the_hidden_tests_with_every_seed(topic, question):
    for seed in SEEDS:
        answer = question.answer
        result = gates.unseen(topic, question, answer, setting_of(topic), seed=seed)
        assert result.state is State.PASS, (seed, result)


@each_question
def test_the_stub_is_not_answered_yet(topic, question):
    stub = exercise.without_solution(question.answer)
    assert stub != question.answer
    setting = setting_of(topic)
    assert gates.visible(question, stub, setting).state is State.NOT_ANSWERED
    assert gates.unseen(topic, question, stub, setting).state is State.NOT_ANSWERED


@each_question
def test_an_exercise_has_three_to_six_mutants(topic, question):
    mine = [m for m in gates.mutants_of(topic) if m.question == question.number]
    assert FEWEST <= len(mine) <= MOST
    assert len({mutant.name for mutant in mine}) == len(mine)


@each_mutant
def test_a_mutant_is_told_what_its_mistake_means(topic, mutant):
    question = next(q for _, q in QUESTIONS if q.number == mutant.question)
    result = gates.visible(question, mutant.source, setting_of(topic))
    assert result.state is State.NOT_YET
    assert told(result)[0] == mutant.says


@each_mutant
def test_a_mutant_fails_the_hidden_tests_with_every_seed(topic, mutant):
    question = next(q for _, q in QUESTIONS if q.number == mutant.question)
    for seed in SEEDS:
        result = gates.unseen(topic, question, mutant.source, setting_of(topic), seed=seed)
        assert result.state is State.NOT_YET, seed
