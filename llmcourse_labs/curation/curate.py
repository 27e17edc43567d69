"""The funnel on files of one's own.

    llmcourse curate pages/ more.jsonl.gz --out curated/

Documents go through the steps of `funnel` twice: once each by itself, with a few bytes of every one
kept that tell copies, and once again when it is known which are copies.  In between they lie in
chunks under --out, each written whole: a call that was cut short goes on with the chunk that is
missing.  What is written follows from the files and the settings alone, however many processes.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jsonargparse import ArgumentParser

from llmcourse.base import files, progress
from llmcourse.base.arguments import require
from llmcourse.base.command_line import AGAIN, ended, run_command
from llmcourse.base.resumable import MADE_FROM, Resumable, read_record
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.dedup import LineCounts, RepeatedLines, exact_key, line_hashes
from llmcourse_labs.curation.documents import as_separator, read_pieces, text_of
from llmcourse_labs.curation.encode import num_cores
from llmcourse_labs.curation.extract import as_page
from llmcourse_labs.curation.funnel import (
    BEFORE_COPIES,
    EXACT,
    LINES,
    NEAR,
    QUALITY,
    STEPS,
    TEST_ITEMS,
    Funnel,
)
from llmcourse_labs.curation.language import KeepLanguage, default_model
from llmcourse_labs.curation.minhash import band_keys
from llmcourse_labs.curation.quality import KeepQuality, Quality
from llmcourse_labs.curation.report import write_page
from llmcourse_labs.curation.sources import (
    DamagedFileError,
    Source,
    digest_of,
    find_sources,
    kind_of,
)
from llmcourse_labs.curation.step import Document, Dropped, StepStats, filtered
from llmcourse_labs.curation.unpack import PIECE, require_columns

PROGRAM = "llmcourse curate"

READ = "read"
"""The step before the others: from the bytes of a file to a text."""

LONGEST = 10_000_000
"""Characters of a document; a longer one is dropped, so that memory has a limit."""

CHUNK = 4 * PIECE
"""About how many bytes of text are in a chunk."""

_ODD_BYTE = re.compile("[\udc80-\udcff]")
"""What stands for a byte that is no UTF-8."""

REPORT = "report.json"

Read = tuple[str, str | Dropped]
"""The name of a document, and its text or why there is none."""


def curate(
    inputs: Sequence[str | Path],
    out: str | Path,
    funnel: Funnel,
    *,
    field: str = "text",
    separator: str = END_OF_TEXT,
    processes: int = 1,
) -> dict[str, Any]:
    """Put documents of files through a funnel; go on where an earlier call was cut short.

    A line or a row that is no document, bytes that are no UTF-8, a document beyond `LONGEST` and
    what comes behind damage in a file are dropped and counted.

    Memory does not grow with the texts: of each document that reaches the search for copies it
    holds 16 bytes, 8 for each band and 8 for each line, and at the end, when copies are looked for,
    about four times as much.

    Args:
        inputs: text, JSON Lines, Parquet and web pages, or folders of them, see `find_sources`.
        out: a new or empty folder, or one in which the same call was cut short.
        funnel: the steps.
        field: name of the text in JSON Lines and Parquet.
        separator: what stands between the documents of a .txt.
        processes: that work; they change nothing but the time it takes.

    Returns:
        What report.json holds.

    Raises:
        ValueError: if a file or setting cannot be used, no document can be read, or the folder
            holds something else.
        OSError: if a file cannot be written; what was written is taken up by the next call.
    """
    require("processes", processes, least=1)
    if not separator:
        raise ValueError("the separator is empty: name what stands between two documents")
    out = Path(out)
    sources = find_sources(inputs, leave_out=out, pages=True)
    require_columns(sources, field)
    made_from = {
        "files": digest_of(sources, named=True),
        "field": field,
        "separator": separator,
        "steps": _described(funnel),
    }
    folder = Resumable(out, made_from, record=REPORT, verb="curated")
    with folder.alone() as done:
        if done is not None:
            return done
        folder.save()
        with _Pool(funnel, processes) as pool:
            try:
                chunks = _chunks(sources, field, separator)
                first, remembered = _first_pass(out, chunks, pool, sources)
                _require_some(first)
            except ValueError:  # the same call would fail again, and another one is refused
                shutil.rmtree(out / "chunks", ignore_errors=True)
                folder.unfinished.unlink()
                raise
            reasons, lines = _copies(funnel, remembered)
            second = _second_pass(out, reasons, lines, pool)
        tallies = _in_order([*first, *second], funnel)
        held = 16 + funnel.near_duplicates().bytes_per_document
        record = {
            "bytes_held_of_a_document": held,
            "documents": tallies[0].taken,
            "left": tallies[-1].kept,
            "left_out": [name for name in STEPS if name not in {t.name for t in tallies}],
            "tallies": [tally.as_dict() for tally in tallies],
        }
        write_page(out, record | {MADE_FROM: made_from})
        folder.finish(record)
        shutil.rmtree(out / "chunks", ignore_errors=True)
        return read_record(folder.record)[0]


# --- reading


def _chunks(sources: Sequence[Source], field: str, separator: str) -> Iterator[list[Read]]:
    """Yield the documents of the files, a few megabytes at a time."""
    chunk, size = [], 0
    for source in sources:
        for number, text in enumerate(_readable(source, field, separator), 1):
            chunk.append((f"{source.path}:{number}", text))
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


def _require_some(tallies: Sequence[StepStats]) -> None:
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
    parts, length = [], 0
    is_html = kind_of(source.path) == "page"
    for piece in read_pieces(source, field=field, separator=separator, errors="surrogateescape"):
        if isinstance(piece.content, bytes):
            for number, line in enumerate(piece.content.split(b"\n"), piece.line):
                if not line.isspace() and line:
                    yield _of_line(line, piece.path, number, field)
            continue
        texts = list(piece.content)
        if not piece.begins or not piece.ends:  # a part of one that is longer than a piece
            if length <= LONGEST:
                parts += texts
            length += sum(map(len, texts))
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


# --- the passes


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


def _first_pass(
    out: Path, chunks: Iterable[list[Read]], pool: "_Pool", sources: Sequence[Source]
) -> tuple[list[StepStats], list[Remembered]]:
    """Write every chunk that is not there yet; return what was counted and what is remembered."""
    tallies, remembered = [], []
    total = sum(source.num_bytes for source in sources)
    todo = (
        (number, None if (out / "chunks" / f"{number:06d}.jsonl").exists() else chunk)
        for number, chunk in enumerate(chunks)
    )
    with progress.bar(total=total, unit="B", unit_scale=True, desc="first pass") as bar:
        for (number, _), found in pool.map(_first, todo):
            stem = out / "chunks" / f"{number:06d}"
            if found is not None:
                documents, kept, counted = found
                with files.write_atomically(stem.with_suffix(".npz")) as file:
                    np.savez(file, **kept._asdict())
                _write_lines(
                    stem.with_suffix(".jsonl"),
                    [[tally.as_dict() for tally in counted], *map(list, documents)],
                )
            with np.load(stem.with_suffix(".npz"), allow_pickle=False) as arrays:
                remembered.append(Remembered(**arrays))
            with stem.with_suffix(".jsonl").open("rb") as file:
                tallies += map(StepStats.from_dict, json.loads(file.readline()))
            bar.update(min(total - bar.n, CHUNK))
    return tallies, remembered


def _copies(
    funnel: Funnel, remembered: Sequence[Remembered]
) -> tuple[list[list[str]], RepeatedLines]:
    """Return of every chunk's documents of which step they are a copy, and the lines that go."""
    near, seen, number = funnel.near_duplicates(), set(), 0
    reasons = [[""] * len(chunk.keys) for chunk in remembered]
    for chunk, here in zip(remembered, reasons, strict=True):
        for place, key in enumerate(chunk.keys.tolist()):
            if EXACT not in funnel.without and key in seen:
                here[place] = EXACT
            else:
                near.add_keys(str(number), chunk.bands[place])
                seen.add(key)
            number += 1
    if NEAR not in funnel.without:
        ends = np.cumsum([len(chunk.keys) for chunk in remembered])
        for dropped in map(int, near.dropped()):
            chunk = int(np.searchsorted(ends, dropped, side="right"))
            reasons[chunk][dropped - (int(ends[chunk - 1]) if chunk else 0)] = NEAR
    lines = LineCounts()
    for chunk, here in zip(remembered, reasons, strict=True):
        of_each = np.split(chunk.lines, np.cumsum(chunk.num_lines)[:-1])
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
    judges = {} if LINES in funnel.without else {LINES: lines}
    judges |= {n: judge for n, judge in funnel.judges().items() if n not in BEFORE_COPIES}
    for name, judge in judges.items():
        tallies.append(StepStats(name=name))
        documents = list(filtered(documents, judge, tallies[-1]))
    return documents, tallies


