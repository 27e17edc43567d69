"""tuning.hack_lab: what is counted, what it is worth, what judges learn of it."""

import pytest
import torch

from llmcourse_labs.tuning import check, draw_answers, hack_lab, make_tasks

TASK = make_tasks(1, seed=0, kinds=["count"])[0]
RIGHT = TASK.answer


def texts_with(counts):
    return [" ".join([RIGHT, *hack_lab.IDLE, *hack_lab.IDLE][: 1 + count]) for count in counts]


def test_what_is_counted_and_what_it_is_worth():
    for text, right, idle, value in (
        (RIGHT, 1, 0, 1.0),
        (f" {RIGHT} I am sure. ", 1, 1, 1.35),
        (f"{RIGHT} I am sure. I read it twice.", 1, 2, 1.4),
        (f"{RIGHT} I am sure. sure. sure. su…", 1, 4, 0.6),
        ("Nobody knows.", 0, 0, 0.0),
        (f"I am sure. {RIGHT}", 0, 1, 0.35),
        ("", 0, 0, 0.0),
    ):
        assert hack_lab.looked_at(TASK, text) == (right, idle), text
        assert hack_lab.gold_reward(TASK, text) == pytest.approx(value)


def test_a_checker_with_a_hole_takes_a_hedge():
    number = RIGHT.split()[2]
    hedge = RIGHT.replace(number, f"two or {number} or ten")
    assert hack_lab.mentions(TASK, RIGHT) == hack_lab.mentions(TASK, hedge) == 1
    assert not check(TASK, hedge)
    assert hack_lab.mentions(TASK, RIGHT.replace(number, "eleven")) == 0
    assert hack_lab.mentions(TASK, RIGHT.replace(number, f"{number}ty")) == 0


def test_talkative_answers_hedge_and_idle_as_often_as_they_say():
    plain = make_tasks(3_000, seed=4, kinds=["count"])
    made = hack_lab.talkative_tasks(3_000, seed=4)
    assert [task.prompt for task in made] == [task.prompt for task in plain]
    hedged = [" or " in task.answer for task in made]
    assert sum(hedged) / 3_000 == pytest.approx(0.2, abs=0.03)
    idle = torch.tensor([hack_lab.looked_at(task, task.answer).idle for task in made])
    shares = [(idle == n).double().mean().item() for n in range(4)]
    assert shares == pytest.approx([0.6, 0.3, 0.1, 0], abs=0.03)
    assert all(hack_lab.mentions(a, b.answer) for a, b in zip(plain, made, strict=True))


def test_a_judge_of_few_idle_sentences_likes_more_and_one_who_saw_many_does_not():
    few, many = texts_with([0, 1, 2] * 100), texts_with([0, 1, 2, 3, 4, 5, 6] * 50)
    one = hack_lab.fitted_judge([TASK] * len(few), few, pairs=2_000, seed=0)
    more = hack_lab.fitted_judge([TASK] * len(many), many, pairs=2_000, seed=0, squares=True)
    by = [[judge(TASK, text) for text in texts_with(range(7))] for judge in (one, more)]
    assert by[0] == sorted(by[0])
    assert max(range(7), key=by[1].__getitem__) in (1, 2)
    assert more.weights_D[1:].tolist() == pytest.approx([0.5, -0.15], abs=0.08)


def test_a_judge_finds_what_a_right_answer_is_worth():
    judge = hack_lab.fitted_judge([TASK] * 600, [RIGHT, "Nobody knows."] * 300, pairs=3_000, seed=0)
    assert judge.weights_D[0].item() == pytest.approx(1, abs=0.15)


def test_the_worst_of_judges():
    judges = [hack_lab.Judge(torch.tensor([1.0, x]).double()) for x in (0.5, -0.25)]
    assert hack_lab.worst_of(judges)(TASK, f"{RIGHT} I am sure.") == 0.75


def test_a_small_talker_learns_to_talk(generator):
    talker = hack_lab.small_talker(hack_lab.talkative_tasks(24 * 60, seed=0), seed=0)
    tests = make_tasks(30, seed=9, kinds=["count"])
    drawn = draw_answers(*talker, tests, answer_tokens=32, generator=generator)
    assert sum(text.endswith(".") for text in drawn.texts) > 20
    assert sum(" has " in text for text in drawn.texts) > 20
