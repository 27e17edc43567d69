"""Files of a crawl: WARC with what servers answered, WET with the text that was found in it.

Records are read one by one.  What is no page is passed over or told, and a damaged record ends
neither the file nor the work.

Source: ISO 28500:2017, the WARC file format; https://commoncrawl.org/get-started for WET.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from llmcourse_labs.curation.extract import as_page
from llmcourse_labs.curation.sources import DamagedFileError, Source, reading
from llmcourse_labs.curation.step import Dropped
from llmcourse_labs.curation.unpack import unpacked

PAGES = ("text/html", "application/xhtml+xml")

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_HEAD = 1_024
"""Bytes in which a page may say how its letters are written."""


class _Stream:
    """A file over what comes out of a packed one, as the reader of records wants it."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held, self.place = blocks, b"", 0

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes, none at the end."""
        if not self.held:
            self.held = next(self.blocks, b"")
        taken = self.held if size < 0 else self.held[:size]
        self.held = self.held[len(taken) :]
        self.place += len(taken)
        return taken

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self.place


def texts_of_crawl(source: Source, longest: int) -> Iterator[str | Dropped]:
    """Yield the page or the text of each record, and of each record without one why it has none.

    Requests, what is said about the crawl, and records that repeat another are passed over.

    Args:
        source: .warc or .wet, also packed.
        longest: bytes of a record that are read.

    Raises:
        DamagedFileError: if the file ends too early, or goes on with something else.
    """
    with reading(source.path), source.path.open("rb") as file:
        yield from _texts(file, source, longest)


def _texts(file: BinaryIO, source: Source, longest: int) -> Iterator[str | Dropped]:
    from fastwarc.warc import ArchiveIterator, WarcRecordType  # noqa: PLC0415 - an extra

    stream, number = _Stream(unpacked(file, source)), 0
    kinds = WarcRecordType.response | WarcRecordType.conversion | WarcRecordType.resource
    records = ArchiveIterator(
        cast("BinaryIO", stream), record_types=kinds, parse_http=False, auto_decode="all"
    )
    try:
        for record in records:
            number += 1
            yield _text(record, longest)
    except DamagedFileError:
        raise
    except OSError as error:
        after = f"after record {number}" if number else "from its beginning"
        raise DamagedFileError(f"{source.path} is damaged {after}: {error}") from error


def _text(record: Any, longest: int) -> str | Dropped:
    """Return the page or the text of a record."""
    if (damage := _damage(record, longest)) is not None:
        return damage
    if not record.is_http:
        kind = (record.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        return _decoded(record.reader.read(), kind, None)
    record.parse_http(auto_decode="all")  # what was packed, or sent in chunks
    if (status := record.http_headers.status_code) != 200:
        return Dropped("no answer", f"status {status}")
    kind = (record.http_content_type or "").lower()
    return _decoded(record.reader.read(), kind, record.http_charset)


def _damage(record: Any, longest: int) -> Dropped | None:
    """Return why a record is not read; else it is in memory, and as it was written."""
    length = record.headers.get("Content-Length") or ""
    if not (length.isascii() and length.isdigit()):
        return Dropped("damaged record", f"its length is {length[:20]!r}")
    size = int(length)
    if size > longest:
        return Dropped("too long", f"a record of {size:,} bytes")
    record.freeze()  # so that its hash and its content can both be read
    if record.content_length != size:
        return Dropped("damaged record", f"{record.content_length:,} of {size:,} bytes are there")
    digest = record.headers.get("WARC-Block-Digest")
    if digest and not record.verify_block_digest():
        return Dropped("damaged record", f"not what it was: {digest[:100]}")
    return None


def _decoded(content: bytes, kind: str, charset: str | None) -> str | Dropped:
    """Return a page, or plain text, from its bytes."""
    if kind not in (*PAGES, "text/plain"):
        return Dropped("no page", kind or "without a kind")
    said = _CHARSET.search(content[:_HEAD]) if kind in PAGES and not charset else None
    name = said[1].decode() if said else charset or "utf-8"
    try:
        text = codecs.decode(content.removeprefix(codecs.BOM_UTF8), name, "surrogateescape")
    except (LookupError, UnicodeDecodeError, AssertionError):
        return Dropped("unknown letters", f"charset {name}"[:100])
    return as_page(text) if kind in PAGES else text
