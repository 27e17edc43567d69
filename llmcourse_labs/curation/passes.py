"""The two passes of the funnel over chunks of documents, and what lies between them.

A chunk is some megabytes of documents, and is worked on by itself.  Of its documents the first pass
remembers what tells copies; from what all chunks remember follows what the second pass drops.
Whoever runs the passes (`curate` in processes, `executors` on many machines) gets the same.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmcourse.base import files
from llmcourse_labs.curation.crawl_files import texts_of_crawl
from llmcourse_labs.curation.dedup import LineCounts, RepeatedLines, exact_key, line_hashes
from llmcourse_labs.curation.documents import read_pieces, text_of
from llmcourse_labs.curation.extract import as_page
from llmcourse_labs.curation.funnel import (
    BEFORE_COPIES,
    EXACT,
    LINES,
    NEAR,
    STEPS,
    Funnel,
)
from llmcourse_labs.curation.minhash import band_keys
from llmcourse_labs.curation.sources import DamagedFileError, Source, kind_of
from llmcourse_labs.curation.step import Document, Dropped, Filter, StepStats, filtered
from llmcourse_labs.curation.unpack import PIECE

READ = "read"
"""The step before the others: from the bytes of a file to a text."""

LONGEST = 10_000_000
"""Characters of a document; a longer one is dropped, so that memory has a limit."""

CHUNK = 4 * PIECE
"""About how many bytes of text are in a chunk."""

_ODD_BYTE = re.compile("[\udc80-\udcff]")
"""What stands for a byte that is no UTF-8."""

Read = tuple[str, str | Dropped]
"""The name of a document, and its text or why there is none."""


def chunks(
    sources: Iterable[Source], field: str, separator: str, *, name: str | None = None
) -> Iterator[list[Read]]:
    """Yield the documents of the files, a few megabytes at a time.

    They are named by their file, as it was given or as `name` says, and their number in it.
    """
    chunk: list[Read] = []
    size = 0
    for source in sources:
        for number, text in enumerate(_readable(source, field, separator), 1):
            chunk.append((f"{name or source.path}:{number}", text))
            size += len(text) if isinstance(text, str) else 0
            if size >= CHUNK:
                yield chunk
                chunk, size = [], 0
    yield chunk


def _readable(source: Source, field: str, separator: str) -> Iterator[str | Dropped]:
    """Yield the texts of a file, and where it is damaged why no more of it can be read."""
    try:
        yield from _texts(source, field, separator)
    except DamagedFileError as error:
        yield Dropped("the rest of the file", " ".join(str(error).split())[:200])


def require_some(tallies: Sequence[StepStats]) -> None:
    """Raise ValueError if no document of all could be read."""
    read = StepStats(name=READ)
    for tally in tallies:
        if tally.name == READ:
            read.add(tally)
    if read.kept:
        return
    if not read.taken:
        raise ValueError("there is no text in these files")
    why = next(examples[0].detail for examples in read.examples.values())
    raise ValueError(f"none of the {read.taken:,} documents in these files can be read: {why}")


def _texts(source: Source, field: str, separator: str) -> Iterator[str | Dropped]:
    """Yield the texts of a file, and for each document without one why it has none."""
    if kind_of(source.path) != "crawl":
        yield from _texts_in_pieces(source, field, separator)
        return
    for found in texts_of_crawl(source, LONGEST):
        yield _in_utf8(found) if isinstance(found, str) else found


def _texts_in_pieces(source: Source, field: str, separator: str) -> Iterator[str | Dropped]:
    """Yield the texts of a file that is read in pieces, as `_texts` does."""
    parts: list[str] = []
    length, is_html = 0, kind_of(source.path) == "page"
    for piece in read_pieces(source, field=field, separator=separator, errors="surrogateescape"):
        if isinstance(piece.content, bytes):
            for number, line in enumerate(piece.content.split(b"\n"), piece.line):
                if not line.isspace() and line:
                    yield _of_line(line, piece.path, number, field)
            continue
        texts: list[str | Dropped | None] = list(piece.content)
        if not piece.begins or not piece.ends:  # a part of one that is longer than a piece
            here = [text or "" for text in piece.content]
            if length <= LONGEST:
                parts += here
            length += sum(map(len, here))
            if not piece.ends:
                continue
            too_long = Dropped("too long", f"{length:,} characters, at most {LONGEST:,}")
            texts, parts = ["".join(parts)], []
            if length > LONGEST:
                texts = [too_long]
            length = 0
        for text in texts:
            if text is None:
                yield Dropped("no text", "the row is null")
            elif isinstance(text, Dropped):
                yield text
            elif text.strip():
                yield _in_utf8(as_page(text) if is_html else text)


def _in_utf8(text: str) -> str | Dropped:
    """Return a text, or that it has a byte which is no UTF-8."""
    odd = _ODD_BYTE.search(text)
    return Dropped("no UTF-8", f"after {text[: odd.start()][-20:]!r}") if odd else text


def _of_line(line: bytes, path: Path, number: int, field: str) -> str | Dropped:
    """Return the text of a line of JSON."""
    if len(line) > 4 * LONGEST:
        return Dropped("too long", f"a line of {len(line):,} bytes")
    try:
        text = text_of(line, path, number, field)
    except ValueError as error:
        reason = "no UTF-8" if "UTF-8" in str(error) else "no document in the line"
        return Dropped(reason, " ".join(str(error).split())[:200])
    if len(text) > LONGEST:
        return Dropped("too long", f"{len(text):,} characters, at most {LONGEST:,}")
    return text


class Remembered(NamedTuple):
    """What is kept of the documents of a chunk until copies are known."""

    keys: np.ndarray
    bands: np.ndarray
    lines: np.ndarray
    num_lines: np.ndarray


def first_pass(
    funnel: Funnel, chunk: list[Read]
) -> tuple[list[Document], Remembered, list[StepStats]]:
    """Put the documents of a chunk through the steps that come before the search for copies."""
    tallies = [StepStats(name=READ)]
    documents = []
    for name, text in chunk:
        document = Document(name, text if isinstance(text, str) else "")
        tallies[0].note(document, text)
        if isinstance(text, str):
            documents.append(document)
    for name, judge in funnel.judges().items():
        if name in BEFORE_COPIES:
            tallies.append(StepStats(name=name))
            documents = list(filtered(documents, judge, tallies[-1]))
    near = funnel.near_duplicates()
    keys = [exact_key(document.text) for document in documents]
    bands = [band_keys(funnel.signature(d.text), near.bands, near.rows) for d in documents]
    lines = [line_hashes(document.text) for document in documents]
    remembered = Remembered(
        np.frombuffer(b"".join(keys), "V16"),
        np.array(bands, np.uint64).reshape(-1, near.bands),
        np.concatenate([np.empty(0, np.uint64), *lines]),
        np.array([len(each) for each in lines], np.int64),
    )
    return documents, remembered, tallies


def find_copies(
    funnel: Funnel, remembered: Sequence[Remembered]
) -> tuple[list[list[str]], RepeatedLines]:
    """Return of every chunk's documents of which step they are a copy, and the lines that go."""
    near, seen, number = funnel.near_duplicates(), set(), 0
    reasons = [[""] * len(chunk.keys) for chunk in remembered]
    for of_chunk, here in zip(remembered, reasons, strict=True):
        for place, key in enumerate(of_chunk.keys.tolist()):
            if EXACT not in funnel.without and key in seen:
                here[place] = EXACT
            else:
                near.add_keys(str(number), of_chunk.bands[place])
                seen.add(key)
            number += 1
    if NEAR not in funnel.without:
        ends = np.cumsum([len(chunk.keys) for chunk in remembered])
        for dropped in map(int, near.dropped()):
            chunk = int(np.searchsorted(ends, dropped, side="right"))
            reasons[chunk][dropped - (int(ends[chunk - 1]) if chunk else 0)] = NEAR
    lines = LineCounts()
    for of_chunk, here in zip(remembered, reasons, strict=True):
        of_each = np.split(of_chunk.lines, np.cumsum(of_chunk.num_lines)[:-1])
        for hashes, reason in zip(of_each, here, strict=False):  # an empty chunk splits into one
            if not reason:
                lines.add_hashes(hashes)
    return reasons, lines.repeated(funnel.most_documents)


