"""Tasks over the words of the stories, each with the one right answer, and a check of answers.

Six kinds, so that whatever a model says can be judged exactly and nobody has to read it:

    ball     Tom has the ball. Tom gives the ball to Mia. Who has the ball?    Mia has the ball.
    count    Ben has two nuts. Ben gets three more. How many nuts ...?         Ben has five nuts.
    next     drum kite drum kite drum. What comes next?                        kite.
    copy     Say: red kite soup                                                red kite soup.
    sort     Sort: kite, ball, drum                                            ball, drum, kite.
    refuse   Tom has the ball. Who has the kite?                     The story does not say.

Every kind has several templates, ways to ask; the last of each is for held-out tasks alone, so that
a model which has learnt a wording and not the task is found out.  And of every five things that can
be asked one may be kept back, in all its wordings, so that a model which has learnt the answers by
heart is found out, see `part_of`.
"""

import itertools
import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse.data.corpus.story_lexicon import CLASSES
from llmcourse_labs.tuning.chat_format import Turn

REFUSAL = "The story does not say."
"""The answer where a story does not hold what is asked for."""

LEVELS = (1, 2, 3)
"""How hard a task is: moves of the ball and one more, what is added, words of a pattern, ..."""

_CHILDREN = [value[""] for value in CLASSES["child"]]
_TOYS = [value[""] for value in CLASSES["toy"]]
_TREATS = [value[""] for value in CLASSES["treat"]]
_WORDS = sorted(
    value[""]
    for kind in ("animal", "toy", "treat", "color", "food", "ingredient", "tool")
    for value in CLASSES[kind]
)


PARTS = ("training", "test")
"""What a task may be kept for, see `part_of`."""


class Task(NamedTuple):
    """Something to do, and the one right answer."""

    kind: str
    """One of `KINDS`."""
    prompt: str
    """What the user says."""
    answer: str
    """What the assistant has to say, to the letter."""
    difficulty: int
    """1, 2 or 3."""
    template: int
    """Which of the kind's wordings the prompt has; the last one is held out."""

    @property
    def turns(self) -> list[Turn]:
        """The task as a conversation."""
        return [Turn("user", self.prompt), Turn("assistant", self.answer)]


def check(task: Task, text: str) -> bool:
    """Say whether a text is the answer of a task; white space around it does not count."""
    return text.strip() == task.answer


def in_format(task: Task, text: str) -> bool:
    """Say whether a text has the form of an answer to a task of its kind, right or wrong."""
    return re.fullmatch(_FORMS[task.kind], text.strip()) is not None


def part_of(task: Task) -> str:
    """Return what a task is for: "test" for one in five, by a hash of its words, else "training".

    The words are those that are not the wording's, in their order: two tasks that ask the same in
    another way are in one part.
    """
    words = [word for word in re.findall(r"[A-Za-z]+", task.prompt) if word not in _ASKING]
    return PARTS[zlib.crc32(" ".join([task.kind, *words]).encode()) % 5 == 0]


def make_tasks(
    number: int,
    *,
    seed: int,
    held_out: bool = False,
    part: str | None = None,
    kinds: Sequence[str] | None = None,
    difficulties: Sequence[int] = LEVELS,
) -> list[Task]:
    """Return tasks drawn at random: kind, difficulty, wording and words.

    A longer list begins with the shorter one.  Two tasks may be equal by chance; a training task
    and a held-out one differ, since their wordings do.

    Args:
        number: how many, 0 or more.
        seed: of the draws, 0 or greater.
        held_out: take the wordings that are in no training task, and those alone.
        part: take the tasks of this part alone, see `part_of`; None takes all.
        kinds: some of `KINDS`; None is all of them.
        difficulties: some of 1, 2, 3.

    Raises:
        ValueError: if a number is negative, or a kind, a difficulty or the part is unknown.
    """
    require("number", number, least=0)
    require("seed", seed, least=0)
    if part is not None and part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, or None for all, got {part!r}")
    for name, given, known in (("kinds", kinds, KINDS), ("difficulties", difficulties, LEVELS)):
        if given is not None and (not given or not set(given) <= set(known)):
            allowed = ", ".join(map(str, known))
            raise ValueError(f"{name} must be some of {allowed}, got {list(given)}")
    rng = random.Random(f"tasks {seed} {held_out}")
    made: list[Task] = []
    while len(made) < number:
        kind = rng.choice(list(kinds or KINDS))
        *training, last = range(len(_WORDINGS[kind]))
        template = last if held_out else rng.choice(training)
        difficulty = rng.choice(list(difficulties))
        prompt, answer = _MAKERS[kind](rng, _WORDINGS[kind][template], difficulty)
        task = Task(kind, prompt, answer, difficulty, template)
        if part is None or part_of(task) == part:
            made.append(task)
    return made


# --- the kinds


