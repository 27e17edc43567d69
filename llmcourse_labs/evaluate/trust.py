"""What the loss does not show: is a model as sure as it is right, and does it stay right?

Calibration, robustness to other spellings and words, and refusals, wanted and unwanted.
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse_labs.evaluate.benchmarks import ChoiceItem, ChoiceScores
from llmcourse_labs.study.story_skills import Tally
from llmcourse_labs.tuning.tasks import REFUSAL, Task

# --- calibration


def confidences(scores: Sequence[ChoiceScores]) -> list[float]:
    """Return the probability of each item's likeliest choice among its choices.

    With the log-probabilities l of the choices::

        confidence = max over k of exp(l_k) / sum over j of exp(l_j)
    """
    found = []
    for each in scores:
        top = max(each.log_probs)
        found.append(1 / math.fsum(math.exp(x - top) for x in each.log_probs))
    return found


class Bin(NamedTuple):
    """Items of about the same confidence: a bar of the reliability diagram."""

    low: float
    """Confidences are above it (in the first bin: or equal)."""
    high: float
    """And at most this."""
    number: int
    """Items."""
    confidence: float
    """Their mean confidence."""
    accuracy: float
    """Share of them that is right."""


def reliability(
    confidence: Sequence[int | float], right: Sequence[int | float], num_bins: int = 10
) -> list[Bin]:
    """Sort items into bins of equal width by their confidence; empty bins are left out.

    Args:
        confidence: of each item, 0 to 1.
        right: whether the item was answered rightly.
        num_bins: 1 or more.

    Raises:
        ValueError: if there is no item, the numbers differ, or a confidence is none.

    Source: DeGroot and Fienberg 1983, https://doi.org/10.2307/2987588
    """
    require("num_bins", num_bins, least=1)
    if not confidence or len(confidence) != len(right):
        raise ValueError(
            f"give a confidence and a verdict of one or more items, got {len(confidence)} and "
            f"{len(right)}"
        )
    members: list[list[tuple[float, bool]]] = [[] for _ in range(num_bins)]
    for p, verdict in zip(confidence, right, strict=True):
        require("a confidence", p, least=0, most=1)
        members[max(0, math.ceil(p * num_bins) - 1)].append((p, bool(verdict)))
    return [
        Bin(
            number / num_bins,
            (number + 1) / num_bins,
            len(each),
            math.fsum(p for p, _ in each) / len(each),
            sum(verdict for _, verdict in each) / len(each),
        )
        for number, each in enumerate(members)
        if each
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: how far confidence and accuracy lie apart.

    The mean over the items of their bin's distance::

        ECE = sum over bins of number / total * |accuracy - confidence|

    Source: Naeini et al. 2015, https://doi.org/10.1609/aaai.v29i1.9602; Guo et al. 2017, equation
        3, https://arxiv.org/abs/1706.04599
    """
    total = sum(each.number for each in bins)
    return math.fsum(each.number / total * abs(each.accuracy - each.confidence) for each in bins)


# --- robustness

PERTURBATIONS = ("typos", "synonyms")
"""What can be done to a prompt without changing what it says."""

SYNONYMS = {
    "began": "started",
    "best": "finest",
    "big": "large",
    "found": "discovered",
    "happy": "cheerful",
    "hungry": "starving",
    "kind": "nice",
    "little": "tiny",
    "looked": "peered",
    "ran": "raced",
    "sad": "unhappy",
    "saw": "noticed",
    "small": "tiny",
    "wanted": "wished",
    "went": "travelled",
}
"""Words of the stories, and words of the same meaning that no story has."""

TYPO_EVERY = 6
"""One word in so many is mistyped."""


def perturbed(item: ChoiceItem, how: str, *, seed: int) -> ChoiceItem:
    """Return an item with the same choices and a prompt that says the same in another way.

    typos: in one of six words of four letters or more, two neighbouring letters inside change
    places.  synonyms: every word of `SYNONYMS` becomes its synonym.

    Args:
        item: to be changed; it stays as it is.
        how: one of `PERTURBATIONS`.
        seed: of the typos; the same item always has the same ones.

    Raises:
        ValueError: if there is no such way.
    """
    if how not in PERTURBATIONS:
        raise ValueError(f"how must be one of {', '.join(PERTURBATIONS)}, got {how!r}")
    if how == "synonyms":
        prompt = re.sub(r"\w+", lambda m: SYNONYMS.get(m[0], m[0]), item.prompt)
    else:
        rng = random.Random(f"typos {seed} {item.prompt}")
        prompt = re.sub(
            r"[A-Za-z]{4,}",
            lambda m: _mistyped(m[0], rng) if rng.random() < 1 / TYPO_EVERY else m[0],
            item.prompt,
        )
    return replace(item, prompt=prompt)


def _mistyped(word: str, rng: random.Random) -> str:
    """Exchange two neighbouring letters that differ, but not the first one."""
    places = [n for n in range(1, len(word) - 1) if word[n] != word[n + 1]]
    if not places:
        return word
    n = rng.choice(places)
    return word[:n] + word[n + 1] + word[n] + word[n + 2 :]


# --- refusals


class Refusals(NamedTuple):
    """How often a model says that the story does not tell."""

    wanted: Tally
    """Of the tasks whose answer is that: those that were refused."""
    unwanted: Tally
    """Of the tasks that have another answer: those that were refused all the same."""


def refusals(tasks: Sequence[Task], said: Sequence[str]) -> Refusals:
    """Count refusals where they are right, and where they are wrong.

    Raises:
        ValueError: if the numbers of tasks and answers differ.
    """
    if len(tasks) != len(said):
        raise ValueError(f"give an answer to each of {len(tasks)} tasks, got {len(said)}")
    refused = [text.strip() == REFUSAL for text in said]
    asked = [task.answer == REFUSAL for task in tasks]
    return Refusals(
        *(
            Tally.of([r for r, a in zip(refused, asked, strict=True) if a == wanted])
            for wanted in (True, False)
        )
    )
