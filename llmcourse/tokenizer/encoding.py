"""The tokenizer: text to ids, ids to text, and GPT-2's two files.

Ids: the 256 bytes first, in the order of GPT-2's own vocabulary, then one id per merge in the order
in which they were learnt, then the special tokens.

Taught in: chapters/05_tokens.ipynb
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llmcourse.runtime import write_atomically
from llmcourse.tokenizer.patterns import GPT2, Cut, Cutter

Merge = tuple[bytes, bytes]


def byte_characters() -> dict[int, str]:
    """Return GPT-2's printable character for every byte, in the order of its first 256 ids.

    Bytes that print stand for themselves; the other 68 take the characters from U+0100 on, so that
    a vocabulary file has neither white space nor control characters.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(256 + place) for place, byte in enumerate(rest)}


_CHARACTER_OF = byte_characters()
_BYTE_OF = {character: byte for byte, character in _CHARACTER_OF.items()}


class _IdMerge(NamedTuple):
    """A merge by ids; the smallest rank applies first."""

    rank: int
    first: int
    second: int
    merged: int


def _apply(ids: list[int], merge: _IdMerge) -> list[int]:
    """Replace every occurrence of a merge's pair, from the left."""
    out: list[int] = []
    i, last = 0, len(ids) - 1
    while i <= last:
        if i < last and ids[i] == merge.first and ids[i + 1] == merge.second:
            out.append(merge.merged)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


