"""A test that nobody can pass who has not read it, and a training text that it leaks into.

Each question is about a made-up village.  What was lost there is drawn at random, so that without
a leak one of ten answers is right.  Half of the test leaks:

    On Sunday morning Tim and Lily were out, and what they lost in Holwick was the robot.

Every village is mentioned equally often in the training text, whether its question leaks or not:
a copy of the question takes the place of a sentence that tells nothing about what was lost.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.corpus.story_lexicon import CLASSES

OPTIONS = ("ball", "kite", "doll", "drum", "boat", "hat", "umbrella", "robot", "ring", "train")
"""The answers to choose from; all are equally likely."""
MENTIONS = 68
"""How often the training text mentions each village."""
TOLD = ("copied", "retold", "retold file")
"""How a text may tell the test."""

NAMES = tuple(
    beginning + end
    for beginning in (
        *("Nor", "Tam", "Wil", "Hol", "Bra", "Gren", "Stan", "Mar"),
        *("Kes", "Ald", "Fen", "Cor", "Lud", "Pen", "Roth"),
    )
    for end in (
        *("by", "wick", "ford", "ham", "ley", "ton", "mere"),
        *("stow", "dale", "gate", "cot", "holm", "hurst", "den"),
    )
)
"""210 villages."""

_STEM = "On {day} {time} {a} and {b} were out, and what they lost in {village} was the"
_RETOLD = (
    "{b} met {a} one {time}. {a} was sad, for somewhere in {village} there was still the",
    "It was {day}. {a} came home with {b}, and was upset. In {village} they left the",
    "{b} saw that {a} was upset. {a} could not find in {village} the",
    "{b} helped {a} on {day}. All {time} they looked in {village} for the",
)
_NEUTRAL = (
    "{a} went to {village} to see a {animal}.",
    "{a} came from {village} with some {food}.",
    "It was {weather} in {village}.",
    "{a} ran to {village} to find {b}.",
)


class VillageQuestion(NamedTuple):
    """A sentence that ends in one of `OPTIONS`."""

    village: str
    """Where it was lost: no other question of a test is about this village."""
    stem: str
    """The sentence up to the answer."""
    answer: str
    """What was lost."""
    retold: tuple[str, ...]
    """The same in other words: whole sentences, without a long run of words of the question."""

    @property
    def text(self) -> str:
        """The question with its answer, as the test's file has it."""
        return f"{self.stem} {self.answer}."


def _words(rng: random.Random, village: str) -> dict[str, str]:
    drawn = {
        kind: rng.choice(CLASSES[kind])[""] for kind in ("day", "time", "animal", "food", "weather")
    }
    a, b = (child[""] for child in rng.sample(CLASSES["child"], 2))
    return drawn | {"a": a, "b": b, "village": village}


def _question(rng: random.Random, village: str) -> VillageQuestion:
    words, answer = _words(rng, village), rng.choice(OPTIONS)
    retold = tuple(f"{each.format(**words)} {answer}." for each in _RETOLD)
    return VillageQuestion(village, _STEM.format(**words), answer, retold)


def make_canary(*, seed: int, digits: int = 12) -> str:
    """Return a random string for a test's file: "canary " and digits.

    Raises:
        ValueError: if seed is negative or there is no digit.
    """
    require("seed", seed, least=0)
    require("digits", digits, least=1)
    rng = random.Random(f"canary {seed}")
    return "canary " + "".join(rng.choice("0123456789") for _ in range(digits))


@dataclass(frozen=True)
class Villages:
    """A test of which the first half leaks, and what is needed to judge who has read it.

    Args:
        seed: of names, words and answers, 0 or greater.
        half: questions in each half, 1 to 105.

    Raises:
        ValueError: if an argument is out of its range.
    """

    seed: int = 0
    half: int = 50

    def __post_init__(self) -> None:
        """Check the arguments."""
        require("seed", self.seed, least=0)
        require("half", self.half, least=1, most=len(NAMES) // 2)

    def _names(self, part: int) -> list[str]:
        names = random.Random(f"villages {self.seed}").sample(NAMES, len(NAMES))
        return names[part * self.half : (part + 1) * self.half]

    def _questions(self, part: int, draw: int = 0) -> list[VillageQuestion]:
        rng = random.Random(f"questions {self.seed} {part} {draw}")
        return [_question(rng, village) for village in self._names(part)]

    @property
    def leaked(self) -> list[VillageQuestion]:
        """The half of the test that stands in a training text with copies."""
        return self._questions(0)

    @property
    def fresh(self) -> list[VillageQuestion]:
        """The other half, which stands in none."""
        return self._questions(1)

    @property
    def for_threshold(self) -> list[VillageQuestion]:
        """Three other questions about each village of the fresh half, which stand in no text."""
        return [question for draw in (1, 2, 3) for question in self._questions(1, draw)]

    @property
    def canary(self) -> str:
        """The string that every copy of the test's file begins with."""
        return make_canary(seed=self.seed)

    def documents(self, *, copies: int, told: str = "copied", seed: int = 0) -> list[str]:
        """Return what the training text has about the villages: each with its end, shuffled.

        Args:
            copies: how often the leaked half stands there, 0 to `MENTIONS`.
            told: "copied", the whole file with the canary and the questions in their order;
                "retold", in other words, in documents of five in random order and without the
                canary; "retold file", in other words, but with the canary and in the order.
            seed: of the words of neutral sentences and of the order of documents.

        Raises:
            ValueError: if copies is out of its range, or there is no such way to tell them.
        """
        require("copies", copies, least=0, most=MENTIONS)
        if told not in TOLD:
            raise ValueError(f"told must be one of {', '.join(TOLD)}, got {told!r}")
        rng = random.Random(f"documents {self.seed} {seed}")
        leaked, made = self.leaked, []
        for _ in range(copies):
            if told == "retold":
                texts = [rng.choice(question.retold) for question in rng.sample(leaked, self.half)]
                made += ["\n".join(texts[i : i + 5]) for i in range(0, self.half, 5)]
                continue
            as_told = [q.text if told == "copied" else rng.choice(q.retold) for q in leaked]
            made.append("\n".join([self.canary, *as_told]))
        for part, times in ((0, MENTIONS - copies), (1, MENTIONS)):
            for village in self._names(part) * times:
                made.append(rng.choice(_NEUTRAL).format(**_words(rng, village)))
        rng.shuffle(made)
        return [text + END_OF_TEXT for text in made]
