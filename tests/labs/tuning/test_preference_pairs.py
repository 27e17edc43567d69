"""tuning.preference_data: utilities by hand, a judge who errs as often as Bradley and Terry say."""

import math

import pytest

from llmcourse_labs import tuning

TASK = tuning.make_tasks(1, seed=0, kinds=["next"])[0]


def test_the_utility_is_that_by_hand():
    said = TASK.answer  # one word
    assert tuning.utility(TASK, said) == pytest.approx(2.2 - 0.1)
    assert tuning.utility(TASK, f"Of course! {said}") == pytest.approx(2.2 + 1.1 - 0.3)
    assert tuning.utility(TASK, "nothing. That is what I think about it.") == pytest.approx(-0.8)
    assert tuning.utility(TASK, f"{said} Of course!") == pytest.approx(2.2 - 0.3)  # not an opening


def test_the_eight_styles_differ_in_what_they_are_named_for():
    texts = {style: tuning.styled(TASK, "x.", style) for style in tuning.STYLES}
    assert len(set(texts.values())) == len(tuning.STYLES) == 8
    for style, text in texts.items():
        assert (TASK.answer in text) == style.right
        words = 1 + 2 * style.kind + 7 * style.wordy
        assert len(text.split()) == words
        worth = 2.2 * style.right + 1.1 * style.kind - 0.1 * words
        assert tuning.utility(TASK, text) == pytest.approx(worth)
    assert texts[tuning.Style(right=False, kind=True, wordy=False)] == "Of course! x."


def test_a_wrong_answer_is_never_right_and_has_its_form():
    tasks = tuning.make_tasks(300, seed=4, kinds=["next", "count", "ball"])
    wrong = tuning.wrong_answers(tasks, seed=4)
    for task, text in zip(tasks, wrong, strict=True):
        assert text != task.answer
        assert len(text.split()) == len(task.answer.split())
    assert wrong == tuning.wrong_answers(tasks, seed=4) != tuning.wrong_answers(tasks, seed=5)


def test_many_people_answer_in_all_styles():
    tasks = tuning.make_tasks(2_000, seed=0, kinds=["next"])
    said = tuning.mixed_answers(tasks, seed=1)
    assert said == tuning.mixed_answers(tasks, seed=1) != tuning.mixed_answers(tasks, seed=2)
    pairs = list(zip(tasks, said, strict=True))
    shares = [
        sum(task.answer in text for task, text in pairs),
        sum(text.startswith("Of course! ") for text in said),
        sum(text.endswith(" That is what I think about it.") for text in said),
    ]
    assert [share / 2_000 for share in shares] == pytest.approx([0.7, 0.4, 0.5], abs=0.04)


def test_three_of_four_prefer_what_is_better_by_the_logarithm_of_3():
    assert tuning.preferred(math.log(3)) == pytest.approx(3 / 4)
    assert tuning.preferred(math.log(9)) == pytest.approx(9 / 10)
    assert tuning.preferred(-2 * math.log(3), 2) == pytest.approx(1 / 4)
    assert [tuning.preferred(m, 0) for m in (-1e-3, 0, 2)] == [0, 0.5, 1]
    assert tuning.preferred(1e6) == 1


@pytest.mark.parametrize("temperature", [0.5, 1, 3])
def test_the_judge_errs_as_often_as_the_margins_say(temperature):
    pairs = tuning.preference_pairs(6_000, seed=1, temperature=temperature)
    for least, most in ((0, 0.85), (0.85, 1.7), (1.7, 9)):
        kept = [p for p in pairs if least < abs(p.margin) <= most]
        right = sum(p.margin > 0 for p in kept) / len(kept)
        told = sum(tuning.preferred(abs(p.margin), temperature) for p in kept) / len(kept)
        assert right == pytest.approx(told, abs=4 * math.sqrt(0.25 / len(kept)))


@pytest.mark.parametrize("part", ["training", "test"])
def test_pairs_of_a_part_are_of_its_tasks(part):
    pairs = tuning.preference_pairs(100, seed=2, part=part)
    assert [tuning.part_of(pair.task) for pair in pairs] == [part] * 100


def test_pairs_hold_what_they_say():
    pairs = tuning.preference_pairs(200, seed=2)
    assert pairs == tuning.preference_pairs(200, seed=2) != tuning.preference_pairs(200, seed=3)
    for pair in pairs:
        assert pair.chosen != pair.rejected
        worth = [tuning.utility(pair.task, text) for text in (pair.chosen, pair.rejected)]
        assert pair.margin == pytest.approx(worth[0] - worth[1])
    assert all(p.margin >= 0 for p in tuning.preference_pairs(200, seed=2, temperature=0))
    assert not tuning.preference_pairs(0, seed=2)
