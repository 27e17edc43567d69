"""Every exercise: the solution passes, the stub is not answered, each mutant is told why.

A mutant is found by what holds for all inputs, so one seed will do; `make soak` tries five.
"""

import pytest

from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.exercises.result import State
from tests.exercises import gates

QUESTIONS = [(t, q) for t in gates.TOPICS for q in gates.questions_of(t).values()]
MUTANTS = [(t, m) for t in gates.TOPICS for m in gates.mutants_of(t)]
FEWEST, MOST = 3, 6


def of_topic(topic, *rest, name):
    files = (f"solutions/{topic}.ipynb", f"hidden/{topic}.py", f"mutants/{topic}.diff")
    check = f"llmcourse_classroom/exercises/checks/c{topic}.py"
    marks = pytest.mark.depends_on(check, *(f"exercises/{file}" for file in files))
    return pytest.param(topic, *rest, id=name, marks=marks)


each_question = pytest.mark.parametrize(
    ("topic", "question"), [of_topic(t, q, name=q.number) for t, q in QUESTIONS]
)
each_mutant = pytest.mark.parametrize(
    ("topic", "mutant"), [of_topic(t, m, name=f"{m.question}-{m.name}") for t, m in MUTANTS]
)


@pytest.fixture(autouse=True)
def _gentle(monkeypatch):
    monkeypatch.delenv("LLMCOURSE_STRICT", raising=False)
    monkeypatch.setenv("LLMCOURSE_PROGRESS", "off")


def told(result):
    return [line.meaning for line in result.lines if line.state is State.NOT_YET]


@pytest.mark.soak  # every build executes the notebook with solutions, whose checks then raise
@each_question
def test_the_solution_passes(topic, question):
    result = gates.visible(question, question.answer, gates.setting_of(topic))
    assert result.state is State.PASS, result
    assert len(result.lines) >= 2


@each_question
def test_the_solution_passes_the_hidden_tests(topic, question, nth_seed):
    answer, seed = question.answer, gates.seed_of(question.answer, nth_seed)
    result = gates.unseen(topic, question, answer, gates.setting_of(topic), seed=seed)
    assert result.state is State.PASS, (seed, result)


@each_question
def test_the_stub_is_not_answered_yet(topic, question):
    stub = exercise.without_solution(question.answer)
    assert stub != question.answer
    setting = gates.setting_of(topic)
    assert gates.visible(question, stub, setting).state is State.NOT_ANSWERED
    assert gates.unseen(topic, question, stub, setting).state is State.NOT_ANSWERED


@pytest.mark.parametrize("topic", [of_topic(topic, name=topic) for topic in gates.TOPICS])
def test_an_exercise_has_three_to_six_mutants(topic):
    for number in gates.questions_of(topic):
        names = [m.name for m in gates.mutants_of(topic) if m.question == number]
        assert FEWEST <= len(names) <= MOST, number
        assert len(set(names)) == len(names), number


@each_mutant
def test_a_mutant_is_told_what_its_mistake_means(topic, mutant, monkeypatch):
    gates.stop_at_the_first_mistake(monkeypatch)
    question = gates.questions_of(topic)[mutant.question]
    result = gates.visible(question, mutant.source, gates.setting_of(topic))
    assert result.state is State.NOT_YET, "the check passes the mutant"
    assert told(result)[0] == mutant.says


@each_mutant
def test_a_mutant_fails_the_hidden_tests(topic, mutant, nth_seed, monkeypatch):
    gates.stop_at_the_first_mistake(monkeypatch)
    question = gates.questions_of(topic)[mutant.question]
    answer, seed = mutant.source, gates.seed_of(mutant.source, nth_seed)
    result = gates.unseen(topic, question, answer, gates.setting_of(topic), seed=seed)
    assert result.state is State.NOT_YET, f"the hidden tests pass the mutant, with seed {seed}"
