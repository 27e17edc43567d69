"""Documents in files of one's own: text, JSON Lines and Parquet, in pieces that fit into memory.

A piece is a list of whole documents, or a part of a long one, and is encoded on its own.  Pieces
follow from the files alone, so whoever counts them can go on where somebody else has stopped.
"""

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from llmcourse_labs.curation.sources import Source, kind_of, reading
from llmcourse_labs.curation.unpack import PIECE, rows, unpacked

LONGEST_LINE = 1 << 27
"""Bytes of a line of JSON that are read."""

_LINE_END = re.compile(r"\S\n(?=\S)")
"""Where a long document is cut: neither pattern of `tokenizer` has a word that crosses it."""


class TextPiece(NamedTuple):
    """What is read of a file at a time."""

    content: Sequence[str | None] | bytes
    """Documents, None for a row without one; or whole lines of JSON, which are parsed later, by
    `documents_of`."""
    path: Path
    line: int
    """Number of the first line of JSON, from 1."""
    begins: bool
    """Whether the first document begins here; only the parts of a long one do not."""
    ends: bool
    """Whether the last document ends here."""
    num_bytes: int
    """Bytes of the file, compressed or not, that have been read so far."""


def read_pieces(
    source: Source, *, field: str, separator: str, errors: str = "strict"
) -> Iterator[TextPiece]:
    """Yield the pieces of a file; memory does not grow with its size.

    It grows with the longest line of a JSON Lines file, up to `LONGEST_LINE`, and with the row
    groups of a Parquet file.  What was written behind the source's size since it was found is not
    read.

    Args:
        source: the file.
        field: name of the text in JSON Lines, and of the column in Parquet.
        separator: what stands between the documents of a text file; its line ends are also those
            of Windows, unless it says which.
        errors: of bytes of text that are no UTF-8, as for `bytes.decode`.  Unless it is "strict", a
            row without text is None, and of a line that is too long the beginning is returned.

    Raises:
        DamagedFileError: if the file is not what its name says, or ends too early.
        ValueError: naming the file, and as far as possible the line, if it cannot be read.
    """
    path, is_strict = source.path, errors == "strict"
    kind = kind_of(path)
    with reading(path), path.open("rb") as file:
        if kind == "table":
            for column, num_bytes in rows(file, source, field=field, errors=errors):
                yield TextPiece(column, path, 0, True, True, num_bytes)
            return
        blocks = unpacked(file, source)
        if kind == "lines":
            for line, lines in _lines(blocks, path, is_strict=is_strict):
                yield TextPiece(lines, path, line, True, True, file.tell())
        else:
            parted = separator if kind == "text" else None
            for texts, begins, ends in _texts(_decoded(blocks, path, errors), parted):
                yield TextPiece(texts, path, 0, begins, ends, file.tell())


def _decoded(blocks: Iterable[bytes], path: Path, errors: str) -> Iterator[str]:
    """Yield text, line ends as they are, a mark of byte order at the beginning left out."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors)
    line = 1
    for block in itertools.chain(blocks, [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            raise _not_utf8(path, line, error) from error
        line += text.count("\n")
        yield text


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> ValueError:
    return ValueError(
        f"{path}, line {line}: byte 0x{error.object[error.start]:02x} is no UTF-8 "
        f"({error.reason}): save the file as UTF-8"
    )


def _texts(chunks: Iterable[str], separator: str | None) -> Iterator[tuple[list[str], bool, bool]]:
    """Yield documents, and whether the first begins there and the last ends there.

    Of a document that is longer than a piece every part comes alone.
    """
    longest = len(separator) + separator.count("\n") if separator else 1
    held, begins = "", True
    for chunk in chunks:
        *whole, held = _parted(held + chunk, separator)
        if whole and not begins:
            yield whole[:1], False, True
            whole, begins = whole[1:], True
        if whole:
            yield whole, True, True
        while len(held) > PIECE and (end := _cut(held, longest)):
            yield [held[:end]], begins, False
            held, begins = held[end:], False
    yield [held], begins, True


def _parted(text: str, separator: str | None) -> list[str]:
    """Cut a text at a separator, a line end of which may be that of Windows; None cuts nothing."""
    if separator is None:
        return [text]
    if "\n" not in separator or "\r" in separator:
        return text.split(separator)
    return re.split(r"\r?\n".join(map(re.escape, separator.split("\n"))), text)


def as_separator(said: str) -> str:
    r"""Return a separator as a command line has it, where \n, \r and \t stand for one character."""
    return said.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\t", "\t")


def _cut(text: str, longest: int) -> int:
    """Return where to cut the beginning off a long text; 0 if it is better to read on.

    Args:
        text: to be cut.
        longest: characters that a separator may have, which may have begun at the end.
    """
    last = len(text) - longest + 1
    if found := _LINE_END.search(text, PIECE, max(last, 0)):
        return found.end()
    return last if len(text) > 4 * PIECE else 0  # a book in one line is cut anywhere


def _lines(blocks: Iterable[bytes], path: Path, *, is_strict: bool) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, and the number of the first of them."""
    held: list[bytes] = []
    line = 1
    for block in blocks:
        head, end, tail = block.rpartition(b"\n")
        if not end:
            if sum(map(len, held)) <= LONGEST_LINE:  # of a longer one the rest is passed over
                held.append(tail)
            elif is_strict:
                raise ValueError(
                    f"{path}, line {line}: longer than {LONGEST_LINE:,} bytes: one document a line"
                )
            continue
        lines = b"".join([*held, head, end])
        yield line, lines
        line += lines.count(b"\n")
        held = [tail]
    if any(held):
        yield line, b"".join(held)


def documents_of(piece: TextPiece, *, field: str) -> Iterator[str]:
    """Yield the documents of a piece, but for those that are empty or white space alone.

    Args:
        piece: from `read_pieces`.
        field: name of the text in JSON Lines.

    Raises:
        ValueError: naming the file and the line, if a line is not UTF-8, no JSON object, or has no
            text of that name.
    """
    if isinstance(piece.content, bytes):
        lines = enumerate(piece.content.split(b"\n"), piece.line)
        texts: Iterator[str | None] = (
            text_of(line, piece.path, number, field) for number, line in lines if line
        )
    else:
        texts = iter(piece.content)
    is_part = not (piece.begins and piece.ends)
    return (t for t in texts if t is not None and (is_part or (t and not t.isspace())))


def text_of(line: bytes, path: Path, number: int, field: str) -> str:
    """Return the text of a line of JSON; an empty one has none."""
    try:
        decoded = line.decode("utf-8-sig" if number == 1 else "utf8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, error) from error
    if decoded.isspace():
        return ""
    try:
        record = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: no JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path}, line {number}: no JSON object, but {decoded[:40]!r}")
    text = record.get(field)
    if not isinstance(text, str):
        raise ValueError(
            f"{path}, line {number}: no text {field!r}; it has {', '.join(record) or 'nothing'}: "
            "name another with --field"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path}, line {number}: {field!r} holds half a surrogate pair, which is no character"
        ) from error
    return text
