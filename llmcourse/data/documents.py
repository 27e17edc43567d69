"""Documents in files of one's own: text, JSON Lines and Parquet, in pieces that fit into memory.

A piece is a list of whole documents, or a part of a long one, and is encoded on its own.  Pieces
follow from the files alone, so whoever counts them can go on where somebody else has stopped.
"""

import codecs
import gzip
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

PIECE = 1 << 20
"""About how much text is in a piece, in bytes of a file or characters of a document."""

_COMPRESSED = (".gz", ".zst")
_KINDS = (".txt", ".jsonl", ".parquet")

_LINE_END = re.compile(r"\S\n(?=\S)")
"""Where a long document is cut: neither pattern of `tokenizer` has a word that crosses it."""

_ROWS = 256
"""Of a Parquet file that are read at a time."""


class Source(NamedTuple):
    """A file to read, and what tells it from a later version of it."""

    path: Path
    num_bytes: int
    modified_ns: int


class Piece(NamedTuple):
    """What is read of a file at a time."""

    content: list[str] | bytes
    """Documents; or whole lines of JSON, which are parsed later, by `documents_of`."""
    path: Path
    line: int
    """Number of the first line of JSON, from 1."""
    begins: bool
    """Whether the first document begins here; only the parts of a long one do not."""
    ends: bool
    """Whether the last document ends here."""
    num_bytes: int
    """Bytes of the file, compressed or not, that have been read so far."""


def find_sources(files: Iterable[str | Path], *, leave_out: Path | None = None) -> list[Source]:
    """Return the files to read: those named, and in folders, at any depth, those of known kinds.

    Args:
        files: files and folders, in the order in which they are read; what is in a folder is read
            in the order of the paths, and hidden files are not.
        leave_out: a folder whose files are not read where another folder holds it.

    Raises:
        ValueError: if there is no such file, it is of no known kind, it is named twice, a folder
            holds none, or reading it takes a package that is not installed.
    """
    found: dict[Path, Path] = {}
    for name in map(Path, files):
        if name.is_dir():
            inside = sorted(_inside(name, leave_out and leave_out.resolve()))
            if not inside:
                raise ValueError(f"{name} holds no file to read: {_known()}")
        else:
            inside = [name]
            _stat(name)
            if _kind(name) is None:
                raise ValueError(f"{name} is of no kind that can be read: {_known()}")
        for path in inside:
            if found.setdefault(path.resolve(), path) is not path:
                raise ValueError(f"{path} is named twice: name every file once")
    for path in found.values():
        _require_reader(path)
    return [Source(path, *_stat(path)) for path in found.values()]


def _known() -> str:
    return f"known are {', '.join(_KINDS)}, the first two also with {' or '.join(_COMPRESSED)}"


def _kind(path: Path) -> str | None:
    """Return the ending that says how a file is read."""
    name = path.name.lower()
    for ending in _KINDS:
        if name.endswith((ending, *(ending + packed for packed in _COMPRESSED))):
            return ending if ending != ".parquet" or name.endswith(ending) else None
    return None


def _inside(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    """Yield the files of known kinds in a folder and in those below it."""

    def stop(error: OSError) -> None:
        raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from error

    for where, folders, names in os.walk(folder, onerror=stop):
        here = Path(where)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and (here / name).resolve() != leave_out
        ]
        if leave_out is None or here.resolve() != leave_out:
            yield from (here / n for n in names if not n.startswith(".") and _kind(here / n))


def _stat(path: Path) -> tuple[int, int]:
    """Return the size of a file, and when it was changed."""
    with _readable(path):
        stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _require_reader(path: Path) -> None:
    """Raise ValueError if the package that reads a file is missing."""
    with _readable(path):
        if path.suffix.lower() == ".zst":
            import zstandard  # noqa: F401, PLC0415 - an extra
        elif path.suffix.lower() == ".parquet":
            import pyarrow.parquet  # noqa: F401, PLC0415 - an extra


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a file, whoever finds out."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} is read with {error.name.split('.')[0]}, which is not installed: "
            'pip install "llmcourse[prepare]"'
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error