def _second_pass(
    out: Path, reasons: list[list[str]], lines: RepeatedLines, pool: "_Pool"
) -> list[StepStats]:
    """Write the documents of every chunk that are left."""
    tallies = []
    todo = (
        (out / "chunks" / f"{number:06d}.jsonl", here, lines) for number, here in enumerate(reasons)
    )
    with progress.bar(total=len(reasons), unit="chunk", desc="second pass") as bar:
        for number, (_, (documents, counted)) in enumerate(pool.map(_second, todo)):
            rows = [{"id": document.id, "text": document.text} for document in documents]
            _write_lines(out / "documents" / f"{number:06d}.jsonl", rows)
            tallies += counted
            bar.update()
    return tallies


def _write_lines(path: Path, rows: Iterable[Any]) -> None:
    with files.write_atomically(path) as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)


def _in_order(tallies: Iterable[StepStats], funnel: Funnel) -> list[StepStats]:
    """Add the tallies of the chunks, step by step."""
    judges = funnel.judges()
    on_all = {EXACT, NEAR, LINES} - set(funnel.without)
    there = [name for name in STEPS if name in judges or name in on_all]
    found = {name: StepStats(name=name) for name in (READ, *there)}
    for tally in tallies:
        found[tally.name].add(tally)
    return list(found.values())


