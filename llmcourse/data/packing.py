"""Packing: documents of different lengths into rows of one length, with little padding.

Shape suffixes:  R rows, T time (tokens of a row).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from llmcourse.base.arguments import require


class Span(NamedTuple):
    """A stretch of a document: `length` tokens from token `start` on."""

    document: int
    start: int
    length: int


@dataclass(frozen=True)
class Packing:
    """Rows of pieces of documents; what a row does not fill is padding."""

    rows: list[list[Span]]
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
    rows: list[list[Span]] = []
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


def best_fit(lengths: Sequence[int], context_length: int) -> Packing:
    """Put whole documents into rows: best-fit, in the order of decreasing length.

    Each goes into the row with the least room that still holds it, or opens a new row; of rows with
    equal room, into the one that was filled up to there last.  The number of rows is at most 11/9
    of the least possible, plus 4.  Rows are found by their room and not one by one: 100,000
    documents take less than a second.  Arguments and errors as in `pack`.

    Source:
        Ding et al. 2024, "Fewer truncations improve language modeling", section 3,
        https://arxiv.org/abs/2404.10830; the bound: Johnson 1973.
    """
    pieces = _pieces(lengths, context_length)
    pieces.sort(key=lambda piece: -piece.length)
    rows: list[list[Span]] = []
    rows_with_room: dict[int, list[int]] = defaultdict(list)
    rooms: list[int] = []  # the keys of rows_with_room that have a row, ascending
    for piece in pieces:
        place = bisect_left(rooms, piece.length)
        if place == len(rooms):
            row, room = len(rows), context_length
            rows.append([])
        else:
            room = rooms[place]
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                del rooms[place]
        rows[row].append(piece)
        left = room - piece.length
        if not rows_with_room[left]:
            insort(rooms, left)
        rows_with_room[left].append(row)
    return Packing(rows, context_length)


def one_per_row(lengths: Sequence[int], context_length: int) -> Packing:
    """Give every document rows of its own, as padding to the context length does."""
    return Packing([[piece] for piece in _pieces(lengths, context_length)], context_length)


def concatenate_and_cut(lengths: Sequence[int], context_length: int) -> Packing:
    """Join all documents and cut the whole into rows, wherever the cuts fall.

    Nothing but the last row is padded, but a document that spans a cut loses its beginning as
    context.  This is what the windows of `Batches` do.
    """
    rows: list[list[Span]] = []
    room = 0
    _check(lengths, context_length)
    for document, length in enumerate(lengths):
        start = 0
        while start < length:
            if room == 0:
                rows.append([])
                room = context_length
            taken = min(room, length - start)
            rows[-1].append(Span(document, start, taken))
            start, room = start + taken, room - taken
    return Packing(rows, context_length)


class PackedRows(NamedTuple):
    """Packed documents as a model reads them."""

    ids_RT: Int64[Tensor, "R T"]
    """Tokens, `padding_id` where a row is not filled."""
    documents_RT: Int64[Tensor, "R T"]
    """The document of every token, -1 for padding."""
    positions_RT: Int64[Tensor, "R T"]
    """The place of every token in its piece: 0 again where the next one begins."""


def packed_rows(
    documents: Sequence[Sequence[int]], packing: Packing, *, padding_id: int
) -> PackedRows:
    """Lay the tokens of documents out as a packing says.

    `attention.document_mask(documents_RT)` keeps the documents of a row apart, and
    `loss.shifted_targets(ids_RT, documents_BT=documents_RT)` asks no document for the next one's
    beginning.  The loss is then that of the documents one by one.

    Args:
        documents: token ids of every document.
        packing: from `best_fit`, `pack`, `one_per_row` or `concatenate_and_cut` with the lengths of
            these documents.
        padding_id: id of the tokens that fill up a row; any id of the vocabulary.

    Raises:
        ValueError: if the packing asks for tokens that the documents do not have.
    """
    shape = (len(packing.rows), packing.context_length)
    ids_RT = torch.full(shape, padding_id, dtype=torch.int64)
    documents_RT = torch.full(shape, -1, dtype=torch.int64)
    positions_RT = torch.zeros(shape, dtype=torch.int64)
    for row, pieces in enumerate(packing.rows):
        first = 0
        for piece in pieces:
            there = slice(first, first + piece.length)
            ids_RT[row, there] = _tokens_of(documents, piece)
            documents_RT[row, there] = piece.document
            positions_RT[row, there] = torch.arange(piece.length)
            first += piece.length
    return PackedRows(ids_RT, documents_RT, positions_RT)


def _tokens_of(documents: Sequence[Sequence[int]], piece: Span) -> Int64[Tensor, " piece"]:
    """Return the tokens of a piece."""
    if piece.document >= len(documents):
        raise ValueError(f"the packing has a document {piece.document} of {len(documents)}")
    tokens = documents[piece.document][piece.start : piece.start + piece.length]
    if len(tokens) != piece.length:
        raise ValueError(
            f"document {piece.document} has {len(documents[piece.document])} tokens, not the "
            f"{piece.start + piece.length} of the packing: pack the lengths of these documents"
        )
    return torch.as_tensor(tokens, dtype=torch.int64)


def _pieces(lengths: Sequence[int], context_length: int) -> list[Span]:
    """Cut documents into pieces that fit into a row; only the last of a document may be shorter."""
    _check(lengths, context_length)
    return [
        Span(document, start, min(context_length, length - start))
        for document, length in enumerate(lengths)
        for start in range(0, length, context_length)
    ]


def _check(lengths: Sequence[int], context_length: int) -> None:
    """Raise ValueError for what cannot be packed."""
    require("context_length", context_length, least=1)
    for document, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"document {document} has {length} tokens; give 0 or more")