def read_pieces(
    source: Source, *, field: str, separator: str, errors: str = "strict"
) -> Iterator[Piece]:
    """Yield the pieces of a file; memory does not grow with its size.

    It grows with the longest line of a JSON Lines file and with the row groups of a Parquet file.

    Args:
        source: the file.
        field: name of the text in JSON Lines, and of the column in Parquet.
        separator: what stands between the documents of a text file.
        errors: of bytes of a text file that are no UTF-8, as for `bytes.decode`.

    Raises:
        ValueError: naming the file, and as far as possible the line, if it cannot be read.
    """
    path = source.path
    with _readable(path), path.open("rb") as file:
        if _kind(path) == ".parquet":
            yield from _rows(file, path, field, source.num_bytes)
            return
        blocks = _blocks(file, path)
        if _kind(path) == ".jsonl":
            for line, lines in _lines(blocks):
                yield Piece(lines, path, line, True, True, file.tell())
        else:
            for texts, begins, ends in _texts(_decoded(blocks, path, errors), separator):
                yield Piece(texts, path, 0, begins, ends, file.tell())


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked."""
    if path.suffix.lower() == ".gz":
        file = gzip.GzipFile(fileobj=file)
    elif path.suffix.lower() == ".zst":
        import zstandard  # noqa: PLC0415 - an extra

        packed = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        file = io.BufferedReader(_Whole(packed, path), PIECE)
    while block := file.read(PIECE):
        yield block


class _Whole(io.RawIOBase):
    """A stream of zstandard's whose errors are those of a file."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import zstandard  # noqa: PLC0415 - an extra

        try:
            return self._stream.readinto(buffer)
        except zstandard.ZstdError as error:
            raise ValueError(f"{self._path} is damaged: {error}") from error


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


def _texts(chunks: Iterable[str], separator: str) -> Iterator[tuple[list[str], bool, bool]]:
    """Yield documents, and whether the first begins there and the last ends there.

    Of a document that is longer than a piece every part comes alone.
    """
    held, begins = "", True
    for chunk in chunks:
        *whole, held = (held + chunk).split(separator)
        if whole and not begins:
            yield whole[:1], False, True
            whole, begins = whole[1:], True
        if whole:
            yield whole, True, True
        while len(held) > PIECE and (end := _cut(held, separator)):
            yield [held[:end]], begins, False
            held, begins = held[end:], False
    yield [held], begins, True


def _cut(text: str, separator: str) -> int:
    """Return where to cut the beginning off a long text; 0 if it is better to read on."""
    last = len(text) - len(separator) + 1  # further right a separator may have begun
    if found := _LINE_END.search(text, PIECE, max(last, 0)):
        return found.end()
    return last if len(text) > 4 * PIECE else 0  # a book in one line is cut anywhere


def _lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, and the number of the first of them."""
    held: list[bytes] = []
    line = 1
    for block in blocks:
        head, end, tail = block.rpartition(b"\n")
        if not end:
            held.append(tail)
            continue
        lines = b"".join([*held, head, end])
        yield line, lines
        line += lines.count(b"\n")
        held = [tail]
    if any(held):
        yield line, b"".join(held)


def _rows(file: BinaryIO, path: Path, field: str, num_bytes: int) -> Iterator[Piece]:
    """Yield the texts of a column."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    try:
        table = parquet.ParquetFile(file)
        schema, count, row = table.schema_arrow, max(1, table.metadata.num_rows), 0
        if field not in schema.names:
            raise ValueError(f"{path} has no column {field!r}: it has {', '.join(schema.names)}")
        kind = schema.field(field).type
        if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            raise ValueError(f"{path}: the column {field!r} holds {kind}, not strings")
        for batch in table.iter_batches(batch_size=_ROWS, columns=[field]):
            texts = batch.column(0).to_pylist()
            if None in texts:
                raise ValueError(f"{path}, row {row + texts.index(None) + 1}: {field!r} is null")
            row += len(texts)
            yield Piece(texts, path, 0, True, True, num_bytes * row // count)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is no Parquet file, or damaged: {error}") from error


def documents_of(piece: Piece, *, field: str) -> Iterator[str]:
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
        texts = (text_of(line, piece.path, number, field) for number, line in lines if line)
    else:
        texts = iter(piece.content)
    is_part = not (piece.begins and piece.ends)
    return (text for text in texts if is_part or (text and not text.isspace()))


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
