"""A model as a judge of two answers, tested as a judge: swap, length, agreement beyond chance.

Each pair has an answer that a checker knows to be right.  The judge sees it in both orders, and
what it picks is the likelier of two letters.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llmcourse.base.arguments import require
from llmcourse_labs.evaluate.drawing import question_ids
from llmcourse_labs.evaluate.intervals import DRAWS, Interval, Pair, paired
from llmcourse_labs.real.opening import RealModel

LETTERS = ("A", "B")


@dataclass(frozen=True)
class AnswerPair:
    """A question with a right answer and a wrong one."""

    question: str
    right: str
    wrong: str

    def asked(self, order: int) -> str:
        """Return what the judge reads; in order 0 the right answer comes first."""
        answers = (self.right, self.wrong) if order == 0 else (self.wrong, self.right)
        shown = "\n".join(f"Answer {x}: {told}" for x, told in zip(LETTERS, answers, strict=True))
        return f"Question: {self.question}\n\n{shown}\n\nWhich is right, A or B? Say one letter."


def answer_pairs(number: int, *, seed: int) -> list[AnswerPair]:
    """Return sums with two answers; in every second pair the right one is the longer.

    Args:
        number: how many, 1 or more.
        seed: of the draws, 0 or more.
    """
    require("number", number, least=1)
    rng, made = random.Random(f"judge {seed}"), []
    for place in range(number):
        a, b = rng.randrange(10, 60), rng.randrange(10, 40)
        told = [str(a + b), str(a + b + rng.choice((-10, -2, -1, 1, 2, 10)))]
        told[place % 2] = f"If we add {b} to {a}, then we get {told[place % 2]}."
        made.append(AnswerPair(f"What is {a} + {b}?", *told))
    return made


@torch.no_grad()
def letter_margin(model: RealModel, question: str) -> float:
    """Return log p(A) - log p(B) of a model that is asked for a letter.

    Raises:
        ValueError: if the model has no template, or cuts a letter into several tokens.
    """
    ids = [model.tokenizer.encode(letter) for letter in LETTERS]
    if max(map(len, ids)) > 1:
        raise ValueError("the model's tokenizer has no token for a letter: it cannot be the judge")
    logits_V = model.decoder(torch.tensor([question_ids(model, question)]))[0, -1]
    return float(logits_V[ids[0][0]] - logits_V[ids[1][0]])


def picks(margins: Sequence[Sequence[float]]) -> list[tuple[bool, bool]]:
    """Return whether the judge picks the right answer of each pair, in order 0 and in order 1."""
    return [(first > 0, second <= 0) for first, second in margins]


def consistent(picked: Sequence[tuple[bool, bool]]) -> list[bool]:
    """Return of which pairs the judge picks the same answer in both orders."""
    return [first == second for first, second in picked]


def picks_first(picked: Sequence[tuple[bool, bool]]) -> list[bool]:
    """Return in which of all judgements the judge picks the answer that comes first."""
    return [place for first, second in picked for place in (first, not second)]


def picks_longer(pairs: Sequence[AnswerPair], picked: Sequence[tuple[bool, bool]]) -> list[bool]:
    """Return in which of all judgements the judge picks the longer answer."""
    longer = [len(pair.right) > len(pair.wrong) for pair in pairs]
    return [
        is_right == long for long, both in zip(longer, picked, strict=True) for is_right in both
    ]


def cohen_kappa(table: Pair) -> float:
    """Return the agreement of two raters beyond that of raters who only know their own shares.

    With the share p that both say the same, and the shares q and r of "yes" of each::

        kappa = (p - p_chance) / (1 - p_chance),   p_chance = q r + (1 - q) (1 - r)

    Args:
        table: how often both, one or none of them says yes, as `paired` counts.

    Raises:
        ValueError: if both always say the same one thing, which tells nothing.

    Source: Cohen 1960, https://doi.org/10.1177/001316446002000104
    """
    total = sum(table)
    q, r = (table.both + table.first_only) / total, (table.both + table.second_only) / total
    chance = q * r + (1 - q) * (1 - r)
    if chance == 1:
        raise ValueError("both raters always say the same one thing: kappa is 0 / 0")
    return ((table.both + table.neither) / total - chance) / (1 - chance)


def judge_kappa(
    picked: Sequence[tuple[bool, bool]], *, generator: torch.Generator, draws: int = DRAWS
) -> tuple[float, Interval]:
    """Return kappa of "the first answer is right", of a judge and the checker, and its interval.

    A bootstrap draws whole pairs, since both orders of one tell less than two others.

    Args:
        picked: as `picks` returns it, 2 or more.
        generator: of the draws.
        draws: how many samples.
    """
    require("the number of pairs", len(picked), least=2)

    def kappa(sample: Sequence[tuple[bool, bool]]) -> float:
        return cohen_kappa(paired(picks_first(sample), [True, False] * len(sample)))

    places_DN = torch.randint(len(picked), (draws, len(picked)), generator=generator)
    drawn = torch.tensor(
        [kappa([picked[n] for n in row]) for row in places_DN.tolist()], dtype=torch.float64
    )
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return kappa(picked), Interval(low, high)
