"""No item of a test in the training text: runs of 13 words that both have.

Source: Brown et al. 2020, "Language models are few-shot learners", appendix C: lower case, no
punctuation, runs of 13 words; items that are shorter must stand there whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import regex

from llmcourse.base.arguments import require
from llmcourse_labs.curation.step import Dropped

_WORD = regex.compile(r"\w+")


def normalised(text: str) -> list[str]:
    """Return the words in lower case, without punctuation."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Decontaminate:
    """Drop a text that shares a run of words with an item of a test (a step of a funnel).

    Args:
        test_items: questions, with or without their answers.
        n: words in a run, 1 or more.

    Raises:
        ValueError: if n is below 1 or an item has no word.
    """

    test_items: Sequence[str]
    n: int = 13
    _items: dict[int, dict[tuple[str, ...], list[int]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """By length, the runs to look for, and of which items each is."""

    def __post_init__(self) -> None:
        """List the runs."""
        require("n", self.n, least=1)
        for number, item in enumerate(self.test_items):
            words = normalised(item)
            if not words:
                raise ValueError(f"test item {number} has no word: {item!r}")
            length = min(self.n, len(words))
            runs = self._items.setdefault(length, {})
            for start in range(len(words) - length + 1):
                runs.setdefault(tuple(words[start : start + length]), []).append(number)

    def _found(self, text: str) -> Iterator[list[int]]:
        """Yield, for each run of a text that is looked for, the items that have it."""
        words = normalised(text)
        for length, runs in self._items.items():
            for run in zip(*(words[i:] for i in range(length)), strict=False):
                if run in runs:
                    yield runs[run]

    def found_in(self, text: str) -> int | None:
        """Return the number of an item that a text shares a run with; None if it shares none."""
        return next((numbers[0] for numbers in self._found(text)), None)

    def items_in(self, text: str) -> set[int]:
        """Return the numbers of all items that a text shares a run with."""
        return {number for numbers in self._found(text) for number in numbers}

    def __call__(self, text: str) -> str | Dropped:
        """Return the text, or that it holds an item."""
        number = self.found_in(text)
        if number is None:
            return text
        return Dropped("holds a test item", f"item {number}: {self.test_items[number][:60]}")