@dataclass(frozen=True)
class _Wording:
    """How a task is asked; what is told before stands in `tell`."""

    ask: str
    tell: str = ""


_GIVEN = (
    _Wording("Who has the {toy}?", "{a} gives the {toy} to {b}."),
    _Wording("Who has the {toy} now?", "{a} hands the {toy} to {b}."),
    _Wording("Tell me who has the {toy}.", "{b} gets the {toy} from {a}."),
    _Wording("At the end, who has the {toy}?", "{a} passes the {toy} to {b}."),
)
_WORDINGS: dict[str, tuple[_Wording, ...]] = {
    "ball": _GIVEN,
    "count": (
        _Wording("How many {treat} does {a} have?", "{a} gets {change} more."),
        _Wording("How many {treat} are there now?", "{a} finds {change} more."),
        _Wording("Count the {treat}.", "Then {a} gets {change} more."),
        _Wording("How many {treat} now?", "{a} takes {change} more."),
    ),
    "next": (
        _Wording("{words}. What comes next?"),
        _Wording("What comes next: {words}?"),
        _Wording("Go on: {words}"),
        _Wording("{words}. What is next?"),
    ),
    "copy": (
        _Wording("Say: {words}"),
        _Wording("Say this: {words}"),
        _Wording("Can you say {words}?"),
        _Wording("Now say {words}"),
    ),
    "sort": (
        _Wording("Sort: {words}"),
        _Wording("Sort these words: {words}"),
        _Wording("From A to Z: {words}"),
        _Wording("Can you sort {words}?"),
    ),
    "refuse": _GIVEN,
}
KINDS = tuple(_WORDINGS)
"""The kinds of tasks."""

_ASKING = {
    word
    for each in itertools.chain(*_WORDINGS.values())
    for word in re.findall(r"[A-Za-z]+", re.sub(r"\{\w+\}", "", f"{each.ask} {each.tell}"))
}
"""Words of the wordings."""

_NUMBERS = sorted({value[name] for value in CLASSES["more"] for name in ("start", "result")})
_HAS = r"[A-Z][a-z]+ has the [a-z]+\.|" + re.escape(REFUSAL)
_FORMS = {
    "ball": _HAS,
    "count": rf"[A-Z][a-z]+ has (?:{'|'.join(_NUMBERS)}) [a-z]+\.",
    "next": r"[a-z]+\.",
    "copy": r"[a-z]+(?: [a-z]+)*\.",
    "sort": r"[a-z]+(?:, [a-z]+){2}\.",
    "refuse": _HAS,
}


def _story(rng: random.Random, wording: _Wording, moves: int, toy: str) -> tuple[str, str]:
    """Return where a toy goes, and who has it in the end."""
    people = rng.sample(_CHILDREN, moves + 1)
    told = [f"{people[0]} has the {toy}."]
    told += [wording.tell.format(a=a, b=b, toy=toy) for a, b in itertools.pairwise(people)]
    return " ".join(told), people[-1]


def _ball(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    toy = rng.choice(_TOYS)
    told, owner = _story(rng, wording, difficulty - 1, toy)
    return f"{told} {wording.ask.format(toy=toy)}", f"{owner} has the {toy}."


def _refuse(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    toy, other = rng.sample(_TOYS, 2)
    told, _ = _story(rng, wording, difficulty - 1, toy)
    return f"{told} {wording.ask.format(toy=other)}", REFUSAL


def _count(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    change = ("one", "two", "three")[difficulty - 1]
    numbers = rng.choice([each for each in CLASSES["more"] if each["change"] == change])
    words = {"a": rng.choice(_CHILDREN), "treat": rng.choice(_TREATS)} | dict(numbers)
    prompt = f"{{a}} has {{start}} {{treat}}. {wording.tell} {wording.ask}"
    return prompt.format(**words), "{a} has {result} {treat}.".format(**words)


def _next(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    pattern = rng.sample(_TOYS, difficulty)
    shown = (pattern * 4)[: 2 * difficulty + 1]
    return wording.ask.format(words=" ".join(shown)), f"{pattern[1 % difficulty]}."


def _copy(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    words = " ".join(rng.sample(_WORDS, difficulty + 1))
    return wording.ask.format(words=words), f"{words}."


def _sort(rng: random.Random, wording: _Wording, difficulty: int) -> tuple[str, str]:
    """Of three words, 1, 2 or 3 begin with the same letter."""
    while True:
        words = rng.sample(_WORDS, 3)
        if 4 - len({word[0] for word in words}) == difficulty:
            return wording.ask.format(words=", ".join(words)), f"{', '.join(sorted(words))}."


_MAKERS: dict[str, Callable[[random.Random, _Wording, int], tuple[str, str]]] = {
    "ball": _ball,
    "count": _count,
    "next": _next,
    "copy": _copy,
    "sort": _sort,
    "refuse": _refuse,
}
