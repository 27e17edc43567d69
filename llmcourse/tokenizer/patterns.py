"""How text is cut into words before BPE: no token ever crosses a cut.

Taught in: chapters/05_tokens.ipynb
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""GPT-2's pattern: contractions, then letters, digits or signs with at most one space before them.

Source: Radford et al. 2019, published code, in an equivalent form.
"""

HELD_WORDS = 3
"""Words at the end of a chunk that wait for the next one.

What follows can change the last two: white space belongs to the next word or not depending on what
it is, and "'" with "l" becomes the contraction "'ll".  One more is a margin.
"""


class Cut(NamedTuple):
    """Some words, the special token after them if there is one, and where both end."""

    words: list[str]
    special: str | None
    end: int


class Cutter:
    """Cuts text at special tokens, then into words by a pattern.

    Args:
        pattern: a regular expression whose matches are the words.
        special_tokens: strings that are tokens of their own; the longest of overlapping ones wins.

    Raises:
        ValueError: if the pattern is broken, or a special token is empty or named twice.
    """

    def __init__(self, pattern: str, special_tokens: Sequence[str]) -> None:
        if "" in special_tokens:
            raise ValueError("a special token is empty: every special token needs a character")
        twice = {t for t in special_tokens if list(special_tokens).count(t) > 1}
        if twice:
            raise ValueError(f"special tokens are named twice: {sorted(twice)}")
        try:
            self._words = regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"pattern is not a regular expression: {error}") from error
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._longest = len(longest_first[0]) if longest_first else 0
        alternatives = "|".join(map(re.escape, longest_first))
        self._specials = re.compile(alternatives) if alternatives else None

    def cut(self, text: str, *, complete: bool = True) -> Iterator[Cut]:
        """Yield the cuts of a text, in order.

        Args:
            text: what to cut.
            complete: False if more text may follow; what it could change is then left uncut.
        """
        base, limit = 0, len(text) if complete else max(0, len(text) - self._longest + 1)
        if self._specials is not None:
            for match in self._specials.finditer(text):
                if not complete and match.start() + self._longest > len(text):
                    # It could still turn out to be a longer special token.
                    limit = min(limit, match.start())
                    break
                yield Cut(self._matches(text, base, match.start()), match[0], match.end())
                base = match.end()
        if complete:
            yield Cut(self._matches(text, base, len(text)), None, len(text))
        elif limit > base:
            spans = [m.span() for m in self._words.finditer(text, base, limit)][:-HELD_WORDS]
            if spans:
                yield Cut([text[a:b] for a, b in spans], None, spans[-1][1])

    def cut_stream(self, chunks: Iterable[str]) -> Iterator[Cut]:
        """Yield the cuts of the joined chunks, holding little more than one chunk at a time.

        The result does not depend on where the chunks end, for patterns that decide a cut from at
        most the two words after it, as GPT-2's does.
        """
        held = ""
        for chunk in chunks:
            held += chunk
            end = 0
            for cut in self.cut(held, complete=False):
                end = cut.end
                yield cut
            held = held[end:]
        yield from self.cut(held)

    def _matches(self, text: str, start: int, end: int) -> list[str]:
        """Return the words between two positions."""
        return self._words.findall(text, start, end) if end > start else []
