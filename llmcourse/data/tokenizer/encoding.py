"""The tokenizer: text to ids, and ids to text.

Ids: the 256 bytes first, in the order of GPT-2's own vocabulary, then one id per merge in the order
in which they were learnt, then the special tokens.  A tokenizer that was loaded keeps the ids of
its file, whatever their order, and may have gaps between them.
"""

import hashlib
import itertools
import json
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Int32, Int64, Integer, UInt
from torch import Tensor

from llmcourse.data.tokenizer import files
from llmcourse.data.tokenizer.merging import (
    LONG_WORD,
    VERY_LONG_WORD,
    MergePasses,
    MergeRules,
    in_order,
    merge_long_word,
    merge_word,
)
from llmcourse.data.tokenizer.patterns import GPT2, Cutter, checked_special_tokens, utf8

Merge = tuple[bytes, bytes]
Ids = Iterable[int] | Integer[np.ndarray, " num_tokens"] | Integer[Tensor, " num_tokens"]

AllowSpecial = bool | Literal["raise"]
"""What becomes of special tokens in a text."""

QUIRKS = ("NFC", "missing bytes", "whole words")
"""What some tokenizers of others do: characters are composed first (Unicode's form C), bytes that
have no id are left out, a word that the vocabulary has is taken whole, whatever merges say."""

_MAX_WORDS = 200_000
"""Different words that are remembered; past it the table starts anew."""

_MAX_REMEMBERED_CHARACTERS = 50
"""Longer words hardly ever come again, and could fill the memory."""


_MOST_IDS = 1 << 31
"""Ids end before this, so that they fit into every kind of integer that holds ids."""


class _WordTable(dict[str, bytes]):
    """Every word met so far with its ids, packed as the bytes of an array.

    Packed, the ids of a text are one `b"".join`, which is much faster than joining lists.
    """

    def __init__(self, tokenizer: "Tokenizer", special_tokens: Mapping[str, int]) -> None:
        self._tokenizer = tokenizer
        self._packed_specials = {
            token: np.array([i], tokenizer.dtype).tobytes() for token, i in special_tokens.items()
        }
        super().__init__(self._packed_specials)

    def __missing__(self, word: str) -> bytes:
        ids = self._tokenizer._merged(utf8(word))
        packed = np.asarray(ids, self._tokenizer.dtype).tobytes()
        if len(word) <= _MAX_REMEMBERED_CHARACTERS:
            self[word] = packed
        return packed

    def look_up(self, words: list[str]) -> bytes:
        """Return the packed ids of some words."""
        if len(self) > _MAX_WORDS:
            self.clear()
            self.update(self._packed_specials)
        return b"".join(map(self.__getitem__, words))