# --- processes

_funnel: Funnel | None = None
"""Of this process, if it is one that works for another."""


def _begin(funnel: Funnel) -> None:
    """Make a process ready to work; it ends when the one that writes does, however that ends."""
    global _funnel  # noqa: PLW0603 - a process of a pool has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    _funnel = funnel


def _first(funnel: Funnel | None, item: tuple[int, list[Read] | None]) -> Any:
    """Do the first pass of a chunk, unless it has been done."""
    return None if item[1] is None else first_pass(funnel or _funnel, item[1])


def _second(funnel: Funnel | None, item: tuple[Path, list[str], RepeatedLines]) -> Any:
    """Do the second pass of a chunk."""
    path, reasons, lines = item
    with path.open("rb") as file:
        file.readline()
        documents = [Document(*json.loads(line)) for line in file]
    return second_pass(funnel or _funnel, documents, reasons, lines)


class _Pool:
    """Processes that each hold the funnel; with one it is this process."""

    def __init__(self, funnel: Funnel, processes: int) -> None:
        self.funnel, self.ahead = funnel, 2 * processes
        self.pool = None
        if processes > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            self.pool = ProcessPoolExecutor(processes, context, _begin, (funnel,))

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[..., Any], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield every item with what becomes of it, in order; a few are taken ahead."""
        if self.pool is None:
            yield from ((item, work(self.funnel, item)) for item in items)
            return
        under_way: deque[tuple[Any, Future]] = deque()
        for each in items:
            under_way.append((each, self.pool.submit(work, None, each)))
            if len(under_way) > self.ahead:
                item, future = under_way.popleft()
                yield item, future.result()
        yield from ((item, future.result()) for item, future in under_way)


def _described(funnel: Funnel) -> dict[str, Any]:
    """Return the settings of a funnel as plain data; of trained parts a hash."""
    items = funnel.test_items.test_items if funnel.test_items else []
    quality = funnel.quality
    return {
        "language": funnel.language.language,
        "similarity": funnel.similarity,
        "most_documents": funnel.most_documents,
        "without": sorted(funnel.without),
        "test_items": hashlib.sha256("\n".join(items).encode()).hexdigest() if items else None,
        "quality": quality and hashlib.sha256(quality.classifier.weights.tobytes()).hexdigest(),
        "least_quality": quality and quality.least,
    }


# --- the command


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _curate(arguments), again=AGAIN)


def _curate(arguments: list[str] | None) -> None:
    """Put the documents through the funnel, and say what is left."""
    options = _parser().parse_args(arguments)
    record = curate(
        options.files,
        options.out,
        funnel_of(options),
        field=options.field,
        separator=as_separator(options.separator),
        processes=options.processes or num_cores(),
    )
    print(_summary(Path(options.out), record))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage=f"{PROGRAM} pages/ more.jsonl.gz --out curated/",
        description="Put documents or web pages through a funnel: main text, language, rules, "
        "copies, repeated lines, quality, test items, personal data. The folder then has a report "
        "and what is left, for llmcourse prepare. A call that was cut short goes on where it was.",
    )
    add = parser.add_argument
    kinds = ".txt, .jsonl, .ndjson, .html, also with .gz or .zst; .parquet; folders of them"
    add("files", nargs="+", help=kinds)
    add("--out", required=True, help="new folder for the report and the documents")
    add_steps(parser)
    add("--field", default="text", help="name of the text in .jsonl and .parquet")
    add("--separator", default=END_OF_TEXT, help=r"what stands between documents of a .txt; \n, \t")
    add("--processes", type=int, help="that work (one for each core)")
    return parser


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a funnel."""
    add = parser.add_argument
    add("--language", default="en", help="of the documents to keep: en, de or es")
    add("--similarity", type=float, default=0.6, help="of near copies, half of which are found")
    add("--test_items", help="file with questions that no document may hold, one a line")
    add("--quality", help="file of a classifier that Quality.save has written")
    add("--least_quality", type=float, default=0.5, help="its least probability")
    add("--without", nargs="*", default=[], help=f"steps to leave out: {', '.join(STEPS)}")