class _WordTable(dict):
    """Numbers every different word as it is met, and keeps its ids in one growing array."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self.flat: list[int] = []
        self.starts: list[int] = []
        self.lengths: list[int] = []

    def __missing__(self, word: str) -> int:
        ids = self._tokenizer._encode_word(word)
        self.starts.append(len(self.flat))
        self.lengths.append(len(ids))
        self.flat += ids
        self[word] = number = len(self.starts) - 1
        return number


class Tokenizer:
    """A byte-level BPE tokenizer.

    Args:
        vocabulary: the bytes of every token, special tokens left out, by id.
        merges: pairs of byte strings, in the order in which they apply.
        special_tokens: string to id.
        pattern: how text is cut into words.

    Raises:
        ValueError: if ids are not 0, 1, 2, ... without gap, a byte has no token, or a merge makes
            something that is not in the vocabulary.
    """

    MAX_WORDS = 200_000
    """Different words that are remembered; past it the table starts anew."""

    def __init__(
        self,
        vocabulary: Mapping[int, bytes],
        merges: Sequence[Merge],
        special_tokens: Mapping[str, int],
        pattern: str = GPT2,
    ) -> None:
        self.merges = list(merges)
        self.special_tokens = dict(special_tokens)
        self.pattern = pattern
        self._bytes_of = dict(vocabulary) | {i: s.encode() for s, i in special_tokens.items()}
        self._id_of = {token: i for i, token in vocabulary.items()}
        self._check()
        self._merge_of = {
            (self._id_of[a], self._id_of[b]): _IdMerge(
                rank, self._id_of[a], self._id_of[b], self._id_of[a + b]
            )
            for rank, (a, b) in enumerate(self.merges)
        }
        self._byte_ids = [self._id_of[bytes([b])] for b in range(256)]
        self._cutter = Cutter(pattern, list(special_tokens))
        self._table = _WordTable(self)

    def _check(self) -> None:
        """Raise ValueError if the parts do not fit together."""
        if sorted(self._bytes_of) != list(range(len(self._bytes_of))):
            raise ValueError("token ids must be 0, 1, 2, ... without gap or repetition")
        missing = [b for b in range(256) if bytes([b]) not in self._id_of]
        if missing:
            raise ValueError(f"the vocabulary has no token for the bytes {missing[:5]}")
        for a, b in self.merges:
            for token in (a, b, a + b):
                if token not in self._id_of:
                    raise ValueError(f"the merge {a!r} {b!r} needs {token!r} in the vocabulary")

    @classmethod
    def from_merges(
        cls, merges: Sequence[Merge], *, special_tokens: Sequence[str] = (), pattern: str = GPT2
    ) -> "Tokenizer":
        """Build a tokenizer from its merges alone: bytes, then merges, then special tokens."""
        tokens = [bytes([byte]) for byte in _CHARACTER_OF]
        tokens += dict.fromkeys(a + b for a, b in merges)
        specials = {token: len(tokens) + i for i, token in enumerate(special_tokens)}
        return cls(dict(enumerate(tokens)), merges, specials, pattern)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return len(self._bytes_of)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides which ids a text gets."""
        parts = [[list(self._bytes_of[i]) for i in range(self.vocab_size)], self.special_tokens]
        parts += [[[list(a), list(b)] for a, b in self.merges], self.pattern]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token.

        Raises:
            ValueError: if there is no such id.
        """
        if token_id not in self._bytes_of:
            raise ValueError(f"token id {token_id} is not in [0, {self.vocab_size})")
        return self._bytes_of[token_id]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; special tokens in it become their own ids."""
        return self.encode_to_array(text).tolist()

    def encode_to_array(self, text: str) -> np.ndarray:
        """Return the ids of a text as a NumPy array (uint32)."""
        parts = [self._encode_cut(cut) for cut in self._cutter.cut(text)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def encode_iterable(self, chunks: Iterable[str]) -> Iterator[int]:
        """Yield the ids of the joined chunks, in memory that does not grow with their number.

        Where chunks end makes no difference: the ids are those of `encode("".join(chunks))`.
        """
        for cut in self._cutter.cut_stream(chunks):
            yield from self._encode_cut(cut).tolist()

    def _encode_cut(self, cut: Cut) -> np.ndarray:
        """Look every word up, then lay the pieces side by side in one NumPy operation."""
        if len(self._table) > self.MAX_WORDS:
            self._table = _WordTable(self)
        table = self._table
        numbers = np.fromiter(map(table.__getitem__, cut.words), np.int64, len(cut.words))
        lengths = np.asarray(table.lengths, np.int64)[numbers]
        # Output place p of word w reads flat[start_w + (p - first place of w)].
        shift = np.asarray(table.starts, np.int64)[numbers] - (lengths.cumsum() - lengths)
        places = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        ids = np.asarray(table.flat, np.uint32)[places]
        if cut.special is None:
            return ids
        return np.append(ids, np.uint32(self.special_tokens[cut.special]))

    def _encode_word(self, word: str) -> list[int]:
        """Apply the merges to one word, the one learnt first before all others.

        Raises:
            ValueError: if the word holds half of a surrogate pair, which UTF-8 cannot write.
        """
        try:
            data = word.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text holds the lone surrogate {word[error.start]!r}, which has no UTF-8 form"
            ) from error
        ids = [self._byte_ids[byte] for byte in data]
        while len(ids) > 1:
            known = [self._merge_of[pair] for pair in pairwise(ids) if pair in self._merge_of]
            if not known:
                break
            ids = _apply(ids, min(known))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: if an id is not in the vocabulary.
        """
        return b"".join(self.token_bytes(int(i)) for i in ids).decode("utf8", errors="replace")

    def save(self, folder: str | Path) -> None:
        """Write vocab.json and merges.txt in GPT-2's form, and special_tokens.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        specials = set(self.special_tokens.values())
        vocabulary = {
            _spell(self._bytes_of[i]): i for i in range(self.vocab_size) if i not in specials
        }
        lines = ["#version: 0.2", *(f"{_spell(a)} {_spell(b)}" for a, b in self.merges)]
        extra = {"special_tokens": self.special_tokens, "pattern": self.pattern}
        for name, content in (
            ("vocab.json", json.dumps(vocabulary, ensure_ascii=False)),
            ("merges.txt", "\n".join(lines) + "\n"),
            ("special_tokens.json", json.dumps(extra, ensure_ascii=False, indent=1)),
        ):
            with write_atomically(folder / name) as file:
                file.write(content.encode())

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Read what `save` wrote, or GPT-2's own two files.

        Without special_tokens.json, entries of vocab.json that no merge makes are special tokens.

        Raises:
            ValueError: if a file is missing or broken.
        """
        folder = Path(folder)
        try:
            spelled = json.loads((folder / "vocab.json").read_text(encoding="utf8"))
            lines = (folder / "merges.txt").read_text(encoding="utf8").split("\n")
            extra_file = folder / "special_tokens.json"
            extra = json.loads(extra_file.read_text(encoding="utf8")) if extra_file.exists() else {}
            pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
            merges = [(_unspell(a), _unspell(b)) for a, b in pairs]
        except FileNotFoundError as error:
            raise ValueError(f"no tokenizer in {folder}: {error.filename} is missing") from error
        except (ValueError, KeyError) as error:
            raise ValueError(f"the tokenizer in {folder} is broken: {error}") from error
        specials = extra.get("special_tokens")
        if specials is None:
            made = {a + b for a, b in merges} | {bytes([b]) for b in range(256)}
            specials = {s: i for s, i in spelled.items() if _try_unspell(s) not in made}
        vocabulary = {i: _unspell(s) for s, i in spelled.items() if s not in specials}
        return cls(vocabulary, merges, specials, extra.get("pattern", GPT2))


def _spell(token: bytes) -> str:
    """Write bytes as GPT-2's printable characters."""
    return "".join(_CHARACTER_OF[byte] for byte in token)


def _unspell(text: str) -> bytes:
    """Read GPT-2's printable characters as bytes."""
    return bytes(_BYTE_OF[character] for character in text)


def _try_unspell(text: str) -> bytes | None:
    """Read GPT-2's printable characters, or None if the text holds others."""
    return _unspell(text) if all(character in _BYTE_OF for character in text) else None
