"""Token shards: a corpus as token ids in a few large files that are read without being loaded.

`shard_file` describes the files byte by byte.
"""

import bisect
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, overload

import numpy as np

from llmcourse.base.arguments import require
from llmcourse.data.shard_file import (
    DTYPES,
    LAYOUT,
    check_together,
    read_header,
    shard_path,
    token_dtype,
    write_shard,
)

CHUNK_TOKENS = 65_536
"""Ids that are taken from an iterable at a time."""


def write_shards(
    tokens: Iterable[int | np.integer | np.ndarray],
    folder: str | Path,
    *,
    tokenizer_fingerprint: str,
    vocab_size: int,
    shard_tokens: int = 2**24,
) -> list[Path]:
    """Write a stream of token ids as numbered shards; return their paths.

    One shard is held in memory, however long the stream.  Every file is written atomically.
    Shards that are in the folder are removed first, so that an interrupted call leaves a folder
    that `TokenShards` refuses, never a mixture of two corpora.

    Args:
        tokens: ids one by one, arrays of ids, or one array of any length.
        folder: made if missing.
        tokenizer_fingerprint: names the tokenizer; readers must give the same one.
        vocab_size: ids are from 0 to vocab_size - 1.
        shard_tokens: tokens in every shard but the last, 1 or more.

    Raises:
        ValueError: if an id is outside the vocabulary, or there are no tokens.
        TypeError: if something else than an integer is given.
        OSError: if a file cannot be written.
    """
    writer = ShardWriter(
        folder,
        tokenizer_fingerprint=tokenizer_fingerprint,
        vocab_size=vocab_size,
        shard_tokens=shard_tokens,
    )
    for ids in _checked(tokens, vocab_size):
        writer.append(ids)
    return writer.close()