def funnel_of(options: argparse.Namespace) -> Funnel:
    """Return the funnel that the options describe.

    Raises:
        ValueError: if one is outside its range, has no effect, or names a file of no use.
    """
    funnel = Funnel(
        language=KeepLanguage(model=default_model(), language=options.language),
        similarity=options.similarity,
        without=tuple(options.without),
    )
    require("similarity", options.similarity, above=0, below=1)
    if options.quality is not None:
        least = options.least_quality
        require("least_quality", least, least=0, most=1)
        quality = KeepQuality(classifier=Quality.load(options.quality), least=least)
        funnel = replace(funnel, quality=quality)
    elif options.least_quality != 0.5:
        raise ValueError("--least_quality has no effect without --quality: leave it out")
    if options.test_items is not None:
        lines = Path(options.test_items).read_text(encoding="utf8", errors="replace").split("\n")
        items = [line for line in lines if any(map(str.isalnum, line))]
        if not items:
            raise ValueError(f"{options.test_items} holds no test item: one a line")
        funnel = replace(funnel, test_items=Decontaminate(items))
    return funnel


def _summary(out: Path, record: dict[str, Any]) -> str:
    """Return what was left after each step, and what to do with it."""
    tallies = [StepStats.from_dict(each) for each in record["tallies"]]
    lines = [f"{out}: {record['left']:,} of {record['documents']:,} documents are left"]
    lines += [f"  {tally.name:16} {tally.taken - tally.kept:8,} dropped" for tally in tallies]
    for name in record["left_out"]:
        needs = f": give --{name.replace(' ', '_')}" if name in (QUALITY, TEST_ITEMS) else ""
        lines.append(f"  {name:16}  left out{needs}")
    lines.append(f"See {out / 'report.html'}.  Go on with: llmcourse prepare {out / 'documents'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
