"""Pairs of answers of which one was preferred, by a judge whose taste is known.

    utility of an answer = 2.2 if it is right + 1.1 if it is kind - 0.1 for each word

A judge who compares two answers takes the better one more often, the more so the further their
utilities lie apart (Bradley and Terry 1952):

    p(a is preferred to b) = sigma((u(a) - u(b)) / temperature)

At temperature 1 a difference of ln 3, about 1.1, is preferred by 3 of 4 judges, and twice as much,
ln 9, by 9 of 10.  Every answer is a right or a wrong one to a task, with or without a kind opening,
with or without words that say nothing: eight of them, and the utility of each is known.
"""

import itertools
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse_labs.tuning.tasks import LEVELS, Task, make_tasks

RIGHT, KIND, WORD = 2.2, 1.1, -0.1
"""What a right answer, a kind one, and each word of any are worth to the judge."""

OPENING, CLOSING = "Of course! ", " That is what I think about it."
"""What makes an answer kind, and what only makes it longer."""


class Style(NamedTuple):
    """How one of the eight answers to a task is made."""

    right: bool
    kind: bool
    wordy: bool


STYLES = tuple(Style(*each) for each in itertools.product((True, False), repeat=3))
"""All of them, the right ones first."""
RIGHT_STYLES = STYLES[:4]
"""Those that differ in taste alone."""


class Pair(NamedTuple):
    """Two answers to a task, of which the first was preferred."""

    task: Task
    chosen: str
    rejected: str
    margin: float
    """Utility of the chosen answer minus that of the other: below 0 where the judge erred."""


def utility(task: Task, text: str) -> float:
    """Return what an answer is worth to the judge; see the module."""
    worth = RIGHT * (task.answer in text) + KIND * text.startswith(OPENING.strip())
    return worth + WORD * len(text.split())


def styled(task: Task, wrong: str, style: Style) -> str:
    """Return the answer of a style.

    Args:
        task: what was asked.
        wrong: an answer that is not right.
        style: see `Style`.
    """
    said = task.answer if style.right else wrong
    return f"{OPENING * style.kind}{said}{CLOSING * style.wordy}"


def wrong_answers(tasks: Sequence[Task], *, seed: int) -> list[str]:
    """Return a wrong answer to each task: the right one to another task of its kind.

    Args:
        tasks: of kinds that are not "refuse", whose right answer is always the same.
        seed: of the draws, 0 or greater.

    Raises:
        ValueError: if a task is one to refuse.
    """
    others = {
        kind: make_tasks(300, seed=seed + 1, kinds=[kind]) for kind in {t.kind for t in tasks}
    }
    if "refuse" in others:
        raise ValueError("a task to refuse has one answer alone: take other kinds")
    rng = random.Random(f"wrong {seed}")
    found = []
    for task in tasks:
        near = [t.answer for t in others[task.kind] if t.difficulty == task.difficulty]
        found.append(rng.choice([answer for answer in near if answer != task.answer]))
    return found


def mixed_answers(tasks: Sequence[Task], *, seed: int) -> list[str]:
    """Return an answer to each task as many different people would give it.

    Of ten answers 7 are right, 4 are kind and 5 are wordy, independently of each other.

    Args:
        tasks: of kinds that are not "refuse".
        seed: of the draws, 0 or greater.
    """
    rng = random.Random(f"mixed {seed}")
    said = []
    for task, wrong in zip(tasks, wrong_answers(tasks, seed=seed), strict=True):
        drawn = (rng.random() < share for share in (0.7, 0.4, 0.5))
        said.append(styled(task, wrong, Style(*drawn)))
    return said


def preference_pairs(
    number: int,
    *,
    seed: int,
    temperature: int | float = 1.0,
    styles: Sequence[Style] = STYLES,
    kinds: Sequence[str] = ("next",),
    difficulties: Sequence[int] = LEVELS,
    part: str | None = None,
) -> list[Pair]:
    """Return pairs of answers of different styles, and which of them the judge preferred.

    Args:
        number: how many, 0 or more.
        seed: of the draws, 0 or greater.
        temperature: of the judge: 0 always takes the better answer (and either of equals), 1 is
            Bradley-Terry's, and a high one tosses a coin.
        styles: of which two are drawn for each pair, at least 2.
        kinds: of the tasks, without "refuse".
        difficulties: some of 1, 2, 3.
        part: of the tasks, "training" or "test", see `part_of`; None takes all.

    Raises:
        ValueError: if a number is outside its range, or a kind, a difficulty or the part is
            unknown.

    Source:
        Bradley and Terry 1952, Biometrika 39, https://doi.org/10.2307/2334029
    """
    require("temperature", temperature, least=0, below=math.inf)
    require("number of styles", len(styles), least=2)
    tasks = make_tasks(number, seed=seed, kinds=kinds, difficulties=difficulties, part=part)
    rng = random.Random(f"pairs {seed}")
    pairs = []
    for task, wrong in zip(tasks, wrong_answers(tasks, seed=seed), strict=True):
        a, b = (styled(task, wrong, style) for style in rng.sample(styles, 2))
        margin = utility(task, a) - utility(task, b)
        if rng.random() >= preferred(margin, temperature):
            a, b, margin = b, a, -margin
        pairs.append(Pair(task, a, b, margin))
    return pairs


def preferred(margin: int | float, temperature: int | float = 1.0) -> float:
    """Return how likely the judge prefers an answer that is better by a margin of utility.

    p = sigma(margin / temperature)
    """
    if temperature == 0:
        return 0.5 + 0.5 * ((margin > 0) - (margin < 0))
    return 0.5 * (1 + math.tanh(margin / temperature / 2))
