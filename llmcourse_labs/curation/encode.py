"""Documents as ids: on one side or the other, by any number of processes, in their order."""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.curation.documents import TextPiece, documents_of, read_pieces
from llmcourse_labs.curation.sources import Source
from llmcourse_labs.curation.unpack import PIECE


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Reader(NamedTuple):
    """How files become documents, each on one of the two sides."""

    field: str
    separator: str
    seed: int
    limit: int
    """A document is held out if its hash is below."""

    def pieces(self, source: Source) -> Iterator[tuple[TextPiece, bool]]:
        """Yield the pieces of a file; of a part of a document, whether that is held out."""
        held_out = False
        for piece in read_pieces(source, field=self.field, separator=self.separator):
            if piece.begins and not piece.ends:
                part = piece.content[0]
                assert isinstance(part, str)  # lines and rows are whole documents
                held_out = self.holds_out(part)
            yield piece, held_out

    def documents(self, piece: TextPiece, held_out: bool) -> Iterator[tuple[str, bool]]:
        """Yield the documents of a piece, and whether they are held out."""
        whole = piece.begins and piece.ends
        for text in documents_of(piece, field=self.field):
            yield text, self.holds_out(text) if whole else held_out

    def holds_out(self, text: str) -> bool:
        """Whether a document is held out, by the beginning of its text."""
        return self.hash(text) < self.limit

    def hash(self, text: str) -> int:
        """Return 64 bits."""
        key = str(self.seed).encode()
        digest = hashlib.blake2b(text[:PIECE].encode(), digest_size=8, key=key).digest()
        return int.from_bytes(digest)


class Encoded(NamedTuple):
    """The documents of some pieces as ids; of everything there are two, one for each split."""

    ids: list[np.ndarray]
    documents: list[int]
    num_bytes: list[int]


class Encoder:
    """Encodes pieces, on its own."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self.tokenizer = Tokenizer.load(folder)
        self.reader = reader
        self.end = np.array([self.tokenizer.special_tokens[END_OF_TEXT]], self.tokenizer.dtype)

    def __call__(self, pieces: list[tuple[TextPiece, bool]]) -> Encoded:
        """Return the ids of both splits, in the order of the documents."""
        ids, documents, num_bytes = [[self.end[:0]], [self.end[:0]]], [0, 0], [0, 0]
        for piece, side in pieces:
            texts: tuple[list[str], list[str]] = ([], [])
            for text, held_out in self.reader.documents(piece, side):
                texts[held_out].append(text)
            for split, some in enumerate(texts):
                if some:
                    ids[split] += self._ids(some, ends=piece.ends)
                    documents[split] += len(some) * piece.ends
                    num_bytes[split] += sum(len(text.encode()) for text in some)
        return Encoded([np.concatenate(each) for each in ids], documents, num_bytes)

    def _ids(self, texts: list[str], *, ends: bool) -> list[np.ndarray]:
        """Return the ids of documents, each with the separator, or of a part of one without.

        A special token that is spelled in a document is text like other text.
        """
        joined = END_OF_TEXT.join([*texts, ""] if ends else texts)
        spelled = joined.count(END_OF_TEXT) > len(texts) * ends or any(
            token in joined for token in self.tokenizer.special_tokens if token != END_OF_TEXT
        )
        if not spelled:  # all at once is twice as fast if they are short
            return [self.tokenizer.encode_to_array(joined)]
        found = (self.tokenizer.encode_to_array(text, allow_special=False) for text in texts)
        return [part for ids in found for part in ((ids, self.end) if ends else (ids,))]


_encoder: Encoder | None = None
"""Of this process, if it is one that encodes."""


def _start_process(folder: Path, reader: Reader) -> None:
    """Make a process ready to encode; it ends when the one that writes does, however that ends."""
    global _encoder  # noqa: PLW0603 - a process of a pool has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    _encoder = Encoder(folder, reader)


def _encode(pieces: list[tuple[TextPiece, bool]]) -> Encoded:
    assert _encoder is not None
    return _encoder(pieces)


class Task(NamedTuple):
    """Pieces to encode, and where their end is."""

    pieces: list[tuple[TextPiece, bool]]
    place: tuple[int, int]
    """How many files are behind it, and how many pieces of the next one."""
    num_bytes: int
    """Bytes of all files up to there."""


def encode_in_order(
    tasks: Iterable[Task], folder: Path, reader: Reader, *, processes: int
) -> Iterator[tuple[Task, Encoded]]:
    """Yield every task with what it has become, in order.

    Of what is wrong with the files the first is raised, whoever finds it first.

    Args:
        tasks: read as they are needed, a few ahead.
        folder: of the tokenizer.
        reader: of the pieces.
        processes: that encode; with 1 it is this one.

    Raises:
        ValueError: if a file cannot be read, or holds what is no document.
        RuntimeError: if a process ends before its work (BrokenProcessPool).
    """
    if processes == 1:
        encoder = Encoder(folder, reader)
        yield from ((task, encoder(task.pieces)) for task in tasks)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(processes, context, _start_process, (folder, reader)) as pool:
        under_way: deque[tuple[Task, Future]] = deque()
        try:
            for each in _futures(tasks, pool):
                under_way.append(each)
                if len(under_way) > 2 * processes:
                    task, future = under_way.popleft()
                    yield task, future.result()
            yield from ((task, future.result()) for task, future in under_way)
        finally:
            pool.shutdown(cancel_futures=True)


def _futures(tasks: Iterable[Task], pool: ProcessPoolExecutor) -> Iterator[tuple[Task, Future]]:
    """Yield what the processes do; what cannot be read fails when its turn comes."""
    try:
        for task in tasks:
            yield task, pool.submit(_encode, task.pieces)
    except ValueError as error:
        failed: Future = Future()
        failed.set_exception(error)
        yield Task([], (0, 0), 0), failed  # in place of the task that there is not
