"""Rules that anybody can read: those of C4 and of Gopher, each with its name and its limit.

A rule that drops a text says what it found and what it allows.  C4's list of bad words is left out,
and its removal of repeated spans is `dedup.RepeatedLines`.

Sources:
    Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text
    transformer", section 2.2 (C4).
    Rae et al. 2021, "Scaling language models: methods, analysis and insights from training Gopher",
    appendix A.1.1 and table A1.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from llmcourse_labs.curation.step import Dropped

# --- C4

_ENDS = (".", "!", "?", '"', "'", "\u201d", "\u2019", "\u00bb")
_POLICY = re.compile(
    r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies", re.I
)
_SENTENCE_END = re.compile(r"[.!?][\"'\u201d\u2019\u00bb)]*(?=\s|$)")


@dataclass(frozen=True, kw_only=True)
class C4:
    """The rules of C4 (a step of a funnel): lines go, and texts that too little is left of."""

    least_words_of_a_line: int = 5
    """Shorter lines go."""
    least_sentences: int = 3
    """A text of fewer goes."""

    def __call__(self, text: str) -> str | Dropped:
        """Return the lines that obey the rules, or why the whole text goes."""
        lowered = text.lower()
        if "lorem ipsum" in lowered:
            return Dropped("C4: lorem ipsum")
        if "{" in text:
            return Dropped("C4: curly bracket")
        lines = []
        for line in text.split("\n"):
            if not line.strip():
                lines.append("")
            elif self._keeps(line.strip()):
                lines.append(line.strip())
        kept = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        sentences = len(_SENTENCE_END.findall(kept))
        if sentences < self.least_sentences:
            said = f"{sentences} after lines without a mark at their end, at least"
            return Dropped("C4: few sentences", f"{said} {self.least_sentences}")
        return kept

    def _keeps(self, line: str) -> bool:
        """Say whether a line is prose and says nothing of policies."""
        is_prose = line.endswith(_ENDS) and len(line.split()) >= self.least_words_of_a_line
        return is_prose and "javascript" not in line.lower() and not _POLICY.search(line)


# --- Gopher

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_BULLETS = ("\u2022", "\u2023", "\u25e6", "*", "-")
_LETTERS_AND_DIGITS = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class Gopher:
    """The quality rules of Gopher (a step of a funnel)."""

    words: tuple[int, int] = (50, 100_000)
    """Fewest and most words."""
    mean_word_length: tuple[int | float, int | float] = (3, 10)
    """Shortest and longest mean, in characters."""
    most_symbols: float = 0.1
    """# or ellipses for each word."""
    most_bullets: float = 0.9
    """Share of the lines that begin with a bullet."""
    most_ellipses: float = 0.3
    """Share of the lines that end with an ellipsis."""
    least_with_letter: float = 0.8
    """Share of the words that have a letter."""
    least_stop_words: int = 2
    """How many of `STOP_WORDS` occur."""

    def __call__(self, text: str) -> str | Dropped:
        """Return the text, or the first rule that it breaks."""
        words = text.split()
        count = len(words)
        if not count or not self.words[0] <= count <= self.words[1]:
            return Dropped("Gopher: number of words", f"{count}, {_between(self.words)}")
        length = sum(map(len, words)) / count
        if not self.mean_word_length[0] <= length <= self.mean_word_length[1]:
            said = f"{length:.1f}, {_between(self.mean_word_length)}"
            return Dropped("Gopher: mean word length", said)
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        ellipses = text.count("...") + text.count("\u2026")
        shares = (
            ("# for each word", text.count("#") / count, self.most_symbols),
            ("ellipses for each word", ellipses / count, self.most_symbols),
            (
                "lines with a bullet",
                _share(line.startswith(_BULLETS) for line in lines),
                self.most_bullets,
            ),
            (
                "lines ending in an ellipsis",
                _share(line.endswith(("...", "\u2026")) for line in lines),
                self.most_ellipses,
            ),
        )
        for name, share, most in shares:
            if share > most:
                return Dropped(f"Gopher: {name}", f"{share:.2f}, at most {most}")
        with_letter = _share(any(map(str.isalpha, word)) for word in words)
        if with_letter < self.least_with_letter:
            said = f"{with_letter:.2f}, at least {self.least_with_letter}"
            return Dropped("Gopher: words with a letter", said)
        found = STOP_WORDS.intersection(_LETTERS_AND_DIGITS.findall(text.lower()))
        if len(found) < self.least_stop_words:
            said = f"{len(found)}, at least {self.least_stop_words}"
            return Dropped("Gopher: stop words", said)
        return text


