"""Simple stories without end, whose irreducible loss is known."""

import random
import re
from functools import cache

from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR

END_OF_TEXT = "<|endoftext|>"
"""Ends every story; a tokenizer makes it one special token."""


def stories(num_bytes: int, seed: int) -> str:
    """Write whole stories, each followed by `END_OF_TEXT`, until there are enough bytes.

    The same seed gives the same text on every platform and version of Python, and a longer text
    starts with the shorter one.  The text is ASCII, so that one character is one byte.

    Args:
        num_bytes: the least length in bytes, separators included; at least 1.  The text ends with
            the first story that reaches it, so it is longer by less than one story (under 500
            bytes), and no story is cut or left out for its length.
        seed: which stream of stories, 0 or more.

    Returns:
        The stories, one after the other, nothing between a separator and the next story.

    Raises:
        TypeError: if an argument is not an integer.
        ValueError: if an argument is out of its range.
    """
    for name, value, least in (("num_bytes", num_bytes, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    rng = random.Random(seed)
    written, length = [], 0
    while length < num_bytes:
        text, _ = STORY_GRAMMAR.sample(rng)
        written.append(text + END_OF_TEXT)
        length += len(written[-1])
    return "".join(written)


@cache
def stories_entropy() -> float:
    """The exact entropy of `stories`, in bits per byte, separators included.

    entropy = H(story) / E[bytes of a story]

    Stories are independent draws from one grammar, so n of them carry n H(story) bits, and by the
    law of large numbers n E[bytes] bytes.  No model can predict the stream with fewer bits per byte
    on average, and a model that knows the grammar reaches it.

    H(story) is the sum of the entropies of the grammar's draws (`Grammar.expected_bits_and_bytes`
    has the derivation), since every story can be drawn in one way only: the draws can be read off
    the text, and a text tells exactly as much as its draws.  The separator adds bytes and no bits.

    Returns:
        Bits per byte.

    Source:
        Cover and Thomas, Elements of Information Theory, 2nd ed. 2006: chain rule, theorem 2.5.1;
        entropy rate, section 4.2.
    """
    bits, length = STORY_GRAMMAR.expected_bits_and_bytes()
    return bits / (length + len(END_OF_TEXT))


@cache
def story_words() -> frozenset[str]:
    """All words that stories are made of, in lower case."""
    texts = STORY_GRAMMAR.texts
    return frozenset(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))
