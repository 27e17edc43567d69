"""What is in a compressed file or a Parquet file, a piece at a time.

An end of the file is not yet an end of what was packed: a cut file is told from a whole one.
"""

import contextlib
import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from llmcourse_labs.curation.sources import DamagedFileError, Source, kind_of

PIECE = 1 << 20
"""About how much text is in a piece, in bytes of a file or characters of a document."""

_PACKED = 1 << 13
"""Bytes of zstandard that are unpacked at a time: what is in them may be 30,000 times as long."""

_ROWS = 256
"""Of a Parquet file that are read at a time."""


class _UpTo:
    """A file up to the size that it had when it was found: some have no end, others grow."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self.file, self.left, self.path = file, source.num_bytes, source.path

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes, none at the end."""
        block = self.file.read(self.left if size < 0 else min(size, self.left))
        if not block and self.left and size:
            raise DamagedFileError(f"{self.path} is damaged: {self.left:,} bytes are missing")
        self.left -= len(block)
        return block


def unpacked(file: BinaryIO, source: Source) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked.

    Raises:
        DamagedFileError: if it ends within what was packed, or something else follows.
    """
    bounded = _UpTo(file, source)
    if source.path.suffix.lower() == ".zst":
        yield from _frames(bounded, source.path)
        return
    read: Callable[[int], bytes] = bounded.read
    if source.path.suffix.lower() == ".gz":
        # What is there of a file that was cut comes out before it is told.
        read = gzip.GzipFile(fileobj=cast("BinaryIO", bounded), mode="rb").read1
    while block := read(PIECE):
        yield block


def _frames(file: _UpTo, path: Path) -> Iterator[bytes]:
    """Yield what is in the frames of zstandard."""
    import zstandard  # noqa: PLC0415 - an extra

    frame, head = None, b""
    while packed := file.read(_PACKED):
        while packed:
            if frame is None:
                frame, head = zstandard.ZstdDecompressor().decompressobj(), b""
            head = (head + packed)[:18]  # as long as a header can be
            try:
                if block := frame.decompress(packed):
                    yield block
            except zstandard.ZstdError as error:
                raise _unpackable(path, head, error) from error
            packed = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    if frame is not None:
        raise DamagedFileError(f"{path} is damaged: it ends within a frame of zstandard")


def _unpackable(path: Path, head: bytes, error: Exception) -> ValueError:
    """Return what is wrong with a frame: it asks for much memory, or it is damaged."""
    import zstandard  # noqa: PLC0415 - an extra

    if "memory" in str(error):
        window = zstandard.get_frame_parameters(head).window_size
        return ValueError(
            f"{path} was compressed with a window of {window:,} bytes (zstd --long), and up to "
            f"{1 << 27:,} are read: compress it again without --long"
        )
    return DamagedFileError(f"{path} is damaged: {error}")


def column_of(schema: Any, path: Path, field: str) -> Any:
    """Return the type of the column with the text.

    Raises:
        ValueError: if there is none of that name, or it holds something else.
    """
    from pyarrow import types  # noqa: PLC0415 - an extra

    if field not in schema.names:
        raise ValueError(
            f"{path} has no column {field!r}: it has {', '.join(schema.names)}: name another with "
            "--field"
        )
    kind = schema.field(field).type
    inner = kind.value_type if types.is_dictionary(kind) else kind
    known = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    if not any(getattr(types, f"is_{name}")(inner) for name in known):
        raise ValueError(f"{path}: the column {field!r} holds {kind}, not strings")
    return kind


def require_columns(sources: Iterable[Source], field: str) -> None:
    """Raise ValueError if a Parquet file has no column of text of that name; a damaged one passes.

    So that a wrong name is told before the first file is read.
    """
    for source in sources:
        if kind_of(source.path) == "table":
            import pyarrow  # noqa: PLC0415 - an extra
            from pyarrow import parquet  # noqa: PLC0415

            with contextlib.suppress(pyarrow.ArrowException, OSError):
                column_of(parquet.read_schema(source.path), source.path, field)


def rows(
    file: BinaryIO, source: Source, *, field: str, errors: str
) -> Iterator[tuple[list[str | None], int]]:
    """Yield texts of a column, and how many bytes of the file that comes to.

    Raises:
        DamagedFileError: saying after which row, if the file is damaged.
        ValueError: if there is no such column, or, where errors is "strict", a row has no text.
    """
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    path, row = source.path, 0
    try:
        table = parquet.ParquetFile(file)
        column_of(table.schema_arrow, path, field)
        count = max(1, table.metadata.num_rows)
        for batch in _batches(table, field):
            texts, size = [], 0
            for value in batch:
                row += 1
                texts.append(_text_of(value, f"{path}, row {row}: {field!r}", errors))
                size += len(texts[-1] or "")
                if size >= PIECE:
                    yield texts, source.num_bytes * row // count
                    texts, size = [], 0
            yield texts, source.num_bytes * row // count
    except (pyarrow.ArrowException, OSError) as error:
        what = f"is damaged after row {row}" if row else "is no Parquet file, or damaged"
        raise DamagedFileError(f"{path} {what}: {error}") from error


def _batches(table: Any, field: str) -> Iterator[Any]:
    """Yield a column, some rows at a time.

    In a column with a dictionary, each row may be as long as all that is stored, so that few rows
    are taken where that is much.
    """
    from pyarrow import types  # noqa: PLC0415 - an extra

    for group in range(table.num_row_groups):
        about = table.metadata.row_group(group)
        chunks = [about.column(i) for i in range(about.num_columns)]
        stored = max(c.total_uncompressed_size for c in chunks if c.path_in_schema == field)
        most = max(1, min(_ROWS, (1 << 28) // max(1, stored)))
        for batch in table.iter_batches(most, row_groups=[group], columns=[field]):
            column = batch.column(0)
            yield column.dictionary_decode() if types.is_dictionary(column.type) else column


def _text_of(value: Any, where: str, errors: str) -> str | None:
    """Return the text of a row, None for null."""
    if not value.is_valid:
        if errors == "strict":
            raise ValueError(f"{where} is null")
        return None
    try:
        return value.as_buffer().to_pybytes().decode("utf8", errors)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{where} has a byte 0x{byte:02x}, no UTF-8 ({error.reason})") from error