def _between(limits: tuple[int | float, int | float]) -> str:
    return f"from {limits[0]:,} to {limits[1]:,}"


def _share(flags: Iterator[bool]) -> float:
    every = list(flags)
    return sum(every) / len(every)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Gopher's rules against text that repeats itself (a step of a funnel).

    A duplicate is any occurrence after the first.  Shares are of the characters of all words.
    """

    most_lines: float = 0.3
    """Share of the lines, and of the paragraphs, that are duplicates."""
    most_of_lines: float = 0.2
    """Share of the characters that stand in duplicate lines, or in duplicate paragraphs."""
    most_frequent: tuple[tuple[int, float], ...] = ((2, 0.20), (3, 0.18), (4, 0.16))
    """For runs of n words, the share of the characters in the run that takes the most."""
    most_duplicate: tuple[tuple[int, float], ...] = (
        *((5, 0.15), (6, 0.14), (7, 0.13)),
        *((8, 0.12), (9, 0.11), (10, 0.10)),
    )
    """For runs of n words, the share of the characters that stand in duplicates."""

    def __call__(self, text: str) -> str | Dropped:
        """Return the text, or the first rule that it breaks."""
        for name, pieces in (
            ("lines", re.split(r"\s*\n\s*", text.strip())),
            ("paragraphs", re.split(r"\s*\n[ \t\r]*\n\s*", text.strip())),
        ):
            counts = Counter(pieces)
            repeated = sum(n - 1 for n in counts.values())
            letters = sum(len(piece) * (n - 1) for piece, n in counts.items())
            for what, share, most in (
                (f"duplicate {name}", repeated / len(pieces), self.most_lines),
                (
                    f"characters in duplicate {name}",
                    letters / max(1, len(text)),
                    self.most_of_lines,
                ),
            ):
                if share > most:
                    return Dropped(f"Gopher: {what}", f"{share:.2f}, at most {most}")
        for n, kind, share in repeated_runs(text.split()):
            limits = dict(self.most_frequent if kind == "frequent" else self.most_duplicate)
            if share > limits.get(n, 1.0):
                what = f"the most frequent run of {n} words"
                if kind == "duplicate":
                    what = f"duplicate runs of {n} words"
                return Dropped(f"Gopher: {what}", f"{share:.2f}, at most {limits[n]}")
        return text


def repeated_runs(words: Sequence[str]) -> Iterator[tuple[int, str, float]]:
    """Yield, for runs of 2 to 10 words, how many of the characters stand in repeated ones.

    Yields:
        The number of words; "frequent" (to 4) or "duplicate" (from 5 on); and the share of the
        characters in the occurrences of the run that takes the most of them, if it occurs twice,
        or in occurrences after the first of any run, each character counted once.
    """
    numbers: dict[str, int] = {}
    word_N = np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)
    length_N = np.array([len(word) for word in words], dtype=np.int64)
    total, run_N = length_N.sum(), word_N
    for n in range(2, min(10, len(words)) + 1):
        # A run is the run without its last word, and that word: exact, since both are numbered.
        pairs_N = run_N[:-1] * len(numbers) + word_N[n - 1 :]
        _, first, run_N, counts = np.unique(
            pairs_N, return_index=True, return_inverse=True, return_counts=True
        )
        if n <= 4:
            ends = np.concatenate([[0], np.cumsum(length_N)])
            letters = (ends[n:] - ends[:-n])[first]
            most = np.where(counts > 1, counts * letters, 0).max()
            yield n, "frequent", min(1.0, most / total)
        else:
            is_later = np.ones(len(run_N), dtype=bool)
            is_later[first] = False
            covered = np.zeros(len(words) + 1, dtype=np.int64)
            np.add.at(covered, np.flatnonzero(is_later), 1)
            np.add.at(covered, np.flatnonzero(is_later) + n, -1)
            yield n, "duplicate", length_N[np.cumsum(covered[:-1]) > 0].sum() / total
