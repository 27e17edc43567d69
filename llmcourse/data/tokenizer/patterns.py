"""How text is cut into words before BPE: no token ever crosses a cut.

A special token is a word of its own.  The text between special tokens is cut by a regular
expression, the pattern, whose matches are the words.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Contractions; letters, digits or signs with at most one space before them; white space.

Source: Radford et al. 2019, https://github.com/openai/gpt-2, src/encoder.py
"""

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As GPT-2, but digits in groups of three, line ends apart, and any sign may lead a word.

Source: Llama 3, https://github.com/meta-llama/llama3, llama/tokenizer.py (tiktoken's cl100k_base)
"""

# What the patterns mean on ASCII text, for Python's own `re`.  It knows no \p{...}, and is about
# twice as fast as `regex`.
_ON_ASCII = {
    GPT2: r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",
    LLAMA3: (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
        r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

_HELD_WORDS = 2
"""Words at the end of a text that more text could still change, with the two patterns above.

Two, because "'l" is two words and "'ll" one, and because white space is cut in two, of which the
second part goes to the word that follows.
"""

_BLOCK_CHARACTERS = 1 << 14
"""How much text is cut at a time: enough to make calls rare, and it fits into the cache."""

_LARGEST_PATTERN = 100_000
"""Characters of a pattern times its numbers of repeats: `regex` needs a second to compile it."""

_REPEATS = re.compile(r"\{\s*0*(\d{0,10})\s*,?\s*0*(\d{0,10})\s*\}")
"""The numbers in {3}, {1,3}, {,3} and {1,}."""

_PATIENCE_S, _PATIENCE_PER_CHARACTER_S = 5.0, 1e-5
"""How long a pattern of which nothing is known may search a text: 100 times what `GPT2` needs."""


class Cutter:
    """Cuts text at special tokens, then into words by a pattern.

    Args:
        pattern: a regular expression whose matches cover every text.  It must not look at what
            stands before a match.
        special_tokens: strings that are words of their own; of several that begin at one place the
            longest wins, of overlapping ones the first.
        nfc: whether characters between special tokens are composed first.

    Raises:
        ValueError: if the pattern is broken, too large or has a group that captures, or a special
            token is empty, named twice, or not Unicode text.
        TypeError: if `special_tokens` is one string, or holds something else than strings.
    """

    def __init__(self, pattern: str, special_tokens: Sequence[str], *, nfc: bool = False) -> None:
        self._nfc = nfc
        self._find_words = _compiled(pattern)
        ascii_pattern = _ON_ASCII.get(pattern)
        self._find_ascii = re.compile(ascii_pattern, re.ASCII).findall if ascii_pattern else None
        self._specials = checked_special_tokens(special_tokens)
        self._longest = max(map(len, self._specials), default=1)
        longest_first = sorted(self._specials, key=len, reverse=True)
        self._find_specials = re.compile("|".join(map(re.escape, longest_first))).finditer

    def words(self, text: str) -> list[str]:
        """Return the words of a text, special tokens among them."""
        return [word for block in self.stream([text]) for word in block]

    def stream(self, chunks: Iterable[str]) -> Iterator[list[str]]:
        """Yield the words of the joined chunks, block by block.

        Where chunks and blocks end makes no difference.  A block is held in memory, and the word
        at its end, however long; with NFC, and with other patterns than `GPT2` and `LLAMA3`, about
        which nothing is known, everything up to the next special token.

        Raises:
            ValueError: if the pattern leaves out a part of the text, or takes far too long.
        """
        held, wanted = "", 0
        for block in _blocks(chunks):
            held += block
            if len(held) < wanted:
                continue
            words, end = self._settled(held)
            yield words
            held = held[end:]
            wanted = 2 * len(held)  # a very long word is not searched again for every block
        words, base = self._up_to(held, len(held))
        yield words + self._split(held[base:])

    def _settled(self, text: str) -> tuple[list[str], int]:
        """Return the words that no later text can change, and where they end."""
        # A special token that begins further right could turn out to be the start of a longer one.
        decided = len(text) - self._longest + 1
        words, base = self._up_to(text, decided)
        if self._find_ascii is None or self._nfc or decided <= base:
            return words, base
        kept = self._split(text[base:decided])[:-_HELD_WORDS]
        return words + kept, base + sum(map(len, kept))

    def _up_to(self, text: str, decided: int) -> tuple[list[str], int]:
        """Return the words up to the last special token that begins before `decided`, and its end.

        Special tokens are found from the left, so that of overlapping ones the first wins.
        """
        words: list[str] = []
        base = 0
        for match in self._find_specials(text) if self._specials else ():
            if match.start() >= decided:
                break
            words += self._split(text[base : match.start()])
            words.append(match[0])
            base = match.end()
        return words, base

    def _split(self, text: str) -> list[str]:
        """Return the words of a text that holds no special token."""
        text = unicodedata.normalize("NFC", text) if self._nfc else text
        if self._find_ascii is not None:
            return self._find_ascii(text) if text.isascii() else self._find_words(text)
        patience_s = _PATIENCE_S + len(text) * _PATIENCE_PER_CHARACTER_S
        try:
            words = self._find_words(text, timeout=patience_s)
        except TimeoutError:
            raise ValueError(
                f"the pattern was not done with {len(text):,} characters in {patience_s:.0f} s: "
                "it tries too many ways to match; use GPT2 or LLAMA3, or repeat nothing inside of "
                "a repeat, as (a+)+ does"
            ) from None
        if "".join(words) != text:
            raise ValueError(
                f"the pattern leaves out a part of the text {text[:40]!r}: its matches must cover "
                "every text; add an alternative such as |[\\s\\S]"
            )
        return words


def _compiled(pattern: str) -> Callable[..., list[str]]:
    """Return the function that finds the matches of a pattern."""
    # Repeats with a number are written out: three of a thousand inside each other fill the memory.
    counts = _REPEATS.findall(pattern)
    size = len(pattern) * math.prod(max(1, int(a or 1), int(b or 1)) for a, b in counts)
    if size > _LARGEST_PATTERN:
        raise ValueError(
            f"the pattern is too large: its {len(pattern):,} characters times the numbers in its "
            f"braces must be at most {_LARGEST_PATTERN:,}"
        )
    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError) as error:
        raise ValueError(f"the pattern is not a regular expression: {error}") from error
    if compiled.groups:
        raise ValueError("the pattern has a group that captures: write (?:...), not (...)")
    return compiled.findall


def checked_special_tokens(special_tokens: Iterable[str]) -> list[str]:
    """Return the special tokens, if all of them can be used.

    Raises:
        ValueError: if one is empty, named twice, or not Unicode text.
        TypeError: if one string is given, or one is not a string.
    """
    if isinstance(special_tokens, str):
        raise TypeError(f"special_tokens must be a list of strings, got {special_tokens!r}")
    tokens = list(special_tokens)
    seen: set[str] = set()
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"special_tokens must be strings, got {token!r}")
        if not token:
            raise ValueError("a special token is empty: every special token needs a character")
        if token in seen:
            raise ValueError(f"the special token {token!r} is named twice: name it once")
        seen.add(token)
        utf8(token)
    return tokens


def utf8(text: str) -> bytes:
    """Return the UTF-8 bytes of a text.

    Raises:
        ValueError: if it holds half of a surrogate pair, which UTF-8 cannot write.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text holds the lone surrogate {text[error.start]!r}, which UTF-8 cannot write: "
            'repair it with text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
        ) from error


def read_text(path: Path) -> Iterator[str]:
    """Yield a UTF-8 text file in parts, in constant memory, line ends as they are.

    Args:
        path: the file.

    Raises:
        ValueError: if the file is not UTF-8.
        OSError: if it cannot be read.
    """
    with path.open(encoding="utf8", newline="") as file:
        try:
            while part := file.read(_BLOCK_CHARACTERS):
                yield part
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error


def _blocks(chunks: Iterable[str]) -> Iterator[str]:
    """Join short chunks and slice long ones, into blocks of about _BLOCK_CHARACTERS."""
    waiting: list[str] = []
    length = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _BLOCK_CHARACTERS):
            waiting.append(chunk[start : start + _BLOCK_CHARACTERS])
            length += len(waiting[-1])
            if length >= _BLOCK_CHARACTERS:
                yield "".join(waiting)
                waiting, length = [], 0
    yield "".join(waiting)