def second_pass(
    funnel: Funnel, documents: list[Document], reasons: list[str], lines: RepeatedLines
) -> tuple[list[Document], list[StepStats]]:
    """Drop the copies of a chunk, and put what is left through the other steps."""
    tallies = [StepStats(name=name) for name in (EXACT, NEAR) if name not in funnel.without]
    for tally in tallies:
        kept = []
        for document, reason in zip(documents, reasons, strict=True):
            tally.note(document, Dropped(tally.name) if reason == tally.name else document.text)
            if reason != tally.name:
                kept.append((document, reason))
        documents, reasons = [d for d, _ in kept], [reason for _, reason in kept]
    judges: dict[str, Filter] = {} if LINES in funnel.without else {LINES: lines}
    judges |= {n: judge for n, judge in funnel.judges().items() if n not in BEFORE_COPIES}
    for name, judge in judges.items():
        tallies.append(StepStats(name=name))
        documents = list(filtered(documents, judge, tallies[-1]))
    return documents, tallies


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write a line of JSON for each row, all of them or none."""
    with files.write_atomically(path) as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)


def in_order(tallies: Iterable[StepStats], funnel: Funnel) -> list[StepStats]:
    """Add the tallies of the chunks, step by step."""
    judges = funnel.judges()
    on_all = {EXACT, NEAR, LINES} - set(funnel.without)
    there = [name for name in STEPS if name in judges or name in on_all]
    found = {name: StepStats(name=name) for name in (READ, *there)}
    for tally in tallies:
        found[tally.name].add(tally)
    return list(found.values())


def write_first(stem: Path, found: tuple[list[Document], Remembered, list[StepStats]]) -> None:
    """Write what the first pass made of a chunk; the documents last, since they say it is done."""
    documents, kept, counted = found
    with files.write_atomically(stem.with_suffix(".npz")) as file:
        np.savez(file, **kept._asdict())
    counts = [tally.as_dict() for tally in counted]
    write_lines(stem.with_suffix(".jsonl"), [counts, *map(list, documents)])


def is_written(stem: Path) -> bool:
    """Whether the first pass of a chunk is done."""
    return stem.with_suffix(".jsonl").exists()


def read_remembered(stem: Path) -> Remembered:
    """Return what the first pass remembers of a chunk."""
    with np.load(stem.with_suffix(".npz"), allow_pickle=False) as arrays:
        return Remembered(**arrays)


def read_counts(stem: Path) -> list[StepStats]:
    """Return what the first pass has counted in a chunk."""
    with stem.with_suffix(".jsonl").open("rb") as file:
        return [StepStats.from_dict(each) for each in json.loads(file.readline())]


def read_documents(stem: Path) -> list[Document]:
    """Return what the first pass left of a chunk."""
    with stem.with_suffix(".jsonl").open("rb") as file:
        file.readline()
        return [Document(*json.loads(line)) for line in file]


def write_documents(path: Path, documents: Iterable[Document]) -> None:
    """Write what is left at the end."""
    write_lines(path, [{"id": document.id, "text": document.text} for document in documents])


def record_of(tallies: Iterable[StepStats], funnel: Funnel) -> dict[str, Any]:
    """Return what the report says, but for what the work depends on."""
    counted = in_order(tallies, funnel)
    return {
        "bytes_held_of_a_document": 16 + funnel.near_duplicates().bytes_per_document,
        "documents": counted[0].taken,
        "left": counted[-1].kept,
        "left_out": [name for name in STEPS if name not in {t.name for t in counted}],
        "tallies": [tally.as_dict() for tally in counted],
    }
