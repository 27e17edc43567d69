"""How well a text tells stories: five skills that can be counted on the text alone.

Made for what a model writes: broken, repetitive, cut at either end, or empty.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import nan

from llmcourse.data.corpus.stories import END_OF_TEXT, story_words
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR
from llmcourse.data.corpus.story_lexicon import ADULTS, BOYS, CLASSES, GIRLS
from llmcourse.data.corpus.templates import Slot, split_template

Reading = tuple[str, Mapping[str, int]]
"""A template and the values that make a sentence of it."""

_SENTENCE = re.compile(r"[^.!?]*[.!?]+")
_MARKS = '.,!?"'
_GENDER = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she"}
_PEOPLE = {person[""]: person["he"] for person in BOYS + GIRLS + ADULTS}
_NOUNS = frozenset(noun[""] for noun in CLASSES["toy"] + CLASSES["animal"])
_SUMS = {
    kind: {(one["start"], one["change"]): one["result"] for one in CLASSES[kind]}
    for kind in ("less", "more")
}


@dataclass(frozen=True)
class Tally:
    """How many of how many were right."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """Right ones as a fraction of all; NaN if there was nothing to judge."""
        return self.right / self.total if self.total else nan

    @classmethod
    def of(cls, verdicts: list[bool]) -> "Tally":
        """Count verdicts."""
        return cls(sum(verdicts), len(verdicts))


@dataclass(frozen=True, kw_only=True)
class StoryReport:
    """What `story_report` counted; `report.words.share` is a fraction, NaN if nothing was there."""

    words: Tally
    """Words that the grammar has (case and punctuation around a word aside)."""
    sentences: Tally
    """Whole sentences that the grammar can read: names and pronouns fit, and every character."""
    agreement: Tally
    """Pronouns (he, him, his, she, her) that fit the person named last in the same story."""
    articles: Tally
    """"a" and "an" that fit the first letter of the next word."""
    persistence: Tally
    """Mentions of "the" toy or animal that the same story has introduced before."""
    counting: Tally
    """Stories whose sum is right, of those with start, change and result in accepted sentences."""


def story_report(text: str) -> StoryReport:
    """Judge a text, usually one that a model wrote.

    Stories are what lies between separators, sentences end with a full stop, exclamation or
    question mark.  A cut end is not held against the text: what follows its last sentence is
    skipped, and so is a beginning that starts neither with a capital nor a quotation mark, up to
    the first end of a sentence.  A story that stops in mid-sentence before a separator is broken
    and counts as a wrong sentence.  Words are judged throughout, apart from one that an end may
    have cut.  Where there is nothing to judge, a tally is empty and its share is NaN.

    Args:
        text: any text; it should begin where a story begins, or names and things that were
            mentioned before the cut are missed.

    Raises:
        TypeError: if `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"text must be a string, got {type(text).__name__}: decode the tokens first"
        )
    told = [story for story in _split(text) if story]
    read = [[list(STORY_GRAMMAR.readings(sentence)) for sentence in story] for story in told]
    spoken = [[_bare(word) for word in " ".join(story).split()] for story in told]
    return StoryReport(
        words=Tally.of([_bare(word).lower() in story_words() for word in _whole_words(text)]),
        sentences=Tally.of([bool(readings) for story in read for readings in story]),
        agreement=Tally.of([v for words in spoken for v in _agreement(words)]),
        articles=Tally.of([v for words in spoken for v in _articles(words)]),
        persistence=Tally.of([v for words in spoken for v in _persistence(words)]),
        counting=Tally.of([v for story in read for v in _counting(story)]),
    )


def _bare(word: str) -> str:
    """A word without the punctuation around it."""
    return word.strip(_MARKS)


def _begins_cut(text: str) -> bool:
    start = text.lstrip()[:1]
    return not (start.isupper() or start == '"' or text.startswith(END_OF_TEXT))


def _whole_words(text: str) -> list[str]:
    """All that stands between spaces, without a word that either end may have cut."""
    words = text.replace(END_OF_TEXT, " ").split()
    if words and _begins_cut(text):
        words = words[1:]
    return words[:-1] if words and text[-1].isalnum() else words


def _split(text: str) -> list[list[str]]:
    """The sentences of each story, without what a cut at either end has left of one."""
    parts = text.split(END_OF_TEXT)
    stories = [_sentences(part, keep_rest=i < len(parts) - 1) for i, part in enumerate(parts)]
    if stories[0] and _begins_cut(text):
        stories[0] = stories[0][1:]
    return stories


def _sentences(part: str, *, keep_rest: bool) -> list[str]:
    whole = _SENTENCE.findall(part)
    rest = part[sum(map(len, whole)) :].strip()
    return [one.strip() for one in whole] + ([rest] if keep_rest and rest else [])


def _agreement(words: list[str]) -> Iterator[bool]:
    named = None
    for word in words:
        if word in _PEOPLE:
            named = _PEOPLE[word]
        elif word.lower() in _GENDER and named:
            yield _GENDER[word.lower()] == named


def _articles(words: list[str]) -> Iterator[bool]:
    for word, following in pairwise(words):
        if word.lower() in ("a", "an") and following:
            yield (word.lower() == "an") == (following[0].lower() in "aeiou")


def _persistence(words: list[str]) -> Iterator[bool]:
    introduced = set()
    for before, word in zip(["", *words], words, strict=False):
        if word in _NOUNS:
            if before.lower() == "the":
                yield word in introduced
            else:
                introduced.add(word)


def _counting(story: list[list[Reading]]) -> Iterator[bool]:
    seen: dict[tuple[str, str], str] = {}
    for template, values in (reading for readings in story for reading in readings):
        for slot in split_template(template):
            if isinstance(slot, Slot) and slot.variable in _SUMS:
                value = CLASSES[slot.variable][values[slot.variable]]
                seen[slot.variable, slot.form] = value[slot.form]
    for kind, results in _SUMS.items():
        start, change, result = (seen.get((kind, form)) for form in ("start", "change", "result"))
        if start and change and result:
            yield results.get((start, change)) == result
