"""What the two readers of others' tokenizers share: patterns, spelling, ends of a text."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from llmcourse.data.tokenizer import LLAMA3
from llmcourse.data.tokenizer.encoding import Tokenizer
from llmcourse.data.tokenizer.files import BYTE_CHARACTERS, unspell

SMOLLM = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
"""Digits are cut out one by one, and what is between them as by `GPT2`.

A text ends before every digit: white space before one stays whole, as at the end of a text, and no
digit has a space before it.

Source: SmolLM2, https://huggingface.co/HuggingFaceTB/SmolLM2-135M, tokenizer.json
"""

QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
"""As `LLAMA3`, but digits one by one.

Source: Qwen2 and Qwen3, https://huggingface.co/Qwen/Qwen3-0.6B, tokenizer.json
"""

_ALIKE = re.compile(
    r"""(?:
      [^\\()\[\]{}.^$*+?\#]                                       # a character, or "|"
    | \\[sSrnt] | \\[pP]\{[LNMPSZ][a-z]?\}                       # a kind of characters
    | \[\^? (?: [\w\ ',;:!/] | \\[sSrnt] | \\[pP]\{[LNMPSZ][a-z]?\} )+ \]    # a choice
    | \(\?i:'s\|'t\|'re\|'ve\|'m\|'ll\|'d\) | \(\?[:!=] | \)     # a group
    | (?: [*+?] | \{\d+(?:,\d*)?\} ) (?! [*+?{] )                # a number of times
    )*""",
    re.VERBOSE,
)
"""What both `regex` and the engine of `tokenizers` read, and read alike."""


def require_alike(pattern: str) -> None:
    """Raise ValueError for a pattern that `tokenizers` may read in another way than `regex`."""
    if rest := _ALIKE.sub("", pattern, count=1):
        raise ValueError(
            f"the pattern {pattern!r} has {rest[:8]!r}, which `tokenizers` may read in another way"
        )


class TextEnds(NamedTuple):
    """Ids that a model expects around a whole text; `Tokenizer.encode` never adds them.

    A chat template writes its own: rendered conversations get none.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class OthersTokenizer(Tokenizer):
    """A tokenizer of others, which may hold tokens that are set as one and yet are text."""

    shown_ids: frozenset[int] = frozenset()
    """Of the special tokens, those that belong to what a model says, such as ``<think>``."""


def shown_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of special tokens that are shown as text; none of a tokenizer of ours."""
    return tokenizer.shown_ids if isinstance(tokenizer, OthersTokenizer) else frozenset()


def tokenizer_from_parts(
    vocabulary: Mapping[int, str],
    merges: Iterable[Sequence[str]],
    special_tokens: Mapping[str, int],
    pattern: str,
    quirks: Sequence[str] = (),
    *,
    shown: Collection[int] = (),
) -> OthersTokenizer:
    """Return the tokenizer of parts that are spelled in GPT-2's characters.

    Bytes that no token has are left out of a text, as `tokenizers` and llama.cpp do: the quirk
    "missing bytes" is added where there are any.

    Args:
        vocabulary: id to spelled token, special tokens left out.
        merges: two spelled tokens each, in order.
        special_tokens: string to id, as they are.
        pattern: how text is cut into words.
        quirks: what else it does; see `Tokenizer`.
        shown: ids of special tokens that are text.

    Raises:
        ValueError: if a token stands for no bytes, or the parts do not fit together.
    """
    alphabet = set(BYTE_CHARACTERS.values())
    if lost := [token for token in special_tokens if token in alphabet - set(vocabulary.values())]:
        raise ValueError(f"the special token {lost[0]!r} is spelled like a byte")
    bytes_of = {token: unspell(token) for token in vocabulary.values()}
    missing = sum(len(token) == 1 for token in bytes_of.values()) < 256
    pairs = []
    for merge in merges:
        if len(merge) != 2 or merge[0] not in bytes_of or merge[1] not in bytes_of:
            raise ValueError(f"the merge {merge!r} is not of two tokens of the vocabulary")
        pairs.append((bytes_of[merge[0]], bytes_of[merge[1]]))
    made = OthersTokenizer(
        {i: bytes_of[token] for i, token in vocabulary.items()},
        pairs,
        special_tokens,
        pattern,
        [*quirks, *(["missing bytes"] if missing else [])],
    )
    made.shown_ids = frozenset(shown)
    return made
