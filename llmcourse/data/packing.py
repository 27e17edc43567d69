"""Packing: documents of different lengths into rows of one length, with little padding.

Taught in: chapters/09_data_loading.ipynb
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    """A stretch of a document: `length` tokens from token `start` on."""

    document: int
    start: int
    length: int


@dataclass(frozen=True)
class Packing:
    """Rows of pieces of documents; what a row does not fill is padding."""

    rows: list[list[Piece]]
    context_length: int
    """Tokens that a row has room for."""

    @property
    def num_tokens(self) -> int:
        """Tokens of documents in all rows."""
        return sum(piece.length for row in self.rows for piece in row)

    @property
    def efficiency(self) -> float:
        """Share of the room that documents fill, from 0 to 1; 1 where there are no rows."""
        room = len(self.rows) * self.context_length
        return self.num_tokens / room if room else 1.0


def pack(lengths: Sequence[int], context_length: int) -> Packing:
    """Put whole documents into rows: first-fit, in the order of decreasing length.

    Each goes into the first row that still has room, or opens a new row.  The number of rows is
    at most 11/9 of the least possible, plus 6/9.  A document that is longer than a row fills rows
    of its own, and its rest is packed like a document.

    Takes time in proportion to documents x rows, in array operations: 10,000 documents take
    about a tenth of a second.

    Args:
        lengths: tokens of every document, 0 or more; a document of 0 tokens is left out.
        context_length: tokens per row, 1 or more.

    Raises:
        ValueError: if a length is negative or the context is below 1.

    Source:
        Johnson 1973; the bound: Dosa 2007, "The tight bound of first fit decreasing bin-packing
        algorithm is FFD(I) <= 11/9 OPT(I) + 6/9".
    """
    pieces = _pieces(lengths, context_length)
    pieces.sort(key=lambda piece: -piece.length)  # stable: equal ones stay in order
    rows: list[list[Piece]] = []
    room = np.empty(len(pieces), dtype=np.int64)
    for piece in pieces:
        fits = room[: len(rows)] >= piece.length
        row = int(fits.argmax()) if fits.any() else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = context_length
        rows[row].append(piece)
        room[row] -= piece.length
    return Packing(rows, context_length)


def one_per_row(lengths: Sequence[int], context_length: int) -> Packing:
    """Give every document rows of its own, as padding to the context length does."""
    return Packing([[piece] for piece in _pieces(lengths, context_length)], context_length)


def concatenate_and_cut(lengths: Sequence[int], context_length: int) -> Packing:
    """Join all documents and cut the whole into rows, wherever the cuts fall.

    Nothing but the last row is padded, but a document that spans a cut loses its beginning as
    context.  This is what the windows of `Batches` do.
    """
    rows: list[list[Piece]] = []
    room = 0
    _check(lengths, context_length)
    for document, length in enumerate(lengths):
        start = 0
        while start < length:
            if room == 0:
                rows.append([])
                room = context_length
            taken = min(room, length - start)
            rows[-1].append(Piece(document, start, taken))
            start, room = start + taken, room - taken
    return Packing(rows, context_length)


def padding_efficiency(lengths: Sequence[int], context_length: int) -> float:
    """Return the share of tokens that are not padding when every document has its own rows."""
    return one_per_row(lengths, context_length).efficiency


def _pieces(lengths: Sequence[int], context_length: int) -> list[Piece]:
    """Cut documents into pieces that fit into a row; only the last of a document may be shorter."""
    _check(lengths, context_length)
    return [
        Piece(document, start, min(context_length, length - start))
        for document, length in enumerate(lengths)
        for start in range(0, length, context_length)
    ]


def _check(lengths: Sequence[int], context_length: int) -> None:
    """Raise ValueError for what cannot be packed."""
    if context_length < 1:
        raise ValueError(f"context_length must be 1 or greater, got {context_length}")
    for document, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"document {document} has {length} tokens; give 0 or more")