class Tokenizer:
    """A byte-level BPE tokenizer.  It is made once and never changed.

    Args:
        vocabulary: id to bytes, special tokens left out.
        merges: pairs of byte strings, in the order in which they apply.
        special_tokens: string to id; or strings alone, each of which has the id of its bytes if
            the vocabulary has them and no merge makes them, else the next one that is free.
        pattern: how text is cut into words; see `Cutter`.
        quirks: of `QUIRKS`; with "NFC" or "missing bytes", decoding may give another text.

    Raises:
        ValueError: if an id is negative, given twice or 2^31 or more, two ids have the same bytes,
            a byte has no id, a merge is named twice or makes something that is not in the
            vocabulary, or a special token, the pattern or a quirk cannot be used.
        TypeError: if a special token is not a string.
    """

    def __init__(
        self,
        vocabulary: Mapping[int, bytes],
        merges: Sequence[Merge],
        special_tokens: Mapping[str, int] | Sequence[str] | None = None,
        pattern: str = GPT2,
        quirks: Collection[str] = (),
    ) -> None:
        special_tokens = () if special_tokens is None else special_tokens
        names = checked_special_tokens(special_tokens)
        if not isinstance(special_tokens, Mapping):
            vocabulary, special_tokens = _with_ids(names, vocabulary, merges)
        self.merges = list(merges)
        """Pairs of byte strings, in the order in which they apply."""
        self.special_tokens = dict(special_tokens)
        """String to id."""
        self.pattern = pattern
        """How text is cut into words."""
        self.quirks = sorted(quirks)
        """What it does as tokenizers of others do."""
        if not set(quirks) <= set(QUIRKS):
            raise ValueError(f"quirks must be of {', '.join(QUIRKS)}, got {self.quirks}")
        self._vocabulary = dict(vocabulary)
        _check(self._vocabulary, self.merges, self.special_tokens, self.quirks)
        self._bytes_of = self._vocabulary | {i: s.encode() for s, i in special_tokens.items()}
        self._vocab_size = 1 + max(self._bytes_of)
        id_of = {token: i for i, token in vocabulary.items()}
        self._byte_ids = [id_of.get(bytes([byte]), -1) for byte in range(256)]
        self._missing = bytes(byte for byte in range(256) if self._byte_ids[byte] < 0)
        self._whole = id_of if "whole words" in quirks else {}
        self._rules = MergeRules(
            {(id_of[a], id_of[b]): rank for rank, (a, b) in enumerate(self.merges)},
            [id_of[a + b] for a, b in self.merges],
        )
        # One cutter and one table for each value of `allow_special`.
        nfc = "NFC" in quirks
        self._cutters = (
            Cutter(pattern, (), nfc=nfc),
            Cutter(pattern, list(special_tokens), nfc=nfc),
        )
        self._tables = (_WordTable(self, {}), _WordTable(self, special_tokens))

    @classmethod
    def from_merges(
        cls, merges: Sequence[Merge], *, special_tokens: Sequence[str] = (), pattern: str = GPT2
    ) -> "Tokenizer":
        """Build a tokenizer from its merges alone: bytes, then merges, then special tokens."""
        tokens = [bytes([byte]) for byte in files.BYTE_CHARACTERS]
        tokens += dict.fromkeys(a + b for a, b in merges)
        return cls(dict(enumerate(tokens)), merges, special_tokens, pattern)

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, special_tokens={self.special_tokens})"

    @property
    def vocab_size(self) -> int:
        """The greatest id plus 1: how many rows a model's embedding needs."""
        return self._vocab_size

    def __len__(self) -> int:
        """Return `vocab_size`."""
        return self._vocab_size

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Id to bytes, special tokens included; ids in a gap have no entry."""
        return MappingProxyType(self._bytes_of)

    @property
    def dtype(self) -> np.dtype:
        """The smaller of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides which ids a text gets, as 64 hexadecimal digits."""
        tokens = [token.hex() for _, token in sorted(self._bytes_of.items())]
        parts = [
            tokens if self._has_all_ids else [sorted(self._bytes_of), tokens],
            sorted(self.special_tokens.items()),
            [[a.hex(), b.hex()] for a, b in self.merges],
            self.pattern,
            *([self.quirks] if self.quirks else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @cached_property
    def token_lengths(self) -> Int64[np.ndarray, " vocab_size"]:
        """Bytes of every id; 0 in a gap."""
        return np.array([len(self._bytes_of.get(i, b"")) for i in range(self.vocab_size)], np.int64)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token.

        Raises:
            ValueError: if there is no such id.
        """
        if token_id not in self._bytes_of:
            raise self._unknown(token_id)
        return self._bytes_of[token_id]

    def encode(self, text: str, *, allow_special: AllowSpecial = True) -> list[int]:
        """Return the ids of a text.

        Args:
            text: any Unicode text.
            allow_special: whether special tokens in the text become their own ids, or are encoded
                like other text, as they should be in text that strangers wrote; "raise" refuses a
                text that has one, as tiktoken's encode does.

        Raises:
            ValueError: if the text holds half of a surrogate pair, or a special token that it must
                not.
            TypeError: if `text` is not a string.
        """
        return self.encode_to_array(text, allow_special=allow_special).tolist()

    def encode_to_array(
        self, text: str, *, allow_special: AllowSpecial = True
    ) -> UInt[np.ndarray, " num_tokens"]:
        """Return the ids of a text as an array of the tokenizer's `dtype`.

        Args and errors as in `encode`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got a {type(text).__name__}")
        if allow_special == "raise":
            if there := [token for token in self.special_tokens if token in text]:
                raise ValueError(
                    f"the text spells the special token {there[0]!r}: say allow_special=True for "
                    "its id, False for its characters"
                )
            allow_special = False
        packed = bytearray().join(self._packed([text], allow_special=allow_special))
        return np.frombuffer(packed, self.dtype)

    def encode_iterable_to_arrays(
        self, chunks: Iterable[str], *, allow_special: bool = True
    ) -> Iterator[UInt[np.ndarray, " num_tokens"]]:
        """Yield the ids of the joined chunks, in arrays of some thousand.

        Memory does not grow with the number of chunks, and where they end makes no difference: the
        ids are those of `encode("".join(chunks))`.  Args and errors as in `encode`; `read_text`
        gives the chunks of a file.
        """
        for packed in self._packed(chunks, allow_special=allow_special):
            yield np.frombuffer(bytearray(packed), self.dtype)

    def _packed(self, chunks: Iterable[str], *, allow_special: bool) -> Iterator[bytes]:
        """Yield packed ids, block by block."""
        for words in self._cutters[allow_special].stream(chunks):
            yield self._tables[allow_special].look_up(words)

    def _merged(self, word: bytes) -> list[int] | Int32[np.ndarray, " num_tokens"]:
        """Return the ids of a word, by the fastest way for its length."""
        if word in self._whole:
            return [self._whole[word]]
        word = word.translate(None, self._missing)
        if len(word) >= VERY_LONG_WORD and self._passes is not None:
            return self._passes.merge(
                np.array(self._byte_ids, np.int32)[np.frombuffer(word, np.uint8)]
            )
        ids = [self._byte_ids[byte] for byte in word]
        merge = merge_word if len(ids) < LONG_WORD else merge_long_word
        return merge(ids, self._rules)

    @cached_property
    def _passes(self) -> MergePasses | None:
        """The way to merge very long words, if the order of the merges allows it."""
        return MergePasses(self._rules) if in_order(self._rules) else None

    def decode(self, ids: Ids) -> str:
        """Return the text of some ids; bytes that are not UTF-8 become U+FFFD.

        Args:
            ids: integers from 0 to vocab_size - 1, but for gaps: a list, an array, a tensor of one
                dimension.

        Raises:
            ValueError: if an id is not in the vocabulary.
            TypeError: if something else than integers is given.
        """
        return self.decode_bytes(ids).decode("utf8", errors="replace")

    def decode_known(self, ids: Ids) -> str:
        """Return the text of what a model wrote, without ids that no token has.

        A model may have rows for a gap, or behind the end of the vocabulary, and draw one.
        """
        return self.decode(i for i in map(operator.index, ids) if i in self._bytes_of)

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of some ids, UTF-8 or not; args and errors as in `decode`."""
        try:
            return b"".join(map(self._bytes_of.__getitem__, map(operator.index, ids)))
        except KeyError as error:
            raise self._unknown(error.args[0]) from None

    @property
    def _has_all_ids(self) -> bool:
        """Whether ids are 0, 1, 2, ... without a gap."""
        return len(self._bytes_of) == self._vocab_size

    def _unknown(self, token_id: int) -> ValueError:
        missing = self._vocab_size - len(self._bytes_of)
        but = f" but for {missing} that no token has" if missing else ""
        return ValueError(
            f"token id {token_id} is not in the vocabulary: ids are from 0 to "
            f"{self.vocab_size - 1}{but}"
        )

    def save(self, folder: str | Path) -> None:
        """Write vocab.json and merges.txt in GPT-2's form, and special_tokens.json.

        Every file is written atomically; special_tokens.json comes last and carries the
        fingerprint, so that `load` notices files that do not belong together.

        Raises:
            OSError: if a file cannot be written.
        """
        files.write(
            folder,
            files.Content(
                self._vocabulary, self.merges, self.special_tokens, self.pattern, self.quirks
            ),
            self.fingerprint,
        )

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read what `save` wrote, or GPT-2's own two files.

        Without special_tokens.json the pattern is `GPT2`, and entries of vocab.json that no merge
        makes and that the pattern cuts into several words are special tokens.

        Raises:
            ValueError: if a file is missing or broken, or the files do not belong together.
        """
        content, fingerprint = files.read(folder)
        tokenizer = cls._from(content, f"in {folder}")
        if fingerprint is not None and tokenizer.fingerprint != fingerprint:
            raise ValueError(
                f"the tokenizer in {folder} is broken: its files were changed or belong to "
                "different tokenizers; save it again"
            )
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab: str | Path,
        merges: str | Path,
        special_tokens: Sequence[str] | None = None,
        pattern: str = GPT2,
    ) -> "Tokenizer":
        """Read a vocabulary and merges in GPT-2's form, whatever the files are called.

        Args:
            vocab: vocab.json or encoder.json, token to id.
            merges: merges.txt or vocab.bpe, a pair a line.
            special_tokens: with the ids that the vocabulary has for them, else the next ones that
                are free.  If None, they are found as in `load`.
            pattern: how text is cut into words; see `Cutter`.

        Raises:
            ValueError: if a file is missing or broken, or the files do not belong together.
        """
        content = files.read_pair(Path(vocab), Path(merges), special_tokens, pattern)
        return cls._from(content, f"of {vocab} and {merges}")

    @classmethod
    def _from(cls, content: files.Content, where: str) -> "Tokenizer":
        """Build a tokenizer from what was read, or say where it was."""
        try:
            return cls(*content)
        except (ValueError, TypeError) as error:
            raise ValueError(f"the tokenizer {where} is broken: {error}") from error


def _with_ids(
    names: Sequence[str], vocabulary: Mapping[int, bytes], merges: Sequence[Merge]
) -> tuple[dict[int, bytes], dict[str, int]]:
    """Return the vocabulary without the special tokens, and the id of each of these."""
    made = {a + b for a, b in merges}
    id_of = {token: i for i, token in vocabulary.items() if len(token) > 1 and token not in made}
    free = itertools.count(1 + max(vocabulary, default=-1))
    special_tokens = {}
    for name in names:
        i = id_of.get(name.encode())
        special_tokens[name] = next(free) if i is None else i
    kept = special_tokens.values()
    return {i: token for i, token in vocabulary.items() if i not in kept}, special_tokens


def _check(
    vocabulary: Mapping[int, bytes],
    merges: Sequence[Merge],
    special_tokens: Mapping[str, int],
    quirks: Sequence[str],
) -> None:
    """Raise ValueError if the parts of a tokenizer do not fit together."""
    ids = [*vocabulary, *special_tokens.values()]
    if len(set(ids)) < len(ids):
        raise ValueError("two tokens have the same id: every token needs its own")
    if min(ids, default=0) < 0 or max(ids, default=0) >= _MOST_IDS:
        raise ValueError(f"token ids must be from 0 to {_MOST_IDS - 1:,}")
    known = set(vocabulary.values())
    if len(known) < len(vocabulary):
        raise ValueError("two ids of the vocabulary have the same bytes: every token needs its own")
    missing = [byte for byte in range(256) if bytes([byte]) not in known]
    if missing and "missing bytes" not in quirks:
        raise ValueError(f"the vocabulary has no token for the bytes {missing[:5]}")
    if len(set(merges)) < len(merges):
        raise ValueError("a merge is named twice: its place in the order is not clear")
    for a, b in merges:
        for token in (a, b, a + b):
            if token not in known:
                raise ValueError(f"the merge {a!r} {b!r} needs {token!r} in the vocabulary")
