"""tuning.tasks: every answer is right by another account, wordings are split, checks are exact."""

import re
from collections import Counter

import pytest

from llmcourse.data.corpus import story_words
from llmcourse_labs.tuning.tasks import KINDS, REFUSAL, Task, check, in_format, make_tasks, part_of

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
MANY = make_tasks(1_500, seed=0) + make_tasks(600, seed=0, held_out=True)


def ball(prompt):
    """Follow the sentences: whoever is named as having, or as getting, has it."""
    owner, toy = None, None
    *told, asked = re.findall(r"[^.?]+[.?]", prompt)
    for sentence in told:
        if found := re.fullmatch(r"(\w+) has the (\w+)\.", sentence.strip()):
            owner, toy = found.groups()
        elif found := re.fullmatch(r"(\w+) \w+ the \w+ to (\w+)\.", sentence.strip()):
            assert owner == found[1]
            owner = found[2]
        elif found := re.fullmatch(r"(\w+) gets the \w+ from (\w+)\.", sentence.strip()):
            assert owner == found[2]
            owner = found[1]
        else:
            asked = f"{sentence} {asked}"
    about = re.findall(r"the (\w+)", asked)[-1]
    return f"{owner} has the {toy}." if about == toy else REFUSAL


def count(prompt):
    name, start, things = re.match(r"(\w+) has (\w+) (\w+)\.", prompt).groups()
    change = re.search(r"(\w+) more", prompt)[1]
    return f"{name} has {NUMBERS[NUMBERS.index(start) + NUMBERS.index(change)]} {things}."


def words_of(prompt):
    """The words that a task is about: its longest run without words of the wordings."""
    asked = "What comes next|What is next|Go on|Say this|Say|Can you say|Now say|Sort these words"
    return re.sub(rf"{asked}|Can you sort|Sort|From A to Z|[:?.,]", " ", prompt).split()


def following(prompt):
    """The word after the last one, at its first place."""
    words = words_of(prompt)
    return f"{words[words.index(words[-1]) + 1]}."


SOLVERS = {
    "ball": ball,
    "refuse": ball,
    "count": count,
    "next": following,
    "copy": lambda prompt: " ".join(words_of(prompt)) + ".",
    "sort": lambda prompt: ", ".join(sorted(words_of(prompt))) + ".",
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_right_by_another_account(kind):
    tasks = [task for task in MANY if task.kind == kind]
    assert len(tasks) > 250
    for task in tasks:
        assert SOLVERS[kind](task.prompt) == task.answer, task
    every = {(level, template) for level in (1, 2, 3) for template in range(4)}
    assert {(task.difficulty, task.template) for task in tasks} == every


def test_difficulty_is_what_it_says():
    for task in MANY:
        if task.kind in ("ball", "refuse"):
            assert len(re.findall(r"the (?!end)", task.prompt)) == task.difficulty + 1
        elif task.kind == "count":
            assert NUMBERS.index(re.search(r"(\w+) more", task.prompt)[1]) == task.difficulty
        elif task.kind == "next":
            assert len(set(words_of(task.prompt))) == task.difficulty
        elif task.kind == "copy":
            assert len(words_of(task.prompt)) == task.difficulty + 1
        else:
            assert 4 - len({word[0] for word in words_of(task.prompt)}) == task.difficulty


def test_held_out_wordings_are_in_no_training_task():
    training = {task.prompt for task in make_tasks(4_000, seed=1)}
    held_out = make_tasks(2_000, seed=1, held_out=True)
    assert {task.template for task in held_out} == {3}
    assert 3 not in {task.template for task in make_tasks(500, seed=1)}
    assert training.isdisjoint(task.prompt for task in held_out)


def test_a_test_asks_nothing_that_a_training_task_asks_in_any_wording():
    """Mutant: a hash of the prompt keeps a test back in one wording and trains on another."""
    about = {"kinds": ["next"], "difficulties": (1, 2)}
    training, tests = (
        set(make_tasks(4_000, seed=seed, part=part, **about))
        for seed, part in ((1, "training"), (2, "test"))
    )
    words = [{tuple(words_of(task.prompt)) for task in part} for part in (training, tests)]
    assert words[0].isdisjoint(words[1])
    assert len(words[0] | words[1]) == 11 + 11 * 10  # one toy, or two in their order
    assert 0.12 < len(words[1]) / 121 < 0.28
    assert {task.difficulty for task in tests} == {1, 2}
    assert len(tests) == 3 * len(words[1])
    assert {part_of(task) for task in tests} == {"test"}
    both = make_tasks(200, seed=1, **about)
    kept = [task for task in both if part_of(task) == "training"]
    assert make_tasks(200, seed=1, part="training", **about)[: len(kept)] == kept


@pytest.mark.parametrize("kind", KINDS)
def test_of_every_kind_about_a_fifth_is_for_tests(kind):
    tasks = make_tasks(1_500, seed=0, kinds=[kind])
    assert 0.14 < sum(part_of(task) == "test" for task in tasks) / 1_500 < 0.27


def test_a_longer_list_begins_with_the_shorter_and_seeds_differ():
    assert make_tasks(50, seed=3)[:20] == make_tasks(20, seed=3)
    assert make_tasks(20, seed=3) != make_tasks(20, seed=4)
    assert make_tasks(0, seed=0) == []


def test_words_are_those_of_the_stories():
    asked = {"count", "sort", "say", "tell", "who", "what", "next", "comes", "go", "words", "these"}
    asked |= {"how", "many", "are", "there", "now", "hands", "gets", "passes", "takes", "end", "at"}
    asked |= {"have", "has", "gives", "finds", "from", "a", "to", "z", "can", "you", "this", "does"}
    asked |= {"is", "then", "more", "me", "on"}
    words = {w for task in MANY for w in re.findall(r"[a-z]+", task.prompt.lower())}
    assert words - asked <= story_words()


def test_kinds_and_difficulties_can_be_chosen():
    tasks = make_tasks(100, seed=0, kinds=["copy", "sort"], difficulties=[2])
    assert Counter(task.difficulty for task in tasks) == {2: 100}
    assert {task.kind for task in tasks} == {"copy", "sort"}


def test_answers_pass_the_checks_and_near_ones_do_not():
    for task in MANY:
        assert check(task, f" {task.answer}\n")
        assert in_format(task, task.answer)
        for wrong in (task.answer[:-1], task.answer + "…", "", task.answer.lower() + "!"):
            assert not check(task, wrong)
        assert not in_format(task, task.answer + "…")
        assert not in_format(task, "")


def test_the_form_is_that_of_the_kind_right_or_wrong():
    task = Task("ball", "Who?", "Mia has the ball.", 1, 0)
    formed = ("Tom has the kite.", REFUSAL)
    for text in (*formed, "ball.", "Tom has six kites.", "Tom has the kite. Tom has the kite."):
        assert in_format(task, text) == (text in formed)
        assert not check(task, text)