class ShardWriter:
    """What `write_shards` does, for ids that come bit by bit and may be continued later.

    Args:
        folder: made if missing.
        tokenizer_fingerprint: names the tokenizer; readers must give the same one.
        vocab_size: appended ids are from 0 to vocab_size - 1; that is not looked at.
        shard_tokens: tokens in every shard but the last, 1 or more.
        num_shards: shards in the folder that an earlier writer wrote of the same stream; others
            are removed.
        waiting: ids after these shards that the earlier writer had not written yet.

    Raises:
        ValueError: if `shard_tokens` is below 1 or the fingerprint is empty.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer_fingerprint: str,
        vocab_size: int,
        shard_tokens: int = 2**24,
        num_shards: int = 0,
        waiting: np.ndarray | None = None,
    ) -> None:
        require("shard_tokens", shard_tokens, least=1)
        if not tokenizer_fingerprint:
            raise ValueError("tokenizer_fingerprint must not be empty: pass tokenizer.fingerprint")
        self._names: dict[str, Any] = {"tokenizer_fingerprint": tokenizer_fingerprint}
        self._names["vocab_size"] = vocab_size
        self._buffer = np.empty(shard_tokens, dtype=token_dtype(vocab_size))
        self._used = 0
        self.paths = [shard_path(folder, number) for number in range(num_shards)]
        """Of the shards that are on disk."""
        self._folder = folder
        for path in set(_shard_files(folder)) - set(self.paths):
            path.unlink()
        if waiting is not None:
            self.append(waiting)

    @property
    def waiting(self) -> np.ndarray:
        """The ids that are not on disk yet: a view, until the next call."""
        return self._buffer[: self._used]

    def append(self, ids: np.ndarray) -> None:
        """Take ids, and write every shard that is full and not the last.

        Raises:
            OSError: if a file cannot be written.
        """
        taken, size = 0, len(self._buffer)
        while taken < len(ids):
            if self._used == size:  # only now is it known that another shard follows
                self._write(is_last=False)
            part = ids[taken : taken + size - self._used]
            self._buffer[self._used : self._used + len(part)] = part
            self._used, taken = self._used + len(part), taken + len(part)

    def close(self) -> list[Path]:
        """Write the last shard; return the paths of all.

        Raises:
            ValueError: if there were no tokens.
            OSError: if the file cannot be written.
        """
        if self._used == 0:
            raise ValueError("there are no tokens to write: the stream was empty")
        self._write(is_last=True)
        return self.paths

    def _write(self, *, is_last: bool) -> None:
        """Write what waits as the next shard."""
        number = len(self.paths)
        path = shard_path(self._folder, number)
        write_shard(path, self.waiting, number=number, is_last=is_last, **self._names)
        self.paths.append(path)
        self._used = 0


def _checked(tokens: Iterable[Any], vocab_size: int) -> Iterator[np.ndarray]:
    """Yield the ids as one-dimensional arrays, after a look at every one of them."""
    position = 0
    for chunk in _chunks(tokens):
        try:
            ids = np.asarray(chunk)
        except ValueError:  # single ids and arrays mixed
            ids = np.empty(0)
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            _refuse_first_odd(chunk, vocab_size, position)
        outside = (ids < 0) | (ids >= vocab_size)
        if outside.any():
            first = int(outside.argmax())
            _refuse_id(ids[first], vocab_size, position + first)
        yield ids
        position += len(ids)


def _chunks(tokens: Iterable[Any]) -> Iterator[Any]:
    """Yield arrays as they are, and single ids in lists of up to CHUNK_TOKENS."""
    if isinstance(tokens, np.ndarray):
        yield tokens
        return
    stream = iter(tokens)
    for first in stream:
        if isinstance(first, np.ndarray):
            yield first
        else:
            yield [first, *itertools.islice(stream, CHUNK_TOKENS - 1)]


def _refuse_first_odd(chunk: Any, vocab_size: int, position: int) -> None:
    """Raise for the first thing that is no id; an empty chunk passes."""
    for offset, value in enumerate(chunk):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise TypeError(
                f"token {position + offset} is {value!r}, a {type(value).__name__}; give integers "
                "or one-dimensional integer arrays"
            )
        if not 0 <= value < vocab_size:
            _refuse_id(value, vocab_size, position + offset)


def _refuse_id(value: int | np.integer, vocab_size: int, position: int) -> None:
    """Raise for an id that the vocabulary does not have."""
    raise ValueError(
        f"token {position} has the id {value}; a vocabulary of {vocab_size} has ids from 0 to "
        f"{vocab_size - 1}"
    )


def _shard_files(folder: str | Path) -> list[Path]:
    """Return the shards of a folder in the order of their numbers."""
    return sorted(Path(folder).glob("shard_*.bin"), key=lambda path: (len(path.name), path.name))


class TokenShards:
    """All shards of a folder as one long sequence of token ids, mapped and not loaded.

    `len(shards)` is the number of tokens, `shards[i]` an int, `shards[a:b]` a read-only array:
    a view of the file where the slice lies in one shard, a copy where it crosses a border.

    Args:
        folder: where `write_shards` wrote.
        tokenizer_fingerprint: of the tokenizer whose ids are expected; None takes any.

    Raises:
        ValueError: if a shard is missing, cut short, damaged in its header, of another tokenizer
            or of another dtype.
    """

    def __init__(self, folder: str | Path, *, tokenizer_fingerprint: str | None = None) -> None:
        paths = _shard_files(folder)
        if not paths:
            raise ValueError(f"{folder} holds no shards: write them with write_shards")
        self.folder = Path(folder)
        headers = [read_header(path) for path in paths]
        check_together(paths, headers)
        if tokenizer_fingerprint is not None:
            expected = hashlib.sha256(tokenizer_fingerprint.encode()).digest()
            if headers[0].tokenizer_sha256 != expected:
                raise ValueError(
                    f"{folder} was written with another tokenizer (hash "
                    f"{headers[0].tokenizer_sha256.hex()[:12]}, expected {expected.hex()[:12]}): "
                    "its ids mean other tokens; encode the text again"
                )
        self.vocab_size = headers[0].vocab_size
        self.dtype = DTYPES[headers[0].bytes_per_token]
        self._headers = headers
        self._paths = paths
        # Plain arrays on the mapped files: slicing one is several times faster than a np.memmap.
        self._parts = [
            np.asarray(np.memmap(path, self.dtype, "r", offset=LAYOUT.size, shape=(h.num_tokens,)))
            for path, h in zip(paths, headers, strict=True)
        ]
        # Token number at which every shard starts, and the total at the end.
        self._borders = list(itertools.accumulate((h.num_tokens for h in headers), initial=0))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the headers, hence over every token: names exactly this data."""
        digest = hashlib.sha256()
        for header in self._headers:
            digest.update(LAYOUT.pack(*header))
        return digest.hexdigest()

    @property
    def num_bytes(self) -> int:
        """Of all tokens."""
        return len(self) * self.dtype.itemsize

    def verify(self) -> None:
        """Read every token, compare with the hash in its header, and look for ids out of range.

        Opening only looks at headers and sizes: hashing a large corpus takes minutes.

        Raises:
            ValueError: naming the first shard whose tokens have changed, or are not of its
                vocabulary.
        """
        for path, header, part in zip(self._paths, self._headers, self._parts, strict=True):
            if hashlib.sha256(part.data).digest() != header.tokens_sha256:
                raise ValueError(f"{path} is damaged: its tokens do not match its hash")
            if (largest := int(part.max())) >= self.vocab_size:
                raise ValueError(
                    f"{path} has the id {largest}; its vocabulary of {self.vocab_size} has ids "
                    f"from 0 to {self.vocab_size - 1}: write the shards again"
                )

    def __len__(self) -> int:
        return self._borders[-1]

    @overload
    def __getitem__(self, index: int | np.integer) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> np.ndarray: ...
    def __getitem__(self, index: int | np.integer | slice) -> int | np.ndarray:
        if not isinstance(index, slice):
            position = range(len(self))[index]  # negative and out of range as in a list
            shard = self._shard_of(position)
            return int(self._parts[shard][position - self._borders[shard]])
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of shards has step 1, got {step}: slice, then take steps")
        if stop <= start:
            return np.empty(0, dtype=self.dtype)
        first, last = self._shard_of(start), self._shard_of(stop - 1)
        pieces = [
            self._parts[i][max(start - self._borders[i], 0) : stop - self._borders[i]]
            for i in range(first, last + 1)
        ]
        if len(pieces) == 1:
            return pieces[0]
        joined = np.concatenate(pieces)
        joined.flags.writeable = False
        return joined

    def _shard_of(self, position: int) -> int:
        """Return the number of the shard that holds a token."""
        return bisect.bisect_right(self._borders, position) - 1
